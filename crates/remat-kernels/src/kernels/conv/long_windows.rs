//! Convolutions of long windows at few positions, as in gradients of weights: the windows are read in place.
//!
//! Suppose that the elements of an image are neighbours along its rows (NCHW). For one position of the window, the windows of all images
//! are the rows of a left operand: each lies in one image, at the same offsets from its first element. So a step transposes the weights of
//! some features to panels, which have neighbouring output features for each element of the window. A task copies a *band* of the same
//! features of some images, with the zeros around them. For each position the micro-kernel then reads the band from another element on
//! ([`SegmentsFn`](crate::base::product::micro::SegmentsFn)). Gathered windows would be larger than the band by the number of positions.
//!
//! Where images are few, as for the weights of the first layer, neighbouring positions of one image are the rows; for a window of three
//! positions, positions of several rows. Then the elements need not be neighbours, since the image is small.
//!
//! A task copies a band, which stays in a cache of its core, and multiplies it with all panels, or with some if there are more threads than
//! blocks of images. Sums are kept from step to step, so that threads do not cut a sum. The operation and the shapes alone decide whether a
//! convolution is computed this way, and the order of its sums: features, then rows, then columns of the window, in parts of some rows.

// Products are written through pointers, since the tasks' results interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{Aval, Conv, DType, Shape};

use super::direct::Along;
use super::im2col::{Axis, FREE, Im2col};
use super::output::StridedOutput;
use super::row_segments::{RowSegments, copy_segments, part_inside};
use super::thresholds::{LONG_IMAGES, LONG_KEPT, LONG_LANES, LONG_NEIGHBOURS, LONG_POSITIONS, LONG_WINDOW, LONG_WORK};
use crate::base::disjoint::DisjointMut;
use crate::base::pieces::piece;
use crate::base::product::{Accumulator, MicroKernel, ROWS_PER_POINTER, Segments};
use crate::base::scratch;
use crate::base::strided::{Rows, StridedIter};
use crate::interface::layout::{Layout, Strides, row_major};
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::{Output, Reader, Writer, even, transpose_rows};
use crate::simd::{CACHE_LINE, Level};
use crate::threads::Threads;

/// Sizes of steps and parts, and bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Most elements of the band and the panels of a step.
    step: usize,
    /// Most elements of a window in a step.
    elements: usize,
    /// Most elements of the window in a part of several rows, so that its panel stays near the first-level cache.
    part: usize,
    /// Most sums that are kept from step to step.
    kept: usize,
    /// Fewest multiplications.
    work: usize,
    /// Fewest elements of a window.
    least: usize,
    /// Fewest images for the rows of a tile to be images; with fewer, they are neighbouring positions of one image.
    images: usize,
    /// Fewest such neighbours.
    neighbours: usize,
    /// Fewest lanes that features fill, in tenths.
    lanes: usize,
}

/// The sizes of steps and parts were measured.
pub(super) const SIZES: Sizes = Sizes {
    step: 5 << 18,
    elements: 4096,
    part: 384,
    kept: LONG_KEPT,
    work: LONG_WORK,
    least: LONG_WINDOW,
    images: LONG_IMAGES,
    neighbours: LONG_NEIGHBOURS,
    lanes: LONG_LANES,
};

/// Sizes with which small convolutions have several steps and parts.
#[cfg(test)]
pub(super) const SMALL: Sizes =
    Sizes { step: 600, elements: 40, part: 16, kept: 1 << 14, work: 0, least: 1, images: 1, neighbours: 1, lanes: 0 };

/// The same, where the rows of tiles are positions.
#[cfg(test)]
pub(super) const SMALL_ACROSS: Sizes = Sizes { images: usize::MAX, ..SMALL };

/// Most tiles of images in a block; they read one panel.
const TILES: usize = 4;

/// Fewest blocks, where there are enough images.
const BLOCKS: usize = 8;

/// Fewest images of a block that is made smaller to get an even number of blocks.
const LEAST_BLOCK: usize = 6;

