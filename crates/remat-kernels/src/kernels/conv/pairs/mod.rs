//! Convolutions of bf16 with AVX-512 or NEON whose windows are read in place.
//!
//! A word has two input features. A task copies *bands* of images once ([`band`]), and a step packs the weights of some output features as
//! panels ([`weights`]). The micro-kernel ([`offsets`](crate::base::narrow)) broadcasts one word of a band for each position of a tile, at
//! the offsets of the window's elements, and has output features in the lanes of vectors. So no elements are gathered, and no lanes are
//! lost to rows of positions that do not fill a vector, as in [`direct`](super::direct).
//!
//! Gradients of weights are such convolutions too: they have few positions, the images as input features, and long windows, of which a step
//! has some features and rows. Then sums are kept in memory from step to step.
//!
//! The operation and the shapes alone decide whether a convolution is computed this way, and the order of its sums: pair after pair of
//! features, then rows, then columns of the window.

// Tasks share the memory of kept sums, and rows are addressed by pointers.
#![allow(unsafe_code)]

mod band;
mod phase;
#[cfg(test)]
mod tests;
mod weights;

use std::ops::Range;

use remat_ir::{Aval, Conv, DType, Shape};
use smallvec::SmallVec;

use super::direct::Along;
use super::output::StridedSums;
use super::polyphase::{self, phases};
use super::thresholds::{PAIRS_BAND, PAIRS_FEATURES, PAIRS_KEPT, PAIRS_REUSE, PAIRS_ROWS, PAIRS_WORK};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{Kind, PANEL, RowRuns, Sums, Unit};
use crate::base::pieces::{piece, pieces};
use crate::base::scratch;
use crate::base::strided::{Rows, StridedIter, TASK_BYTES};
use crate::base::transpose::transpose_tile;
use crate::interface::layout::{Layout, Strides, row_major};
use crate::interface::{Kernel, Source, Target, with_word};
use crate::kernels::matmul::even;
use crate::kernels::matmul::narrow::Output;
use crate::threads::Threads;
use phase::Phase;
use weights::{Weights, width};

/// Sizes of steps, bands and chunks, and bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Most words of the panels of a step.
    panels: usize,
    /// Words of a task's bands, so that they stay in the second-level cache, and most words of the smallest possible band.
    band: usize,
    most_band: usize,
    /// Most sums that are kept from step to step.
    kept: usize,
    /// Most elements of a part of the window ([`Phase::part`]).
    part: usize,
    /// Most positions whose sums are computed before they are written; a longer row is one chunk.
    chunk: usize,
    /// Fewest multiplications.
    work: usize,
    /// Fewest rows of a tile, and fewest output features.
    rows: usize,
    features: usize,
    /// How often elements of the image are read at least, if features are neighbours in the output: windows that overlap less are packed as
    /// quickly as bands are copied.
    reuse: usize,
}

/// The sizes of steps, bands and chunks were measured.
const SIZES: Sizes = Sizes {
    panels: 1 << 18,
    band: 1 << 16,
    most_band: PAIRS_BAND,
    kept: PAIRS_KEPT,
    part: 1 << 11,
    chunk: 1 << 9,
    work: PAIRS_WORK,
    rows: PAIRS_ROWS,
    features: PAIRS_FEATURES,
    reuse: PAIRS_REUSE,
};

/// Sizes with which small convolutions have several steps, bands and chunks.
#[cfg(test)]
const SMALL: Sizes = Sizes {
    panels: 600,
    band: 500,
    most_band: 1 << 16,
    kept: 1 << 20,
    part: 7,
    chunk: 40,
    work: 0,
    rows: 0,
    features: 1,
    reuse: 0,
};

/// How often an element of the image is read, by the phases of a dilated image.
fn reuse_of(op: &Conv, lhs: &Layout, rhs: &Layout, out: &Aval) -> usize {
    let size = |dims: &[usize], shape: &[usize]| dims.iter().fold(1, |size: usize, &d| size.saturating_mul(shape[d]));
    let dilation = op.lhs_dilation.iter().fold(1, |product: usize, &x| product.saturating_mul(x));
    let reads =
        size(&op.out_dims.spatial, &out.shape).saturating_mul(size(&op.rhs_dims.spatial, &rhs.shape)) / dilation;
    reads / dilation / size(&op.lhs_dims.spatial, &lhs.shape).max(1)
}

/// The parameters of the convolution other than its spatial dimensions.
struct Problem {
    images: usize,
    groups: usize,
    /// Input and output features of a group.
    features: [usize; 2],
}

