//! Copies of strided arrays to row-major ones, which materialize a transpose, a broadcast, a reversal or a slice.

use remat_ir::{DType, Element};

use super::rectangle::{Rectangle, for_each_rectangle};
use super::strided::{Rows, StridedIter, TASK_BYTES};
use super::transpose::{finish_stream, transpose};
use crate::interface::with_word;
use crate::interface::{Kernel, Layout, Source, Target};
use crate::simd::CACHE_LINE;
use crate::threads::Threads;
use crate::tile;

/// The kernel that copies the elements of a layout to a row-major output of the same dtype.
pub(crate) fn kernel(dtype: DType, layout: &Layout) -> Box<dyn Kernel> {
    Box::new(CopyLayout {
        dtype,
        start: layout.offset as isize,
        copy: StridedCopy::new(&layout.shape, &layout.strides),
    })
}

struct CopyLayout {
    dtype: DType,
    start: isize,
    copy: StridedCopy,
}

impl Kernel for CopyLayout {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_word!(self.dtype, W => self.copy.run::<W>(ins[0].words(), self.start, outs[0].words_mut(), threads));
    }
}

/// How to copy a strided array to a row-major one.
pub(crate) enum StridedCopy {
    /// Row by row of the result, with the strides of the source and of the result.
    Rows(Rows<2>),
    /// As `Rows`, with each element repeated this many times.
    Repeats(Rows<2>, usize),
    /// In tiles, because neighbours in the source are not neighbours in the result.
    Tiles(Transposition),
}

/// A copy of an array whose neighbours lie along an earlier axis, not the last one.
pub(crate) struct Transposition {
    /// The dimensions before that axis.
    outer: StridedIter<2>,
    /// The dimension along which elements of the source are neighbours: its size, and its stride in the source.
    rows: (usize, isize),
    /// The dimensions after it. Along the last of them, elements of the result are neighbours.
    columns: Rows<2>,
}

/// Rows of a block of a transposition. This many elements of a row of the source are read in sequence, one cache line per tile.
const BLOCK_ROWS: usize = 512;

/// An element with fewer copies than this is not a row of its own, since beginning a row would take longer than writing it.
const FEW: usize = 32;

/// Larger results are written past the cache, since they will hardly be in it when they are used.
const STREAM_BYTES: usize = 1 << 23;

impl StridedCopy {
    /// The copy of an array with this shape and these strides.
    pub(crate) fn new(shape: &[usize], strides: &[isize]) -> StridedCopy {
        let iter = StridedIter::new(shape, [strides, &crate::interface::layout::row_major(shape)]);
        let Some((&[last, _], before)) = iter.strides().split_last() else { return StridedCopy::Rows(iter.into()) };
        if last == 0 && !before.is_empty() && iter.sizes()[before.len()] < FEW {
            let (rows, repeated) = iter.split(before.len());
            return StridedCopy::Repeats(rows.into(), repeated.len());
        }
        let nearer = |&d: &usize| before[d][0] != 0 && before[d][0].abs() < last.abs();
        match (0..before.len()).filter(nearer).min_by_key(|&d| before[d][0].abs()) {
            Some(d) => {
                let (outer, rest) = iter.split(d);
                let columns = rest.split(1).1.into();
                StridedCopy::Tiles(Transposition { outer, rows: (iter.sizes()[d], before[d][0]), columns })
            }
            None => StridedCopy::Rows(iter.into()),
        }
    }

    /// Copies from the array whose first element is at `start`.
    pub(crate) fn run<W: Element>(&self, from: &[W], start: isize, to: &mut [W], threads: &Threads) {
        if to.is_empty() {
            return;
        }
        match self {
            StridedCopy::Rows(rows) => {
                let task = TASK_BYTES / size_of::<W>();
                threads.for_each_chunk(to, task, |i, to| {
                    let first = i * task;
                    let mut at = 0;
                    rows.each(first..first + to.len(), |[source, _], range| {
                        let len = range.len();
                        let source = start + source + range.start as isize * rows.stride[0];
                        copy_row(from, source, rows.stride[0], &mut to[at..at + len]);
                        at += len;
                    });
                });
            }
            StridedCopy::Repeats(rows, times) => {
                let task = TASK_BYTES / size_of::<W>() / times;
                threads.for_each_chunk(to, task * times, |i, to| {
                    let first = i * task;
                    let mut at = 0;
                    rows.each(first..first + to.len() / times, |[source, _], range| {
                        let len = range.len() * times;
                        let source = start + source + range.start as isize * rows.stride[0];
                        repeat_row(from, source, rows.stride[0], *times, &mut to[at..at + len]);
                        at += len;
                    });
                });
            }
            StridedCopy::Tiles(transposition) => transposition.run(from, start, to, threads),
        }
    }
}

