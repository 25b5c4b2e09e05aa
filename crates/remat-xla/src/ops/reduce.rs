//! Reductions over axes.

use remat_ir::{ArgKind, ArgReduce, Aval, DType, Literal, Reduce, ReduceKind, Result};

use super::operands;
use crate::value::Value;
use crate::writer::{Region, Writer};

/// Sums and products of f16 and bf16 are accumulated in f32 and rounded once.
pub(super) fn reduce(w: &mut Writer, op: &Reduce, x: &Value) -> Value {
    let dtype = x.dtype();
    if op.axes.is_empty() {
        return x.clone();
    }
    match op.kind {
        ReduceKind::Sum => w.widened(x, |w, x| w.reduce("add", x, Literal::from_f64(x.dtype(), 0.0), &op.axes)),
        ReduceKind::Prod => w.widened(x, |w, x| w.reduce("multiply", x, Literal::from_f64(x.dtype(), 1.0), &op.axes)),
        ReduceKind::Max if dtype == DType::Bool => w.reduce("or", x, lowest(dtype), &op.axes),
        ReduceKind::Max => w.reduce("maximum", x, lowest(dtype), &op.axes),
        ReduceKind::Min if dtype == DType::Bool => w.reduce("and", x, highest(dtype), &op.axes),
        ReduceKind::Min => w.reduce("minimum", x, highest(dtype), &op.axes),
        ReduceKind::And => w.reduce("and", x, Literal::from_bits(dtype, ones(dtype)), &op.axes),
        ReduceKind::Or => w.reduce("or", x, Literal::from_bits(dtype, 0), &op.axes),
    }
}

/// All bits of an integer, or true.
fn ones(dtype: DType) -> u64 {
    if dtype == DType::Bool { 1 } else { u64::MAX }
}

/// The identity of the maximum: negative infinity, the smallest integer, or false.
pub(super) fn lowest(dtype: DType) -> Literal {
    Literal::from_f64(dtype, if dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY })
}

/// The identity of the minimum: infinity, the largest integer, or true.
pub(super) fn highest(dtype: DType) -> Literal {
    Literal::from_f64(dtype, f64::INFINITY)
}

/// A reduction of pairs of an element and its index.
pub(super) fn arg_reduce(w: &mut Writer, op: &ArgReduce, x: &Value, out: &Aval) -> Result<Value> {
    let indices = w.iota(op.index_dtype, op.axis, x.shape());
    let worst = match op.kind {
        ArgKind::Max => lowest(x.dtype()),
        ArgKind::Min => highest(x.dtype()),
    };
    let worst = w.constant(worst, &[]);
    // If an element equals the identity, this index or a lower one wins.
    let last = w.constant(highest(op.index_dtype), &[]);
    let (value, index) = (worst.aval.clone(), last.aval.clone());
    let region = Region::new([value.clone(), index.clone(), value, index], |w, args| {
        let [best, best_index, next, next_index] = operands(op, args)?;
        let is_first = w.compare("LT", best_index, next_index);
        let stays = comes_first(w, op.kind, [best, next], &is_first);
        Ok(vec![w.select(&stays, best, next), w.select(&stays, best_index, next_index)])
    });
    let properties = format!("dimensions = array<i64: {}>", op.axis);
    let outs = [out.with_dtype(x.dtype()), out.clone()];
    let results = w.generic("reduce", &[x.clone(), indices, worst, last], &properties, vec![region], &outs)?;
    let [_, index] = operands(op, &results)?;
    Ok(index.clone())
}

/// Whether `a` precedes `b` in a search for the largest or smallest element. NaN precedes numbers, and `is_first` decides between equal
/// ones.
pub(super) fn comes_first(w: &mut Writer, kind: ArgKind, [a, b]: [&Value; 2], is_first: &Value) -> Value {
    let direction = match kind {
        ArgKind::Max => "GT",
        ArgKind::Min => "LT",
    };
    let mut beats = w.compare(direction, a, b);
    let mut ties = w.compare("EQ", a, b);
    if a.dtype().is_float() {
        let (a_nan, b_nan) = (w.is_nan(a), w.is_nan(b));
        let (b_number, both) = (w.unary("not", &b_nan), w.binary("and", &a_nan, &b_nan));
        let only_a = w.binary("and", &a_nan, &b_number);
        beats = w.binary("or", &beats, &only_a);
        ties = w.binary("or", &ties, &both);
    }
    let first_of_equals = w.binary("and", &ties, is_first);
    w.binary("or", &beats, &first_of_equals)
}
