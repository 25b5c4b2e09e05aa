//! Substitution for several columns of unknowns side by side, and the subtraction of products within it.

use crate::base::product::Float;
use crate::number::Number;
use crate::simd::multiversion;

/// Columns that are computed side by side. They are packed: the elements of a row are neighbours, and rows are consecutive.
pub(super) const COLUMNS: usize = 16;

/// Rows that are computed side by side. Together with their columns they fit in the registers.
pub(super) const ROWS: usize = 4;

/// A matrix of factors. The element in row `i` and column `k` is number `start + i * row + k * column`.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a, T> {
    pub(super) elements: &'a [T],
    pub(super) start: usize,
    pub(super) row: isize,
    pub(super) column: isize,
}

impl<T: Number> Factors<'_, T> {
    #[inline(always)]
    fn at(&self, i: usize, k: usize) -> T::Wide {
        let offset = i as isize * self.row + k as isize * self.column;
        self.elements[self.start.wrapping_add_signed(offset)].widen()
    }
}

/// Rows of a tile.
pub(super) type Sums<W> = [[W; COLUMNS]; ROWS];

/// Subtracts from each row of a tile the rows of `x`, one after the other, times the row's factors. `rows` are row indices of the factors
/// and may repeat.
#[inline(always)]
fn subtract<T: Float>(factors: &Factors<'_, T>, rows: [usize; ROWS], x: &[T::Wide], sums: &mut Sums<T::Wide>) {
    let mut local = *sums;
    for (k, x) in x.chunks_exact(COLUMNS).enumerate() {
        for (sum, &row) in local.iter_mut().zip(&rows) {
            let factor = factors.at(row, k);
            for (sum, &x) in sum.iter_mut().zip(x) {
                *sum = *sum - factor * x;
            }
        }
    }
    *sums = local;
}

multiversion! {
    /// As [`subtract`], for the first `rows` rows of the factors.
    pub(super) fn subtract_rows<T: Float>(factors: Factors<'_, T>, rows: usize, x: &[T::Wide], sums: &mut Sums<T::Wide>) {
        subtract(&factors, [0, 1, 2, 3].map(|i: usize| i.min(rows - 1)), x, sums);
    }
}

multiversion! {
    /// Solves a lower triangular system for each column of a panel, in place. The triangle has as many rows as the panel.
    pub(super) fn substitute<T: Float>(triangle: Factors<'_, T>, unit_diagonal: bool, panel: &mut [T::Wide]) {
        let n = panel.len() / COLUMNS;
        for first in (0..n).step_by(ROWS) {
            let (solved, rest) = panel.split_at_mut(first * COLUMNS);
            let mut sums = [[T::Wide::default(); COLUMNS]; ROWS];
            for (sum, row) in sums.iter_mut().zip(rest.chunks_exact(COLUMNS)) {
                sum.copy_from_slice(row);
            }
            // Rows beyond the last are computed and not used.
            subtract(&triangle, [0, 1, 2, 3].map(|i: usize| (first + i).min(n - 1)), solved, &mut sums);
            for i in 0..ROWS.min(n - first) {
                let (solved, current) = sums.split_at_mut(i);
                for (k, solved) in solved.iter().enumerate() {
                    let factor = triangle.at(first + i, first + k);
                    for (sum, &x) in current[0].iter_mut().zip(solved) {
                        *sum = *sum - factor * x;
                    }
                }
                if !unit_diagonal {
                    let diagonal = triangle.at(first + i, first + i);
                    current[0].iter_mut().for_each(|sum| *sum = *sum / diagonal);
                }
            }
            for (sum, row) in sums.iter().zip(rest.chunks_exact_mut(COLUMNS)) {
                row.copy_from_slice(sum);
            }
        }
    }
}
