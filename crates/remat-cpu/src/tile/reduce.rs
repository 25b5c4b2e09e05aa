//! Reductions of tiles.
//!
//! Floats are added in an order that depends on the number of columns alone. Several sums are kept side by side and added
//! in pairs at the end, so that the error is far below that of adding one after the other.

use remat_ir::{DType, ReduceKind};

use super::TileFn;
use super::loops::{self, Scalar};
use super::number::{Integer, Ordered, Real, with_bits, with_integer};
use super::rounding::{Exact, Round, ToBf16, ToF16};
use crate::simd::{Level, multiversion};

/// Reduces each of `rows` rows of `columns` contiguous elements to one: `out[r]` is the reduction of `input[r * columns ..]`.
/// Of no columns it is the [`identity`].
///
/// # Safety
/// `input` is valid for reading `rows * columns` elements of the register type and `out` for writing `rows`, both aligned
/// to the element, and they do not overlap.
pub(crate) type ReduceFn = unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8);

/// The function that reduces rows. f16 and bf16 accumulate in f32 and round at the end.
pub(crate) fn reduce_rows(kind: ReduceKind, dtype: DType) -> Option<ReduceFn> {
    reduce_rows_at(Level::best(), kind, dtype)
}

/// The function that accumulates: `out[i]` is the reduction of `acc[i]` and `input[i]`, for the operands `[acc, input]`. The
/// accumulator is a register that begins as the [`identity`]. f16 and bf16 are not rounded while they accumulate:
/// [`finish`] does it.
pub(crate) fn accumulate(kind: ReduceKind, dtype: DType) -> Option<TileFn> {
    accumulate_at(Level::best(), kind, dtype)
}

/// The function that rounds accumulators to the dtype, where its registers hold more: for f16 and bf16.
pub(crate) fn finish(dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => Some(loops::unary(Level::best(), |x: f32| x, ToF16)),
        DType::Bf16 => Some(loops::unary(Level::best(), |x: f32| x, ToBf16)),
        _ => None,
    }
}

/// What an accumulator begins with: the first bytes are an element of the register type.
pub(crate) fn identity(kind: ReduceKind, dtype: DType) -> Option<[u8; 8]> {
    with_monoid(kind, dtype, Identity)
}

pub(super) fn reduce_rows_at(level: Level, kind: ReduceKind, dtype: DType) -> Option<ReduceFn> {
    with_monoid(kind, dtype, Rows(level))
}

pub(super) fn accumulate_at(level: Level, kind: ReduceKind, dtype: DType) -> Option<TileFn> {
    with_monoid(kind, dtype, Accumulate(level))
}

/// An associative operation and its identity.
trait Monoid<T>: Copy + 'static {
    const IDENTITY: T;
    fn combine(a: T, b: T) -> T;
}

#[derive(Clone, Copy)]
struct Sum;
#[derive(Clone, Copy)]
struct Product;
#[derive(Clone, Copy)]
struct Maximum;
#[derive(Clone, Copy)]
struct Minimum;
#[derive(Clone, Copy)]
struct And;
#[derive(Clone, Copy)]
struct Or;
#[derive(Clone, Copy)]
struct AndOfBools;

/// What is made for a monoid.
trait Visit {
    type Output;
    fn visit<T: Scalar, M: Monoid<T>, R: Round<T>>(self, round: R) -> Self::Output;
}

struct Identity;
struct Rows(Level);
struct Accumulate(Level);

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

/// Visits the monoid of this kind on registers of this dtype; `None` where there is none.
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
        // An extremum is one of the elements.
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

macro_rules! sums_and_products {
    ($($type:ident $zero:literal $one:literal $add:path, $mul:path;)*) => { $(
        impl Monoid<$type> for Sum {
            const IDENTITY: $type = $zero;
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                $add(a, b)
            }
        }
        impl Monoid<$type> for Product {
            const IDENTITY: $type = $one;
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                $mul(a, b)
            }
        }
    )* };
}

