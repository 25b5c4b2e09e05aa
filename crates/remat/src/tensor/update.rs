//! Functional updates: copies of a tensor with elements at an index replaced, added to, and so on.

use remat_ir::{
    Binary, DType, DynamicUpdateSlice, Error, ErrorKind, IndexMode, Iota, Literal, Result, Rev, Scatter, ScatterKind,
    Shape,
};

use super::argument::{Argument, Operand};
use super::elementwise::{binary, broadcast_trailing, broadcasts, common_shape, same_dtype};
use super::gather::{component, get, join, wide, wrapped};
use super::index::{Entry, Index, Indices, Out, layout, resolve, sizes};
use super::shape::{reshape_to, whole};
use crate::Tensor;
use crate::trace::{bind1, deferred};

/// A tensor and an index into it, to be read or updated; made by [`Tensor::at`].
#[derive(Clone)]
pub struct At {
    tensor: Tensor,
    index: Vec<Index>,
    mode: IndexMode,
    unique: bool,
}

impl Tensor {
    /// Selects the elements at an index (see [`Tensor::index`]) for an update, which returns a new tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1, 2, 3]);
    /// assert_eq!(x.at(0).set(9).to_vec::<i32>()?, [9, 2, 3]);
    /// assert_eq!(x.at(&Tensor::new([0, 0, 2])).add(10).to_vec::<i32>()?, [21, 2, 13]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn at(&self, index: impl Indices) -> At {
        At { tensor: self.clone(), index: index.to_indices(), mode: IndexMode::FillOrDrop, unique: false }
    }
}

