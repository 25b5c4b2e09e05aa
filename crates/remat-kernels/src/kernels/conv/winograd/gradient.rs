//! Gradients of weights of windows of 3x3 by Winograd's minimal filtering F(3x3, 2x2).
//!
//! Such a gradient is a convolution with 3x3 positions, whose windows are as large as the results of the layer and lie in all images. It is
//! the sum of the convolutions of windows of 2x2, the *pairs*, each with 4x4 elements of the image: a tile, which is transformed as in the
//! layer itself. The pairs are transformed to 4x4 numbers too. Products are summed over pairs, as matrix products, and the sums are
//! transformed to 3x3 results: 16 multiplications instead of 36. Source: Lavin and Gray, "Fast algorithms for convolutional neural
//! networks", 2015, <https://arxiv.org/abs/1509.09308>, section 4.
//!
//! A task has a block of features of the image, a block of features of the window, and, if these blocks are few, a part of the pairs. It
//! transforms both operands some pairs at a time, and adds their products to its sums, while all are in the second-level cache. The parts are
//! added up at last.
//!
//! To first order and without underflow, a result over `p` pairs is within `16 (p + 8) u` times the sum over the pairs of the largest element
//! of the tile times the sum of the absolute elements of the pair, where `u` is 2^-24. The derivation is that of the module above, but a number
//! of a pair is rounded at most twice. Parts of the sums have at least one pair each, so that no product is rounded more than `p` times.
//!
//! Elements of the image meet zeros and elements of the window that they do not meet by the operation. So if a result is not finite, all are
//! computed again ([`IfFinite`](super::super::finite::IfFinite)).

// Results are written through pointers, since those of the tasks interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{Aval, Conv, DType};

use super::image::{self, Tiles};
use super::{LANES, NUMBERS, TILES, WINDOW, is_allowed, strides_of_results, transform};
use crate::base::disjoint::DisjointMut;
use crate::base::pieces::{piece, pieces};
use crate::base::product::{Left, Out, Right, product};
use crate::base::scratch;
use crate::base::transpose::transpose_tile;
use crate::interface::layout::Layout;
use crate::interface::{Kernel, Source, Target};
use crate::kernels::conv::row_segments::{RowSegments, copy_segments, part_inside};
use crate::kernels::conv::thresholds::{GRADIENT_PAIRS, WINOGRAD_FEATURES};
use crate::kernels::matmul::{Elements, MANY};
use crate::threads::Threads;

/// Features of the window that are multiplied together: the columns of a product.
pub(super) const WIDTH: usize = 32;

/// Panels of such features in a block, and features of the image in a block, so that the sums of a task stay in the second-level cache.
const PANELS: usize = 4;
const FEATURES: usize = 64;

/// Bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sizes {
    /// Fewest features of the image and of the window.
    features: usize,
    /// Fewest pairs.
    pairs: usize,
    /// Most sums of all parts, which are scratch memory.
    sums: usize,
}

pub(in super::super) const SIZES: Sizes = Sizes { features: WINOGRAD_FEATURES, pairs: GRADIENT_PAIRS, sums: 1 << 20 };

/// Any gradient.
#[cfg(test)]
pub(super) const SMALL: Sizes = Sizes { features: 1, pairs: 0, sums: 1 << 18 };

/// A gradient of weights by minimal filtering.
pub(in super::super) struct Gradient {
    tiles: Tiles,
    /// The first element of the window, and the strides of images, features, rows and columns.
    start: isize,
    strides: [isize; 4],
    /// Features of the image and of the window.
    features: [usize; 2],
    /// The strides of these features in the results, and those of rows and columns.
    out_strides: [usize; 4],
    /// Pairs of a part.
    part: usize,
}

impl Gradient {
    /// Whether this method computes a convolution and pays for it.
    pub(in super::super) fn applies(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
        let [(_, lhs), (_, rhs)] = ins;
        let is_window = op.strides.len() == 2 && op.out_dims.spatial.iter().all(|&d| out.shape[d] == 3);
        if !is_allowed(op, ins, out) || !is_window || rhs.shape.contains(&0) {
            return false;
        }
        let of_image: usize = op.rhs_dims.spatial.iter().map(|&d| rhs.shape[d].div_ceil(2)).product();
        [op.out_dims.first, op.out_dims.second].iter().all(|&d| out.shape[d] >= sizes.features)
            && lhs.shape[op.lhs_dims.second] * of_image >= sizes.pairs
    }

