//! Errors of files.

use std::path::Path;

use remat::Error;

/// The same error, for a tensor of a file.
pub(crate) fn of_tensor(operation: &str, path: &Path, name: &str, error: &Error) -> Error {
    let message = format!("tensor `{name}` of `{}`: {}", path.display(), error.message());
    let moved = Error::new(error.kind(), operation, message);
    error.loc().map_or(moved.clone(), |loc| moved.at(loc))
}

/// A list for a message: the first few, and how many more there are.
pub(crate) fn listed<'a>(words: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 3;
    let more = words.len().saturating_sub(SHOWN);
    let shown: Vec<String> = words.take(SHOWN).map(|word| format!("`{word}`")).collect();
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b", "c"].into_iter()), "`a`, `b`, `c`");
        assert_eq!(listed(["a", "b", "c", "d", "e"].into_iter()), "`a`, `b`, `c` and 2 more");
    }
}
