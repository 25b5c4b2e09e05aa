//! Reading elements by index: static indices, tensors of integers, and dynamic starts.

use remat_ir::{
    BroadcastInDim, Concatenate, DType, DynamicSlice, DynamicUpdateSlice, Error, ErrorKind, Gather, IndexMode, Iota,
    Result, Rev, Shape,
};

use super::argument::{Argument, Dims, Int, Operand, axis};
use super::elementwise::{broadcast_trailing, common_shape, same_dtype};
use super::index::{Entry, Indices, Out, layout, resolve};
use super::shape::{expand, whole};
use crate::Tensor;
use crate::trace::{bind1, deferred};

impl Tensor {
    /// The elements at an index, like NumPy's brackets: for each dimension a number (which drops it; negative ones count from the end), a
    /// range, a range with a [`step`](crate::index::step), or a tensor of integers. `..` is a whole dimension,
    /// [`Ellipsis`](crate::index::Ellipsis) all remaining ones, [`NewAxis`](crate::index::NewAxis) a new one.
    ///
    /// Several index tensors broadcast to one shape. Its dimensions take the place of the index tensors if these and the numbers in the
    /// index are all adjacent, and come first otherwise, as in NumPy. Tensor indices are handled at run time as in [`Tensor::take`].
    ///
    /// # Errors
    /// If there are more entries than dimensions, or a number or a range is out of range.
    ///
    /// ```
    /// use remat::index::{Ellipsis, NewAxis, step};
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..12).reshape([3, 4]);
    /// assert_eq!(x.index((1, -1)).item::<i32>()?, 7);
    /// assert_eq!(x.index((.., 1..3)).to_vec::<i32>()?, [1, 2, 5, 6, 9, 10]);
    /// assert_eq!(x.index((Ellipsis, step(.., -2), NewAxis)).shape()?, [3, 2, 1]);
    /// assert_eq!(x.index((&Tensor::new([2, 0]), 1)).to_vec::<i32>()?, [9, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn index(&self, index: impl Indices) -> Tensor {
        deferred(|| get("index", self, resolve("index", self.aval()?, index.to_indices())?, IndexMode::FillOrDrop))
    }

    /// The slices along an axis at the given indices; the dimensions of `indices` replace the axis. `take(ids, 0)` looks up embeddings.
    /// Negative indices count from the end. An index out of range gives NaN for floats, the smallest value for signed integers, the largest
    /// for unsigned ones, and `true` for bools; it has no gradient. [`Tensor::take_clipped`] clips indices instead.
    ///
    /// # Errors
    /// If the axis is out of range, or the indices are not integers.
    ///
    /// ```
    /// use remat::Tensor;
    /// let table = Tensor::new([[0.0f32, 0.5], [1.0, 1.5], [2.0, 2.5]]);
    /// assert_eq!(table.take(&Tensor::new([2, 0, -1]), 0).to_vec::<f32>()?, [2.0, 2.5, 0.0, 0.5, 2.0, 2.5]);
    /// assert!(table.take(&Tensor::new(3), 0).to_vec::<f32>()?[0].is_nan());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn take(&self, indices: &Tensor, axis: impl Int) -> Tensor {
        deferred(|| take(self, indices, axis.get(), IndexMode::FillOrDrop))
    }

    /// As [`Tensor::take`], with indices out of range clipped to the first and the last; negative ones are clipped too.
    ///
    /// # Errors
    /// As [`Tensor::take`].
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([10, 20, 30]);
    /// assert_eq!(x.take_clipped(&Tensor::new([1, 7, -7]), 0).to_vec::<i32>()?, [20, 30, 10]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn take_clipped(&self, indices: &Tensor, axis: impl Int) -> Tensor {
        deferred(|| take(self, indices, axis.get(), IndexMode::Clip))
    }

    /// For each element of `indices`, the element at this index along an axis; the other dimensions broadcast. Indices out of range are
    /// handled as in [`Tensor::take`].
    ///
    /// # Errors
    /// If the ranks differ, the axis is out of range, the other dimensions do not broadcast, or the indices are not integers.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[10, 20, 30], [40, 50, 60]]);
    /// let y = x.take_along_axis(&Tensor::new([[2], [0]]), 1);
    /// assert_eq!(y.to_vec::<i32>()?, [30, 40]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_axis(&self, indices: &Tensor, axis: impl Int) -> Tensor {
        deferred(|| take_along_axis(self, indices, axis.get()))
    }

    /// A block of these sizes, whose position may depend on values: `starts` is a tuple or slice of integer scalars, one per dimension.
    /// They are clamped so that the block fits.
    ///
    /// # Errors
    /// If there is not one start and one size per dimension, a size exceeds its dimension, or a start is not an integer scalar.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..6).reshape([2, 3]);
    /// let i = Tensor::from(1i32);
    /// assert_eq!(x.dynamic_slice((&i, 1), [1, 2]).to_vec::<i32>()?, [4, 5]);
    /// assert_eq!(x.dynamic_slice((0, 9), [1, 2]).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dynamic_slice(&self, starts: impl Starts, sizes: impl Dims) -> Tensor {
        deferred(|| {
            let sizes = sizes.to_shape("dynamic_slice")?;
            let starts = scalars("dynamic_slice", self, &starts.to_arguments())?;
            let operands: Vec<&Tensor> = std::iter::once(self).chain(&starts).collect();
            Ok(bind1(DynamicSlice { sizes }, &operands))
        })
    }

    /// The tensor with a block replaced by `update`, at starts as in [`Tensor::dynamic_slice`].
    ///
    /// # Errors
    /// If the update has another dtype or rank or is larger, or a start is not an integer scalar.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..4);
    /// let y = x.dynamic_update_slice(&Tensor::new([7, 8]), Tensor::from(1i32));
    /// assert_eq!(y.to_vec::<i32>()?, [0, 7, 8, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dynamic_update_slice(&self, update: &Tensor, starts: impl Starts) -> Tensor {
        deferred(|| {
            let starts = scalars("dynamic_update_slice", self, &starts.to_arguments())?;
            let operands: Vec<&Tensor> = [self, update].into_iter().chain(&starts).collect();
            Ok(bind1(DynamicUpdateSlice, &operands))
        })
    }

    /// The slice at one index along an axis, which is dropped. The index may depend on values, and is clamped to the axis.
    ///
    /// # Errors
    /// If the axis is out of range, or the index is not an integer scalar.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..6).reshape([2, 3]);
    /// assert_eq!(x.dynamic_index(Tensor::from(2i32), 1).to_vec::<i32>()?, [2, 5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dynamic_index(&self, index: impl Operand, axis: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let axis = self::axis("dynamic_index", aval, axis.get())?;
            let mut starts = vec![0.argument(); aval.rank()];
            starts[axis] = index.argument();
            let starts = scalars("dynamic_index", self, &starts)?;
            let mut sizes = aval.shape.clone();
            sizes[axis] = 1;
            let operands: Vec<&Tensor> = std::iter::once(self).chain(&starts).collect();
            Ok(bind1(DynamicSlice { sizes }, &operands).squeeze(axis))
        })
    }

    /// One-hot encoding of integers: a new last dimension of size `classes`, with one at the position that the element gives and zeros
    /// elsewhere. An index out of range gives only zeros.
    ///
    /// # Errors
    /// If the elements are not integers.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// let y = Tensor::new([2, 0, 5]).one_hot(3, DType::F32);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            if !aval.dtype.is_integer() {
                let message = format!("takes integers, not {aval}; convert it with .to_dtype(DType::I32)");
                return Err(Error::new(ErrorKind::DType, "one_hot", message));
            }
            let ids = self.to_dtype(wide(aval.dtype)).expand_dims(-1);
            let mut shape = Shape::from_elem(1, aval.rank());
            shape.push(classes);
            let classes = bind1(Iota { dtype: wide(aval.dtype), axis: aval.rank(), shape }, &[]);
            Ok(ids.eq(classes).to_dtype(dtype))
        })
    }
}

