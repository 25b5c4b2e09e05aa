//! Matrices with any layout and dtype, as operands of products.

use std::ops::Range;

use super::blocked::{Left, LeftBlock, Right, for_each_panel, pack_panels, panels_len};
use super::element::Elements;
use super::narrow::ToPrefetch;
use super::pack::{RowsToPanels, copy_columns, copy_elements, pack_transposed, transpose_rows};
use crate::base::product::{self, Accumulator, MicroKernel};
use crate::base::strided::Rows;

/// A matrix in a buffer: element `i, j` is at `start` plus the offsets of `i` in `free` and of `j` in `contracted`.
pub(in super::super) struct Matrix<'a, A> {
    pub(in super::super) elements: Elements<'a, A>,
    pub(in super::super) start: isize,
    pub(in super::super) free: &'a Rows<1>,
    pub(in super::super) contracted: &'a Rows<1>,
}

/// Where a part of a matrix is. All elements between its first and its last one are in its buffer.
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) first: *const u8,
    /// Elements from one free index to the next, and from one contracted index to the next.
    pub(super) strides: [usize; 2],
}

/// Columns of a left operand whose elements are neighbours are read in place up to this stride: cache lines this close do not fall into one
/// set.
const NEAR: usize = 64;

/// A left operand is read in place where it is multiplied with at most this many columns: packing would take longer than it saves.
const IN_PLACE_COLUMNS: usize = 128;

/// Whether neighbours in memory are neighbours along the free dimensions rather than along the contracted ones.
pub(super) fn is_contiguous_along_free(free: &Rows<1>, contracted: &Rows<1>) -> bool {
    let distance = |rows: &Rows<1>| match rows.stride[0].unsigned_abs() {
        _ if rows.len == 1 => usize::MAX,
        0 => usize::MAX - 1,
        stride => stride,
    };
    distance(free) < distance(contracted)
}

/// The offset of the first of some indices, and the stride if it is the same between all of them.
pub(super) fn run(rows: &Rows<1>, indices: &Range<usize>) -> Option<(isize, isize)> {
    let distance = if indices.len() == 1 { 0 } else { rows.stride[0] };
    // Most operands are one run, and finding that out takes as long as a small product.
    if rows.outer.len() == 1 && !indices.is_empty() {
        return Some((indices.start as isize * rows.stride[0], distance));
    }
    let mut first = None;
    let mut runs = 0;
    rows.each(indices.clone(), |[at], range| {
        runs += 1;
        first = Some((at + range.start as isize * rows.stride[0], distance));
    });
    first.filter(|_| runs == 1)
}

