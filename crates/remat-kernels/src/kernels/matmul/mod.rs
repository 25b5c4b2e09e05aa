//! Matrix products.
//!
//! A product is cut into tiles and blocks ([`blocked`]), whose elements are packed ([`matrix`]) if they cannot be read in place,
//! and which are multiplied by [`product`](super::product). A product with one row or one column is not cut ([`matvec`]): it is
//! read once, at the speed of memory. Any layout of the operands will do.
//!
//! What the crates for products of large matrices can do: docs/PERFORMANCE.md, "Matrix products".

// The output is written by several threads, in blocks that interleave.
#![allow(unsafe_code)]

mod blocked;
mod cut;
mod element;
mod matrix;
mod matvec;
mod narrow;
mod operands;
mod pack;

#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::{Aval, DType, DotGeneral, Shape};

pub(super) use cut::{Cut, MANY, SHARED, even};
pub(super) use element::{Elements, Reader, Writer, accumulator};
use matrix::{Matrix, is_contiguous_along_free};
pub(super) use matrix::{left_in_place, right_in_place};
use matvec::MatvecKernel;
pub(super) use operands::{Left, LeftBlock, Output, Right, block_stride, for_each_panel};
pub(super) use pack::pack_transposed;

use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::strided::{Rows, StridedIter};
use crate::interface::layout::Layout;
use crate::interface::{Kernel, Source, Target};
use crate::simd::Level;
use crate::threads::Threads;

/// The kernel of a matrix product, of operands of these dtypes in any layout.
///
/// Products are summed as the evaluator does it: in i64 for a result that is an integer or a bool, in f32 for f16, bf16 and
/// f32, in f64 otherwise. The order of a sum depends on the operation and the shapes alone, not on the layouts, and is the same
/// for the operands in the other order.
pub(crate) fn kernel(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    if let Some(kernel) = narrow::kernel(op, ins, out) {
        return kernel;
    }
    match accumulator(ins[0].0, out.dtype) {
        DType::F32 => Dot::<f32>::new(op, ins, out).kernel(),
        DType::F64 => Dot::<f64>::new(op, ins, out).kernel(),
        _ => Dot::<i64>::new(op, ins, out).kernel(),
    }
}

/// A product as products of matrices, one for each index of the batch.
struct Dot<A: 'static> {
    batch: StridedIter<2>,
    rows: usize,
    columns: usize,
    depth: usize,
    left: Side<A>,
    right: Side<A>,
    writer: Writer<A>,
}

/// The kernel of products of matrices that have several rows and columns.
struct MatrixKernel<A: Accumulator> {
    dot: Dot<A>,
    cut: Cut<A>,
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

    fn is_contiguous_along_free(&self) -> bool {
        is_contiguous_along_free(&self.free, &self.contracted)
    }

    /// One of the matrices.
    pub(super) fn matrix<'a>(&'a self, source: Source<'a>, offset: isize) -> Matrix<'a, A> {
        let elements = self.reader.of(source);
        Matrix { elements, start: self.start + offset, free: &self.free, contracted: &self.contracted }
    }
}

impl<A: Accumulator> Dot<A> {
    fn new(op: &DotGeneral, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval) -> Dot<A> {
        // Products are summed in the order in which the operation lists the contracted axes, whatever their strides are.
        let (l, r) = (&op.lhs_contract, &op.rhs_contract);
        let free = |layout: &Layout, batch: &Shape, contracted: &Shape| -> Shape {
            (0..layout.shape.len()).filter(|d| !batch.contains(d) && !contracted.contains(d)).collect()
        };
        let (l_free, r_free) = (free(lhs.1, &op.lhs_batch, l), free(rhs.1, &op.rhs_batch, r));
        let count = |layout: &Layout, dims: &[usize]| dims.iter().map(|&d| layout.shape[d]).product::<usize>();
        let (rows, columns, depth) = (count(lhs.1, &l_free), count(rhs.1, &r_free), count(lhs.1, l));
        let (a, b) = (lhs.1.permuted(&op.lhs_batch), rhs.1.permuted(&op.rhs_batch));
        let batch = StridedIter::new(&a.shape, [&a.strides, &b.strides]);
        Dot {
            batch,
            rows,
            columns,
            depth,
            left: Side::new(lhs, &l_free, l),
            right: Side::new(rhs, &r_free, r),
            writer: Writer::new(out.dtype),
        }
    }

    fn kernel(self) -> Box<dyn Kernel> {
        let Dot { batch, rows, columns, depth, left, right, writer } = self;
        match (rows, columns) {
            (_, 1) => {
                let (matrix, vector, vector_first) = (left, right, false);
                Box::new(MatvecKernel { batch, rows, depth, matrix, vector, vector_first, writer })
            }
            (1, _) => {
                let (matrix, vector, vector_first) = (right, left, true);
                Box::new(MatvecKernel { batch, rows: columns, depth, matrix, vector, vector_first, writer })
            }
            _ => {
                let direct = writer.is_direct();
                let cut = Cut::new(A::micro_kernel(Level::best()), batch.len(), [rows, columns, depth], direct);
                Box::new(MatrixKernel { dot: Dot { batch, rows, columns, depth, left, right, writer }, cut })
            }
        }
    }
}

impl<A: Accumulator> Kernel for MatrixKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        self.cut.scratch(threads)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let dot = &self.dot;
        let all = DisjointMut::bytes(&mut outs[0]);
        let bytes = dot.rows * dot.columns * dot.writer.dtype.size();
        self.cut.run(scratch, threads, |i| {
            let [l, r] = dot.batch.offsets(i);
            let out = Dense { out: all.skip(i * bytes), writer: &dot.writer, columns: dot.columns };
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
            // SAFETY: these are elements of the matrix.
            unsafe { self.writer.write(sums, to) };
        }
    }
}
