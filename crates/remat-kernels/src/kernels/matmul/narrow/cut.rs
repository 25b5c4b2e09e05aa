//! Products of matrices of narrow elements, block by block.
//!
//! A task computes a block of the result, part by part of the contracted dimension. It packs the rows of the left operand, which
//! stay in the second-level cache, and then some panels of columns of the right one at a time, so that neighbours are read together; each
//! panel stays in the first-level cache, where that holds 32 KiB beside the sums, while it is multiplied with all of these rows. Sums that several parts add to are kept in squares of 32 by 32, as
//! the micro-kernel reads and writes them.
//!
//! Nothing is shared by tasks, unlike in `blocked`: a matrix unit multiplies so fast that to write packed panels
//! to the last level of the cache, and to read them from there, would take longer than to pack them again.

// Squares of sums are written by tasks of their own.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::narrow::{Kind, PANEL, Side, Sums, Unit};
use crate::kernels::matmul::{MANY, even};
use crate::simd::{CACHE_LINE, prefetch};
use crate::threads::Threads;

/// How much of a product is treated at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Groups of a part of the contracted dimension.
    part: usize,
    /// Most rows and columns of a block.
    rows: usize,
    columns: usize,
    /// Multiplications that are worth a task, of whole panels.
    task: usize,
}

impl Sizes {
    /// Those of products of elements of this kind. Panels of a part take 32 KiB, or 24 of the right operand of split f32, and the packed rows
    /// of a block 512 KiB, or 256.
    pub(super) fn of(kind: Kind) -> Sizes {
        match kind {
            Kind::F32 => Sizes { part: 4, rows: 512, columns: 512, task: 1 << 21 },
            _ => Sizes { part: 16, rows: 512, columns: 512, task: 1 << 23 },
        }
    }
}

/// Sizes of which small products have several pieces.
#[cfg(test)]
pub(super) const SMALL: Sizes = Sizes { part: 2, rows: 64, columns: 64, task: 1 << 14 };

/// Words of the sums of a panel times a panel.
const SUMS: usize = PANEL * PANEL;

/// Panels of the right operand that are packed at a time.
const STRIP: usize = 4;

/// An operand that is packed.
pub(super) trait Operand: Sync {
    /// Packs some rows of a left operand, or columns of a right one, to panels of [`PANEL`] of them.
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32]);
}

/// The output of products.
pub(super) trait Output: Sync {
    /// Writes sums, those of each row [`PANEL`] apart.
    ///
    /// # Safety
    /// No other task has access to the elements of these rows and columns.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &mut Sums);
}

/// How a batch of products of matrices of one size is cut into tasks.
pub(super) struct Cut {
    unit: Unit,
    batch: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    /// Elements of a group.
    per_group: usize,
    /// Groups of the contracted dimension, and of a part of it.
    groups: usize,
    part: usize,
    block_rows: usize,
    block_columns: usize,
    /// Blocks that one task computes.
    together: usize,
}

impl Cut {
    /// The cut of `batch` products of `rows` by `depth` and `depth` by `columns` elements, of which `per_group` are a group.
    pub(super) fn new(
        sizes: Sizes,
        unit: Unit,
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        per_group: usize,
    ) -> Cut {
        let groups = depth.div_ceil(per_group);
        let (mut block_rows, mut block_columns) = (even(rows, sizes.rows, PANEL), even(columns, sizes.columns, PANEL));
        // Whole panels are packed and multiplied, however few of their rows are the operand's.
        let whole = |len: usize| len.next_multiple_of(PANEL);
        let work = |r: usize, c: usize| whole(r).saturating_mul(whole(c)).saturating_mul(depth).max(1);
        let blocks = |r: usize, c: usize| batch * rows.div_ceil(r) * columns.div_ceil(c);
        while blocks(block_rows, block_columns) < MANY && work(block_rows, block_columns) >= 2 * sizes.task {
            if block_rows >= block_columns && block_rows > PANEL {
                block_rows = even(rows, block_rows / 2, PANEL);
            } else if block_columns > PANEL {
                block_columns = even(columns, block_columns / 2, PANEL);
            } else {
                break;
            }
        }
        let most = blocks(block_rows, block_columns).max(1);
        let together = (sizes.task / work(block_rows, block_columns)).clamp(1, most);
        let part = sizes.part.min(groups);
        Cut { unit, batch, rows, columns, depth, per_group, groups, part, block_rows, block_columns, together }
    }

    /// Words of scratch memory for a run on `threads` threads.
    pub(super) fn scratch(&self, threads: usize) -> usize {
        threads * (self.left() + self.right() + self.sums())
    }

