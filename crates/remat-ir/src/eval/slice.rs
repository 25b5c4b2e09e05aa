//! Slices.

use super::shape::view;
use super::walk::{Strides, Walk, row_major};
use super::{elements, internal};
use crate::{Array, DynamicSlice, DynamicUpdateSlice, Element, Error, ErrorKind, Result, Slice, with_dtype};

pub(super) fn slice(op: &Slice, ins: &[Array]) -> Result<Array> {
    let strides = row_major(ins[0].shape());
    let start = strides.iter().zip(&op.start).map(|(&s, &i)| s * i as isize).sum();
    let out = super::result_aval(op, ins)?;
    // A stride past the size of its dimension keeps one element, which has no neighbour.
    let step = |d: usize| if out.shape[d] > 1 { strides[d] * op.strides[d] as isize } else { 0 };
    let strides: Strides = (0..strides.len()).map(step).collect();
    // The start of an empty slice may be past the end; nothing is read there.
    view(&ins[0], start, &strides, &out.shape)
}

pub(super) fn dynamic_slice(op: &DynamicSlice, ins: &[Array]) -> Result<Array> {
    let (x, starts) = ins.split_first().ok_or_else(no_operand)?;
    let strides = row_major(x.shape());
    view(x, clamped_start(x.shape(), &op.sizes, starts, &strides), &strides, &op.sizes)
}

/// Takes its operands, so that a buffer without other references is updated in place.
pub(super) fn dynamic_update_slice(_op: &DynamicUpdateSlice, ins: Vec<Array>) -> Result<Array> {
    let mut ins = ins.into_iter();
    let (x, update) = ins.next().zip(ins.next()).ok_or_else(no_operand)?;
    let strides = row_major(x.shape());
    let start = clamped_start(x.shape(), update.shape(), ins.as_slice(), &strides);
    let walk = Walk::new(update.shape(), [&row_major(update.shape()), &strides]);
    let aval = x.aval().clone();
    let mut data = x.into_data();
    with_dtype!(aval.dtype, T => {
        let Some(to) = T::slice_mut(&mut data) else { return internal("dynamic_update_slice", &update) };
        walk.copy(elements::<T>(&update)?, 0, to, start);
    });
    Array::new(aval, data)
}

/// The offset of a block of `sizes` at scalar starts, each clamped so that the block fits.
fn clamped_start(shape: &[usize], sizes: &[usize], starts: &[Array], strides: &[isize]) -> isize {
    let mut offset = 0;
    for (d, start) in starts.iter().enumerate() {
        let start = start.to_literal().and_then(|l| l.as_i128()).unwrap_or(0);
        offset += start.clamp(0, (shape[d] - sizes[d]) as i128) as isize * strides[d];
    }
    offset
}

fn no_operand() -> Error {
    Error::new(ErrorKind::Internal, "slice", "operands were not checked")
}
