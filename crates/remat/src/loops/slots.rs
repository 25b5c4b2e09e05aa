//! Slots for states in stacked buffers, and the gradients of one iteration.

use remat_ir::{Aval, Result};

use crate::trace::{Tensor, current_loc, deferred, zeros};

/// Buffers of this many slots for tensors of these avals.
pub(super) fn buffers(tensors: &[Tensor], slots: usize) -> Result<Vec<Tensor>> {
    let buffer = |t: &Tensor| {
        let aval: &Aval = t.aval()?;
        let stacked = aval.with_shape(std::iter::once(slots).chain(aval.shape.iter().copied()));
        Ok(zeros(&stacked, current_loc()))
    };
    tensors.iter().map(buffer).collect()
}

/// One slot of each buffer.
pub(super) fn read(buffers: &[Tensor], slot: &Tensor) -> Vec<Tensor> {
    buffers.iter().map(|b| b.dynamic_index(slot, 0)).collect()
}

/// The buffers with one slot replaced.
pub(super) fn write(buffers: &[Tensor], slot: &Tensor, values: &[Tensor]) -> Vec<Tensor> {
    let replace = |(buffer, value): (&Tensor, &Tensor)| {
        deferred(|| {
            let mut starts = vec![slot.clone()];
            starts.resize(1 + value.rank()?, Tensor::from(0i32));
            Ok(buffer.dynamic_update_slice(&value.expand_dims(0), starts))
        })
    };
    buffers.iter().zip(values).map(replace).collect()
}

/// The floats among tensors: only these have cotangents.
pub(super) fn floats(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut floats = Vec::new();
    for tensor in tensors {
        if tensor.dtype()?.is_float() {
            floats.push(tensor.clone());
        }
    }
    Ok(floats)
}

/// One tensor for each of `like`: the floats in order, and zeros for the others.
pub(super) fn with_zeros(like: &[Tensor], floats: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut floats = floats.iter();
    let mut all = Vec::with_capacity(like.len());
    for tensor in like {
        let aval = tensor.aval()?;
        let float = if aval.dtype.is_float() { floats.next() } else { None };
        all.push(float.cloned().unwrap_or_else(|| zeros(aval, current_loc())));
    }
    Ok(all)
}

/// Zeros for each float among tensors.
pub(super) fn zero_floats(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    floats(tensors)?.iter().map(|t| Ok(zeros(t.aval()?, current_loc()))).collect()
}

/// The sums of corresponding tensors.
pub(super) fn add(sums: &[Tensor], terms: &[Tensor]) -> Vec<Tensor> {
    sums.iter().zip(terms).map(|(sum, term)| sum + term).collect()
}
