//! Matrix products.
//!
//! A product of large matrices is cut into strips and blocks ([`blocked`]), which are packed ([`pack`]) into panels for the
//! tiles ([`tile`]) that do the work. A product with one row or one column is not packed ([`line`]): it is read once, at the
//! speed of memory. Any layout of the operands will do.
//!
//! Why not a crate: docs/PERFORMANCE.md, "Choice of the GEMM".

// The output is written by several threads, in blocks that lie between each other.
#![allow(unsafe_code)]

mod blocked;
mod element;
mod line;
mod pack;
mod tile;
mod vector;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::ops::Range;

use remat_ir::{Aval, DType, DotGeneral, Shape};
use smallvec::SmallVec;

use blocked::{BLOCK_ROWS, Product, Sizes};
use element::{Reader, Writer, accumulator, numbers};
use line::LineKernel;
use pack::{Matrix, is_contiguous_along_free};
use tile::Accumulator;

use super::layout::{Layout, Strides};
use super::walk::{Rows, Walk};
use super::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel of a matrix product, of operands of these dtypes in any layout.
///
/// Products are summed as the evaluator does it: in i64 for a result that is an integer or a bool, in f32 for f16, bf16 and
/// f32, in f64 otherwise. The order of the sums depends on the shapes alone.
pub(crate) fn kernel(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    of_dtype(op, ins, out, false)
}

/// The kernel that adds a matrix product to its third operand, which has the aval of the result and is row-major. The product
/// is rounded to its dtype before, so that the sum is that of two operations; the result may take the operand's memory.
pub(crate) fn accumulating(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    of_dtype(op, ins, out, true)
}

fn of_dtype(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval, accumulate: bool) -> Box<dyn Kernel> {
    match accumulator(ins[0].0, out.dtype) {
        DType::F32 => Dot::<f32>::new(op, ins, out, accumulate).kernel(),
        DType::F64 => Dot::<f64>::new(op, ins, out, accumulate).kernel(),
        _ => Dot::<i64>::new(op, ins, out, accumulate).kernel(),
    }
}

/// Operations below which a task is not worth handing to another thread.
const TASK: usize = 1 << 20;

/// Matrices that are multiplied by one task each are not larger, unless there are many.
const SMALL: usize = 1 << 23;

/// So many tasks keep all threads busy.
const MANY: usize = 16;

/// A product as products of matrices, one for each index of the batch.
struct Dot<A: 'static> {
    batch: Walk<2>,
    rows: usize,
    columns: usize,
    depth: usize,
    left: Side<A>,
    right: Side<A>,
    writer: Writer<A>,
    accumulate: bool,
}

/// The kernel of products of matrices that have several rows and columns.
struct MatrixKernel<A: 'static> {
    dot: Dot<A>,
    sizes: Sizes,
    /// Matrices that one task multiplies; if none, all tasks share each.
    together: Option<usize>,
}

/// An operand: matrices in a buffer.
struct Side<A> {
    reader: Reader<A>,
    start: isize,
    free: Rows<1>,
    contracted: Rows<1>,
}

