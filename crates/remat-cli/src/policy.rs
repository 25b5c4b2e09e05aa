//! The checkpoint policies that the commands list, accept and explain.

/// The policies that tables list, as they print.
pub(crate) const LISTED: [&str; 8] = [
    "none",
    "Everything",
    "Dots",
    "DotsWithNoBatchDims",
    "Names(attn, up)",
    "Names(attn)",
    "OffloadDotsWithNoBatchDims(host)",
    "Nothing",
];

/// The default policy of training.
pub(crate) const DEFAULT: &str = "Names(attn)";

/// The help of `--policy`.
pub(crate) const HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), or a policy in the \
     syntax of the library or of JAX: everything, dots, dots_with_no_batch_dims, nothing, offload_dots_with_no_batch_dims(host), \
     'names(A, B)', 'any_names_but(A)', 'anything_but(A)', 'budget(64MiB)', 'or(.., ..)', ...; the names in a block are qkv, attn, up, mlp and, in Llama, gate";

#[cfg(test)]
mod tests {
    use remat::Policy;
    use remat_cli::arguments::policy;

    use super::*;

    #[test]
    fn listed_policies_are_written_as_they_print() {
        for text in LISTED.into_iter().chain([DEFAULT]) {
            assert_eq!(Policy::name_of(policy(text).unwrap().as_ref()), text);
        }
    }
}
