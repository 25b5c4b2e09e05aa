//! Reductions over sliding windows.
//!
//! The result is computed a row at a time: each position of a window, in row-major order, combines a row of the operand with a row of
//! results. The pairs of innermost elements and windows at a given position are the same for all rows, and are computed once. Sums of floats
//! have accumulators of more bits, so that the error does not grow with the size of the window.

mod slide;

use std::ops::{Neg, Range};

use remat_ir::{ArgKind, ArgReduceWindow, Aval, DType, ReduceWindow, WindowKind, with_dtype};

use crate::interface::{Kernel, Source, Target};
use crate::number::{Accumulator, Number};
use crate::simd::multiversion;
use crate::threads::Threads;
use slide::Windows;

/// The kernel that reduces the windows of a row-major operand.
pub(crate) fn reduce(op: &ReduceWindow, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let windows = Windows::new(&op.window, &ins[0].shape, &outs[0].shape);
    Box::new(Reduced { dtype: ins[0].dtype, kind: op.kind, windows })
}

/// The kernel that finds the first maximum or minimum of each window of a row-major operand.
pub(crate) fn arg_reduce(op: &ArgReduceWindow, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let windows = Windows::new(&op.window, &ins[0].shape, &outs[0].shape);
    Box::new(WindowSearch { dtype: ins[0].dtype, index_dtype: op.index_dtype, kind: op.kind, windows })
}

struct Reduced {
    dtype: DType,
    kind: WindowKind,
    windows: Windows,
}

struct WindowSearch {
    dtype: DType,
    index_dtype: DType,
    kind: ArgKind,
    windows: Windows,
}

/// Results that are computed together, on the stack.
const BLOCK: usize = 1024;

impl Kernel for Reduced {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_dtype!(self.dtype, T => {
            let (x, out) = (ins[0].slice::<T>(), outs[0].slice_mut::<T>());
            type Sum = <T as Number>::Sum;
            type Wide = <T as Number>::Wide;
            match self.kind {
                WindowKind::Sum => self.reduce(x, out, threads, Sum::default(), false, Accumulator::<T>::plus),
                WindowKind::Max => self.reduce(x, out, threads, Wide::BOTTOM, true, Number::maximum),
                WindowKind::Min => self.reduce(x, out, threads, Wide::TOP, true, Number::minimum),
            }
        });
    }
}

impl Reduced {
    fn reduce<T: Number, A: Accumulator<T>>(
        &self,
        x: &[T],
        out: &mut [T],
        threads: &Threads,
        identity: A,
        in_any_order: bool,
        combine: impl Fn(A, A) -> A + Copy + Send + Sync,
    ) {
        let windows = &self.windows;
        let task = windows.task();
        threads.for_each_chunk(out, task, |i, part| {
            let mut sums = [identity; BLOCK];
            windows.each_block(i * task, part, |row, column, out| {
                let sums = &mut sums[..out.len()];
                sums.fill(identity);
                let columns = column..column + out.len() / windows.inner;
                windows.each_row(row, |base| {
                    if windows.is_strided {
                        reduce_row_strided(sums, &x[base..], windows, columns.clone(), combine);
                    } else {
                        reduce_row(sums, &x[base..], windows, columns.clone(), in_any_order, combine);
                    }
                });
                for (out, &sum) in out.iter_mut().zip(&*sums) {
                    *out = sum.rounded();
                }
            });
        });
    }
}

multiversion! {
    /// Combines sums with a row of the operand, at each position in the window along the last axis. `in_any_order` means that order and
    /// repetitions do not matter.
    fn reduce_row<T: Number, A: Accumulator<T>, F: Fn(A, A) -> A>(
        sums: &mut [A],
        x: &[T],
        windows: &Windows,
        columns: Range<usize>,
        in_any_order: bool,
        combine: F,
    ) where T::IS_COMMON => {
        if windows.len * windows.inner == 1 {
            // A single result stays in a register, or a few partial results do.
            if let (Some(range), true) = (windows.side_by_side(), in_any_order) {
                let (chunks, rest) = x[range].as_chunks::<LANES>();
                let mut lanes = [sums[0]; LANES];
                for chunk in chunks {
                    for i in 0..LANES {
                        lanes[i] = combine(lanes[i], A::of(chunk[i]));
                    }
                }
                for (lane, x) in lanes.iter_mut().zip(rest) {
                    *lane = combine(*lane, A::of(*x));
                }
                sums[0] = lanes.into_iter().fold(sums[0], &combine);
                return;
            }
            sums[0] = windows.runs.iter().fold(sums[0], |sum, run| combine(sum, A::of(x[run.from])));
            return;
        }
        // In closures, these loops would not be compiled for the level.
        for run in windows.runs(columns) {
            for piece in run.pieces(windows.inner) {
                let (sums, x) = (&mut sums[piece.to..][..piece.len], &x[piece.from..]);
                if piece.is_paired {
                    combine_spaced::<2, T, A>(sums, x, &combine);
                } else {
                    combine_spaced::<1, T, A>(sums, x, &combine);
                }
            }
        }
    }
}

