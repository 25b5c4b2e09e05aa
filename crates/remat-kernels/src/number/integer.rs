//! Integers and bools.

use remat_ir::{DType, Element};

use super::{Number, Scalar, own_wide};

/// An integer, with arithmetic that wraps.
pub(crate) trait Integer: Number + Scalar + Eq {
    const ALL_BITS: Self;
    fn neg(self) -> Self;
    fn sign(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn count_ones(self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// Whether the quotient is computed without an integer division instruction, so that loops are vectorised.
    const DIVIDES_IN_FLOATS: bool;
    /// The quotient, rounded to zero; all ones when divided by zero.
    fn div(self, other: Self) -> Self;
    /// The remainder, with the sign of `self`; `self` when divided by zero.
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The shifted number; zero if the distance is negative or at least the number of bits.
    fn shift_left(self, distance: Self) -> Self;
    /// As for unsigned numbers: zeros are shifted in.
    fn shift_right_logical(self, distance: Self) -> Self;
    /// As for signed numbers, also in unsigned types: copies of the highest bit are shifted in.
    fn shift_right_arithmetic(self, distance: Self) -> Self;
}

macro_rules! integer {
    ($($type:ident $signed:ident $unsigned:ident, $division:tt;)*) => { $(
        impl Number for $type {
            const IS_COMMON: bool = matches!($type::DTYPE, DType::I32);
            type Wide = $type;
            type Double = $type;
            type Sum = $type;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const TOP: Self = $type::MAX;
            const BOTTOM: Self = $type::MIN;
            own_wide! {}
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn is_above(self, best: Self) -> bool {
                self > best
            }
            #[inline(always)]
            fn is_below(self, best: Self) -> bool {
                self < best
            }
            #[inline(always)]
            fn from_index(index: usize) -> Self {
                index as $type
            }
        }
        impl Integer for $type {
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
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
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
    // CPUs have no vector division of integers, but truncated quotients of floats are exact: `a / b` is at least `1 / b` below the next
    // integer, and the rounding is smaller than that as long as the float represents `a`.
    (@division $float:ident $type:ident) => {
        const DIVIDES_IN_FLOATS: bool = true;
        #[inline(always)]
        fn div(self, other: Self) -> Self {
            // The two divisors whose quotient may not be an integer of this type.
            let (zero, minus_one) = (other == 0, ($type::MIN != 0) & (other == !0));
            let quotient = self as $float / (if zero | minus_one { 1 } else { other }) as $float;
            // SAFETY: the divisor is not zero, and the truncated quotient is not further from zero than `self`.
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

impl Number for bool {
    const IS_COMMON: bool = false;
    type Wide = bool;
    type Double = bool;
    type Sum = bool;
    const ZERO: Self = false;
    const ONE: Self = true;
    const TOP: Self = true;
    const BOTTOM: Self = false;
    own_wide! {}
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn is_above(self, best: Self) -> bool {
        self & !best
    }
    #[inline(always)]
    fn is_below(self, best: Self) -> bool {
        !self & best
    }
    #[inline(always)]
    fn from_index(index: usize) -> Self {
        index != 0
    }
}
