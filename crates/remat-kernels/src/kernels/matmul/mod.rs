//! Matrix products. Operands may have any layout.
//!
//! [`algorithms`] lists what computes them, in the order in which it is tried, and [`thresholds`] the sizes from which on an algorithm pays.
//! The algorithms are in four modules, on the micro-kernels of `base::product` and the units of `base::narrow`:
//!
//! - [`narrow`]: products of bf16 and bytes, and of f32 on request, on the CPU's unit for narrow elements, if it has one
//! - [`skinny`]: a vector, or few rows or columns, by a matrix that is read once, at the speed of memory (GEMV)
//! - [`small`]: small matrices, often in large batches, each multiplied whole
//! - [`blocked`]: all others, cut into blocks; elements that cannot be read in place are packed (GEMM)
//!
//! They share:
//!
//! - [`element`]: elements of any dtype, read as numbers to multiply, and sums written as elements
//! - [`matrix`]: operands in any layout: their strides, and parts of them read or packed
//! - [`pack`]: copies of parts of matrices to panels, and transpositions
//! - [`widen_f16`]: f16 converted by the CPU's own instructions
//!
//! For a comparison with other crates on large products, see docs/EXPERIMENTS.md, "Matrix products".
//!
//! The order of a sum depends on the shapes alone: parts of at most 512 positions, one after the other; in [`skinny`] 16 lanes, to which
//! positions belong modulo 16; on a unit pairs first, then its groups. Zeros that pad the contracted axis change it where they are
//! multiplied, and so may the algorithm that the shapes choose (docs/DESIGN.md, "One exception to bits").

// The output is written by several threads, in blocks that interleave.
#![allow(unsafe_code)]

mod algorithms;
mod blocked;
mod element;
mod matrix;
pub(super) mod narrow;
mod pack;
mod skinny;
mod small;
mod thresholds;
mod widen_f16;

#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::{Aval, DType, DotGeneral, Shape};

use algorithms::Product;
pub(crate) use algorithms::Products;
pub(super) use blocked::{Blocking, Left, LeftBlock, MANY, Output, Right, SHARED, block_stride, even, pack_panels};
pub(super) use element::{Elements, Reader, Writer, accumulator};
use matrix::Matrix;
pub(super) use matrix::{left_in_place, right_in_place};
pub(super) use pack::{MOST_COLUMNS, chunk, copy_columns, pack_transposed, pack_transposed_through, transpose_rows};
pub(super) use skinny::dots;
use skinny::{Sum, has_byte_columns, has_byte_dots, is_skinny};
use small::is_small;

use super::choice;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::strided::{Rows, StridedIter};
use crate::interface::layout::Layout;
use crate::interface::{Kernel, Source, Target};
use crate::simd::Level;
use crate::threads::Threads;

/// The kernel of a matrix product, for operands of these dtypes in any layout.
///
/// Products are summed as in the evaluator: in i64 for a result that is an integer or a bool, in f32 for f16, bf16 and f32, in f64
/// otherwise. The order of a sum depends on the operation and the shapes alone, not on the layouts, and is the same if the operands are
/// swapped.
pub(crate) fn kernel(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    choice::kernel::<Products>(&Product::new(op, ins, out))
}

/// A product as a batch of products of matrices, whose elements are multiplied as numbers of type `F`.
struct Dot<F: 'static> {
    batch: StridedIter<2>,
    rows: usize,
    columns: usize,
    depth: usize,
    left: Side<F>,
    right: Side<F>,
    /// The dtype of the results.
    out: DType,
}

/// The kernel of products of matrices with several rows and columns.
struct MatrixKernel<A: Accumulator> {
    dot: Dot<A>,
    writer: Writer<A>,
    blocking: Blocking<A>,
}

/// An operand: matrices in a buffer.
pub(super) struct Side<A> {
    pub(super) reader: Reader<A>,
    pub(super) start: isize,
    pub(super) free: Rows<1>,
    pub(super) contracted: Rows<1>,
}

impl<A: Accumulator> Side<A> {
    fn new((dtype, layout): (DType, &Layout), free: &[usize], contracted: &[usize]) -> Side<A> {
        let rows = |dims: &[usize]| {
            let part = layout.permuted(dims);
            Rows::from(StridedIter::new(&part.shape, [&part.strides]))
        };
        Side {
            reader: Reader::new(dtype),
            start: layout.offset as isize,
            free: rows(free),
            contracted: rows(contracted),
        }
    }

    /// Elements from one free index to the next, and from one contracted index to the next, if they are the same between all; 1 where there
    /// is one index.
    fn strides(&self) -> Option<[isize; 2]> {
        let axes = [&self.free, &self.contracted];
        let is_regular = axes.iter().all(|rows| rows.outer.len() == 1);
        is_regular.then(|| axes.map(|rows| if rows.len == 1 { 1 } else { rows.stride[0] }))
    }

    /// One matrix of the operand.
    pub(super) fn matrix<'a>(&'a self, source: Source<'a>, offset: isize) -> Matrix<'a, A> {
        let elements = self.reader.of(source);
        Matrix { elements, start: self.start + offset, free: &self.free, contracted: &self.contracted }
    }
}

