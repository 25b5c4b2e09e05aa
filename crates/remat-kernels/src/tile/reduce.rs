//! Reductions of tiles.
//!
//! The order in which floats are added depends only on the number of columns.

use remat_ir::{DType, ReduceKind};

use super::TileFn;
use super::loops;
use super::monoid::{And, AndOfBools, Maximum, Minimum, Monoid, Or, Product, Sum};
pub(crate) use super::monoid::{BLOCK, MANY as LANES, PART, RUN};
use crate::number::Scalar;
use crate::number::rounding::{Exact, Round, ToBf16, ToF16};
use crate::number::{Integer, Real, with_bits, with_integer};
use crate::simd::{Level, multiversion};

/// Reduces each of `rows` rows of `columns` contiguous elements to one: `out[r]` is the reduction of `input[r * columns ..]`. It is the
/// [`identity`] if there are no columns.
///
/// # Safety
/// `input` is valid for reading `rows * columns` elements of the register type and `out` for writing `rows`, both aligned
/// to the element, and they do not overlap.
pub(crate) type ReduceFn = unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8);

/// The function that reduces rows. f16 and bf16 accumulate in f32 and round at the end.
pub(crate) fn reduce_rows(kind: ReduceKind, dtype: DType) -> Option<ReduceFn> {
    reduce_rows_at(Level::best(), kind, dtype)
}

/// The function that accumulates: `out[i]` is the reduction of `acc[i]` and `input[i]`, for the operands `[acc, input]`. The accumulator is
/// a register that starts as the [`identity`]. f16 and bf16 are not rounded during accumulation; [`finish`] rounds them.
pub(crate) fn accumulate(kind: ReduceKind, dtype: DType) -> Option<TileFn> {
    accumulate_at(Level::best(), kind, dtype)
}

/// Reduces elements in lanes: element `i` of the input is combined with lane `(first + i) % LANES`, for `i < n`.
///
/// # Safety
/// `lanes` is valid for reading and writing [`LANES`] elements of the register type, `input` for reading `n`, both aligned to the
/// element, and they do not overlap.
pub(crate) type LanesFn = unsafe fn(n: usize, first: usize, lanes: *mut u8, input: *const u8);

/// The function that reduces elements in lanes, which start as the [`identity`]. If [`accumulate`] combines the lanes of [`PART`] elements
/// with those of a run, [`reduce_rows`] reduces the lanes of at most [`RUN`], and [`accumulate`] combines [`BLOCK`] such results, and then
/// those of blocks, one after the other, the result is bitwise that of a row with all elements.
pub(crate) fn accumulate_lanes(kind: ReduceKind, dtype: DType) -> Option<LanesFn> {
    with_monoid(kind, dtype, InLanes(Level::best()))
}

/// The function that rounds accumulators to the dtype, if its registers have more bits: for f16 and bf16.
pub(crate) fn finish(dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => Some(loops::unary(Level::best(), |x: f32| x, ToF16)),
        DType::Bf16 => Some(loops::unary(Level::best(), |x: f32| x, ToBf16)),
        _ => None,
    }
}

/// The initial value of an accumulator. Its first bytes are an element of the register type.
pub(crate) fn identity(kind: ReduceKind, dtype: DType) -> Option<[u8; 8]> {
    with_monoid(kind, dtype, Identity)
}

pub(super) fn reduce_rows_at(level: Level, kind: ReduceKind, dtype: DType) -> Option<ReduceFn> {
    with_monoid(kind, dtype, Rows(level))
}

pub(super) fn accumulate_at(level: Level, kind: ReduceKind, dtype: DType) -> Option<TileFn> {
    with_monoid(kind, dtype, Accumulate(level))
}

/// A visitor of monoids.
trait Visit {
    type Output;
    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, round: R) -> Self::Output;
}

struct Identity;
struct Rows(Level);
struct Accumulate(Level);
struct InLanes(Level);

impl Visit for Identity {
    type Output = [u8; 8];

    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, _: R) -> [u8; 8] {
        let mut bytes = [0; 8];
        assert!(size_of::<T>() <= bytes.len());
        // SAFETY: the element fits (checked), and numbers have no padding.
        unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(M::IDENTITY) };
        bytes
    }
}

impl Visit for Rows {
    type Output = ReduceFn;

    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, _: R) -> ReduceFn {
        rows::<T, M, R>(self.0)
    }
}

impl Visit for Accumulate {
    type Output = TileFn;

    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, _: R) -> TileFn {
        loops::binary(self.0, M::combine, Exact)
    }
}

