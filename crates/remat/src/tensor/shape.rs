//! Shapes: reading them, and operations that move elements without changing them.

use remat_ir::{Aval, Error, ErrorKind, ExpandDims, Reshape, Result, Rev, Shape, Slice, Squeeze, Transpose};

use super::argument::{Axes, Dims, Int, axis, axis_of, dimensions, distinct_axes};
use super::elementwise::{broadcast_trailing, broadcasts};
use crate::Tensor;
use crate::trace::{bind1, current_loc, deferred};

impl Tensor {
    /// The size of one dimension; a negative axis counts from the last.
    ///
    /// # Errors
    /// The error of a failed tensor; if the axis is out of range.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1.0f32, 2.0, 3.0]]).dim(-1)?, 3);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dim(&self, axis: impl Int) -> Result<usize> {
        let loc = current_loc();
        let aval = self.aval()?;
        let axis = self::axis("dim", aval, axis.get()).map_err(|e| e.at(loc))?;
        Ok(aval.shape[axis])
    }

    /// The number of dimensions.
    ///
    /// # Errors
    /// The error of a failed tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1.0f32, 2.0, 3.0]]).rank()?, 2);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn rank(&self) -> Result<usize> {
        Ok(self.aval()?.rank())
    }

    /// The number of elements.
    ///
    /// # Errors
    /// The error of a failed tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1.0f32, 2.0, 3.0]]).size()?, 3);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn size(&self) -> Result<usize> {
        Ok(self.aval()?.size())
    }

    /// The same elements in row-major order with another shape. One size may be -1 and is then inferred.
    ///
    /// # Errors
    /// If the sizes do not give the same number of elements.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..6);
    /// assert_eq!(x.reshape([2, -1]).shape()?, [2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl Dims) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let shape = new_shape(aval, &shape.to_ints())?;
            Ok(reshape_to(self, aval, shape))
        })
    }

    /// The elements in row-major order in one dimension.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).flatten().to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten(&self) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            Ok(reshape_to(self, aval, Shape::from_elem(aval.size(), 1)))
        })
    }

    /// The dimensions in another order: dimension `i` of the result is dimension `axes[i]`. `..` reverses them.
    ///
    /// # Errors
    /// If `axes` does not name every dimension once.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..6).reshape([1, 2, 3]);
    /// assert_eq!(x.transpose([2, 0, 1]).shape()?, [3, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn transpose(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let axes = axes.resolve("transpose", aval)?;
            if axes.len() != aval.rank() {
                let message = format!("takes one axis for each dimension of {aval} and got {}", axes.len());
                return Err(Error::new(ErrorKind::Axis, "transpose", message));
            }
            Ok(permute(self, axes))
        })
    }

    /// The matrices in the last two dimensions transposed.
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).t().to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn t(&self) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            if aval.rank() < 2 {
                let message = format!("takes at least two dimensions and got {aval}");
                return Err(Error::new(ErrorKind::Shape, "t", message));
            }
            Ok(self.swap_axes(-1, -2))
        })
    }

    /// Two dimensions exchanged; negative axes count from the last.
    ///
    /// # Errors
    /// If an axis is out of range.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::arange(0..6).reshape([1, 2, 3]).swap_axes(0, -1).shape()?, [3, 2, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn swap_axes(&self, a: impl Int, b: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let (a, b) = (axis("swap_axes", aval, a.get())?, axis("swap_axes", aval, b.get())?);
            let mut order: Shape = (0..aval.rank()).collect();
            order.swap(a, b);
            Ok(permute(self, order))
        })
    }

    /// Dimensions moved to other positions; the others keep their order.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the numbers of axes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::arange(0..6).reshape([1, 2, 3]).move_axis(0, -1).shape()?, [2, 3, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn move_axis(&self, from: impl Axes, to: impl Axes) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let (from, to) = (from.resolve("move_axis", aval)?, to.resolve("move_axis", aval)?);
            if from.len() != to.len() {
                let message = format!("the axes {from:?} of {aval} cannot be moved to the positions {to:?}");
                return Err(Error::new(ErrorKind::Axis, "move_axis", message));
            }
            let mut rest = (0..aval.rank()).filter(|d| !from.contains(d));
            let order = (0..aval.rank())
                .filter_map(|axis| match to.iter().position(|&t| t == axis) {
                    Some(i) => Some(from[i]),
                    None => rest.next(),
                })
                .collect();
            Ok(permute(self, order))
        })
    }

    /// The tensor without these dimensions, which have size 1; with `..`, without all dimensions of size 1.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or its size is not 1.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[[1], [2]]]).squeeze(0).shape()?, [2, 1]);
    /// assert_eq!(Tensor::new([[[1], [2]]]).squeeze(..).shape()?, [2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let all = axes.is_all();
            let mut axes = axes.resolve("squeeze", aval)?;
            if all {
                axes.retain(|d| aval.shape[*d] == 1);
            }
            axes.sort_unstable();
            Ok(self.squeeze_dims(axes))
        })
    }

    /// The tensor with new dimensions of size 1 at these axes of the result.
    ///
    /// # Errors
    /// If an axis is out of range or given twice.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).expand_dims(0).shape()?, [1, 2]);
    /// assert_eq!(Tensor::new([1, 2]).expand_dims([0, -1]).shape()?, [1, 2, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn expand_dims(&self, axes: impl Dims) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let given = axes.to_ints();
            let rank = aval.rank() + given.len();
            let mut axes = Shape::new();
            for &axis in &given {
                let message = match axis_of(rank, axis) {
                    Some(new) if !axes.contains(&new) => {
                        axes.push(new);
                        continue;
                    }
                    Some(_) => format!("axis {axis} of the result is given twice for {aval}"),
                    None => {
                        format!("axis {axis} is out of range: {aval} becomes a tensor of {}", dimensions(rank))
                    }
                };
                return Err(Error::new(ErrorKind::Axis, "expand_dims", message));
            }
            axes.sort_unstable();
            Ok(expand(self, axes))
        })
    }

    /// The tensor broadcast to a shape: dimensions are added in front, and those of size 1 repeated.
    ///
    /// # Errors
    /// If it does not broadcast to this shape.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).broadcast_to([2, 2]).to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Dims) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let shape = shape.to_shape("broadcast_to")?;
            if !broadcasts(&aval.shape, &shape) {
                let message = format!("{aval} does not broadcast to {}", aval.with_shape(shape));
                return Err(Error::new(ErrorKind::Shape, "broadcast_to", message));
            }
            Ok(broadcast_trailing(self, aval.clone(), &shape))
        })
    }

    /// The tensor reversed along axes.
    ///
    /// # Errors
    /// If an axis is out of range or given twice.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).flip(-1).to_vec::<i32>()?, [2, 1, 4, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            let mut axes = axes.resolve("flip", self.aval()?)?;
            axes.sort_unstable();
            Ok(if axes.is_empty() { self.clone() } else { bind1(Rev { axes }, &[self]) })
        })
    }

    /// The elements of diagonal `offset` of the matrices in dimensions `axis1` and `axis2`, as a last dimension; positive offsets are above
    /// the main diagonal.
    ///
    /// # Errors
    /// If an axis is out of range, or both axes are the same.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::arange(0..6).reshape([2, 3]);
    /// assert_eq!(x.diagonal(1, 0, 1).to_vec::<i32>()?, [1, 5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, offset: i64, axis1: impl Int, axis2: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let axes = distinct_axes("diagonal", aval, &[axis1.get(), axis2.get()])?;
            let (n, m) = (aval.shape[axes[0]], aval.shape[axes[1]]);
            let matrices = self.move_axis(&axes[..], [-2, -1]);
            let shift = offset.unsigned_abs() as usize;
            let (row, column) = if offset < 0 { (shift.min(n), 0) } else { (0, shift.min(m)) };
            let len = (n - row).min(m - column);
            // In a flattened matrix, one step down the diagonal is one row plus one element.
            let mut flat = matrices.aval()?.shape.clone();
            flat.truncate(aval.rank() - 2);
            let rank = flat.len();
            flat.push(n * m);
            let flat = reshape_to(&matrices, matrices.aval()?, flat);
            let mut slice = whole(flat.aval()?);
            if len == 0 {
                (slice.start[rank], slice.limit[rank]) = (0, 0);
            } else {
                slice.start[rank] = row * m + column;
                slice.limit[rank] = slice.start[rank] + (len - 1) * (m + 1) + 1;
                slice.strides[rank] = m + 1;
            }
            Ok(bind1(slice, &[&flat]))
        })
    }
}

