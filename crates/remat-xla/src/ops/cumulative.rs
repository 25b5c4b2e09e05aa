//! Cumulative reductions, in a logarithmic number of steps.

use remat_ir::{Cumulative, CumulativeKind};

use super::elementwise::{max, min};
use crate::value::Value;
use crate::writer::Writer;

/// After the step of distance `k`, each element is the reduction of the `2 k` elements up to it (Hillis and Steele, "Data
/// parallel algorithms", 1986). A window reduction would take a quadratic number of operations on CPUs, a loop one launch for each
/// element on GPUs.
pub(super) fn cumulative(w: &mut Writer, op: &Cumulative, x: &Value) -> Value {
    let n = x.shape()[op.axis];
    w.widened(x, |w, x| {
        let mut sums = x.clone();
        let mut distance = 1;
        while distance < n {
            sums = step(w, op, &sums, distance, n);
            distance *= 2;
        }
        sums
    })
}

/// Combines each element with the one at this distance before it (after it, if reversed); elements without one stay.
fn step(w: &mut Writer, op: &Cumulative, x: &Value, distance: usize, n: usize) -> Value {
    let front = w.slice_along(x, op.axis, 0..n - distance);
    let back = w.slice_along(x, op.axis, distance..n);
    // The operand with the elements that come first in the order of the reduction.
    let (first, second) = if op.reverse { (&back, &front) } else { (&front, &back) };
    let combined = match op.kind {
        CumulativeKind::Sum => w.binary("add", first, second),
        CumulativeKind::Prod => w.binary("multiply", first, second),
        CumulativeKind::Max => max(w, first, second),
        CumulativeKind::Min => min(w, first, second),
        CumulativeKind::LogSumExp => log_add_exp(w, first, second),
    };
    let parts = if op.reverse {
        [combined, w.slice_along(x, op.axis, n - distance..n)]
    } else {
        [w.slice_along(x, op.axis, 0..distance), combined]
    };
    w.concatenate(&parts, op.axis, x.aval.clone())
}

/// The logarithm of the sum of two exponentials.
fn log_add_exp(w: &mut Writer, a: &Value, b: &Value) -> Value {
    let largest = max(w, a, b);
    let difference = w.binary("subtract", a, b);
    let distance = w.unary("abs", &difference);
    let distance = w.unary("negate", &distance);
    let power = w.unary("exponential", &distance);
    let log = w.unary("log_plus_one", &power);
    let sum = w.binary("add", &largest, &log);
    // The difference of equal infinities is undefined, and a NaN stays.
    let is_finite =
        w.apply(format!("stablehlo.is_finite {largest}"), &[&largest], largest.aval.with_dtype(remat_ir::DType::Bool));
    w.select(&is_finite, &sum, &largest)
}
