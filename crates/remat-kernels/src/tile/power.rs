//! Small integer powers, by the evaluator's repeated squaring.

use remat_ir::DType;

use super::TileFn;
use super::loops::{self, Function};
use crate::number::rounding::{Exact, Round, ToBf16, ToF16};
use crate::number::{Number, Real, with_bits};
use crate::simd::Level;

/// The function of a power of this dtype; integers have no negative powers. The exponent is the instruction's immediate.
pub(super) fn integer_pow(level: Level, y: i32, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::Bool => None,
        DType::F16 => Some(float::<f32, ToF16>(level, y, ToF16)),
        DType::Bf16 => Some(float::<f32, ToBf16>(level, y, ToBf16)),
        DType::F32 => Some(float::<f32, Exact>(level, y, Exact)),
        DType::F64 => Some(float::<f64, Exact>(level, y, Exact)),
        _ if y < 0 => None,
        _ if y < 8 => with_bits!(dtype, T => Some(loops::with_immediate::<T, Power<3>>(level))),
        _ => with_bits!(dtype, T => Some(loops::with_immediate::<T, Power<32>>(level))),
    }
}

fn float<T: Real, R: Round<T>>(level: Level, y: i32, round: R) -> TileFn {
    match y {
        2 => loops::unary(level, |x: T| x * x, round),
        3 => loops::unary(level, |x: T| x * (x * x), round),
        0..8 => loops::costly_with_immediate::<T, R, Power<3>>(level),
        8.. => loops::costly_with_immediate::<T, R, Power<32>>(level),
        -7..0 => loops::costly_with_immediate::<T, R, Reciprocal<3>>(level),
        _ => loops::costly_with_immediate::<T, R, Reciprocal<32>>(level),
    }
}

/// A power whose exponent has at most `BITS` bits.
#[derive(Clone, Copy)]
struct Power<const BITS: u32> {
    exponent: u32,
}

/// The reciprocal of a power.
#[derive(Clone, Copy)]
struct Reciprocal<const BITS: u32>(Power<BITS>);

impl<const BITS: u32> Power<BITS> {
    /// # Safety
    /// The second pointer is to an `Immediate`.
    #[inline(always)]
    unsafe fn read(ins: &[*const u8]) -> Self {
        // SAFETY: it is to an `Immediate` (promised), of which the first number is the exponent.
        Power { exponent: unsafe { ins[1].cast::<i32>().read() }.unsigned_abs() }
    }

    /// The loop covers all bits, so that every element takes the same path.
    #[inline(always)]
    fn of<T: Number>(self, x: T) -> T {
        let (mut result, mut square) = (T::ONE, x);
        for bit in 0..BITS {
            let product = result.times(square);
            result = if self.exponent >> bit & 1 == 1 { product } else { result };
            square = square.times(square);
        }
        result
    }
}

impl<T: Number, const BITS: u32> Function<T, (), (), T> for Power<BITS> {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: the second of the pointers of this function is to its immediate.
        unsafe { Power::read(ins) }
    }

    #[inline(always)]
    fn call(self, x: T, _: (), _: ()) -> T {
        self.of(x)
    }
}

impl<T: Real, const BITS: u32> Function<T, (), (), T> for Reciprocal<BITS> {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: as above.
        Reciprocal(unsafe { Power::read(ins) })
    }

    #[inline(always)]
    fn call(self, x: T, _: (), _: ()) -> T {
        T::ONE / self.0.of(x)
    }
}
