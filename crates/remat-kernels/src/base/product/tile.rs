//! The generic micro-kernel: a tile of sums in registers, for any vector type with a fused multiplication and addition.
//!
//! For each position of the contracted axis it loads some vectors of the right operand, and multiplies one element after the other of the
//! left operand with all of them. With `M` rows of `N` vectors there are `N + M` loads for `N * M` operations.

// Operands are read and sums are written through pointers.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::micro::{ColumnVector, Prefetch, ROWS_PER_POINTER, Segments};
use crate::simd::{prefetch, prefetch_far};

/// How many positions ahead a right panel is prefetched from the second-level cache into the first: about 100 cycles, since 12 rows of two
/// vectors take 12 to 13 cycles (docs/EXPERIMENTS.md, "Packing of f32 panels").
const PREFETCH_POSITIONS: usize = 8;

/// Most pointers to rows of a tile.
const POINTERS: usize = 4;

/// Calls over which the next right panel is prefetched into the second-level cache: the smallest block of a large left operand has four
/// panels of 12 rows. (In as many calls as a block has it gained nothing: docs/EXPERIMENTS.md, "Packing of f32 panels".)
pub(crate) const CALLS_PER_PANEL: usize = 4;

/// Positions for each cache line that is prefetched of the memory that is packed next. (All lines at the beginning of a call took longer
/// than none: docs/EXPERIMENTS.md, "Packing of f32 panels".)
pub(crate) const POSITIONS_PER_LINE: usize = 16;

/// A vector in a register. Functions that load or store take pointers that need not be aligned.
///
/// # Safety
/// All may be called only in functions that are compiled for the instructions of the vector.
pub(super) trait Vector: Copy {
    type Element;
    const LANES: usize;

    unsafe fn zero() -> Self;
    /// One element in all lanes.
    unsafe fn splat(from: *const Self::Element) -> Self;
    unsafe fn load(from: *const Self::Element) -> Self;
    /// The first `n` lanes, the rest zeros. Only these lanes need to be readable.
    unsafe fn load_first(n: usize, from: *const Self::Element) -> Self;
    unsafe fn store(self, to: *mut Self::Element);
    /// Stores the first `n` lanes.
    unsafe fn store_first(self, n: usize, to: *mut Self::Element);
    unsafe fn plus(self, other: Self) -> Self;
    /// `self + a * b`, fused where every CPU that has the instructions can.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
}

/// The addresses of the first rows of the groups of a left operand.
#[inline(always)]
fn row_pointers<T>(left: *const T, group: usize) -> [*const T; POINTERS] {
    let mut pointers = [left; POINTERS];
    for (i, pointer) in pointers.iter_mut().enumerate() {
        *pointer = left.wrapping_add(i * group);
    }
    pointers
}

/// The address of a row.
#[inline(always)]
fn row_of<T>(pointers: &[*const T; POINTERS], row: usize, i: usize) -> *const T {
    pointers[i / ROWS_PER_POINTER].wrapping_add(i % ROWS_PER_POINTER * row)
}

