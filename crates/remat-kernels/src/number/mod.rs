//! Numbers: the arithmetic of the evaluator, without branches, so that loops over it are vectorised.
//!
//! | trait | types |
//! |---|---|
//! | [`Scalar`] | everything that loops read or scratch memory contains |
//! | [`Number`] | every element type: sums, products and orders, and the type in which they are computed |
//! | [`Integer`] | integers: division, bits and shifts |
//! | [`Real`] | f32 and f64: the types in which floats are computed |

// Quotients of integers use floats, converted without checks; the scalar trait makes a promise about bits.
#![allow(unsafe_code)]

mod accumulator;
mod float;
mod integer;
pub(crate) mod math;
pub(crate) mod rounding;

pub(crate) use accumulator::Accumulator;
pub(crate) use float::Real;
pub(crate) use integer::Integer;

use remat_ir::{DType, Element};

/// A type that loops read or scratch memory contains: a number, or `()`.
///
/// # Safety
/// Every pattern of bits is a value.
pub(crate) unsafe trait Scalar: Copy + Send + Sync + 'static {
    /// Whether tiles of common dtypes contain it. Loops over other numbers are compiled for plain instructions only.
    const IS_COMMON_IN_TILES: bool;
}

macro_rules! scalar {
    ($($is_common:literal: $($type:ty)*;)*) => { $( $(
        // SAFETY: integers and floats have no invalid values, and `()` has no bits.
        unsafe impl Scalar for $type {
            const IS_COMMON_IN_TILES: bool = $is_common;
        }
    )* )* };
}

scalar! {
    true: () u32 u64 i32 i64 f32 f64;
    // For bools, and for f16 and bf16 in memory.
    true: u8 u16;
    false: i8 i16 u128;
}

/// An element type with arithmetic. Integers wrap, floats are rounded once, and for bools a sum is `or` and a product `and`.
pub(crate) trait Number: Element {
    /// Whether models compute in this type. Loops over it are then compiled for every level of vector instructions.
    const IS_COMMON: bool;
    /// The type of computation: f32 for f16 and bf16, otherwise the type itself.
    type Wide: Number<Wide = Self::Wide> + Accumulator<Self>;
    /// The type in which long products are computed: f64 for floats, otherwise the type itself.
    type Double: Number + Accumulator<Self>;
    /// The state of a long sum: f64 for floats up to f32, two numbers for f64, otherwise the type itself.
    type Sum: Accumulator<Self>;
    const ZERO: Self;
    const ONE: Self;
    /// The identity of the minimum: infinity, or the largest integer.
    const TOP: Self;
    /// The identity of the maximum: negative infinity, or the smallest integer.
    const BOTTOM: Self;

    fn widen(self) -> Self::Wide;
    /// Rounds to nearest, half to even.
    fn narrow(wide: Self::Wide) -> Self;
    /// The elements in the type of computation, if that is the same type.
    fn as_wide(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The larger of the two; a NaN wins, and zero is larger than negative zero.
    fn maximum(self, other: Self) -> Self;
    /// The smaller of the two; a NaN wins, and negative zero is smaller than zero.
    fn minimum(self, other: Self) -> Self;
    /// The [`maximum`](Number::maximum) of all; [`BOTTOM`](Number::BOTTOM) if there are none.
    #[inline(always)]
    fn maximum_of(numbers: &[Self]) -> Self {
        numbers.iter().fold(Self::BOTTOM, |a, &b| a.maximum(b))
    }
    /// The [`minimum`](Number::minimum) of all; [`TOP`](Number::TOP) if there are none.
    #[inline(always)]
    fn minimum_of(numbers: &[Self]) -> Self {
        numbers.iter().fold(Self::TOP, |a, &b| a.minimum(b))
    }
    /// Whether this value precedes `best` in a search for the maximum. The first NaN precedes everything.
    fn is_above(self, best: Self) -> bool;
    /// Whether this value precedes `best` in a search for the minimum. The first NaN precedes everything.
    fn is_below(self, best: Self) -> bool;
    /// The index as a number: integers wrap, floats are rounded.
    fn from_index(index: usize) -> Self;
}

/// The type of an element in a register: f32 for f16 and bf16, the dtype itself for all others. A bool is a byte, 0 or 1.
pub(crate) fn register_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 => DType::F32,
        dtype => dtype,
    }
}

/// The methods of a [`Number`] that is computed in its own type.
macro_rules! own_wide {
    () => {
        #[inline(always)]
        fn widen(self) -> Self {
            self
        }
        #[inline(always)]
        fn narrow(wide: Self) -> Self {
            wide
        }
        #[inline(always)]
        fn as_wide(elements: &mut [Self]) -> Option<&mut [Self]> {
            Some(elements)
        }
    };
}
pub(in crate::number) use own_wide;

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

/// Runs a block with `$t` bound to the unsigned integer of the size of a register's elements, for functions that depend only on their bits.
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

/// Runs a block with `$t` bound to the type of a float dtype.
macro_rules! with_float {
    ($dtype:expr, $t:ident => $block:expr) => {
        match $dtype {
            remat_ir::DType::F16 => {
                type $t = remat_ir::f16;
                $block
            }
            remat_ir::DType::Bf16 => {
                type $t = remat_ir::bf16;
                $block
            }
            remat_ir::DType::F64 => {
                type $t = f64;
                $block
            }
            _ => {
                type $t = f32;
                $block
            }
        }
    };
}

pub(crate) use {with_bits, with_float, with_integer, with_register};

#[cfg(test)]
mod tests {
    use remat_ir::{Literal, with_dtype};

    use super::*;

    #[test]
    fn an_index_is_rounded_once() {
        let near = (0..53).flat_map(|bit| (0..100).map(move |low| (1usize << bit) + low * (low << bit >> 12).max(1)));
        // Multiples of the golden ratio modulo 1 are spread evenly.
        let any = (0..10_000).map(|i: usize| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) >> (i % 53));
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