/// The starts of a dynamic slice: a tuple, array, slice or `Vec` of integer scalars, tensors or numbers, or a single one.
pub trait Starts {
    /// The scalars.
    fn to_arguments(&self) -> Vec<Argument<'_>>;
}

impl<T: Operand> Starts for T {
    fn to_arguments(&self) -> Vec<Argument<'_>> {
        vec![self.argument()]
    }
}

impl<T: Operand, const N: usize> Starts for [T; N] {
    fn to_arguments(&self) -> Vec<Argument<'_>> {
        self.iter().map(Operand::argument).collect()
    }
}

impl<T: Operand> Starts for [T] {
    fn to_arguments(&self) -> Vec<Argument<'_>> {
        self.iter().map(Operand::argument).collect()
    }
}

impl<T: Operand> Starts for Vec<T> {
    fn to_arguments(&self) -> Vec<Argument<'_>> {
        self.iter().map(Operand::argument).collect()
    }
}

impl Starts for () {
    fn to_arguments(&self) -> Vec<Argument<'_>> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Operand),*> Starts for ($($name,)*) {
            fn to_arguments(&self) -> Vec<Argument<'_>> {
                vec![$(self.$index.argument()),*]
            }
        }
    };
}

crate::trace::for_tuples!(tuples);

/// The elements at a resolved index.
pub(crate) fn get(operation: &str, tensor: &Tensor, entries: Vec<Entry>, mode: IndexMode) -> Result<Tensor> {
    let aval = tensor.aval()?;
    let layout = layout(&entries);
    let mut slice = whole(aval);
    let (mut reversed, mut dropped) = (Shape::new(), Shape::new());
    let mut tensors: Vec<(usize, Tensor)> = Vec::new();
    for (axis, entry) in entries.into_iter().filter(|e| !matches!(e, Entry::New)).enumerate() {
        match entry {
            Entry::At(index) => {
                (slice.start[axis], slice.limit[axis]) = (index, index + 1);
                dropped.push(axis);
            }
            Entry::Range { first, len, step } => {
                let stride = step.unsigned_abs() as usize;
                let reach = len.saturating_sub(1) * stride;
                let start = if step < 0 { first - reach } else { first };
                (slice.start[axis], slice.strides[axis]) = (start, stride);
                slice.limit[axis] = if len == 0 { start } else { start + reach + 1 };
                if step < 0 {
                    reversed.push(axis);
                }
            }
            Entry::Tensor(index) => tensors.push((axis, index)),
            Entry::New => {}
        }
    }
    let mut out = if slice == whole(aval) { tensor.clone() } else { bind1(slice, &[tensor]) };
    if !reversed.is_empty() {
        out = bind1(Rev { axes: reversed }, &[&out]);
    }
    out = out.squeeze_dims(dropped.clone());
    let block = if tensors.is_empty() {
        0
    } else {
        for (axis, _) in &mut tensors {
            *axis -= dropped.iter().filter(|d| *d < axis).count();
        }
        let first = layout.iter().filter(|o| **o != Out::New).position(|o| *o == Out::Block).unwrap_or(0);
        let indices: Vec<Tensor> = tensors.iter().map(|(_, t)| t.clone()).collect();
        let block = common_shape(operation, &indices)?;
        out = gather(&out, &tensors, &block, first, mode)?;
        block.len()
    };
    let mut new = Shape::new();
    let mut axis = 0;
    for o in layout {
        match o {
            Out::New => {
                new.push(axis);
                axis += 1;
            }
            Out::Block => axis += block,
            Out::Range(_) => axis += 1,
        }
    }
    Ok(expand(&out, new))
}

