//! What the functions ask of numbers: the arithmetic of the evaluator, written without branches.

// Quotients of integers are those of floats, converted without checks.
#![allow(unsafe_code)]

pub(crate) mod math;
pub(crate) mod rounding;

use std::ops::{Add, Div, Mul, Neg, Sub};

use remat_ir::DType;

/// What a loop reads: a number, or nothing. All bits zero is a valid value.
pub(crate) trait Scalar: Copy + 'static {
    /// Whether models compute with it: loops over other numbers are compiled for plain instructions only.
    const IS_COMMON: bool;
}

macro_rules! scalar {
    ($($is_common:literal: $($type:ty)*;)*) => { $( $(
        impl Scalar for $type {
            const IS_COMMON: bool = $is_common;
        }
    )* )* };
}

scalar! {
    true: () u32 u64 i32 i64 f32 f64;
    // Of bools, and of f16 and bf16 in memory.
    true: u8 u16;
    false: i8 i16;
}

/// A number with an order in which NaN wins.
pub(crate) trait Ordered: Scalar + PartialOrd {
    /// The identity of the minimum: infinity, or the largest integer.
    const TOP: Self;
    /// The identity of the maximum: negative infinity, or the smallest integer.
    const BOTTOM: Self;

    /// The larger of the two; a NaN wins, and zero is larger than negative zero.
    fn largest(self, other: Self) -> Self;

    /// The smaller of the two; a NaN wins, and negative zero is smaller than zero.
    fn smallest(self, other: Self) -> Self;

    /// The [`largest`](Ordered::largest) of many; of none the smallest number.
    fn largest_of(numbers: &[Self]) -> Self;

    /// The [`smallest`](Ordered::smallest) of many; of none the largest number.
    fn smallest_of(numbers: &[Self]) -> Self;
}

/// f32 or f64.
pub(crate) trait Real:
    Ordered + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    const ONE: Self;
    fn is_finite(self) -> bool;
    fn sign(self) -> Self;
    fn abs(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round_half_even(self) -> Self;
    fn sqrt(self) -> Self;
}

