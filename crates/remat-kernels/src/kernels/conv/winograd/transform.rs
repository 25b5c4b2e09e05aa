//! The transformations of F(2x2, 3x3) and F(3x3, 2x2), lane by lane.
//!
//! Numbers of a lane are independent of those of the others, so that the compiler makes vectors of the loops. Where the numbers go to places
//! of which it does not know that they differ, they go through an array.

// Lanes are read and written through pointers, since checks in the loops would keep them from becoming vectors.
#![allow(unsafe_code)]

use super::gradient::WIDTH;
use super::image::JOINED;
use super::results::RESULTS;
use super::{LANES, NUMBERS, TILES, WINDOW};
use crate::simd::multiversion;

/// The transformation of three elements of a window: the matrix `G`.
#[inline(always)]
pub(super) fn of_window([a, b, c]: [f32; 3]) -> [f32; 4] {
    let (ends, middle) = (0.5 * (a + c), 0.5 * b);
    [a, ends + middle, ends - middle, c]
}

/// The transformation of four elements of the image: the matrix `B` transposed.
#[inline(always)]
fn of_image([a, b, c, d]: [f32; 4]) -> [f32; 4] {
    [a - c, b + c, c - b, b - d]
}

/// The transformation of four sums to two results: the matrix `A` transposed.
#[inline(always)]
pub(super) fn of_sums([a, b, c, d]: [f32; 4]) -> [f32; 2] {
    [a + b + c, b - c - d]
}

/// The transformation of two elements of a window of two.
#[inline(always)]
pub(super) fn of_pair([a, b]: [f32; 2]) -> [f32; 4] {
    let (first, second) = (0.5 * a, 0.5 * b);
    [a, first + second, first - second, b]
}

/// The transformation of four sums to the three results of a window of two.
#[inline(always)]
pub(super) fn of_pair_sums([a, b, c, d]: [f32; 4]) -> [f32; 3] {
    [a + b + c, b - c, b + c - d]
}

/// How often rounding errors of a tile and a window are amplified in one dimension: the largest sum of absolute factors between a result and
/// an element of the window, with the largest element of the tile.
#[cfg(test)]
pub(super) fn amplification<const ELEMENTS: usize, const OUTS: usize>(
    of_window: fn([f32; ELEMENTS]) -> [f32; 4],
    of_sums: fn([f32; 4]) -> [f32; OUTS],
) -> f32 {
    fn unit<const N: usize>(i: usize) -> [f32; N] {
        std::array::from_fn(|j| f32::from(u8::from(i == j)))
    }
    let of_tile = |k: usize| (0..4).map(|i| of_image(unit(i))[k].abs()).sum::<f32>();
    let of_element = |result: usize, i: usize| {
        (0..4).map(|k| of_sums(unit(k))[result].abs() * of_window(unit(i))[k].abs() * of_tile(k)).sum::<f32>()
    };
    (0..OUTS).flat_map(|result| (0..ELEMENTS).map(move |i| of_element(result, i))).fold(0.0, f32::max)
}

multiversion! {
    /// Transforms windows that are packed: for each feature, nine vectors of output features. Number `k` of feature `i` goes to
    /// `k * pitch + i * height`. A vector is written even where the panel has fewer rows than it has lanes.
    pub(super) fn windows(packed: &[f32], to: &mut [f32], height: usize, pitch: usize) {
        for (i, window) in packed.as_chunks::<{ WINDOW * LANES }>().0.iter().enumerate() {
            let mut numbers = [[0.0; LANES]; NUMBERS];
            for lane in 0..LANES {
                let element = |y: usize, x: usize| window[(3 * y + x) * LANES + lane];
                let column = |x: usize| of_window([element(0, x), element(1, x), element(2, x)]);
                let columns = [column(0), column(1), column(2)];
                for y in 0..4 {
                    let row = of_window([columns[0][y], columns[1][y], columns[2][y]]);
                    for (x, number) in row.into_iter().enumerate() {
                        numbers[4 * y + x][lane] = number;
                    }
                }
            }
            for (k, numbers) in numbers.iter().enumerate() {
                to[k * pitch + i * height..][..LANES].copy_from_slice(numbers);
            }
        }
    }
}

multiversion! {
    /// Transforms the copied rows of a run of tiles along the columns: for each feature, four rows with two elements for each tile and two
    /// more. Number `k` of row `i` of a feature goes to `at` of joined row `4 * i + k` of the feature. Whole vectors are read and written.
    pub(super) fn image_columns(band: &[f32], row: usize, tiles: usize, at: usize, joined: &mut [f32]) {
        let lanes = tiles.next_multiple_of(LANES);
        assert!(2 * lanes + 2 <= row && at + lanes <= JOINED);
        for (row, joined) in band.chunks_exact(row).zip(joined.as_chunks_mut::<{ 4 * JOINED }>().0) {
            for lane in 0..lanes {
                // SAFETY: the row has two elements for each lane and two more, and each joined row as many from `at` on (checked).
                unsafe {
                    let element = |i: usize| *row.get_unchecked(2 * lane + i);
                    let numbers = of_image([element(0), element(1), element(2), element(3)]);
                    for (k, number) in numbers.into_iter().enumerate() {
                        *joined.get_unchecked_mut(k * JOINED + at + lane) = number;
                    }
                }
            }
        }
    }
}