fn take(tensor: &Tensor, indices: &Tensor, axis: i64, mode: IndexMode) -> Result<Tensor> {
    let aval = tensor.aval()?;
    let axis = self::axis("take", aval, axis)?;
    let index = indices.aval()?;
    if !index.dtype.is_integer() {
        let message = format!("the indices must be integers, not {index}; convert them with .to_dtype(DType::I32)");
        return Err(Error::new(ErrorKind::DType, "take", message));
    }
    gather(tensor, &[(axis, indices.clone())], &index.shape, axis, mode)
}

/// Slices of size 1 along the dimensions with an index tensor, and whole along the others. The dimensions `block` of the index tensors
/// begin at axis `first` of the result.
fn gather(
    tensor: &Tensor,
    tensors: &[(usize, Tensor)],
    block: &[usize],
    first: usize,
    mode: IndexMode,
) -> Result<Tensor> {
    let aval = tensor.aval()?;
    let mut slice_sizes = aval.shape.clone();
    for (axis, _) in tensors {
        slice_sizes[*axis] = slice_sizes[*axis].min(1);
    }
    let dims: Vec<usize> = (0..block.len()).collect();
    let components = tensors
        .iter()
        .map(|(axis, index)| component(&wrapped(index, aval.shape[*axis], mode)?, block, &dims))
        .collect::<Result<Vec<_>>>()?;
    let windows = aval.rank() - tensors.len();
    let mut collapsed: Shape = tensors.iter().map(|(axis, _)| *axis).collect();
    let start_index_map = collapsed.clone();
    collapsed.sort_unstable();
    let op = Gather {
        offset_dims: (0..first).chain(first + block.len()..windows + block.len()).collect(),
        collapsed_slice_dims: collapsed,
        start_index_map,
        operand_batching_dims: Shape::new(),
        start_indices_batching_dims: Shape::new(),
        slice_sizes,
        mode,
        fill_value: IndexMode::fill_value(aval.dtype),
    };
    Ok(bind1(op, &[tensor, &join(&components)]))
}

