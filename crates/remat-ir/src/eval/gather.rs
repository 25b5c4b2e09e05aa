//! Gathers and scatters.

use super::accumulate::Number;
use super::walk::{Strides, Walk, row_major};
use super::{elements, internal, operands};
use crate::{Array, Data, Element, Gather, IndexMode, Result, Scatter, ScatterKind, Shape, with_dtype};

pub(super) fn gather(op: &Gather, ins: &[Array]) -> Result<Array> {
    let (x, indices) = (&ins[0], &ins[1]);
    let out = super::result_aval(op, ins)?;
    let slices = Slices {
        shape: x.shape(),
        sizes: &op.slice_sizes,
        index_map: &op.start_index_map,
        batching: op
            .operand_batching_dims
            .iter()
            .copied()
            .zip(op.start_indices_batching_dims.iter().copied())
            .collect(),
        mode: op.mode,
    };
    let kept = |d: &usize| !op.collapsed_slice_dims.contains(d) && !op.operand_batching_dims.contains(d);
    let window: Shape = (0..x.aval().rank()).filter(kept).collect();
    let (out_window, out_batch) = split_strides(&out.shape, &op.offset_dims);
    let walk = slices.window(&window, &row_major(x.shape()), &out_window);
    let data = with_dtype!(out.dtype, T => {
        let from = elements::<T>(x)?;
        let Some(mut to) = T::into_vec(Data::full(op.fill_value, out.size())) else { return internal("gather", x) };
        if !to.is_empty() {
            slices.each(indices, &out_batch, &mut |from_start, to_start| walk.copy(from, from_start, &mut to, to_start))?;
        }
        T::wrap(to)
    });
    Array::new(out, data)
}

/// Takes its operands, so that a buffer without other references is updated in place.
pub(super) fn scatter(op: &Scatter, ins: Vec<Array>) -> Result<Array> {
    let [x, indices, updates] = operands("scatter", ins)?;
    if x.data().is_empty() {
        return Ok(x);
    }
    let aval = x.aval().clone();
    let kept = |d: &usize| !op.inserted_window_dims.contains(d) && !op.operand_batching_dims.contains(d);
    let window: Shape = (0..aval.rank()).filter(kept).collect();
    let mut sizes = Shape::from_elem(1, aval.rank());
    for (&d, &u) in window.iter().zip(&op.update_window_dims) {
        sizes[d] = updates.shape()[u];
    }
    let slices = Slices {
        shape: &aval.shape,
        sizes: &sizes,
        index_map: &op.scatter_dims_to_operand_dims,
        batching: op
            .operand_batching_dims
            .iter()
            .copied()
            .zip(op.scatter_indices_batching_dims.iter().copied())
            .collect(),
        mode: op.mode,
    };
    let (update_window, update_batch) = split_strides(updates.shape(), &op.update_window_dims);
    let walk = slices.window(&window, &row_major(&aval.shape), &update_window);
    let data = with_dtype!(aval.dtype, T => {
        let from = elements::<T>(&updates)?;
        let Some(to) = T::into_vec(x.into_data()) else { return internal("scatter", &updates) };
        T::wrap(scattered(op.kind, to, from, |put| {
            slices.each(&indices, &update_batch, &mut |to_start, from_start| {
                walk.elements([to_start, from_start], |[to, from]| put(to, from));
            })
        })?)
    });
    Array::new(aval, data)
}

/// Combines `updates` into `to` at the pairs of positions that `each` lists.
fn scattered<T: Number>(
    kind: ScatterKind,
    mut to: Vec<T>,
    updates: &[T],
    each: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<()>,
) -> Result<Vec<T>> {
    match kind {
        ScatterKind::Set => each(&mut |i, j| to[i] = updates[j])?,
        ScatterKind::Min => each(&mut |i, j| to[i] = to[i].smallest(updates[j]))?,
        ScatterKind::Max => each(&mut |i, j| to[i] = to[i].largest(updates[j]))?,
        ScatterKind::Add if T::DTYPE == T::Wide::DTYPE => each(&mut |i, j| to[i] = to[i].plus(updates[j]))?,
        ScatterKind::Mul if T::DTYPE == T::Wide::DTYPE => each(&mut |i, j| to[i] = to[i].times(updates[j]))?,
        ScatterKind::Add | ScatterKind::Mul => {
            // One element may get many updates: it is rounded once, after the last.
            let combine = if kind == ScatterKind::Add { T::Wide::plus } else { T::Wide::times };
            let mut wide: Vec<T::Wide> = to.iter().map(|x| x.widen()).collect();
            each(&mut |i, j| wide[i] = combine(wide[i], updates[j].widen()))?;
            for (to, wide) in to.iter_mut().zip(wide) {
                *to = T::narrow(wide);
            }
        }
    }
    Ok(to)
}

