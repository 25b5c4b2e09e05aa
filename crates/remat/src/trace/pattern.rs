//! Patterns for paths of parameters and of scopes.

/// Whether names match a pattern, in which `*` matches any one name and `**` any number of names. `is_whole` means that the pattern must
/// match all names, not just the last ones.
///
/// Reached positions are kept as a set, so each `**` is visited once per possible end, and the time is the product of both lengths for any
/// number of `**`.
pub(crate) fn matches<'a>(
    pattern: impl IntoIterator<Item = &'a str>,
    names: &[impl AsRef<str>],
    is_whole: bool,
) -> bool {
    let mut reached = vec![!is_whole; names.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; names.len() + 1];
        for i in 0..=names.len() {
            next[i] = match part {
                "**" => reached[i] || (i > 0 && next[i - 1]),
                _ => i > 0 && reached[i - 1] && (part == "*" || part == names[i - 1].as_ref()),
            };
        }
        reached = next;
    }
    reached[names.len()]
}
