//! Reductions and cumulative operations.
//!
//! Sums are pairwise: the error grows with the logarithm of the number of terms, and the order of additions depends on the shape alone.

use super::number::{FloatElement, Integer, Ordered, Real, with_float, with_integer};
use super::sum::{Sum, Summed};
use super::{elements, internal};
use crate::{
    ArgKind, ArgReduce, Array, Aval, Cumulative, CumulativeKind, DType, Element, Reduce, ReduceKind, Result, Shape,
    with_dtype,
};

/// Terms that are added one after the other before sums are paired.
const RUN: usize = 256;
/// Terms that are added side by side in a run.
const LANES: usize = 8;

/// Reduces over axes. Floats accumulate in their wide type.
pub(super) fn reduce(op: &Reduce, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let kept = (0..x.aval().rank()).filter(|d| !op.axes.contains(d)).map(|d| x.shape()[d]);
    let out = x.aval().with_shape(kept);
    match op.kind {
        ReduceKind::Sum => with_float!(x.dtype(), T => {
            monoid::<T, <T as FloatElement>::Wide>(op, x, out, T::widen, Real::ZERO, |a, b| a + b, T::narrow)
        }, else with_integer!(x.dtype(), T => same::<T>(op, x, out, T::ZERO, T::add), else internal("reduce_sum", x))),
        ReduceKind::Prod => with_float!(x.dtype(), T => {
            monoid::<T, <T as FloatElement>::Wide>(op, x, out, T::widen, Real::ONE, |a, b| a * b, T::narrow)
        }, else with_integer!(x.dtype(), T => same::<T>(op, x, out, T::ONE, T::mul), else internal("reduce_prod", x))),
        ReduceKind::Max => with_dtype!(x.dtype(), T => same::<T>(op, x, out, T::BOTTOM, T::largest)),
        ReduceKind::Min => with_dtype!(x.dtype(), T => same::<T>(op, x, out, T::TOP, T::smallest)),
        ReduceKind::And if x.dtype() == DType::Bool => same::<bool>(op, x, out, true, |a, b| a & b),
        ReduceKind::Or if x.dtype() == DType::Bool => same::<bool>(op, x, out, false, |a, b| a | b),
        ReduceKind::And => with_integer!(x.dtype(), T => {
            same::<T>(op, x, out, Integer::not(T::ZERO), T::and)
        }, else internal("reduce_and", x)),
        ReduceKind::Or => with_integer!(x.dtype(), T => {
            same::<T>(op, x, out, T::ZERO, T::or)
        }, else internal("reduce_or", x)),
    }
}

/// The index of the first maximum or minimum along an axis.
pub(super) fn arg_reduce(op: &ArgReduce, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let lanes = Lanes::along(x.aval(), op.axis);
    let out = x.aval().with_shape((0..x.aval().rank()).filter(|&d| d != op.axis).map(|d| x.shape()[d]));
    let positions = with_dtype!(x.dtype(), T => {
        let x = elements::<T>(x)?;
        match op.kind {
            ArgKind::Max => lanes.first(x, T::gt),
            ArgKind::Min => lanes.first(x, T::lt),
        }
    });
    let data = with_integer!(op.index_dtype, T => {
        T::wrap(positions.into_iter().map(T::from_index).collect())
    }, else return internal("argmax", x));
    Array::new(out.with_dtype(op.index_dtype), data)
}

