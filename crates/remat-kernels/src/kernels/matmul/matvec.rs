//! Products of a matrix and a vector, and of two vectors.
//!
//! Each element of the matrix is used once, so that packing it would cost more than the product. It is read in the order in
//! which it lies in memory, row by row or column by column, and both ways give the same bits: a sum runs over chunks of the
//! contracted axis, and in a chunk over [`LANES`] lanes, each of which takes every element whose position is its own modulo
//! their number. A row keeps its lanes side by side in registers; of columns, those of one lane are added up for many rows at
//! once, and then the lanes are. A long contracted axis is cut; the sums of the pieces are added in order. So the order of a sum
//! depends on the length of the contracted axis alone.

// Results are written by several threads, through pointers.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Side;
use super::element::Writer;
use super::matrix::Matrix;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::scratch;
use crate::base::strided::StridedIter;
use crate::interface::{Kernel, Source, Target};
use crate::simd::multiversion;
use crate::threads::Threads;

/// Elements of the matrix that are worth a task.
const TASK: usize = 1 << 16;

/// Fewest and most rows of a task that reads columns, so that a column is read in long runs.
const ROWS: [usize; 2] = [128, 1024];

/// Elements of the contracted axis that lanes go through before they become one sum.
const CHUNK: usize = 512;

/// Sums side by side, which become one sum in pairs: those of the first half are added to those of the second, again and again.
const LANES: usize = 32;

/// The sums of lanes that wait for their other half at a time.
const HALVES: usize = LANES.ilog2() as usize + 1;

/// Columns that are added up at a time, so that sums are read and written less often.
const COLUMNS: usize = 4;

/// Most rows whose columns are added up at a time, if a task has many or few of them.
const MANY_ROWS: usize = 1024;
const FEW_ROWS: usize = 64;

/// Most bytes of the sums of one lane, so that all that wait stay in the first-level cache.
const SUMS_BYTES: usize = 4096;

/// The kernel of products of matrices and vectors, one of each for each index of the batch.
pub(super) struct MatvecKernel<A: 'static> {
    pub(super) batch: StridedIter<2>,
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

impl<A: Accumulator> MatvecKernel<A> {
    /// The cut for a run on `threads` threads.
    fn cut(&self, threads: usize) -> Cut {
        // Sums depend on where the contracted axis is cut, so that this depends on its length alone.
        let parts = self.depth.div_ceil(TASK).max(1);
        let depth = self.depth.div_ceil(parts).max(1);
        let rows = if self.matrix.is_contiguous_along_free() {
            (self.batch.len() * parts * self.rows).div_ceil(2 * threads).clamp(ROWS[0], ROWS[1])
        } else {
            TASK / depth
        };
        let rows = rows.clamp(1, self.rows.max(1));
        Cut { rows, blocks: self.rows.div_ceil(rows), depth, parts }
    }

    /// Sums the products of some rows with a part of the vector.
    fn sums(
        &self,
        matrix: &Matrix<'_, A>,
        vector: &Matrix<'_, A>,
        rows: Range<usize>,
        part: Range<usize>,
        sums: &mut [A],
    ) {
        sums.fill(A::default());
        match rows.len() {
            _ if !self.matrix.is_contiguous_along_free() => by_rows(matrix, vector, rows, part, sums),
            0..=FEW_ROWS => Columns::<A, FEW_ROWS>::new(matrix, vector).sums(rows, part, sums),
            _ => Columns::<A, MANY_ROWS>::new(matrix, vector).sums(rows, part, sums),
        }
    }
}

/// The pieces of a part of the contracted axis of which each has its own lanes.
fn chunks(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    part.clone().step_by(CHUNK).map(move |first| first..part.end.min(first + CHUNK))
}

/// Sums the products of rows with a part of a vector, row by row.
fn by_rows<A: Accumulator>(
    matrix: &Matrix<'_, A>,
    vector: &Matrix<'_, A>,
    rows: Range<usize>,
    part: Range<usize>,
    sums: &mut [A],
) {
    let (mut x, mut y) = ([A::default(); CHUNK], [A::default(); CHUNK]);
    for chunk in chunks(part) {
        let x = vector.row(0, chunk.clone(), &mut x);
        for (i, sum) in rows.clone().zip(&mut *sums) {
            *sum = sum.plus(dot(x, matrix.row(i, chunk.clone(), &mut y)));
        }
    }
}

