//! Products of matrices of narrow elements, block by block.
//!
//! A task computes a block of the result, part by part of the contracted axis. (The levels are those of `matmul::blocked::blocking`: a
//! register tile has [`PANEL`] rows and columns, a left block all rows of its block, and a strip [`STRIP`] panels.) It packs the rows of
//! the left operand, which stay in the second-level cache. Then it packs some panels of columns of the right operand at a time, so that
//! neighbours are read together. Each panel stays in the first-level cache, if that holds 32 KiB besides the sums, while it is multiplied
//! with all of these rows. Sums to which several parts add are kept in squares of 32 by 32, which the micro-kernel reads and writes.
//!
//! Unlike in `matmul::blocked`, tasks share no packed panels unless a caller asks for it ([`packed`](super::packed)). A matrix unit is so
//! fast that writing panels to the last-level cache, and reading them from there, takes longer than packing neighbours again. Waiting for
//! memory while packing would take as long as the products. So micro-kernels prefetch what is packed next into the second-level cache, and
//! blocks are as large as the number of threads allows. Sums do not depend on blocks.

// Tasks write their own squares of sums through pointers.
#![allow(unsafe_code)]

use std::ops::Range;

use super::packed::Panels;
use crate::base::narrow::{Kind, PANEL, Prefetch, Side, Strided, Sums, Unit};
use crate::base::pieces::{piece, pieces};
use crate::kernels::matmul::even;
use crate::simd::{CACHE_LINE, prefetch};
use crate::threads::Threads;

/// Sizes of parts, blocks and tasks.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Sizes {
    /// Groups of a part of the contracted axis.
    part: usize,
    /// Most rows and columns of a block.
    rows: usize,
    columns: usize,
    /// Most columns of a block of products of one part, which keep no sums.
    columns_of_one_part: usize,
    /// Fewest multiplications of a task, counted in whole panels.
    task: usize,
}

impl Sizes {
    /// The sizes for products of elements of this kind. The panels of a part take 32 KiB, or 16 KiB for a left operand that is split and 24
    /// KiB for a right one of f32; the packed rows of a block take 512 KiB, or 256 KiB where elements are split. (Blocks of 256 rows took
    /// up to 15 % longer, and parts of 32 groups took longer: docs/EXPERIMENTS.md, "bf16 blocks on the matrix unit".)
    pub(in crate::kernels) fn of(kind: Kind) -> Sizes {
        match kind {
            Kind::SplitF32 => Sizes { part: 4, rows: 512, columns: 512, columns_of_one_part: 2048, task: 1 << 21 },
            Kind::SplitF16 => Sizes { part: 8, rows: 512, columns: 512, columns_of_one_part: 2048, task: 1 << 21 },
            Kind::Bf16 | Kind::F16 | Kind::I8 | Kind::U8 => {
                Sizes { part: 16, rows: 512, columns: 512, columns_of_one_part: 2048, task: 1 << 23 }
            }
        }
    }
}

/// Sizes with which small products have several pieces.
#[cfg(test)]
pub(in crate::kernels) const SMALL: Sizes =
    Sizes { part: 2, rows: 64, columns: 64, columns_of_one_part: 192, task: 1 << 14 };

/// Words of the sums of a panel times a panel.
const SUMS: usize = PANEL * PANEL;

/// Panels of the right operand that are packed at a time.
pub(super) const STRIP: usize = 4;

/// Fewest tasks for each of several threads, so that none waits long for the others.
const TASKS: usize = 4;

/// Rows or columns up to which a block is skinny, and half as many tasks are enough.
const SKINNY: usize = 4 * PANEL;

/// An operand that is packed into panels.
pub(in crate::kernels) trait Operand: Sync {
    /// Packs some rows of a left operand, or columns of a right one, to panels of [`PANEL`] rows or columns. `space` is memory to work
    /// with, of the size given to the blocking.
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32], space: &mut [u32]);

    /// The memory from which these elements would be packed.
    fn to_prefetch(&self, free: &Range<usize>, depth: &Range<usize>) -> ToPrefetch;
}

