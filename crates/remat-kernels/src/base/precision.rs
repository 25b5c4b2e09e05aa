//! How precise products of f32 are where the CPU can trade precision for speed.

use std::env;
use std::ffi::OsStr;
use std::sync::OnceLock;

use remat_ir::{Error, ErrorKind, Result};

/// The precision of products of f32, as JAX has it for all products by `jax_default_matmul_precision`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// f32 is multiplied as f32.
    Highest,
    /// Large products run on the matrix unit of a CPU that has one, as sums of six products of bf16: as precise for numbers of usual
    /// magnitudes, and less so where products are smaller than some 2^-108.
    High,
}

/// The environment variable that says which.
const VARIABLE: &str = "REMAT_MATMUL_PRECISION";

/// The precision that `REMAT_MATMUL_PRECISION` asks for, `highest` or `high`; the former where it is not set. It is read once.
///
/// # Errors
/// If the variable says something else.
pub fn matmul_precision() -> Result<Precision> {
    static PRECISION: OnceLock<Result<Precision>> = OnceLock::new();
    PRECISION.get_or_init(|| parsed(env::var_os(VARIABLE).as_deref())).clone()
}

fn parsed(text: Option<&OsStr>) -> Result<Precision> {
    match text.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "highest") => Ok(Precision::Highest),
        Some("high") => Ok(Precision::High),
        Some(other) => {
            let message = format!("{VARIABLE} is '{other}' and must be `highest` or `high`");
            Err(Error::new(ErrorKind::Argument, "compile", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_known() {
        let of = |text: &str| parsed(Some(OsStr::new(text))).map_err(|error| error.to_string());
        assert!(matches!(parsed(None), Ok(Precision::Highest)));
        assert_eq!(
            [of(""), of("highest"), of("high")],
            [Precision::Highest, Precision::Highest, Precision::High].map(Ok)
        );
        let expected = "compile: REMAT_MATMUL_PRECISION is 'fast' and must be `highest` or `high`";
        assert_eq!(of("fast"), Err(expected.to_string()));
    }
}
