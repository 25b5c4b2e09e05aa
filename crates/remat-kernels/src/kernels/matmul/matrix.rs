//! Matrices with any layout and dtype, as operands of products.

use std::ops::Range;

use remat_ir::{Element, bf16};

use super::blocked::{Left, Right, block_stride};
use super::element::Elements;
use crate::base::blocks::Block;
use crate::base::product::{self, Accumulator};
use crate::base::strided::Rows;
use crate::base::transpose::transpose;
use crate::simd::multiversion;

/// A matrix in a buffer: element `i, j` is at `start` and the offsets of `i` in `free` and of `j` in `contracted`.
pub(in super::super) struct Matrix<'a, A> {
    pub(in super::super) elements: Elements<'a, A>,
    pub(in super::super) start: isize,
    pub(in super::super) free: &'a Rows<1>,
    pub(in super::super) contracted: &'a Rows<1>,
}

/// The elements of a column that are read at a time before they are transposed.
const CHUNK: usize = 64;

/// Columns of a left operand whose elements are neighbours are read in place up to this stride: cache lines this close do not
/// meet in one set.
const NEAR: usize = 64;

/// Whether neighbours in memory are neighbours along the free dimensions rather than along the contracted ones.
pub(super) fn is_contiguous_along_free(free: &Rows<1>, contracted: &Rows<1>) -> bool {
    let distance = |rows: &Rows<1>| match rows.stride[0].unsigned_abs() {
        _ if rows.len == 1 => usize::MAX,
        0 => usize::MAX - 1,
        stride => stride,
    };
    distance(free) < distance(contracted)
}

/// Offset of the first of some indices and the stride between them, if it is the same between all.
fn run(rows: &Rows<1>, indices: &Range<usize>) -> Option<(isize, isize)> {
    let mut first = None;
    let mut runs = 0;
    rows.each(indices.clone(), |[at], range| {
        runs += 1;
        first = Some((at + range.start as isize * rows.stride[0], if range.len() == 1 { 0 } else { rows.stride[0] }));
    });
    first.filter(|_| runs == 1)
}

impl<A: Accumulator> Matrix<'_, A> {
    fn is_contiguous_along_free(&self) -> bool {
        is_contiguous_along_free(self.free, self.contracted)
    }

    /// Elements of row `i`, which are read into `to` unless they are contiguous numbers.
    pub(super) fn row<'a>(&'a self, i: usize, depth: Range<usize>, to: &'a mut [A]) -> &'a [A] {
        self.slice(self.free, i, self.contracted, depth, to)
    }

    /// Elements of column `j`, likewise.
    pub(super) fn column<'a>(&'a self, free: Range<usize>, j: usize, to: &'a mut [A]) -> &'a [A] {
        self.slice(self.contracted, j, self.free, free, to)
    }

    /// Elements at index `i` of one group of dimensions and some indices of the other.
    fn slice<'a>(&'a self, one: &Rows<1>, i: usize, other: &Rows<1>, range: Range<usize>, to: &'a mut [A]) -> &'a [A] {
        let mut start = self.start;
        one.each(i..i + 1, |[at], range| start += at + range.start as isize * one.stride[0]);
        let n = range.len();
        if let (Some(from), Some((at, 1))) = (self.elements.numbers(), run(other, &range)) {
            return &from[(start + at) as usize..][..n];
        }
        self.read_row(start, other, range, to);
        &to[..n]
    }

    /// Reads the elements at some indices of a group of dimensions, from an offset on.
    #[inline]
    fn read_row(&self, start: isize, dims: &Rows<1>, range: Range<usize>, to: &mut [A]) {
        let (mut done, stride) = (0, dims.stride[0]);
        dims.each(range, |[at], range| {
            let to = &mut to[done..done + range.len()];
            self.elements.read(start + at + range.start as isize * stride, stride, to);
            done += range.len();
        });
    }

    /// Reads the elements at some indices of two groups of dimensions, one row for each index of the first, to rows that are
    /// `stride` numbers apart.
    fn read(&self, [rows, along]: [&Rows<1>; 2], [i, j]: [Range<usize>; 2], stride: usize, to: &mut [A]) {
        let mut to = to.chunks_mut(stride.max(1));
        rows.each(i, |[at], range| {
            for (row, to) in range.zip(&mut to) {
                self.read_row(self.start + at + row as isize * rows.stride[0], along, j.clone(), to);
            }
        });
    }

    /// The offset of the first element of a block and the strides of rows and columns, if these are the same everywhere.
    fn strides(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<(usize, usize, usize)> {
        let ((i, row), (j, column)) = (run(self.free, free)?, run(self.contracted, depth)?);
        Some(((self.start + i + j) as usize, row.try_into().ok()?, column.try_into().ok()?))
    }

    /// The elements from the first of a block on, and the distances, if the elements are numbers.
    fn strided(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<(&[A], usize, usize)> {
        let (first, row, column) = self.strides(free, depth)?;
        Some((&self.elements.numbers()?[first..], row, column))
    }

    /// Copies a block that is contiguous along the free dimensions: all indices of these for each index of the contracted ones.
    fn copy(&self, free: Range<usize>, depth: Range<usize>, to: &mut [A]) {
        let size = free.len();
        let to = &mut to[..size * depth.len()];
        match (self.strides(&free, &depth), self.elements.numbers(), self.elements.halves()) {
            (Some((first, 1, stride)), Some(from), _) => copy_rows(&from[first..], stride, size, to),
            (Some((first, 1, stride)), _, Some(from)) => widen_rows(&from[first..], stride, size, to),
            _ => self.read([self.contracted, self.free], [depth, free], size, to),
        }
    }
}

/// A block of a left operand with these strides of rows and columns, if it can be read in place.
pub(in super::super) fn left_in_place<A>(strided: Option<(&[A], usize, usize)>) -> Option<product::Left<'_, A>> {
    let (elements, row, column) = strided?;
    (column <= 1 || (row <= 1 && column <= NEAR)).then_some(product::Left { elements, row, column })
}

