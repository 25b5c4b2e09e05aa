//! Operations that move elements.

use super::walk::{Strides, Walk, pick, row_major};
use super::{elements, result_aval};
use crate::{
    Array, BroadcastInDim, Concatenate, Data, Element, ExpandDims, Iota, Literal, Pad, Reshape, Result, Rev, Squeeze,
    Transpose, with_dtype,
};

pub(super) fn broadcast_in_dim(op: &BroadcastInDim, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let mut strides = Strides::from_elem(0, op.shape.len());
    for ((&d, &size), stride) in op.dims.iter().zip(x.shape()).zip(row_major(x.shape())) {
        strides[d] = if size == 1 { 0 } else { stride };
    }
    view(x, 0, &strides, &op.shape)
}

pub(super) fn reshape(op: &Reshape, ins: &[Array]) -> Result<Array> {
    ins[0].reshaped(op.shape.iter().copied())
}

pub(super) fn transpose(op: &Transpose, ins: &[Array]) -> Result<Array> {
    let strides = row_major(ins[0].shape());
    let strides: Strides = op.permutation.iter().map(|&d| strides[d]).collect();
    view(&ins[0], 0, &strides, &result_aval(op, ins)?.shape)
}

pub(super) fn squeeze(op: &Squeeze, ins: &[Array]) -> Result<Array> {
    ins[0].reshaped(result_aval(op, ins)?.shape)
}

pub(super) fn expand_dims(op: &ExpandDims, ins: &[Array]) -> Result<Array> {
    ins[0].reshaped(result_aval(op, ins)?.shape)
}

pub(super) fn rev(op: &Rev, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let mut strides = row_major(x.shape());
    let mut start = 0;
    for &d in &op.axes {
        start += strides[d] * (x.shape()[d] as isize - 1);
        strides[d] = -strides[d];
    }
    view(x, start, &strides, x.shape())
}

pub(super) fn concatenate(op: &Concatenate, ins: &[Array]) -> Result<Array> {
    let out = result_aval(op, ins)?;
    let rows = out.shape[..op.axis].iter().product();
    Array::new(out.clone(), with_dtype!(out.dtype, T => T::wrap(concatenated::<T>(ins, rows, op.axis, out.size())?)))
}

fn concatenated<T: Element>(ins: &[Array], rows: usize, axis: usize, size: usize) -> Result<Vec<T>> {
    let mut out = Vec::with_capacity(size);
    for row in 0..rows {
        for x in ins {
            let len: usize = x.shape()[axis..].iter().product();
            out.extend_from_slice(&elements::<T>(x)?[row * len..][..len]);
        }
    }
    Ok(out)
}

pub(super) fn pad(op: &Pad, ins: &[Array]) -> Result<Array> {
    let (x, value) = (&ins[0], &ins[1]);
    let out = result_aval(op, ins)?;
    let (mut x_strides, mut out_strides) = (row_major(x.shape()), row_major(&out.shape));
    let (mut x_start, mut out_start) = (0, 0);
    let mut shape = x.aval().shape.clone();
    for (d, &(low, _, interior)) in op.config.iter().enumerate() {
        // Element i lands at low + i * step; those from `first` to `last` are not cropped.
        let (low, step) = (low as i128, interior as i128 + 1);
        let first = (-low).max(0).div_euclid(step) + i128::from((-low).max(0).rem_euclid(step) != 0);
        let last = (out.shape[d] as i128 - 1 - low).div_euclid(step).min(x.shape()[d] as i128 - 1);
        shape[d] = (last - first + 1).max(0) as usize;
        if shape[d] == 0 {
            continue;
        }
        x_start += first as isize * x_strides[d];
        out_start += (low + first * step) as isize * out_strides[d];
        // A single element has no neighbour, and then the step may be past all sizes.
        let single = shape[d] == 1;
        x_strides[d] = if single { 0 } else { x_strides[d] };
        out_strides[d] = if single { 0 } else { out_strides[d] * step as isize };
    }
    let walk = Walk::new(&shape, [&x_strides, &out_strides]);
    let data = with_dtype!(out.dtype, T => {
        let mut data = vec![elements::<T>(value)?[0]; out.size()];
        walk.copy(elements::<T>(x)?, x_start, &mut data, out_start);
        T::wrap(data)
    });
    Array::new(out, data)
}

pub(super) fn iota(op: &Iota, ins: &[Array]) -> Result<Array> {
    let out = result_aval(op, ins)?;
    let len = op.shape[op.axis];
    let values: Data = with_dtype!(op.dtype, T => {
        let value = |i| T::from_literal(Literal::from_i128(op.dtype, i as i128)).unwrap_or_default();
        T::wrap((0..len).map(value).collect())
    });
    let mut strides = Strides::from_elem(0, op.shape.len());
    strides[op.axis] = 1;
    view(&Array::new(crate::Aval::new(op.dtype, [len]), values)?, 0, &strides, &out.shape)
}

/// A strided view of `x` as a dense array of this shape.
pub(super) fn view(x: &Array, start: isize, strides: &[isize], shape: &[usize]) -> Result<Array> {
    let data = with_dtype!(x.dtype(), T => T::wrap(pick(elements::<T>(x)?, start, strides, shape)));
    Array::new(x.aval().with_shape(shape.iter().copied()), data)
}
