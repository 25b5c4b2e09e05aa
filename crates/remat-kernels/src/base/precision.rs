//! The precision of f32 products and convolutions, where precision can be traded for speed.

use std::env;
use std::ffi::OsStr;
use std::sync::OnceLock;

use remat_ir::{Error, ErrorKind, Result};

/// The precision of all f32 products, which in JAX `jax_default_matmul_precision` sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// f32 is multiplied as f32. Convolutions of windows of 3x3 may use minimal filtering (Winograd), whose results differ from sums of
    /// products by a few more roundings of the largest elements and weights.
    Default,
    /// f32 is multiplied as f32, and results are sums of products of elements.
    Highest,
    /// As the default, but on a CPU with a matrix unit each large product is the sum of six products of bf16, which XLA calls
    /// `BF16_BF16_F32_X6` (`high` in JAX adds up three). Results are as precise as with the default for numbers of usual magnitudes, and
    /// less precise where products of elements are smaller than about 2^-108.
    High,
}

/// The environment variable that selects it.
const VARIABLE: &str = "REMAT_MATMUL_PRECISION";

/// The precision that `REMAT_MATMUL_PRECISION` selects: `default`, `highest` or `high`. It is read once.
///
/// # Errors
/// If the variable has another value.
pub fn matmul_precision() -> Result<Precision> {
    static PRECISION: OnceLock<Result<Precision>> = OnceLock::new();
    PRECISION.get_or_init(|| parsed(env::var_os(VARIABLE).as_deref())).clone()
}

fn parsed(text: Option<&OsStr>) -> Result<Precision> {
    match text.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "default") => Ok(Precision::Default),
        Some("highest") => Ok(Precision::Highest),
        Some("high") => Ok(Precision::High),
        Some(other) => {
            let message = format!("{VARIABLE} is '{other}' and must be `default`, `highest` or `high`");
            Err(Error::new(ErrorKind::Argument, "compile", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_are_known() {
        let of = |text: &str| parsed(Some(OsStr::new(text))).map_err(|error| error.to_string());
        assert!(matches!(parsed(None), Ok(Precision::Default)));
        assert_eq!(
            [of(""), of("default"), of("highest"), of("high")],
            [Precision::Default, Precision::Default, Precision::Highest, Precision::High].map(Ok)
        );
        let expected = "compile: REMAT_MATMUL_PRECISION is 'fast' and must be `default`, `highest` or `high`";
        assert_eq!(of("fast"), Err(expected.to_string()));
    }
}
