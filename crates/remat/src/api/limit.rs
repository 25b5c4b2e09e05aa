//! The memory limit of compiled programs.

use std::env;

use remat_ir::{Error, ErrorKind, Result, parse_bytes};

use crate::trace::current_loc;

/// What to do with a program that needs more memory than its limit.
///
/// ```
/// use remat::{DType, OverLimit, Tensor, grad, jit};
/// let loss = |x: &Tensor| (0..10).fold(x.clone(), |x, _| x.cumsum(0).sin()).sum(..);
/// let step = jit(grad(loss)).memory_limit(150_000).over_limit(OverLimit::Refuse);
/// let error = step.call(Tensor::ones([64, 64], DType::F32)).unwrap_err();
/// assert!(error.message().contains("(150000 B)"), "{error}");
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OverLimit {
    /// Values are computed again until the program fits, in the least time that is found. Only the native engine can do this; other engines
    /// act as with [`OverLimit::Refuse`].
    #[default]
    Rematerialize,
    /// The program is not compiled.
    Refuse,
}

/// A number of bytes: an integer, or a text such as `500000`, `512MiB` or `1.5GiB`. Arguments that are one take both.
///
/// ```
/// use remat::argument::Bytes;
/// assert_eq!(Bytes::from("1.5KiB").get()?, 1536);
/// assert_eq!(Bytes::from(1536).get()?, 1536);
/// let error = Bytes::from("4GB").get().unwrap_err();
/// assert_eq!(error.message(), "'4GB' is not a number of bytes such as 500000, 512MiB or 1.5GiB");
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(std::result::Result<usize, String>);

impl Bytes {
    /// The number.
    ///
    /// # Errors
    /// If the text is not a number of bytes.
    #[track_caller]
    pub fn get(self) -> Result<usize> {
        self.of("bytes")
    }

    /// As [`Bytes::get`], for a method of this name.
    #[track_caller]
    pub(super) fn of(self, method: &str) -> Result<usize> {
        let loc = current_loc();
        self.0.map_err(|text| {
            let message = format!("'{text}' is not a number of bytes such as {EXAMPLES}");
            Error::new(ErrorKind::Argument, method, message).at(loc)
        })
    }
}

impl From<usize> for Bytes {
    fn from(bytes: usize) -> Bytes {
        Bytes(Ok(bytes))
    }
}

impl From<&str> for Bytes {
    /// Whether the text is a number is found out when it is used.
    fn from(text: &str) -> Bytes {
        Bytes(parse_bytes(text).ok_or_else(|| text.to_string()))
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Bytes {
        Bytes::from(text.as_str())
    }
}

/// Numbers of bytes for messages about texts that are none.
const EXAMPLES: &str = "500000, 512MiB or 1.5GiB";

/// The environment variable with the default limit.
const VARIABLE: &str = "REMAT_MEMORY_LIMIT";

/// The limit in bytes: the option, or else the environment variable.
///
/// # Errors
/// If the environment variable is not a number of bytes.
pub(super) fn memory_limit(option: Option<usize>) -> Result<Option<usize>> {
    let Some(text) = env::var_os(VARIABLE).filter(|text| option.is_none() && !text.is_empty()) else {
        return Ok(option);
    };
    let text = text.to_string_lossy();
    parse_bytes(&text).map(Some).ok_or_else(|| {
        let message = format!("{VARIABLE} is '{text}' and must be a number of bytes such as {EXAMPLES}");
        Error::new(ErrorKind::Argument, "compile", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_first() {
        assert_eq!(memory_limit(Some(7)).unwrap(), Some(7));
    }
}
