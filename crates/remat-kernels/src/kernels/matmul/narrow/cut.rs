//! Products of matrices of narrow elements, block by block.
//!
//! The right operand is taken in *strips*, some columns of many groups of the contracted dimension, whose panels are packed one
//! after the other, for each part of the contracted dimension. A panel of the left operand is packed for a part, so short
//! that it stays in the first-level cache while it is multiplied with all panels of the strip, and these in the second-level
//! cache. Sums that more than one part adds to are kept in blocks of 32 by 32, as the micro-kernel reads and writes them.
//!
//! As in [`blocked`](super::super::blocked), all threads share the strips of a large product; of small products, and of many, each task
//! has its own.

// Panels are packed by tasks of their own.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{GROUP, PANEL, Session, Side, Sums, Unit};
use crate::kernels::matmul::blocked::{MANY, SHARED, even};
use crate::threads::Threads;

/// How much of a product is treated at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Groups of a part of the contracted dimension.
    part: usize,
    /// Multiplications for which it is worth that threads wait for each other, and those that are worth a task.
    shared: usize,
    task: usize,
    /// Words of a strip that all threads share, and most of its columns.
    strip: usize,
    strip_columns: usize,
    /// Most rows of a block of such a strip.
    shared_rows: usize,
    /// Most rows and columns of a block with a strip of its own.
    own: usize,
}

/// A part takes two panels of 32 KiB, and all columns of a strip 1 MiB for it.
pub(super) const SIZES: Sizes =
    Sizes { part: 16, shared: SHARED, task: 1 << 22, strip: 1 << 20, strip_columns: 1024, shared_rows: 128, own: 256 };

/// Sizes of which small products have several pieces.
#[cfg(test)]
pub(super) const SMALL: Sizes =
    Sizes { part: 2, shared: 1 << 15, task: 1 << 14, strip: 1 << 12, strip_columns: 128, shared_rows: 64, own: 64 };

/// Words of the sums of a panel times a panel.
const SUMS: usize = PANEL * PANEL;

/// An operand that is packed.
pub(super) trait Operand: Sync {
    /// Packs some rows of a left operand, or columns of a right one, at most [`PANEL`].
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32]);
}

/// The output of products.
pub(super) trait Output: Sync {
    /// Writes sums, those of each row [`PANEL`] apart.
    ///
    /// # Safety
    /// No other task has access to the elements of these rows and columns.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &Sums);
}

/// How a batch of products of matrices of one size is cut into tasks.
pub(super) struct Cut {
    unit: Unit,
    /// Groups of a part of the contracted dimension.
    part: usize,
    batch: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    /// Elements of a group.
    per_group: usize,
    /// Groups of the contracted dimension, and of a strip.
    groups: usize,
    strip_groups: usize,
    strip_columns: usize,
    block_rows: usize,
    block_columns: usize,
    /// Blocks that one task computes, with strips of its own; if none, all tasks share each strip.
    together: Option<usize>,
}

/// A block of the result.
struct Block {
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Packed panels of the right operand for a part of the contracted dimension.
struct Part<'a> {
    groups: Range<usize>,
    panels: &'a [u32],
}

