//! The state of sums and products of many terms.

use remat_ir::{bf16, f16};

use super::Number;

/// The state of a reduction of elements `T`, which is rounded to an element at the end, or for each prefix.
pub(crate) trait Accumulator<T>: Copy + Default + Send + Sync {
    /// The state of one element, which is exact.
    fn of(x: T) -> Self;
    /// The sum of two states. The default is the state of no element.
    fn plus(self, other: Self) -> Self;
    /// The element.
    fn rounded(self) -> T;
}

/// Elements that are reduced in their own type.
macro_rules! own {
    ($($type:ident)*) => { $(
        impl Accumulator<$type> for $type {
            #[inline(always)]
            fn of(x: $type) -> $type {
                x
            }
            #[inline(always)]
            fn plus(self, other: $type) -> $type {
                Number::plus(self, other)
            }
            #[inline(always)]
            fn rounded(self) -> $type {
                self
            }
        }
    )* };
}

own! { bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

/// Elements that are reduced in a wider type.
macro_rules! wider {
    ($($wide:ident: $($type:ident)*;)*) => { $( $(
        impl Accumulator<$type> for $wide {
            #[inline(always)]
            fn of(x: $type) -> $wide {
                $wide::from(x.widen())
            }
            #[inline(always)]
            fn plus(self, other: $wide) -> $wide {
                self + other
            }
            #[inline(always)]
            fn rounded(self) -> $type {
                $type::narrow(self as f32)
            }
        }
    )* )* };
}

wider! {
    f32: f16 bf16;
    f64: f16 bf16 f32;
}

/// A sum of f64 in two numbers: the rounded sum, and the sum of what its roundings lost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Compensated {
    sum: f64,
    lost: f64,
}

impl Accumulator<f64> for Compensated {
    #[inline(always)]
    fn of(x: f64) -> Compensated {
        Compensated { sum: x, lost: 0.0 }
    }

    /// Source: Knuth, "The art of computer programming", volume 2, 4.2.2, theorem B, for what a sum loses.
    #[inline(always)]
    fn plus(self, other: Compensated) -> Compensated {
        let sum = self.sum + other.sum;
        let added = sum - self.sum;
        let lost = (self.sum - (sum - added)) + (other.sum - added);
        Compensated { sum, lost: self.lost + other.lost + lost }
    }

    /// Nothing is known of what an infinite sum lost, and a zero would change the sign of a negative zero.
    #[inline(always)]
    fn rounded(self) -> f64 {
        let exact = self.lost.is_finite() & (self.lost != 0.0);
        if exact { self.sum + self.lost } else { self.sum }
    }
}