/// The reductions of all prefixes, or suffixes, along an axis. Floats accumulate in f64, and the sums of f64 in two numbers.
pub(super) fn cumulative(op: &Cumulative, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let lanes = Lanes::along(x.aval(), op.axis);
    let data = with_float!(x.dtype(), T => {
        let x = elements::<T>(x)?;
        let in_doubles = |combine: fn(f64, f64) -> f64| {
            lanes.scan(x, op.reverse, T::to_double, combine, T::from_double)
        };
        T::wrap(match op.kind {
            CumulativeKind::Sum => lanes.scan(x, op.reverse, <T as Summed>::Sum::of, Sum::<T>::plus, Sum::rounded),
            CumulativeKind::Prod => in_doubles(|a, b| a * b),
            CumulativeKind::Max => in_doubles(Ordered::largest),
            CumulativeKind::Min => in_doubles(Ordered::smallest),
            CumulativeKind::LogSumExp => in_doubles(log_add_exp),
        })
    }, else with_integer!(x.dtype(), T => {
        let combine: fn(T, T) -> T = match op.kind {
            CumulativeKind::Sum => Integer::add,
            CumulativeKind::Prod => Integer::mul,
            CumulativeKind::Max => Ordered::largest,
            CumulativeKind::Min => Ordered::smallest,
            CumulativeKind::LogSumExp => return internal("cumlogsumexp", x),
        };
        T::wrap(lanes.scan(elements::<T>(x)?, op.reverse, |x| x, combine, |x| x))
    }, else return internal("cumulative", x)));
    Array::new(x.aval().clone(), data)
}

/// A dimension, or several adjacent ones, of a row-major array: position `(o * n + i) * inner + k` for each outer `o`
/// and inner `k`.
#[derive(Clone, Copy)]
struct Lanes {
    outer: usize,
    n: usize,
    inner: usize,
}

impl Lanes {
    fn along(aval: &Aval, axis: usize) -> Lanes {
        let product = |sizes: &[usize]| sizes.iter().product();
        let n = aval.shape[axis];
        Lanes { outer: product(&aval.shape[..axis]), n, inner: product(&aval.shape[axis + 1..]) }
    }

    /// For each lane, the position of the first element that no other beats. A NaN beats all but an earlier NaN.
    fn first<T: Ordered>(self, x: &[T], beats: fn(&T, &T) -> bool) -> Vec<usize> {
        let mut positions = vec![0; self.outer * self.inner];
        for o in 0..self.outer {
            for k in 0..self.inner {
                let at = |i: usize| x[(o * self.n + i) * self.inner + k];
                let mut best = 0;
                for i in 1..self.n {
                    let (a, b) = (at(i), at(best));
                    if !b.is_unordered() && (a.is_unordered() || beats(&a, &b)) {
                        best = i;
                    }
                }
                positions[o * self.inner + k] = best;
            }
        }
        positions
    }

    /// The reduction of each prefix of each lane.
    fn scan<T: Element, A: Copy>(
        self,
        x: &[T],
        reverse: bool,
        load: impl Fn(T) -> A,
        combine: impl Fn(A, A) -> A,
        store: impl Fn(A) -> T,
    ) -> Vec<T> {
        let mut out = x.to_vec();
        for o in 0..self.outer {
            for k in 0..self.inner {
                let mut sum = None;
                for step in 0..self.n {
                    let i = if reverse { self.n - 1 - step } else { step };
                    let at = (o * self.n + i) * self.inner + k;
                    let next = sum.map_or_else(|| load(x[at]), |sum| combine(sum, load(x[at])));
                    out[at] = store(next);
                    sum = Some(next);
                }
            }
        }
        out
    }

    /// The reduction of each lane.
    fn reduce<S: Copy, A: Copy>(self, x: &[S], load: fn(S) -> A, identity: A, combine: fn(A, A) -> A) -> Vec<A> {
        let mut out = vec![identity; self.outer * self.inner];
        if self.n == 0 || self.inner == 0 {
            return out;
        }
        let blocks = x.chunks_exact(self.n * self.inner);
        if self.inner == 1 {
            for (out, block) in out.iter_mut().zip(blocks) {
                *out = reduce_row(block, load, identity, combine);
            }
        } else {
            for (out, block) in out.chunks_exact_mut(self.inner).zip(blocks) {
                reduce_rows(block, out, load, identity, combine);
            }
        }
        out
    }
}

