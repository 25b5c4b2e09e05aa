//! Convolutions of windows of 3x3 without strides by Winograd's minimal filtering F(2x2, 3x3).
//!
//! A *tile* is 2x2 neighbouring results, which read 4x4 neighbouring elements of the image. Image tiles and windows are transformed to 4x4
//! numbers each, with additions and halves. Their products, summed over the features, are transformed to the 2x2 results: 16
//! multiplications instead of 36. For each of the 16 numbers, the sums over features are a matrix product of windows and tiles. Source:
//! Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015, <https://arxiv.org/abs/1509.09308>, equation 13 and
//! algorithm 1.
//!
//! The windows of all features are transformed first, to panels of the micro-kernel. A task has a *block* of tiles, in the order of the
//! results, of one or several images. It transforms the image there ([`image`]), multiplies it with one panel of windows after the other,
//! and writes the results of each ([`results`]) while they are in the cache.
//!
//! A result reads the elements of its own window only, so that only values that are not finite there can make it so. But infinity becomes
//! NaN where the plain method has infinity, and sums may overflow earlier. So if a result is not finite, all are computed again
//! ([`IfFinite`](super::finite::IfFinite)).
//!
//! To first order and without underflow, a result over `c` features is within `16 (c + 10) u` times the sum over the features of the largest
//! element in the window times the sum of the absolute weights, where `u` is 2^-24. For, in one dimension, `|A| (|G| |g|) (|B| |d|)` is at
//! most four times the largest `|d|` times the sum of `|g|`, so that in two it is at most 16 times. Halves are exact, so a number of the
//! image is rounded at most twice, once in each dimension, one of a window four times, the sum of products `c` times, and a result four times.
//! Sums of products have `9 c` instead of `16 (c + 10)`, and the product of each element with its own weight. For random numbers the errors
//! are about as large (docs/EXPERIMENTS.md, "Minimal filtering"). The same holds for the gradient of the image, over the output features.
//!
//! The operation and the shapes alone decide whether a convolution is computed this way, unless the precision is
//! [`Precision::Highest`]. The order of its sums is that of the features.

// Results are written through pointers, since those of the tasks interleave.
#![allow(unsafe_code)]

mod gradient;
mod image;
mod results;
#[cfg(test)]
mod tests;
mod transform;

use remat_ir::{Aval, Conv, DType};

use super::im2col::{Axis, Im2col};
use super::thresholds::{WINOGRAD_FEATURES, WINOGRAD_TILES, WINOGRAD_WINDOWS};
use crate::base::disjoint::DisjointMut;
use crate::base::pieces::piece;
use crate::base::precision::{Precision, matmul_precision};
use crate::base::product::{Accumulator, MicroKernel, Right};
use crate::base::scratch;
use crate::interface::layout::{Layout, row_major};
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::Elements;
use crate::simd::Level;
use crate::threads::Threads;
pub(super) use gradient::{Gradient, SIZES as GRADIENT_SIZES};
use image::Tiles;

/// The numbers of a transformed tile or window.
const NUMBERS: usize = 16;

/// Tiles of a block at most: the columns of a product.
const TILES: usize = 32;

/// Tiles, or rows of a panel, that are transformed at a time.
const LANES: usize = 16;

/// Elements of a window.
const WINDOW: usize = 9;

/// Features whose windows are packed at a time.
const PACKED: usize = 32;

/// Bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Fewest input and output features: with fewer, the transformations take longer than the multiplications that they save.
    features: usize,
    /// Fewest tiles.
    tiles: usize,
    /// Most transformed elements of windows, which are scratch memory, and are read again for each block.
    windows: usize,
}

pub(super) const SIZES: Sizes = Sizes { features: WINOGRAD_FEATURES, tiles: WINOGRAD_TILES, windows: WINOGRAD_WINDOWS };

/// Any convolution of the kind.
#[cfg(test)]
pub(super) const SMALL: Sizes = Sizes { features: 1, tiles: 0, windows: usize::MAX };