/// Rows of bytes, which are prefetched.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct ToPrefetch {
    /// The first byte. Nothing is read through this pointer, which may be invalid.
    pub(in crate::kernels) first: *const u8,
    pub(in crate::kernels) rows: usize,
    /// Bytes from the start of a row to the start of the next.
    pub(in crate::kernels) stride: isize,
    /// Bytes of a row.
    pub(in crate::kernels) bytes: usize,
}

impl ToPrefetch {
    /// No memory.
    pub(in crate::kernels) const NONE: ToPrefetch =
        ToPrefetch { first: std::ptr::null(), rows: 0, stride: 0, bytes: 0 };

    /// The rows of a part of an operand; none if its elements are not neighbours.
    pub(in crate::kernels) fn of<N>(from: &Strided<'_, N>, free: usize, depth: usize) -> ToPrefetch {
        let (rows, stride, len) = match (from.free, from.contracted) {
            (row, 1) => (free, row, depth),
            (1, column) => (depth, column, free),
            _ => return ToPrefetch::NONE,
        };
        let (first, size) = (from.elements.as_ptr().wrapping_offset(from.start).cast(), size_of::<N>());
        ToPrefetch { first, rows, stride: stride * size as isize, bytes: len * size }
    }

    /// What call `i` of a micro-kernel for this many groups prefetches, if anything is left. Calls go down columns of [`Prefetch::BYTES`].
    fn ahead(&self, i: usize, groups: usize) -> Option<Prefetch> {
        if i >= self.calls(groups) {
            return None;
        }
        let calls = self.rows.div_ceil(groups.max(1));
        let (column, row) = (i / calls * Prefetch::BYTES, i % calls * groups);
        let first = self.first.wrapping_offset(row as isize * self.stride).wrapping_add(column);
        Some(Prefetch { first, stride: self.stride })
    }

    /// What call `i` prefetches, where each call prefetches `lines` cache lines: the first line, and the distance in bytes from one to the
    /// next, if anything is left. Calls go along rows or down columns of lines, so that few calls prefetch all.
    pub(in super::super) fn lines(&self, i: usize, lines: usize) -> Option<(*const u8, isize)> {
        let (across, lines) = (self.bytes.div_ceil(CACHE_LINE), lines.max(1));
        let (along, down) = (across.div_ceil(lines), self.rows.div_ceil(lines));
        let ([row, line], stride) = if self.rows * along <= across * down {
            ([i / along.max(1), i % along.max(1) * lines], CACHE_LINE as isize)
        } else {
            ([i % down * lines, i / down], self.stride)
        };
        let first = self.first.wrapping_offset(row as isize * self.stride).wrapping_add(line * CACHE_LINE);
        (row < self.rows && line < across).then_some((first, stride))
    }

    /// How many calls prefetch all of it.
    fn calls(&self, groups: usize) -> usize {
        self.rows.div_ceil(groups.max(1)) * self.bytes.div_ceil(Prefetch::BYTES)
    }
}

/// The output of products.
pub(in crate::kernels) trait Output: Sync {
    /// Writes sums, whose rows are [`PANEL`] apart.
    ///
    /// # Safety
    /// No other task has access to the elements of these rows and columns.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &mut Sums);
}

/// How a batch of products of matrices of one size is cut into tasks.
pub(in crate::kernels) struct UnitBlocking {
    pub(super) unit: Unit,
    batch: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    depth: usize,
    /// Elements of a group.
    per_group: usize,
    /// Groups of the contracted axis, and of a part of it.
    pub(super) groups: usize,
    pub(super) part: usize,
    sizes: Sizes,
    /// Words of memory to work with for packing.
    pub(super) space: usize,
    /// The operand that is packed before all products, if any.
    pub(super) before: Option<Side>,
}

/// The blocks of the products of a blocking.
#[derive(Clone, Copy)]
struct Blocks {
    rows: usize,
    columns: usize,
    /// Blocks that one task computes.
    together: usize,
}