/// The reduction of a slice, pairwise.
fn reduce_row<S: Copy, A: Copy>(x: &[S], load: fn(S) -> A, identity: A, combine: fn(A, A) -> A) -> A {
    if x.len() > RUN {
        let (left, right) = x.split_at(halfway(x.len()));
        return combine(reduce_row(left, load, identity, combine), reduce_row(right, load, identity, combine));
    }
    let mut sums = [identity; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, &x) in sums.iter_mut().zip(chunk) {
            *sum = combine(*sum, load(x));
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum = combine(*sum, load(x));
    }
    let [a, b, c, d, e, f, g, h] = sums;
    combine(combine(combine(a, b), combine(c, d)), combine(combine(e, f), combine(g, h)))
}

/// Reduces the rows of a matrix, each as long as `out`, into `out`, pairwise.
fn reduce_rows<S: Copy, A: Copy>(x: &[S], out: &mut [A], load: fn(S) -> A, identity: A, combine: fn(A, A) -> A) {
    let rows = x.len() / out.len();
    if rows > RUN / LANES {
        let (left, right) = x.split_at(halfway(rows) * out.len());
        let mut other = vec![identity; out.len()];
        reduce_rows(left, out, load, identity, combine);
        reduce_rows(right, &mut other, load, identity, combine);
        for (out, &other) in out.iter_mut().zip(&other) {
            *out = combine(*out, other);
        }
        return;
    }
    for row in x.chunks_exact(out.len()) {
        for (out, &x) in out.iter_mut().zip(row) {
            *out = combine(*out, load(x));
        }
    }
}

/// Half of a length, rounded up to whole runs where there are several.
fn halfway(len: usize) -> usize {
    let half = len.div_ceil(2);
    if len > RUN { half.next_multiple_of(RUN).min(len) } else { half }
}

/// Reduces over the axes from the last to the first, adjacent ones together. Only the first pass converts to the type of
/// the accumulator, and only the end converts back.
fn monoid<T: Element, A: Copy>(
    op: &Reduce,
    x: &Array,
    out: Aval,
    load: fn(T) -> A,
    identity: A,
    combine: fn(A, A) -> A,
    store: fn(A) -> T,
) -> Result<Array> {
    let mut groups = groups(x.shape(), &op.axes).into_iter();
    let Some(first) = groups.next() else { return Ok(x.clone()) };
    let mut sums = first.reduce(elements::<T>(x)?, load, identity, combine);
    for lanes in groups {
        sums = lanes.reduce(&sums, |a| a, identity, combine);
    }
    Array::new(out, T::wrap(sums.iter().map(|&sum| store(sum)).collect()))
}

/// [`monoid`] with the elements' own type as the accumulator.
fn same<T: Element>(op: &Reduce, x: &Array, out: Aval, identity: T, combine: fn(T, T) -> T) -> Result<Array> {
    monoid::<T, T>(op, x, out, |x| x, identity, combine, |x| x)
}

/// The passes of a reduction: the groups of adjacent axes from the last to the first, each on the array that the one
/// before it leaves.
fn groups(shape: &[usize], axes: &[usize]) -> Vec<Lanes> {
    let mut passes: Vec<Lanes> = Vec::new();
    let mut inner = 1;
    let mut open = false;
    let mut sizes: Shape = shape.iter().copied().collect();
    for d in (0..shape.len()).rev() {
        if !axes.contains(&d) {
            inner *= shape[d];
            open = false;
            continue;
        }
        let outer = sizes[..d].iter().product();
        match passes.last_mut() {
            Some(last) if open => *last = Lanes { outer, n: last.n * shape[d], inner },
            _ => passes.push(Lanes { outer, n: shape[d], inner }),
        }
        sizes.truncate(d);
        open = true;
    }
    passes
}

/// The logarithm of the sum of two exponentials.
fn log_add_exp(a: f64, b: f64) -> f64 {
    let largest = a.largest(b);
    // Equal infinities have no difference, and a NaN stays.
    if !largest.is_finite() { largest } else { largest + (-(a - b).abs()).exp().ln_1p() }
}