impl At {
    /// Clips indices out of range to the first or the last; without this, updates ignore them.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1, 2, 3]);
    /// assert_eq!(x.at(&Tensor::new([7])).set(9).to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(x.at(&Tensor::new([7])).clipped().set(9).to_vec::<i32>()?, [1, 2, 9]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn clipped(self) -> At {
        At { mode: IndexMode::Clip, ..self }
    }

    /// Promises that no element is indexed twice; the derivative of [`At::mul`] at an index tensor needs it.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0, 3.0]);
    /// assert_eq!(x.at(&Tensor::new([2, 0])).unique().mul(2).to_vec::<f32>()?, [2.0, 2.0, 6.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn unique(self) -> At {
        At { unique: true, ..self }
    }

    /// The elements at the index: as [`Tensor::index`], or with clipped indices.
    ///
    /// # Errors
    /// As [`Tensor::index`].
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1, 2, 3]);
    /// assert_eq!(x.at(&Tensor::new([7])).clipped().get().to_vec::<i32>()?, [3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn get(&self) -> Tensor {
        deferred(|| get("at", &self.tensor, resolve("at", self.tensor.aval()?, self.index.clone())?, self.mode))
    }

    /// The tensor with these values at the index; if an element gets several, the last wins. Values broadcast.
    ///
    /// # Errors
    /// As [`Tensor::index`]; if the values do not broadcast to the indexed elements, or have another dtype.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..4).reshape([2, 2]);
    /// assert_eq!(x.at((.., 1)).set(&Tensor::new([8, 9])).to_vec::<i32>()?, [0, 8, 2, 9]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn set(&self, values: impl Operand) -> Tensor {
        deferred(|| self.update(ScatterKind::Set, values.argument()))
    }

    /// The tensor with these values added at the index. If an element is indexed several times, all are added.
    ///
    /// # Errors
    /// As [`At::set`], or if the dtype is bool.
    ///
    /// ```
    /// use remat::index::step;
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..4);
    /// assert_eq!(x.at(step(.., 2)).add(10).to_vec::<i32>()?, [10, 1, 12, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn add(&self, values: impl Operand) -> Tensor {
        deferred(|| self.update(ScatterKind::Add, values.argument()))
    }

    /// The tensor multiplied by these values at the index. If an element is indexed several times, all multiply it.
    ///
    /// # Errors
    /// As [`At::set`], or if the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).at(1..).mul(2).to_vec::<i32>()?, [1, 4, 6]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn mul(&self, values: impl Operand) -> Tensor {
        deferred(|| self.update(ScatterKind::Mul, values.argument()))
    }

    /// The tensor with the smaller of its element and the value at the index.
    ///
    /// # Errors
    /// As [`At::set`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).at(1..).min(2).to_vec::<i32>()?, [1, 2, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn min(&self, values: impl Operand) -> Tensor {
        deferred(|| self.update(ScatterKind::Min, values.argument()))
    }

    /// The tensor with the larger of its element and the value at the index.
    ///
    /// # Errors
    /// As [`At::set`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).at(..2).max(2).to_vec::<i32>()?, [2, 2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn max(&self, values: impl Operand) -> Tensor {
        deferred(|| self.update(ScatterKind::Max, values.argument()))
    }

    fn update(&self, kind: ScatterKind, values: Argument<'_>) -> Result<Tensor> {
        let aval = self.tensor.aval()?;
        let entries = resolve("at", aval, self.index.clone())?;
        let values = values.of_dtype("at", aval.dtype)?;
        same_dtype("at", aval, values.aval()?)?;
        let one_block = entries.iter().all(|e| match e {
            Entry::Range { step, .. } => step.abs() == 1,
            Entry::At(_) | Entry::New => true,
            Entry::Tensor(_) => false,
        });
        if one_block { self.update_block(kind, &entries, &values) } else { self.scatter(kind, &entries, &values) }
    }

    /// An update of one block at a static index, without index arrays.
    fn update_block(&self, kind: ScatterKind, entries: &[Entry], values: &Tensor) -> Result<Tensor> {
        let aval = self.tensor.aval()?;
        let values = fill(values, &sizes(&layout(entries), entries, &[]))?;
        let mut block = whole(aval);
        let mut reversed = Shape::new();
        for (axis, entry) in entries.iter().filter(|e| !matches!(e, Entry::New)).enumerate() {
            let (start, len) = match *entry {
                Entry::Range { first, len, step } if step < 0 => {
                    reversed.push(axis);
                    (first + 1 - len.max(1), len)
                }
                Entry::Range { first, len, .. } => (first, len),
                Entry::At(index) => (index, 1),
                Entry::New | Entry::Tensor(_) => continue,
            };
            (block.start[axis], block.limit[axis]) = (start, start + len);
        }
        let shape = (0..aval.rank()).map(|d| block.limit[d] - block.start[d]).collect();
        let mut values = reshape_to(&values, values.aval()?, shape);
        if !reversed.is_empty() {
            values = bind1(Rev { axes: reversed }, &[&values]);
        }
        let all = block == whole(aval);
        let combine = |op: Binary| {
            let old = if all { self.tensor.clone() } else { bind1(block.clone(), &[&self.tensor]) };
            binary(op, Argument::Tensor(&old), Argument::Tensor(&values))
        };
        let new = match kind {
            ScatterKind::Set => values.clone(),
            ScatterKind::Add => combine(Binary::Add),
            ScatterKind::Mul => combine(Binary::Mul),
            ScatterKind::Min => combine(Binary::Min),
            ScatterKind::Max => combine(Binary::Max),
        };
        if all {
            return Ok(new);
        }
        let dtype = index_dtype(&aval.shape);
        let starts: Vec<Tensor> =
            block.start.iter().map(|&s| Tensor::literal(Literal::from_i128(dtype, s as i128))).collect();
        let operands: Vec<&Tensor> = [&self.tensor, &new].into_iter().chain(&starts).collect();
        Ok(bind1(DynamicUpdateSlice, &operands))
    }

    /// An update by index vectors, which have a component for every dimension that is not taken whole.
    fn scatter(&self, kind: ScatterKind, entries: &[Entry], values: &Tensor) -> Result<Tensor> {
        let aval = self.tensor.aval()?;
        let tensors: Vec<Tensor> =
            entries.iter().filter_map(|e| if let Entry::Tensor(t) = e { Some(t.clone()) } else { None }).collect();
        let block = common_shape("at", &tensors)?;
        let layout = layout(entries);
        let values = fill(values, &sizes(&layout, entries, &block))?;
        let layout: Vec<Out> = layout.into_iter().filter(|o| *o != Out::New).collect();
        let values = reshape_to(&values, values.aval()?, sizes(&layout, entries, &block));

        let entries: Vec<&Entry> = entries.iter().filter(|e| !matches!(e, Entry::New)).collect();
        let is_window =
            |axis: usize| matches!(*entries[axis], Entry::Range { first: 0, len, step: 1 } if len == aval.shape[axis]);
        // The result's dimensions without the windows are the batch of index vectors.
        let (mut batch, mut windows, mut block_at) = (Shape::new(), Shape::new(), 0);
        let mut range_at: Vec<usize> = vec![0; aval.rank()];
        for out in &layout {
            match *out {
                Out::Range(axis) if is_window(axis) => windows.push(batch.len() + windows.len()),
                Out::Range(axis) => {
                    range_at[axis] = batch.len();
                    batch.push(if let Entry::Range { len, .. } = entries[axis] { *len } else { 1 });
                }
                Out::Block => {
                    block_at = batch.len();
                    batch.extend_from_slice(&block);
                }
                Out::New => {}
            }
        }
        let dtype = index_dtype(&aval.shape);
        let (mut components, mut dims) = (Vec::new(), Shape::new());
        for (axis, entry) in entries.iter().enumerate().filter(|(axis, _)| !is_window(*axis)) {
            dims.push(axis);
            components.push(match entry {
                Entry::At(index) => {
                    component(&Tensor::literal(Literal::from_i128(dtype, *index as i128)), &batch, &[])?
                }
                Entry::Range { first, len, step } => {
                    let indices = bind1(Iota { dtype, shape: Shape::from_elem(*len, 1), axis: 0 }, &[]);
                    component(&(indices * *step + *first), &batch, &[range_at[axis]])?
                }
                Entry::Tensor(index) => {
                    let axes: Vec<usize> = (block_at..block_at + block.len()).collect();
                    component(&wrapped(index, aval.shape[axis], self.mode)?, &batch, &axes)?
                }
                Entry::New => continue,
            });
        }
        let op = Scatter {
            kind,
            update_window_dims: windows,
            inserted_window_dims: dims.clone(),
            scatter_dims_to_operand_dims: dims,
            operand_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            mode: self.mode,
            // Without index tensors there are only ranges, whose indices are all different.
            unique_indices: self.unique || tensors.is_empty(),
        };
        Ok(bind1(op, &[&self.tensor, &join(&components), &values]))
    }
}

/// The values, repeated to the shape of the indexed elements.
fn fill(values: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let aval = values.aval()?;
    if !broadcasts(&aval.shape, shape) {
        let message =
            format!("the values {aval} do not broadcast to the indexed {}", aval.with_shape(shape.iter().copied()));
        return Err(Error::new(ErrorKind::Shape, "at", message));
    }
    Ok(broadcast_trailing(values, aval.clone(), shape))
}

/// The dtype that can represent every index of this shape.
fn index_dtype(shape: &[usize]) -> DType {
    if shape.iter().any(|&n| n > i32::MAX as usize) { wide(DType::I64) } else { DType::I32 }
}
