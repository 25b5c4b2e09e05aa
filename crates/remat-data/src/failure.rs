//! Errors of files.

use remat::{Error, ErrorKind, Result};

/// The error of an invalid argument.
pub(crate) fn invalid(operation: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Argument, operation, message)
}

/// An error unless there is memory for this many bytes, in several parts; `None` is more than can be counted. `what` takes them.
///
/// # Errors
/// If the system does not give them.
pub(crate) fn expect_memory(operation: &str, what: impl FnOnce() -> String, bytes: Option<usize>) -> Result<()> {
    let reserve = |bytes| Vec::<u8>::new().try_reserve_exact(bytes).ok();
    match bytes.and_then(reserve) {
        Some(()) => Ok(()),
        None => Err(invalid(operation, format!("there is no memory for {}", what()))),
    }
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
    use super::*;

    #[test]
    fn memory_that_there_is_not() {
        for bytes in [None, Some(usize::MAX), Some(1 << 62)] {
            let error = expect_memory("f", || "a batch".into(), bytes).unwrap_err();
            assert_eq!(error.message(), "there is no memory for a batch");
        }
        expect_memory("f", || "a batch".into(), Some(1 << 20)).unwrap();
        expect_memory("f", || "nothing".into(), Some(0)).unwrap();
    }

    #[test]
    fn lists_of_words() {
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
