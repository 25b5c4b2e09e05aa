//! Depthwise convolutions and their gradients: each channel is convolved with weights of its own.
//!
//! As products of matrices these have a single row or column for each group, so that gathering windows takes many times as long as
//! multiplying. Here channels are the lanes of vectors. A task copies a *band* of the image for some channels, with channels innermost as
//! in NHWC: the rows that its positions need, with the zeros around them, and the weights of the same channels. The micro-kernel then
//! multiplies, element by element, the vectors at some neighbouring positions by those of the weights, for all elements of the window
//! ([`ElementwiseFn`](crate::base::product::micro::ElementwiseFn)).
//!
//! Where channels come first (NCHW), rows are transposed while they are copied. Where the rows of images fill vectors this is faster
//! than reading them in place ([`direct`](super::direct)), but for few channels and for sounds, which that algorithm keeps.
//!
//! The gradient of the weights is the same with many elements and few positions. The elements are cut into segments then, whose sums are
//! kept apart and added at the end, so that there are tasks enough. The gradient of a strided convolution's image is one convolution for
//! each phase ([`polyphase`]).
//!
//! The operation and the shapes decide, on a CPU, whether a convolution is computed this way, and the order of its sums: summed images,
//! then rows, then columns of the window, in parts.

// Results are written through pointers, since those of several tasks interleave.
#![allow(unsafe_code)]

mod cut;

use std::ops::Range;

use remat_ir::{Aval, Conv, DType};

#[cfg(test)]
pub(super) use cut::SMALL;
use cut::{Phase, extent};
pub(super) use cut::{SIZES, Sizes};

use super::direct::{self, Direct};
use super::fill_with_zeros;
use super::output::write_part;
use super::polyphase::{Along, phases};
use super::row_segments::{RowSegments, copy_segments, part_inside};
use crate::base::disjoint::DisjointMut;
use crate::base::pieces::{piece, pieces};
use crate::base::product::{Accumulator, MicroKernel};
use crate::base::scratch;
use crate::interface::layout::{Layout, row_major};
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::{MOST_COLUMNS, Reader, Writer, chunk, even, pack_transposed_through};
use crate::simd::Level;
use crate::threads::Threads;

/// The first element of an operand or the result, and its strides.
#[derive(Clone, Copy)]
struct Strides {
    start: isize,
    /// Between images, whether they are summed or have results of their own.
    image: isize,
    channel: isize,
    /// Between rows, and between columns.
    spatial: [isize; 2],
}

impl Strides {
    /// The offset of a channel in an image.
    fn at(&self, image: isize, channel: usize) -> isize {
        self.start + image * self.image + channel as isize * self.channel
    }
}

/// A depthwise convolution.
pub(super) struct Depthwise<A: Accumulator> {
    kernel: &'static MicroKernel<A>,
    readers: [Reader<A>; 2],
    writer: Writer<A>,
    lhs: Strides,
    rhs: Strides,
    out: Strides,
    images: usize,
    summed: usize,
    channels: usize,
    /// Rows and columns of the image.
    image: [usize; 2],
    phases: Vec<Phase>,
    /// Whether some results meet no element of the image, and are zero.
    has_zeros: bool,
    part: usize,
}

/// What a task sums: some channels of an image at some rows of positions, in some steps.
struct Task<'a> {
    phase: &'a Phase,
    image: usize,
    channels: Range<usize>,
    positions: Range<usize>,
    steps: Range<usize>,
}

/// Rows of some channels of an operand, which are copied.
#[derive(Clone, Copy)]
struct Part {
    /// The offset of the first of these channels at the first row and column of the operand.
    start: isize,
    /// The strides of rows, columns and channels.
    strides: [isize; 3],
    /// The first row and column that are copied, which may be outside.
    first: [i64; 2],
    /// The number of columns that are copied.
    width: usize,
    /// Rows and columns of the operand.
    inside: [usize; 2],
    channels: usize,
    /// Distance between columns in the copy.
    block: usize,
}

