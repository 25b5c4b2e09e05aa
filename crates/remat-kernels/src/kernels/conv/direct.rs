//! Convolutions whose windows are read in place: the matrix of windows is not gathered, not even block by block.
//!
//! Suppose that the output has rows of positions (NCHW) and the image is not dilated. Then neighbouring positions read neighbours in the
//! image for each element of the window, if the columns of each phase of the stride are stored apart. So a task copies a *band* of the
//! image once: the rows that some rows of positions need, with the zeros around them, phase after phase of the columns. For each element of
//! the window the micro-kernel then reads a vector of positions at an offset of the band
//! ([`IndirectFn`](crate::base::product::micro::IndirectFn)). In a band, the rows of all features lie one after the other, so that the CPU
//! can predict the offsets of a window's features.
//!
//! Gathered windows are larger than the image by the size of a window, and each is used once for each output feature: with 64 output
//! features, gathering takes as long as multiplying. Windows of one element gain nothing from this method, and lose the long runs of whole
//! images.
//!
//! Sums that are rounded to f16 or bf16 are those of a band first, in scratch memory of the task.
//!
//! The operation and the shapes alone decide whether a convolution is computed this way, and the order of its sums: features, then rows,
//! then columns of the window, in parts.

// Products are written through pointers, since the tasks' results interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{Aval, Conv, DType};
use smallvec::SmallVec;

use super::im2col::{Axis, Im2col};
use super::polyphase;
use super::row_segments::{RowSegments, copy_segments, part_inside};
use super::thresholds::{DIRECT_BAND, DIRECT_LANES, DIRECT_STRIDED, DIRECT_WEIGHTS, DIRECT_WORK};
use crate::base::disjoint::DisjointMut;
use crate::base::pieces::piece;
use crate::base::product::{Accumulator, ColumnVector, MOST_VECTORS, MicroKernel};
use crate::base::scratch;
use crate::interface::layout::Layout;
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::{MANY, Reader, Writer, even};
use crate::simd::Level;
use crate::threads::Threads;

/// Sizes of bands and parts, and bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Most elements of a band, so that it stays in the second-level cache.
    band: usize,
    /// Most elements of the smallest possible band.
    most_band: usize,
    /// Most elements of the packed weights, which are scratch memory.
    weights: usize,
    /// Fewest multiplications.
    work: usize,
    /// Most positions of a part of the contracted axes.
    part: usize,
    /// Fewest lanes that positions fill, in tenths.
    lanes: usize,
    /// Most features of windows with a stride: their columns are copied one by one.
    strided: usize,
}

/// The sizes of bands and parts were measured.
pub(super) const SIZES: Sizes = Sizes {
    band: 96 << 10,
    most_band: DIRECT_BAND,
    weights: DIRECT_WEIGHTS,
    work: DIRECT_WORK,
    part: 320,
    lanes: DIRECT_LANES,
    strided: DIRECT_STRIDED,
};

/// Sizes with which small convolutions have several bands and parts.
#[cfg(test)]
pub(super) const SMALL: Sizes =
    Sizes { band: 300, most_band: 1 << 14, weights: 1 << 16, work: 0, part: 16, lanes: 0, strided: usize::MAX };

/// Panels of the weights that are multiplied with some positions before the next positions.
const PANELS: usize = 6;

/// One spatial axis of an image and of its windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) image: usize,
    pub(super) window: usize,
    pub(super) positions: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    low: i64,
    /// The stride of the image's elements.
    pub(super) element: isize,
}

impl Along {
    /// An axis of one element.
    pub(super) const NONE: Along =
        Along { image: 1, window: 1, positions: 1, stride: 1, dilation: 1, low: 0, element: 0 };

    /// The axes of rows and columns of a convolution with one or two spatial dimensions; `None` if elements are too far apart for offsets.
    pub(super) fn both(op: &Conv, image: &Layout, weights: &Layout, out: &Aval) -> Option<[Along; 2]> {
        let along = |d: usize| Along {
            image: image.shape[op.lhs_dims.spatial[d]],
            window: weights.shape[op.rhs_dims.spatial[d]],
            positions: out.shape[op.out_dims.spatial[d]],
            stride: op.strides[d],
            dilation: op.rhs_dilation[d],
            low: op.padding[d].0,
            element: image.strides[op.lhs_dims.spatial[d]],
        };
        let both = if op.strides.len() == 2 { [along(0), along(1)] } else { [Along::NONE, along(0)] };
        (!both.iter().any(Along::is_far)).then_some(both)
    }