/// Slices of an array at the starts that index vectors give.
struct Slices<'a> {
    /// The shape of the array.
    shape: &'a [usize],
    /// The size of a slice along each axis of the array.
    sizes: &'a [usize],
    /// The dimension of the array for each component of an index vector.
    index_map: &'a [usize],
    /// Pairs of a batching dimension of the array and the dimension of the indices that corresponds to it.
    batching: Vec<(usize, usize)>,
    mode: IndexMode,
}

impl Slices<'_> {
    /// A strided iterator over one slice, along its dimensions `window` of the array, and over its counterpart.
    fn window(&self, window: &[usize], strides: &[isize], counterpart: &[isize]) -> Walk<2> {
        let sizes: Shape = window.iter().map(|&d| self.sizes[d]).collect();
        let strides: Strides = window.iter().map(|&d| strides[d]).collect();
        Walk::new(&sizes, [&strides, counterpart])
    }

    /// Calls `slice` for every index vector in row-major order, with the offset of its slice in the array and of the slice's counterpart.
    /// Index vectors out of range are skipped if the mode drops them.
    fn each(&self, indices: &Array, counterpart: &[isize], slice: &mut dyn FnMut(isize, isize)) -> Result<()> {
        let values = integers(indices)?;
        let components = self.index_map.len();
        let batch = &indices.shape()[..indices.shape().len() - 1];
        let strides = row_major(self.shape);
        let mut index = Shape::from_elem(0, batch.len());
        for vector in 0..batch.iter().product() {
            let mut to = 0;
            let mut rest: usize = vector;
            for d in (0..batch.len()).rev() {
                index[d] = rest % batch[d];
                rest /= batch[d];
                to += index[d] as isize * counterpart[d];
            }
            let starts = &values[vector * components..][..components];
            if let Some(from) = self.start(starts, &index, &strides) {
                slice(from, to);
            }
        }
        Ok(())
    }

    /// The offset of the slice of one index vector, or `None` if it is dropped.
    fn start(&self, starts: &[i64], index: &[usize], strides: &[isize]) -> Option<isize> {
        let mut offset = 0;
        for (&start, &d) in starts.iter().zip(self.index_map) {
            let most = self.shape[d] as i64 - self.sizes[d] as i64;
            let start = match self.mode {
                IndexMode::FillOrDrop if start < 0 || start > most => return None,
                IndexMode::FillOrDrop | IndexMode::Clip => start.min(most).max(0),
            };
            offset += start as isize * strides[d];
        }
        for &(d, i) in &self.batching {
            offset += index[i] as isize * strides[d];
        }
        Some(offset)
    }
}

/// The strides of a dense array along `dims`, and along the others.
fn split_strides(shape: &[usize], dims: &[usize]) -> (Strides, Strides) {
    let strides = row_major(shape);
    let others = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| strides[d]).collect();
    (dims.iter().map(|&d| strides[d]).collect(), others)
}

/// The elements of an integer array. A `u64` beyond the range of `i64` becomes the largest `i64`, which is beyond every size too.
fn integers(array: &Array) -> Result<Vec<i64>> {
    Ok(match array.data() {
        Data::I8(v) => v.iter().map(|&i| i.into()).collect(),
        Data::I16(v) => v.iter().map(|&i| i.into()).collect(),
        Data::I32(v) => v.iter().map(|&i| i.into()).collect(),
        Data::I64(v) => v.clone(),
        Data::U8(v) => v.iter().map(|&i| i.into()).collect(),
        Data::U16(v) => v.iter().map(|&i| i.into()).collect(),
        Data::U32(v) => v.iter().map(|&i| i.into()).collect(),
        Data::U64(v) => v.iter().map(|&i| i64::try_from(i).unwrap_or(i64::MAX)).collect(),
        Data::Bool(_) | Data::F16(_) | Data::Bf16(_) | Data::F32(_) | Data::F64(_) => {
            return internal("gather", array);
        }
    })
}