/// A convolution of bf16 whose windows are read in place.
pub(super) struct PairsKernel {
    unit: Unit,
    out: DType,
    problem: Problem,
    /// The first element of the image, and the strides of images and features.
    start: isize,
    strides: [isize; 2],
    phases: Vec<Phase>,
    /// Whether some outputs meet no element of the image, and are zero.
    has_zeros: bool,
    /// The offsets of features in the output, and whether they are neighbours there, rather than positions.
    out_features: Rows<1>,
    is_channels_last: bool,
}

/// The unit for the elements of a convolution, if they are bf16 and this CPU has one.
fn unit(ins: [(DType, &Layout); 2], out: &Aval) -> Option<Unit> {
    let is_of = ins.iter().all(|x| x.0 == DType::Bf16) && matches!(out.dtype, DType::Bf16 | DType::F32);
    Unit::best(Kind::Bf16).filter(|_| is_of)
}

/// Whether this method computes a convolution and pays for it.
pub(super) fn applies(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
    unit(ins, out).is_some_and(|unit| PairsKernel::applies(SIZES, unit, op, ins, out))
}

/// The kernel of a convolution of bf16, if this method applies.
pub(super) fn of(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<PairsKernel> {
    PairsKernel::new(SIZES, unit(ins, out)?, op, ins, out)
}

impl PairsKernel {
    /// Whether this method computes a convolution and pays for it.
    fn applies(sizes: Sizes, unit: Unit, op: &Conv, [(_, lhs), (_, rhs)]: [(DType, &Layout); 2], out: &Aval) -> bool {
        let rank = op.strides.len();
        // Positions or features are neighbours in the output. With the latter, and more features than positions, copying the bands takes
        // longer than packing the windows.
        let is_channels_last = op.out_dims.second == rank + 1;
        let in_order = if is_channels_last {
            let positions = out.size() / out.shape[rank + 1].max(1);
            reuse_of(op, lhs, rhs, out) >= sizes.reuse && positions >= rhs.shape[op.rhs_dims.second]
        } else {
            op.out_dims.spatial.iter().copied().eq(2..rank + 2)
        };
        let is_empty = out.size() == 0 || rhs.size() == 0;
        if !matches!(rank, 1 | 2) || op.batch_group_count > 1 || is_empty || !in_order || !unit.reads_at_offsets() {
            return false;
        }
        let groups = op.feature_group_count;
        let features = out.shape[op.out_dims.second] / groups;
        let dilation = op.lhs_dilation.iter().fold(1, |product: usize, &x| product.saturating_mul(x));
        let work = (rhs.size() / (features * groups)).saturating_mul(out.size()) / dilation;
        let elements: usize = op.rhs_dims.spatial.iter().map(|&d| rhs.shape[d]).product();
        features >= sizes.features && work >= sizes.work && elements > 1
    }

    /// The kernel, if this method applies.
    pub(super) fn new(
        sizes: Sizes,
        unit: Unit,
        op: &Conv,
        ins: [(DType, &Layout); 2],
        out: &Aval,
    ) -> Option<PairsKernel> {
        if !PairsKernel::applies(sizes, unit, op, ins, out) {
            return None;
        }
        let [(_, lhs), (_, rhs)] = ins;
        let (rank, is_channels_last) = (op.strides.len(), op.out_dims.second == op.strides.len() + 1);
        let (images, groups) = (out.shape[op.out_dims.first], op.feature_group_count);
        let features = [rhs.shape[op.rhs_dims.second], out.shape[op.out_dims.second] / groups];
        let problem = Problem { images, groups, features };
        let out_strides = row_major(&out.shape);
        let offsets_of = |shape: &[usize], strides: &[isize]| Rows::from(StridedIter::new(shape, [strides]));
        let (all, found) = phases(op, out, rhs);
        let of_phase = |phase: &SmallVec<[polyphase::Along; 4]>| {
            let mut spatial: SmallVec<[Along; 2]> = SmallVec::new();
            let mut weights = SmallVec::<[isize; 2]>::new();
            let (mut first, mut first_weight) = (0, rhs.offset as isize);
            let (mut shape, mut strides) =
                (Shape::from_elem(images, 1), Strides::from_elem(out_strides[op.out_dims.first], 1));
            for (d, along) in phase.iter().enumerate() {
                let image = op.lhs_dims.spatial[d];
                spatial.push(Along::of_phase(along, lhs.shape[image], lhs.strides[image])?);
                let (weight, out) = (rhs.strides[op.rhs_dims.spatial[d]], out_strides[op.out_dims.spatial[d]]);
                weights.push((along.element.1 as isize).wrapping_mul(weight));
                first_weight += along.element.0 as isize * weight;
                first += along.position.0 * out as usize;
                shape.push(along.positions);
                strides.push((along.position.1 as isize).wrapping_mul(out));
            }
            if rank == 1 {
                spatial.insert(0, Along::NONE);
                weights.insert(0, 0);
            }
            let of_features = [rhs.strides[op.rhs_dims.first], rhs.strides[op.rhs_dims.second]];
            let strides_of_weights = [of_features[0], of_features[1], weights[0], weights[1]];
            let weights = Weights { start: first_weight, strides: strides_of_weights, columns: spatial[1].window };
            Phase::new(sizes, &problem, [spatial[0], spatial[1]], weights, (first, offsets_of(&shape, &strides)))
        };
        Some(PairsKernel {
            unit,
            out: out.dtype,
            start: lhs.offset as isize,
            strides: [lhs.strides[op.lhs_dims.first], lhs.strides[op.lhs_dims.second]],
            phases: found.iter().map(of_phase).collect::<Option<Vec<_>>>()?,
            has_zeros: found.len() < all,
            out_features: offsets_of(&[out.shape[op.out_dims.second]], &[out_strides[op.out_dims.second]]),
            is_channels_last,
            problem,
        })
    }

    /// Multiplies some rows of positions of a task's images with a panel, and adds the products to the sums, or writes them if they are the
    /// first.
    fn multiply(
        &self,
        phase: &Phase,
        bands: &[u32],
        [images, rows]: [Range<usize>; 2],
        (panel, width): (&[u32], usize),
        (sums, adds): (&mut [u32], bool),
    ) {
        let (offsets, [groups, height]) = (&phase.offsets[..panel.len() / width], phase.tile(rows.len()));
        let ([count, columns], len, pitch) = (phase.rows_and_columns(rows.len()), phase.band.len(), phase.band.pitch);
        assert!(bands.len() >= images.end * len && rows.end <= phase.positions);
        let session = self.unit.session();
        for part in pieces(0..offsets.len(), phase.part) {
            let panel = &panel[part.start * width..part.end * width];
            let mut position = 0;
            for (image, y) in images.clone().flat_map(|image| (0..count).step_by(groups).map(move |y| (image, y))) {
                let groups = groups.min(count - y);
                for x in (0..columns).step_by(height) {
                    let tile = RowRuns { runs: groups, rows_per_run: height.min(columns - x), stride: pitch };
                    let left = bands[image * len + (rows.start + y) * pitch + x..].as_ptr();
                    let sums = &mut sums[(position + x) * PANEL..];
                    let adds = adds || part.start > 0;
                    // SAFETY: the band has these positions, and the elements of their windows at these offsets (`Band::offsets`).
                    unsafe { session.multiply_at_offsets(tile, left, &offsets[part.clone()], panel, sums, adds) };
                }
                position += groups * columns;
            }
        }
    }

    /// Writes sums of some features and positions.
    ///
    /// # Safety
    /// No other task has these elements of the output.
    unsafe fn write(
        &self,
        phase: &Phase,
        out: DisjointMut<'_, u8>,
        features: Range<usize>,
        positions: Range<usize>,
        sums: &[u32],
    ) {
        let out = out.skip(phase.first * self.out.size());
        let [of_features, of_positions] = [&self.out_features, &phase.out_positions];
        let mut square: Sums = [0; PANEL * PANEL];
        let first = positions.start;
        if self.is_channels_last {
            let out = StridedSums { out, dtype: self.out, rows: of_positions, columns: of_features };
            for rows in pieces(positions, PANEL) {
                let sums = &sums[(rows.start - first) * PANEL..(rows.end - first) * PANEL];
                square[..sums.len()].copy_from_slice(sums);
                // SAFETY: as the caller promises.
                unsafe { out.write(rows, features.clone(), &mut square) };
            }
            return;
        }
        let out = StridedSums { out, dtype: self.out, rows: of_features, columns: of_positions };
        for columns in pieces(positions, PANEL) {
            // Whole tiles, which are transposed in the widest registers: both have rows and columns for them.
            let size = [features.len(), columns.len()].map(|n| n.next_multiple_of(16));
            transpose_tile((&sums[(columns.start - first) * PANEL..], PANEL), (&mut square, PANEL), size);
            // SAFETY: as the caller promises.
            unsafe { out.write(features.clone(), columns, &mut square) };
        }
    }

    /// Computes the results of a phase.
    fn run_phase(
        &self,
        phase: &Phase,
        [image, weights]: [&[u16]; 2],
        all: DisjointMut<'_, u8>,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let Problem { images: all_images, groups, features: of_group } = self.problem;
        let [packed, kept, bands, sums] = phase.bytes();
        let (packed, scratch) = scratch.split_at_mut(packed);
        let (kept, scratch) = scratch.split_at_mut(kept);
        let (packed, kept) = (scratch::of::<u32>(packed), scratch::of::<u32>(kept));
        let scratch = &mut scratch[..threads.count() * (bands + sums)];
        let kept = phase.has_steps().then(|| DisjointMut::new(kept));
        let [blocks, across] = phase.tasks();
        let bands = blocks * across * groups;
        for panels in pieces(0..phase.all_panels(), phase.panels) {
            // Where there are few bands, several tasks copy the same band and each takes some panels.
            let splits = panels.len().min((2 * threads.count()).div_ceil(bands));
            let split = panels.len().div_ceil(splits);
            // None of the parts is empty.
            let splits = panels.len().div_ceil(split);
            let of_panel = |panel: usize| panel * PANEL..of_group[1].min((panel + 1) * PANEL);
            let steps = phase.steps().count();
            for (step, [features, window]) in phase.steps().enumerate() {
                let (pairs, elements) = (features.len().div_ceil(2), window.len() * phase.columns.window);
                // Each task packs some pairs of a panel, fewer where there are many threads.
                let of_thread = (groups * panels.len() * pairs).div_ceil(2 * threads.count());
                let chunk = even(pairs, ((1 << 12) / elements).min(of_thread), 1);
                let to = DisjointMut::new(&mut *packed);
                threads.for_each(groups * panels.len() * pairs.div_ceil(chunk), |task| {
                    let (i, chunks) = (task / pairs.div_ceil(chunk), task % pairs.div_ceil(chunk));
                    let (group, of_panel) = (i / panels.len(), of_panel(panels.start + i % panels.len()));
                    let some = chunks * chunk..pairs.min((chunks + 1) * chunk);
                    let width = width(of_panel.len());
                    let first = (group * of_group[1]) as isize * phase.weights.strides[0];
                    let summed = features.start + 2 * some.start..features.end.min(features.start + 2 * some.end);
                    // SAFETY: each task has its own pairs of a panel.
                    let to = unsafe {
                        to.slice(i * phase.panel() + some.start * elements * width, some.len() * elements * width)
                    };
                    phase.weights.pack(weights, first, of_panel, summed, window.clone(), to);
                });
                let packed = &*packed;
                threads.for_each_with_scratch(bands * splits, scratch, |task, scratch| {
                    let (task, part) = (task / splits, task % splits);
                    let (i, tile) = (task / across, task % across);
                    let (block, group) = (i / groups, i % groups);
                    let images = piece(0..all_images, phase.block, block);
                    let rows = piece(0..phase.rows.positions, phase.positions, tile);
                    let (bands, scratch) = scratch::take::<u32>(scratch, phase.block * phase.band.len());
                    let feature = (group * of_group[0] + features.start) as isize;
                    for (image_number, to) in images.clone().zip(bands.chunks_exact_mut(phase.band.len())) {
                        let start = self.start + image_number as isize * self.strides[0] + feature * self.strides[1];
                        phase.band.copy(image, (start, self.strides[1]), features.len(), &rows, &window, to);
                    }
                    for panel in piece(0..panels.len(), split, part) {
                        let of_panel = of_panel(panels.start + panel);
                        let width = width(of_panel.len());
                        let weights = &packed[(group * panels.len() + panel) * phase.panel()..];
                        let weights = (&weights[..pairs * elements * width], width);
                        let features = group * of_group[1] + of_panel.start..group * of_group[1] + of_panel.end;
                        for (i, [some, part]) in phase.chunks(images.len(), rows.len()).enumerate() {
                            let sums = match &kept {
                                // SAFETY: each chunk of each task and panel has its own sums.
                                Some(kept) => unsafe {
                                    let chunk = (task * phase.panels + panel) * phase.all_chunks() + i;
                                    kept.slice(chunk * phase.sums(), phase.sums())
                                },
                                None => scratch::of::<u32>(scratch),
                            };
                            self.multiply(phase, bands, [some.clone(), part.clone()], weights, (sums, step > 0));
                            if step + 1 == steps {
                                let row = (images.start + some.start) * phase.rows.positions + rows.start + part.start;
                                let first = row * phase.columns.positions;
                                let count = some.len() * part.len() * phase.columns.positions;
                                // SAFETY: each position is in one band, and each feature in one panel.
                                unsafe { self.write(phase, all, features.clone(), first..first + count, sums) };
                            }
                        }
                    }
                });
            }
        }
    }
}

impl Kernel for PairsKernel {
    fn scratch(&self, threads: usize) -> usize {
        let of_phase = |phase: &Phase| {
            let [packed, kept, bands, sums] = phase.bytes();
            packed + kept + threads * (bands + sums)
        };
        self.phases.iter().map(of_phase).max().unwrap_or(0)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        if self.has_zeros {
            with_word!(self.out, W => {
                let out = outs[0].words_mut::<W>();
                threads.for_each_chunk(out, TASK_BYTES, |_, part| part.fill(W::default()));
            });
        }
        let all = DisjointMut::bytes(&mut outs[0]);
        for phase in &self.phases {
            self.run_phase(phase, [ins[0].words(), ins[1].words()], all, scratch, threads);
        }
    }
}
