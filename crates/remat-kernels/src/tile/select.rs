//! Comparisons, clamping and selection.

use remat_ir::{Compare, DType};

use super::TileFn;
use super::loops;
use crate::number::Scalar;
use crate::number::rounding::Exact;
use crate::number::{Number, with_bits, with_register};
use crate::simd::Level;

/// The function of a comparison of two operands of this dtype.
pub(super) fn compare(level: Level, op: Compare, dtype: DType) -> Option<TileFn> {
    // Equality of integers does not depend on their sign.
    match op {
        Compare::Eq if !dtype.is_float() => with_bits!(dtype, T => Some(comparison::<T>(level, op))),
        Compare::Ne if !dtype.is_float() => with_bits!(dtype, T => Some(comparison::<T>(level, op))),
        _ => with_register!(dtype, T => Some(comparison::<T>(level, op))),
    }
}

fn comparison<T: Number + Scalar>(level: Level, op: Compare) -> TileFn {
    match op {
        Compare::Eq => loops::binary(level, |a: T, b: T| u8::from(a == b), Exact),
        Compare::Ne => loops::binary(level, |a: T, b: T| u8::from(a != b), Exact),
        Compare::Lt => loops::binary(level, less::<T>, Exact),
        Compare::Le => loops::binary(level, at_most::<T>, Exact),
        Compare::Gt => loops::reversed(level, less::<T>),
        Compare::Ge => loops::reversed(level, at_most::<T>),
    }
}

#[inline(always)]
fn less<T: Number>(a: T, b: T) -> u8 {
    u8::from(a < b)
}

#[inline(always)]
fn at_most<T: Number>(a: T, b: T) -> u8 {
    u8::from(a <= b)
}

/// The function that clamps elements of this dtype: the smaller of the upper bound and the larger of the lower bound and the element.
pub(super) fn clamp(level: Level, dtype: DType) -> Option<TileFn> {
    with_register!(dtype, T => Some(clamped::<T>(level)))
}

fn clamped<T: Number + Scalar>(level: Level) -> TileFn {
    loops::ternary(level, |low: T, x: T, high: T| x.maximum(low).minimum(high))
}

/// The function that selects between cases of this dtype.
pub(super) fn select_n(level: Level, which: DType, dtype: DType, cases: usize) -> Option<TileFn> {
    match (which, cases) {
        (DType::Bool, 1) => with_bits!(dtype, T => Some(loops::mixed(level, |_: u8, x: T| x))),
        (DType::Bool, 2) => {
            with_bits!(dtype, T => Some(loops::ternary(level, |which: u8, a: T, b: T| if which != 0 { b } else { a })))
        }
        (DType::I32, 1..) => with_bits!(dtype, T => Some(select_case::<T>)),
        _ => None,
    }
}

/// The element of the case with the number in an i32, or of the first or last case if there is no such number.
///
/// # Safety
/// That of a [`TileFn`].
unsafe fn select_case<T: Scalar>(n: usize, out: *mut u8, ins: &[*const u8]) {
    let [which, cases @ ..] = ins else { return };
    let last = cases.len() - 1;
    for i in 0..n {
        // SAFETY: `n` elements can be read from each operand and written to the output. An element is read before it is
        // written, so that the output may be an operand.
        unsafe {
            let case = (which.cast::<i32>().add(i).read().max(0) as usize).min(last);
            out.cast::<T>().add(i).write(cases[case].cast::<T>().add(i).read());
        }
    }
}