/// Scratch memory of a task.
struct Space<'a> {
    left: &'a mut [u32],
    sums: &'a mut [u32],
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
        let work = |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(depth).max(1);
        let whole = |strip_groups, strip_columns, block_rows, block_columns, together| Cut {
            unit,
            part: sizes.part,
            batch,
            rows,
            columns,
            depth,
            per_group,
            groups,
            strip_groups,
            strip_columns,
            block_rows,
            block_columns,
            together,
        };
        if batch < MANY && work(rows, columns) >= sizes.shared {
            let words = groups.max(1).saturating_mul(GROUP / PANEL);
            let strip_columns =
                panels(columns, (sizes.strip / words).clamp(sizes.strip_columns / 4, sizes.strip_columns));
            let strip_groups = (sizes.strip / (strip_columns * (GROUP / PANEL)) / sizes.part * sizes.part).min(groups);
            let block_rows = panels(rows, sizes.shared_rows);
            let across = MANY.div_ceil(rows.div_ceil(block_rows));
            let block_columns = panels(strip_columns, strip_columns / across);
            return whole(strip_groups, strip_columns, block_rows, block_columns, None);
        }
        let (mut block_rows, mut block_columns) = (panels(rows, sizes.own), panels(columns, sizes.own));
        let blocks = |r, c| batch * rows.div_ceil(r) * columns.div_ceil(c);
        while blocks(block_rows, block_columns) < MANY && work(block_rows, block_columns) >= 2 * sizes.task {
            if block_rows >= block_columns && block_rows > PANEL {
                block_rows = panels(rows, block_rows / 2);
            } else if block_columns > PANEL {
                block_columns = panels(columns, block_columns / 2);
            } else {
                break;
            }
        }
        let most = blocks(block_rows, block_columns).max(1);
        let together = (sizes.task / work(block_rows, block_columns)).clamp(1, most);
        whole(groups.min(sizes.part), block_columns, block_rows, block_columns, Some(together))
    }

    /// Words of scratch memory for a run on `threads` threads.
    pub(super) fn scratch(&self, threads: usize) -> usize {
        let of_thread = self.left() + self.sums();
        match self.together {
            Some(_) => threads * (self.strip() + of_thread),
            None => self.strip() + self.kept() + threads * of_thread,
        }
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
        match self.together {
            Some(together) => self.run_alone(together, scratch, threads, operands),
            None => (0..self.batch).for_each(|i| self.run_shared(scratch, threads, &operands(i))),
        }
    }

    /// Each task computes blocks with strips of its own.
    fn run_alone<L: Operand, R: Operand, O: Output>(
        &self,
        together: usize,
        scratch: &mut [u32],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        let across = self.columns.div_ceil(self.block_columns);
        let of_one = self.rows.div_ceil(self.block_rows) * across;
        let blocks = self.batch * of_one;
        threads.for_each_with_scratch(blocks.div_ceil(together), scratch, |task, scratch| {
            let (strip, scratch) = scratch.split_at_mut(self.strip());
            let mut space = self.space(scratch);
            let session = self.unit.session();
            for i in task * together..blocks.min((task + 1) * together) {
                let (left, right, out) = operands(i / of_one);
                let block = Block {
                    rows: piece(0..self.rows, self.block_rows, i % of_one / across),
                    columns: piece(0..self.columns, self.block_columns, i % across),
                };
                for groups in pieces(0..self.groups, self.part) {
                    let panels = &mut strip[..block.columns.len().div_ceil(PANEL) * groups.len() * GROUP];
                    for (j, panel) in panels.chunks_exact_mut((groups.len() * GROUP).max(1)).enumerate() {
                        right.pack(piece(block.columns.clone(), PANEL, j), self.elements(&groups), Side::Right, panel);
                    }
                    // SAFETY: each block of each product is computed once.
                    unsafe { self.multiply(&session, &left, Part { groups, panels }, &block, &mut space, &out) };
                }
            }
        });
    }

    /// All tasks share each strip.
    fn run_shared<L: Operand, R: Operand, O: Output>(
        &self,
        scratch: &mut [u32],
        threads: &Threads,
        (left, right, out): &(L, R, O),
    ) {
        let (strip, scratch) = scratch.split_at_mut(self.strip());
        let (kept, scratch) = scratch.split_at_mut(self.kept());
        for columns in pieces(0..self.columns, self.strip_columns) {
            for strip_groups in pieces(0..self.groups, self.strip_groups) {
                self.pack_strip(right, &columns, &strip_groups, strip, threads);
                let strip = &*strip;
                let across = columns.len().div_ceil(self.block_columns);
                let blocks = self.rows.div_ceil(self.block_rows) * across;
                let compute = |i: usize, mut space: Space<'_>| {
                    let block = Block {
                        rows: piece(0..self.rows, self.block_rows, i / across),
                        columns: piece(columns.clone(), self.block_columns, i % across),
                    };
                    let session = self.unit.session();
                    for groups in pieces(strip_groups.clone(), self.part) {
                        let first = (groups.start - strip_groups.start) * columns.len().div_ceil(PANEL)
                            + (block.columns.start - columns.start) / PANEL * groups.len();
                        let part = Part { groups, panels: &strip[first * GROUP..] };
                        // SAFETY: each block is computed by one task; where there are several strips for it, one is multiplied
                        // after the other.
                        unsafe { self.multiply(&session, left, part, &block, &mut space, out) };
                    }
                };
                if kept.is_empty() {
                    threads.for_each_with_scratch(blocks, scratch, |i, scratch| compute(i, self.space(scratch)));
                } else {
                    let kept = kept.chunks_mut(self.block_sums()).enumerate().take(blocks);
                    threads.for_each_item_with_scratch(blocks, kept, scratch, |(i, sums), left| {
                        compute(i, Space { left, sums });
                    });
                }
            }
        }
    }

    /// Packs a strip: for each part of the contracted dimension all panels.
    fn pack_strip(
        &self,
        right: &impl Operand,
        columns: &Range<usize>,
        strip_groups: &Range<usize>,
        strip: &mut [u32],
        threads: &Threads,
    ) {
        let panels = columns.len().div_ceil(PANEL);
        let strip = DisjointMut::new(strip);
        threads.for_each(panels * strip_groups.len().div_ceil(self.part), |i| {
            let groups = piece(strip_groups.clone(), self.part, i / panels);
            let first = (groups.start - strip_groups.start) * panels + i % panels * groups.len();
            // SAFETY: each panel of each part is packed by one task.
            let panel = unsafe { strip.slice(first * GROUP, groups.len() * GROUP) };
            right.pack(piece(columns.clone(), PANEL, i % panels), self.elements(&groups), Side::Right, panel);
        });
    }

    /// Multiplies the rows of a block with a part of a strip, and writes the sums once all parts are added.
    ///
    /// # Safety
    /// No other task has access to the elements of the block.
    unsafe fn multiply(
        &self,
        session: &Session,
        left: &impl Operand,
        Part { groups, panels }: Part<'_>,
        block: &Block,
        space: &mut Space<'_>,
        out: &impl Output,
    ) {
        let len = groups.len() * GROUP;
        let across = block.columns.len().div_ceil(PANEL);
        let packed = &mut space.left[..len];
        let is_last = groups.end == self.groups;
        for (i, rows) in pieces(block.rows.clone(), PANEL).enumerate() {
            left.pack(rows.clone(), self.elements(&groups), Side::Left, packed);
            for (j, columns) in pieces(block.columns.clone(), PANEL).enumerate() {
                let sums = if self.is_one_part() { 0 } else { i * across + j };
                let Some(sums) = space.sums[sums * SUMS..].first_chunk_mut::<SUMS>() else { return };
                session.multiply(packed, &panels[j * len..][..len], sums, PANEL, groups.start > 0);
                if is_last {
                    // SAFETY: as the caller promises.
                    unsafe { out.write(rows.clone(), columns, sums) };
                }
            }
        }
    }

    /// The elements of some groups.
    fn elements(&self, groups: &Range<usize>) -> Range<usize> {
        groups.start * self.per_group..self.depth.min(groups.end * self.per_group)
    }

    fn space<'a>(&self, scratch: &'a mut [u32]) -> Space<'a> {
        let (left, sums) = scratch.split_at_mut(self.left());
        Space { left, sums }
    }

    /// Whether each sum is computed at once.
    fn is_one_part(&self) -> bool {
        self.groups <= self.part
    }

    /// Words of a strip.
    fn strip(&self) -> usize {
        self.strip_groups * self.strip_columns.div_ceil(PANEL) * GROUP
    }

    /// Words of a panel of the left operand.
    fn left(&self) -> usize {
        self.groups.min(self.part) * GROUP
    }

    /// Words of the sums of a block.
    fn block_sums(&self) -> usize {
        self.block_rows.div_ceil(PANEL) * self.block_columns.div_ceil(PANEL) * SUMS
    }

    /// Words of the sums of a task, if they are not kept from strip to strip.
    fn sums(&self) -> usize {
        match self.is_one_part() {
            true => SUMS,
            false if self.kept() > 0 => 0,
            false => self.block_sums(),
        }
    }

    /// Words of the sums of all blocks of a strip that all tasks share, if they are summed over several strips.
    fn kept(&self) -> usize {
        if self.together.is_some() || self.strip_groups >= self.groups {
            return 0;
        }
        self.rows.div_ceil(self.block_rows) * self.strip_columns.div_ceil(self.block_columns) * self.block_sums()
    }
}

/// The length of equal pieces of whole panels, of at most `most`.
fn panels(len: usize, most: usize) -> usize {
    even(len, most, PANEL)
}

/// Piece `i` of a range.
fn piece(range: Range<usize>, size: usize, i: usize) -> Range<usize> {
    range.start + i * size..range.end.min(range.start + (i + 1) * size)
}

/// The pieces of a range; of an empty one there is one, which is empty.
fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..range.len().div_ceil(size.max(1)).max(1)).map(move |i| piece(range.clone(), size, i))
}
