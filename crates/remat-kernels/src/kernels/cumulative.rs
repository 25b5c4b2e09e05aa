//! Cumulative reductions: of all prefixes or suffixes along an axis.
//!
//! Each lane is accumulated from one end to the other, as defined, and several lanes run side by side. So sums, products and logarithms of
//! floats have accumulators of more bits: the error of one with the bits of an f32 would grow with the number of elements. Maxima, minima
//! and integers do not depend on the order, so several parts of one lane can run side by side too.

use remat_ir::{Aval, Cumulative, CumulativeKind, DType, with_dtype};

use crate::base::rectangle::{Rectangle, for_each_rectangle};
use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::number::{Accumulator, Number, with_float};
use crate::simd::multiversion;
use crate::threads::Threads;

/// The kernel that reduces all prefixes, or suffixes, of the lanes of a row-major operand.
pub(crate) fn kernel(op: &Cumulative, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let shape = &ins[0].shape;
    let inner = shape[op.axis + 1..].iter().product();
    Box::new(Scan { dtype: ins[0].dtype, kind: op.kind, reverse: op.reverse, n: shape[op.axis], inner })
}

struct Scan {
    dtype: DType,
    kind: CumulativeKind,
    reverse: bool,
    /// The size of the dimension.
    n: usize,
    /// Elements of the dimensions after it.
    inner: usize,
}

/// Rows that are accumulated side by side, since each addition waits for the one before it in its row.
const ROWS: usize = 8;

/// Elements of each of these rows that are accumulated in turn.
const STEPS: usize = 4;

/// Columns that are accumulated side by side.
const COLUMNS: usize = 256;

impl Kernel for Scan {
    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        let (x, out) = (&ins[0], &mut outs[0]);
        match (self.kind, self.dtype) {
            (CumulativeKind::LogSumExp, dtype) => {
                with_float!(dtype, T => self.scan::<T, f64>(x, out, threads, log_add_exp));
            }
            (_, dtype) => with_dtype!(dtype, T => self.scan_numbers::<T>(x, out, threads)),
        }
    }
}

impl Scan {
    /// Scans by a sum, a product, a maximum or a minimum.
    fn scan_numbers<T: Number>(&self, x: &Source<'_>, out: &mut Target<'_>, threads: &Threads) {
        match self.kind {
            CumulativeKind::Sum => return self.scan::<T, T::Sum>(x, out, threads, Accumulator::plus),
            CumulativeKind::Prod if T::IS_COMMON => return self.scan::<T, T::Double>(x, out, threads, Number::times),
            CumulativeKind::Max if T::IS_COMMON => return self.scan::<T, T::Wide>(x, out, threads, Number::maximum),
            CumulativeKind::Min if T::IS_COMMON => return self.scan::<T, T::Wide>(x, out, threads, Number::minimum),
            _ => {}
        }
        // Rare dtypes, which are integers, share one loop for all kinds of combination.
        let combine: fn(T::Wide, T::Wide) -> T::Wide = match self.kind {
            CumulativeKind::Prod => Number::times,
            CumulativeKind::Max => Number::maximum,
            CumulativeKind::Min => Number::minimum,
            CumulativeKind::Sum | CumulativeKind::LogSumExp => Number::plus,
        };
        self.scan::<T, T::Wide>(x, out, threads, combine);
    }

    fn scan<T: Number, A: Accumulator<T>>(
        &self,
        x: &Source<'_>,
        out: &mut Target<'_>,
        threads: &Threads,
        combine: impl Fn(A, A) -> A + Copy + Send + Sync,
    ) {
        // Each task copies its elements and then works in place.
        let x = (!x.is_in_place()).then(|| x.slice::<T>());
        let (out, task) = (out.slice_mut::<T>(), TASK_BYTES / size_of::<T>());
        let matrix = self.n * self.inner;
        if out.is_empty() {
            return;
        }
        if self.inner == 1 || matrix <= task {
            let len = (task / matrix).max(if self.inner == 1 { ROWS / 2 } else { 1 }) * matrix;
            threads.for_each_chunk(out, len, |i, part| {
                if let Some(x) = x {
                    part.copy_from_slice(&x[i * len..][..part.len()]);
                }
                if self.inner == 1 {
                    for rows in part.chunks_mut(ROWS * self.n) {
                        if rows.len() == self.n && self.in_any_order() {
                            scan_row(rows, self.reverse, combine);
                        } else {
                            scan_rows(rows, self.n, self.reverse, combine);
                        }
                    }
                } else {
                    for part in part.chunks_mut(matrix) {
                        self.columns(&mut Rectangle::whole(part, self.inner), combine);
                    }
                }
            });
            return;
        }
        let columns = (task / self.n).max(1).next_multiple_of(64);
        for (i, part) in out.chunks_mut(matrix).enumerate() {
            for_each_rectangle(threads, part, self.inner, [self.n, columns], |mut rectangle| {
                for (row, x) in x.iter().flat_map(|x| x[i * matrix..].chunks(self.inner)).enumerate().take(self.n) {
                    let columns = rectangle.columns.clone();
                    rectangle.row(row).copy_from_slice(&x[columns]);
                }
                self.columns(&mut rectangle, combine);
            });
        }
    }

