//! Monoids: the operations with which reductions combine elements.

use crate::number::Scalar;
use crate::number::{Integer, Number};

/// An associative operation and its identity.
pub(super) trait Monoid<T>: Copy + 'static {
    const IDENTITY: T;

    fn combine(a: T, b: T) -> T;

    /// The reduction of a row.
    fn row(row: &[T]) -> T;
}

#[derive(Clone, Copy)]
pub(super) struct Sum;
#[derive(Clone, Copy)]
pub(super) struct Product;
#[derive(Clone, Copy)]
pub(super) struct Maximum;
#[derive(Clone, Copy)]
pub(super) struct Minimum;
#[derive(Clone, Copy)]
pub(super) struct And;
#[derive(Clone, Copy)]
pub(super) struct Or;
#[derive(Clone, Copy)]
pub(super) struct AndOfBools;

macro_rules! sums_and_products {
    ($($type:ident $zero:literal $one:literal $add:path, $mul:path, $row:path;)*) => { $(
        impl Monoid<$type> for Sum {
            const IDENTITY: $type = $zero;
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                $add(a, b)
            }
            #[inline(always)]
            fn row(row: &[$type]) -> $type {
                $row(row)
            }
        }
        impl Monoid<$type> for Product {
            const IDENTITY: $type = $one;
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                $mul(a, b)
            }
            #[inline(always)]
            fn row(row: &[$type]) -> $type {
                $row(row)
            }
        }
    )* };
}

sums_and_products! {
    f32 0.0 1.0 std::ops::Add::add, std::ops::Mul::mul, in_lanes::<_, Self>;
    f64 0.0 1.0 std::ops::Add::add, std::ops::Mul::mul, in_lanes::<_, Self>;
    u8 0 1 u8::wrapping_add, u8::wrapping_mul, in_any_order::<_, Self>;
    u16 0 1 u16::wrapping_add, u16::wrapping_mul, in_any_order::<_, Self>;
    u32 0 1 u32::wrapping_add, u32::wrapping_mul, in_any_order::<_, Self>;
    u64 0 1 u64::wrapping_add, u64::wrapping_mul, in_any_order::<_, Self>;
}

impl<T: Number> Monoid<T> for Maximum {
    const IDENTITY: T = T::BOTTOM;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.maximum(b)
    }
    #[inline(always)]
    fn row(row: &[T]) -> T {
        T::maximum_of(row)
    }
}

impl<T: Number> Monoid<T> for Minimum {
    const IDENTITY: T = T::TOP;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.minimum(b)
    }
    #[inline(always)]
    fn row(row: &[T]) -> T {
        T::minimum_of(row)
    }
}

impl<T: Integer> Monoid<T> for And {
    const IDENTITY: T = T::ALL_BITS;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.and(b)
    }
    #[inline(always)]
    fn row(row: &[T]) -> T {
        in_any_order::<T, Self>(row)
    }
}

impl<T: Integer> Monoid<T> for Or {
    const IDENTITY: T = T::ZERO;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.or(b)
    }
    #[inline(always)]
    fn row(row: &[T]) -> T {
        in_any_order::<T, Self>(row)
    }
}

impl Monoid<u8> for AndOfBools {
    const IDENTITY: u8 = 1;
    #[inline(always)]
    fn combine(a: u8, b: u8) -> u8 {
        a & b
    }
    #[inline(always)]
    fn row(row: &[u8]) -> u8 {
        in_any_order::<u8, Self>(row)
    }
}

/// The reduction of a row by an operation that LLVM knows to be associative, in the order that LLVM chooses.
#[inline(always)]
fn in_any_order<T: Scalar, M: Monoid<T>>(row: &[T]) -> T {
    row.iter().fold(M::IDENTITY, |a, &b| M::combine(a, b))
}

/// Elements that are reduced in lanes before these are added to the lanes of a run.
pub(crate) const PART: usize = 1024;
/// Elements that are reduced in lanes, part by part, before the lanes are combined to one number.
pub(crate) const RUN: usize = 8 * PART;
/// Numbers that are combined one after the other before their result is combined with others of its kind: a power of two. With eight, sums
/// of equal numbers lose few digits (docs/EXPERIMENTS.md, "Accumulators of sums").
pub(crate) const BLOCK: usize = 8;
/// Lanes of long rows.
pub(crate) const MANY: usize = 64;
/// Lanes of short rows.
const FEW: usize = 8;

/// The reduction of a row by an operation that rounds. It runs in several lanes, which are combined in pairs, so that the error is far
/// below that of combining one element after the other.
#[inline(always)]
fn in_lanes<T: Scalar, M: Monoid<T>>(row: &[T]) -> T {
    match row.len() {
        PART.. => row.chunks(BLOCK * RUN).fold(M::IDENTITY, |a, block| {
            let runs = block.chunks(RUN).map(run_in_lanes::<T, M>);
            M::combine(a, runs.fold(M::IDENTITY, M::combine))
        }),
        MANY.. => combined::<T, M, MANY>(lanes_of::<T, M, MANY>(row)),
        FEW.. => combined::<T, M, FEW>(lanes_of::<T, M, FEW>(row)),
        _ => combined::<T, M, 1>(lanes_of::<T, M, 1>(row)),
    }
}

/// The reduction of a run, part by part.
#[inline(always)]
fn run_in_lanes<T: Scalar, M: Monoid<T>>(run: &[T]) -> T {
    let mut lanes = [M::IDENTITY; MANY];
    for part in run.chunks(PART) {
        for (lane, x) in lanes.iter_mut().zip(lanes_of::<T, M, MANY>(part)) {
            *lane = M::combine(*lane, x);
        }
    }
    combined::<T, M, MANY>(lanes)
}

/// Lane `i` reduces the elements whose position is `i` modulo the number of lanes.
#[inline(always)]
fn lanes_of<T: Scalar, M: Monoid<T>, const LANES: usize>(row: &[T]) -> [T; LANES] {
    let mut lanes = [M::IDENTITY; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane = M::combine(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = M::combine(*lane, x);
    }
    lanes
}

/// Lanes combined in pairs.
#[inline(always)]
fn combined<T: Scalar, M: Monoid<T>, const LANES: usize>(mut lanes: [T; LANES]) -> T {
    // The lengths are constants, so that each step is a few vectors.
    macro_rules! halve {
        ($($half:literal)*) => { $(
            if LANES > $half {
                for j in 0..$half {
                    lanes[j] = M::combine(lanes[j], lanes[j + $half]);
                }
            }
        )* };
    }
    halve! { 32 16 8 4 2 1 }
    lanes[0]
}