/// Multiplies `M` rows, with these strides of rows and columns, and some columns in `N` vectors, the last of which may be partial. Writes
/// the products, or adds them. If `PACKED`, both operands are panels: the left one of `PANEL` rows, the right one of `N` vectors.
///
/// # Safety
/// As [`StridedFn`](super::micro::StridedFn); the function into which this is inlined is compiled for the instructions of the vector.
#[inline(always)]
pub(super) unsafe fn multiply<V: Vector, const M: usize, const N: usize, const PANEL: usize, const PACKED: bool>(
    [columns, positions]: [usize; 2],
    (mut left, [row, column]): (*const V::Element, [usize; 2]),
    (mut right, right_row): (*const V::Element, usize),
    mut ahead: Prefetch<V::Element>,
    (out, out_row): (*mut V::Element, usize),
    adds: bool,
) {
    const { assert!(M <= POINTERS * ROWS_PER_POINTER) };
    // As constants, the addresses of a packed panel are part of the instructions.
    let [row, column] = if PACKED { [1, PANEL] } else { [row, column] };
    let right_row = if PACKED { N * V::LANES } else { right_row };
    let last = columns - (N - 1) * V::LANES;
    // SAFETY: all elements that are read and written are in the operands and in the result, as the caller promises.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        let mut pointers = row_pointers(left, ROWS_PER_POINTER * row);
        let fetch_rows = |rows: Range<usize>| {
            for i in rows {
                for j in 0..N {
                    prefetch(out.wrapping_add(i * out_row + j * V::LANES).cast());
                }
            }
        };
        // Rows of the result are prefetched a few at a time: many would delay loads of the operands.
        let rows_together = if PACKED { M.div_ceil(positions.div_ceil(POSITIONS_PER_LINE).max(1)) } else { M };
        let (mut fetched, mut left_over) = (0, positions);
        while left_over > 0 {
            fetch_rows(fetched..M.min(fetched + rows_together));
            fetched += rows_together;
            let together = if PACKED { POSITIONS_PER_LINE.min(left_over) } else { left_over };
            left_over -= together;
            if PACKED {
                prefetch_far(ahead.lines);
                ahead.lines = ahead.lines.wrapping_offset(ahead.stride);
            }
            for _ in 0..together {
                if PACKED {
                    prefetch_far(ahead.right.cast());
                    ahead.right = ahead.right.wrapping_add(N * V::LANES / CALLS_PER_PANEL);
                }
                let mut x = [V::zero(); N];
                for (j, x) in x.iter_mut().enumerate() {
                    let from = right.add(j * V::LANES);
                    if PACKED {
                        prefetch(from.wrapping_add(PREFETCH_POSITIONS * N * V::LANES).cast());
                    }
                    *x = if PACKED || j + 1 < N { V::load(from) } else { V::load_first(last, from) };
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let from = if PACKED { left.add(i * row) } else { row_of(&pointers, row, i) };
                    let factor = V::splat(from);
                    for (sum, &x) in sums.iter_mut().zip(&x) {
                        *sum = sum.multiply_add(factor, x);
                    }
                }
                left = left.wrapping_add(column);
                for pointer in &mut pointers {
                    *pointer = pointer.wrapping_add(column);
                }
                right = right.wrapping_add(right_row);
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let to = out.add(i * out_row + j * V::LANES);
                if j + 1 < N {
                    if adds { sum.plus(V::load(to)) } else { sum }.store(to);
                } else {
                    if adds { sum.plus(V::load_first(last, to)) } else { sum }.store_first(last, to);
                }
            }
        }
    }
}

/// Multiplies `M` rows of a packed left panel of `PANEL` rows and vectors of columns that the right operand has at offsets. See
/// [`IndirectFn`](super::micro::IndirectFn).
///
/// # Safety
/// As there; the function into which this is inlined is compiled for the instructions of the vector.
#[inline(always)]
pub(super) unsafe fn multiply_indirect<V: Vector, const M: usize, const N: usize, const PANEL: usize>(
    mut left: *const V::Element,
    vectors: *const ColumnVector<V::Element>,
    offsets: &[usize],
    (row, out_row): (usize, usize),
    adds: bool,
) {
    // SAFETY: all elements that are read and written are in the operands and in the result, as the caller promises.
    unsafe {
        let mut from = [left; N];
        for (j, from) in from.iter_mut().enumerate() {
            *from = (*vectors.add(j)).from;
            for i in 0..M {
                prefetch((*vectors.add(j)).to.wrapping_add(row + i * out_row).cast());
            }
        }
        let mut sums = [[V::zero(); N]; M];
        for &at in offsets {
            let mut x = [V::zero(); N];
            for (x, from) in x.iter_mut().zip(from) {
                *x = V::load(from.add(at));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(left.add(i));
                for (sum, &x) in sums.iter_mut().zip(&x) {
                    *sum = sum.multiply_add(factor, x);
                }
            }
            left = left.wrapping_add(PANEL);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let ColumnVector { to, len, .. } = *vectors.add(j);
                let to = to.wrapping_add(row + i * out_row);
                if len == V::LANES {
                    if adds { sum.plus(V::load(to)) } else { sum }.store(to);
                } else if len > 0 {
                    if adds { sum.plus(V::load_first(len, to)) } else { sum }.store_first(len, to);
                }
            }
        }
    }
}