    /// Whether parts of a lane may be combined independently first.
    fn in_any_order(&self) -> bool {
        let is_order = matches!(self.kind, CumulativeKind::Max | CumulativeKind::Min);
        is_order || (!self.dtype.is_float() && self.kind != CumulativeKind::LogSumExp)
    }

    /// Accumulates down, or up, the columns of a rectangle.
    fn columns<T: Number, A: Accumulator<T>>(
        &self,
        rectangle: &mut Rectangle<'_, T>,
        combine: impl Fn(A, A) -> A + Copy,
    ) {
        let rows = rectangle.rows.len();
        for start in (0..rectangle.columns.len()).step_by(COLUMNS) {
            let columns = start..rectangle.columns.len().min(start + COLUMNS);
            let mut sums = [A::default(); COLUMNS];
            for step in 0..rows {
                let row = &mut rectangle.row(if self.reverse { rows - 1 - step } else { step })[columns.clone()];
                if step == 0 {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum = A::of(*x);
                    }
                } else {
                    accumulate(row, &mut sums, combine);
                }
            }
        }
    }
}

multiversion! {
    /// Combines each element with the accumulated elements before it.
    fn accumulate<T: Number, A: Accumulator<T>, F: Fn(A, A) -> A>(row: &mut [T], sums: &mut [A], combine: F) where T::IS_COMMON => {
        for (x, sum) in row.iter_mut().zip(sums) {
            *sum = combine(*sum, A::of(*x));
            *x = sum.rounded();
        }
    }
}

multiversion! {
    /// Accumulates at most [`ROWS`] rows of `n` elements.
    fn scan_rows<T: Number, A: Accumulator<T>, F: Fn(A, A) -> A>(rows: &mut [T], n: usize, reverse: bool, combine: F) where T::IS_COMMON => {
        let next = |x: &mut T, sum: &mut A| {
            *sum = combine(*sum, A::of(*x));
            *x = sum.rounded();
        };
        let count = rows.len() / n;
        let mut sums = [A::default(); ROWS];
        for (row, sum) in sums[..count].iter_mut().enumerate() {
            *sum = A::of(rows[row * n + if reverse { n - 1 } else { 0 }]);
        }
        let at = |step: usize| if reverse { n - 1 - step } else { step };
        match (count, reverse) {
            (1, false) => rows[1..].iter_mut().for_each(|x| next(x, &mut sums[0])),
            (1, true) => rows[..n - 1].iter_mut().rev().for_each(|x| next(x, &mut sums[0])),
            // A constant number of rows keeps their sums in registers, and a constant number of elements is converted and stored at once.
            (ROWS, _) => {
                let single = 1 + (n - 1) % STEPS;
                for i in (1..single).map(at) {
                    for (row, sum) in sums.iter_mut().enumerate() {
                        next(&mut rows[row * n + i], sum);
                    }
                }
                for step in (single..n).step_by(STEPS) {
                    let start = if reverse { n - step - STEPS } else { step };
                    for (row, sum) in sums.iter_mut().enumerate() {
                        let elements = &mut rows[row * n + start..][..STEPS];
                        let mut states: [A; STEPS] = std::array::from_fn(|i| A::of(elements[i]));
                        for step in 0..STEPS {
                            let state = &mut states[if reverse { STEPS - 1 - step } else { step }];
                            *sum = combine(*sum, *state);
                            *state = *sum;
                        }
                        for (x, state) in elements.iter_mut().zip(states) {
                            *x = state.rounded();
                        }
                    }
                }
            }
            _ => {
                for i in (1..n).map(at) {
                    for (row, sum) in sums[..count].iter_mut().enumerate() {
                        next(&mut rows[row * n + i], sum);
                    }
                }
            }
        }
    }
}