    /// The kernel, if this method applies.
    pub(in super::super) fn new(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Gradient> {
        if !Gradient::applies(sizes, op, ins, out) {
            return None;
        }
        let [(_, lhs), (_, rhs)] = ins;
        let tiles = Tiles::new(op, [lhs, rhs], out, [op.lhs_dims.second, op.lhs_dims.first], |along| along.window)?;
        let [rows, columns] = [0, 1].map(|d| op.rhs_dims.spatial[d]);
        let mut this = Gradient {
            start: rhs.offset as isize,
            strides: [op.rhs_dims.second, op.rhs_dims.first, rows, columns].map(|d| rhs.strides[d]),
            features: [out.shape[op.out_dims.first], out.shape[op.out_dims.second]],
            out_strides: strides_of_results(op, out),
            part: tiles.count(),
            tiles,
        };
        let parts = MANY.div_ceil(this.blocks()).min(sizes.sums / (this.blocks() * this.sums())).max(1);
        this.part = this.tiles.count().div_ceil(parts).next_multiple_of(TILES);
        Some(this)
    }

    /// Panels of features of the window.
    fn panels(&self) -> usize {
        self.features[1].div_ceil(WIDTH)
    }

    /// Blocks of features of the image and of the window.
    pub(super) fn blocks(&self) -> usize {
        self.features[0].div_ceil(FEATURES) * self.panels().div_ceil(PANELS)
    }

    pub(super) fn parts(&self) -> usize {
        self.tiles.count().div_ceil(self.part)
    }

    /// Sums of one number of a panel of a task.
    fn pitch(&self) -> usize {
        self.features[0].min(FEATURES) * WIDTH
    }

    /// Sums of a task.
    fn sums(&self) -> usize {
        self.panels().min(PANELS) * NUMBERS * self.pitch()
    }

    /// The features of the image and the panels of the window of a block.
    fn block(&self, i: usize) -> [Range<usize>; 2] {
        let across = self.panels().div_ceil(PANELS);
        [piece(0..self.features[0], FEATURES, i / across), piece(0..self.panels(), PANELS, i % across)]
    }

    /// Elements of one of the numbers of transformed tiles and pairs, out of the cache's sets of the others.
    const PITCHES: [usize; 2] = [FEATURES * TILES + LANES, TILES * WIDTH + LANES];

    /// Elements of the two rows of some pairs, before and after they are transposed.
    const ROWS: usize = 2 * 2 * TILES * WIDTH;

    /// Bytes of scratch memory of a task.
    fn own() -> usize {
        let transformed: usize = Self::PITCHES.iter().map(|pitch| scratch::bytes::<f32>(NUMBERS * pitch)).sum();
        transformed + image::scratch().max(2 * scratch::bytes::<f32>(Self::ROWS))
    }

    /// Transforms some pairs of some features of the window.
    fn transform_pairs(
        &self,
        window: &[f32],
        features: Range<usize>,
        pairs: Range<usize>,
        to: &mut [f32],
        scratch: &mut [u8],
    ) {
        let (rows, scratch) = scratch::take::<f32>(scratch, Self::ROWS);
        let transposed = scratch::take::<f32>(scratch, Self::ROWS).0;
        let (elements, row) = (Elements::Numbers(window), 2 * TILES);
        let [height, width] = [self.tiles.rows.window, self.tiles.columns.window];
        for run in self.tiles.runs(pairs.clone()) {
            let len = 2 * run.len;
            for i in 0..2 {
                let [y, x] = [2 * run.row + i, 2 * run.column];
                let of = |index: usize, d: usize| index as isize * self.strides[d];
                let segments = RowSegments {
                    at: self.start + of(run.image, 0) + of(features.start, 1) + of(y, 2) + of(x, 3),
                    strides: [self.strides[1], self.strides[3]],
                    count: features.len(),
                    len,
                    to: i * WIDTH * row + 2 * run.at,
                    to_strides: [row, 1],
                    segments: if y < height { 0..features.len() } else { 0..0 },
                    inside: part_inside(x as i64, 1, width, len),
                    shared: None,
                };
                copy_segments(&elements, &segments, rows);
            }
        }
        for (rows, transposed) in rows.chunks_exact(WIDTH * row).zip(transposed.chunks_exact_mut(WIDTH * row)) {
            transpose_tile((rows, row), (transposed, WIDTH), [2 * pairs.len(), features.len()]);
        }
        transform::pairs(transposed, pairs.len(), to, Self::PITCHES[1]);
    }

    /// The sums of the products of a block of features and a part of the pairs.
    fn multiply(&self, ins: &[Source<'_>], block: usize, pairs: Range<usize>, sums: &mut [f32], scratch: &mut [u8]) {
        let [features, panels] = self.block(block);
        let [of_tiles, of_pairs] = Self::PITCHES;
        let (transformed, scratch) = scratch::take::<f32>(scratch, NUMBERS * of_tiles);
        let (windows, scratch) = scratch::take::<f32>(scratch, NUMBERS * of_pairs);
        let first = pairs.start;
        for pairs in pieces(pairs, TILES) {
            self.tiles.transform(ins[0].slice(), features.clone(), pairs.clone(), (transformed, of_tiles), scratch);
            for panel in panels.clone() {
                let columns = panel * WIDTH..self.features[1].min((panel + 1) * WIDTH);
                self.transform_pairs(ins[1].slice(), columns.clone(), pairs.clone(), windows, scratch);
                let numbers = transformed.chunks_exact(of_tiles).zip(windows.chunks_exact(of_pairs));
                for (k, (tiles, windows)) in numbers.enumerate() {
                    let elements = &mut sums[((panel - panels.start) * NUMBERS + k) * self.pitch()..];
                    let left = Left { elements: tiles, row_stride: TILES, column_stride: 1 };
                    let right = Right { elements: windows, row_stride: WIDTH };
                    let out = Out { elements, row_stride: WIDTH, adds: pairs.start > first };
                    product([features.len(), columns.len(), pairs.len()], left, right, out);
                }
            }
        }
    }

    /// Writes the results of some features of the image of a block. The sums of its parts are `part` apart.
    ///
    /// # Safety
    /// No other task writes them. `all` are the bytes of the output.
    unsafe fn write(&self, block: usize, features: Range<usize>, sums: &[f32], part: usize, all: &DisjointMut<'_, u8>) {
        let [of_block, panels] = self.block(block);
        let first = panels.start * WIDTH;
        for (i, j) in features.flat_map(|i| (first..panels.end * WIDTH).step_by(LANES).map(move |j| (i, j))) {
            let mut results = [[0.0; LANES]; WINDOW];
            let at = (j - first) / WIDTH * NUMBERS * self.pitch() + (i - of_block.start) * WIDTH + j % WIDTH;
            transform::pair_results(&sums[at..], self.parts(), part, self.pitch(), &mut results);
            for (lane, j) in (j..self.features[1].min(j + LANES)).enumerate() {
                let at = i * self.out_strides[0] + j * self.out_strides[1];
                for (k, results) in results.iter().enumerate() {
                    let at = at + k / 3 * self.out_strides[2] + k % 3 * self.out_strides[3];
                    // SAFETY: it is an element of the output, which no other task writes, as the caller promises.
                    unsafe { all.at(at * size_of::<f32>()).cast::<f32>().write(results[lane]) };
                }
            }
        }
    }
}

impl Kernel for Gradient {
    fn scratch(&self, threads: usize) -> usize {
        let regions = if self.parts() == 1 { threads } else { self.parts() * self.blocks() };
        regions * scratch::bytes::<f32>(self.sums()) + threads * Self::own()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (all, blocks) = (DisjointMut::bytes(&mut outs[0]), self.blocks());
        if self.parts() == 1 {
            let scratch = &mut scratch[..threads.count() * (scratch::bytes::<f32>(self.sums()) + Self::own())];
            threads.for_each_with_scratch(blocks, scratch, |block, scratch| {
                let (sums, scratch) = scratch::take::<f32>(scratch, self.sums());
                self.multiply(ins, block, 0..self.tiles.count(), sums, scratch);
                // SAFETY: each block has one task.
                unsafe { self.write(block, self.block(block)[0].clone(), sums, 0, &all) };
            });
            return;
        }
        let tasks = self.parts() * blocks;
        let (sums, own) = scratch::take::<f32>(scratch, tasks * self.sums());
        let own = &mut own[..threads.count() * Self::own()];
        threads.for_each_item_with_scratch(
            tasks,
            sums.chunks_exact_mut(self.sums()).enumerate(),
            own,
            |(i, sums), scratch| {
                let pairs = piece(0..self.tiles.count(), self.part, i / blocks);
                self.multiply(ins, i % blocks, pairs, sums, scratch);
            },
        );
        let sums = &*sums;
        // There may be fewer blocks than threads, so that each task writes some features of a block.
        let of_block = self.features[0].min(FEATURES);
        let of_task = of_block.div_ceil((2 * threads.count()).div_ceil(blocks));
        let tasks = of_block.div_ceil(of_task);
        threads.for_each(blocks * tasks, |task| {
            let (block, task) = (task / tasks, task % tasks);
            let features = piece(self.block(block)[0].clone(), of_task, task);
            // SAFETY: each task has features of its own.
            unsafe { self.write(block, features, &sums[block * self.sums()..], blocks * self.sums(), &all) };
        });
    }
}
