//! The memory limit of compiled programs.

use std::env;

use remat_ir::{Error, ErrorKind, Result, parse_bytes};

/// What to do with a program that needs more memory than its limit.
///
/// ```
/// use remat::{DType, JitOptions, OverLimit, Tensor, grad, jit_with};
/// let loss = |x: &Tensor| (0..10).fold(x.clone(), |x, _| x.cumsum(0).sin()).sum(..);
/// let options = JitOptions { memory_limit: Some(150_000), over_limit: OverLimit::Refuse, ..JitOptions::default() };
/// let error = jit_with(&options, grad(loss)).call(Tensor::ones([64, 64], DType::F32)).unwrap_err();
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
        let message = format!("{VARIABLE} is '{text}' and must be a number of bytes such as 500000, 512MiB or 1.5GiB");
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
