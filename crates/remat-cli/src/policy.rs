//! The checkpoint policies that the commands list, accept and explain.

use remat::Policy;
use remat::ir::MemorySpace;

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

/// The policies that are compiled for chips, where each takes a compilation, and values may go to the memory of the host.
pub(crate) const COMPILED: [&str; 6] =
    ["none", "Dots", "DotsWithNoBatchDims", "Names(qkv, attn)", "OffloadNames(qkv, attn)", "Nothing"];

/// The default policy of training.
pub(crate) const DEFAULT: &str = "Names(attn)";

/// The help of `--policy`.
pub(crate) const HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), or a policy in the \
     syntax of the library or of JAX: everything, dots, dots_with_no_batch_dims, nothing, offload_dots_with_no_batch_dims(host), \
     'names(A, B)', 'any_names_but(A)', 'anything_but(A)', 'budget(64MiB)', 'or(.., ..)', ...; the names in a block are qkv, attn, up, mlp and, in Llama, gate";

/// A policy as all commands print it, and read it.
pub(crate) fn shown(policy: Option<&Policy>) -> String {
    match policy {
        Some(Policy::SaveAndOffloadNames { saved, offloaded, to: MemorySpace::Host }) if saved.is_empty() => {
            let names: Vec<&str> = offloaded.iter().map(|name| &**name).collect();
            format!("OffloadNames({})", names.join(", "))
        }
        _ => Policy::name_of(policy),
    }
}

#[cfg(test)]
mod tests {
    use remat_command::arguments::policy;

    use super::*;

    #[test]
    fn listed_policies_are_written_as_they_print() {
        for text in LISTED.into_iter().chain([DEFAULT]) {
            assert_eq!(shown(policy(text).unwrap().as_ref()), text);
        }
    }

    #[test]
    fn policies_are_printed_as_they_are_typed() {
        for text in ["none", "Names(attn, qkv)", "OffloadNames(attn, qkv)", "SaveAndOffloadNames((attn), (qkv), host)"]
        {
            assert_eq!(shown(policy(text).unwrap().as_ref()), text);
        }
        for text in COMPILED {
            policy(text).unwrap();
        }
    }
}
