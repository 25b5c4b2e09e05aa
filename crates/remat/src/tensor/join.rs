//! Joining, splitting and repeating tensors.

use std::borrow::Borrow;

use remat_ir::{BroadcastInDim, Concatenate, Error, ErrorKind, Pad, Result, Shape};

use super::argument::{Axes, Dims, Int, Operand, axis, axis_of, dimensions};
use super::elementwise::same_dtype;
use super::shape::{reshape_to, slice_axis};
use crate::Tensor;
use crate::trace::{bind1, deferred, deferred_all};

impl Tensor {
    /// Tensors joined along an existing axis.
    ///
    /// # Errors
    /// If there are no tensors, the axis is out of range, or dtypes or other sizes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let (x, y) = (Tensor::new([[1, 2]]), Tensor::new([[3, 4]]));
    /// assert_eq!(Tensor::concatenate(&[&x, &y], 0).to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert_eq!(Tensor::concatenate(&[&x, &y], -1).shape()?, [1, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn concatenate(tensors: &[impl Borrow<Tensor>], axis: impl Int) -> Tensor {
        deferred(|| {
            let tensors: Vec<&Tensor> = tensors.iter().map(Borrow::borrow).collect();
            let Some(first) = tensors.first() else {
                return Err(Error::new(ErrorKind::Argument, "concatenate", "takes at least one tensor"));
            };
            let axis = self::axis("concatenate", first.aval()?, axis.get())?;
            Ok(bind1(Concatenate { axis }, &tensors))
        })
    }

    /// Tensors of one shape joined along a new axis, at this position of the result.
    ///
    /// # Errors
    /// If there are no tensors, the axis is out of range, or dtypes or shapes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let (x, y) = (Tensor::new([1, 2]), Tensor::new([3, 4]));
    /// assert_eq!(Tensor::stack(&[x, y], 1).to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn stack(tensors: &[impl Borrow<Tensor>], axis: impl Int) -> Tensor {
        deferred(|| {
            let Some(first) = tensors.first() else {
                return Err(Error::new(ErrorKind::Argument, "stack", "takes at least one tensor"));
            };
            let first = first.borrow().aval()?;
            for other in tensors {
                let other = other.borrow().aval()?;
                same_dtype("stack", first, other)?;
                if first.shape != other.shape {
                    let message = format!("{first} and {other} have different shapes");
                    return Err(Error::new(ErrorKind::Shape, "stack", message));
                }
            }
            let rank = first.rank() + 1;
            let Some(axis) = axis_of(rank, axis.get()) else {
                let axis = axis.get();
                let message = format!("axis {axis} is out of range: {first} becomes a tensor of {}", dimensions(rank));
                return Err(Error::new(ErrorKind::Axis, "stack", message));
            };
            let tensors: Vec<Tensor> = tensors.iter().map(|t| t.borrow().expand_dims(axis)).collect();
            Ok(bind1(Concatenate { axis }, &tensors.iter().collect::<Vec<_>>()))
        })
    }

    /// `count` equal parts along an axis.
    ///
    /// # Errors
    /// If the axis is out of range, or its size is not a multiple of `count`; then every part is a failed tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// let parts = Tensor::arange(0..6).split(3, 0);
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, count: usize, axis: impl Int) -> Vec<Tensor> {
        deferred_all(failed_parts(count), || {
            let aval = self.aval()?;
            let axis = self::axis("split", aval, axis.get())?;
            let size = aval.shape[axis];
            if count == 0 || !size.is_multiple_of(count) {
                let message = format!(
                    "dimension {axis} of {aval} does not split into {count} equal parts; `chunk` and `split_at` make unequal ones"
                );
                return Err(Error::new(ErrorKind::Shape, "split", message));
            }
            let part = size / count;
            Ok((0..count).map(|i| slice_axis(self, aval, axis, i * part, (i + 1) * part)).collect())
        })
    }

    /// The parts along an axis that begin at 0 and at each of these indices.
    ///
    /// # Errors
    /// If the axis is out of range, or the indices decrease or pass its size; then every part is a failed tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// let parts = Tensor::arange(0..6).split_at(&[1, 4], 0);
    /// assert_eq!(parts[1].to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn split_at(&self, indices: &[usize], axis: impl Int) -> Vec<Tensor> {
        deferred_all(indices.len() + 1, || {
            let aval = self.aval()?;
            let axis = self::axis("split_at", aval, axis.get())?;
            let bounds = [&[0], indices, &[aval.shape[axis]]].concat();
            if let Some(pair) = bounds.windows(2).find(|pair| pair[0] > pair[1]) {
                let message = format!("{}..{} is not a range of dimension {axis} of {aval}", pair[0], pair[1]);
                return Err(Error::new(ErrorKind::Axis, "split_at", message));
            }
            Ok(bounds.windows(2).map(|pair| slice_axis(self, aval, axis, pair[0], pair[1])).collect())
        })
    }

    /// At most `count` parts along an axis, all of the same size except the last, which may be smaller.
    ///
    /// # Errors
    /// If the axis is out of range or `count` is 0; then every part is a failed tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// let parts = Tensor::arange(0..5).chunk(3, 0);
    /// let sizes = parts.iter().map(Tensor::size).collect::<remat::Result<Vec<_>>>()?;
    /// assert_eq!(sizes, [2, 2, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, count: usize, axis: impl Int) -> Vec<Tensor> {
        deferred_all(failed_parts(count), || {
            let aval = self.aval()?;
            let axis = self::axis("chunk", aval, axis.get())?;
            if count == 0 {
                return Err(Error::new(ErrorKind::Argument, "chunk", format!("{aval} cannot be cut into 0 parts")));
            }
            let size = aval.shape[axis];
            let part = size.div_ceil(count).max(1);
            let starts = (0..size.max(1)).step_by(part);
            Ok(starts.map(|start| slice_axis(self, aval, axis, start, (start + part).min(size))).collect())
        })
    }

    /// `value` added before and after each dimension; negative numbers crop.
    ///
    /// # Errors
    /// If there is not one pair per dimension, more is cropped than exists, or the dtype cannot represent the value.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).pad([(1, 2)], 0).to_vec::<i32>()?, [0, 1, 2, 0, 0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, widths: impl AsRef<[(i64, i64)]>, value: impl Operand) -> Tensor {
        deferred(|| {
            let config = widths.as_ref().iter().map(|&(low, high)| (low, high, 0)).collect();
            let value = value.argument().of_dtype("pad", self.aval()?.dtype)?;
            Ok(bind1(Pad { config }, &[self, &value]))
        })
    }

    /// As [`Tensor::pad`], with `value` also between the elements: each dimension has the numbers before, after, and between two elements.
    ///
    /// # Errors
    /// As [`Tensor::pad`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).pad_dilated([(0, 1, 2)], 0).to_vec::<i32>()?, [1, 0, 0, 2, 0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pad_dilated(&self, widths: impl AsRef<[(i64, i64, usize)]>, value: impl Operand) -> Tensor {
        deferred(|| {
            let value = value.argument().of_dtype("pad_dilated", self.aval()?.dtype)?;
            Ok(bind1(Pad { config: widths.as_ref().to_vec() }, &[self, &value]))
        })
    }

    /// The whole tensor repeated, `repeats[i]` times along dimension `i`. Missing dimensions are added in front.
    ///
    /// # Errors
    /// If a number is negative.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).tile([2, 2]).to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, repeats: impl Dims) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let repeats = repeats.to_shape("tile")?;
            let rank = aval.rank().max(repeats.len());
            let old: Shape = at_least(rank, &aval.shape);
            let repeats = at_least(rank, &repeats);
            // Every dimension becomes two, the first of which is new.
            let wide: Shape = (0..rank).flat_map(|d| [repeats[d], old[d]]).collect();
            let dims = (rank - aval.rank()..rank).map(|d| 2 * d + 1).collect();
            let wide = bind1(BroadcastInDim { shape: wide, dims }, &[self]);
            Ok(reshape_to(&wide, wide.aval()?, (0..rank).map(|d| repeats[d] * old[d]).collect()))
        })
    }

    /// Every slice along an axis repeated `count` times.
    ///
    /// # Errors
    /// If the axis is out of range.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).repeat(2, 0).to_vec::<i32>()?, [1, 1, 2, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat(&self, count: usize, axis: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let axis = self::axis("repeat", aval, axis.get())?;
            let mut wide = aval.shape.clone();
            wide.insert(axis + 1, count);
            let dims = (0..=aval.rank()).filter(|&d| d != axis + 1).collect();
            let wide = bind1(BroadcastInDim { shape: wide, dims }, &[self]);
            let mut shape = aval.shape.clone();
            shape[axis] = shape[axis].saturating_mul(count);
            Ok(reshape_to(&wide, wide.aval()?, shape))
        })
    }

    /// The elements shifted by `shift` positions along axes; those that pass the end come back at the start.
    ///
    /// # Errors
    /// If an axis is out of range or given twice.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).roll(1, 0).to_vec::<i32>()?, [3, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, shift: i64, axes: impl Axes) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let mut out = self.clone();
            for axis in axes.resolve("roll", aval)? {
                let size = aval.shape[axis];
                let shift = shift.checked_rem_euclid(size as i64).unwrap_or(0) as usize;
                if shift != 0 {
                    let (start, end) = out.split_two(axis, size - shift)?;
                    out = Tensor::concatenate(&[end, start], axis);
                }
            }
            Ok(out)
        })
    }

    /// The parts before and from `index` along an axis.
    fn split_two(&self, axis: usize, index: usize) -> Result<(Tensor, Tensor)> {
        let aval = self.aval()?;
        let size = aval.shape[axis];
        Ok((slice_axis(self, aval, axis, 0, index), slice_axis(self, aval, axis, index, size)))
    }
}

/// The shape with ones in front, of at least this rank.
fn at_least(rank: usize, shape: &[usize]) -> Shape {
    std::iter::repeat_n(1, rank - shape.len()).chain(shape.iter().copied()).collect()
}

/// The number of failed tensors for `n` parts: at least one, which carries the error, and no more than fit in memory.
fn failed_parts(count: usize) -> usize {
    count.clamp(1, 1 << 16)
}
