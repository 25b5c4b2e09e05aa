//! Rounding to fewer bits.

use remat_ir::DType;

use super::loops::{self, Function};
use super::{Immediate, TileFn};
use crate::number::rounding::{from_bf16, from_f16, to_bf16, to_f16};
use crate::simd::Level;

/// The function that rounds to a format of fewer bits, given by the instruction's immediate.
pub(super) fn reduce_precision(level: Level, dtype: DType) -> Option<TileFn> {
    Some(match dtype {
        DType::F16 => loops::with_immediate::<f32, ReduceF16>(level),
        DType::Bf16 => loops::with_immediate::<f32, ReduceBf16>(level),
        DType::F32 => loops::with_immediate::<u32, ReduceF32>(level),
        DType::F64 => loops::with_immediate::<u64, ReduceF64>(level),
        _ => return None,
    })
}

#[derive(Clone, Copy)]
struct ReduceF16(Reduce32);

#[derive(Clone, Copy)]
struct ReduceBf16(Reduce32);

#[derive(Clone, Copy)]
struct ReduceF32(Reduce32);

#[derive(Clone, Copy)]
struct ReduceF64(Reduce64);

macro_rules! reduce {
    ($($name:ident $bits:ident;)*) => { $(
        /// Masks and bounds for rounding an element to the format.
        #[derive(Clone, Copy)]
        struct $name {
            sign: $bits,
            infinity: $bits,
            /// Whether the new format has a NaN.
            has_nan: bool,
            /// One less than half of the last kept bit.
            half: $bits,
            /// The last kept bit, unless all bits are kept.
            odd: $bits,
            /// The kept bits.
            kept: $bits,
            /// Larger exponents become infinite.
            largest: $bits,
            /// Smaller exponents become zero.
            smallest: $bits,
        }

        impl $name {
            /// # Safety
            /// The second pointer is to an `Immediate`, of which the first number is at least 1.
            #[inline(always)]
            unsafe fn new(ins: &[*const u8], exponent: u32, mantissa: u32) -> Self {
                // SAFETY: it is to an `Immediate` (promised).
                let [to_exponent, to_mantissa] = unsafe { ins[1].cast::<Immediate>().read() }.map(|bits| bits as u32);
                let one: $bits = 1;
                let unit = one << mantissa.saturating_sub(to_mantissa);
                let rounds = to_mantissa < mantissa;
                let bias = (one << (exponent - 1)) - 1;
                let to_bias = (one << (to_exponent.min(exponent) - 1)) - 1;
                let narrower = to_exponent < exponent;
                $name {
                    sign: one << (exponent + mantissa),
                    infinity: ((one << exponent) - 1) << mantissa,
                    has_nan: to_mantissa > 0,
                    half: if rounds { unit / 2 - 1 } else { 0 },
                    odd: if rounds { unit } else { 0 },
                    kept: !(unit - 1),
                    largest: if narrower { (bias + to_bias) << mantissa } else { $bits::MAX },
                    smallest: if narrower { ((bias - to_bias) << mantissa) + 1 } else { 0 },
                }
            }

            /// Rounds the mantissa, half to even. Numbers too large for the exponent then become infinite, and subnormal ones zero.
            #[inline(always)]
            fn apply(self, bits: $bits) -> $bits {
                let sign = bits & self.sign;
                let magnitude = bits ^ sign;
                // An infinity stays an infinity: less than half a unit is added, or half of one to an odd unit.
                let rounded = (magnitude + self.half + $bits::from(magnitude & self.odd != 0)) & self.kept;
                let exponent = rounded & self.infinity;
                let finite = if exponent < self.smallest { 0 } else { rounded };
                let number = if exponent > self.largest { self.infinity } else { finite };
                let nan = if self.has_nan { magnitude } else { self.infinity };
                sign | if magnitude > self.infinity { nan } else { number }
            }
        }
    )* };
}

reduce! {
    Reduce32 u32;
    Reduce64 u64;
}

impl Function<f32, (), (), f32> for ReduceF16 {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: the second of the pointers of this function is to its immediate; a format has an exponent.
        ReduceF16(unsafe { Reduce32::new(ins, 5, 10) })
    }

    #[inline(always)]
    fn call(self, x: f32, _: (), _: ()) -> f32 {
        from_f16(self.0.apply(to_f16(x).into()) as u16)
    }
}

impl Function<f32, (), (), f32> for ReduceBf16 {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: as above.
        ReduceBf16(unsafe { Reduce32::new(ins, 8, 7) })
    }

    #[inline(always)]
    fn call(self, x: f32, _: (), _: ()) -> f32 {
        from_bf16(self.0.apply(to_bf16(x).into()) as u16)
    }
}

impl Function<u32, (), (), u32> for ReduceF32 {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: as above.
        ReduceF32(unsafe { Reduce32::new(ins, 8, 23) })
    }

    #[inline(always)]
    fn call(self, x: u32, _: (), _: ()) -> u32 {
        self.0.apply(x)
    }
}

impl Function<u64, (), (), u64> for ReduceF64 {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: as above.
        ReduceF64(unsafe { Reduce64::new(ins, 11, 52) })
    }

    #[inline(always)]
    fn call(self, x: u64, _: (), _: ()) -> u64 {
        self.0.apply(x)
    }
}