/// Numbers that are combined side by side. LLVM on its own takes several vectors at once and computes the remainder, which is all of a
/// short row, number by number.
const LANES: usize = 8;

/// Combines sums with numbers of `x` that are `STEP` apart.
#[inline(always)]
fn combine_spaced<const STEP: usize, T: Number, A: Accumulator<T>>(
    sums: &mut [A],
    x: &[T],
    combine: impl Fn(A, A) -> A,
) {
    let (chunks, rest) = sums.as_chunks_mut::<LANES>();
    let done = chunks.len() * LANES * STEP;
    for (number, chunk) in chunks.iter_mut().enumerate() {
        let x = &x[number * LANES * STEP..][..(LANES - 1) * STEP + 1];
        // The copy is in registers, and cannot overlap with `x`.
        let mut lanes = *chunk;
        for i in 0..LANES {
            lanes[i] = combine(lanes[i], A::of(x[i * STEP]));
        }
        *chunk = lanes;
    }
    for (i, sum) in rest.iter_mut().enumerate() {
        *sum = combine(*sum, A::of(x[done + i * STEP]));
    }
}

/// As [`reduce_row`], one number after the other, for windows or elements with strides.
fn reduce_row_strided<T: Number, A: Accumulator<T>>(
    sums: &mut [A],
    x: &[T],
    windows: &Windows,
    columns: Range<usize>,
    combine: impl Fn(A, A) -> A,
) {
    for run in windows.runs(columns) {
        let numbers = x[run.from..].iter().step_by(run.from_step);
        for (sum, x) in sums[run.to..].iter_mut().step_by(run.to_step).zip(numbers).take(run.count) {
            *sum = combine(*sum, A::of(*x));
        }
    }
}

impl Kernel for WindowSearch {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        let out = &mut outs[0];
        with_dtype!(self.dtype, T => {
            let x = ins[0].slice::<T>();
            match (self.kind, self.index_dtype) {
                (ArgKind::Max, DType::I32) => self.find(x, out.slice_mut::<i32>(), threads, Number::is_above),
                (ArgKind::Min, DType::I32) => self.find(x, out.slice_mut::<i32>(), threads, Number::is_below),
                (ArgKind::Max, _) => self.find(x, out.slice_mut::<i64>(), threads, Number::is_above),
                (ArgKind::Min, _) => self.find(x, out.slice_mut::<i64>(), threads, Number::is_below),
            }
        });
    }
}

impl WindowSearch {
    /// Finds positions in `x`, which fit according to the shape rule. `better` tells whether a value precedes the best so far.
    fn find<T: Number, I: Number + Neg<Output = I>>(
        &self,
        x: &[T],
        out: &mut [I],
        threads: &Threads,
        better: impl Fn(T::Wide, T::Wide) -> bool + Copy + Send + Sync,
    ) {
        let windows = &self.windows;
        let task = windows.task();
        threads.for_each_chunk(out, task, |i, part| {
            let mut best = [T::Wide::default(); BLOCK];
            windows.each_block(i * task, part, |row, column, positions| {
                // Before the first element the position is -1.
                positions.fill(-I::from_index(1));
                let best = &mut best[..positions.len()];
                let columns = column..column + positions.len() / windows.inner;
                windows.each_row(row, |base| {
                    search_row(best, positions, &x[base..], base, windows, columns.clone(), better);
                });
            });
        });
    }
}

