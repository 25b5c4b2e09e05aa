//! Reductions over windows.

use remat_ir::{ArgKind, ArgReduceWindow, Aval, Literal, ReduceWindow, Result, Window, WindowKind};

use super::elementwise::{max, min};
use super::operands;
use super::reduce::{comes_first, highest, lowest};
use crate::value::{Value, comma_separated};
use crate::writer::{Region, Writer};

/// Sums of f16 and bf16 are accumulated in f32 and rounded once.
pub(super) fn reduce_window(w: &mut Writer, op: &ReduceWindow, x: &Value, out: &Aval) -> Result<Value> {
    let dtype = x.dtype();
    let x = &if op.kind == WindowKind::Sum { w.widen(x) } else { x.clone() };
    let identity = match op.kind {
        WindowKind::Sum => Literal::from_f64(x.dtype(), 0.0),
        WindowKind::Max => lowest(dtype),
        WindowKind::Min => highest(dtype),
    };
    if x.aval.size() == 0 {
        let filled = w.constant(identity, &out.shape);
        return Ok(w.convert(&filled, dtype));
    }
    let scalar = identity.aval();
    let combine = Region::new([scalar.clone(), scalar], |w, args| {
        let [a, b] = operands(op, args)?;
        Ok(vec![match op.kind {
            WindowKind::Sum => w.binary("add", a, b),
            WindowKind::Max => max(w, a, b),
            WindowKind::Min => min(w, a, b),
        }])
    });
    let identity = w.constant(identity, &[]);
    let (ins, properties) = slide(w, &op.window, vec![x.clone(), identity]);
    let result = w.generic("reduce_window", &ins, &properties, vec![combine], &[out.with_dtype(x.dtype())])?;
    let [result] = operands(op, &result)?;
    Ok(w.convert(result, dtype))
}

/// A reduction of pairs of an element and its position. Padding has the position -1, and every element precedes it.
pub(super) fn arg_reduce_window(w: &mut Writer, op: &ArgReduceWindow, x: &Value, out: &Aval) -> Result<Value> {
    let index = op.index_dtype;
    if x.aval.size() == 0 {
        return Ok(w.constant(Literal::from_i128(index, -1), &out.shape));
    }
    let positions = w.iota(index, 0, &[x.aval.size()]);
    let positions = w.reshape(&positions, x.shape());
    let worst = match op.kind {
        ArgKind::Max => lowest(x.dtype()),
        ArgKind::Min => highest(x.dtype()),
    };
    let (worst, none) = (w.constant(worst, &[]), w.constant(Literal::from_i128(index, -1), &[]));
    let (value, position) = (worst.aval.clone(), none.aval.clone());
    let region = Region::new([value.clone(), position.clone(), value, position], |w, args| {
        let [a, a_at, b, b_at] = operands(op, args)?;
        let zero = w.splat_integer(a_at, 0);
        let (a_is_none, b_is_none) = (w.compare("LT", a_at, &zero), w.compare("LT", b_at, &zero));
        let is_first = w.compare("LT", a_at, b_at);
        let wins = comes_first(w, op.kind, [a, b], &is_first);
        let a_is_some = w.unary("not", &a_is_none);
        let wins = w.binary("and", &wins, &a_is_some);
        let wins = w.binary("or", &wins, &b_is_none);
        Ok(vec![w.select(&wins, a, b), w.select(&wins, a_at, b_at)])
    });
    let (ins, properties) = slide(w, &op.window, vec![x.clone(), positions, worst, none]);
    let outs = [out.with_dtype(x.dtype()), out.clone()];
    let results = w.generic("reduce_window", &ins, &properties, vec![region], &outs)?;
    let [_, position] = operands(op, &results)?;
    Ok(position.clone())
}

/// The operands (arrays, then the padding value of each) and the properties of a window reduction. Padding that crops becomes a separate
/// operation, which XLA does not support everywhere.
fn slide(w: &mut Writer, window: &Window, mut ins: Vec<Value>) -> (Vec<Value>, String) {
    let rank = window.dimensions.len();
    let (mut padding, mut dilation) = (window.padding.clone(), window.base_dilation.to_vec());
    if padding.iter().any(|&(low, high)| low < 0 || high < 0) {
        let config: Vec<_> = (0..rank).map(|d| (padding[d].0, padding[d].1, dilation[d] - 1)).collect();
        let count = ins.len() / 2;
        for i in 0..count {
            ins[i] = negative_padding(w, &ins[i].clone(), &ins[count + i].clone(), &config);
        }
        (padding, dilation) = (vec![(0, 0); rank], vec![1; rank]);
    }
    let pads = comma_separated(padding.iter().map(|(low, high)| format!("[{low}, {high}]")));
    let pads = if rank == 0 { String::new() } else { format!("[{pads}]") };
    let properties = format!(
        "base_dilations = {}, padding = dense<{pads}> : tensor<{rank}x2xi64>, window_dilations = {}, window_dimensions = {}, \
         window_strides = {}",
        array(&dilation),
        array(&window.window_dilation),
        array(&window.dimensions),
        array(&window.strides)
    );
    (ins, properties)
}

/// An array attribute of 64-bit integers.
fn array(numbers: &[usize]) -> String {
    if numbers.is_empty() { "array<i64>".to_string() } else { format!("array<i64: {}>", comma_separated(numbers)) }
}

/// Pads, or crops if the padding is negative.
pub(super) fn negative_padding(w: &mut Writer, x: &Value, value: &Value, config: &[(i64, i64, usize)]) -> Value {
    let size = |d: usize| {
        let (low, high, interior) = config[d];
        let dilated = (x.shape()[d] as i64 - 1) * (interior as i64 + 1) + 1;
        usize::try_from(dilated + low + high).unwrap_or(0)
    };
    let out = x.aval.with_shape((0..x.rank()).map(size));
    w.pad(x, value, config, out)
}