impl Tensor {
    /// The tensor without these dimensions of size 1, given in increasing order.
    #[track_caller]
    pub(crate) fn squeeze_dims(&self, axes: Shape) -> Tensor {
        if axes.is_empty() { self.clone() } else { bind1(Squeeze { axes }, &[self]) }
    }
}

/// The slice that covers a whole tensor.
pub(crate) fn whole(aval: &Aval) -> Slice {
    let rank = aval.rank();
    Slice { start: Shape::from_elem(0, rank), limit: aval.shape.clone(), strides: Shape::from_elem(1, rank) }
}

/// Elements `start..end` along an axis; the tensor itself if these are all elements.
#[track_caller]
pub(crate) fn slice_axis(tensor: &Tensor, aval: &Aval, axis: usize, start: usize, end: usize) -> Tensor {
    if start == 0 && end == aval.shape[axis] {
        return tensor.clone();
    }
    let mut slice = whole(aval);
    (slice.start[axis], slice.limit[axis]) = (start, end);
    bind1(slice, &[tensor])
}

/// The tensor with another shape of the same size, or itself if it has that shape.
#[track_caller]
pub(crate) fn reshape_to(tensor: &Tensor, aval: &Aval, shape: Shape) -> Tensor {
    if aval.shape == shape { tensor.clone() } else { bind1(Reshape { shape }, &[tensor]) }
}

