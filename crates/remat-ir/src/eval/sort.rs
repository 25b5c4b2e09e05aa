//! Sorting. Every dtype is sorted by 64-bit keys in the same order.

use std::cmp::Ordering;

use super::elements;
use crate::{Array, Data, Element, Result, Sort, TopK, with_dtype};

/// Sorts all operands by the first ones. The sort is always stable.
pub(super) fn sort(op: &Sort, ins: &[Array]) -> Result<Vec<Array>> {
    let shape = ins[0].shape();
    let n = shape[op.axis];
    let inner: usize = shape[op.axis + 1..].iter().product();
    let keys = ins[..op.num_keys].iter().map(order_keys).collect::<Result<Vec<_>>>()?;
    // The position that each result element comes from.
    let mut from: Vec<usize> = (0..ins[0].aval().size()).collect();
    let mut lane = Vec::with_capacity(n);
    for start in (0..from.len()).filter(|at| (at / inner).is_multiple_of(n)) {
        lane.clear();
        lane.extend((0..n).map(|i| start + i * inner));
        lane.sort_by(|&a, &b| keys.iter().map(|k| k[a].cmp(&k[b])).find(|o| o.is_ne()).unwrap_or(Ordering::Equal));
        for (i, &source) in lane.iter().enumerate() {
            from[start + i * inner] = source;
        }
    }
    ins.iter().map(|x| Array::new(x.aval().clone(), take(x, &from)?)).collect()
}

/// The largest along the last axis and their indices.
pub(super) fn top_k(op: &TopK, ins: &[Array]) -> Result<Vec<Array>> {
    let x = &ins[0];
    let mut shape = x.aval().shape.clone();
    let n = shape.pop().unwrap_or(1);
    let keys = order_keys(x)?;
    let rows: usize = shape.iter().product();
    let (mut from, mut indices) = (Vec::with_capacity(rows * op.k), Vec::with_capacity(rows * op.k));
    for row in 0..rows {
        let mut order: Vec<usize> = (row * n..(row + 1) * n).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(keys[at]));
        from.extend(&order[..op.k]);
        indices.extend(order[..op.k].iter().map(|at| (at - row * n) as i32));
    }
    shape.push(op.k);
    let values = x.aval().with_shape(shape);
    let indices = Array::new(values.with_dtype(i32::DTYPE), i32::wrap(indices))?;
    Ok(vec![Array::new(values, take(x, &from)?)?, indices])
}

/// The elements at these positions.
fn take(x: &Array, from: &[usize]) -> Result<Data> {
    with_dtype!(x.dtype(), T => {
        let x = elements::<T>(x)?;
        Ok(T::wrap(from.iter().map(|&at| x[at]).collect()))
    })
}

/// Keys in the order of the elements: zeros are equal, NaNs are equal and last.
fn order_keys(x: &Array) -> Result<Vec<u64>> {
    let signed = |x: i64| x as u64 ^ (1 << 63);
    Ok(match x.data() {
        Data::Bool(v) => v.iter().map(|&x| x.into()).collect(),
        Data::I8(v) => v.iter().map(|&x| signed(x.into())).collect(),
        Data::I16(v) => v.iter().map(|&x| signed(x.into())).collect(),
        Data::I32(v) => v.iter().map(|&x| signed(x.into())).collect(),
        Data::I64(v) => v.iter().map(|&x| signed(x)).collect(),
        Data::U8(v) => v.iter().map(|&x| x.into()).collect(),
        Data::U16(v) => v.iter().map(|&x| x.into()).collect(),
        Data::U32(v) => v.iter().map(|&x| x.into()).collect(),
        Data::U64(v) => v.clone(),
        Data::F16(v) => v.iter().map(|&x| float_key(x.into())).collect(),
        Data::Bf16(v) => v.iter().map(|&x| float_key(x.into())).collect(),
        Data::F32(v) => v.iter().map(|&x| float_key(x.into())).collect(),
        Data::F64(v) => v.iter().map(|&x| float_key(x)).collect(),
    })
}

fn float_key(x: f64) -> u64 {
    if x.is_nan() {
        return u64::MAX;
    }
    // Adding zero makes negative zero positive.
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}