fn take_along_axis(tensor: &Tensor, indices: &Tensor, axis: i64) -> Result<Tensor> {
    let name = "take_along_axis";
    let (aval, index) = (tensor.aval()?, indices.aval()?);
    if !index.dtype.is_integer() {
        let message = format!("the indices must be integers, not {index}; convert them with .to_dtype(DType::I32)");
        return Err(Error::new(ErrorKind::DType, name, message));
    }
    let axis = self::axis(name, aval, axis)?;
    if aval.rank() != index.rank() {
        return Err(Error::new(
            ErrorKind::Shape,
            name,
            format!("the ranks of {aval} and of the indices {index} differ"),
        ));
    }
    let mut shape = Shape::new();
    for d in 0..aval.rank() {
        let (m, n) = (aval.shape[d], index.shape[d]);
        if d != axis && m != n && m != 1 && n != 1 {
            let message =
                format!("{aval} and the indices {index} do not broadcast: dimension {d} has size {m} and {n}");
            return Err(Error::new(ErrorKind::Shape, name, message));
        }
        shape.push(if d == axis || m == 1 { n } else { m });
    }
    let index = broadcast_trailing(&wrapped(indices, aval.shape[axis], IndexMode::FillOrDrop)?, index.clone(), &shape);
    let index = index.expand_dims(-1);
    shape[axis] = aval.shape[axis];
    let tensor = broadcast_trailing(tensor, aval.clone(), &shape);
    let batch: Shape = (0..aval.rank()).filter(|&d| d != axis).collect();
    let mut slice_sizes: Shape = shape.iter().map(|&n| n.min(1)).collect();
    slice_sizes[axis] = shape[axis].min(1);
    let op = Gather {
        offset_dims: Shape::new(),
        collapsed_slice_dims: Shape::from_elem(axis, 1),
        start_index_map: Shape::from_elem(axis, 1),
        operand_batching_dims: batch.clone(),
        start_indices_batching_dims: batch,
        slice_sizes,
        mode: IndexMode::FillOrDrop,
        fill_value: IndexMode::fill_value(aval.dtype),
    };
    Ok(bind1(op, &[&tensor, &index]))
}