/// Elements of a part of a row.
const PART: usize = 512;

/// Accumulates a row by an operation that may be applied in any order: [`ROWS`] parts side by side, each of which then takes in the
/// elements before it.
fn scan_row<T: Number, A: Accumulator<T>>(row: &mut [T], reverse: bool, combine: impl Fn(A, A) -> A + Copy) {
    let len = row.len();
    let mut before: Option<T> = None;
    for start in (0..len).step_by(ROWS * PART) {
        let end = len.min(start + ROWS * PART);
        let parts = &mut row[if reverse { len - end..len - start } else { start..end }];
        let part = if parts.len() == ROWS * PART { PART } else { parts.len() };
        scan_rows(parts, part, reverse, combine);
        let count = parts.len() / part;
        for i in 0..count {
            let at = if reverse { count - 1 - i } else { i };
            let part = &mut parts[at * part..][..part];
            if let Some(before) = before {
                take_in(part, before, combine);
            }
            before = if reverse { part.first() } else { part.last() }.copied();
        }
    }
}

multiversion! {
    /// Combines each element with the total of the elements before the part.
    fn take_in<T: Number, A: Accumulator<T>, F: Fn(A, A) -> A>(part: &mut [T], before: T, combine: F) where T::IS_COMMON => {
        for x in part {
            *x = combine(A::of(before), A::of(*x)).rounded();
        }
    }
}

/// The logarithm of the sum of two exponentials.
fn log_add_exp(a: f64, b: f64) -> f64 {
    let maximum = Number::maximum(a, b);
    // The difference of equal infinities is undefined, and a NaN stays.
    if maximum.is_finite() { maximum + (-(a - b).abs()).exp().ln_1p() } else { maximum }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{check, plain, wild};

    const KINDS: [CumulativeKind; 5] = [
        CumulativeKind::Sum,
        CumulativeKind::Prod,
        CumulativeKind::Max,
        CumulativeKind::Min,
        CumulativeKind::LogSumExp,
    ];

    #[test]
    fn every_dtype_accumulates_along_every_axis() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            for (shape, axis) in [
                (&[50][..], 0),
                (&[13, 21], 0),
                (&[13, 21], 1),
                (&[3, 10, 300], 1),
                (&[0], 0),
                (&[3, 0], 0),
                (&[1, 1], 1),
            ] {
                accumulated(&plain(dtype, shape, 1), axis);
                accumulated(&wild(dtype, shape, 2), axis);
            }
        }
    }

    #[test]
    fn huge_ranks_accumulate() {
        accumulated(&plain(DType::F32, &[2; 12], 1), 3);
    }

    /// The division into tasks and vectors depends on the kind only through whether parts are combined first.
    #[test]
    fn large_arrays_accumulate_in_parts() {
        for dtype in [DType::F32, DType::Bf16, DType::I8] {
            for kind in [CumulativeKind::Sum, CumulativeKind::Max] {
                // One long row: parts side by side, and a remainder.
                accumulated_by(kind, &plain(dtype, &[9_000], 1), 0);
                accumulated_by(kind, &wild(dtype, &[2 * ROWS * PART], 1), 0);
            }
        }
        for dtype in [DType::F32, DType::Bf16] {
            let task = TASK_BYTES / dtype.size();
            for shape in [[task / 64, 70], [3, task / 3 + 100], [task / 3 + 1, 3], [3, task / 2 + 1]] {
                // Columns in several blocks, the last one narrow; few columns; images of several tasks.
                accumulated_by(CumulativeKind::Sum, &plain(dtype, &shape, 1), 0);
            }
            // Rows in several tasks, the last with fewer rows than run side by side.
            accumulated_by(CumulativeKind::Sum, &plain(dtype, &[ROWS + 1, task / ROWS + 8], 1), 1);
            accumulated_by(CumulativeKind::Sum, &plain(dtype, &[1000, task / 700], 1), 1);
        }
    }

    fn accumulated_by(kind: CumulativeKind, x: &Array, axis: usize) {
        for reverse in [false, true] {
            let op = Cumulative { kind, axis, reverse };
            check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), std::slice::from_ref(x));
        }
    }

    fn accumulated(x: &Array, axis: usize) {
        for kind in KINDS {
            if kind != CumulativeKind::LogSumExp || x.dtype().is_float() {
                accumulated_by(kind, x, axis);
            }
        }
    }
}
