//! Products of matrices of narrow elements, block by block.
//!
//! A task computes a block of the result, part by part of the contracted dimension. It packs the rows of the left operand, which
//! stay in the second-level cache, and then some panels of columns of the right one at a time, so that neighbours are read together; each
//! panel stays in the first-level cache, where that holds 32 KiB beside the sums, while it is multiplied with all of these rows. Sums that several parts add to are kept in squares of 32 by 32, as
//! the micro-kernel reads and writes them.
//!
//! Nothing is shared by tasks, unlike in `blocked`, unless a caller asks for it ([`packed`](super::packed)): a matrix unit multiplies so fast
//! that to write packed panels to the last level of the cache, and to read them from there, would take longer than to pack neighbours again.
//! Packing would wait for memory for as long as products take: so micro-kernels fetch what is packed next into the second-level cache meanwhile, and blocks are as large as the
//! number of threads allows. Sums do not depend on blocks.

// Squares of sums are written by tasks of their own.
#![allow(unsafe_code)]

use std::ops::Range;

use super::packed::Panels;
use crate::base::narrow::{Ahead, Kind, PANEL, Side, Strided, Sums, Unit};
use crate::kernels::matmul::even;
use crate::simd::{CACHE_LINE, prefetch};
use crate::threads::Threads;

/// How much of a product is treated at a time.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Sizes {
    /// Groups of a part of the contracted dimension.
    part: usize,
    /// Most rows and columns of a block.
    rows: usize,
    columns: usize,
    /// Most columns of a block of products of one part, which keep no sums.
    columns_of_one_part: usize,
    /// Multiplications that are worth a task, of whole panels.
    task: usize,
}

impl Sizes {
    /// Those of products of elements of this kind. Panels of a part take 32 KiB, or 24 of the right operand of split f32, and the packed rows
    /// of a block 512 KiB, or 256.
    pub(in crate::kernels) fn of(kind: Kind) -> Sizes {
        match kind {
            Kind::F32 => Sizes { part: 4, rows: 512, columns: 512, columns_of_one_part: 2048, task: 1 << 21 },
            _ => Sizes { part: 16, rows: 512, columns: 512, columns_of_one_part: 2048, task: 1 << 23 },
        }
    }
}

/// Sizes of which small products have several pieces.
#[cfg(test)]
pub(in crate::kernels) const SMALL: Sizes =
    Sizes { part: 2, rows: 64, columns: 64, columns_of_one_part: 192, task: 1 << 14 };

/// Words of the sums of a panel times a panel.
const SUMS: usize = PANEL * PANEL;

/// Panels of the right operand that are packed at a time.
pub(super) const STRIP: usize = 4;

/// Fewest tasks of each of several threads, so that none waits long for the others.
const TASKS: usize = 4;

/// Rows or columns of a block of which half as many tasks are enough.
const NARROW: usize = 4 * PANEL;

/// An operand that is packed.
pub(in crate::kernels) trait Operand: Sync {
    /// Packs some rows of a left operand, or columns of a right one, to panels of [`PANEL`] of them. `space` is memory to work with, as much
    /// as the cut was asked for.
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32], space: &mut [u32]);

    /// The memory that would be packed.
    fn memory(&self, free: &Range<usize>, depth: &Range<usize>) -> Memory;
}

/// Rows of bytes, which are fetched before they are read.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Memory {
    /// The first byte. Nothing is read through the address, which may be invalid.
    pub(in crate::kernels) first: *const u8,
    pub(in crate::kernels) rows: usize,
    /// Bytes from the beginning of a row to that of the next.
    pub(in crate::kernels) stride: isize,
    /// Bytes of a row.
    pub(in crate::kernels) bytes: usize,
}

impl Memory {
    /// No memory.
    pub(in crate::kernels) const NONE: Memory = Memory { first: std::ptr::null(), rows: 0, stride: 0, bytes: 0 };

    /// The rows of neighbours of a part of an operand; of one that has none, nothing is fetched.
    pub(in crate::kernels) fn of<N>(from: &Strided<'_, N>, free: usize, depth: usize) -> Memory {
        let (rows, stride, len) = match (from.free, from.contracted) {
            (row, 1) => (free, row, depth),
            (1, column) => (depth, column, free),
            _ => return Memory::NONE,
        };
        let (first, size) = (from.elements.as_ptr().wrapping_offset(from.start).cast(), size_of::<N>());
        Memory { first, rows, stride: stride * size as isize, bytes: len * size }
    }

