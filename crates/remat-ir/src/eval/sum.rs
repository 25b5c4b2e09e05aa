//! Sums of many terms, whose error does not grow with the number of terms.

use half::{bf16, f16};

use super::number::{FloatElement, Integer};
use crate::Element;

/// An element type, and the state of a sum of such elements: f64 for f16, bf16 and f32, two numbers for f64, and integers themselves,
/// which wrap. A sum of bools is `or`.
pub(super) trait Summed: Element {
    type Sum: Sum<Self>;
}

/// The state of a sum.
pub(super) trait Sum<T>: Copy {
    /// The sum of no terms.
    fn none() -> Self;
    /// One term, exactly.
    fn of(x: T) -> Self;
    fn plus(self, other: Self) -> Self;
    fn rounded(self) -> T;
}

macro_rules! in_f64 {
    ($($type:ident)*) => { $(
        impl Summed for $type {
            type Sum = f64;
        }
        impl Sum<$type> for f64 {
            fn none() -> f64 {
                0.0
            }
            fn of(x: $type) -> f64 {
                x.to_double()
            }
            fn plus(self, other: f64) -> f64 {
                self + other
            }
            fn rounded(self) -> $type {
                $type::from_double(self)
            }
        }
    )* };
}

in_f64! { f16 bf16 f32 }

macro_rules! integers {
    ($($type:ident)*) => { $(
        impl Summed for $type {
            type Sum = $type;
        }
        impl Sum<$type> for $type {
            fn none() -> $type {
                0
            }
            fn of(x: $type) -> $type {
                x
            }
            fn plus(self, other: $type) -> $type {
                Integer::add(self, other)
            }
            fn rounded(self) -> $type {
                self
            }
        }
    )* };
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

impl Summed for bool {
    type Sum = bool;
}

impl Sum<bool> for bool {
    fn none() -> bool {
        false
    }

    fn of(x: bool) -> bool {
        x
    }
    fn plus(self, other: bool) -> bool {
        self | other
    }
    fn rounded(self) -> bool {
        self
    }
}

impl Summed for f64 {
    type Sum = Compensated;
}

/// A rounded sum of f64, and the sum of what its roundings lost.
#[derive(Clone, Copy)]
pub(super) struct Compensated {
    sum: f64,
    lost: f64,
}

impl Sum<f64> for Compensated {
    fn none() -> Compensated {
        Self::of(0.0)
    }

    fn of(x: f64) -> Compensated {
        Compensated { sum: x, lost: 0.0 }
    }

    /// Source: Knuth, "The art of computer programming", volume 2, 4.2.2, theorem B, for what a sum loses.
    fn plus(self, other: Compensated) -> Compensated {
        let sum = self.sum + other.sum;
        let added = sum - self.sum;
        let lost = (self.sum - (sum - added)) + (other.sum - added);
        Compensated { sum, lost: self.lost + other.lost + lost }
    }

    fn rounded(self) -> f64 {
        // Nothing is known of what an infinite sum lost, and a zero would change the sign of a negative zero.
        if self.lost.is_finite() && self.lost != 0.0 { self.sum + self.lost } else { self.sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum<T: Summed>(terms: impl IntoIterator<Item = T>) -> T {
        terms.into_iter().map(T::Sum::of).reduce(Sum::plus).unwrap_or_else(T::Sum::none).rounded()
    }

    #[test]
    fn equal_terms_are_summed_without_their_roundings() {
        let n = 100_000;
        assert_eq!(sum(vec![0.1f32; n]), (f64::from(0.1f32) * n as f64) as f32);
        assert_eq!(sum(vec![0.1f64; n]), 10_000.0);
        assert_eq!(sum(vec![f16::from_f32(0.1); n / 10]), f16::from_f32(f16::from_f32(0.1).to_f32() * 10_000.0));
        assert_eq!(sum(vec![bf16::from_f32(0.1); n]), bf16::from_f32(bf16::from_f32(0.1).to_f32() * 100_000.0));
    }

    #[test]
    fn sums_of_special_numbers_are_those_of_one_addition_after_the_other() {
        let [infinity, zero] = [f64::INFINITY, -0.0f64];
        assert_eq!(sum([1.0, infinity, -1.0]), infinity);
        assert!(sum([infinity, -infinity, 1.0]).is_nan() && sum([1.0, f64::NAN, 1.0]).is_nan());
        assert!(sum([zero, zero]).is_sign_negative() && sum([zero, 0.0]).is_sign_positive());
        assert_eq!(sum([f64::MAX, f64::MAX, -f64::MAX]), infinity);
        assert_eq!(sum([1e300, 1.0, -1e300]), 1.0);
    }
}
