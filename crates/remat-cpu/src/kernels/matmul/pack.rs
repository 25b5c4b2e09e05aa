//! Panels of operands with any layout.

use std::ops::Range;

use remat_ir::Element;

use super::element::Elements;
use super::tile::{Accumulator, Order, Tiles, panel_len, row_step};
use crate::kernels::blocks::Block;
use crate::kernels::transpose::transpose;
use crate::kernels::walk::Rows;
use crate::simd::multiversion;

/// A left operand: it has rows, and columns along which products are summed.
pub(in super::super) trait Left<A: Accumulator>: Sync {
    /// How the panels lie in memory.
    fn order(&self) -> Order;

    /// Fills the panels that have these rows and columns. What is past the last row is finite.
    fn pack(&self, tiles: &Tiles<A>, rows: Range<usize>, depth: Range<usize>, panels: &mut [A]);
}

/// A right operand: it has rows along which products are summed, and columns.
pub(in super::super) trait Right<A: Accumulator>: Sync {
    /// Fills a panel, row by row, which has these columns and all rows, and zeros past the last column.
    fn pack(&self, tiles: &Tiles<A>, columns: Range<usize>, panel: &mut [A]);
}

/// A matrix in a buffer: element `i, j` is at `start` and the offsets of `i` in `free` and of `j` in `contracted`.
pub(super) struct Matrix<'a, A> {
    pub(super) elements: Elements<'a, A>,
    pub(super) start: isize,
    pub(super) free: &'a Rows<1>,
    pub(super) contracted: &'a Rows<1>,
}

/// The elements that are read at a time before they are brought in order.
const CHUNK: usize = 64;

/// Whether neighbours in memory are neighbours along the free dimensions rather than along the contracted ones.
pub(super) fn is_contiguous_along_free(free: &Rows<1>, contracted: &Rows<1>) -> bool {
    let distance = |rows: &Rows<1>| match rows.step[0].unsigned_abs() {
        _ if rows.len == 1 => usize::MAX,
        0 => usize::MAX - 1,
        step => step,
    };
    distance(free) < distance(contracted)
}

impl<A: Accumulator> Matrix<'_, A> {
    fn is_contiguous_along_free(&self) -> bool {
        is_contiguous_along_free(self.free, self.contracted)
    }

    /// Elements of row `i`, which are read into `to` where they do not lie side by side as numbers.
    pub(super) fn contracted_line<'a>(&'a self, i: usize, depth: Range<usize>, to: &'a mut [A]) -> &'a [A] {
        self.line(self.free, i, self.contracted, depth, to)
    }

    /// Elements of column `j`, likewise.
    pub(super) fn free_line<'a>(&'a self, free: Range<usize>, j: usize, to: &'a mut [A]) -> &'a [A] {
        self.line(self.contracted, j, self.free, free, to)
    }

    /// Elements at index `i` of one group of dimensions and some indices of the other.
    fn line<'a>(&'a self, one: &Rows<1>, i: usize, other: &Rows<1>, range: Range<usize>, to: &'a mut [A]) -> &'a [A] {
        let mut start = self.start;
        one.each(i..i + 1, |[at], range| start += at + range.start as isize * one.step[0]);
        let n = range.len();
        if let (Some(from), Some((at, step))) = (self.elements.direct, run(other, &range))
            && (step == 1 || n == 1)
        {
            return &from[(start + at) as usize..][..n];
        }
        let mut done = 0;
        other.each(range, |[at], range| {
            let step = other.step[0];
            self.elements.read(start + at + range.start as isize * step, step, &mut to[done..done + range.len()]);
            done += range.len();
        });
        &to[..n]
    }

    /// The elements, the offset of the first and the step, if these are neighbours along the free dimensions and equally far
    /// apart along the contracted ones, and need no conversion.
    fn neighbours(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<(&[A], isize, isize)> {
        let elements = self.elements.direct?;
        let (i, 1) = run(self.free, free)? else { return None };
        let (j, step) = run(self.contracted, depth)?;
        Some((elements, self.start + i + j, step))
    }
}

/// Offset of the first of some indices and the step between them, if it is the same between all.
fn run(rows: &Rows<1>, indices: &Range<usize>) -> Option<(isize, isize)> {
    let mut first = None;
    let mut runs = 0;
    rows.each(indices.clone(), |[at], range| {
        runs += 1;
        first = Some((at + range.start as isize * rows.step[0], rows.step[0]));
    });
    first.filter(|_| runs == 1)
}

