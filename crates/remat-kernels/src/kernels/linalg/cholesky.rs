//! Cholesky factors, by blocks of columns (the right-looking algorithm: Golub and Van Loan, Matrix Computations, 4.2.6).
//!
//! The triangle of a diagonal block is factored element by element. The rows below are solved with it and packed into tiles, and the
//! products of these tiles are subtracted from the trailing matrix.

use std::cmp::Ordering;
use std::ops::Range;

use remat_ir::{Aval, DType};

use super::tile::{COLUMNS, Factors, ROWS, substitute, subtract_rows};
use crate::base::product::{Accumulator, Float};
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::number::{Real, with_float};
use crate::threads::Threads;

/// The kernel that factors row-major matrices.
pub(crate) fn kernel(ins: &[Aval]) -> Box<dyn Kernel> {
    Box::new(Factor { dtype: ins[0].dtype, n: ins[0].shape.last().copied().unwrap_or(1) })
}

struct Factor {
    dtype: DType,
    n: usize,
}

/// Columns of a block.
const BLOCK: usize = 32;

/// Larger matrices are factored one by one, each by all threads. Of smaller ones, each thread factors its own.
const LARGE: usize = 256;

/// The fewest products that a task subtracts, if there are that many.
const TASK: usize = 1 << 17;

impl Kernel for Factor {
    fn scratch(&self, threads: usize) -> usize {
        let matrices = if self.n > LARGE { 1 } else { threads };
        matrices * self.elements() * self.dtype.wide().size()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_float!(self.dtype, T => self.factor::<T>(ins, outs, scratch, threads));
    }
}

impl Factor {
    /// Elements of scratch memory for one matrix: the tiles of a block, and a copy of the matrix if it is computed in another type.
    fn elements(&self) -> usize {
        let matrix = if self.dtype.size() < size_of::<f32>() { self.n * self.n } else { 0 };
        matrix + self.n.saturating_sub(BLOCK).next_multiple_of(COLUMNS) * BLOCK
    }

    fn factor<T: Float>(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (out, scratch) = (outs[0].slice_mut::<T>(), scratch::of::<T::Wide>(scratch));
        if out.is_empty() {
            return;
        }
        if !ins[0].is_in_place() {
            out.copy_from_slice(ins[0].slice::<T>());
        }
        let size = self.n * self.n;
        if self.n > LARGE {
            out.chunks_mut(size).for_each(|matrix| self.factor_one(matrix, scratch, threads));
            return;
        }
        let group = TASK.div_ceil(size * self.n);
        let tasks = out.len().div_ceil(group * size);
        threads.for_each_item_with_scratch(tasks, out.chunks_mut(group * size), scratch, |matrices, scratch| {
            matrices.chunks_mut(size).for_each(|matrix| self.factor_one(matrix, scratch, &Threads::SERIAL));
        });
    }

    /// Replaces a matrix by its factor.
    fn factor_one<T: Float>(&self, matrix: &mut [T], scratch: &mut [T::Wide], threads: &Threads) {
        let n = self.n;
        let is_definite = match T::as_wide(matrix) {
            Some(matrix) => factor(matrix, n, scratch, threads),
            None => {
                let (wide, tiles) = scratch.split_at_mut(n * n);
                wide.iter_mut().zip(&*matrix).for_each(|(wide, x)| *wide = x.widen());
                let is_definite = factor(wide, n, tiles, threads);
                matrix.iter_mut().zip(wide).for_each(|(x, wide)| *x = T::narrow(*wide));
                is_definite
            }
        };
        for (i, row) in matrix.chunks_mut(n).enumerate() {
            let (lower, upper) = row.split_at_mut(i + 1);
            if !is_definite {
                lower.fill(T::narrow(T::Wide::NAN));
            }
            upper.fill(T::default());
        }
    }
}