/// Multiplies `M` rows of a left operand of segments and a panel of `N` vectors. See [`SegmentsFn`](super::micro::SegmentsFn). Offsets of
/// single positions would need the address of each row in a register.
///
/// # Safety
/// As there; the function into which this is inlined is compiled for the instructions of the vector.
#[inline(always)]
pub(super) unsafe fn multiply_segments<V: Vector, const M: usize, const N: usize>(
    left: *const V::Element,
    segments: Segments<'_>,
    mut right: *const V::Element,
    (out, out_row): (*mut V::Element, usize),
    adds: bool,
) {
    const { assert!(M <= POINTERS * ROWS_PER_POINTER) };
    let Segments { offsets, len, row_stride, group_stride, column_stride } = segments;
    // SAFETY: all elements that are read and written are in the operands and in the result, as the caller promises.
    unsafe {
        for i in 0..M {
            for j in 0..N {
                prefetch(out.wrapping_add(i * out_row + j * V::LANES).cast());
            }
        }
        let mut sums = [[V::zero(); N]; M];
        for &at in offsets {
            let mut pointers = row_pointers(left.add(at), group_stride);
            for _ in 0..len {
                let mut x = [V::zero(); N];
                for (j, x) in x.iter_mut().enumerate() {
                    let from = right.add(j * V::LANES);
                    prefetch(from.wrapping_add(PREFETCH_POSITIONS * N * V::LANES).cast());
                    *x = V::load(from);
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let factor = V::splat(row_of(&pointers, row_stride, i));
                    for (sum, &x) in sums.iter_mut().zip(&x) {
                        *sum = sum.multiply_add(factor, x);
                    }
                }
                for pointer in &mut pointers {
                    *pointer = pointer.wrapping_add(column_stride);
                }
                right = right.wrapping_add(N * V::LANES);
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let to = out.add(i * out_row + j * V::LANES);
                if adds { sum.plus(V::load(to)) } else { sum }.store(to);
            }
        }
    }
}

/// Multiplies `M` rows of `N` vectors that the left operand has at offsets and rows of the right one, lane by lane. See
/// [`ElementwiseFn`](super::micro::ElementwiseFn).
///
/// # Safety
/// As there; the function into which this is inlined is compiled for the instructions of the vector.
#[inline(always)]
pub(super) unsafe fn multiply_elementwise<V: Vector, const M: usize, const N: usize>(
    (left, row): (*const V::Element, usize),
    offsets: &[usize],
    (mut right, right_row): (*const V::Element, usize),
    (out, out_row): (*mut V::Element, usize),
    adds: bool,
) {
    const { assert!(M <= POINTERS * ROWS_PER_POINTER) };
    // SAFETY: all elements that are read and written are in the operands and in the result, as the caller promises.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        for &at in offsets {
            let pointers = row_pointers(left.add(at), ROWS_PER_POINTER * row);
            let mut factors = [V::zero(); N];
            for (j, factor) in factors.iter_mut().enumerate() {
                *factor = V::load(right.add(j * V::LANES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let from = row_of(&pointers, row, i);
                for (j, (sum, &factor)) in sums.iter_mut().zip(&factors).enumerate() {
                    *sum = sum.multiply_add(V::load(from.add(j * V::LANES)), factor);
                }
            }
            right = right.wrapping_add(right_row);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let to = out.add(i * out_row + j * V::LANES);
                if adds { sum.plus(V::load(to)) } else { sum }.store(to);
            }
        }
    }
}

/// Multiplies and adds in registers, as often as [`multiply`] does for this many positions, and returns the number of multiplications.
///
/// # Safety
/// The function into which this is inlined is compiled for the instructions of the vector.
#[inline(always)]
pub(super) unsafe fn registers<V: Vector, const M: usize, const N: usize>(positions: usize, one: &V::Element) -> usize {
    // SAFETY: as the caller promises; the element is valid for reading.
    unsafe {
        let x = V::splat(black_box(one));
        let mut sums = [[V::zero(); N]; M];
        for _ in 0..positions {
            // Nested, as in `multiply`, so that they are unrolled and stay in registers; closures would not be compiled for the vector.
            for sums in &mut sums {
                for sum in sums {
                    *sum = sum.multiply_add(x, x);
                }
            }
        }
        for sum in sums.iter().flatten() {
            let mut out = MaybeUninit::<V>::uninit();
            sum.store(out.as_mut_ptr().cast());
            black_box(&mut out);
        }
    }
    positions * M * N * V::LANES
}

