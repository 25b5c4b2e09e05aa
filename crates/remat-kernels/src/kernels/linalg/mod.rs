//! Triangular systems and Cholesky factors.
//!
//! Each element of a result is an operand less products that are subtracted one by one, in the order of the definition. Blocks
//! choose which elements are computed side by side and never the order of a sum, so that results are the evaluator's bit for
//! bit, whatever the sizes, the layouts and the number of threads.

mod cholesky;
mod tile;
mod triangular;

use std::ops::{Div, Mul, Sub};

pub(crate) use cholesky::kernel as cholesky;
use remat_ir::{DType, bf16, f16};
pub(crate) use triangular::kernel as triangular_solve;

use crate::base::number::Number;
use crate::base::scratch::AnyBits;

/// What everything is computed in: f32 or f64.
trait Real: AnyBits + PartialOrd + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> {
    const NAN: Self;

    fn sqrt(self) -> Self;
}

/// An element type of matrices.
trait Float: Number<Wide: Real> {
    /// The elements as those that are computed with, where these are the same type.
    fn as_wide(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;
}

macro_rules! floats {
    ($($half:ident)*; $($real:ident)*) => {
        $(
            impl Float for $half {
                fn as_wide(_elements: &mut [Self]) -> Option<&mut [f32]> {
                    None
                }
            }
        )*
        $(
            impl Float for $real {
                fn as_wide(elements: &mut [Self]) -> Option<&mut [Self]> {
                    Some(elements)
                }
            }

            impl Real for $real {
                const NAN: Self = $real::NAN;

                #[inline(always)]
                fn sqrt(self) -> Self {
                    $real::sqrt(self)
                }
            }
        )*
    };
}

floats! { f16 bf16; f32 f64 }

/// The size of an element of what a dtype is computed in.
fn wide_size(dtype: DType) -> usize {
    if dtype == DType::F64 { size_of::<f64>() } else { size_of::<f32>() }
}