    /// What call `i` of a micro-kernel for this many groups fetches, if there is so much; calls go down columns of [`Ahead::BYTES`].
    fn ahead(&self, i: usize, groups: usize) -> Option<Ahead> {
        if i >= self.calls(groups) {
            return None;
        }
        let calls = self.rows.div_ceil(groups.max(1));
        let (column, row) = (i / calls * Ahead::BYTES, i % calls * groups);
        let first = self.first.wrapping_offset(row as isize * self.stride).wrapping_add(column);
        Some(Ahead { first, stride: self.stride })
    }

    /// The first cache line, and the bytes from one to the next, that call `i` of those which fetch so many lines each does, if there is so much left.
    /// Calls go along rows or down columns of lines, so that few fetch all.
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

    /// Calls that fetch all of it.
    fn calls(&self, groups: usize) -> usize {
        self.rows.div_ceil(groups.max(1)) * self.bytes.div_ceil(Ahead::BYTES)
    }
}

/// The output of products.
pub(in crate::kernels) trait Output: Sync {
    /// Writes sums, those of each row [`PANEL`] apart.
    ///
    /// # Safety
    /// No other task has access to the elements of these rows and columns.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &mut Sums);
}

/// How a batch of products of matrices of one size is cut into tasks.
pub(in crate::kernels) struct Cut {
    pub(super) unit: Unit,
    batch: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    depth: usize,
    /// Elements of a group.
    per_group: usize,
    /// Groups of the contracted dimension, and of a part of it.
    pub(super) groups: usize,
    pub(super) part: usize,
    sizes: Sizes,
    /// Words that operands are packed with.
    pub(super) space: usize,
    /// The operand that is packed before all products, if one is.
    pub(super) before: Option<Side>,
}

/// The blocks of the products of a cut.
#[derive(Clone, Copy)]
struct Blocks {
    rows: usize,
    columns: usize,
    /// Blocks that one task computes.
    together: usize,
}