impl Transposition {
    fn run<W: Element>(&self, from: &[W], start: isize, to: &mut [W], threads: &Threads) {
        let columns = self.columns.outer.len() * self.columns.len;
        let matrix = self.rows.0 * columns;
        let task = TASK_BYTES / size_of::<W>();
        if matrix <= task {
            let matrices = task / matrix;
            threads.for_each_chunk(to, matrices * matrix, |i, to| {
                let mut rest = to.chunks_exact_mut(matrix);
                self.outer.each(i * matrices..i * matrices + rest.len(), |[source, _]| {
                    if let Some(to) = rest.next() {
                        self.rectangle(from, start + source, &mut Rectangle::whole(to, columns), false);
                    }
                });
            });
            return;
        }
        // Rows of single bytes are so short that too many cache lines would be written at a time.
        let stream = size_of_val(to) >= STREAM_BYTES && size_of::<W>() > 1;
        let size = [BLOCK_ROWS, (task / BLOCK_ROWS).max(task / self.rows.0).next_multiple_of(64)];
        let mut rest = to.chunks_exact_mut(matrix);
        self.outer.each(0..self.outer.len(), |[source, _]| {
            if let Some(to) = rest.next() {
                for_each_rectangle(threads, to, columns, size, |mut rectangle| {
                    self.rectangle(from, start + source, &mut rectangle, stream);
                    if stream {
                        finish_stream();
                    }
                });
            }
        });
    }

    /// Copies to one rectangle of a matrix whose first element comes from `start`, in tiles that are a cache line wide and high. Source and
    /// result are then both accessed a line at a time, even if lines evict each other from the cache.
    fn rectangle<W: Element>(&self, from: &[W], start: isize, rectangle: &mut Rectangle<'_, W>, stream: bool) {
        let (row_stride, column_stride) = (self.rows.1, self.columns.stride[0]);
        let line = CACHE_LINE / size_of::<W>();
        let start = start + rectangle.rows.start as isize * row_stride;
        let rows = rectangle.rows.len();
        let mut at = 0;
        self.columns.each(rectangle.columns.clone(), |[source, _], range| {
            let source = start + source + range.start as isize * column_stride;
            for j in (0..range.len()).step_by(line) {
                let columns = line.min(range.len() - j);
                for i in (0..rows).step_by(line) {
                    let tile = [line.min(rows - i), columns];
                    let source = source + i as isize * row_stride + j as isize * column_stride;
                    if row_stride == 1 {
                        transpose(from, source, column_stride, rectangle, [i, at + j], tile, stream);
                        continue;
                    }
                    for k in 0..tile[0] {
                        let to = &mut rectangle.row(i + k)[at + j..][..columns];
                        copy_row(from, source + k as isize * row_stride, column_stride, to);
                    }
                }
            }
            at += range.len();
        });
    }
}

/// Copies elements.
pub(crate) fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T], threads: &Threads) {
    let task = TASK_BYTES / size_of::<T>();
    threads.for_each_chunk(to, task, |i, part| part.copy_from_slice(&from[i * task..][..part.len()]));
}

/// Copies elements that are `stride` apart.
#[inline(always)]
pub(crate) fn copy_row<W: Copy>(from: &[W], start: isize, stride: isize, to: &mut [W]) {
    let start = start as usize;
    match stride {
        1 => to.copy_from_slice(&from[start..start + to.len()]),
        0 => to.fill(from[start]),
        -1 => {
            let from = &from[start + 1 - to.len()..=start];
            for (to, &from) in to.iter_mut().zip(from.iter().rev()) {
                *to = from;
            }
        }
        _ => {
            for (i, to) in to.iter_mut().enumerate() {
                *to = from[start.wrapping_add_signed(i as isize * stride)];
            }
        }
    }
}