/// A matrix and a vector whose products are summed column by column, for at most `N` rows at a time.
struct Columns<'a, A, const N: usize> {
    matrix: &'a Matrix<'a, A>,
    vector: &'a Matrix<'a, A>,
    /// Elements of the vector and of columns that have to be converted or gathered.
    x: [A; CHUNK],
    y: [[A; N]; COLUMNS],
    /// Sums of lanes that wait for their other half.
    halves: [[A; N]; HALVES],
}

impl<'a, A: Accumulator, const N: usize> Columns<'a, A, N> {
    fn new(matrix: &'a Matrix<'a, A>, vector: &'a Matrix<'a, A>) -> Self {
        let zero = A::default();
        Columns { matrix, vector, x: [zero; CHUNK], y: [[zero; N]; COLUMNS], halves: [[zero; N]; HALVES] }
    }

    fn sums(&mut self, rows: Range<usize>, part: Range<usize>, sums: &mut [A]) {
        let Columns { matrix, vector, x, y, halves } = self;
        let most = N.min(SUMS_BYTES / size_of::<A>());
        for chunk in chunks(part) {
            let x = vector.row(0, chunk.clone(), x);
            for (first, sums) in rows.clone().step_by(most).zip(sums.chunks_mut(most)) {
                let rows = first..first + sums.len();
                // The sums of one lane.
                let mut lane = |lane: usize, sums: &mut [A]| {
                    sums.fill(A::default());
                    let mut j = lane;
                    while j + (COLUMNS - 1) * LANES < x.len() {
                        let columns = y.each_mut().map(|y| {
                            let column = (x[j], matrix.column(rows.clone(), chunk.start + j, y));
                            j += LANES;
                            column
                        });
                        add_multiples(columns, sums);
                    }
                    for j in (j..x.len()).step_by(LANES) {
                        add_multiple(x[j], matrix.column(rows.clone(), chunk.start + j, &mut y[0]), sums);
                    }
                };
                tree(0, 1, x.len(), halves, rows.len(), &mut lane);
                add(&halves[0][..sums.len()], sums);
            }
        }
    }
}

/// The sums of the lanes below `count` that are `first` modulo `step`, in pairs, to the first of `halves`. `lane` gives those of
/// one lane. Lanes that have no elements are zero, and to add them changes nothing.
fn tree<A: Accumulator, const N: usize>(
    first: usize,
    step: usize,
    count: usize,
    halves: &mut [[A; N]],
    rows: usize,
    lane: &mut impl FnMut(usize, &mut [A]),
) {
    if step >= LANES || first + step >= count {
        return lane(first, &mut halves[0][..rows]);
    }
    tree(first, 2 * step, count, halves, rows, lane);
    tree(first + step, 2 * step, count, &mut halves[1..], rows, lane);
    let (sums, others) = halves.split_at_mut(1);
    add(&others[0][..rows], &mut sums[0][..rows]);
}

impl<A: Accumulator> Kernel for MatvecKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        let cut = self.cut(threads);
        self.batch.len() * cut.blocks * cut.parts * cut.rows * size_of::<A>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let cut = self.cut(threads.count());
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
        let all = DisjointMut::bytes(&mut outs[0]);
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
                    let to = all.at(at);
                    // SAFETY: these rows are the result's; one task writes them.
                    unsafe { self.writer.write(sums, to) };
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
    /// Adds `a * x` to `y` for each `(a, x)`, one after the other.
    fn add_multiples<A: Accumulator>(multiples: [(A, &[A]); COLUMNS], y: &mut [A]) {
        let n = y.len();
        let multiples = multiples.map(|(a, x)| (a, &x[..n]));
        for (i, y) in y.iter_mut().enumerate() {
            for (a, x) in multiples {
                *y = y.multiply_add(a, x[i]);
            }
        }
    }
}

multiversion! {
    /// Adds `x` to `y`.
    fn add<A: Accumulator>(x: &[A], y: &mut [A]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = y.plus(x);
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
