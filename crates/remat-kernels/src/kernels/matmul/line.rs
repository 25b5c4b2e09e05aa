//! Products of a matrix and a vector, and of two vectors.
//!
//! Each element of the matrix is used once, so that packing it would cost more than the product. It is read in the order in
//! which it lies in memory: either rows are multiplied with the vector, or multiples of columns are added up. A product with
//! few rows is cut along the contracted dimension too; the sums of the parts are added in order.

// Results are written by several threads, through pointers.
#![allow(unsafe_code)]

use std::ops::Range;

use super::blocked::MANY;
use super::element::{Accumulator, Writer};
use super::matrix::Matrix;
use super::{Place, Side};
use crate::base::scratch;
use crate::base::walk::Walk;
use crate::interface::{Kernel, Source, Target};
use crate::simd::multiversion;
use crate::threads::Threads;

/// Elements of the matrix that are worth a task.
const TASK: usize = 1 << 16;

/// Most rows whose sums are kept while columns are added up: they stay in the first level of the cache.
const ROWS: usize = 1024;

/// Elements that are read at a time, where they have to be converted or gathered.
const CHUNK: usize = 512;

/// Sums side by side, of which a sum of products is made.
const LANES: usize = 32;

/// The kernel of products of matrices and vectors, one of each for each index of the batch.
pub(super) struct LineKernel<A: 'static> {
    pub(super) batch: Walk<2>,
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) matrix: Side<A>,
    pub(super) vector: Side<A>,
    /// Whether the vector is the left operand.
    pub(super) vector_first: bool,
    pub(super) writer: Writer<A>,
}

/// How the work is cut.
struct Cut {
    /// Rows of a task.
    rows: usize,
    /// Tasks for the rows of a matrix.
    blocks: usize,
    /// The length of a part of the contracted dimension.
    depth: usize,
    /// Tasks for the contracted dimension.
    parts: usize,
}

impl<A: Accumulator> LineKernel<A> {
    fn cut(&self) -> Cut {
        let rows = if self.matrix.is_contiguous_along_free() { ROWS } else { TASK / self.depth.max(1) };
        let rows = rows.clamp(1, self.rows.max(1));
        let blocks = self.rows.div_ceil(rows);
        let work = rows.saturating_mul(self.depth);
        let parts = if blocks * self.batch.len() >= MANY { 1 } else { work.div_ceil(TASK).clamp(1, 4 * MANY) };
        let depth = self.depth.div_ceil(parts).max(1);
        Cut { rows, blocks, depth, parts }
    }

    /// The products of some rows and of a part of the vector, summed.
    fn sums(
        &self,
        matrix: &Matrix<'_, A>,
        vector: &Matrix<'_, A>,
        rows: Range<usize>,
        part: Range<usize>,
        sums: &mut [A],
    ) {
        let (mut x, mut y) = ([A::default(); CHUNK], [A::default(); CHUNK]);
        sums.fill(A::default());
        for first in part.clone().step_by(CHUNK) {
            let depth = first..part.end.min(first + CHUNK);
            let x = vector.contracted_line(0, depth.clone(), &mut x);
            if self.matrix.is_contiguous_along_free() {
                for (j, &x) in depth.zip(x) {
                    for (from, sums) in rows.clone().step_by(CHUNK).zip(sums.chunks_mut(CHUNK)) {
                        let y = matrix.free_line(from..from + sums.len(), j, &mut y);
                        add_multiple(x, y, sums);
                    }
                }
            } else {
                for (i, sum) in rows.clone().zip(&mut *sums) {
                    *sum = sum.plus(dot(x, matrix.contracted_line(i, depth.clone(), &mut y)));
                }
            }
        }
    }
}

impl<A: Accumulator> Kernel for LineKernel<A> {
    fn scratch(&self, _: usize) -> usize {
        let cut = self.cut();
        self.batch.len() * cut.blocks * cut.parts * cut.rows * size_of::<A>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let cut = self.cut();
        let (matrices, block) = (self.batch.len(), cut.parts * cut.rows);
        let sums = scratch::of::<A>(scratch);
        // The operands in the order that this kernel has them.
        let (m, v) = if self.vector_first { (1, 0) } else { (0, 1) };
        threads.for_each_chunk(&mut sums[..matrices * cut.blocks * block], cut.rows, |task, sums| {
            let (i, part) = (task / cut.parts, task % cut.parts);
            let offsets = self.batch.offsets(i / cut.blocks);
            let (matrix, vector) = (self.matrix.matrix(ins[m], offsets[m]), self.vector.matrix(ins[v], offsets[v]));
            let first = i % cut.blocks * cut.rows;
            let rows = first..self.rows.min(first + cut.rows);
            let from = (part * cut.depth).min(self.depth);
            let part = from..self.depth.min(from + cut.depth);
            let sums = &mut sums[..rows.len()];
            self.sums(&matrix, &vector, rows, part, sums);
        });
        let all = Place::new(&mut outs[0]);
        threads.for_each_chunk(
            &mut sums[..matrices * cut.blocks * block],
            block * cut.blocks.min(TASK.div_ceil(block)),
            |task, sums| {
                let blocks = cut.blocks.min(TASK.div_ceil(block));
                for (i, sums) in sums.chunks_exact_mut(block).enumerate() {
                    let i = task * blocks + i;
                    let (sums, parts) = sums.split_at_mut(cut.rows);
                    for part in parts.chunks_exact(cut.rows) {
                        for (sum, &part) in sums.iter_mut().zip(part) {
                            *sum = sum.plus(part);
                        }
                    }
                    let first = i % cut.blocks * cut.rows;
                    let at = (i / cut.blocks * self.rows + first) * self.writer.dtype.size();
                    let sums = &sums[..cut.rows.min(self.rows - first)];
                    let place = all.at(at);
                    // SAFETY: these rows are the result's; one task writes them.
                    unsafe { self.writer.write(sums, place.0) };
                }
            },
        );
    }
}

multiversion! {
    /// Adds `a * x` to `y`.
    fn add_multiple<A: Accumulator>(a: A, x: &[A], y: &mut [A]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = y.multiply_add(a, x);
        }
    }
}

multiversion! {
    /// The sum of the products of two slices of one length.
    fn dot<A: Accumulator>(x: &[A], y: &[A]) -> A {
        let mut sums = [A::default(); LANES];
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        for (x, y) in x.iter().zip(y) {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum.multiply_add(x[i], y[i]);
            }
        }
        for (sum, (&x, &y)) in sums.iter_mut().zip(x_rest.iter().zip(y_rest)) {
            *sum = sum.multiply_add(x, y);
        }
        let mut n = LANES;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                sums[i] = sums[i].plus(sums[i + n]);
            }
        }
        sums[0]
    }
}
