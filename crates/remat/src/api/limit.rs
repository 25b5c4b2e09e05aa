//! The memory limit of compiled programs.

use std::env;

use remat_ir::{Error, ErrorKind, Result, parse_bytes};

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