/// The index tensor of an operation, in at least 32 bits and wide enough for every size. Clipping keeps negative indices.
pub(super) fn wrapped(index: &Tensor, size: usize, mode: IndexMode) -> Result<Tensor> {
    match mode {
        IndexMode::Clip => Ok(index.to_dtype(wide(index.dtype()?))),
        _ => Ok(non_negative(index, size)),
    }
}

/// Indices into an axis of this size, with `size` added to the negative ones so that -1 is the last element, as in all methods of tensors.
/// For layers that pass indices to an operation. Indices out of range stay out of range.
///
/// The dtype is i32, or i64 where the indices are i64, u32 or u64.
///
/// # Errors
/// If the indices are not integers.
///
/// ```
/// use remat::{Tensor, index};
/// let indices = index::non_negative(&Tensor::new([0i8, -1, 5, -6]), 4);
/// assert_eq!(indices.to_vec::<i32>()?, [0, 3, 5, -2]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn non_negative(indices: &Tensor, size: usize) -> Tensor {
    deferred(|| {
        let aval = indices.aval()?;
        if !aval.dtype.is_integer() {
            return Err(Error::new(
                ErrorKind::DType,
                "index::non_negative",
                format!("the indices must be integers, not {aval}"),
            ));
        }
        let wide = indices.to_dtype(wide(aval.dtype));
        Ok(if aval.dtype.is_signed() { wide.lt(0).select(&wide + size, &wide) } else { wide })
    })
}

/// The integer dtype of indices, widened if it may be too small for a size.
pub(crate) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::I64 | DType::U32 | DType::U64 => DType::I64,
        _ => DType::I32,
    }
}

/// A component of index vectors: `index` repeated to `batch`, with a last axis of size 1. The dimensions of `index`
/// are the last of these of `batch`.
pub(crate) fn component(index: &Tensor, batch: &[usize], dims: &[usize]) -> Result<Tensor> {
    let aval = index.aval()?;
    if aval.shape[..] == *batch {
        return Ok(expand(index, Shape::from_elem(batch.len(), 1)));
    }
    let mut shape: Shape = batch.into();
    shape.push(1);
    let dims = dims[dims.len() - aval.rank()..].into();
    Ok(bind1(BroadcastInDim { shape, dims }, &[index]))
}

/// Index vectors of these components, in one dtype.
pub(crate) fn join(components: &[Tensor]) -> Tensor {
    let [one] = components else {
        let any_wide = components.iter().any(|c| c.dtype().is_ok_and(|d| d == DType::I64));
        let dtype = if any_wide { DType::I64 } else { DType::I32 };
        let components: Vec<Tensor> = components.iter().map(|c| c.to_dtype(dtype)).collect();
        let operands: Vec<&Tensor> = components.iter().collect();
        return deferred(|| Ok(bind1(Concatenate { axis: components[0].rank()? - 1 }, &operands)));
    };
    one.clone()
}

/// Integer scalars of one dtype: that of the tensors among them.
fn scalars(operation: &str, tensor: &Tensor, starts: &[Argument<'_>]) -> Result<Vec<Tensor>> {
    let aval = tensor.aval()?;
    if starts.len() != aval.rank() {
        let message = format!("takes one start for each dimension of {aval} and got {}", starts.len());
        return Err(Error::new(ErrorKind::Argument, operation, message));
    }
    let mut first: Option<&Tensor> = None;
    for start in starts {
        if let Argument::Tensor(start) = start {
            same_dtype(operation, first.get_or_insert(start).aval()?, start.aval()?)?;
        }
    }
    let dtype = first.map_or(Ok(DType::I32), |t| t.dtype())?;
    starts.iter().map(|s| s.of_dtype(operation, dtype)).collect()
}