impl<A: Accumulator> Side<A> {
    fn new((dtype, layout): (DType, &Layout), free: &[usize], contracted: &[usize]) -> Side<A> {
        let rows = |dims: &[usize]| {
            let part = layout.permuted(dims);
            Rows::from(Walk::new(&part.shape, [&part.strides]))
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
    fn matrix<'a>(&'a self, source: Source<'a>, offset: isize) -> Matrix<'a, A> {
        let elements = self.reader.of(source);
        Matrix { elements, start: self.start + offset, free: &self.free, contracted: &self.contracted }
    }
}

/// Where the elements of the result are, and those that it is added to.
#[derive(Clone, Copy)]
struct Place {
    to: *mut u8,
    before: *const u8,
}

// SAFETY: the pointers are used where a task writes its own elements.
unsafe impl Send for Place {}
unsafe impl Sync for Place {}

impl Place {
    fn at(self, bytes: usize) -> Place {
        Place { to: self.to.wrapping_add(bytes), before: self.before.wrapping_add(bytes) }
    }
}

impl<A: Accumulator> Dot<A> {
    fn new(op: &DotGeneral, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval, accumulate: bool) -> Dot<A> {
        // Sums are in any order: with the neighbours of the left operand last, fewer dimensions remain.
        let mut pairs: SmallVec<[(usize, usize); 4]> =
            op.lhs_contract.iter().copied().zip(op.rhs_contract.iter().copied()).collect();
        pairs.sort_by_key(|&(l, _)| Reverse(lhs.1.strides[l].unsigned_abs()));
        let (l, r): (Shape, Shape) = pairs.into_iter().unzip();
        let free = |layout: &Layout, batch: &Shape, contracted: &Shape| -> Shape {
            (0..layout.shape.len()).filter(|d| !batch.contains(d) && !contracted.contains(d)).collect()
        };
        let (l_free, r_free) = (free(lhs.1, &op.lhs_batch, &l), free(rhs.1, &op.rhs_batch, &r));
        let count = |layout: &Layout, dims: &[usize]| dims.iter().map(|&d| layout.shape[d]).product::<usize>();
        let (rows, columns, depth) = (count(lhs.1, &l_free), count(rhs.1, &r_free), count(lhs.1, &l));
        let (a, b) = (lhs.1.permuted(&op.lhs_batch), rhs.1.permuted(&op.rhs_batch));
        let batch = Walk::new(&a.shape, [&a.strides, &b.strides]);
        Dot {
            batch,
            rows,
            columns,
            depth,
            left: Side::new(lhs, &l_free, &l),
            right: Side::new(rhs, &r_free, &r),
            writer: Writer::new(out.dtype, accumulate),
            accumulate,
        }
    }

    fn kernel(self) -> Box<dyn Kernel> {
        let Dot { batch, rows, columns, depth, left, right, writer, accumulate } = self;
        match (rows, columns) {
            (_, 1) => {
                let (matrix, vector, vector_first) = (left, right, false);
                Box::new(LineKernel { batch, rows, depth, matrix, vector, vector_first, writer, accumulate })
            }
            (1, _) => {
                let (matrix, vector, vector_first) = (right, left, true);
                Box::new(LineKernel { batch, rows: columns, depth, matrix, vector, vector_first, writer, accumulate })
            }
            _ => {
                let work = rows.saturating_mul(columns).saturating_mul(depth);
                let together = TASK.div_ceil(work.max(1)).min(batch.len().max(1));
                let tasks = batch.len().div_ceil(together);
                Box::new(MatrixKernel {
                    sizes: Sizes::new::<A>(rows, columns, depth),
                    together: (work <= SMALL || tasks >= MANY).then_some(together),
                    dot: Dot { batch, rows, columns, depth, left, right, writer, accumulate },
                })
            }
        }
    }
}

impl<A: Accumulator> MatrixKernel<A> {
    /// Numbers of scratch memory that each thread needs, except for strips that all share.
    fn scratch_of_thread(&self) -> usize {
        let block = if self.is_direct() { 0 } else { BLOCK_ROWS * self.sizes.strip_columns };
        let strip = if self.together.is_some() { self.sizes.strip } else { 0 };
        self.sizes.panels + block + strip
    }

    /// Whether products are written to the result as they are.
    fn is_direct(&self) -> bool {
        self.dot.writer.is_direct() && self.dot.depth > 0
    }

    /// The strips of columns.
    fn strips(&self) -> impl Iterator<Item = Range<usize>> {
        let size = self.sizes.strip_columns;
        (0..self.dot.columns).step_by(size).map(move |first| first..self.dot.columns.min(first + size))
    }

    /// Multiplies a block of rows with a packed strip of columns, and writes the products to the matrix at `place`.
    ///
    /// # Safety
    /// `place` has a matrix, and nobody else has access to these rows and columns of it meanwhile.
    unsafe fn block(
        &self,
        product: &Product<'_, A, Matrix<'_, A>, Matrix<'_, A>>,
        rows: Range<usize>,
        columns: &Range<usize>,
        strip: &[A],
        scratch: &mut [A],
        place: Place,
    ) {
        let (panels, block) = scratch.split_at_mut(self.sizes.panels);
        let first = rows.start * self.dot.columns + columns.start;
        let n = columns.len();
        if self.is_direct() {
            // SAFETY: the block is one of the matrix, whose elements are numbers as they are.
            unsafe {
                let out = place.to.cast::<A>().add(first);
                product.multiply(rows, strip, n, panels, out, self.dot.columns);
            }
            return;
        }
        let block = &mut block[..rows.len() * n];
        block.fill(A::default());
        // SAFETY: the block has memory of its own.
        unsafe { product.multiply(rows, strip, n, panels, block.as_mut_ptr(), n) };
        for (i, sums) in block.chunks_exact(n).enumerate() {
            let at = (first + i * self.dot.columns) * self.dot.writer.dtype.size();
            // SAFETY: the row is one of the block's in the matrix, and in what it is added to if there is such a thing.
            unsafe { self.dot.writer.write(sums, place.to.add(at), place.before.wrapping_add(at)) };
        }
    }
}

impl<A: Accumulator> Kernel for MatrixKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        let of_threads = match self.together {
            Some(_) => threads * self.scratch_of_thread(),
            None => threads * self.scratch_of_thread() + self.sizes.strip,
        };
        of_threads * size_of::<A>()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        if self.dot.accumulate { &[(2, 0)] } else { &[] }
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let matrix = self.dot.rows * self.dot.columns;
        if matrix == 0 || self.dot.batch.len() == 0 {
            return;
        }
        let before = if self.dot.accumulate { ins[2].as_ptr() } else { std::ptr::null() };
        let bytes = matrix * self.dot.writer.dtype.size();
        let all = Place { to: outs[0].as_ptr(), before };
        // SAFETY, of all blocks: the result has as many matrices as there are in the batch, and so has what it is added to;
        // each block of each is written by one task.
        let rows = |i: usize| i..self.dot.rows.min(i + BLOCK_ROWS);
        let scratch = numbers::<A>(scratch);
        if let Some(together) = self.together {
            threads.for_each_with_scratch(self.dot.batch.len().div_ceil(together), scratch, |task, scratch| {
                let (strip, scratch) = scratch.split_at_mut(self.sizes.strip);
                let mut i = task * together;
                self.dot.batch.each(i..self.dot.batch.len().min(i + together), |[l, r]| {
                    let (left, right) = (self.dot.left.matrix(ins[0], l), self.dot.right.matrix(ins[1], r));
                    let product = Product::new(&left, &right, self.dot.depth);
                    for columns in self.strips() {
                        product.pack(columns.clone(), strip, &Threads::SERIAL);
                        for first in (0..self.dot.rows).step_by(BLOCK_ROWS) {
                            unsafe { self.block(&product, rows(first), &columns, strip, scratch, all.at(i * bytes)) };
                        }
                    }
                    i += 1;
                });
            });
            return;
        }
        let (strip, scratch) = scratch.split_at_mut(self.sizes.strip);
        let mut i = 0;
        self.dot.batch.each(0..self.dot.batch.len(), |[l, r]| {
            let (left, right) = (self.dot.left.matrix(ins[0], l), self.dot.right.matrix(ins[1], r));
            let product = Product::new(&left, &right, self.dot.depth);
            for columns in self.strips() {
                product.pack(columns.clone(), strip, threads);
                threads.for_each_with_scratch(self.dot.rows.div_ceil(BLOCK_ROWS), scratch, |task, scratch| {
                    unsafe {
                        self.block(&product, rows(task * BLOCK_ROWS), &columns, strip, scratch, all.at(i * bytes))
                    };
                });
            }
            i += 1;
        });
    }
}
