//! Patterns of paths: of parameters, of scopes.

/// Whether names match a pattern, in which `*` stands for any one name and `**` for any number of them. `is_whole` says that the pattern is for
/// all names and not just for the last ones.
///
/// Each `**` is met once for each end that it may have: reached positions are a set, so that the time is the product of both lengths,
/// however many `**` there are.
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
