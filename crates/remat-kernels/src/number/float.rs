//! Floats.
//!
//! Conditions are joined by `|` and `&`, which do not branch, so that loops over them are vectorised.

use std::ops::{Add, Div, Mul, Neg, Sub};

use remat_ir::{bf16, f16};

use super::accumulator::Compensated;
use super::rounding::{from_bf16, from_f16, round_to_bf16, round_to_f16, to_bf16, to_f16};
use super::{Number, Scalar, math, own_wide};

/// The types in which floats are computed: f32 or f64.
pub(crate) trait Real:
    Number<Wide = Self>
    + Scalar
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const NAN: Self;

    fn from_f64(x: f64) -> Self;
    fn is_finite(self) -> bool;
    fn sign(self) -> Self;
    fn abs(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round_half_even(self) -> Self;
    fn sqrt(self) -> Self;
    /// `self * factor + term`, rounded once.
    fn fused(self, factor: Self, term: Self) -> Self;
    /// The exponential, by arithmetic that is vectorised.
    fn exp(self) -> Self;
    /// The exponential by fewer operations, where results below the smallest normal number may be zero: a weight of a softmax.
    fn exp_normal(self) -> Self;
    /// The natural logarithm, likewise.
    fn ln(self) -> Self;
}

/// Methods of all floats: they are compared in the type in which they are computed.
macro_rules! float {
    ($type:ident $wide:ident $sum:ident) => {
        const IS_COMMON: bool = true;
        type Wide = $wide;
        type Double = f64;
        type Sum = $sum;
        const TOP: Self = $type::INFINITY;
        const BOTTOM: Self = $type::NEG_INFINITY;
        #[inline(always)]
        fn plus(self, other: Self) -> Self {
            Self::narrow(self.widen() + other.widen())
        }
        #[inline(always)]
        fn times(self, other: Self) -> Self {
            Self::narrow(self.widen() * other.widen())
        }
        #[inline(always)]
        fn is_above(self, best: Self) -> bool {
            let (a, b) = (self.widen(), best.widen());
            (a > b) | (a.is_nan() & !b.is_nan())
        }
        #[inline(always)]
        fn is_below(self, best: Self) -> bool {
            let (a, b) = (self.widen(), best.widen());
            (a < b) | (a.is_nan() & !b.is_nan())
        }
    };
}

macro_rules! half {
    ($($type:ident $from:ident $round:ident $to:ident;)*) => { $(
        impl Number for $type {
            const ZERO: Self = $type::ZERO;
            const ONE: Self = $type::ONE;
            float! { $type f32 f64 }
            #[inline(always)]
            fn widen(self) -> f32 {
                $from(self.to_bits())
            }
            #[inline(always)]
            fn narrow(wide: f32) -> Self {
                $type::from_bits($to($round(wide)))
            }
            #[inline(always)]
            fn as_wide(_elements: &mut [Self]) -> Option<&mut [f32]> {
                None
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let (a, b) = (self.widen(), other.widen());
                let wins = (a > b) | a.is_nan() | ((a == b) & a.is_sign_positive());
                if wins { self } else { other }
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let (a, b) = (self.widen(), other.widen());
                let wins = (a < b) | a.is_nan() | ((a == b) & a.is_sign_negative());
                if wins { self } else { other }
            }
            #[inline(always)]
            fn from_index(index: usize) -> Self {
                Self::narrow(round_to_odd(index))
            }
        }
    )* };
}

half! {
    f16 from_f16 round_to_f16 to_f16;
    bf16 from_bf16 round_to_bf16 to_bf16;
}

/// An f32 that rounds to the same f16 and bf16 as this integer: the bits that do not fit set the last one.
#[inline(always)]
fn round_to_odd(index: usize) -> f32 {
    let excess = (usize::BITS - index.leading_zeros()).saturating_sub(f32::MANTISSA_DIGITS);
    let lost = index & ((1 << excess) - 1) != 0;
    ((index >> excess | usize::from(lost)) << excess) as f32
}

macro_rules! real {
    ($($type:ident $sum:ident $key:ident $bits:ident $ordered:ident, $exp:path, $exp_normal:path, $log:path;)*) => { $(
        impl Number for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            float! { $type $type $sum }
            own_wide! {}
            #[inline(always)]
            fn from_index(index: usize) -> Self {
                index as $type
            }
            // Equal numbers differ at most in the sign of zero.
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let larger = if self > other { self } else { other };
                let equal = $type::from_bits(self.to_bits() & other.to_bits());
                let number = if self == other { equal } else { larger };
                if self.is_nan() { self } else { number }
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                let equal = $type::from_bits(self.to_bits() | other.to_bits());
                let number = if self == other { equal } else { smaller };
                if self.is_nan() { self } else { number }
            }
            // LLVM vectorises the maximum and the minimum of integers.
            #[inline(always)]
            fn maximum_of(numbers: &[Self]) -> Self {
                let (mut maximum, mut has_nan) = ($ordered(Self::BOTTOM.to_bits() as $key), false);
                for x in numbers {
                    maximum = maximum.max($ordered(x.to_bits() as $key));
                    has_nan |= x.is_nan();
                }
                if has_nan { $type::NAN } else { $type::from_bits($ordered(maximum) as $bits) }
            }
            #[inline(always)]
            fn minimum_of(numbers: &[Self]) -> Self {
                let (mut minimum, mut has_nan) = ($ordered(Self::TOP.to_bits() as $key), false);
                for x in numbers {
                    minimum = minimum.min($ordered(x.to_bits() as $key));
                    has_nan |= x.is_nan();
                }
                if has_nan { $type::NAN } else { $type::from_bits($ordered(minimum) as $bits) }
            }
        }
        impl Real for $type {
            const NAN: Self = $type::NAN;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $type
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }
            #[inline(always)]
            fn sign(self) -> Self {
                if (self == 0.0) | self.is_nan() { self } else { (1.0 as $type).copysign(self) }
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $type::abs(self)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $type::floor(self)
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                $type::ceil(self)
            }
            #[inline(always)]
            fn round_half_even(self) -> Self {
                self.round_ties_even()
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline(always)]
            fn fused(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn exp_normal(self) -> Self {
                $exp_normal(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $log(self)
            }
        }
    )* };
}

real! {
    f32 f64 i32 u32 ordered_32, math::exp::exp, math::exp::exp_normal, math::log::log;
    f64 Compensated i64 u64 ordered_64, math::double::exp, math::double::exp, math::double::log;
}

/// The bits of an f32 as an integer of the same order, and back.
#[inline(always)]
fn ordered_32(bits: i32) -> i32 {
    bits ^ (bits >> 31) & i32::MAX
}

/// The bits of an f64 as an integer of the same order, and back.
#[inline(always)]
fn ordered_64(bits: i64) -> i64 {
    bits ^ (bits >> 63) & i64::MAX
}