/// Whether these methods are allowed for a convolution: it is of f32, and plain but for padding, and no higher precision is required.
fn is_allowed(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
    [&op.strides, &op.lhs_dilation, &op.rhs_dilation].iter().all(|all| all.iter().all(|&x| x == 1))
        && op.feature_group_count == 1
        && op.batch_group_count == 1
        && ins.iter().all(|&(dtype, _)| dtype == DType::F32)
        && out.dtype == DType::F32
        && out.size() > 0
        && !matches!(matmul_precision(), Ok(Precision::Highest))
}

/// The strides of the two dimensions of features or images of the results, in the order of the operation, and those of rows and columns.
fn strides_of_results(op: &Conv, out: &Aval) -> [usize; 4] {
    let strides = row_major(&out.shape);
    let dims = &op.out_dims;
    [dims.first, dims.second, dims.spatial[0], dims.spatial[1]].map(|d| strides[d] as usize)
}

/// A convolution by minimal filtering.
pub(super) struct Winograd {
    kernel: &'static MicroKernel<f32>,
    weights: Im2col,
    tiles: Tiles,
    /// Input and output features.
    features: [usize; 2],
    /// Strides of the results: of images, features, rows and columns.
    strides: [usize; 4],
}

impl Winograd {
    /// Whether this method computes a convolution and pays for it.
    pub(super) fn applies(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
        let [(_, lhs), (_, rhs)] = ins;
        let is_window = op.strides.len() == 2 && op.rhs_dims.spatial.iter().all(|&d| rhs.shape[d] == 3);
        if !is_allowed(op, ins, out) || !is_window {
            return false;
        }
        let features = [rhs.shape[op.rhs_dims.second], out.shape[op.out_dims.second]];
        let of_image: usize = op.out_dims.spatial.iter().map(|&d| out.shape[d].div_ceil(2)).product();
        features.iter().all(|&features| features >= sizes.features)
            && lhs.shape[op.lhs_dims.first] * of_image >= sizes.tiles
            && NUMBERS * features[0] * features[1] <= sizes.windows
    }

