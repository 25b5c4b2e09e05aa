//! Transforms a block of tiles of the image.
//!
//! The rows of each run of tiles are copied, with the zeros around them, for some features at a time. Rows are transformed along the
//! columns and joined run after run, so that the transformation along the rows has full vectors of tiles.

use std::ops::Range;

use super::{LANES, NUMBERS, TILES, Winograd, transform};
use crate::base::scratch;
use crate::kernels::conv::row_segments::{RowSegments, copy_segments, part_inside};
use crate::kernels::matmul::Elements;

/// Features that are transformed at a time, so that they stay in the first-level cache.
const FEATURES: usize = 8;

/// Elements of the copied row of a run, from which whole vectors are read.
const ROW: usize = 2 * TILES + LANES;

/// Elements of one number of the joined runs, to which whole vectors are written.
pub(super) const JOINED: usize = TILES + LANES;

/// Bytes of scratch memory.
pub(super) fn scratch() -> usize {
    scratch::bytes::<f32>(4 * FEATURES * ROW) + scratch::bytes::<f32>(FEATURES * NUMBERS * JOINED)
}

impl Winograd {
    /// Transforms some tiles of all features. Number `k` of tile `j` of feature `i` goes to `k * pitch + i * TILES + j`.
    pub(super) fn transform_image(&self, image: &[f32], tiles: Range<usize>, to: &mut [f32], scratch: &mut [u8]) {
        let (band, scratch) = scratch::take::<f32>(scratch, 4 * FEATURES * ROW);
        let joined = scratch::take::<f32>(scratch, FEATURES * NUMBERS * JOINED).0;
        let elements = Elements::Numbers(image);
        for first in (0..self.features[0]).step_by(FEATURES) {
            let count = FEATURES.min(self.features[0] - first);
            for run in self.runs(tiles.clone()) {
                let x = self.columns.first(2 * run.column);
                let len = 2 * run.len + 2;
                let inside = part_inside(x, 1, self.columns.image, len);
                for i in 0..4 {
                    let y = self.rows.first(2 * run.row) + i as i64;
                    let is_inside = (0..self.rows.image as i64).contains(&y);
                    let at = self.start + run.image as isize * self.strides[0] + first as isize * self.strides[1];
                    let segments = RowSegments {
                        at: at
                            .wrapping_add((y as isize).wrapping_mul(self.rows.element))
                            .wrapping_add((x as isize).wrapping_mul(self.columns.element)),
                        strides: [self.strides[1], self.columns.element],
                        count,
                        len,
                        to: i * ROW,
                        to_strides: [4 * ROW, 1],
                        segments: if is_inside { 0..count } else { 0..0 },
                        inside: inside.clone(),
                        shared: None,
                    };
                    copy_segments(&elements, &segments, band);
                }
                transform::image_columns(&band[..count * 4 * ROW], ROW, run.len, run.at, joined);
            }
            let to = &mut to[first * TILES..];
            transform::image_rows(&joined[..count * NUMBERS * JOINED], to, self.pitches()[1]);
        }
    }
}