/// What belongs to the rows and to the columns of an image. A sound has `one` of either: with channels last its rows have one column, so that
/// it can be cut, and otherwise it is one row, which is transposed.
fn rows_and_columns<T>(rank: usize, are_last: bool, one: T, of: impl Fn(usize) -> T) -> [T; 2] {
    match rank {
        2 => [of(0), of(1)],
        _ if are_last => [of(0), one],
        _ => [one, of(0)],
    }
}

impl<A: Accumulator> Depthwise<A> {
    /// Whether this method computes a convolution and pays for it.
    pub(super) fn applies(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
        Depthwise::<A>::new(sizes, op, ins, out).is_some()
    }

    /// The kernel, if this method applies.
    pub(super) fn new(sizes: Sizes, op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Depthwise<A>> {
        let [(dtype, lhs), (weights_dtype, rhs)] = ins;
        let rank = op.strides.len();
        let channels = rhs.shape[op.rhs_dims.first];
        let summed = rhs.shape[op.rhs_dims.second];
        // The channels of images, and the images that are summed, as in gradients of weights, or that have results of their own.
        let is_gradient = op.batch_group_count > 1;
        let (of_channels, of_images) = match is_gradient {
            true => (op.lhs_dims.first, op.lhs_dims.second),
            false => (op.lhs_dims.second, op.lhs_dims.first),
        };
        let is_depthwise = op.feature_group_count.max(op.batch_group_count) == channels
            && lhs.shape[of_channels] == channels
            && (is_gradient || summed == 1);
        let are_last = of_channels == rank + 1 && (is_gradient || op.out_dims.second == rank + 1);
        let work = rhs.size().saturating_mul(out.size() / channels.max(1));
        if !matches!(rank, 1 | 2)
            || !out.dtype.is_float()
            || !is_depthwise
            || channels < sizes.channels.max(2)
            || work == 0
            || work < sizes.work
        {
            return None;
        }
        let kernel = A::micro_kernel(Level::best());
        // Rows of a sound, or of few channels, are better read in place than transposed.
        let is_in_rows = !are_last && (rank == 1 || 2 * channels < kernel.columns);
        if is_in_rows && Direct::<A>::applies(direct::SIZES, op, ins, out) {
            return None;
        }
        let (image_stride, out_strides) = (lhs.strides[of_images], row_major(&out.shape));
        let images = if is_gradient { 1 } else { lhs.shape[of_images] };
        let (count, found) = phases(op, out, rhs);
        let sizes = if are_last { sizes } else { Sizes { panels: 1, ..sizes } };
        let phase = |along: &[Along]| {
            let one = Along { position: (0, 1), positions: 1, element: (0, 1), elements: 1, origin: 0, skips: [1, 1] };
            let both = rows_and_columns(rank, are_last, one, |d| along[d]);
            Phase::new(sizes, both, kernel.columns, [images, summed, channels])
        };
        let phases: Vec<Phase> = found.iter().map(|along| phase(along)).collect::<Option<_>>()?;
        Some(Depthwise {
            kernel,
            readers: [dtype, weights_dtype].map(Reader::new),
            writer: Writer::new(out.dtype),
            lhs: Strides {
                start: lhs.offset as isize,
                image: image_stride,
                channel: lhs.strides[of_channels],
                spatial: rows_and_columns(rank, are_last, 0, |d| lhs.strides[op.lhs_dims.spatial[d]]),
            },
            rhs: Strides {
                start: rhs.offset as isize,
                image: rhs.strides[op.rhs_dims.second],
                channel: rhs.strides[op.rhs_dims.first],
                spatial: rows_and_columns(rank, are_last, 0, |d| rhs.strides[op.rhs_dims.spatial[d]]),
            },
            out: Strides {
                start: 0,
                image: out_strides[op.out_dims.first],
                channel: out_strides[op.out_dims.second],
                spatial: rows_and_columns(rank, are_last, 0, |d| out_strides[op.out_dims.spatial[d]]),
            },
            images,
            summed,
            channels,
            image: rows_and_columns(rank, are_last, 1, |d| lhs.shape[op.lhs_dims.spatial[d]]),
            has_zeros: phases.len() < count,
            phases,
            part: sizes.part,
        })
    }

    /// The number of blocks: of an image, and of some channels.
    fn blocks(&self, phase: &Phase) -> usize {
        self.images * self.channels.div_ceil(phase.block)
    }

    /// Elements of the sums that are kept for each segment.
    fn kept(&self, phase: &Phase) -> usize {
        let sums = phase.sizes().map_or(0, |[.., sums]| sums);
        if phase.segments > 1 { self.blocks(phase) * phase.segments * sums } else { 0 }
    }

    /// Bytes of the scratch memory of a thread.
    fn task_scratch(&self, phase: &Phase) -> usize {
        let [band, weights, sums] = phase.sizes().unwrap_or_default();
        let sums = if phase.segments > 1 { 0 } else { sums };
        [band, weights, sums].map(scratch::bytes::<A>).iter().sum()
    }

    /// Copies some channels of some rows of an operand. Elements outside are zeros.
    fn copy_rows(
        &self,
        operand: usize,
        source: Source<'_>,
        part: &Part,
        rows: impl Iterator<Item = usize>,
        to: &mut [A],
    ) {
        let (elements, mut chunk) = (self.readers[operand].of(source), chunk());
        let Part { start, strides, first: [y, x], width, inside: [height, columns], channels, block } = *part;
        for i in rows {
            let y = y + i as i64;
            let at = start.wrapping_add((y as isize).wrapping_mul(strides[0]));
            let at = at.wrapping_add((x as isize).wrapping_mul(strides[1]));
            let inside = if (0..height as i64).contains(&y) { part_inside(x, 1, columns, width) } else { 0..0 };
            let to = &mut to[i * width * block..][..width * block];
            if strides[1] == 1 && strides[2] != 1 && channels <= MOST_COLUMNS {
                to[..inside.start * block].fill(A::ZERO);
                to[inside.end * block..].fill(A::ZERO);
                let whole = &mut to[inside.start * block..inside.end * block];
                pack_transposed_through(&mut chunk, inside, channels, block, whole, |columns, stride, to| {
                    for (i, to) in to.chunks_mut(stride).enumerate() {
                        let at = at + i as isize * strides[2] + columns.start as isize;
                        elements.read(at, 1, &mut to[..columns.len()]);
                    }
                });
                continue;
            }
            let segments = RowSegments {
                at,
                strides: [strides[1], strides[2]],
                count: width,
                len: channels,
                to: 0,
                to_strides: [block, 1],
                segments: inside,
                inside: 0..channels,
                shared: None,
            };
            copy_segments(&elements, &segments, to);
        }
    }

    /// Sums the products of a task.
    fn sum(&self, task: &Task<'_>, ins: &[Source<'_>], (band, weights, sums): (&mut [A], &mut [A], &mut [A])) {
        let Task { phase, image, channels, positions, steps } = task;
        let (lhs, rhs) = (&self.lhs, &self.rhs);
        let each_image = phase.rows.elements.div_ceil(phase.step);
        if !channels.len().is_multiple_of(self.kernel.columns) {
            // The lanes without channels are multiplied too, and subnormal numbers would take many times as long.
            band.fill(A::ZERO);
            weights.fill(A::ZERO);
        }
        for step in steps.clone() {
            let (summed, elements) = (step / each_image, piece(0..phase.rows.elements, phase.step, step % each_image));
            let (y, height) = extent(&phase.rows, positions, &elements);
            let (x, width) = extent(&phase.columns, &(0..phase.columns.positions), &(0..phase.columns.elements));
            let part = Part {
                start: lhs.at((image + summed) as isize, channels.start),
                strides: [lhs.spatial[0], lhs.spatial[1], lhs.channel],
                first: [y, x],
                width,
                inside: self.image,
                channels: channels.len(),
                block: phase.block,
            };
            let [every, each] = phase.rows.skips;
            let is_read = |&i: &usize| {
                let position = |k: usize| i.checked_sub(k * each).filter(|i| i.is_multiple_of(every));
                (0..elements.len()).any(|k| position(k).is_some_and(|i| i / every < positions.len()))
            };
            self.copy_rows(0, ins[0], &part, (0..height).filter(is_read), band);
            let along = [&phase.rows, &phase.columns].map(|along| (along.element.0 as isize, along.element.1 as isize));
            let [first_row, first_column] = [0, 1].map(|d| along[d].0 * rhs.spatial[d]);
            let part = Part {
                start: rhs.at(summed as isize, channels.start) + first_row + first_column,
                strides: [
                    along[0].1.wrapping_mul(rhs.spatial[0]),
                    along[1].1.wrapping_mul(rhs.spatial[1]),
                    rhs.channel,
                ],
                first: [elements.start as i64, 0],
                width: phase.columns.elements,
                inside: [phase.rows.elements, phase.columns.elements],
                ..part
            };
            self.copy_rows(1, ins[1], &part, 0..elements.len(), weights);
            let count = elements.len() * phase.columns.elements;
            let size = [positions.len(), count, channels.len()];
            self.multiply(phase, size, (band, weights, sums), step > steps.start);
        }
        if steps.is_empty() {
            sums.fill(A::ZERO);
        }
    }