multiversion! {
    /// Compares a row of the operand, which begins with element `base`, with the best of each window so far, at each
    /// position in the window along the last axis.
    fn search_row<T: Number, I: Number, F: Fn(T::Wide, T::Wide) -> bool>(
        best: &mut [T::Wide],
        positions: &mut [I],
        x: &[T],
        base: usize,
        windows: &Windows,
        columns: Range<usize>,
        better: F,
    ) where T::IS_COMMON && I::IS_COMMON => {
        let search = |best: &mut T::Wide, position: &mut I, x: T, i: usize| {
            let x = x.widen();
            let wins = (*position < I::default()) | better(x, *best);
            *best = if wins { x } else { *best };
            *position = if wins { I::from_index(base + i) } else { *position };
        };
        for run in windows.runs(columns) {
            for piece in run.pieces(windows.inner) {
                let (best, positions) = (&mut best[piece.to..][..piece.len], &mut positions[piece.to..][..piece.len]);
                let (first, x) = (piece.from, &x[piece.from..]);
                if piece.is_paired {
                    // The last number may have no neighbour.
                    let last = piece.len - 1;
                    let pairs = x[..2 * last].as_chunks::<2>().0;
                    for (i, ((best, position), pair)) in best.iter_mut().zip(&mut *positions).zip(pairs).enumerate() {
                        search(best, position, pair[0], first + 2 * i);
                    }
                    search(&mut best[last], &mut positions[last], x[2 * last], first + 2 * last);
                } else {
                    let x = &x[..piece.len];
                    for (i, ((best, position), &x)) in best.iter_mut().zip(positions).zip(x).enumerate() {
                        search(best, position, x, first + i);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op, Window};

    use super::*;
    use crate::test_support::{Stream, check, plain, wild};

    #[test]
    fn windows_of_every_dtype_are_reduced() {
        for dtype in DType::ALL {
            let window = pooling(&[1, 1, 3, 3], &[1, 1, 2, 2], &[(0, 0), (0, 0), (1, 1), (0, 1)]);
            reduced(&window, &plain(dtype, &[2, 3, 9, 10], 1));
            reduced(&window, &wild(dtype, &[2, 3, 9, 10], 2));
            let window = pooling(&[1, 3, 3, 1], &[1, 2, 1, 1], &[(0, 0), (1, 1), (0, 1), (0, 0)]);
            reduced(&window, &wild(dtype, &[2, 9, 10, 3], 3));
            reduced(&window, &wild(dtype, &[0, 9, 10, 3], 4));
            reduced(&pooling(&[], &[], &[]), &wild(dtype, &[], 5));
        }
    }

    #[test]
    fn strides_dilations_and_paddings_of_every_kind_are_understood() {
        let mut stream = Stream::new(8);
        for round in 0..800 {
            let rank = stream.below(4);
            let shape: Vec<usize> = (0..rank).map(|_| stream.below(8)).collect();
            let mut draw = |n: usize| (0..rank).map(|_| 1 + stream.below(n)).collect();
            let mut window = Window {
                dimensions: draw(4),
                strides: draw(3),
                padding: vec![],
                base_dilation: draw(4),
                window_dilation: draw(3),
            };
            for _ in 0..rank {
                window.padding.push((stream.below(8) as i64 - 3, stream.below(8) as i64 - 2));
            }
            let x = wild(DType::ALL[round % 13], &shape, round as u64);
            // Negative padding may exceed the operand.
            if Op::from(ReduceWindow { kind: WindowKind::Max, window: window.clone() })
                .infer(&[x.aval().clone()])
                .is_ok()
            {
                reduced(&window, &x);
            }
        }
    }

    #[test]
    fn large_and_huge_ranked_arrays_are_reduced() {
        for dtype in [DType::F32, DType::Bf16, DType::I8] {
            reduced(&pooling(&[5], &[1], &[(2, 2)]), &plain(dtype, &[100_000], 1));
            reduced(&pooling(&[4], &[3], &[(0, 0)]), &plain(dtype, &[100_000], 1));
            reduced(&pooling(&[1, 2, 2, 1], &[1, 2, 2, 1], &[(0, 0); 4]), &plain(dtype, &[1, 60, 60, 100], 1));
            reduced(&pooling(&[1, 1, 2, 2], &[1, 1, 2, 2], &[(0, 0); 4]), &plain(dtype, &[1, 100, 60, 60], 1));
        }
        reduced(&pooling(&[2; 12], &[1; 12], &[(0, 1); 12]), &plain(DType::F32, &[1; 12], 1));
        reduced(&pooling(&[1; 12], &[1; 12], &[(0, 0); 12]), &plain(DType::F32, &[2; 12], 1));
    }

    fn pooling(dimensions: &[usize], strides: &[usize], padding: &[(i64, i64)]) -> Window {
        Window {
            dimensions: dimensions.into(),
            strides: strides.into(),
            padding: padding.to_vec(),
            base_dilation: dimensions.iter().map(|_| 1).collect(),
            window_dilation: dimensions.iter().map(|_| 1).collect(),
        }
    }

    fn reduced(window: &Window, x: &Array) {
        let ins = std::slice::from_ref(x);
        for kind in [WindowKind::Sum, WindowKind::Max, WindowKind::Min] {
            if kind == WindowKind::Sum && x.dtype() == DType::Bool {
                continue;
            }
            let op = ReduceWindow { kind, window: window.clone() };
            check(&Op::from(op.clone()), |ins, outs| reduce(&op, ins, outs), ins);
        }
        for kind in [ArgKind::Max, ArgKind::Min] {
            for index_dtype in [DType::I32, DType::I64] {
                let op = ArgReduceWindow { kind, window: window.clone(), index_dtype };
                check(&Op::from(op.clone()), |ins, outs| arg_reduce(&op, ins, outs), ins);
            }
        }
    }
}