    /// The kernel, if this method applies.
    pub(super) fn new(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Winograd> {
        if !Winograd::applies(sizes, op, ins, out) {
            return None;
        }
        let [(_, lhs), (_, rhs)] = ins;
        let tiles = Tiles::new(op, [lhs, rhs], out, [op.lhs_dims.first, op.lhs_dims.second], |along| along.positions)?;
        let features = [rhs.shape[op.rhs_dims.second], out.shape[op.out_dims.second]];
        let of_features = |dim: usize, size: usize| Axis { size, stride: rhs.strides[dim], along: None };
        let element = |d: usize| of_features(op.rhs_dims.spatial[d], 3);
        let elements = [of_features(op.rhs_dims.second, features[0]), element(0), element(1)];
        Some(Winograd {
            kernel: f32::micro_kernel(Level::best()),
            weights: Im2col::new(
                rhs.offset,
                &[],
                [vec![of_features(op.rhs_dims.first, features[1])], elements.to_vec()],
            ),
            tiles,
            features,
            strides: strides_of_results(op, out),
        })
    }

    /// Tiles of a block: whole panels of the micro-kernel.
    fn block(&self) -> usize {
        TILES / self.kernel.columns * self.kernel.columns
    }

    /// Rows of a panel of windows.
    fn height(&self) -> usize {
        self.kernel.height(self.features[1])
    }

    fn panels(&self) -> usize {
        self.features[1].div_ceil(self.height())
    }

    /// Elements of one of the numbers of a panel of windows, and of one of a block of tiles. Whole vectors are written, also of panels
    /// that are narrower; and an odd number of cache lines keeps the numbers out of each other's sets of the cache.
    fn pitches(&self) -> [usize; 2] {
        let line = crate::simd::CACHE_LINE / size_of::<f32>();
        let odd = |elements: usize| (elements.div_ceil(line) | 1) * line;
        [odd(self.features[0] * self.kernel.rows + LANES), odd(self.features[0] * TILES)]
    }

    /// Elements of a panel of windows.
    fn panel(&self) -> usize {
        NUMBERS * self.pitches()[0]
    }

    /// Elements of a transformed block.
    fn transformed(&self) -> usize {
        NUMBERS * self.pitches()[1]
    }

    /// Bytes of scratch memory of a task.
    fn own(&self) -> usize {
        let packing = scratch::bytes::<f32>(PACKED * WINDOW * LANES);
        let block = scratch::bytes::<f32>(self.transformed()) + image::scratch().max(results::scratch(self.kernel));
        block.max(packing)
    }

    /// Transforms the windows of a panel of output features.
    fn transform_windows(&self, weights: &[f32], panel: usize, packed: &mut [f32], to: &mut [f32]) {
        let weights = self.weights.of(Elements::Numbers(weights), 0);
        let rows = piece(0..self.features[1], self.height(), panel);
        for first in (0..self.features[0]).step_by(PACKED) {
            let features = first..self.features[0].min(first + PACKED);
            let packed = &mut packed[..features.len() * WINDOW * LANES];
            weights.pack_panel(rows.clone(), features.start * WINDOW..features.end * WINDOW, LANES, packed);
            transform::windows(packed, &mut to[first * self.kernel.rows..], self.kernel.rows, self.pitches()[0]);
        }
    }

    /// Multiplies a panel of windows and a block of tiles.
    fn multiply(&self, rows: usize, tiles: usize, windows: &[f32], block: &[f32], sums: &mut [f32]) {
        let [of_panel, of_block] = self.pitches();
        let (windows, block) = (windows.chunks_exact(of_panel), block.chunks_exact(of_block));
        for ((windows, block), sums) in windows.zip(block).zip(sums.chunks_exact_mut(results::pitch(self.kernel))) {
            for first in (0..tiles).step_by(self.kernel.columns) {
                let columns = self.kernel.columns.min(tiles - first);
                let right = Right { elements: &block[first..], row_stride: TILES };
                let size = [rows, columns, self.features[0]];
                self.kernel.multiply(size, windows, right, (&mut sums[first..], TILES), false);
            }
        }
    }
}

impl Kernel for Winograd {
    fn scratch(&self, threads: usize) -> usize {
        self.panels() * scratch::bytes::<f32>(self.panel()) + threads * self.own()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (windows, own) = scratch::take::<f32>(scratch, self.panels() * self.panel());
        let own = &mut own[..threads.count() * self.own()];
        threads.for_each_item_with_scratch(
            self.panels(),
            windows.chunks_exact_mut(self.panel()).enumerate(),
            own,
            |(i, to), scratch| self.transform_windows(ins[1].slice(), i, scratch::of(scratch), to),
        );
        let windows = &*windows;
        let all = DisjointMut::bytes(&mut outs[0]);
        // Where there are few blocks, several tasks transform the same one, and each takes some panels.
        let blocks = self.tiles.count().div_ceil(self.block());
        let split = self.panels().div_ceil((2 * threads.count()).div_ceil(blocks));
        let splits = self.panels().div_ceil(split);
        threads.for_each_with_scratch(blocks * splits, own, |task, scratch| {
            let tiles = piece(0..self.tiles.count(), self.block(), task / splits);
            let (block, scratch) = scratch::take::<f32>(scratch, self.transformed());
            let to = (&mut *block, self.pitches()[1]);
            self.tiles.transform(ins[0].slice(), 0..self.features[0], tiles.clone(), to, scratch);
            let (sums, scratch) = scratch::take::<f32>(scratch, results::sums(self.kernel));
            for panel in piece(0..self.panels(), split, task % splits) {
                let windows = &windows[panel * self.panel()..][..self.panel()];
                let rows = piece(0..self.features[1], self.height(), panel);
                self.multiply(rows.len(), tiles.len(), windows, block, sums);
                // SAFETY: each tile is in one block, and each feature in one panel.
                unsafe { self.write_results(rows, tiles.clone(), sums, scratch::of(scratch), &all) };
            }
        });
    }
}
