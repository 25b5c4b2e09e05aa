//! Reductions over sliding windows.
//!
//! The result is computed a row at a time: each position of a window, in row-major order, adds a row of the operand to a row
//! of results. Which elements of the innermost dimension meet at a position of the window is the same in every row, and is
//! found once.

use std::ops::{Neg, Range};

use remat_ir::{ArgKind, ArgReduceWindow, Aval, DType, ReduceWindow, Window, WindowKind, with_dtype};

use super::layout::row_major;
use super::number::Number;
use super::walk::TASK_BYTES;
use super::{Kernel, Source, Target};
use crate::simd::multiversion;
use crate::threads::Threads;

/// The kernel that reduces the windows of a row-major operand.
pub(crate) fn reduce(op: &ReduceWindow, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let windows = Windows::new(&op.window, &ins[0].shape, &outs[0].shape);
    Box::new(Reduced { dtype: ins[0].dtype, kind: op.kind, windows })
}

/// The kernel that finds the first extremum of each window of a row-major operand.
pub(crate) fn arg_reduce(op: &ArgReduceWindow, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let windows = Windows::new(&op.window, &ins[0].shape, &outs[0].shape);
    Box::new(Extrema { dtype: ins[0].dtype, index_dtype: op.index_dtype, kind: op.kind, windows })
}

struct Reduced {
    dtype: DType,
    kind: WindowKind,
    windows: Windows,
}

struct Extrema {
    dtype: DType,
    index_dtype: DType,
    kind: ArgKind,
    windows: Windows,
}

/// How windows slide over an array. Dimensions at the end along which each element is a window may be left out: then an
/// element is a vector of all that lies there.
struct Windows {
    /// The dimensions but the last one.
    outer: Vec<Slide>,
    /// Windows along the last dimension.
    len: usize,
    /// Numbers in an element.
    inner: usize,
    /// For each position in the window along the last dimension the elements that are there.
    runs: Vec<Run>,
}

/// How windows slide along a dimension.
#[derive(Clone)]
struct Slide {
    /// The size of the dimension.
    size: usize,
    /// The distance between its elements in memory.
    element_stride: usize,
    /// The size of the window.
    window: usize,
    stride: usize,
    /// Padding before the first element.
    low: i64,
    base_dilation: usize,
    window_dilation: usize,
    /// The number of windows.
    count: usize,
    /// How many rows of the result there are for each of them.
    rows: usize,
}

/// Elements `from, from + from_step, ..` that belong to windows `to, to + to_step, ..`.
#[derive(Clone, Copy)]
struct Run {
    from: usize,
    from_step: usize,
    to: usize,
    to_step: usize,
    count: usize,
}

/// Results that are computed together, on the stack.
const BLOCK: usize = 1024;

/// Numbers that are an element, at most.
const INNER: usize = 256;

impl Windows {
    fn new(window: &Window, shape: &[usize], counts: &[usize]) -> Windows {
        let strides = row_major(shape);
        let mut slides: Vec<Slide> = Vec::new();
        for d in 0..shape.len() {
            let slide = Slide {
                size: shape[d],
                element_stride: strides[d] as usize,
                window: window.dimensions[d],
                stride: window.strides[d],
                low: window.padding[d].0,
                base_dilation: window.base_dilation[d],
                window_dilation: window.window_dilation[d],
                count: counts[d],
                rows: 1,
            };
            match slides.last_mut() {
                Some(last) if last.is_still() && slide.is_still() => {
                    let size = last.size * slide.size;
                    *last = Slide { size, count: size, ..slide };
                }
                _ => slides.push(slide),
            }
        }
        let inner = match &slides[..] {
            [.., slide, last] if last.is_still() && (2..=INNER).contains(&last.size) && !slide.is_still() => last.size,
            _ => 1,
        };
        if inner > 1 {
            slides.pop();
        }
        let one = Run { from: 0, from_step: 1, to: 0, to_step: 1, count: 1 };
        let Some(last) = slides.pop() else { return Windows { outer: slides, len: 1, inner, runs: vec![one] } };
        let mut rows = 1;
        for slide in slides.iter_mut().rev() {
            slide.rows = rows;
            rows *= slide.count.max(1);
        }
        let runs = (0..last.window).filter_map(|k| last.run(k)).collect();
        Windows { outer: slides, len: last.count, inner, runs }
    }

    /// Results that one task computes, which are whole elements.
    fn task(&self) -> usize {
        TASK_BYTES / 16 / self.inner * self.inner
    }