/// An integer, with arithmetic that wraps.
pub(crate) trait Integer: Ordered + Eq {
    const ZERO: Self;
    const ALL_BITS: Self;
    fn neg(self) -> Self;
    fn sign(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn count_ones(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Whether the quotient is computed without an instruction that divides integers, so that loops are vectorised.
    const DIVIDES_IN_FLOATS: bool;
    /// The quotient, rounded to zero; all ones when divided by zero.
    fn div(self, other: Self) -> Self;
    /// The remainder, with the sign of `self`; `self` when divided by zero.
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Zero when shifted by at least the number of bits; a negative distance counts as such.
    fn shift_left(self, distance: Self) -> Self;
    /// As if unsigned: zeros come in.
    fn shift_right_logical(self, distance: Self) -> Self;
    /// As if signed, also for unsigned types: copies of the highest bit come in.
    fn shift_right_arithmetic(self, distance: Self) -> Self;
}

macro_rules! real {
    ($($type:ident $key:ident $bits:ident $ordered:ident;)*) => { $(
        impl Ordered for $type {
            const TOP: Self = $type::INFINITY;
            const BOTTOM: Self = $type::NEG_INFINITY;
            // Equal numbers differ at most in the sign of zero.
            #[inline(always)]
            fn largest(self, other: Self) -> Self {
                let larger = if self > other { self } else { other };
                let equal = $type::from_bits(self.to_bits() & other.to_bits());
                let number = if self == other { equal } else { larger };
                if self.is_nan() { self } else { number }
            }
            #[inline(always)]
            fn smallest(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                let equal = $type::from_bits(self.to_bits() | other.to_bits());
                let number = if self == other { equal } else { smaller };
                if self.is_nan() { self } else { number }
            }
            // LLVM vectorises extrema of integers.
            #[inline(always)]
            fn largest_of(numbers: &[Self]) -> Self {
                let (mut largest, mut has_nan) = ($ordered(Self::BOTTOM.to_bits() as $key), false);
                for x in numbers {
                    largest = largest.max($ordered(x.to_bits() as $key));
                    has_nan |= x.is_nan();
                }
                if has_nan { $type::NAN } else { $type::from_bits($ordered(largest) as $bits) }
            }
            #[inline(always)]
            fn smallest_of(numbers: &[Self]) -> Self {
                let (mut smallest, mut has_nan) = ($ordered(Self::TOP.to_bits() as $key), false);
                for x in numbers {
                    smallest = smallest.min($ordered(x.to_bits() as $key));
                    has_nan |= x.is_nan();
                }
                if has_nan { $type::NAN } else { $type::from_bits($ordered(smallest) as $bits) }
            }
        }
        impl Real for $type {
            const ONE: Self = 1.0;
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
        }
    )* };
}

real! {
    f32 i32 u32 ordered_32;
    f64 i64 u64 ordered_64;
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

macro_rules! integer {
    ($($type:ident $signed:ident $unsigned:ident, $division:tt;)*) => { $(
        impl Ordered for $type {
            const TOP: Self = $type::MAX;
            const BOTTOM: Self = $type::MIN;
            #[inline(always)]
            fn largest(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn smallest(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn largest_of(numbers: &[Self]) -> Self {
                numbers.iter().copied().fold(Self::BOTTOM, Ord::max)
            }
            #[inline(always)]
            fn smallest_of(numbers: &[Self]) -> Self {
                numbers.iter().copied().fold(Self::TOP, Ord::min)
            }
        }
        impl Integer for $type {
            const ZERO: Self = 0;
            const ALL_BITS: Self = !0;
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for both kinds of integers")]
            fn sign(self) -> Self {
                ((self > 0) as $type).wrapping_sub((self < 0) as $type)
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one body for both kinds of integers")]
            fn abs(self) -> Self {
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            fn not(self) -> Self {
                !self
            }
            #[inline(always)]
            fn count_ones(self) -> Self {
                $type::count_ones(self) as $type
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            integer! { @division $division $type }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shift_left(self, distance: Self) -> Self {
                let fits = (distance as $unsigned) < $unsigned::BITS as $unsigned;
                let shifted = self.wrapping_shl(distance as u32);
                if fits { shifted } else { 0 }
            }
            #[inline(always)]
            fn shift_right_logical(self, distance: Self) -> Self {
                let fits = (distance as $unsigned) < $unsigned::BITS as $unsigned;
                let shifted = (self as $unsigned).wrapping_shr(distance as u32) as $type;
                if fits { shifted } else { 0 }
            }
            #[inline(always)]
            fn shift_right_arithmetic(self, distance: Self) -> Self {
                let distance = (distance as $unsigned).min($unsigned::BITS as $unsigned - 1);
                (self as $signed).wrapping_shr(distance as u32) as $type
            }
        }
    )* };
    (@division integer $type:ident) => {
        const DIVIDES_IN_FLOATS: bool = false;
        #[inline(always)]
        fn div(self, other: Self) -> Self {
            if other == 0 { !0 } else { self.wrapping_div(other) }
        }
        #[inline(always)]
        fn rem(self, other: Self) -> Self {
            if other == 0 { self } else { self.wrapping_rem(other) }
        }
    };
    // CPUs have no vectors of quotients of integers, but truncated quotients of floats are exact: `a / b` is at least `1 / b`
    // below the next integer, and rounded by less than that as long as the float holds `a`.
    (@division $float:ident $type:ident) => {
        const DIVIDES_IN_FLOATS: bool = true;
        #[inline(always)]
        fn div(self, other: Self) -> Self {
            // The two divisors by which a quotient may not be an integer of this type.
            let (zero, minus_one) = (other == 0, ($type::MIN != 0) & (other == !0));
            let quotient = self as $float / (if zero | minus_one { 1 } else { other }) as $float;
            // SAFETY: the divisor is not zero, and what the quotient truncates to is not further from zero than `self`.
            let quotient: $type = unsafe { quotient.to_int_unchecked() };
            let quotient = if minus_one { self.wrapping_neg() } else { quotient };
            if zero { !0 } else { quotient }
        }
        #[inline(always)]
        fn rem(self, other: Self) -> Self {
            let quotient = Integer::div(self, other);
            let remainder = self.wrapping_sub(quotient.wrapping_mul(other));
            if other == 0 { self } else { remainder }
        }
    };
}

integer! {
    i8 i8 u8, f32;
    i16 i16 u16, f32;
    i32 i32 u32, f64;
    i64 i64 u64, integer;
    u8 i8 u8, f32;
    u16 i16 u16, f32;
    u32 i32 u32, f64;
    u64 i64 u64, integer;
}

/// The type in which elements of a dtype are held in a register: f32 for f16 and bf16, the dtype itself for all others. A
/// bool is a byte, 0 or 1.
pub(crate) fn register_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 => DType::F32,
        dtype => dtype,
    }
}

/// Runs a block with `$t` bound to the Rust type of an integer dtype; other dtypes give `$other`.
macro_rules! with_integer {
    ($dtype:expr, $t:ident => $integer:expr, else $other:expr) => {
        match $dtype {
            remat_ir::DType::I8 => {
                type $t = i8;
                $integer
            }
            remat_ir::DType::I16 => {
                type $t = i16;
                $integer
            }
            remat_ir::DType::I32 => {
                type $t = i32;
                $integer
            }
            remat_ir::DType::I64 => {
                type $t = i64;
                $integer
            }
            remat_ir::DType::U8 => {
                type $t = u8;
                $integer
            }
            remat_ir::DType::U16 => {
                type $t = u16;
                $integer
            }
            remat_ir::DType::U32 => {
                type $t = u32;
                $integer
            }
            remat_ir::DType::U64 => {
                type $t = u64;
                $integer
            }
            _ => $other,
        }
    };
}

/// Runs a block with `$t` bound to the unsigned integer of so many bytes as the elements of a register have: for what
/// depends on their bits alone.
macro_rules! with_bits {
    ($dtype:expr, $t:ident => $block:expr) => {
        match $crate::number::register_type($dtype).size() {
            1 => {
                type $t = u8;
                $block
            }
            2 => {
                type $t = u16;
                $block
            }
            4 => {
                type $t = u32;
                $block
            }
            _ => {
                type $t = u64;
                $block
            }
        }
    };
}

/// Runs a block with `$t` bound to the type of the elements of a register, where a bool is a `u8`.
macro_rules! with_register {
    ($dtype:expr, $t:ident => $block:expr) => {
        match $dtype {
            remat_ir::DType::F64 => {
                type $t = f64;
                $block
            }
            remat_ir::DType::F16 | remat_ir::DType::Bf16 | remat_ir::DType::F32 => {
                type $t = f32;
                $block
            }
            remat_ir::DType::Bool => {
                type $t = u8;
                $block
            }
            integer => $crate::number::with_integer!(integer, $t => $block, else unreachable!("every dtype is listed")),
        }
    };
}

pub(crate) use {with_bits, with_integer, with_register};
