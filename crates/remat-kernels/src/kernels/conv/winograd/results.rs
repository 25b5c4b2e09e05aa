//! Transforms sums of products to results, and writes them.

// Results are written through pointers, since those of the tasks interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{LANES, NUMBERS, TILES, Winograd, transform};
use crate::base::disjoint::DisjointMut;
use crate::base::product::MicroKernel;
use crate::base::scratch;
use crate::kernels::conv::row_segments;
use crate::simd::Level;

/// Elements of the results of a feature: two rows.
pub(super) const RESULTS: usize = 4 * TILES;

/// Elements of one number of the sums of a panel: out of the cache's sets of the others.
pub(super) fn pitch(kernel: &MicroKernel<f32>) -> usize {
    kernel.rows * TILES + LANES
}

/// Elements of the sums of a panel.
pub(super) fn sums(kernel: &MicroKernel<f32>) -> usize {
    NUMBERS * pitch(kernel)
}

/// Bytes of scratch memory for sums and results.
pub(super) fn scratch(kernel: &MicroKernel<f32>) -> usize {
    scratch::bytes::<f32>(sums(kernel)) + scratch::bytes::<f32>(kernel.rows * RESULTS)
}

impl Winograd {
    /// Writes the results of some features (`rows`) and tiles.
    ///
    /// # Safety
    /// No other task writes them. `all` are the bytes of the output.
    pub(super) unsafe fn write_results(
        &self,
        rows: Range<usize>,
        tiles: Range<usize>,
        sums: &[f32],
        results: &mut [f32],
        all: &DisjointMut<'_, u8>,
    ) {
        let results = &mut results[..rows.len() * RESULTS];
        transform::results(sums, pitch(self.kernel), results);
        let copy = row_segments::copy::<f32>(Level::best());
        let [height, width] = [self.tiles.rows.positions, self.tiles.columns.positions];
        for run in self.tiles.runs(tiles) {
            let len = (2 * run.len).min(width - 2 * run.column);
            for i in 0..2.min(height - 2 * run.row) {
                let places = [run.image, rows.start, 2 * run.row + i, 2 * run.column];
                let first: usize = places.iter().zip(&self.strides).map(|(place, stride)| place * stride).sum();
                let from = results[i * 2 * TILES + 2 * run.at..].as_ptr();
                // SAFETY: the rows of the results are as long as a block has tiles, and the rows of the output as the run; no other task
                // writes them, as the caller promises.
                unsafe {
                    let to = all.at(first * size_of::<f32>()).cast::<f32>();
                    let to_strides = [self.strides[1] as isize, self.strides[3] as isize];
                    copy([rows.len(), len], from, [RESULTS as isize, 1], to, to_strides);
                }
            }
        }
    }
}
