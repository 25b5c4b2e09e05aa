//! How much memory a program may need.

use std::env;

use remat_ir::{Error, ErrorKind, Result};

/// The variable that holds the limit of programs that have none of their own.
const VARIABLE: &str = "REMAT_MEMORY_LIMIT";

/// The limit in bytes: the option, else the environment's.
///
/// # Errors
/// If the environment says something else than a number of bytes.
pub(super) fn memory_limit(option: Option<usize>) -> Result<Option<usize>> {
    let Some(text) = env::var_os(VARIABLE).filter(|text| option.is_none() && !text.is_empty()) else {
        return Ok(option);
    };
    let text = text.to_string_lossy();
    parse(&text).map(Some).ok_or_else(|| {
        let message = format!("{VARIABLE} is '{text}' and must be a number of bytes such as 500000, 512MiB or 1.5GiB");
        Error::new(ErrorKind::Argument, "compile", message)
    })
}

/// A whole number of bytes, or a number with a binary unit behind it.
fn parse(text: &str) -> Option<usize> {
    let text = text.trim();
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let Some((number, shift)) = units.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift))) else {
        return text.parse().ok();
    };
    let number = number.trim_end();
    // `f64` would also read `inf`, `1e3` and `-1`.
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    number.bytes().all(|b| b.is_ascii_digit() || b == b'.').then_some(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_with_or_without_a_unit() {
        let sizes = [("0", 0), ("500000", 500_000), ("1KiB", 1024), (" 2 MiB ", 2 << 20), ("1.5GiB", 3 << 29)];
        for (text, bytes) in sizes {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5", "1e3KiB", "infGiB", "-1KiB", "12 XB", "1 GB", "1kib", "1 000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_option_comes_first() {
        assert_eq!(memory_limit(Some(7)).unwrap(), Some(7));
    }
}
