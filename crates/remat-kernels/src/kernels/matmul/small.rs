//! Products of small matrices, usually in large batches: each is multiplied whole, in place.
//!
//! Cutting such a product into blocks, packing them and writing them as [`blocked`](super::blocked) does would take as long as multiplying.
//! An operand is copied only if the micro-kernel cannot read it: if its elements have another dtype, or if the columns of a right operand
//! are not neighbours. The contracted axis is one part, as it is there, so that both give the same bits.

// Each task writes its own products.
#![allow(unsafe_code)]

use std::ops::Range;

use super::blocked::PART;
use super::element::Writer;
use super::matrix::is_contiguous_along_free;
use super::thresholds::SMALL_ELEMENTS;
use super::{Dot, Side};
use crate::base::disjoint::DisjointMut;
use crate::base::product::{Accumulator, Left, Out, Right, product};
use crate::base::scratch;
use crate::base::strided::Rows;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// Fewest multiplications of a task.
const TASK: usize = 1 << 18;

/// Whether a product with these rows, columns and positions is small.
pub(super) fn is_small(rows: usize, columns: usize, depth: usize) -> bool {
    let [left, right, out] = [(rows, depth), (depth, columns), (rows, columns)].map(|(a, b)| a.saturating_mul(b));
    depth <= PART && left.saturating_add(right).saturating_add(out) <= SMALL_ELEMENTS
}

/// The kernel of such products.
pub(super) struct SmallKernel<A: 'static> {
    dot: Dot<A>,
    writer: Writer<A>,
    left: Place,
    right: Place,
}

/// Where and how the matrices of an operand are read.
struct Place {
    is_copied: bool,
    /// The strides of the free and the contracted axis.
    strides: [usize; 2],
}

/// The strides of the free and the contracted axis, if the elements need no conversion and the strides are the same everywhere and not
/// negative.
fn strides<A: Accumulator>(side: &Side<A>) -> Option<[usize; 2]> {
    let stride = |rows: &Rows<1>| usize::try_from(rows.stride[0]).ok().filter(|_| rows.outer.len() == 1);
    let numbers = side.reader.dtype() == A::DTYPE;
    numbers.then_some([stride(&side.free)?, stride(&side.contracted)?])
}

/// The elements of an operand from `first` on.
fn from<A>(elements: &[A], first: isize) -> &[A] {
    usize::try_from(first).ok().and_then(|first| elements.get(first..)).unwrap_or_default()
}

impl<A: Accumulator> SmallKernel<A> {
    pub(super) fn new(dot: Dot<A>, writer: Writer<A>) -> SmallKernel<A> {
        let place = |in_place: Option<[usize; 2]>, copied: [usize; 2]| Place {
            is_copied: in_place.is_none(),
            strides: in_place.unwrap_or(copied),
        };
        // A copy of a left operand has the elements in the same order.
        let by_columns = is_contiguous_along_free(&dot.left.free, &dot.left.contracted);
        let left = place(strides(&dot.left), if by_columns { [1, dot.rows] } else { [dot.depth, 1] });
        let right = place(strides(&dot.right).filter(|&[column, _]| column == 1), [1, dot.columns]);
        SmallKernel { dot, writer, left, right }
    }

    /// Products that a task computes.
    fn together(&self) -> usize {
        let Dot { rows, columns, depth, .. } = self.dot;
        (TASK / (rows * columns * depth).max(1)).max(1)
    }

    /// Numbers in a thread's workspace: copies of both operands, memory for transposing, and sums.
    fn workspace(&self) -> [usize; 4] {
        let Dot { rows, columns, depth, .. } = self.dot;
        let left = if self.left.is_copied { rows * depth } else { 0 };
        let right = if self.right.is_copied { depth * columns } else { 0 };
        [left, right, right, if self.writer.is_direct() { 0 } else { rows * columns }]
    }

    /// Computes some of the products.
    fn products<'a>(&self, ins: &[Source<'a>], out: &DisjointMut<'_, u8>, batch: Range<usize>, scratch: &mut [u8]) {
        let Dot { rows, columns, depth, .. } = self.dot;
        let (results, [left_len, right_len, turned_len, sums_len]) = (rows * columns, self.workspace());
        let (left_copy, scratch) = scratch::take::<A>(scratch, left_len);
        let (right_copy, scratch) = scratch::take::<A>(scratch, right_len);
        let (turned, scratch) = scratch::take::<A>(scratch, turned_len);
        let (sums, _) = scratch::take::<A>(scratch, sums_len);
        let numbers = |place: &Place, source: Source<'a>| if place.is_copied { &[] } else { source.slice::<A>() };
        let (x, y) = (numbers(&self.left, ins[0]), numbers(&self.right, ins[1]));
        let ([row, column], right_row) = (self.left.strides, self.right.strides[1]);
        let (mut i, mut copied) = (batch.start, [None; 2]);
        self.dot.batch.each(batch, |[l, r]| {
            // A matrix that is the same for the whole batch is copied once.
            if self.left.is_copied && copied[0].replace(l) != Some(l) {
                self.dot.left.matrix(ins[0], l).read_all(rows, depth, left_copy);
            }
            if self.right.is_copied && copied[1].replace(r) != Some(r) {
                self.dot.right.matrix(ins[1], r).read_columns(0..columns, 0..depth, turned, right_copy);
            }
            let left = if self.left.is_copied { &*left_copy } else { from(x, self.dot.left.start + l) };
            let right = if self.right.is_copied { &*right_copy } else { from(y, self.dot.right.start + r) };
            let left = Left { elements: left, row_stride: row, column_stride: column };
            let right = Right { elements: right, row_stride: right_row };
            let to = out.at(i * results * self.writer.dtype.size());
            // SAFETY, of both: the elements of a product are in the output, and one task writes them.
            if self.writer.is_direct() {
                let elements = unsafe { std::slice::from_raw_parts_mut(to.cast(), results) };
                product([rows, columns, depth], left, right, Out { elements, row_stride: columns, adds: false });
            } else {
                product([rows, columns, depth], left, right, Out { elements: sums, row_stride: columns, adds: false });
                unsafe { self.writer.write(sums, to) };
            }
            i += 1;
        });
    }
}

impl<A: Accumulator> Kernel for SmallKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        threads * self.workspace().map(scratch::bytes::<A>).iter().sum::<usize>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (all, together, out) = (self.dot.batch.len(), self.together(), DisjointMut::bytes(&mut outs[0]));
        let scratch = &mut scratch[..self.scratch(threads.count())];
        threads.for_each_with_scratch(all.div_ceil(together), scratch, |task, scratch| {
            self.products(ins, &out, task * together..all.min((task + 1) * together), scratch);
        });
    }
}