    /// Multiplies the windows of a band at some rows of positions by the weights of a step's elements, for some channels, and writes the sums
    /// or adds them.
    fn multiply(
        &self,
        phase: &Phase,
        [rows, elements, channels]: [usize; 3],
        (band, weights, sums): (&[A], &[A], &mut [A]),
        adds: bool,
    ) {
        let (block, columns) = (phase.block, phase.columns.positions);
        let [down, across] = [phase.rows.skips[0] * phase.width(), phase.columns.skips[0]].map(|skip| skip * block);
        // Neighbours of a tile are columns, or rows of one column.
        let [outer, inner] = if columns == 1 { [(1, 0), (rows, down)] } else { [(rows, down), (columns, across)] };
        let tile = even(inner.0, self.kernel.rows, 1);
        let [of_band, of_weights, of_sums] = phase.sizes().unwrap_or_default();
        assert!(band.len() >= of_band && weights.len() >= of_weights && sums.len() >= of_sums);
        assert!(rows <= phase.tile && channels <= block);
        let panels = (0..channels).step_by(self.kernel.columns);
        for (y, panel) in (0..outer.0).flat_map(|y| panels.clone().map(move |panel| (y, panel))) {
            for x in pieces(0..inner.0, tile) {
                for part in pieces(0..elements, self.part) {
                    let left = band[y * outer.1 + x.start * inner.1 + panel..].as_ptr();
                    let right = weights[part.start * block + panel..].as_ptr();
                    let to = sums[(y * columns + x.start) * block + panel..].as_mut_ptr();
                    let (offsets, adds) = (&phase.offsets[part.clone()], adds || part.start > 0);
                    // SAFETY: the band has a panel of channels at each offset from these positions on, the weights have one for each
                    // offset, and the sums one for each position (the lengths of all three are checked above).
                    unsafe {
                        (self.kernel.elementwise)(x.len(), (left, inner.1), offsets, (right, block), (to, block), adds)
                    };
                }
            }
        }
    }