    /// The axis of a phase, of an image with `image` elements; `None` if elements are too far apart for offsets.
    pub(super) fn of_phase(phase: &polyphase::Along, image: usize, element: isize) -> Option<Along> {
        let along = Along {
            image,
            window: phase.elements,
            positions: phase.positions,
            stride: phase.skips[0],
            dilation: phase.skips[1],
            low: i64::try_from(-phase.origin).ok()?,
            element,
        };
        (!along.is_far()).then_some(along)
    }

    /// Whether the elements of windows may be so far apart that their offsets do not fit an integer.
    fn is_far(&self) -> bool {
        const FAR: usize = 1 << 40;
        let [windows, positions] = [(self.window, self.dilation), (self.positions, self.stride)];
        [windows, positions].iter().any(|&(count, apart)| count.saturating_sub(1).saturating_mul(apart) > FAR)
            || self.low.unsigned_abs() > FAR as u64
    }

    /// The extent of the windows at some neighbouring positions.
    pub(super) fn reach(&self, positions: usize) -> usize {
        (positions - 1) * self.stride + (self.window - 1) * self.dilation + 1
    }

    /// The element at which the window of a position begins.
    pub(super) fn first(&self, position: usize) -> i64 {
        (position * self.stride) as i64 - self.low
    }
}

/// A convolution whose windows are read in place.
pub(super) struct Direct<A: Accumulator> {
    kernel: &'static MicroKernel<A>,
    readers: [Reader<A>; 2],
    writer: Writer<A>,
    weights: Im2col,
    /// The first element of the image, and the strides of images and features.
    start: isize,
    strides: [isize; 2],
    /// The stride of features in the weights.
    weight_stride: isize,
    images: usize,
    groups: usize,
    /// Input and output features of a group.
    features: [usize; 2],
    rows: Along,
    columns: Along,
    /// The phases of the stride in which windows have columns.
    phases: SmallVec<[usize; 4]>,
    /// The offset in a band of each element of a window.
    offsets: Vec<usize>,
    part: usize,
    /// Positions of a band: rows and columns.
    tile: [usize; 2],
}

impl<A: Accumulator> Direct<A> {
    /// Whether this method computes a convolution and pays for it.
    pub(super) fn applies(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
        let [(_, lhs), (_, rhs)] = ins;
        let rank = op.strides.len();
        let dims = &op.out_dims;
        let in_order = dims.first == 0 && dims.second == 1 && dims.spatial.iter().copied().eq(2..rank + 2);
        let is_dense = op.lhs_dilation.iter().all(|&dilation| dilation == 1) && op.batch_group_count == 1;
        let is_empty = out.size() == 0 || rhs.shape.contains(&0);
        if !matches!(rank, 1 | 2) || !out.dtype.is_float() || !in_order || !is_dense || is_empty {
            return false;
        }
        let Some([rows, columns]) = Along::both(op, lhs, rhs, out) else { return false };
        let features = rhs.shape[op.rhs_dims.second];
        let depth = features * rows.window * columns.window;
        let lanes = columns.positions.next_multiple_of(A::micro_kernel(Level::best()).lanes);
        let work = depth.saturating_mul(out.size());
        let packed = out.shape[1].saturating_mul(depth);
        columns.positions * 10 / lanes >= sizes.lanes
            && rows.window * columns.window > 1
            && (columns.stride == 1 || features <= sizes.strided)
            && work >= sizes.work
            && packed <= sizes.weights
    }