impl UnitBlocking {
    /// How `batch` products of `rows` by `depth` and `depth` by `columns` elements are cut, with `per_group` elements in a group.
    pub(in crate::kernels) fn new(
        sizes: Sizes,
        unit: Unit,
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        per_group: usize,
    ) -> UnitBlocking {
        let groups = depth.div_ceil(per_group);
        UnitBlocking {
            unit,
            batch,
            rows,
            columns,
            depth,
            per_group,
            groups,
            part: sizes.part.min(groups),
            sizes,
            space: 0,
            before: None,
        }
    }

    /// The same, with this many words to work with for packing.
    pub(in crate::kernels) fn with_space(self, space: usize) -> UnitBlocking {
        UnitBlocking { space, ..self }
    }

    /// The same, with an operand that is packed before all products. Blocks are cut so that the other operand is packed as seldom as
    /// possible.
    pub(in crate::kernels) fn with_packed(self, before: Option<Side>) -> UnitBlocking {
        UnitBlocking { before, ..self }
    }

    /// The blocks for this many threads.
    fn blocks(&self, threads: usize) -> Blocks {
        let UnitBlocking { sizes, batch, rows, columns, depth, .. } = *self;
        let most_columns = if self.part < self.groups { sizes.columns } else { sizes.columns_of_one_part };
        let (mut block_rows, mut block_columns) = (even(rows, sizes.rows, PANEL), even(columns, most_columns, PANEL));
        // Whole panels are packed and multiplied, even if the operand has fewer rows.
        let whole = |len: usize| len.next_multiple_of(PANEL);
        let work = |r: usize, c: usize| whole(r).saturating_mul(whole(c)).saturating_mul(depth).max(1);
        let blocks = |r: usize, c: usize| batch * rows.div_ceil(r) * columns.div_ceil(c);
        // A unit that is not a matrix unit takes as long to pack few rows or columns as to multiply them, unless they were packed before.
        let is_skinny = |r: usize, c: usize| {
            !self.unit.is_matrix_unit() && self.before.is_none() && whole(r).min(whole(c)) <= SKINNY
        };
        let least = |r: usize, c: usize| match threads {
            1 => 1,
            _ if is_skinny(r, c) => TASKS / 2 * threads,
            _ => TASKS * threads,
        };
        while blocks(block_rows, block_columns) < least(block_rows, block_columns)
            && work(block_rows, block_columns) >= 2 * sizes.task
        {
            let rows_first = match self.before {
                Some(Side::Left) => block_columns <= 2 * PANEL,
                Some(Side::Right) => block_rows > 2 * PANEL,
                None => block_rows >= block_columns,
            };
            if (rows_first || block_columns <= PANEL) && block_rows > PANEL {
                block_rows = even(rows, block_rows / 2, PANEL);
            } else if block_columns > PANEL {
                block_columns = even(columns, block_columns / 2, PANEL);
            } else {
                break;
            }
        }
        let most = blocks(block_rows, block_columns).max(1);
        let together = (sizes.task / work(block_rows, block_columns)).clamp(1, most);
        Blocks { rows: block_rows, columns: block_columns, together }
    }

    /// Words of scratch memory for a run on `threads` threads.
    pub(in crate::kernels) fn scratch(&self, threads: usize) -> usize {
        let blocks = self.blocks(threads);
        threads * (self.left(blocks) + self.right(blocks) + self.sums(blocks) + self.space)
    }

