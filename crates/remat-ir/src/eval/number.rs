//! The traits of element types in the evaluator: one of floats, one of integers, one of order.

use half::{bf16, f16};
use num_traits::Float;

use crate::Element;

/// An element type with a largest and a smallest value and an order in which NaN wins.
pub(super) trait Ordered: Element {
    /// The identity of the minimum: infinity, or the largest integer.
    const TOP: Self;
    /// The identity of the maximum: negative infinity, or the smallest integer.
    const BOTTOM: Self;

    /// Whether this is a NaN.
    #[expect(clippy::eq_op, reason = "NaN is what differs from itself, and no other element type has one")]
    fn is_unordered(self) -> bool {
        self != self
    }

    /// The larger of the two; a NaN wins, and zero is larger than negative zero.
    fn largest(self, other: Self) -> Self;

    /// The smaller of the two; a NaN wins, and negative zero is smaller than zero.
    fn smallest(self, other: Self) -> Self;
}

/// An integer type, with arithmetic that wraps.
pub(super) trait Integer: Ordered {
    const ZERO: Self;
    const ONE: Self;
    fn neg(self) -> Self;
    fn sign(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn count_ones(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The quotient, rounded to zero; all ones when divided by zero.
    fn div(self, other: Self) -> Self;
    /// The remainder, with the sign of `self`; `self` when divided by zero.
    fn rem(self, other: Self) -> Self;
    fn pow(self, exponent: u32) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Zero when shifted by at least the number of bits. A negative distance counts as that many.
    fn shift_left(self, distance: Self) -> Self;
    /// As if unsigned: zeros come in.
    fn shift_right_logical(self, distance: Self) -> Self;
    /// As if signed, also for unsigned types: copies of the highest bit come in.
    fn shift_right_arithmetic(self, distance: Self) -> Self;
    /// The low bits of an index.
    fn from_index(index: usize) -> Self;
}

/// A float type, which is computed in [`FloatElement::Wide`] and rounded once per operation.
pub(super) trait FloatElement: Ordered {
    type Wide: Real;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// As an f64, which is exact.
    fn to_double(self) -> f64;
    fn from_double(x: f64) -> Self;
}

/// f32 or f64, with the functions that `num_traits` lacks.
pub(super) trait Real: FloatElement<Wide = Self> + Float {
    const ZERO: Self;
    const ONE: Self;
    fn round_half_even(self) -> Self;
    /// Computes in f64 and rounds.
    fn through_f64(self, f: impl Fn(f64) -> f64) -> Self;
}

macro_rules! ordered_integer {
    ($($type:ty)*) => { $(
        impl Ordered for $type {
            const TOP: Self = <$type>::MAX;
            const BOTTOM: Self = <$type>::MIN;
            fn largest(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            fn smallest(self, other: Self) -> Self {
                Ord::min(self, other)
            }
        }
    )* };
}

ordered_integer! { i8 i16 i32 i64 u8 u16 u32 u64 }

impl Ordered for bool {
    const TOP: Self = true;
    const BOTTOM: Self = false;
    fn largest(self, other: Self) -> Self {
        self | other
    }
    fn smallest(self, other: Self) -> Self {
        self & other
    }
}

macro_rules! ordered_float {
    ($($type:ty, $infinity:expr, $negative_infinity:expr;)*) => { $(
        impl Ordered for $type {
            const TOP: Self = $infinity;
            const BOTTOM: Self = $negative_infinity;
            fn largest(self, other: Self) -> Self {
                let wins = (self > other) | self.is_unordered() | ((self == other) & self.is_sign_positive());
                if wins { self } else { other }
            }
            fn smallest(self, other: Self) -> Self {
                let wins = (self < other) | self.is_unordered() | ((self == other) & self.is_sign_negative());
                if wins { self } else { other }
            }
        }
    )* };
}

ordered_float! {
    f16, f16::INFINITY, f16::NEG_INFINITY;
    bf16, bf16::INFINITY, bf16::NEG_INFINITY;
    f32, f32::INFINITY, f32::NEG_INFINITY;
    f64, f64::INFINITY, f64::NEG_INFINITY;
}

macro_rules! integer {
    ($($type:ident $signed:ident $unsigned:ident, $neg_sign_abs:tt;)*) => { $(
        impl Integer for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            integer!(@ $neg_sign_abs);
            fn not(self) -> Self {
                !self
            }
            fn count_ones(self) -> Self {
                <$type>::count_ones(self) as $type
            }
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            fn pow(self, exponent: u32) -> Self {
                self.wrapping_pow(exponent)
            }
            fn and(self, other: Self) -> Self {
                self & other
            }
            fn or(self, other: Self) -> Self {
                self | other
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn shift_left(self, distance: Self) -> Self {
                let distance = distance as $unsigned;
                if distance >= <$unsigned>::BITS as $unsigned { 0 } else { self << distance }
            }
            fn shift_right_logical(self, distance: Self) -> Self {
                let distance = distance as $unsigned;
                if distance >= <$unsigned>::BITS as $unsigned { 0 } else { (self as $unsigned >> distance) as $type }
            }
            fn shift_right_arithmetic(self, distance: Self) -> Self {
                let distance = (distance as $unsigned).min(<$unsigned>::BITS as $unsigned - 1);
                (self as $signed >> distance) as $type
            }
            fn from_index(index: usize) -> Self {
                index as $type
            }
        }
    )* };
    (@ signed) => {
        fn sign(self) -> Self {
            self.signum()
        }
        fn abs(self) -> Self {
            self.wrapping_abs()
        }
    };
    (@ unsigned) => {
        fn sign(self) -> Self {
            self.min(1)
        }
        fn abs(self) -> Self {
            self
        }
    };
}

integer! {
    i8 i8 u8, signed;
    i16 i16 u16, signed;
    i32 i32 u32, signed;
    i64 i64 u64, signed;
    u8 i8 u8, unsigned;
    u16 i16 u16, unsigned;
    u32 i32 u32, unsigned;
    u64 i64 u64, unsigned;
}

macro_rules! half_float {
    ($($type:ident)*) => { $(
        impl FloatElement for $type {
            type Wide = f32;
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn narrow(wide: f32) -> Self {
                $type::from_f32(wide)
            }
            fn to_double(self) -> f64 {
                self.to_f32().into()
            }
            fn from_double(x: f64) -> Self {
                $type::from_f32(x as f32)
            }
        }
    )* };
}

half_float! { f16 bf16 }

macro_rules! real {
    ($($type:ident)*) => { $(
        impl FloatElement for $type {
            type Wide = $type;
            fn widen(self) -> $type {
                self
            }
            fn narrow(wide: $type) -> Self {
                wide
            }
            fn to_double(self) -> f64 {
                self.into()
            }
            fn from_double(x: f64) -> Self {
                x as $type
            }
        }
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn round_half_even(self) -> Self {
                self.round_ties_even()
            }
            fn through_f64(self, f: impl Fn(f64) -> f64) -> Self {
                f(self.into()) as $type
            }
        }
    )* };
}

real! { f32 f64 }

/// Runs a block with `$t` bound to the Rust type of a dtype if it is a float, and another block if it is not.
macro_rules! with_float {
    ($dtype:expr, $t:ident => $float:expr, else $other:expr) => {
        match $dtype {
            $crate::DType::F16 => {
                type $t = half::f16;
                $float
            }
            $crate::DType::Bf16 => {
                type $t = half::bf16;
                $float
            }
            $crate::DType::F32 => {
                type $t = f32;
                $float
            }
            $crate::DType::F64 => {
                type $t = f64;
                $float
            }
            $crate::DType::Bool
            | $crate::DType::I8
            | $crate::DType::I16
            | $crate::DType::I32
            | $crate::DType::I64
            | $crate::DType::U8
            | $crate::DType::U16
            | $crate::DType::U32
            | $crate::DType::U64 => $other,
        }
    };
}

/// Runs a block with `$t` bound to the Rust type of a dtype if it is an integer, and another block if it is not.
macro_rules! with_integer {
    ($dtype:expr, $t:ident => $integer:expr, else $other:expr) => {
        match $dtype {
            $crate::DType::I8 => {
                type $t = i8;
                $integer
            }
            $crate::DType::I16 => {
                type $t = i16;
                $integer
            }
            $crate::DType::I32 => {
                type $t = i32;
                $integer
            }
            $crate::DType::I64 => {
                type $t = i64;
                $integer
            }
            $crate::DType::U8 => {
                type $t = u8;
                $integer
            }
            $crate::DType::U16 => {
                type $t = u16;
                $integer
            }
            $crate::DType::U32 => {
                type $t = u32;
                $integer
            }
            $crate::DType::U64 => {
                type $t = u64;
                $integer
            }
            $crate::DType::Bool
            | $crate::DType::F16
            | $crate::DType::Bf16
            | $crate::DType::F32
            | $crate::DType::F64 => $other,
        }
    };
}

pub(super) use {with_float, with_integer};
