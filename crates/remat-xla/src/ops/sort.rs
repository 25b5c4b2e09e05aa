//! Sorting.

use remat_ir::{DType, Result, Sort, TopK};

use crate::value::Value;
use crate::writer::{Region, Writer};

/// Sorts all operands by the first ones. Equal keys always keep their order, so that every engine gives the same result.
pub(super) fn sort(w: &mut Writer, op: &Sort, ins: &[Value]) -> Result<Vec<Value>> {
    by(w, ins, op.axis, |w, args| precedes(w, &args[..2 * op.num_keys]))
}

/// The first `k` of the elements in descending order, with their positions.
pub(super) fn top_k(w: &mut Writer, op: &TopK, x: &Value) -> Result<Vec<Value>> {
    let axis = x.rank() - 1;
    let positions = w.iota(DType::I32, axis, x.shape());
    let sorted = by(w, &[x.clone(), positions], axis, |w, args| comes_before(w, &args[1], &args[0]))?;
    Ok(sorted.iter().map(|x| w.slice_along(x, axis, 0..op.k)).collect())
}

/// Sorts by a comparison of the scalars `a0, b0, a1, b1, ..`: whether `a` precedes `b`.
fn by(
    w: &mut Writer,
    ins: &[Value],
    axis: usize,
    precedes: impl FnOnce(&mut Writer, &[Value]) -> Value,
) -> Result<Vec<Value>> {
    let scalars = ins.iter().map(|x| x.aval.with_shape([])).flat_map(|scalar| [scalar.clone(), scalar]);
    let region = Region::new(scalars, |w, args| Ok(vec![precedes(w, args)]));
    let outs: Vec<_> = ins.iter().map(|x| x.aval.clone()).collect();
    let properties = format!("dimension = {axis} : i64, is_stable = true");
    w.generic("sort", ins, &properties, vec![region], &outs)
}

/// The lexicographic order by pairs of keys.
fn precedes(w: &mut Writer, keys: &[Value]) -> Value {
    let (a, b) = (&keys[0], &keys[1]);
    let before = comes_before(w, a, b);
    if keys.len() == 2 {
        return before;
    }
    let after = comes_before(w, b, a);
    let rest = precedes(w, &keys[2..]);
    let not_after = w.unary("not", &after);
    let ties = w.binary("and", &not_after, &rest);
    w.binary("or", &before, &ties)
}

/// The order of one key: zeros are equal, NaNs are equal and last.
fn comes_before(w: &mut Writer, a: &Value, b: &Value) -> Value {
    let less = w.compare("LT", a, b);
    if !a.dtype().is_float() {
        return less;
    }
    let (a_nan, b_nan) = (w.is_nan(a), w.is_nan(b));
    let is_number = w.unary("not", &a_nan);
    let number_and_nan = w.binary("and", &is_number, &b_nan);
    w.binary("or", &less, &number_and_nan)
}
