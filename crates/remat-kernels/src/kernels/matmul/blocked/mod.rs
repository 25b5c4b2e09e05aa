//! Products of matrices, block by block.
//!
//! The right operand is taken in *strips*: some columns of some positions of the contracted axis. A strip is packed into *panels* as wide
//! as the micro-kernel, which reads them from beginning to end. *Left blocks*, some rows of the left operand, are packed into panels too.
//! Each panel of the right operand, of up to 64 KiB, is multiplied with all panels of a left block while both are in the second-level
//! cache; the micro-kernel prefetches its next rows into the first-level cache. [`blocking`] lists the levels with the letters of BLIS. If
//! the micro-kernel can, it reads a left operand in place that is used for few columns, and a right operand that is used for few rows. The
//! method is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM Transactions on Mathematical Software,
//! 2008.
//!
//! All threads share the strips of a large product. Where products are small or many, each task computes a block of the result with its own
//! strips. Each sum has the same parts in the same order, whatever the blocks, layouts and threads.
//!
//! [`operands`] has the traits of operands and outputs, and [`packed_left`] a left operand that is packed before its products.

// Products are written through pointers, since the blocks of several threads interleave.
#![allow(unsafe_code)]

mod blocking;
mod operands;
mod packed_left;

use std::ops::Range;

pub(super) use blocking::PART;
pub(in crate::kernels) use blocking::{Blocking, MANY, SHARED, even};
pub(super) use operands::panels_len;
pub(in crate::kernels) use operands::{Left, LeftBlock, Output, Right, block_stride, for_each_panel, pack_panels};

use super::narrow::ToPrefetch;
use crate::base::pieces::{piece, pieces};
use crate::base::product::{self, Accumulator, CALLS_PER_PANEL, MicroKernel, POSITIONS_PER_LINE, Prefetch};
use crate::base::scratch;
use crate::threads::Threads;

/// Most panels of a strip that one task packs. They are neighbours in the operand, so that longer runs are read at a time.
/// (Measured in docs/EXPERIMENTS.md, "Packing of f32 panels".)
const PANELS: usize = 4;

/// Fewest packing tasks for each thread, of a strip with enough panels.
const PACKING_TASKS: usize = 2;

/// A right operand is read in place where it is multiplied with at most this many rows.
const IN_PLACE_ROWS: usize = 48;

/// A strip of the right operand: packed panel after panel, or in place.
struct Strip<'a, A> {
    elements: &'a [A],
    /// The stride of rows, if it is in place.
    row: Option<usize>,
    columns: Range<usize>,
    depth: Range<usize>,
}