    /// Computes the products. `operands` gives the operands and the output of each.
    pub(super) fn run<L: Operand, R: Operand, O: Output>(
        &self,
        scratch: &mut [u32],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let across = self.columns.div_ceil(self.block_columns);
        let of_one = self.rows.div_ceil(self.block_rows) * across;
        let blocks = self.batch * of_one;
        threads.for_each_with_scratch(blocks.div_ceil(self.together), scratch, |task, scratch| {
            for i in task * self.together..blocks.min((task + 1) * self.together) {
                let rows = piece(0..self.rows, self.block_rows, i % of_one / across);
                let columns = piece(0..self.columns, self.block_columns, i % across);
                // SAFETY: each block of each product is computed once.
                unsafe { self.block(operands(i / of_one), rows, columns, scratch) };
            }
        });
    }

    /// Computes a block.
    ///
    /// # Safety
    /// No other task has access to its elements in the output.
    unsafe fn block(
        &self,
        (left, right, out): (impl Operand, impl Operand, impl Output),
        rows: Range<usize>,
        columns: Range<usize>,
        scratch: &mut [u32],
    ) {
        let (packed, scratch) = scratch.split_at_mut(self.left());
        let (strip, sums) = scratch.split_at_mut(self.right());
        let session = self.unit.session();
        for groups in pieces(0..self.groups, self.part) {
            let depth = groups.start * self.per_group..self.depth.min(groups.end * self.per_group);
            let [left_len, right_len] = [Side::Left, Side::Right].map(|side| groups.len() * self.unit.group(side));
            let panels = |range: &Range<usize>| range.len().div_ceil(PANEL);
            let packed = &mut packed[..panels(&rows) * left_len];
            left.pack(rows.clone(), depth.clone(), Side::Left, packed);
            // Where there is one part, each square is written at once, and all have the same memory.
            let squares = sums.as_chunks_mut::<SUMS>().0;
            let mut square = 0;
            for columns in pieces(columns.clone(), STRIP * PANEL) {
                let strip = &mut strip[..panels(&columns) * right_len];
                right.pack(columns.clone(), depth.clone(), Side::Right, strip);
                for (j, columns) in pieces(columns, PANEL).enumerate() {
                    let panel = &strip[j * right_len..][..right_len];
                    for (i, rows) in pieces(rows.clone(), PANEL).enumerate() {
                        // There are as many as `Cut::sums` says. Were there fewer, results would be missing, so that it is checked.
                        if let Some(next) = squares.get(square + 1).filter(|_| groups.start > 0) {
                            next.as_chunks::<{ CACHE_LINE / 4 }>()
                                .0
                                .iter()
                                .for_each(|line| prefetch(line.as_ptr().cast()));
                        }
                        let sums = &mut squares[square];
                        session.multiply(&packed[i * left_len..][..left_len], panel, sums, PANEL, groups.start > 0);
                        if groups.end == self.groups {
                            // SAFETY: as the caller promises.
                            unsafe { out.write(rows, columns.clone(), sums) };
                        }
                        if self.part < self.groups {
                            square += 1;
                        }
                    }
                }
            }
        }
    }

    /// Words of the packed rows of a block.
    fn left(&self) -> usize {
        self.block_rows.div_ceil(PANEL) * self.part * self.unit.group(Side::Left)
    }

    /// Words of the packed columns of a strip.
    fn right(&self) -> usize {
        self.block_columns.div_ceil(PANEL).min(STRIP) * self.part * self.unit.group(Side::Right)
    }

    /// Words of the sums of a block, of one square where there is one part.
    fn sums(&self) -> usize {
        let squares = self.block_rows.div_ceil(PANEL) * self.block_columns.div_ceil(PANEL);
        if self.part < self.groups { squares * SUMS } else { SUMS }
    }
}

/// Piece `i` of a range.
fn piece(range: Range<usize>, size: usize, i: usize) -> Range<usize> {
    range.start + i * size..range.end.min(range.start + (i + 1) * size)
}

/// The pieces of a range; of an empty one there is one, which is empty.
pub(super) fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..range.len().div_ceil(size.max(1)).max(1)).map(move |i| piece(range.clone(), size, i))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of few rows takes the time of a whole panel of them, so that its columns are cut for all threads.
    #[test]
    fn products_of_few_rows_are_cut_by_the_panels_that_they_pack() {
        for unit in Unit::all(Kind::Bf16) {
            let tasks = |shape: [usize; 3]| {
                let cut = Cut::new(Sizes::of(Kind::Bf16), unit, 1, shape, 32);
                (shape[0].div_ceil(cut.block_rows) * shape[1].div_ceil(cut.block_columns)).div_ceil(cut.together)
            };
            assert!(tasks([2, 4096, 4096]) >= MANY);
            for rows in [2, 17, 31] {
                assert_eq!(tasks([rows, 4096, 4096]), tasks([PANEL, 4096, 4096]));
                assert_eq!(tasks([4096, rows, 4096]), tasks([4096, PANEL, 4096]));
            }
            assert_eq!(tasks([40, 40, 40]), 1);
        }
    }
}