/// A convolution of long windows.
pub(super) struct LongWindows<A: Accumulator> {
    kernel: &'static MicroKernel<A>,
    readers: [Reader<A>; 2],
    weights: Im2col,
    writer: Writer<A>,
    /// The first element of the image, and the strides of images and features.
    start: isize,
    strides: [isize; 2],
    images: usize,
    /// Input and output features.
    features: [usize; 2],
    rows: Along,
    columns: Along,
    /// Input features, and rows of the window, of a step. A step of several features has all rows.
    step: [usize; 2],
    /// The offset in a band of each row of the window in a step, and of each position.
    offsets: Vec<usize>,
    positions: Vec<usize>,
    /// Rows of a part.
    part: usize,
    /// Images of a block.
    block: usize,
    /// Whether the rows of a tile are neighbouring positions of one image, not images.
    across: bool,
    /// The offsets in the output of features, and of images and positions.
    out_features: Rows<1>,
    out_positions: Rows<1>,
}

impl<A: Accumulator> LongWindows<A> {
    /// Whether this method computes a convolution and pays for it.
    pub(super) fn applies(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
        let [(_, lhs), (_, rhs)] = ins;
        let rank = op.strides.len();
        let are_last = [&op.lhs_dims, &op.rhs_dims].iter().all(|dims| dims.spatial.iter().copied().eq(2..rank + 2));
        let is_dense = op.lhs_dilation.iter().all(|&dilation| dilation == 1);
        let is_one_group = op.batch_group_count == 1 && op.feature_group_count == 1;
        let is_empty = out.size() == 0 || rhs.size() == 0 || lhs.size() == 0;
        if !matches!(rank, 1 | 2) || !is_dense || !is_one_group || is_empty {
            return false;
        }
        let Some([rows, columns]) = Along::both(op, lhs, rhs, out) else { return false };
        let positions = rows.positions * columns.positions;
        let [images, summed, features] =
            [lhs.shape[op.lhs_dims.first], rhs.shape[op.rhs_dims.second], rhs.shape[op.rhs_dims.first]];
        let window = rows.window * columns.window;
        let work = out.size().saturating_mul(window).saturating_mul(summed);
        (2..=LONG_POSITIONS).contains(&positions)
            && window >= sizes.least
            && if images >= sizes.images { are_last } else { columns.positions >= sizes.neighbours }
            && work >= sizes.work
            && features * 10 >= features.next_multiple_of(A::micro_kernel(Level::best()).columns) * sizes.lanes
    }