/// A part of a right operand with these strides of columns and rows, if it can be read in place.
pub(in super::super) fn right_in_place<A>(
    (elements, stride, row): (&[A], usize, usize),
    columns: usize,
) -> Option<product::Right<'_, A>> {
    (stride == 1 || columns == 1).then_some(product::Right { elements, row })
}

impl<A: Accumulator> Left<A> for Matrix<'_, A> {
    fn block<'a>(&'a self, rows: Range<usize>, depth: Range<usize>, to: &'a mut [A]) -> product::Left<'a, A> {
        if let Some(block) = left_in_place(self.strided(&rows, &depth)) {
            return block;
        }
        if self.is_contiguous_along_free() {
            let stride = rows.len();
            self.copy(rows, depth, to);
            return product::Left { elements: to, row: 1, column: stride };
        }
        let stride = block_stride(depth.len());
        self.read([self.free, self.contracted], [rows, depth], stride, to);
        product::Left { elements: to, row: stride, column: 1 }
    }
}

impl<A: Accumulator> Right<A> for Matrix<'_, A> {
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>> {
        right_in_place(self.strided(&columns, &depth)?, columns.len())
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, to: &mut [A]) {
        let n = columns.len();
        if self.is_contiguous_along_free() {
            return self.copy(columns, depth, to);
        }
        if let (Some(from), Some((i, stride)), Some((j, 1))) =
            (self.elements.numbers(), run(self.free, &columns), run(self.contracted, &depth))
        {
            return transpose_into(from, self.start + i + j, stride, n, to);
        }
        pack_transposed(depth, n, to, |depth, stride, to| {
            self.read([self.free, self.contracted], [columns.clone(), depth], stride, to);
        });
    }
}

/// Packs a part of a right operand whose columns `read` reads, to rows of the given stride: a few elements of each column at a
/// time, which are then transposed.
pub(in super::super) fn pack_transposed<A: Accumulator>(
    depth: Range<usize>,
    columns: usize,
    to: &mut [A],
    read: impl Fn(Range<usize>, usize, &mut [A]),
) {
    let mut chunk = [A::default(); CHUNK * 32];
    for (i, to) in to.chunks_mut((CHUNK * columns).max(1)).enumerate() {
        let first = depth.start + i * CHUNK;
        read(first..depth.end.min(first + CHUNK), CHUNK, &mut chunk);
        transpose_into(&chunk, 0, CHUNK as isize, columns, to);
    }
}

multiversion! {
    /// Copies rows of `size` neighbours, the first at 0 and `stride` apart, one after the other.
    fn copy_rows<A: Accumulator>(from: &[A], stride: usize, size: usize, to: &mut [A]) {
        rows(from, stride, size, to, |x| x);
    }
}

multiversion! {
    /// As [`copy_rows`], of elements that are widened.
    fn widen_rows<A: Accumulator>(from: &[bf16], stride: usize, size: usize, to: &mut [A]) {
        rows(from, stride, size, to, A::from_bf16);
    }
}

/// Copies rows; those of whole vectors, as blocks and panels have them, without a loop inside.
#[inline(always)]
fn rows<T: Copy, A>(from: &[T], stride: usize, size: usize, to: &mut [A], number: impl Fn(T) -> A + Copy) {
    match size {
        48 => rows_of::<T, A, 48>(from, stride, to, number),
        32 => rows_of::<T, A, 32>(from, stride, to, number),
        16 => rows_of::<T, A, 16>(from, stride, to, number),
        _ => {
            for (i, to) in to.chunks_exact_mut(size.max(1)).enumerate() {
                to.iter_mut().zip(&from[i * stride..][..size]).for_each(|(to, &x)| *to = number(x));
            }
        }
    }
}

#[inline(always)]
fn rows_of<T: Copy, A, const N: usize>(from: &[T], stride: usize, to: &mut [A], number: impl Fn(T) -> A) {
    let (rows, _) = to.as_chunks_mut::<N>();
    for (i, to) in rows.iter_mut().enumerate() {
        to.iter_mut().zip(&from[i * stride..][..N]).for_each(|(to, &x)| *to = number(x));
    }
}

multiversion! {
    /// Writes element `i` of each of `columns` columns, `stride` apart, the first at `start`, to row `i` of a matrix.
    fn transpose_into<A: Element>(from: &[A], start: isize, stride: isize, columns: usize, to: &mut [A]) {
        let mut block = Block::whole(to, columns);
        let rows = block.rows.len();
        transpose(from, start, stride, &mut block, [0, 0], [rows, columns], false);
    }
}
