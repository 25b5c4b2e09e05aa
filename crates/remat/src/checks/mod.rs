//! Checks of values while programs run: NaN and infinite values, indices out of range, integers divided by zero.
//!
//! A program with checks does not run as the engine compiles it. [`walk`] computes its equations one by one on the same device, also those of
//! loops, branches and regions, and asks [`floats`] and [`indices`] about the operands and results of each, so that the first wrong value is
//! an error at the line that made it. That takes several times as long, and all values of the program are in memory until they are last read.
//! (JAX has `jax_debug_nans`, which computes a program again in this way when one of its results is NaN, and `checkify`.)

mod floats;
mod indices;
mod walk;

use std::env;
use std::sync::LazyLock;

use remat_ir::{Array, Error, ErrorKind, Result};

pub(crate) use walk::Checked;

/// The values of which a run makes errors. The default is none: programs then run as they are compiled, and checks cost nothing.
///
/// [`JitOptions::checks`](crate::JitOptions::checks) sets them for one function, and the environment for all functions and for operations
/// outside of them: `REMAT_DEBUG_NANS=1` for [`Checks::NANS`], `REMAT_CHECKED=1` for [`Checks::INDICES`].
///
/// ```
/// use remat::{Checks, ErrorKind, Tensor, grad, jit};
/// // The derivative of the root is infinite at 0, and 0 times infinity is NaN.
/// let f = jit(grad(|x: &Tensor| (x * x).sqrt().sum(..))).checks(Checks::NANS);
/// assert_eq!(f.call(Tensor::new([3.0f32, -4.0]))?.to_vec::<f32>()?, [1.0, -1.0]);
/// let error = f.call(Tensor::new([3.0f32, 0.0])).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Value);
/// assert!(error.message().ends_with("in the derivative"), "{error}");
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Checks {
    /// NaN and infinite results of operations whose operands are neither, and results of programs that are NaN because an argument is.
    /// Infinite literals and arguments are fine, such as those of masks.
    pub nans: bool,
    /// Indices out of range of `take`, `index`, `take_along_axis` and `at`, targets of a cross entropy that are not classes, and integers
    /// that are divided by zero. What clips its indices by definition is fine, and so are indices that only a derivative reads.
    pub indices: bool,
}

impl Checks {
    /// No checks.
    pub const NONE: Checks = Checks { nans: false, indices: false };
    /// NaN and infinite values.
    pub const NANS: Checks = Checks { nans: true, indices: false };
    /// Indices out of range, and integers divided by zero.
    pub const INDICES: Checks = Checks { nans: false, indices: true };
    /// All checks.
    pub const ALL: Checks = Checks { nans: true, indices: true };

    /// The checks that the environment asks for, which is read once.
    ///
    /// # Errors
    /// If a variable is neither 0 nor 1.
    pub(crate) fn of_environment() -> Result<Checks> {
        static ASKED: LazyLock<Result<Checks>> = LazyLock::new(|| {
            let is_set = |variable: &str| match env::var_os(variable) {
                None => Ok(false),
                Some(text) if text.is_empty() || text == "0" => Ok(false),
                Some(text) if text == "1" => Ok(true),
                Some(text) => {
                    let message = format!("{variable} is '{}' and must be 0 or 1", text.to_string_lossy());
                    Err(Error::new(ErrorKind::Argument, "checks", message))
                }
            };
            Ok(Checks { nans: is_set("REMAT_DEBUG_NANS")?, indices: is_set("REMAT_CHECKED")? })
        });
        ASKED.clone()
    }
}

/// What a check finds wrong, without where.
type Found = Option<String>;

/// The place of an element in an array, as an index: `[1, 0]`.
fn index_of(array: &Array, mut element: usize) -> String {
    let mut index: Vec<usize> = Vec::new();
    for &size in array.shape().iter().rev() {
        index.push(element % size.max(1));
        element /= size.max(1);
    }
    index.reverse();
    format!("{index:?}")
}