    /// Calls `f` for pieces of at most [`BLOCK`] results of one row, with the row and the first window. The results begin
    /// with an element.
    fn each_block<T>(&self, first: usize, mut part: &mut [T], mut f: impl FnMut(usize, usize, &mut [T])) {
        let most = BLOCK / self.inner;
        let mut at = first / self.inner;
        while !part.is_empty() {
            let (row, column) = (at / self.len, at % self.len);
            let count = (self.len - column).min(most).min(part.len() / self.inner);
            let (block, rest) = part.split_at_mut(count * self.inner);
            f(row, column, block);
            at += count;
            part = rest;
        }
    }

    /// Calls `f` with the offset of each element that windows of this row show in all dimensions but the last.
    fn each_row(&self, row: usize, mut f: impl FnMut(usize)) {
        // Where no window meets an element of the last dimension, the operand may have none.
        if !self.runs.is_empty() {
            visit(&self.outer, row, 0, &mut f);
        }
    }

    /// The runs that reach windows `columns` of a row, in the order of the window's positions, counted in numbers: elements
    /// from the start of the row of the operand, and windows from the first of them.
    #[inline(always)]
    fn runs(&self, columns: Range<usize>) -> impl Iterator<Item = Run> {
        let all = columns == (0..self.len);
        self.runs.iter().filter_map(move |run| {
            let (before, end) = if all {
                (0, run.count)
            } else {
                let before = columns.start.saturating_sub(run.to).div_ceil(run.to_step);
                (before, columns.end.saturating_sub(run.to).div_ceil(run.to_step).min(run.count))
            };
            (before < end).then(|| Run {
                from: (run.from + before * run.from_step) * self.inner,
                to: (run.to + before * run.to_step - columns.start) * self.inner,
                count: end - before,
                ..*run
            })
        })
    }
}

/// Calls `f` with the offset of each element that the windows of a row of results show in all dimensions but the last.
fn visit(slides: &[Slide], row: usize, base: usize, f: &mut impl FnMut(usize)) {
    let Some((slide, rest)) = slides.split_first() else { return f(base) };
    let position = row / slide.rows % slide.count;
    for k in 0..slide.window {
        if let Some(i) = slide.element(position, k) {
            visit(rest, row, base + i * slide.element_stride, f);
        }
    }
}

impl Slide {
    /// Whether each element is a window.
    fn is_still(&self) -> bool {
        (self.window, self.stride, self.low, self.base_dilation, self.size) == (1, 1, 0, 1, self.count)
    }

    /// Element `k` of the window at `position`, counted from the first element of the array before padding, and with all
    /// elements that dilation adds. Sizes are below 2^63, so that their products are below 2^126.
    fn dilated(&self, position: usize, k: usize) -> i128 {
        position as i128 * self.stride as i128 + k as i128 * self.window_dilation as i128 - self.low as i128
    }

    /// Element `k` of the window at `position`, or `None` for padding and between two elements.
    fn element(&self, position: usize, k: usize) -> Option<usize> {
        let dilated = u64::try_from(self.dilated(position, k)).ok()?;
        let dilation = self.base_dilation as u64;
        let (index, between) = if dilation == 1 { (dilated, 0) } else { (dilated / dilation, dilated % dilation) };
        (between == 0 && index < self.size as u64).then_some(index as usize)
    }