impl<A: Accumulator> Matrix<'_, A> {
    pub(super) fn is_contiguous_along_free(&self) -> bool {
        is_contiguous_along_free(self.free, self.contracted)
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

    /// Reads the elements at some indices of two groups of dimensions, one row for each index of the first group, to rows that are `stride`
    /// numbers apart.
    pub(super) fn read(&self, [rows, along]: [&Rows<1>; 2], [i, j]: [Range<usize>; 2], stride: usize, to: &mut [A]) {
        let mut to = to.chunks_mut(stride.max(1));
        rows.each(i, |[at], range| {
            for (row, to) in range.zip(&mut to) {
                self.read_row(self.start + at + row as isize * rows.stride[0], along, j.clone(), to);
            }
        });
    }

    /// Reads the elements at some indices of two groups of dimensions without gaps, in one piece where they have no gaps in memory.
    fn read_dense(&self, [rows, along]: [&Rows<1>; 2], [i, j]: [Range<usize>; 2], to: &mut [A]) {
        let to = &mut to[..i.len() * j.len()];
        match (run(rows, &i), run(along, &j)) {
            (Some((i, stride)), Some((at, 1))) if stride == j.len() as isize => {
                self.elements.read(self.start + i + at, 1, to);
            }
            _ => self.read([rows, along], [i, j.clone()], j.len(), to),
        }
    }

    /// Reads a block as numbers without gaps: for each contracted index the elements at all free indices. `rows` is memory for this many
    /// numbers.
    pub(super) fn read_columns(&self, free: Range<usize>, depth: Range<usize>, rows: &mut [A], to: &mut [A]) {
        let (n, len) = (free.len(), depth.len());
        let to = &mut to[..n * len];
        if self.is_contiguous_along_free() {
            return self.read_dense([self.contracted, self.free], [depth, free], to);
        }
        if let Some((from, stride, 1)) = self.strided(&free, &depth) {
            return transpose_rows(from, 0, stride as isize, n, n, to);
        }
        self.read_dense([self.free, self.contracted], [free, depth], rows);
        transpose_rows(rows, 0, len as isize, n, n, to);
    }

    /// Reads a block as numbers without gaps: for each free index the elements at all contracted indices. `columns` is memory for this many
    /// numbers.
    pub(super) fn read_rows(&self, free: Range<usize>, depth: Range<usize>, columns: &mut [A], to: &mut [A]) {
        let (n, len) = (free.len(), depth.len());
        let to = &mut to[..n * len];
        if !self.is_contiguous_along_free() {
            return self.read_dense([self.free, self.contracted], [free, depth], to);
        }
        if let Some((from, 1, stride)) = self.strided(&free, &depth) {
            return transpose_rows(from, 0, stride as isize, len, len, to);
        }
        self.read_dense([self.contracted, self.free], [depth, free], columns);
        transpose_rows(columns, 0, n as isize, len, len, to);
    }

    /// Reads all elements as numbers in the order in which they lie: free indices innermost if [`Matrix::is_contiguous_along_free`], else
    /// contracted indices innermost.
    pub(super) fn read_all(&self, free: usize, depth: usize, to: &mut [A]) {
        if self.is_contiguous_along_free() {
            self.read_dense([self.contracted, self.free], [0..depth, 0..free], to);
        } else {
            self.read_dense([self.free, self.contracted], [0..free, 0..depth], to);
        }
    }

    /// The offset of the first element of a block and the strides of rows and columns, if these are the same everywhere.
    fn strides(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<(usize, usize, usize)> {
        let ((i, row), (j, column)) = (run(self.free, free)?, run(self.contracted, depth)?);
        Some(((self.start + i + j) as usize, row.try_into().ok()?, column.try_into().ok()?))
    }

    /// Where a part is, if its strides are the same everywhere.
    pub(super) fn locate(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<Location> {
        let (first, row, column) = self.strides(free, depth)?;
        let (start, len, size) = self.elements.bytes();
        let last = first + free.len().saturating_sub(1) * row + depth.len().saturating_sub(1) * column;
        (last < len).then(|| Location { first: start.wrapping_add(first * size), strides: [row, column] })
    }

    /// The elements from the first of a block on, and the strides, if the elements need no conversion.
    pub(super) fn strided(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<(&[A], usize, usize)> {
        let (first, row, column) = self.strides(free, depth)?;
        Some((&self.elements.numbers()?[first..], row, column))
    }

    /// Packs a panel of some free indices. The rest of a panel of columns is filled with zeros; the rest of a panel of rows is not read.
    fn pack_panel(&self, free: Range<usize>, depth: Range<usize>, width: usize, fills: bool, to: &mut [A]) {
        let count = free.len();
        if self.is_contiguous_along_free() {
            let shape = RowsToPanels { count, depth: depth.len(), height: width, width, panel: to.len(), fills };
            if self.copy_rows(&free, &depth, shape, to) {
                return;
            }
        }
        if fills && count < width {
            to.chunks_exact_mut(width).for_each(|row| row[count..].fill(A::default()));
        }
        if self.is_contiguous_along_free() {
            return self.read([self.contracted, self.free], [depth, free], width, to);
        }
        if let (Some(from), Some((i, stride)), Some((j, 1))) =
            (self.elements.numbers(), run(self.free, &free), run(self.contracted, &depth))
        {
            return transpose_rows(from, self.start + i + j, stride, count, width, to);
        }
        pack_transposed(depth, count, width, to, |depth, stride, to| {
            self.read([self.free, self.contracted], [free.clone(), depth], stride, to);
        });
    }

    /// Copies a part whose neighbours in memory are neighbours along the free dimensions to panels, row by row. Returns false if elements
    /// must be converted, or the strides are not the same everywhere.
    fn copy_rows(&self, free: &Range<usize>, depth: &Range<usize>, shape: RowsToPanels, to: &mut [A]) -> bool {
        match self.strides(free, depth) {
            Some((first, 1, stride)) => copy_elements(&self.elements, (first, stride), shape, to),
            _ => false,
        }
    }
}

/// A block of a left operand with these strides of rows and columns, if it can be read in place.
pub(in super::super) fn left_in_place<A>(strided: Option<(&[A], usize, usize)>) -> Option<product::Left<'_, A>> {
    let (elements, row, column) = strided?;
    (column <= 1 || (row <= 1 && column <= NEAR)).then_some(product::Left {
        elements,
        row_stride: row,
        column_stride: column,
    })
}

/// A part of a right operand with these strides of columns and rows, if it can be read in place.
pub(in super::super) fn right_in_place<A>(
    (elements, stride, row): (&[A], usize, usize),
    columns: usize,
) -> Option<product::Right<'_, A>> {
    (stride == 1 || columns == 1).then_some(product::Right { elements, row_stride: row })
}

impl<A: Accumulator> Left<A> for Matrix<'_, A> {
    fn block<'a>(
        &'a self,
        kernel: &MicroKernel<A>,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        to: &'a mut [A],
    ) -> LeftBlock<'a, A> {
        if columns <= IN_PLACE_COLUMNS
            && let Some(block) = left_in_place(self.strided(&rows, &depth))
        {
            return LeftBlock::Strided(block);
        }
        let (height, width) = (kernel.height(rows.len()), kernel.rows);
        if self.is_contiguous_along_free() {
            // Rows of the whole block are longer than those of a panel. The rest of a panel with fewer rows is not read.
            let len = panels_len(kernel, rows.len(), depth.len());
            let shape = RowsToPanels {
                count: rows.len(),
                depth: depth.len(),
                height,
                width,
                panel: width * depth.len(),
                fills: false,
            };
            if self.copy_rows(&rows, &depth, shape, &mut to[..len]) {
                return LeftBlock::Packed(&to[..len]);
            }
        }
        LeftBlock::Packed(pack_panels(kernel, rows, depth.len(), to, |rows, to| {
            self.pack_panel(rows, depth.clone(), width, false, to);
        }))
    }

    fn to_prefetch(&self, rows: &Range<usize>, depth: &Range<usize>) -> ToPrefetch {
        let Some(Location { first, strides }) = self.locate(rows, depth) else { return ToPrefetch::NONE };
        let size = self.elements.bytes().2;
        let (count, stride, len) = match strides {
            [row, 1] => (rows.len(), row, depth.len()),
            [1, column] => (depth.len(), column, rows.len()),
            _ => return ToPrefetch::NONE,
        };
        ToPrefetch { first, rows: count, stride: (stride * size) as isize, bytes: len * size }
    }
}

impl<A: Accumulator> Right<A> for Matrix<'_, A> {
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>> {
        right_in_place(self.strided(&columns, &depth)?, columns.len())
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, width: usize, to: &mut [A]) {
        let len = depth.len() * width;
        if self.is_contiguous_along_free()
            && let Some((first, 1, stride)) = self.strides(&columns, &depth)
            && copy_columns(&self.elements, (first, stride), [columns.len(), depth.len()], width, to)
        {
            return;
        }
        for_each_panel(columns, width, len, to, |columns, to| self.pack_panel(columns, depth.clone(), width, true, to));
    }
}