    /// The kernel, if this method applies.
    pub(super) fn new(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<LongWindows<A>> {
        if !LongWindows::<A>::applies(sizes, op, ins, out) {
            return None;
        }
        let [(dtype, lhs), (weights_dtype, rhs)] = ins;
        let (kernel, rank) = (A::micro_kernel(Level::best()), op.strides.len());
        let [rows, columns] = Along::both(op, lhs, rhs, out)?;
        let [images, summed, features] =
            [lhs.shape[op.lhs_dims.first], rhs.shape[op.rhs_dims.second], rhs.shape[op.rhs_dims.first]];
        let element = |d: usize| Axis {
            size: rhs.shape[op.rhs_dims.spatial[d]],
            stride: rhs.strides[op.rhs_dims.spatial[d]],
            along: None,
        };
        let of_features = |dim: usize| Axis { size: rhs.shape[dim], stride: rhs.strides[dim], along: None };
        let mut elements = vec![of_features(op.rhs_dims.second)];
        elements.extend((0..rank).map(element));
        let sides = [vec![of_features(op.rhs_dims.first)], elements];
        let out_strides = row_major(&out.shape);
        let offsets_of = |dims: &[usize]| {
            let (shape, strides): (Shape, Strides) = dims.iter().map(|&d| (out.shape[d], out_strides[d])).unzip();
            Rows::from(StridedIter::new(&shape, [&strides]))
        };
        let mut of_images = vec![op.out_dims.first];
        of_images.extend(&op.out_dims.spatial);
        let mut this = LongWindows {
            kernel,
            readers: [dtype, weights_dtype].map(Reader::new),
            weights: Im2col::new(rhs.offset, &[], sides),
            writer: Writer::new(out.dtype),
            start: lhs.offset as isize,
            strides: [lhs.strides[op.lhs_dims.first], lhs.strides[op.lhs_dims.second]],
            images,
            features: [summed, features],
            rows,
            columns,
            step: [summed, rows.window],
            offsets: Vec::new(),
            positions: Vec::new(),
            part: 0,
            block: 1,
            across: images < sizes.images,
            out_features: offsets_of(&[op.out_dims.second]),
            out_positions: offsets_of(&of_images),
        };
        this.choose(sizes)?;
        Some(this)
    }

    /// Chooses the sizes of steps and tasks; `None` if the smallest step is too large.
    fn choose(&mut self, sizes: Sizes) -> Option<()> {
        if !self.across {
            let blocks = |tiles: usize| self.images.div_ceil(tiles * self.kernel.rows);
            let tiles = (1..=TILES).rev().find(|&tiles| blocks(tiles) >= BLOCKS).unwrap_or(1);
            let pairs = blocks(tiles).next_multiple_of(2);
            let count = if self.images >= pairs * LEAST_BLOCK { pairs } else { blocks(tiles) };
            self.block = self.images.div_ceil(count);
        }
        let fits = |this: &LongWindows<A>| {
            let panels = this.elements().saturating_mul(this.panels() * this.kernel.columns);
            let band = this.plane()?.checked_mul(this.block)?;
            Some(this.elements() <= sizes.elements && band.saturating_add(panels) <= sizes.step)
        };
        while !fits(self)? {
            match self.step {
                [1, 1] => return None,
                [1, rows] => self.step[1] = even(self.rows.window, rows / 2, 1),
                [features, _] => self.step[0] = even(self.features[0], features / 2, 1),
            }
        }
        self.part = even(self.step[0] * self.step[1], sizes.part / self.columns.window, 1);
        let (pitch, image) = (self.pitch(), self.of_feature());
        for (feature, y) in (0..self.step[0]).flat_map(|i| (0..self.step[1]).map(move |y| (i, y))) {
            self.offsets.push(feature * image + y * self.rows.dilation * pitch);
        }
        for y in 0..self.rows.positions {
            let row = y * self.rows.stride * pitch;
            self.positions.extend((0..self.columns.positions).map(|x| row + x * self.columns.stride));
        }
        (self.kept() <= sizes.kept).then_some(())
    }

    /// Elements of the window in a step.
    fn elements(&self) -> usize {
        self.step[0] * self.step[1] * self.columns.window
    }

    /// Rows of an image in a band, and elements of such a row.
    fn band_rows(&self) -> usize {
        (self.step[1] - 1) * self.rows.dilation + (self.rows.positions - 1) * self.rows.stride + 1
    }

    fn pitch(&self) -> usize {
        self.columns.reach(self.columns.positions)
    }

    /// Elements of a feature of an image in a band.
    fn of_feature(&self) -> usize {
        self.band_rows() * self.pitch()
    }

    /// Elements of an image in a band: an odd number of cache lines, so that images do not fall into one set of the cache.
    fn plane(&self) -> Option<usize> {
        let line = CACHE_LINE / size_of::<A>();
        let rows = self.rows.reach(self.rows.positions).checked_mul(self.pitch())?;
        rows.checked_mul(self.step[0])?.checked_add(2 * line)?;
        Some((self.step[0] * self.of_feature()).div_ceil(line) / 2 * 2 * line + line)
    }

    /// Elements of the band of a block.
    fn band(&self) -> usize {
        self.plane().unwrap_or(0) * self.block
    }

    /// The number of panels of the weights, and elements of one.
    fn panels(&self) -> usize {
        self.features[1].div_ceil(self.kernel.columns)
    }

    fn panel(&self) -> usize {
        self.elements() * self.kernel.columns
    }

    fn blocks(&self) -> usize {
        self.images.div_ceil(self.block)
    }

    /// Sums of a block with a panel: a row for each position of each image.
    fn sums(&self) -> usize {
        self.block * self.positions.len() * self.kernel.columns
    }

    /// Sums that are kept from step to step.
    fn kept(&self) -> usize {
        if self.steps() > 1 { self.blocks() * self.panels() * self.sums() } else { 0 }
    }

    fn steps(&self) -> usize {
        self.features[0].div_ceil(self.step[0]) * self.rows.window.div_ceil(self.step[1])
    }

    /// The features and the rows of the window of a step.
    fn step(&self, i: usize) -> [Range<usize>; 2] {
        let down = self.rows.window.div_ceil(self.step[1]);
        [piece(0..self.features[0], self.step[0], i / down), piece(0..self.rows.window, self.step[1], i % down)]
    }

    /// Copies an image's part of a band.
    fn copy_image(&self, source: Source<'_>, image: usize, [features, rows]: &[Range<usize>; 2], to: &mut [A]) {
        let elements = self.readers[0].of(source);
        let (pitch, step) = (self.pitch(), self.of_feature());
        let x = self.columns.first(0);
        let y = (rows.start * self.rows.dilation) as i64 + self.rows.first(0);
        let count = (rows.len() - 1) * self.rows.dilation + (self.rows.positions - 1) * self.rows.stride + 1;
        for (i, feature) in features.clone().enumerate() {
            let at = [
                (image as isize, self.strides[0]),
                (feature as isize, self.strides[1]),
                (y as isize, self.rows.element),
                (x as isize, self.columns.element),
            ];
            let segments = RowSegments {
                at: at.iter().fold(self.start, |at, (i, stride)| at.wrapping_add(i.wrapping_mul(*stride))),
                strides: [self.rows.element, self.columns.element],
                count,
                len: pitch,
                to: i * step,
                to_strides: [pitch, 1],
                segments: part_inside(y, 1, self.rows.image, count),
                inside: part_inside(x, 1, self.columns.image, pitch),
                shared: None,
            };
            copy_segments(&elements, &segments, to);
        }
    }

    /// Multiplies the band of some images with a panel of some rows of the window, and adds the products to the sums, or writes them if
    /// they are the first.
    fn multiply(&self, images: usize, band: &[A], panel: &[A], rows: usize, sums: &mut [A], adds: bool) {
        let (width, count, plane) = (self.kernel.columns, self.positions.len(), self.plane().unwrap_or(0));
        let (len, column, neighbours) = (self.columns.window, self.columns.dilation, self.columns.positions);
        // The strides between the rows of a tile, in the band and in the sums.
        let (row, out_row) = if self.across { (self.columns.stride, width) } else { (plane, count * width) };
        // Groups of rows are rows of positions, where these are long enough.
        let groups = self.groups();
        let group = if groups > 1 { self.rows.stride * self.pitch() } else { ROWS_PER_POINTER * row };
        let height = match groups {
            1 => self.kernel.height(if self.across { neighbours } else { self.block }),
            _ => groups * ROWS_PER_POINTER,
        };
        assert!(band.len() == self.band() && images <= self.block && rows <= self.offsets.len());
        assert!(panel.len() >= rows * len * width && sums.len() >= images * count * width);
        for part in (0..rows).step_by(self.part) {
            let segments = Segments {
                offsets: &self.offsets[part..rows.min(part + self.part)],
                len,
                row_stride: row,
                group_stride: group,
                column_stride: column,
            };
            let panel = panel[part * len * width..].as_ptr();
            let mut multiply = |tile: usize, image: usize, i: usize| {
                // SAFETY: the images have each element of the window at each position (a band has `band_rows` rows of `pitch` elements
                // for each feature), the panel these elements, and the sums a row for each position of these images.
                unsafe {
                    let left = band.as_ptr().add(image * plane + self.positions[i]);
                    let out = sums.as_mut_ptr().add((image * count + i) * width);
                    (self.kernel.segments)(tile, left, segments, panel, (out, out_row), adds || part > 0);
                }
            };
            if self.across {
                let all = neighbours * groups;
                for (image, y) in (0..images).flat_map(|image| (0..count).step_by(all).map(move |y| (image, y))) {
                    let tile = all.min(count - y);
                    for x in (0..tile).step_by(height) {
                        multiply(height.min(tile - x), image, y + x);
                    }
                }
            } else {
                for image in (0..images).step_by(height) {
                    (0..count).for_each(|i| multiply(height.min(images - image), image, i));
                }
            }
        }
    }

    /// Rows of positions of a tile, where the rows of a tile are positions.
    fn groups(&self) -> usize {
        if !self.across || self.columns.positions != ROWS_PER_POINTER {
            return 1;
        }
        even(self.rows.positions, self.kernel.rows / ROWS_PER_POINTER, 1)
    }

    /// Writes the sums of some images with a panel to the output.
    fn write(&self, out: DisjointMut<'_, u8>, images: Range<usize>, panel: usize, sums: &[A], transposed: &mut [A]) {
        let (width, count) = (self.kernel.columns, self.positions.len());
        let features = panel * width..self.features[1].min((panel + 1) * width);
        let len = images.len() * count;
        let transposed = &mut transposed[..features.len() * len];
        transpose_rows(sums, 0, width as isize, len, len, transposed);
        let out = StridedOutput { out, writer: &self.writer, rows: &self.out_features, columns: &self.out_positions };
        // SAFETY: each task has its own images or features.
        unsafe { out.write(features, images.start * count..images.end * count, transposed) };
    }
}

impl<A: Accumulator> Kernel for LongWindows<A> {
    fn scratch(&self, threads: usize) -> usize {
        let own = if self.kept() > 0 { 0 } else { self.sums() };
        let of_thread = [self.band(), own, self.sums()].map(scratch::bytes::<A>).iter().sum::<usize>();
        let shared = [self.panels() * self.panel(), self.kept()].map(scratch::bytes::<A>).iter().sum::<usize>();
        shared + threads * of_thread
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let width = self.kernel.columns;
        let scratch = &mut scratch[..self.scratch(threads.count())];
        let (panels, scratch) = scratch::take::<A>(scratch, self.panels() * self.panel());
        let (kept, scratch) = scratch::take::<A>(scratch, self.kept());
        let kept = (!kept.is_empty()).then(|| DisjointMut::new(kept));
        let all = DisjointMut::bytes(&mut outs[0]);
        let weights = self.weights.of(self.readers[1].of(ins[1]), 0);
        // Tasks are blocks or, where there are few blocks, blocks with some of the panels; each task copies its band.
        let groups = self.panels().min((2 * threads.count()).div_ceil(self.blocks()));
        let group = self.panels().div_ceil(groups);
        let groups = self.panels().div_ceil(group);
        // Where features are neighbours, the next panel is read from neighbouring cache lines.
        let together = if self.weights.along() == FREE { 2 } else { 1 };
        for i in 0..self.steps() {
            let step = self.step(i);
            let (rows, len) = (step[0].len() * step[1].len(), self.columns.window);
            let first = (step[0].start * self.rows.window + step[1].start) * self.columns.window;
            let parts = rows.div_ceil(self.part);
            let to = DisjointMut::new(panels);
            threads.for_each(self.panels().div_ceil(together) * parts, |task| {
                let (first_panel, part) = (task / parts * together, task % parts * self.part * len);
                let len = (self.part * len).min(rows * len - part);
                for panel in first_panel..self.panels().min(first_panel + together) {
                    let features = panel * width..self.features[1].min((panel + 1) * width);
                    // SAFETY: each task has its own part of some panels.
                    let to = unsafe { to.slice(panel * self.panel() + part * width, len * width) };
                    weights.pack_panel(features, first + part..first + part + len, width, to);
                }
            });
            let panels = &*panels;
            threads.for_each_with_scratch(self.blocks() * groups, scratch, |task, scratch| {
                let (block, first) = (task / groups, task % groups * group);
                let images = block * self.block..self.images.min((block + 1) * self.block);
                let (band, scratch) = scratch::take::<A>(scratch, self.band());
                let (transposed, scratch) = scratch::take::<A>(scratch, self.sums());
                for (image, to) in images.clone().zip(band.chunks_mut(self.plane().unwrap_or(1))) {
                    self.copy_image(ins[0], image, &step, to);
                }
                for panel in first..self.panels().min(first + group) {
                    let weights = &panels[panel * self.panel()..][..self.panel()];
                    let sums = match &kept {
                        // SAFETY: each block and panel has its own sums, and is in one task.
                        Some(kept) => unsafe { kept.slice((block * self.panels() + panel) * self.sums(), self.sums()) },
                        None => scratch::take::<A>(scratch, self.sums()).0,
                    };
                    self.multiply(images.len(), band, weights, rows, sums, i > 0);
                    if i + 1 == self.steps() {
                        self.write(all, images.clone(), panel, sums, transposed);
                    }
                }
            });
        }
    }
}