    /// The elements that are number `k` of some window.
    fn run(&self, k: usize) -> Option<Run> {
        let common = greatest_common_divisor(self.stride, self.base_dilation);
        // The window at `first` is the first that does not begin in the padding; of so many windows one meets an element.
        let first = (-self.dilated(0, k)).max(0) as u128;
        let first = usize::try_from(first.div_ceil(self.stride as u128)).ok()?;
        let (to_step, from_step) = (self.base_dilation / common, self.stride / common);
        let to = (first..self.count.min(first.saturating_add(to_step))).find(|&p| self.element(p, k).is_some())?;
        let from = self.element(to, k)?;
        let count = ((self.count - 1 - to) / to_step).min((self.size - 1 - from) / from_step) + 1;
        Some(Run { from, from_step, to, to_step, count })
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Kernel for Reduced {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_dtype!(self.dtype, T => {
            let (x, out) = (ins[0].slice::<T>(), outs[0].slice_mut::<T>());
            type Wide = <T as Number>::Wide;
            match self.kind {
                WindowKind::Sum => self.reduce(x, out, threads, Wide::default(), Number::plus),
                WindowKind::Max => self.reduce(x, out, threads, Wide::BOTTOM, Number::largest),
                WindowKind::Min => self.reduce(x, out, threads, Wide::TOP, Number::smallest),
            }
        });
    }
}

impl Reduced {
    fn reduce<T: Number>(
        &self,
        x: &[T],
        out: &mut [T],
        threads: &Threads,
        identity: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy + Send + Sync,
    ) {
        let windows = &self.windows;
        let task = windows.task();
        threads.for_each_chunk(out, task, |i, part| {
            let mut sums = [identity; BLOCK];
            windows.each_block(i * task, part, |row, column, out| {
                let sums = &mut sums[..out.len()];
                sums.fill(identity);
                let columns = column..column + out.len() / windows.inner;
                windows.each_row(row, |base| reduce_row(sums, &x[base..], windows, columns.clone(), combine));
                for (out, &sum) in out.iter_mut().zip(&*sums) {
                    *out = T::narrow(sum);
                }
            });
        });
    }
}

multiversion! {
    /// Combines sums with a row of the operand, at each position in the window along the last dimension.
    fn reduce_row<T: Number, F: Fn(T::Wide, T::Wide) -> T::Wide>(
        sums: &mut [T::Wide],
        x: &[T],
        windows: &Windows,
        columns: Range<usize>,
        combine: F,
    ) {
        if windows.len * windows.inner == 1 {
            // One result stays in a register.
            sums[0] = windows.runs.iter().fold(sums[0], |sum, run| combine(sum, x[run.from].widen()));
            return;
        }
        // In a closure, these loops would not be compiled for the level.
        for run in windows.runs(columns) {
            let nothing = &mut [(); BLOCK];
            run.each(windows.inner, (sums, nothing), &x[run.from..], |(sum, _), x, _| *sum = combine(*sum, x.widen()));
        }
    }
}

impl Run {
    /// Calls `f` with what belongs to each number of the windows, in two slices, and with the number of the operand that is
    /// in it and where that is in `x`, which begins with the first one.
    #[inline(always)]
    fn each<A, B, T: Copy>(
        &self,
        inner: usize,
        (a, b): (&mut [A], &mut [B]),
        x: &[T],
        f: impl Fn((&mut A, &mut B), T, usize),
    ) {
        let (a, b) = (&mut a[self.to..], &mut b[self.to..]);
        match (self.to_step, self.from_step, inner) {
            (1, 1, _) => {
                let count = self.count * inner;
                for (i, (window, &x)) in a[..count].iter_mut().zip(&mut b[..count]).zip(&x[..count]).enumerate() {
                    f(window, x, i);
                }
            }
            (1, 2, 1) => {
                // The last element may have no neighbour.
                let last = self.count - 1;
                let pairs = x[..2 * last].as_chunks::<2>().0;
                for (i, (window, pair)) in a[..last].iter_mut().zip(&mut b[..last]).zip(pairs).enumerate() {
                    f(window, pair[0], 2 * i);
                }
                f((&mut a[last], &mut b[last]), x[2 * last], 2 * last);
            }
            (to_step, from_step, _) => {
                for t in 0..self.count {
                    let (to, from) = (t * to_step * inner, t * from_step * inner);
                    let windows = a[to..to + inner].iter_mut().zip(&mut b[to..to + inner]);
                    for (i, (window, &x)) in windows.zip(&x[from..from + inner]).enumerate() {
                        f(window, x, from + i);
                    }
                }
            }
        }
    }
}

impl Kernel for Extrema {
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

impl Extrema {
    /// Finds the positions in `x`, which the shape rule has checked to fit. `better` says whether a value comes before the
    /// best so far.
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
    /// position in the window along the last dimension.
    fn search_row<T: Number, I: Number, F: Fn(T::Wide, T::Wide) -> bool>(
        best: &mut [T::Wide],
        positions: &mut [I],
        x: &[T],
        base: usize,
        windows: &Windows,
        columns: Range<usize>,
        better: F,
    ) {
        for run in windows.runs(columns) {
            let first = base + run.from;
            run.each(windows.inner, (best, positions), &x[run.from..], |(best, position), x, i| {
                let x = x.widen();
                let wins = (*position < I::default()) | better(x, *best);
                *best = if wins { x } else { *best };
                *position = if wins { I::from_index(first + i) } else { *position };
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::super::test_support::{Stream, check, plain, wild};
    use super::*;

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
            // Negative padding may leave less than nothing.
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
