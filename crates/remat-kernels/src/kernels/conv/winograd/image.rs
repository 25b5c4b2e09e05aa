//! The tiles of a convolution, and the transformation of a block of them in the image.
//!
//! The rows of each run of tiles are copied, with the zeros around them, for some features at a time. Rows are transformed along the
//! columns and joined run after run, so that the transformation along the rows has full vectors of tiles.

use std::ops::Range;

use remat_ir::{Aval, Conv};

use super::{LANES, NUMBERS, TILES, transform};
use crate::base::scratch;
use crate::interface::layout::Layout;
use crate::kernels::conv::direct::Along;
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

/// Neighbouring tiles of a row, in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) image: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    /// The first one's place in the block.
    pub(super) at: usize,
    pub(super) len: usize,
}

/// The tiles of some images. Tile `i, j` begins at row `2 * i` and column `2 * j` of the padded image.
pub(super) struct Tiles {
    /// The first element of the images, and the strides of images and features.
    start: isize,
    strides: [isize; 2],
    images: usize,
    pub(super) rows: Along,
    pub(super) columns: Along,
    /// Rows and columns of the tiles of an image.
    tiles: [usize; 2],
}

impl Tiles {
    /// The tiles of this many rows and columns of 2x2 elements. `dims` are the dimensions of images and features. `None` if elements are too
    /// far apart for offsets.
    pub(super) fn new(
        op: &Conv,
        [image, weights]: [&Layout; 2],
        out: &Aval,
        dims: [usize; 2],
        tiled: fn(&Along) -> usize,
    ) -> Option<Tiles> {
        let [rows, columns] = Along::both(op, image, weights, out)?;
        Some(Tiles {
            start: image.offset as isize,
            strides: dims.map(|d| image.strides[d]),
            images: image.shape[dims[0]],
            tiles: [&rows, &columns].map(|along| tiled(along).div_ceil(2)),
            rows,
            columns,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
    }

    /// The runs of neighbours among some tiles.
    pub(super) fn runs(&self, tiles: Range<usize>) -> impl Iterator<Item = Run> {
        let [rows, columns] = self.tiles;
        let mut next = tiles.start;
        std::iter::from_fn(move || {
            let (row, column) = (next / columns, next % columns);
            let len = (columns - column).min(tiles.end - next);
            let run = Run { image: row / rows, row: row % rows, column, at: next - tiles.start, len };
            next += len;
            (len > 0).then_some(run)
        })
    }

    /// Transforms some tiles of some features. Number `k` of tile `j` of feature `i` goes to `k * pitch + i * TILES + j`.
    pub(super) fn transform(
        &self,
        image: &[f32],
        features: Range<usize>,
        tiles: Range<usize>,
        (to, pitch): (&mut [f32], usize),
        scratch: &mut [u8],
    ) {
        let (band, scratch) = scratch::take::<f32>(scratch, 4 * FEATURES * ROW);
        let joined = scratch::take::<f32>(scratch, FEATURES * NUMBERS * JOINED).0;
        let elements = Elements::Numbers(image);
        for (i, first) in features.clone().step_by(FEATURES).enumerate() {
            let count = FEATURES.min(features.end - first);
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
            transform::image_rows(&joined[..count * NUMBERS * JOINED], &mut to[i * FEATURES * TILES..], pitch);
        }
    }
}