sums_and_products! {
    f32 0.0 1.0 std::ops::Add::add, std::ops::Mul::mul;
    f64 0.0 1.0 std::ops::Add::add, std::ops::Mul::mul;
    u8 0 1 u8::wrapping_add, u8::wrapping_mul;
    u16 0 1 u16::wrapping_add, u16::wrapping_mul;
    u32 0 1 u32::wrapping_add, u32::wrapping_mul;
    u64 0 1 u64::wrapping_add, u64::wrapping_mul;
}

impl<T: Ordered> Monoid<T> for Maximum {
    const IDENTITY: T = T::BOTTOM;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.largest(b)
    }
}

impl<T: Ordered> Monoid<T> for Minimum {
    const IDENTITY: T = T::TOP;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.smallest(b)
    }
}

impl<T: Integer> Monoid<T> for And {
    const IDENTITY: T = T::ALL_BITS;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.and(b)
    }
}

impl<T: Integer> Monoid<T> for Or {
    const IDENTITY: T = T::ZERO;
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.or(b)
    }
}

impl Monoid<u8> for AndOfBools {
    const IDENTITY: u8 = 1;
    #[inline(always)]
    fn combine(a: u8, b: u8) -> u8 {
        a & b
    }
}

multiversion! {
    fn rows<T: Scalar, M: Monoid<T>, R: Round<T>>(level: Level)
    -> unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8) {
        let (out, input) = (out.cast::<T>(), input.cast::<T>());
        for r in 0..rows {
            // SAFETY: the caller promises `rows` rows of `columns` elements to read and `rows` elements to write.
            unsafe {
                let row = input.add(r * columns);
                let reduction = match columns {
                    RUN.. => long_row::<T, M>(row, columns),
                    LONG.. => row_in_lanes::<T, M, LONG>(row, columns),
                    SHORT.. => row_in_lanes::<T, M, SHORT>(row, columns),
                    _ => row_in_lanes::<T, M, 1>(row, columns),
                };
                out.add(r).write(R::round(reduction));
            }
        }
    }
}

/// The columns that are reduced in lanes before the next are.
const RUN: usize = 4096;
/// Reductions side by side of long rows.
const LONG: usize = 64;
/// Reductions side by side of short rows.
const SHORT: usize = 8;

/// The reduction of a row that is longer than a tile: of runs, one after the other.
///
/// # Safety
/// `row` is valid for reading `columns` elements.
#[inline(always)]
unsafe fn long_row<T: Scalar, M: Monoid<T>>(row: *const T, columns: usize) -> T {
    let mut total = M::IDENTITY;
    for start in (0..columns).step_by(RUN) {
        // SAFETY: the run ends with the row at the latest.
        let run = unsafe { row_in_lanes::<T, M, LONG>(row.add(start), RUN.min(columns - start)) };
        total = M::combine(total, run);
    }
    total
}

/// The reduction of a row: every `LANES`-th element, then pairs of these.
///
/// # Safety
/// `row` is valid for reading `columns` elements.
#[inline(always)]
unsafe fn row_in_lanes<T: Scalar, M: Monoid<T>, const LANES: usize>(row: *const T, columns: usize) -> T {
    let mut lanes = [M::IDENTITY; LANES];
    let blocks = columns / LANES;
    for i in 0..blocks {
        // SAFETY: the row has `blocks` blocks of `LANES` elements.
        let block = unsafe { row.add(i * LANES).cast::<[T; LANES]>().read() };
        for j in 0..LANES {
            lanes[j] = M::combine(lanes[j], block[j]);
        }
    }
    for (j, lane) in lanes.iter_mut().enumerate().take(columns % LANES) {
        // SAFETY: so many elements follow the blocks.
        *lane = M::combine(*lane, unsafe { row.add(blocks * LANES + j).read() });
    }
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = M::combine(lanes[j], lanes[j + half]);
        }
        half /= 2;
    }
    lanes[0]
}