    /// Computes the products. `operands` gives the operands and the output of each product.
    pub(in crate::kernels) fn run<'p, L: Operand, R: Operand, O: Output>(
        &self,
        scratch: &mut [u32],
        threads: &Threads,
        operands: impl Fn(usize) -> (Panels<'p, L>, Panels<'p, R>, O) + Sync,
    ) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let scratch = &mut scratch[..self.scratch(threads.count())];
        let blocks = self.blocks(threads.count());
        let across = self.columns.div_ceil(blocks.columns);
        let of_one = self.rows.div_ceil(blocks.rows) * across;
        let all = self.batch * of_one;
        threads.for_each_with_scratch(all.div_ceil(blocks.together), scratch, |task, scratch| {
            let (packed, scratch) = scratch.split_at_mut(self.left(blocks));
            let (strip, scratch) = scratch.split_at_mut(self.right(blocks));
            let (sums, space) = scratch.split_at_mut(self.sums(blocks));
            for i in task * blocks.together..all.min((task + 1) * blocks.together) {
                let rows = piece(0..self.rows, blocks.rows, i % of_one / across);
                let columns = piece(0..self.columns, blocks.columns, i % across);
                // SAFETY: each block of each product is computed once.
                unsafe { self.block(operands(i / of_one), rows, columns, [packed, strip, sums, space]) };
            }
        });
    }

    /// Computes a block.
    ///
    /// # Safety
    /// No other task has access to its elements in the output.
    unsafe fn block(
        &self,
        (left, right, out): (Panels<'_, impl Operand>, Panels<'_, impl Operand>, impl Output),
        rows: Range<usize>,
        columns: Range<usize>,
        [packed, strip, sums, space]: [&mut [u32]; 4],
    ) {
        let session = self.unit.session();
        for groups in pieces(0..self.groups, self.part) {
            let next_part = self.depth_of(&(groups.end..self.groups.min(groups.end + self.part)));
            let depth = self.depth_of(&groups);
            let [left_len, right_len] = [Side::Left, Side::Right].map(|side| groups.len() * self.unit.group(side));
            let packed = left.panels(self, Side::Left, &rows, &groups, packed, space);
            // With one part, each square is written at once, and all squares use the same memory.
            let squares = sums.as_chunks_mut::<SUMS>().0;
            let mut square = 0;
            let (first, end) = (columns.start, columns.end);
            for columns in pieces(columns.clone(), STRIP * PANEL) {
                let strip = right.panels(self, Side::Right, &columns, &groups, strip, space);
                // The memory that is packed after this strip: the next strip, or the rows of the next part and its first strip.
                let is_last = columns.end == end;
                let next = if is_last { first } else { columns.end };
                let next = next..end.min(next + STRIP * PANEL);
                let next_depth = if is_last { &next_part } else { &depth };
                let next_rows = if is_last { left.to_prefetch(&rows, next_depth) } else { ToPrefetch::NONE };
                let next_strip = right.to_prefetch(&next, next_depth);
                let mut calls = 0;
                for (j, columns) in pieces(columns, PANEL).enumerate() {
                    let panel = &strip[j * right_len..][..right_len];
                    for (i, rows) in pieces(rows.clone(), PANEL).enumerate() {
                        // There are `UnitBlocking::sums` squares. With fewer, results would be missing, so that the number is checked.
                        if let Some(next) = squares.get(square + 1).filter(|_| groups.start > 0) {
                            next.as_chunks::<{ CACHE_LINE / 4 }>()
                                .0
                                .iter()
                                .for_each(|line| prefetch(line.as_ptr().cast()));
                        }
                        let ahead = next_strip.ahead(calls, groups.len());
                        let of_strip = next_strip.calls(groups.len());
                        let ahead = ahead.or_else(|| next_rows.ahead(calls.checked_sub(of_strip)?, groups.len()));
                        calls += 1;
                        let sums = &mut squares[square];
                        let (left, adds) = (&packed[i * left_len..][..left_len], groups.start > 0);
                        session.multiply(left, panel, (&mut sums[..], PANEL), adds, ahead);
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

    /// The positions of the contracted axis in some groups.
    pub(super) fn depth_of(&self, groups: &Range<usize>) -> Range<usize> {
        groups.start * self.per_group..self.depth.min(groups.end * self.per_group)
    }

    /// Words of the packed rows of a block.
    fn left(&self, blocks: Blocks) -> usize {
        let panels = if self.before == Some(Side::Left) { 0 } else { blocks.rows.div_ceil(PANEL) };
        panels * self.part * self.unit.group(Side::Left)
    }

    /// Words of the packed columns of a strip.
    fn right(&self, blocks: Blocks) -> usize {
        let panels = if self.before == Some(Side::Right) { 0 } else { blocks.columns.div_ceil(PANEL).min(STRIP) };
        panels * self.part * self.unit.group(Side::Right)
    }

    /// Words of the sums of a block; of one square, where there is one part.
    fn sums(&self, blocks: Blocks) -> usize {
        let squares = blocks.rows.div_ceil(PANEL) * blocks.columns.div_ceil(PANEL);
        if self.part < self.groups { squares * SUMS } else { SUMS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_ahead_is_each_row_once() {
        let bytes = vec![0u8; 70 * 1000];
        for (rows, len) in [(70, 600), (64, 256), (1, 1), (5, 1000), (0, 600), (7, 0)] {
            let memory = ToPrefetch { first: bytes.as_ptr(), rows, stride: 1000, bytes: len };
            for groups in [1, 4, 16] {
                let mut fetched = Vec::new();
                for i in 0..memory.calls(groups) {
                    let ahead = memory.ahead(i, groups).unwrap();
                    let at = |group: usize| ahead.first.addr() - bytes.as_ptr().addr() + group * 1000;
                    // The last call of a column may go past its last row.
                    fetched.extend((0..groups).map(at).filter(|at| at / 1000 < rows));
                }
                let columns = (0..len).step_by(Prefetch::BYTES);
                let all: Vec<usize> =
                    columns.flat_map(|column| (0..rows).map(move |row| row * 1000 + column)).collect();
                assert_eq!(fetched, all, "{rows} rows of {len}, {groups} groups");
                assert!(memory.ahead(memory.calls(groups), groups).is_none());
            }
        }
    }

    #[test]
    fn lines_are_fetched_once() {
        let bytes = vec![0u8; 70 * 1024];
        for (rows, len) in [(70, 600), (64, 256), (1, 1), (5, 1024), (0, 600), (7, 0), (70, 64)] {
            let memory = ToPrefetch { first: bytes.as_ptr(), rows, stride: 1024, bytes: len };
            for lines in [0, 1, 4, 32] {
                let mut fetched = Vec::new();
                for (first, stride) in (0..).map_while(|i| memory.lines(i, lines)) {
                    let first = first.addr() - bytes.as_ptr().addr();
                    let is_row = stride == CACHE_LINE as isize;
                    // The last call of a row or a column may go past its end.
                    let inside = |at: &usize| {
                        at % 1024 < len && if is_row { at / 1024 == first / 1024 } else { at / 1024 < rows }
                    };
                    fetched.extend((0..lines.max(1)).map(|line| first + line * stride as usize).take_while(inside));
                }
                fetched.sort_unstable();
                let lines_of_row = (0..len).step_by(CACHE_LINE);
                let all: Vec<usize> =
                    (0..rows).flat_map(|row| lines_of_row.clone().map(move |at| row * 1024 + at)).collect();
                assert_eq!(fetched, all, "{rows} rows of {len}, {lines} lines");
            }
        }
    }

    /// A product with few rows takes the time of a whole panel, so that its columns are cut for all threads.
    #[test]
    fn products_of_few_rows_are_cut_by_the_panels_that_they_pack() {
        for unit in Unit::all(Kind::Bf16) {
            let tasks = |shape: [usize; 3]| {
                let blocking = UnitBlocking::new(Sizes::of(Kind::Bf16), unit, 1, shape, 32);
                let blocks = blocking.blocks(4);
                (shape[0].div_ceil(blocks.rows) * shape[1].div_ceil(blocks.columns)).div_ceil(blocks.together)
            };
            assert!(tasks([2, 4096, 4096]) >= 4 * TASKS / if unit.is_matrix_unit() { 1 } else { 2 });
            for rows in [2, 17, 31] {
                assert_eq!(tasks([rows, 4096, 4096]), tasks([PANEL, 4096, 4096]));
                assert_eq!(tasks([4096, rows, 4096]), tasks([4096, PANEL, 4096]));
            }
            assert_eq!(tasks([40, 40, 40]), 1);
        }
    }
}