/// Defines a micro-kernel: a static of this name, for elements and vectors of these types, compiled for the target features. The numbers
/// after the lists are the most rows and vectors of a tile; the lists have the smaller numbers.
macro_rules! micro_kernel {
    (
        $name:ident: $element:ty, $vector:ty, $(features $features:literal,)? rows [$($m:literal)+] $rows:literal, vectors [$($n:literal)*] $vectors:literal
    ) => {
        pub(in super::super) static $name: $crate::base::product::MicroKernel<$element> = {
            use $crate::base::product::micro::{Prefetch, MicroKernel, ColumnVector, Segments};
            use $crate::base::product::tile::{
                self, Vector, multiply, multiply_elementwise, multiply_indirect, multiply_segments,
            };
            use $crate::number::Number;

            const LANES: usize = <$vector as Vector>::LANES;
            const COLUMNS: usize = $vectors * LANES;

            $(#[target_feature(enable = $features)])?
            unsafe fn rows<const N: usize, const PACKED: bool>(
                [rows, columns, positions]: [usize; 3],
                left: (*const $element, [usize; 2]),
                right: (*const $element, usize),
                ahead: Prefetch<$element>,
                out: (*mut $element, usize),
                adds: bool,
            ) {
                let size = [columns, positions];
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($m => multiply::<$vector, $m, N, $rows, PACKED>(size, left, right, ahead, out, adds),)+
                        _ => multiply::<$vector, $rows, N, $rows, PACKED>(size, left, right, ahead, out, adds),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn packed(
                size: [usize; 3],
                left: *const $element,
                right: *const $element,
                ahead: Prefetch<$element>,
                out: (*mut $element, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe { rows::<$vectors, true>(size, (left, [1, $rows]), (right, COLUMNS), ahead, out, adds) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn strided(
                size: [usize; 3],
                left: (*const $element, [usize; 2]),
                right: (*const $element, usize),
                out: (*mut $element, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe {
                    $(
                        if size[1] <= $n * LANES {
                            return rows::<$n, false>(size, left, right, Prefetch::nothing(right.0), out, adds);
                        }
                    )*
                    rows::<$vectors, false>(size, left, right, Prefetch::nothing(right.0), out, adds)
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn indirect(
                rows: usize,
                left: *const $element,
                vectors: *const ColumnVector<$element>,
                offsets: &[usize],
                out: (usize, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($m => multiply_indirect::<$vector, $m, $vectors, $rows>(left, vectors, offsets, out, adds),)+
                        _ => multiply_indirect::<$vector, $rows, $vectors, $rows>(left, vectors, offsets, out, adds),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn segments(
                rows: usize,
                left: *const $element,
                segments: Segments<'_>,
                right: *const $element,
                out: (*mut $element, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($m => multiply_segments::<$vector, $m, $vectors>(left, segments, right, out, adds),)+
                        _ => multiply_segments::<$vector, $rows, $vectors>(left, segments, right, out, adds),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn elementwise(
                rows: usize,
                left: (*const $element, usize),
                offsets: &[usize],
                right: (*const $element, usize),
                out: (*mut $element, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($m => multiply_elementwise::<$vector, $m, $vectors>(left, offsets, right, out, adds),)+
                        _ => multiply_elementwise::<$vector, $rows, $vectors>(left, offsets, right, out, adds),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn registers(steps: usize) -> usize {
                // SAFETY: as the caller promises.
                unsafe { tile::registers::<$vector, $rows, $vectors>(steps, &<$element as Number>::ONE) }
            }

            MicroKernel {
                rows: $rows,
                columns: COLUMNS,
                min_columns: ($vectors - 1) * LANES + 1,
                lanes: LANES,
                packed,
                strided,
                indirect,
                segments,
                elementwise,
                registers,
            }
        };
    };
}

pub(super) use micro_kernel;