    /// Writes the sums of a task.
    ///
    /// # Safety
    /// No other task writes these results.
    unsafe fn write(&self, task: &Task<'_>, sums: &[A], out: DisjointMut<'_, u8>) {
        let Task { phase, image, channels, positions, .. } = task;
        let (block, columns) = (phase.block, phase.columns.positions);
        let at = |along: &Along, i: usize| (along.position.0 + i.wrapping_mul(along.position.1)) as isize;
        let strides = [(phase.columns.position.1 as isize).wrapping_mul(self.out.spatial[1]), self.out.channel];
        for (y, sums) in sums.chunks_exact(columns * block).take(positions.len()).enumerate() {
            let row = at(&phase.rows, positions.start + y) * self.out.spatial[0];
            let first =
                self.out.at(*image as isize, channels.start) + row + at(&phase.columns, 0) * self.out.spatial[1];
            // SAFETY: the results are of this task, as the caller promises.
            unsafe { write_part(out, &self.writer, [columns, channels.len()], sums, block, first, strides) };
        }
    }

    /// Runs the tasks of a phase.
    fn phase(
        &self,
        phase: &Phase,
        ins: &[Source<'_>],
        out: DisjointMut<'_, u8>,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let (kept, scratch) = scratch::take::<A>(scratch, self.kept(phase));
        let scratch = &mut scratch[..threads.count() * self.task_scratch(phase)];
        let [of_band, of_weights, of_sums] = phase.sizes().unwrap_or_default();
        let (tiles, steps, segments) = (phase.tiles(), phase.steps(self.summed), phase.segments);
        let (across, length) = (self.channels.div_ceil(phase.block), steps.div_ceil(segments));
        let all = DisjointMut::new(kept);
        let task = |image: usize, block: usize, tile: usize, segment: usize| Task {
            phase,
            image,
            channels: piece(0..self.channels, phase.block, block),
            positions: piece(0..phase.rows.positions, phase.tile, tile),
            steps: (segment * length).min(steps)..((segment + 1) * length).min(steps),
        };
        // Neighbouring tasks are of the same rows, whose cache lines they share.
        threads.for_each_with_scratch(self.images * segments * tiles * across, scratch, |i, scratch| {
            let (rest, block) = (i / across, i % across);
            let (rest, tile) = (rest / tiles, rest % tiles);
            let (image, segment) = (rest / segments, rest % segments);
            let task = task(image, block, tile, segment);
            let (band, scratch) = scratch::take::<A>(scratch, of_band);
            let (weights, scratch) = scratch::take::<A>(scratch, of_weights);
            if segments > 1 {
                // SAFETY: each segment of a block has its own sums, and is one task.
                let sums = unsafe { all.slice(((image * across + block) * segments + segment) * of_sums, of_sums) };
                return self.sum(&task, ins, (band, weights, sums));
            }
            let sums = scratch::take::<A>(scratch, of_sums).0;
            self.sum(&task, ins, (band, weights, sums));
            // SAFETY: each position of each image and block of channels is in one task.
            unsafe { self.write(&task, sums, out) };
        });
        if segments == 1 {
            return;
        }
        threads.for_each(self.images * across, |i| {
            // SAFETY: the segments of a block are in one task.
            let sums = unsafe { all.slice(i * segments * of_sums, segments * of_sums) };
            let (first, rest) = sums.split_at_mut(of_sums);
            for segment in rest.chunks_exact(of_sums) {
                first.iter_mut().zip(segment).for_each(|(sum, &x)| *sum = sum.plus(x));
            }
            // SAFETY: each block has results of its own.
            unsafe { self.write(&task(i / across, i % across, 0, 0), first, out) };
        });
    }
}

impl<A: Accumulator> Kernel for Depthwise<A> {
    fn scratch(&self, threads: usize) -> usize {
        let of = |phase: &Phase| scratch::bytes::<A>(self.kept(phase)) + threads * self.task_scratch(phase);
        self.phases.iter().map(of).max().unwrap_or(0)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        if self.has_zeros {
            fill_with_zeros(&mut outs[0], self.writer.dtype, threads);
        }
        let out = DisjointMut::bytes(&mut outs[0]);
        self.phases.iter().for_each(|phase| self.phase(phase, ins, out, scratch, threads));
    }
}