/// Replaces the lower triangle of a matrix by its factor. Returns false if it has none; the content of the matrix is then unspecified, as
/// is always the part above the diagonal.
fn factor<W: Real + Accumulator>(matrix: &mut [W], n: usize, scratch: &mut [W], threads: &Threads) -> bool {
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        let width = end - start;
        let (above, below) = matrix.split_at_mut(end * n);
        let block = &mut above[start * n..];
        if !factor_block(block, n, start..end) {
            return false;
        }
        let triangle = Factors { elements: &*block, start, row: n as isize, column: 1 };
        let rows = n - end;
        let tiles = &mut scratch[..rows.next_multiple_of(COLUMNS) * width];
        // A tile has the elements of some rows below the block; each row is a column of the tile.
        let tile = COLUMNS * width;
        let solve = |tile: &mut [W], rows: &mut [W]| {
            for (k, packed) in tile.chunks_exact_mut(COLUMNS).enumerate() {
                packed.fill(W::default());
                packed.iter_mut().zip(rows.chunks(n)).for_each(|(x, row)| *x = row[start + k]);
            }
            substitute(triangle, false, tile);
            for (k, packed) in tile.chunks_exact(COLUMNS).enumerate() {
                rows.chunks_mut(n).zip(packed).for_each(|(row, &x)| row[start + k] = x);
            }
        };
        let items = tiles.chunks_mut(tile).zip(below.chunks_mut(COLUMNS * n));
        threads.for_each_item(rows.div_ceil(COLUMNS), items, |(tile, rows)| solve(tile, rows));
        // The trailing matrix, up to the diagonal.
        let tiles = &*tiles;
        let group = TASK.div_ceil(rows.max(1) * width).next_multiple_of(ROWS);
        threads.for_each_chunk(below, group * n, |task, rows| {
            for (number, rows) in rows.chunks_mut(ROWS * n).enumerate() {
                let last = task * group + number * ROWS + rows.len() / n;
                for (t, tile) in tiles.chunks_exact(tile).enumerate().take(last.div_ceil(COLUMNS)) {
                    let columns = end + t * COLUMNS..n.min(end + (t + 1) * COLUMNS);
                    let mut sums = [[W::default(); COLUMNS]; ROWS];
                    for (sum, row) in sums.iter_mut().zip(rows.chunks(n)) {
                        sum[..columns.len()].copy_from_slice(&row[columns.clone()]);
                    }
                    let factors = Factors { elements: &*rows, start, row: n as isize, column: 1 };
                    subtract_rows(factors, rows.len() / n, tile, &mut sums);
                    for (sum, row) in sums.iter().zip(rows.chunks_mut(n)) {
                        row[columns.clone()].copy_from_slice(&sum[..columns.len()]);
                    }
                }
            }
        });
    }
    true
}

/// Factors the triangle in these columns of the rows of a block. Returns false if a pivot is not positive, or NaN.
fn factor_block<W: Real + Accumulator>(rows: &mut [W], n: usize, columns: Range<usize>) -> bool {
    for i in 0..columns.len() {
        let (above, current) = rows.split_at_mut(i * n);
        let row = &mut current[columns.clone()];
        for (j, other) in above.chunks(n).enumerate() {
            let other = &other[columns.clone()];
            let products = row[..j].iter().zip(other).map(|(&x, &y)| x * y);
            row[j] = products.fold(row[j], |rest, product| rest - product) / other[j];
        }
        let pivot = row[..i].iter().fold(row[i], |rest, &x| rest - x * x);
        // NaN is not positive.
        if !matches!(pivot.partial_cmp(&W::default()), Some(Ordering::Greater)) {
            return false;
        }
        row[i] = pivot.sqrt();
    }
    true
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Cholesky, Element, Literal, Op, with_dtype};

    use super::*;
    use crate::test_support::{Stream, check, wild};

    const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

    /// Matrices with a large diagonal, which are positive definite. The part above the diagonal is not read.
    fn definite(dtype: DType, batch: usize, n: usize) -> Array {
        let mut stream = Stream::new(7);
        let mut element = |at: usize| {
            let x = stream.below(1 << 20) as f64 / (1 << 19) as f64 - 1.0;
            match (at / n % n).cmp(&(at % n)) {
                Ordering::Less => f64::NAN,
                Ordering::Equal => 2.0 * n as f64 + x,
                Ordering::Greater => x,
            }
        };
        with_dtype!(dtype, T => {
            let literals = (0..batch * n * n).map(|at| Literal::from_f64(dtype, element(at)));
            let elements = literals.map(|l| T::from_literal(l).expect("the dtype")).collect();
            Array::from_vec::<T>(elements, [batch, n, n]).expect("as many elements as the shape has")
        })
    }

    #[test]
    fn matrices_of_every_dtype_are_factored() {
        for dtype in FLOATS {
            for (batch, n) in [(1, 1), (3, 4), (2, 31), (1, 32), (3, 33), (1, 67), (2, 100), (1, 270)] {
                let a = definite(dtype, batch, n);
                factored(&a);
            }
        }
    }

    #[test]
    fn matrices_that_are_not_positive_definite_and_empty_ones_are_factored() {
        for dtype in FLOATS {
            for shape in [&[2, 5, 5][..], &[1, 70, 70], &[0, 3, 3], &[2, 0, 0], &[0, 0]] {
                factored(&wild(dtype, shape, 3));
            }
        }
    }

    #[test]
    fn many_small_matrices_are_shared_among_threads() {
        factored(&definite(DType::F32, 3000, 5));
    }

    fn factored(a: &Array) {
        check(&Op::from(Cholesky), |ins, _| kernel(ins), std::slice::from_ref(a));
    }
}
