//! What kernels ask of elements: arithmetic in the type that accumulates, and an order in which NaN wins.

use remat_ir::{DType, Element, bf16, f16};

use crate::number::rounding::{from_bf16, from_f16, round_to_bf16, round_to_f16, to_bf16, to_f16};

/// An element type with arithmetic: integers wrap. On bools a sum is `or` and a product `and`.
pub(crate) trait Number: Element {
    /// Whether models compute in this type: loops over it are then compiled for every level of vector instructions.
    const IS_COMMON: bool;
    /// What is computed in: f32 for f16 and bf16, else the type itself.
    type Wide: Number<Wide = Self::Wide>;
    /// The identity of the minimum: infinity, or the largest integer.
    const TOP: Self;
    /// The identity of the maximum: negative infinity, or the smallest integer.
    const BOTTOM: Self;

    fn widen(self) -> Self::Wide;
    /// Rounds to nearest, half to even.
    fn narrow(wide: Self::Wide) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    #[allow(dead_code, reason = "tests compare by it")]
    fn is_nan(self) -> bool;
    /// The larger of the two; a NaN wins, and zero is larger than negative zero.
    fn largest(self, other: Self) -> Self;
    /// The smaller of the two; a NaN wins, and negative zero is smaller than zero.
    fn smallest(self, other: Self) -> Self;
    /// Whether this value comes before `best` in a search for the greatest; of NaNs the first one does.
    fn is_above(self, best: Self) -> bool;
    /// Whether this value comes before `best` in a search for the least; of NaNs the first one does.
    fn is_below(self, best: Self) -> bool;
    /// Integers wrap, floats are rounded.
    fn from_index(index: usize) -> Self;
}

macro_rules! integers {
    ($($type:ident)*) => { $(
        impl Number for $type {
            const IS_COMMON: bool = matches!($type::DTYPE, DType::I32);
            type Wide = $type;
            const TOP: Self = $type::MAX;
            const BOTTOM: Self = $type::MIN;
            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn largest(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn smallest(self, other: Self) -> Self {
                self.min(other)
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
    )* };
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

impl Number for bool {
    const IS_COMMON: bool = false;
    type Wide = bool;
    const TOP: Self = true;
    const BOTTOM: Self = false;
    #[inline(always)]
    fn widen(self) -> Self {
        self
    }
    #[inline(always)]
    fn narrow(wide: Self) -> Self {
        wide
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn largest(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn smallest(self, other: Self) -> Self {
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

/// The conditions are joined by `|` and `&`, which do not branch, so that loops over them are vectorised.
macro_rules! floats {
    ($($type:ident $wide:ident, |$x:ident| $widen:expr, $narrow:expr, |$index:ident| $from_index:expr;)*) => { $(
        impl Number for $type {
            const IS_COMMON: bool = true;
            type Wide = $wide;
            const TOP: Self = $type::INFINITY;
            const BOTTOM: Self = $type::NEG_INFINITY;
            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }
            #[inline(always)]
            fn narrow($x: $wide) -> Self {
                $narrow
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Self::narrow(self.widen() + other.widen())
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                Self::narrow(self.widen() * other.widen())
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $wide::is_nan(self.widen())
            }
            #[inline(always)]
            fn largest(self, other: Self) -> Self {
                let (a, b) = (self.widen(), other.widen());
                let wins = (a > b) | $wide::is_nan(a) | ((a == b) & a.is_sign_positive());
                if wins { self } else { other }
            }
            #[inline(always)]
            fn smallest(self, other: Self) -> Self {
                let (a, b) = (self.widen(), other.widen());
                let wins = (a < b) | $wide::is_nan(a) | ((a == b) & a.is_sign_negative());
                if wins { self } else { other }
            }
            #[inline(always)]
            fn is_above(self, best: Self) -> bool {
                let (a, b) = (self.widen(), best.widen());
                (a > b) | ($wide::is_nan(a) & !$wide::is_nan(b))
            }
            #[inline(always)]
            fn is_below(self, best: Self) -> bool {
                let (a, b) = (self.widen(), best.widen());
                (a < b) | ($wide::is_nan(a) & !$wide::is_nan(b))
            }
            #[inline(always)]
            fn from_index($index: usize) -> Self {
                $from_index
            }
        }
    )* };
}

floats! {
    f16 f32, |x| from_f16(x.to_bits()), f16::from_bits(to_f16(round_to_f16(x))), |i| Self::narrow(round_to_odd(i));
    bf16 f32, |x| from_bf16(x.to_bits()), bf16::from_bits(to_bf16(round_to_bf16(x))), |i| Self::narrow(round_to_odd(i));
    f32 f32, |x| x, x, |i| i as f32;
    f64 f64, |x| x, x, |i| i as f64;
}

/// An f32 that rounds to the f16 and bf16 to which this integer rounds: the bits that do not fit are gathered in the last.
#[inline(always)]
fn round_to_odd(index: usize) -> f32 {
    let excess = (usize::BITS - index.leading_zeros()).saturating_sub(f32::MANTISSA_DIGITS);
    let lost = index & ((1 << excess) - 1) != 0;
    ((index >> excess | usize::from(lost)) << excess) as f32
}

#[cfg(test)]
mod tests {
    use remat_ir::{Literal, with_dtype};

    use super::*;
    use crate::test_support::Stream;

    #[test]
    fn an_index_is_rounded_once() {
        let mut stream = Stream::new(1);
        let near = (0..53).flat_map(|bit| (0..100).map(move |low| (1usize << bit) + low * (low << bit >> 12).max(1)));
        let any: Vec<usize> = (0..10_000).map(|_| (stream.bits() >> 11) as usize >> stream.below(53)).collect();
        for index in near.chain(any) {
            for dtype in DType::ALL {
                with_dtype!(dtype, T => {
                    let expected = Literal::from_i128(dtype, index as i128);
                    assert_eq!(T::from_index(index).literal(), expected, "{index} as {dtype}");
                });
            }
        }
    }
}