impl<A: Accumulator> Blocking<A> {
    /// Computes the products. `operands` gives the operands and the output of each product.
    pub(in crate::kernels) fn run<L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        scratch: &mut [u8],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let scratch = &mut scratch[..self.scratch(threads.count())];
        match self.together {
            Some(together) => self.run_alone(together, scratch, threads, operands),
            None => self.run_shared(scratch, threads, operands),
        }
    }

    /// Each task computes blocks with strips of its own.
    fn run_alone<L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        together: usize,
        scratch: &mut [u8],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        let across = self.columns.div_ceil(self.block_columns);
        let of_one = self.rows.div_ceil(self.block_rows) * across;
        threads.for_each_with_scratch(self.blocks().div_ceil(together), scratch, |task, scratch| {
            let (panels, scratch) = scratch::take::<A>(scratch, self.strip_len());
            let (space, scratch) = scratch::take::<A>(scratch, self.left_len());
            let (sums, _) = scratch::take::<A>(scratch, self.sums());
            for i in task * together..self.blocks().min((task + 1) * together) {
                let (left, right, out) = operands(i / of_one);
                let rows = piece(0..self.rows, self.block_rows, i % of_one / across);
                let columns = piece(0..self.columns, self.block_columns, i % across);
                let to = self.destination(&out, &rows, &columns, sums);
                for depth in pieces(0..self.depth, self.strip_depth) {
                    let in_place = rows.len() <= IN_PLACE_ROWS;
                    let strip = Strip::new(self.kernel, &right, depth, columns.clone(), panels, in_place);
                    // SAFETY: each block of each product is computed once.
                    unsafe { self.multiply(&left, &strip, [rows.clone(), 0..0], columns.clone(), space, to) };
                }
                self.finish(&out, rows, columns, sums);
            }
        });
    }

    /// All tasks share each strip.
    fn run_shared<L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        scratch: &mut [u8],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        let (panels, scratch) = scratch::take::<A>(scratch, self.strip_len());
        let (kept, scratch) = scratch::take::<A>(scratch, self.kept_sums());
        for i in 0..self.batch {
            let (left, right, out) = operands(i);
            for strip_columns in pieces(0..self.columns, self.strip_columns) {
                for depth in pieces(0..self.depth, self.strip_depth) {
                    let strip = Strip::pack(self.kernel, &right, depth, strip_columns.clone(), panels, threads);
                    let across = strip_columns.len().div_ceil(self.block_columns);
                    let (blocks, count) = (self.rows.div_ceil(self.block_rows) * across, threads.count());
                    let compute = |block: usize, space: &mut [A], sums: &mut [A]| {
                        let rows = piece(0..self.rows, self.block_rows, block / across);
                        let columns = piece(0..strip_columns.len(), self.block_columns, block % across);
                        let columns = strip_columns.start + columns.start..strip_columns.start + columns.end;
                        let to = self.destination(&out, &rows, &columns, sums);
                        // Threads take turns, if all are equally fast.
                        let next = if block + count < blocks { (block + count) / across } else { blocks };
                        let next = piece(0..self.rows, self.block_rows, next);
                        // SAFETY: each block is computed by one task; where there are several strips for it, one is
                        // multiplied after the other.
                        unsafe { self.multiply(&left, &strip, [rows.clone(), next], columns.clone(), space, to) };
                        if strip.depth.end == self.depth {
                            self.finish(&out, rows, columns, sums);
                        }
                    };
                    if kept.is_empty() {
                        threads.for_each_with_scratch(blocks, scratch, |block, scratch| {
                            let (space, scratch) = scratch::take::<A>(scratch, self.left_len());
                            let (sums, _) = scratch::take::<A>(scratch, self.sums());
                            compute(block, space, sums);
                        });
                    } else {
                        let kept = kept.chunks_mut(self.block_rows * self.block_columns).enumerate().take(blocks);
                        threads.for_each_item_with_scratch(blocks, kept, scratch, |(block, sums), scratch| {
                            compute(block, scratch::take::<A>(scratch, self.left_len()).0, sums);
                        });
                    }
                }
            }
        }
    }

    /// The memory to which the products of a block are written: the output, or memory for sums.
    fn destination(
        &self,
        out: &impl Output<A>,
        rows: &Range<usize>,
        columns: &Range<usize>,
        sums: &mut [A],
    ) -> (*mut A, usize) {
        match out.direct() {
            Some((out, stride)) if self.direct => (out.wrapping_add(rows.start * stride + columns.start), stride),
            _ => (sums[..rows.len() * columns.len()].as_mut_ptr(), columns.len()),
        }
    }

    /// Writes a block to the output, if it is not there already.
    fn finish(&self, out: &impl Output<A>, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        if !self.direct {
            let sums = &sums[..rows.len() * columns.len()];
            // SAFETY: each block of each product is computed by one task.
            unsafe { out.write(rows, columns, sums) };
        }
    }

    /// Multiplies rows with some columns of a strip, and writes the products to `out`, whose rows are `stride` apart; or adds them, unless
    /// the strip is the first. `next` are the rows that the thread will probably multiply next, `space` is memory for a left block.
    ///
    /// # Safety
    /// `out` is valid for reading and writing these rows and columns, and no other task has access to them.
    unsafe fn multiply(
        &self,
        left: &impl Left<A>,
        strip: &Strip<'_, A>,
        [rows, next]: [Range<usize>; 2],
        columns: Range<usize>,
        space: &mut [A],
        (out, stride): (*mut A, usize),
    ) {
        if self.depth == 0 {
            for i in 0..rows.len() {
                // SAFETY: this is one of the rows that the caller promises.
                unsafe { std::slice::from_raw_parts_mut(out.add(i * stride), columns.len()) }.fill(A::default());
            }
            return;
        }
        for left_rows in pieces(rows.clone(), self.rows_of_left_blocks(rows.len())) {
            for depth in pieces(strip.depth.clone(), self.part) {
                let mut ahead = self.memory_ahead(left, strip, [&left_rows, &rows, &next], &depth);
                let left = left.block(self.kernel, left_rows.clone(), depth.clone(), columns.len(), space);
                for panel in pieces(columns.clone(), self.kernel.columns) {
                    let size = [left_rows.len(), panel.len(), depth.len()];
                    let right = strip.part(self.kernel, &panel, &depth);
                    let next = match panel.end < columns.end {
                        true => strip.offset(self.kernel, panel.end, depth.start),
                        false => strip.offset(self.kernel, columns.start, depth.end),
                    };
                    ahead.panel = strip.elements.as_ptr().wrapping_add(next);
                    // SAFETY: these are rows and columns of those that the caller promises.
                    unsafe {
                        let out = out.add((left_rows.start - rows.start) * stride + panel.start - columns.start);
                        multiply_panel(self.kernel, size, &left, (right, &mut ahead), (out, stride), depth.start > 0);
                    }
                }
            }
        }
    }

    /// The memory that is packed after some positions of a left block, whose rows are among a block's.
    fn memory_ahead(
        &self,
        left: &impl Left<A>,
        strip: &Strip<'_, A>,
        [left_rows, rows, next]: [&Range<usize>; 3],
        depth: &Range<usize>,
    ) -> BlockPrefetch<A> {
        let first = |rows: &Range<usize>| rows.start..rows.end.min(rows.start + self.rows_of_left_blocks(rows.len()));
        let part = |from: usize| from..strip.depth.end.min(from + self.part);
        let (rows, depth) = if depth.end < strip.depth.end {
            (left_rows.clone(), part(depth.end))
        } else if left_rows.end < rows.end {
            (left_rows.end..rows.end.min(left_rows.end + left_rows.len()), part(strip.depth.start))
        } else {
            (first(next), part(strip.depth.start))
        };
        let packed_next =
            if self.fetches() && !rows.is_empty() { left.to_prefetch(&rows, &depth) } else { ToPrefetch::NONE };
        BlockPrefetch { panel: strip.elements.as_ptr(), packed_next, calls: 0 }
    }
}

