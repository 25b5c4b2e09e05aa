//! Checkpoint policies of the command line: the library's syntax, and `none` for no checkpoint.

use anyhow::Result;
use remat::Policy;

/// The policies that tables list, as they print.
pub(crate) const LISTED: [&str; 8] = [
    "none",
    "Everything",
    "Dots",
    "DotsWithNoBatchDims",
    "Names(attn, mlp)",
    "AnyNamesBut(qkv)",
    "OffloadDotsWithNoBatchDims(host)",
    "Nothing",
];

/// The policy that trains where none is chosen.
pub(crate) const DEFAULT: &str = "Names(attn, mlp)";

/// What `--policy` means, for the help.
pub(crate) const HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), or a policy as the library \
     and JAX write it: everything, dots, dots_with_no_batch_dims, nothing, offload_dots_with_no_batch_dims(host), \
     'names(A, B)', 'any_names_but(A)', 'anything_but(A)', 'or(.., ..)', ... with names out of qkv, attn, mlp";

/// The policy of this text; `None` means no checkpoint. Whether a value has a name is for the library to say.
///
/// # Errors
/// If there is no such policy, or it is not well formed.
pub(crate) fn parse(text: &str) -> Result<Option<Policy>> {
    if text == "none" { Ok(None) } else { Ok(Some(text.parse()?)) }
}

/// A policy as tables print it.
pub(crate) fn name(policy: Option<&Policy>) -> String {
    policy.map_or_else(|| "none".into(), Policy::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_policies_are_written_as_they_print() {
        for text in LISTED.into_iter().chain([DEFAULT]) {
            assert_eq!(name(parse(text).unwrap().as_ref()), text);
        }
    }
}