impl Cut {
    /// The cut of `batch` products of `rows` by `depth` and `depth` by `columns` elements, of which `per_group` are a group.
    pub(in crate::kernels) fn new(
        sizes: Sizes,
        unit: Unit,
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        per_group: usize,
    ) -> Cut {
        let groups = depth.div_ceil(per_group);
        Cut {
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

    /// The same, with so many words to work with for those who pack.
    pub(in crate::kernels) fn with_space(self, space: usize) -> Cut {
        Cut { space, ..self }
    }

    /// The same, with an operand that is packed before all products: blocks are cut so that the other one is packed as seldom as can be.
    pub(in crate::kernels) fn with_packed(self, before: Option<Side>) -> Cut {
        Cut { before, ..self }
    }

    /// The blocks for this many threads.
    fn blocks(&self, threads: usize) -> Blocks {
        let Cut { sizes, batch, rows, columns, depth, .. } = *self;
        let most_columns = if self.part < self.groups { sizes.columns } else { sizes.columns_of_one_part };
        let (mut block_rows, mut block_columns) = (even(rows, sizes.rows, PANEL), even(columns, most_columns, PANEL));
        // Whole panels are packed and multiplied, however few of their rows are the operand's.
        let whole = |len: usize| len.next_multiple_of(PANEL);
        let work = |r: usize, c: usize| whole(r).saturating_mul(whole(c)).saturating_mul(depth).max(1);
        let blocks = |r: usize, c: usize| batch * rows.div_ceil(r) * columns.div_ceil(c);
        // A unit without tiles packs few rows or columns in the time in which it multiplies them, unless they were packed before.
        let is_narrow =
            |r: usize, c: usize| !self.unit.has_tiles() && self.before.is_none() && whole(r).min(whole(c)) <= NARROW;
        let wanted = |r: usize, c: usize| match threads {
            1 => 1,
            _ if is_narrow(r, c) => TASKS / 2 * threads,
            _ => TASKS * threads,
        };
        while blocks(block_rows, block_columns) < wanted(block_rows, block_columns)
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

    /// Computes the products. `operands` gives the operands and the output of each.
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
            // Where there is one part, each square is written at once, and all have the same memory.
            let squares = sums.as_chunks_mut::<SUMS>().0;
            let mut square = 0;
            let (first, end) = (columns.start, columns.end);
            for columns in pieces(columns.clone(), STRIP * PANEL) {
                let strip = right.panels(self, Side::Right, &columns, &groups, strip, space);
                // What is packed after this strip: the next one, or the rows of the next part and its first strip.
                let is_last = columns.end == end;
                let next = if is_last { first } else { columns.end };
                let next = next..end.min(next + STRIP * PANEL);
                let next_depth = if is_last { &next_part } else { &depth };
                let next_rows = if is_last { left.memory(&rows, next_depth) } else { Memory::NONE };
                let next_strip = right.memory(&next, next_depth);
                let mut calls = 0;
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

    /// The positions of the contracted dimension that some groups have.
    pub(super) fn depth_of(&self, groups: &Range<usize>) -> Range<usize> {
        groups.start * self.per_group..self.depth.min(groups.end * self.per_group)
    }

    /// Words of the rows of a block that are packed for it.
    fn left(&self, blocks: Blocks) -> usize {
        let panels = if self.before == Some(Side::Left) { 0 } else { blocks.rows.div_ceil(PANEL) };
        panels * self.part * self.unit.group(Side::Left)
    }

    /// Words of the columns of a strip that are packed for it.
    fn right(&self, blocks: Blocks) -> usize {
        let panels = if self.before == Some(Side::Right) { 0 } else { blocks.columns.div_ceil(PANEL).min(STRIP) };
        panels * self.part * self.unit.group(Side::Right)
    }

    /// Words of the sums of a block, of one square where there is one part.
    fn sums(&self, blocks: Blocks) -> usize {
        let squares = blocks.rows.div_ceil(PANEL) * blocks.columns.div_ceil(PANEL);
        if self.part < self.groups { squares * SUMS } else { SUMS }
    }
}

/// Piece `i` of a range.
pub(super) fn piece(range: Range<usize>, size: usize, i: usize) -> Range<usize> {
    range.start + i * size..range.end.min(range.start + (i + 1) * size)
}

/// The pieces of a range; of an empty one there is one, which is empty.
pub(in crate::kernels) fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..range.len().div_ceil(size.max(1)).max(1)).map(move |i| piece(range.clone(), size, i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_ahead_is_each_row_once() {
        let bytes = vec![0u8; 70 * 1000];
        for (rows, len) in [(70, 600), (64, 256), (1, 1), (5, 1000), (0, 600), (7, 0)] {
            let memory = Memory { first: bytes.as_ptr(), rows, stride: 1000, bytes: len };
            for groups in [1, 4, 16] {
                let mut fetched = Vec::new();
                for i in 0..memory.calls(groups) {
                    let ahead = memory.ahead(i, groups).unwrap();
                    let at = |group: usize| ahead.first.addr() - bytes.as_ptr().addr() + group * 1000;
                    // The last call of a column may go on behind its last row.
                    fetched.extend((0..groups).map(at).filter(|at| at / 1000 < rows));
                }
                let columns = (0..len).step_by(Ahead::BYTES);
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
            let memory = Memory { first: bytes.as_ptr(), rows, stride: 1024, bytes: len };
            for lines in [0, 1, 4, 32] {
                let mut fetched = Vec::new();
                for (first, stride) in (0..).map_while(|i| memory.lines(i, lines)) {
                    let first = first.addr() - bytes.as_ptr().addr();
                    let is_row = stride == CACHE_LINE as isize;
                    // The last call of a row or a column may go on behind it.
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

    /// A product of few rows takes the time of a whole panel of them, so that its columns are cut for all threads.
    #[test]
    fn products_of_few_rows_are_cut_by_the_panels_that_they_pack() {
        for unit in Unit::all(Kind::Bf16) {
            let tasks = |shape: [usize; 3]| {
                let cut = Cut::new(Sizes::of(Kind::Bf16), unit, 1, shape, 32);
                let blocks = cut.blocks(4);
                (shape[0].div_ceil(blocks.rows) * shape[1].div_ceil(blocks.columns)).div_ceil(blocks.together)
            };
            assert!(tasks([2, 4096, 4096]) >= 4 * TASKS / if unit.has_tiles() { 1 } else { 2 });
            for rows in [2, 17, 31] {
                assert_eq!(tasks([rows, 4096, 4096]), tasks([PANEL, 4096, 4096]));
                assert_eq!(tasks([4096, rows, 4096]), tasks([4096, PANEL, 4096]));
            }
            assert_eq!(tasks([40, 40, 40]), 1);
        }
    }
}