/// The memory to prefetch while a left block is multiplied.
struct BlockPrefetch<A> {
    /// The panel that is multiplied next.
    panel: *const A,
    /// The memory that is packed next.
    packed_next: ToPrefetch,
    /// Calls that have fetched some of it.
    calls: usize,
}

/// Columns of a strip, as many as the micro-kernel is wide, at some positions of the contracted axis.
#[derive(Clone, Copy)]
enum RightPanel<'a, A> {
    Strided(product::Right<'a, A>),
    Packed(&'a [A]),
}

/// Multiplies a left block with one panel of columns, and prefetches `ahead`, if both operands are packed.
///
/// # Safety
/// `out` is valid for writing these rows and columns, and for reading if `adds`; no other task has access to them.
unsafe fn multiply_panel<A: Accumulator>(
    kernel: &MicroKernel<A>,
    [rows, columns, depth]: [usize; 3],
    left: &LeftBlock<'_, A>,
    (right, ahead): (RightPanel<'_, A>, &mut BlockPrefetch<A>),
    (out, stride): (*mut A, usize),
    adds: bool,
) {
    let (height, width) = (kernel.height(rows), kernel.columns);
    let panel_len = kernel.rows * depth;
    let are_packed = matches!((left, right), (LeftBlock::Packed(_), RightPanel::Packed(_)));
    // The operands are long enough for all calls together (checked).
    let (left, strides, step) = match left {
        LeftBlock::Strided(left) => {
            let (first, strides) = left.checked(rows, depth);
            (first, strides, height * strides[0])
        }
        LeftBlock::Packed(panels) => {
            (panels[..rows.div_ceil(height) * panel_len].as_ptr(), [1, kernel.rows], panel_len)
        }
    };
    let (right, right_row) = match right {
        RightPanel::Strided(right) => right.checked(depth, columns),
        RightPanel::Packed(panel) => (panel[..width * depth].as_ptr(), width),
    };
    for (panel, i) in (0..rows).step_by(height).enumerate() {
        let size = [height.min(rows - i), columns, depth];
        // SAFETY: the operands have these rows, columns and positions (checked), and the result as the caller promises; the
        // micro-kernel is one for this CPU.
        unsafe {
            let (left, out) = (left.add(panel * step), (out.add(i * stride), stride));
            if are_packed && columns >= kernel.min_columns {
                let part = ahead.panel.wrapping_add(panel % CALLS_PER_PANEL * width * depth / CALLS_PER_PANEL);
                let lines = ahead.packed_next.lines(ahead.calls, depth.div_ceil(POSITIONS_PER_LINE));
                ahead.calls += 1;
                // After the last line, a line that is read anyway.
                let (lines, stride) = lines.unwrap_or((left.cast(), 0));
                (kernel.packed)(size, left, right, Prefetch { right: part, lines, stride }, out, adds);
            } else {
                (kernel.strided)(size, (left, strides), (right, right_row), out, adds);
            }
        }
    }
}

impl<'a, A: Accumulator> Strip<'a, A> {
    /// A strip for one task, read in place if that is possible and `in_place` allows it.
    fn new<R: Right<A>>(
        kernel: &MicroKernel<A>,
        right: &'a R,
        depth: Range<usize>,
        columns: Range<usize>,
        panels: &'a mut [A],
        in_place: bool,
    ) -> Strip<'a, A> {
        match right.in_place(depth.clone(), columns.clone()) {
            Some(product::Right { elements, row_stride: row }) if in_place => {
                Strip { elements, row: Some(row), columns, depth }
            }
            _ => Strip::pack(kernel, right, depth, columns, panels, &Threads::SERIAL),
        }
    }

    /// A strip packed into panels.
    fn pack(
        kernel: &MicroKernel<A>,
        right: &impl Right<A>,
        depth: Range<usize>,
        columns: Range<usize>,
        panels: &'a mut [A],
        threads: &Threads,
    ) -> Strip<'a, A> {
        let (size, positions) = (kernel.columns, depth.len());
        let panels = &mut panels[..positions * columns.len().next_multiple_of(size)];
        let tasks = PACKING_TASKS * threads.count();
        let together = (columns.len().div_ceil(size) / tasks).clamp(1, PANELS);
        threads.for_each_chunk(panels, positions * size * together, |i, panels| {
            let piece = piece(0..columns.len(), size * together, i);
            let columns = columns.start + piece.start..columns.start + piece.end;
            right.pack(depth.clone(), columns, size, panels);
        });
        Strip { elements: panels, row: None, columns, depth }
    }

    /// Some positions of a panel with these columns.
    fn part(&self, kernel: &MicroKernel<A>, panel: &Range<usize>, depth: &Range<usize>) -> RightPanel<'_, A> {
        let elements = &self.elements[self.offset(kernel, panel.start, depth.start)..];
        match self.row {
            Some(row) => RightPanel::Strided(product::Right { elements, row_stride: row }),
            None => RightPanel::Packed(elements),
        }
    }

    /// The offset of a panel's first column, at some position, which may be the end of the strip.
    fn offset(&self, kernel: &MicroKernel<A>, column: usize, position: usize) -> usize {
        let (j, from) = (column - self.columns.start, position - self.depth.start);
        match self.row {
            Some(row) => from * row + j,
            None => j * self.depth.len() + from * kernel.columns,
        }
    }
}