/// The free axes of an operand: those that are neither batch nor contracted axes.
fn free(layout: &Layout, batch: &Shape, contracted: &Shape) -> Shape {
    (0..layout.shape.len()).filter(|d| !batch.contains(d) && !contracted.contains(d)).collect()
}

impl<F: Accumulator> Dot<F> {
    fn new(op: &DotGeneral, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval) -> Dot<F> {
        // Products are summed in the order in which the operation lists the contracted axes, for any strides.
        let (l, r) = (&op.lhs_contract, &op.rhs_contract);
        let (l_free, r_free) = (free(lhs.1, &op.lhs_batch, l), free(rhs.1, &op.rhs_batch, r));
        let count = |layout: &Layout, dims: &[usize]| dims.iter().map(|&d| layout.shape[d]).product::<usize>();
        let (rows, columns, depth) = (count(lhs.1, &l_free), count(rhs.1, &r_free), count(lhs.1, l));
        let (a, b) = (lhs.1.permuted(&op.lhs_batch), rhs.1.permuted(&op.rhs_batch));
        let batch = StridedIter::new(&a.shape, [&a.strides, &b.strides]);
        let (left, right) = (Side::new(lhs, &l_free, l), Side::new(rhs, &r_free, r));
        Dot { batch, rows, columns, depth, left, right, out: out.dtype }
    }

    /// The operand that is not skinny, if one is.
    fn large(&self) -> &Side<F> {
        if self.rows <= self.columns { &self.right } else { &self.left }
    }

    /// Whether one of the operands has few rows.
    fn is_skinny(&self) -> bool {
        is_skinny(self.rows, self.columns, self.depth)
    }

    /// Whether the matrices are small, and the sums of products of 8-bit integers are exact in f32.
    fn has_small_bytes(&self) -> bool {
        let is_exact = self.depth <= <i64 as Sum<f32>>::CHUNK;
        is_exact && !self.is_skinny() && is_small(self.rows, self.columns, self.depth)
    }

    /// The kernel of products of matrices in blocks.
    fn blocked(self) -> MatrixKernel<F> {
        let writer = Writer::new(self.out);
        let blocking = Blocking::new(
            F::micro_kernel(Level::best()),
            self.batch.len(),
            [self.rows, self.columns, self.depth],
            writer.is_direct(),
        );
        MatrixKernel { dot: self, writer, blocking }
    }

    /// The operands of a product with one skinny operand.
    fn operands(self) -> Operands<F> {
        let Dot { batch, rows, columns, depth, left, right, .. } = self;
        let skinny_first = rows <= columns;
        let (skinny, matrix) = if skinny_first { (left, right) } else { (right, left) };
        let rows_and_columns = [rows.min(columns), rows.max(columns)];
        let [rows, columns] = if rows_and_columns[0] == 0 { [0, 0] } else { rows_and_columns };
        Operands { batch, rows, columns, depth, matrix, skinny, skinny_first }
    }
}

/// Products of matrices with few rows and matrices: results of `rows` by `columns` elements, each a sum of `depth` products.
struct Operands<F: 'static> {
    batch: StridedIter<2>,
    rows: usize,
    columns: usize,
    depth: usize,
    /// The operand whose free axes are the columns.
    matrix: Side<F>,
    /// The operand whose free axes are the rows.
    skinny: Side<F>,
    /// Whether the skinny operand is the left one.
    skinny_first: bool,
}

impl<F: Accumulator> Operands<F> {
    /// The matrix and the skinny operand at an index of the batch.
    fn at<'a>(&'a self, ins: &[Source<'a>], index: usize) -> (Matrix<'a, F>, Matrix<'a, F>) {
        let [left, right] = self.batch.offsets(index);
        if self.skinny_first {
            (self.matrix.matrix(ins[1], right), self.skinny.matrix(ins[0], left))
        } else {
            (self.matrix.matrix(ins[0], left), self.skinny.matrix(ins[1], right))
        }
    }
}

impl<A: Accumulator> Kernel for MatrixKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        self.blocking.for_threads(threads).scratch(threads)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let dot = &self.dot;
        let all = DisjointMut::bytes(&mut outs[0]);
        let bytes = dot.rows * dot.columns * self.writer.dtype.size();
        self.blocking.for_threads(threads.count()).run(scratch, threads, |i| {
            let [l, r] = dot.batch.offsets(i);
            let out = Dense { out: all.skip(i * bytes), writer: &self.writer, columns: dot.columns };
            (dot.left.matrix(ins[0], l), dot.right.matrix(ins[1], r), out)
        });
    }
}

/// A row-major matrix of the result.
struct Dense<'a, A> {
    out: DisjointMut<'a, u8>,
    writer: &'a Writer<A>,
    columns: usize,
}

impl<A: Accumulator> Output<A> for Dense<'_, A> {
    fn direct(&self) -> Option<(*mut A, usize)> {
        self.writer.is_direct().then(|| (self.out.at(0).cast(), self.columns))
    }

    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        for (row, sums) in rows.zip(sums.chunks_exact(columns.len())) {
            let to = self.out.at((row * self.columns + columns.start) * self.writer.dtype.size());
            // SAFETY: these elements are in the matrix.
            unsafe { self.writer.write(sums, to) };
        }
    }
}