impl Visit for InLanes {
    type Output = LanesFn;

    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, _: R) -> LanesFn {
        in_lanes::<T, M>(self.0)
    }
}

/// Visits the monoid of this kind for registers of this dtype; `None` if there is none.
fn with_monoid<V: Visit>(kind: ReduceKind, dtype: DType, visit: V) -> Option<V::Output> {
    match dtype {
        DType::Bool => bools(kind, visit),
        DType::F16 => floats::<f32, ToF16, V>(kind, ToF16, visit),
        DType::Bf16 => floats::<f32, ToBf16, V>(kind, ToBf16, visit),
        DType::F32 => floats::<f32, Exact, V>(kind, Exact, visit),
        DType::F64 => floats::<f64, Exact, V>(kind, Exact, visit),
        _ => match kind {
            ReduceKind::Max => with_integer!(dtype, T => Some(visit.visit::<T, Maximum, _>(Exact)), else None),
            ReduceKind::Min => with_integer!(dtype, T => Some(visit.visit::<T, Minimum, _>(Exact)), else None),
            _ => with_bits!(dtype, T => bits::<T, V>(kind, visit)),
        },
    }
}

fn bools<V: Visit>(kind: ReduceKind, visit: V) -> Option<V::Output> {
    match kind {
        ReduceKind::Max | ReduceKind::Or => Some(visit.visit::<u8, Or, _>(Exact)),
        ReduceKind::Min | ReduceKind::And => Some(visit.visit::<u8, AndOfBools, _>(Exact)),
        ReduceKind::Sum | ReduceKind::Prod => None,
    }
}

fn floats<T: Real, R: Round<T>, V: Visit>(kind: ReduceKind, round: R, visit: V) -> Option<V::Output>
where
    Sum: Monoid<T>,
    Product: Monoid<T>,
{
    match kind {
        ReduceKind::Sum => Some(visit.visit::<T, Sum, R>(round)),
        ReduceKind::Prod => Some(visit.visit::<T, Product, R>(round)),
        // The maximum and the minimum are among the elements, so they need no rounding.
        ReduceKind::Max => Some(visit.visit::<T, Maximum, _>(Exact)),
        ReduceKind::Min => Some(visit.visit::<T, Minimum, _>(Exact)),
        ReduceKind::And | ReduceKind::Or => None,
    }
}

/// Reductions that are the same for signed and unsigned integers.
fn bits<T: Integer, V: Visit>(kind: ReduceKind, visit: V) -> Option<V::Output>
where
    Sum: Monoid<T>,
    Product: Monoid<T>,
{
    match kind {
        ReduceKind::Sum => Some(visit.visit::<T, Sum, _>(Exact)),
        ReduceKind::Prod => Some(visit.visit::<T, Product, _>(Exact)),
        ReduceKind::And => Some(visit.visit::<T, And, _>(Exact)),
        ReduceKind::Or => Some(visit.visit::<T, Or, _>(Exact)),
        ReduceKind::Max | ReduceKind::Min => None,
    }
}

multiversion! {
    fn rows<T: Scalar, M: Monoid<T>, R: Round<T>>(level: Level)
    -> unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8) where T::IS_COMMON_IN_TILES => {
        let (out, input) = (out.cast::<T>(), input.cast::<T>());
        for r in 0..rows {
            // SAFETY: the caller promises `rows` rows of `columns` elements to read and `rows` elements to write.
            unsafe {
                let row = std::slice::from_raw_parts(input.add(r * columns), columns);
                out.add(r).write(R::round(M::row(row)));
            }
        }
    }
}

multiversion! {
    fn in_lanes<T: Scalar, M: Monoid<T>>(level: Level)
    -> unsafe fn(n: usize, first: usize, lanes: *mut u8, input: *const u8) {
        // SAFETY: the caller promises `LANES` elements to read and write, and `n` elements to read.
        let (lanes, input) = unsafe {
            (&mut *lanes.cast::<[T; LANES]>(), std::slice::from_raw_parts(input.cast::<T>(), n))
        };
        let combine = |lanes: &mut [T], input: &[T]| {
            for (lane, &x) in lanes.iter_mut().zip(input) {
                *lane = M::combine(*lane, x);
            }
        };
        let (head, input) = input.split_at(n.min((LANES - first % LANES) % LANES));
        combine(&mut lanes[first % LANES..], head);
        let (blocks, rest) = input.as_chunks::<LANES>();
        let mut sums = *lanes;
        for block in blocks {
            for (lane, &x) in sums.iter_mut().zip(block) {
                *lane = M::combine(*lane, x);
            }
        }
        *lanes = sums;
        combine(lanes, rest);
    }
}
