//! Checkpoint policies as the command line names them.

use remat::{MemorySpace, Policy};

use crate::Result;

/// The policies that tables list, as one writes them.
pub(crate) const LISTED: [&str; 8] = [
    "none",
    "everything",
    "dots",
    "dots-no-batch",
    "names:attn,mlp",
    "any-names-but:qkv",
    "offload-dots-no-batch",
    "nothing",
];

/// What `--policy` means, for the help.
pub(crate) const HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), everything, dots, \
     dots-no-batch, offload-dots-no-batch, nothing, or names:A,B, any-names-but:A,B, anything-but:A,B, \
     offload-names:A,B with names out of qkv, attn, mlp";

/// The policies without names, and how each is written.
const PLAIN: [(&str, Option<Policy>); 6] = [
    ("none", None),
    ("nothing", Some(Policy::Nothing)),
    ("everything", Some(Policy::Everything)),
    ("dots", Some(Policy::Dots)),
    ("dots-no-batch", Some(Policy::DotsWithNoBatchDims)),
    ("offload-dots-no-batch", Some(Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host))),
];

/// The policies with names, and how each is written before the colon.
const NAMED: [(&str, fn(Vec<String>) -> Policy); 4] = [
    ("names", |names| Policy::names(names)),
    ("any-names-but", |names| Policy::any_names_but(names)),
    ("anything-but", |names| Policy::anything_but(names)),
    ("offload-names", |names| Policy::save_and_offload_names([""; 0], names)),
];

/// The policy of this text; `None` is no checkpoint. Whether a value bears a name is for the library to say.
///
/// # Errors
/// If there is no such policy, or its names are missing or too many.
pub(crate) fn parse(text: &str) -> Result<Option<Policy>> {
    let (kind, names) = match text.split_once(':') {
        Some((kind, names)) => (kind, Some(names)),
        None => (text, None),
    };
    if let Some((_, policy)) = PLAIN.iter().find(|(plain, _)| *plain == kind) {
        return match names {
            None => Ok(policy.clone()),
            Some(_) => Err(format!("the policy `{kind}` takes no names, and got `{text}`")),
        };
    }
    if let Some((_, make)) = NAMED.iter().find(|(named, _)| *named == kind) {
        let names: Vec<String> =
            names.unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
        return match names.is_empty() {
            true => Err(format!("the policy `{kind}` needs names, as in `{kind}:attn,mlp`")),
            false => Ok(Some(make(names))),
        };
    }
    let known: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).chain(NAMED.iter().map(|(name, _)| *name)).collect();
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(name, kind), name)).min();
    Err(match nearest {
        Some((distance, name)) if distance <= 1 + kind.chars().count() / 3 => {
            format!("there is no policy `{kind}`; did you mean `{name}`?")
        }
        Some(_) | None => format!("there is no policy `{kind}`; the policies are {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_is_one() {
        for text in LISTED {
            assert_eq!(parse(text).map(|policy| policy.is_none()), Ok(text == "none"), "{text}");
        }
    }

    #[test]
    fn names_are_trimmed_and_empty_ones_dropped() {
        assert_eq!(parse("names: attn ,,mlp"), Ok(Some(Policy::names(["attn", "mlp"]))));
        assert_eq!(parse("anything-but:qkv"), Ok(Some(Policy::anything_but(["qkv"]))));
        let offload = Policy::save_and_offload_names([""; 0], ["qkv"]);
        assert_eq!(parse("offload-names:qkv"), Ok(Some(offload)));
    }

    #[test]
    fn what_is_no_policy_is_an_error() {
        let message = |text: &str| parse(text).unwrap_err();
        assert_eq!(message("dost"), "there is no policy `dost`; did you mean `dots`?");
        assert_eq!(message("name:attn"), "there is no policy `name`; did you mean `names`?");
        assert_eq!(
            message("magic"),
            "there is no policy `magic`; the policies are none, nothing, everything, dots, dots-no-batch, \
             offload-dots-no-batch, names, any-names-but, anything-but, offload-names"
        );
        assert_eq!(message("names"), "the policy `names` needs names, as in `names:attn,mlp`");
        assert_eq!(message("names:,"), "the policy `names` needs names, as in `names:attn,mlp`");
        assert_eq!(message("dots:attn"), "the policy `dots` takes no names, and got `dots:attn`");
    }
}
