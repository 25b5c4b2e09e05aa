//! Errors of files.

use std::io;
use std::path::Path;

use remat::{Error, ErrorKind};

/// An error about the content of a file or folder.
pub(crate) fn wrong(operation: &str, path: &Path, message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Io, operation, format!("`{}` {}", path.display(), message.as_ref()))
}

/// A system error: what could not be done with a file or folder.
pub(crate) fn cannot(operation: &str, what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, operation, format!("cannot {what} `{}`: {error}", path.display()))
}

/// The error of an invalid argument.
pub(crate) fn invalid(operation: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Argument, operation, message)
}

/// Words of a message: `a`, `b` and `c`, each in backticks.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => "none".to_string(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn lists_of_words() {
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