    /// The kernel, if this method applies.
    pub(super) fn new(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Direct<A>> {
        if !Direct::<A>::applies(sizes, op, ins, out) {
            return None;
        }
        let [(dtype, lhs), (weights_dtype, rhs)] = ins;
        let [rows, columns] = Along::both(op, lhs, rhs, out)?;
        let (kernel, rank) = (A::micro_kernel(Level::best()), op.strides.len());
        let (groups, images) = (op.feature_group_count, out.shape[0]);
        let features = [rhs.shape[op.rhs_dims.second], out.shape[1] / groups];
        let depth = features[0] * rows.window * columns.window;
        let mut phases: SmallVec<[usize; 4]> =
            (0..columns.window).map(|k| k.checked_mul(columns.dilation).map_or(0, |at| at % columns.stride)).collect();
        phases.sort_unstable();
        phases.dedup();
        let element = |d: usize| Axis {
            size: rhs.shape[op.rhs_dims.spatial[d]],
            stride: rhs.strides[op.rhs_dims.spatial[d]],
            along: None,
        };
        let of_features = |dim: usize, size: usize| Axis { size, stride: rhs.strides[dim], along: None };
        let mut elements = vec![of_features(op.rhs_dims.second, features[0])];
        elements.extend((0..rank).map(element));
        let weights = Im2col::new(rhs.offset, &[], [vec![of_features(op.rhs_dims.first, features[1])], elements]);
        let mut this = Direct {
            kernel,
            readers: [dtype, weights_dtype].map(Reader::new),
            writer: Writer::new(out.dtype),
            weights,
            start: lhs.offset as isize,
            strides: [lhs.strides[op.lhs_dims.first], lhs.strides[op.lhs_dims.second]],
            weight_stride: features[1] as isize * rhs.strides[op.rhs_dims.first],
            images,
            groups,
            features,
            rows,
            columns,
            phases,
            offsets: Vec::new(),
            part: even(depth, sizes.part, 8),
            tile: [1, columns.positions],
        };
        if this.band([1, columns.positions.min(kernel.columns)])? > sizes.most_band {
            return None;
        }
        while this.tile[1] > kernel.columns && this.band(this.tile)? > sizes.band {
            this.tile[1] = even(columns.positions, this.tile[1] / 2, kernel.lanes);
        }
        while this.tile[0] < rows.positions && this.band([this.tile[0] + 1, this.tile[1]])? <= sizes.band {
            this.tile[0] += 1;
        }
        this.tile[0] = even(rows.positions, this.tile[0], 1);
        while this.tasks() < MANY && this.tile[0] > 1 {
            this.tile[0] = even(rows.positions, this.tile[0].div_ceil(2), 1);
        }
        while this.tasks() < MANY && this.tile[1] >= 2 * kernel.columns {
            this.tile[1] = even(columns.positions, this.tile[1].div_ceil(2), kernel.columns);
        }
        this.offsets = this.offsets();
        Some(this)
    }

    /// Columns of a band of some positions for each phase.
    fn phase(&self, positions: usize) -> usize {
        positions + (self.columns.window - 1) * self.columns.dilation / self.columns.stride
    }

    /// Elements of a row of a band of some positions: an odd number of cache lines, so that rows do not fall into one set of the cache.
    fn row(&self, positions: usize) -> usize {
        let line = crate::simd::CACHE_LINE / size_of::<A>();
        (self.phases.len() * self.phase(positions)).div_ceil(line) / 2 * 2 * line + line
    }

    /// Elements of a band of this many rows and columns of positions; `None` if the number overflows.
    fn band(&self, [rows, columns]: [usize; 2]) -> Option<usize> {
        let elements = self.rows.reach(rows).checked_mul(self.features[0])?.checked_mul(self.row(columns))?;
        // The last vector is read to its end.
        elements.checked_add(self.kernel.columns)
    }

    /// The offset in a band of each element of a window.
    fn offsets(&self) -> Vec<usize> {
        let row = self.row(self.tile[1]);
        let mut offsets = Vec::with_capacity(self.features[0] * self.rows.window * self.columns.window);
        for feature in 0..self.features[0] {
            for y in 0..self.rows.window {
                for x in 0..self.columns.window {
                    let x = x * self.columns.dilation;
                    let phase = self.phases.partition_point(|&phase| phase < x % self.columns.stride);
                    let at = phase * self.phase(self.tile[1]) + x / self.columns.stride;
                    offsets.push((y * self.rows.dilation * self.features[0] + feature) * row + at);
                }
            }
        }
        offsets
    }

    /// The number of bands along rows and columns of positions.
    fn bands(&self) -> [usize; 2] {
        [self.rows.positions.div_ceil(self.tile[0]), self.columns.positions.div_ceil(self.tile[1])]
    }

    fn tasks(&self) -> usize {
        self.images * self.groups * self.bands().iter().product::<usize>()
    }

    /// Rows of a panel of the weights.
    fn height(&self) -> usize {
        self.kernel.height(self.features[1])
    }

    /// Elements of a panel of the weights.
    fn panel(&self) -> usize {
        self.offsets.len() * self.kernel.rows
    }

    /// Panels of the weights of a group.
    fn panels(&self) -> usize {
        self.features[1].div_ceil(self.height())
    }

    /// Elements of all packed weights.
    fn packed(&self) -> usize {
        self.groups * self.panels() * self.panel()
    }

    /// Elements of the largest band.
    fn most_band(&self) -> usize {
        self.band(self.tile).unwrap_or(0)
    }

    /// Elements of the sums of a band, if they are rounded to another dtype.
    fn sums(&self) -> usize {
        if self.writer.is_direct() { 0 } else { self.features[1] * self.tile[0] * self.tile[1] }
    }

    /// Bytes of the scratch memory of a thread.
    fn task_scratch(&self) -> usize {
        scratch::bytes::<A>(self.most_band()) + scratch::bytes::<A>(self.sums())
    }

    /// Copies the band of some positions.
    fn copy_band(&self, image: Source<'_>, start: isize, rows: &Range<usize>, columns: &Range<usize>, to: &mut [A]) {
        let elements = self.readers[0].of(image);
        let (row, phase) = (self.row(self.tile[1]), self.phase(self.tile[1]));
        let is_read = |i: usize| {
            (0..self.rows.window)
                .any(|k| i.checked_sub(k * self.rows.dilation).is_some_and(|i| i.is_multiple_of(self.rows.stride)))
        };
        for i in (0..self.rows.reach(rows.len())).filter(|&i| is_read(i)) {
            let y = self.rows.first(rows.start) + i as i64;
            let segments = if (0..self.rows.image as i64).contains(&y) { 0..self.features[0] } else { 0..0 };
            for (p, &of_stride) in self.phases.iter().enumerate() {
                let x = self.columns.first(columns.start) + of_stride as i64;
                let at = (y as isize).wrapping_mul(self.rows.element).wrapping_add(start);
                let segments = RowSegments {
                    at: at.wrapping_add((x as isize).wrapping_mul(self.columns.element)),
                    strides: [self.strides[1], (self.columns.stride as isize).wrapping_mul(self.columns.element)],
                    count: self.features[0],
                    len: self.phase(columns.len()),
                    to: i * self.features[0] * row + p * phase,
                    to_strides: [row, 1],
                    segments: segments.clone(),
                    inside: part_inside(x, self.columns.stride as u64, self.columns.image, self.phase(columns.len())),
                    shared: None,
                };
                copy_segments(&elements, &segments, to);
            }
        }
    }

    /// Multiplies the weights of a group with the windows in a band. Features of the results, and their rows, are `strides` apart.
    ///
    /// # Safety
    /// `out` is the first of these positions, and no other task writes them.
    unsafe fn multiply(
        &self,
        weights: &[A],
        band: &[A],
        [rows, columns]: [usize; 2],
        out: *mut A,
        [of_features, of_rows]: [usize; 2],
    ) {
        let Direct { kernel, .. } = self;
        let down = self.rows.stride * self.features[0] * self.row(self.tile[1]);
        let (height, count) = (self.height(), columns.div_ceil(kernel.lanes));
        assert!(weights.len() == self.panels() * self.panel() && band.len() == self.most_band());
        let vector = |i: usize| {
            let (y, x) = (i / count, i % count * kernel.lanes);
            ColumnVector {
                from: band[y * down + x..].as_ptr(),
                to: out.wrapping_add(y * of_rows + x),
                len: kernel.lanes.min(columns - x),
            }
        };
        let across = kernel.columns / kernel.lanes;
        for part in (0..self.offsets.len()).step_by(self.part) {
            let offsets = &self.offsets[part..self.offsets.len().min(part + self.part)];
            for first in (0..self.panels()).step_by(PANELS) {
                for i in (0..rows * count).step_by(across) {
                    // The padding of the last vectors is computed and not written.
                    let mut vectors = [ColumnVector { len: 0, ..vector(i) }; MOST_VECTORS];
                    vectors.iter_mut().zip(i..(rows * count).min(i + across)).for_each(|(p, i)| *p = vector(i));
                    for p in first..self.panels().min(first + PANELS) {
                        let (row, left) = (p * height, weights[p * self.panel() + part * kernel.rows..].as_ptr());
                        let (count, out) = (height.min(self.features[1] - row), (row * of_features, of_features));
                        // SAFETY: the panel has these positions, and the band the elements at each offset from the first of
                        // each vector of columns on, and a vector behind them; the results are as the caller promises.
                        unsafe { (kernel.indirect)(count, left, vectors.as_ptr(), offsets, out, part > 0) }
                    }
                }
            }
        }
    }
}

impl<A: Accumulator> Kernel for Direct<A> {
    fn scratch(&self, threads: usize) -> usize {
        scratch::bytes::<A>(self.packed()) + threads * self.task_scratch()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (packed, scratch) = scratch::take::<A>(scratch, self.packed());
        threads.for_each_chunk(packed, self.panel(), |i, to| {
            let (group, panel) = (i / self.panels(), i % self.panels());
            let rows = panel * self.height()..self.features[1].min((panel + 1) * self.height());
            let weights = self.weights.of(self.readers[1].of(ins[1]), group as isize * self.weight_stride);
            weights.pack_panel(rows, 0..self.offsets.len(), self.kernel.rows, to);
        });
        let packed = &*packed;
        let all = DisjointMut::bytes(&mut outs[0]);
        let [down, across] = self.bands();
        let scratch = &mut scratch[..threads.count() * self.task_scratch()];
        let positions = self.rows.positions * self.columns.positions;
        threads.for_each_with_scratch(self.tasks(), scratch, |task, scratch| {
            let (band, scratch) = scratch::take::<A>(scratch, self.most_band());
            let (i, tile) = (task / (down * across), task % (down * across));
            let (image, group) = (i / self.groups, i % self.groups);
            let rows = piece(0..self.rows.positions, self.tile[0], tile / across);
            let columns = piece(0..self.columns.positions, self.tile[1], tile % across);
            let feature = (group * self.features[0]) as isize;
            let start = self.start + image as isize * self.strides[0] + feature * self.strides[1];
            self.copy_band(ins[0], start, &rows, &columns, band);
            let of_group = self.panels() * self.panel();
            let position = rows.start * self.columns.positions + columns.start;
            let out = i * self.features[1] * positions + position;
            let (weights, size) = (&packed[group * of_group..][..of_group], [rows.len(), columns.len()]);
            if self.writer.is_direct() {
                // SAFETY: each position of each image is in one band, and `i` counts the groups of images in the order of the output.
                unsafe {
                    let out = all.at(out * size_of::<A>()).cast::<A>();
                    self.multiply(weights, band, size, out, [positions, self.columns.positions]);
                }
                return;
            }
            let sums = scratch::take::<A>(scratch, self.sums()).0;
            // SAFETY: the sums are those of this task, and have room for all features of these positions.
            unsafe {
                self.multiply(weights, band, size, sums.as_mut_ptr(), [rows.len() * columns.len(), columns.len()])
            };
            for (row, sums) in sums.chunks(columns.len()).take(self.features[1] * rows.len()).enumerate() {
                let (feature, y) = (row / rows.len(), row % rows.len());
                let at = out + feature * positions + y * self.columns.positions;
                // SAFETY: as for results that are not rounded.
                unsafe { self.writer.write(sums, all.at(at * self.writer.dtype.size())) };
            }
        });
    }
}