/// The dimensions in this order; the tensor itself if they already are.
#[track_caller]
pub(crate) fn permute(tensor: &Tensor, permutation: Shape) -> Tensor {
    if permutation.iter().copied().eq(0..permutation.len()) {
        return tensor.clone();
    }
    bind1(Transpose { permutation }, &[tensor])
}

/// The tensor with new dimensions of size 1 at these axes of the result, given in increasing order.
#[track_caller]
pub(crate) fn expand(tensor: &Tensor, axes: Shape) -> Tensor {
    if axes.is_empty() { tensor.clone() } else { bind1(ExpandDims { axes }, &[tensor]) }
}

/// The shape with its -1, if there is one, inferred.
fn new_shape(aval: &Aval, sizes: &[i64]) -> Result<Shape> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Shape, "reshape", message));
    if sizes.iter().filter(|&&n| n == -1).count() > 1 {
        return wrong(format!("only one size of {sizes:?} can be -1, for {aval}"));
    }
    if let Some(n) = sizes.iter().find(|&&n| n < -1) {
        return wrong(format!("the size {n} is negative, for {aval}"));
    }
    let known = sizes.iter().filter(|&&n| n != -1).try_fold(1usize, |size, &n| size.checked_mul(n as usize));
    let Some(known) = known else { return wrong(format!("{sizes:?} has more elements than memory can hold")) };
    let rest = aval.size().checked_div(known).unwrap_or(0);
    if sizes.contains(&-1) && (known == 0 || known * rest != aval.size()) {
        return wrong(format!("{aval} has {} elements, which {sizes:?} does not divide", aval.size()));
    }
    let shape: Shape = sizes.iter().map(|&n| if n == -1 { rest } else { n as usize }).collect();
    if !sizes.contains(&-1) && known != aval.size() {
        let new = aval.with_shape(shape);
        return wrong(format!("{aval} has {} elements and {new} has {known}", aval.size()));
    }
    Ok(shape)
}