multiversion! {
    /// Transforms the joined rows of some features along the rows. Number `k` of feature `i` goes to `k * pitch + i * TILES`.
    pub(super) fn image_rows(joined: &[f32], to: &mut [f32], pitch: usize) {
        for (i, joined) in joined.as_chunks::<{ NUMBERS * JOINED }>().0.iter().enumerate() {
            let mut numbers = [[0.0; TILES]; NUMBERS];
            for lane in 0..TILES {
                for x in 0..4 {
                    let element = |y: usize| joined[(4 * y + x) * JOINED + lane];
                    let column = of_image([element(0), element(1), element(2), element(3)]);
                    for (y, number) in column.into_iter().enumerate() {
                        numbers[4 * y + x][lane] = number;
                    }
                }
            }
            for (k, numbers) in numbers.iter().enumerate() {
                to[k * pitch + i * TILES..][..TILES].copy_from_slice(numbers);
            }
        }
    }
}

multiversion! {
    /// Transforms the sums of some features to results: for each feature two rows with two elements for each tile.
    pub(super) fn results(sums: &[f32], pitch: usize, results: &mut [f32]) {
        for (i, results) in results.as_chunks_mut::<RESULTS>().0.iter_mut().enumerate() {
            let sums = &sums[i * TILES..];
            assert!((NUMBERS - 1) * pitch + TILES <= sums.len());
            for lane in 0..TILES {
                // SAFETY: all numbers have a lane for each tile (checked).
                let number = |y: usize, x: usize| unsafe { *sums.get_unchecked((4 * y + x) * pitch + lane) };
                let column = |x: usize| of_sums([number(0, x), number(1, x), number(2, x), number(3, x)]);
                let columns = [column(0), column(1), column(2), column(3)];
                for y in 0..2 {
                    let [even, odd] = of_sums([columns[0][y], columns[1][y], columns[2][y], columns[3][y]]);
                    (results[y * 2 * TILES + 2 * lane], results[y * 2 * TILES + 2 * lane + 1]) = (even, odd);
                }
            }
        }
    }
}

multiversion! {
    /// Transforms windows of 2x2 of [`WIDTH`] neighbouring features. Both rows of windows have two columns for each tile of a block. Number
    /// `k` of window `i` goes to `k * pitch + i * WIDTH`.
    pub(super) fn pairs(rows: &[f32], windows: usize, to: &mut [f32], pitch: usize) {
        for i in 0..windows {
            for first in (0..WIDTH).step_by(LANES) {
                let element = |y: usize, x: usize| -> &[f32; LANES] {
                    let at = ((y * TILES + i) * 2 + x) * WIDTH + first;
                    rows[at..].first_chunk().expect("whole vectors are read")
                };
                let elements = [[element(0, 0), element(0, 1)], [element(1, 0), element(1, 1)]];
                let mut numbers = [[0.0; LANES]; NUMBERS];
                for lane in 0..LANES {
                    let column = |x: usize| of_pair([elements[0][x][lane], elements[1][x][lane]]);
                    let columns = [column(0), column(1)];
                    for y in 0..4 {
                        for (x, number) in of_pair([columns[0][y], columns[1][y]]).into_iter().enumerate() {
                            numbers[4 * y + x][lane] = number;
                        }
                    }
                }
                for (k, numbers) in numbers.iter().enumerate() {
                    to[k * pitch + i * WIDTH + first..][..LANES].copy_from_slice(numbers);
                }
            }
        }
    }
}

multiversion! {
    /// Adds up the parts of the sums of some features, and transforms them to windows of 3x3. `sums` has, for each part, which are `part`
    /// apart, the numbers, which are `pitch` apart.
    pub(super) fn pair_results(sums: &[f32], parts: usize, part: usize, pitch: usize, results: &mut [[f32; LANES]; WINDOW]) {
        let mut numbers = [[0.0; LANES]; NUMBERS];
        for i in 0..parts {
            for (k, numbers) in numbers.iter_mut().enumerate() {
                for (number, &x) in numbers.iter_mut().zip(&sums[i * part + k * pitch..][..LANES]) {
                    *number += x;
                }
            }
        }
        for lane in 0..LANES {
            let number = |y: usize, x: usize| numbers[4 * y + x][lane];
            let column = |x: usize| of_pair_sums([number(0, x), number(1, x), number(2, x), number(3, x)]);
            let columns = [column(0), column(1), column(2), column(3)];
            for y in 0..3 {
                let row = of_pair_sums([columns[0][y], columns[1][y], columns[2][y], columns[3][y]]);
                for (x, result) in row.into_iter().enumerate() {
                    results[3 * y + x][lane] = result;
                }
            }
        }
    }
}