/// Copies elements that are `stride` apart, each repeated `times` times.
fn repeat_row<W: Element>(from: &[W], start: isize, stride: isize, times: usize, to: &mut [W]) {
    let start = start as usize;
    if stride == 1 {
        return tile::repeat(&from[start..start + to.len() / times], times, to);
    }
    for (i, to) in to.chunks_exact_mut(times).enumerate() {
        to.fill(from[start.wrapping_add_signed(i as isize * stride)]);
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{BroadcastInDim, Op, Rev, Slice, Transpose};

    use super::*;
    use crate::test_support::{Stream, check, plain, threads, wild};

    #[test]
    fn every_dtype_is_copied() {
        for dtype in DType::ALL {
            for permutation in [&[][..], &[0], &[1, 0], &[0, 2, 1], &[2, 1, 0], &[1, 2, 0]] {
                let shape = &[37, 5, 70][..permutation.len()];
                transposed(shape, permutation, dtype);
            }
            let x = wild(dtype, &[3, 1, 70], 4);
            let broadcast = BroadcastInDim { shape: (&[3, 2, 5, 70][..]).into(), dims: (&[0, 2, 3][..]).into() };
            check(
                &broadcast.clone().into(),
                |ins, _| kernel(dtype, &layout(ins).broadcast(&broadcast.shape, &broadcast.dims)),
                &[x],
            );
        }
    }

    #[test]
    fn elements_are_repeated() {
        for dtype in DType::ALL {
            for times in [1, 2, 3, 4, 5, 31, 32] {
                for shape in [&[][..], &[0], &[1], &[7], &[3, 70], &[5, 40_000]] {
                    // Several tasks.
                    if shape == [5, 40_000] && (times != 3 || !matches!(dtype, DType::U8 | DType::F32)) {
                        continue;
                    }
                    let x = wild(dtype, shape, 2);
                    let dims: Vec<usize> = (0..shape.len()).collect();
                    let repeated: Vec<usize> = shape.iter().copied().chain([times]).collect();
                    let op = BroadcastInDim { shape: repeated.as_slice().into(), dims: dims.as_slice().into() };
                    check(&op.into(), |ins, _| kernel(dtype, &layout(ins).broadcast(&repeated, &dims)), &[x]);
                }
            }
        }
    }

    #[test]
    fn elements_that_lie_apart_are_repeated() {
        let from: Vec<u16> = (0..24).collect();
        for (stride, start) in [(3isize, 0isize), (-2, 23)] {
            let copy = StridedCopy::new(&[2, 4, 5], &[12 * stride.signum(), stride, 0]);
            let mut to = [0; 40];
            copy.run(&from, start, &mut to, &threads(2));
            let expected = |i: isize| start + i / 20 * 12 * stride.signum() + i / 5 % 4 * stride;
            assert!(to.iter().zip(0..).all(|(&x, i)| x as isize == expected(i)), "{to:?}");
        }
    }

    #[test]
    fn large_arrays_are_copied_in_many_tasks() {
        for (shape, permutation) in [
            (&[1 << 17, 3][..], &[1, 0][..]),
            (&[3, 1 << 17], &[1, 0]),
            (&[700, 611], &[1, 0]),
            (&[5, 300, 301], &[0, 2, 1]),
            (&[300, 5, 301], &[2, 1, 0]),
            (&[900, 21, 30], &[0, 2, 1]),
            (&[1 << 19], &[0]),
        ] {
            for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
                transposed(shape, permutation, dtype);
            }
        }
    }

    #[test]
    fn empty_arrays_and_huge_ranks_are_copied() {
        transposed(&[0], &[0], DType::F32);
        transposed(&[3, 0, 2], &[2, 0, 1], DType::F32);
        transposed(&[2; 12], &[11, 3, 4, 5, 0, 1, 2, 10, 9, 6, 7, 8], DType::F32);
        let ranks: Vec<usize> = (0..40).rev().collect();
        let shape: Vec<usize> = ranks.iter().map(|d| if d % 4 == 0 { 2 } else { 1 }).collect();
        transposed(&shape, &ranks, DType::I16);
    }

    #[test]
    fn reversals_and_slices_are_copied() {
        let mut stream = Stream::new(1);
        for round in 0..200 {
            let shape: Vec<usize> = (0..stream.below(4)).map(|_| 1 + stream.below(40)).collect();
            let x = plain(DType::ALL[round % 13], &shape, round as u64);
            let axes: Vec<usize> = (0..shape.len()).filter(|_| stream.below(2) == 0).collect();
            let op = Op::from(Rev { axes: axes.iter().copied().collect() });
            check(&op, |ins, _| kernel(ins[0].dtype, &layout(ins).reversed(&axes)), std::slice::from_ref(&x));

            let start: Vec<usize> = shape.iter().map(|&n| stream.below(n)).collect();
            let limit: Vec<usize> = shape.iter().zip(&start).map(|(&n, &s)| s + stream.below(n - s + 1)).collect();
            let steps: Vec<usize> = shape.iter().map(|_| 1 + stream.below(4)).collect();
            let slice = Slice {
                start: start.as_slice().into(),
                limit: limit.as_slice().into(),
                strides: steps.as_slice().into(),
            };
            check(&slice.into(), |ins, _| kernel(ins[0].dtype, &layout(ins).sliced(&start, &limit, &steps)), &[x]);
        }
    }

    fn transposed(shape: &[usize], permutation: &[usize], dtype: DType) {
        let op = Op::from(Transpose { permutation: permutation.into() });
        check(&op, |ins, _| kernel(dtype, &layout(ins).permuted(permutation)), &[wild(dtype, shape, 3)]);
    }

    fn layout(ins: &[remat_ir::Aval]) -> Layout {
        Layout::from(&ins[0])
    }
}