impl<A: Accumulator> Left<A> for Matrix<'_, A> {
    fn order(&self) -> Order {
        if self.is_contiguous_along_free() { Order::Columns } else { Order::Rows }
    }

    fn pack(&self, tiles: &Tiles<A>, rows: Range<usize>, depth: Range<usize>, panels: &mut [A]) {
        let (tile_rows, panel) = (tiles.rows, panel_len(tiles));
        match self.order() {
            Order::Rows => {
                let mut row = 0;
                self.free.each(rows.clone(), |[at], range| {
                    for i in range {
                        let start = self.start + at + i as isize * self.free.step[0];
                        let to = &mut panels[row / tile_rows * panel + row % tile_rows * row_step::<A>()..];
                        let mut done = 0;
                        self.contracted.each(depth.clone(), |[at], range| {
                            let step = self.contracted.step[0];
                            let to = &mut to[done..done + range.len()];
                            self.elements.read(start + at + range.start as isize * step, step, to);
                            done += range.len();
                        });
                        row += 1;
                    }
                });
                while !row.is_multiple_of(tile_rows) {
                    panels[row / tile_rows * panel + row % tile_rows * row_step::<A>()..][..depth.len()]
                        .fill(A::default());
                    row += 1;
                }
            }
            Order::Columns => {
                for (i, panel) in rows.clone().step_by(tile_rows).zip(panels.chunks_exact_mut(panel)) {
                    let rows = i..rows.end.min(i + tile_rows);
                    self.columns(tile_rows, &rows, &depth, panel);
                }
            }
        }
    }
}

impl<A: Accumulator> Matrix<'_, A> {
    /// Copies the elements of a range along the free dimensions, for each of the contracted ones, with as much space as `size`
    /// elements take, filled with zeros.
    fn columns(&self, size: usize, free: &Range<usize>, depth: &Range<usize>, to: &mut [A]) {
        let n = free.len();
        if let Some((from, start, step)) = self.neighbours(free, depth)
            && n == size
        {
            return copy_groups(from, start, step, size, &mut to[..depth.len() * size]);
        }
        let mut to = to.chunks_exact_mut(size);
        self.contracted.each(depth.clone(), |[at], range| {
            for j in range {
                let Some(to) = to.next() else { return };
                let start = self.start + at + j as isize * self.contracted.step[0];
                let mut done = 0;
                self.free.each(free.clone(), |[at], range| {
                    let step = self.free.step[0];
                    let to = &mut to[done..done + range.len()];
                    self.elements.read(start + at + range.start as isize * step, step, to);
                    done += range.len();
                });
                to[n..].fill(A::default());
            }
        });
    }
}

impl<A: Accumulator> Right<A> for Matrix<'_, A> {
    fn pack(&self, tiles: &Tiles<A>, columns: Range<usize>, panel: &mut [A]) {
        let (size, depth) = (tiles.columns, panel.len() / tiles.columns);
        if self.is_contiguous_along_free() {
            return self.columns(size, &columns, &(0..depth), panel);
        }
        if columns.len() < size {
            panel.fill(A::default());
        }
        if let (Some(from), Some((start, step)), Some((first, 1))) =
            (self.elements.direct, run(self.free, &columns), run(self.contracted, &(0..depth)))
        {
            return transpose_into(from, self.start + start + first, step, columns.len(), size, panel);
        }
        // Some of the columns are read at a time, then turned.
        let mut chunk = [A::default(); CHUNK * 32];
        let mut done = 0;
        self.contracted.each(0..depth, |[at], range| {
            let step = self.contracted.step[0];
            for first in range.clone().step_by(CHUNK) {
                let n = CHUNK.min(range.end - first);
                let mut rest = chunk.chunks_exact_mut(CHUNK);
                let start = self.start + at + first as isize * step;
                self.free.each(columns.clone(), |[at], range| {
                    for (i, to) in range.zip(&mut rest) {
                        self.elements.read(start + at + i as isize * self.free.step[0], step, &mut to[..n]);
                    }
                });
                let to = &mut panel[done * size..(done + n) * size];
                transpose_into(&chunk, 0, CHUNK as isize, columns.len(), size, to);
                done += n;
            }
        });
    }
}

multiversion! {
    /// Copies groups of `size` neighbours, `step` apart, the first at `start`, one after the other.
    fn copy_groups<A: Accumulator>(from: &[A], start: isize, step: isize, size: usize, to: &mut [A]) {
        match size {
            32 => copy_groups_of::<A, 32>(from, start, step, to),
            16 => copy_groups_of::<A, 16>(from, start, step, to),
            12 => copy_groups_of::<A, 12>(from, start, step, to),
            8 => copy_groups_of::<A, 8>(from, start, step, to),
            6 => copy_groups_of::<A, 6>(from, start, step, to),
            4 => copy_groups_of::<A, 4>(from, start, step, to),
            _ => {
                for (i, to) in to.chunks_exact_mut(size).enumerate() {
                    to.copy_from_slice(&from[(start + i as isize * step) as usize..][..size]);
                }
            }
        }
    }
}

#[inline(always)]
fn copy_groups_of<A: Copy, const N: usize>(from: &[A], start: isize, step: isize, to: &mut [A]) {
    let (groups, _) = to.as_chunks_mut::<N>();
    for (i, to) in groups.iter_mut().enumerate() {
        to.copy_from_slice(&from[(start + i as isize * step) as usize..][..N]);
    }
}

multiversion! {
    /// Writes element `i` of each of so many columns, `step` apart, the first at `start`, to row `i` of a matrix of `size`
    /// columns.
    fn transpose_into<A: Element>(from: &[A], start: isize, step: isize, columns: usize, size: usize, to: &mut [A]) {
        let mut block = Block::whole(to, size);
        let rows = block.rows.len();
        transpose(from, start, step, &mut block, [0, 0], [rows, columns], false);
    }
}
