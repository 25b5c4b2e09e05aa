//! Reductions, running reductions, and statistics.

use remat_ir::{
    ArgKind, ArgReduce, Aval, Cumulative, CumulativeKind, DType, Error, ErrorKind, Reduce, ReduceKind, Result,
};

use super::argument::{Axes, Int, axis};
use super::elementwise::require_float;
use super::shape::expand;
use crate::Tensor;
use crate::trace::{bind1, deferred};

impl Tensor {
    /// The sum over axes; 0 if there are no elements. f16 and bf16 are summed in f32 and rounded once.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is bool.
    ///
    /// ```
    /// use remat::argument::keep;
    /// use remat::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]]);
    /// assert_eq!(x.sum(0).to_vec::<i32>()?, [4, 6]);
    /// assert_eq!(x.sum(..).item::<i32>()?, 10);
    /// assert_eq!(x.sum(keep(1)).shape()?, [2, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn sum(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.reduce("sum", ReduceKind::Sum, &axes))
    }

    /// The product over axes; 1 if there are no elements. f16 and bf16 are multiplied in f32 and rounded once.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).prod(1).to_vec::<i32>()?, [2, 12]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn prod(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.reduce("prod", ReduceKind::Prod, &axes))
    }

    /// The largest element over axes; NaN if one is NaN.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or there is no element to choose from.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 5], [3, 4]]).max(1).to_vec::<i32>()?, [5, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn max(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.max_or_min("max", ReduceKind::Max, &axes))
    }

    /// The smallest element over axes; NaN if one is NaN.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or there is no element to choose from.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 5], [3, 4]]).min(1).to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn min(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.max_or_min("min", ReduceKind::Min, &axes))
    }

    /// Whether all elements over axes are `true`, or not zero; `true` if there are none.
    ///
    /// # Errors
    /// If an axis is out of range or given twice.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[true, false], [true, true]]).all(1).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn all(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.truth()?.reduce("all", ReduceKind::And, &axes))
    }

    /// Whether any element over axes is `true`, or not zero; `false` if there are none.
    ///
    /// # Errors
    /// If an axis is out of range or given twice.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[0, 0], [0, 2]]).any(1).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn any(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.truth()?.reduce("any", ReduceKind::Or, &axes))
    }

    /// The i32 index of the first largest element along an axis; with `..` its row-major position. NaN counts as the largest.
    ///
    /// # Errors
    /// If the axis is out of range, or there is no element to choose from.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[1, 5], [7, 4]]);
    /// assert_eq!(x.argmax(1).to_vec::<i32>()?, [1, 0]);
    /// assert_eq!(x.argmax(..).item::<i32>()?, 2);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax(&self, axis: impl Axes) -> Tensor {
        deferred(|| self.arg_extremum("argmax", ArgKind::Max, &axis))
    }

    /// The i32 index of the first smallest element along an axis; with `..` its row-major position. NaN counts as the smallest.
    ///
    /// # Errors
    /// If the axis is out of range, or there is no element to choose from.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 5], [7, 4]]).argmin(0).to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn argmin(&self, axis: impl Axes) -> Tensor {
        deferred(|| self.arg_extremum("argmin", ArgKind::Min, &axis))
    }

    /// The mean over axes; NaN if there are no elements. For f16 and bf16 it is computed in f32.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1.0f32, 2.0], [3.0, 6.0]]).mean(1).to_vec::<f32>()?, [1.5, 4.5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn mean(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.in_wide("mean", |x| x.plain_mean("mean", &axes)))
    }

    /// The mean squared distance from the mean over axes. For f16 and bf16 it is computed in f32.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 3.0]).variance(0).item::<f32>()?, 1.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn variance(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.in_wide("variance", |x| x.plain_variance("variance", &axes, 0)))
    }

    /// As [`Tensor::variance`], with the sum of squares divided by the number of elements minus `ddof`.
    ///
    /// # Errors
    /// As [`Tensor::variance`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 3.0]).variance_ddof(0, 1).item::<f32>()?, 2.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn variance_ddof(&self, axes: impl Axes, ddof: usize) -> Tensor {
        deferred(|| self.in_wide("variance_ddof", |x| x.plain_variance("variance_ddof", &axes, ddof)))
    }

    /// The square root of the variance over axes.
    ///
    /// # Errors
    /// As [`Tensor::variance`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 5.0]).std(0).item::<f32>()?, 2.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn std(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.in_wide("std", |x| Ok(x.plain_variance("std", &axes, 0)?.sqrt())))
    }

    /// As [`Tensor::std`], with the sum of squares divided by the number of elements minus `ddof`.
    ///
    /// # Errors
    /// As [`Tensor::variance`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 3.0]).std_ddof(0, 1).item::<f32>()?, 2.0f32.sqrt());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn std_ddof(&self, axes: impl Axes, ddof: usize) -> Tensor {
        deferred(|| self.in_wide("std_ddof", |x| Ok(x.plain_variance("std_ddof", &axes, ddof)?.sqrt())))
    }

    /// The Euclidean norm over axes: the square root of the sum of squares. For f16 and bf16 it is computed in f32.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3.0f32, -4.0]).norm(0).item::<f32>()?, 5.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn norm(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.in_wide("norm", |x| Ok(x.square().reduce("norm", ReduceKind::Sum, &axes)?.sqrt())))
    }

    /// The sum of absolute values over axes.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3.0f32, -4.0]).norm_l1(0).item::<f32>()?, 7.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn norm_l1(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.abs().reduce("norm_l1", ReduceKind::Sum, &axes))
    }

    /// The largest absolute value over axes.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, the dtype is bool, or there is no element to choose from.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3.0f32, -4.0]).norm_max(0).item::<f32>()?, 4.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn norm_max(&self, axes: impl Axes) -> Tensor {
        deferred(|| self.abs().max_or_min("norm_max", ReduceKind::Max, &axes))
    }

    /// `log(sum(exp(x)))` over axes, without overflow: the largest element is subtracted first, and has no gradient. Of no elements it is
    /// negative infinity.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([1000.0f32, 1000.0]).logsumexp(0);
    /// assert!((y.item::<f32>()? - 1000.6931).abs() < 1e-3);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            require_float("logsumexp", aval)?;
            let dims = axes.resolve("logsumexp", aval)?;
            let (shift, logarithm) = self.logsumexp_parts("logsumexp", &dims)?;
            let out = logarithm + shift;
            Ok(if axes.keeps() { out } else { out.squeeze(&dims[..]) })
        })
    }

    /// The largest element over axes, which are kept, and the logarithm of the sum of the exponentials of what the elements are beyond it.
    /// Their sum is the logsumexp, whose rounding each of them is without.
    pub(crate) fn logsumexp_parts(&self, operation: &str, axes: &[usize]) -> Result<(Tensor, Tensor)> {
        let max = self.largest(operation, axes)?;
        // An infinite maximum would give the NaN of a difference of infinities.
        let shift = max.is_finite().select(&max, 0.0);
        let logarithm = (self - &shift).exp().sum(super::keep(axes)).log();
        Ok((shift, logarithm))
    }

    /// The running sum along an axis.
    ///
    /// # Errors
    /// If the axis is out of range or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).cumsum(0).to_vec::<i32>()?, [1, 3, 6]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, axis: impl Int) -> Tensor {
        self.cumulative(CumulativeKind::Sum, axis, false)
    }

    /// The running product along an axis.
    ///
    /// # Errors
    /// If the axis is out of range or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).cumprod(0).to_vec::<i32>()?, [1, 2, 6]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cumprod(&self, axis: impl Int) -> Tensor {
        self.cumulative(CumulativeKind::Prod, axis, false)
    }

    /// The largest element so far along an axis. Its derivative goes to the latest element that equals it; JAX shares it among equal
    /// elements in a way that depends on the length.
    ///
    /// # Errors
    /// If the axis is out of range or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 3, 2]).cummax(0).to_vec::<i32>()?, [1, 3, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cummax(&self, axis: impl Int) -> Tensor {
        self.cumulative(CumulativeKind::Max, axis, false)
    }

    /// The smallest element so far along an axis. Its derivative goes to the latest element that equals it; JAX shares it among equal
    /// elements in a way that depends on the length.
    ///
    /// # Errors
    /// If the axis is out of range or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3, 1, 2]).cummin(0).to_vec::<i32>()?, [3, 1, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cummin(&self, axis: impl Int) -> Tensor {
        self.cumulative(CumulativeKind::Min, axis, false)
    }

    /// The running `log(sum(exp(x)))` along an axis.
    ///
    /// # Errors
    /// If the axis is out of range or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([0.0f32, 0.0]).cumlogsumexp(0);
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.6931472]), 1e-6, 1e-6)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cumlogsumexp(&self, axis: impl Int) -> Tensor {
        self.cumulative(CumulativeKind::LogSumExp, axis, false)
    }

    /// A cumulative reduction along an axis, from its first element on or, reversed, from its last.
    ///
    /// # Errors
    /// If the axis is out of range, or the reduction does not take the dtype.
    ///
    /// ```
    /// use remat::ir::CumulativeKind;
    /// use remat::Tensor;
    /// let x = Tensor::new([1, 2, 3]);
    /// assert_eq!(x.cumulative(CumulativeKind::Sum, 0, true).to_vec::<i32>()?, [6, 5, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cumulative(&self, kind: CumulativeKind, axis: impl Int, reverse: bool) -> Tensor {
        deferred(|| {
            let op = Cumulative { kind, axis: 0, reverse };
            let name = remat_ir::Operation::name(&op);
            let axis = self::axis(name, self.aval()?, axis.get())?;
            Ok(bind1(Cumulative { axis, ..op }, &[self]))
        })
    }

    fn reduce(&self, operation: &str, kind: ReduceKind, axes: &dyn Axes) -> Result<Tensor> {
        let dims = axes.resolve(operation, self.aval()?)?;
        let mut sorted = dims;
        sorted.sort_unstable();
        // Also over no dimension, so that the shape rule checks the dtype.
        let out = bind1(Reduce { kind, axes: sorted.clone() }, &[self]);
        Ok(if axes.keeps() { expand(&out, sorted) } else { out })
    }

    /// The largest element over axes, which are kept: a constant to subtract before powers are taken. Of no elements it is negative infinity,
    /// and there is nothing to subtract it from.
    pub(super) fn largest(&self, operation: &str, axes: &[usize]) -> Result<Tensor> {
        Ok(self.reduce(operation, ReduceKind::Max, &super::keep(axes))?.stop_gradient())
    }

    /// A reduction that is undefined for no elements.
    fn max_or_min(&self, operation: &str, kind: ReduceKind, axes: &dyn Axes) -> Result<Tensor> {
        let aval = self.aval()?;
        let dims = axes.resolve(operation, aval)?;
        if let Some(&d) = dims.iter().find(|&&d| aval.shape[d] == 0) {
            let message = format!("dimension {d} of {aval} is empty: it has no element to choose");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        }
        self.reduce(operation, kind, axes)
    }

    fn arg_extremum(&self, operation: &str, kind: ArgKind, axes: &dyn Axes) -> Result<Tensor> {
        let aval = self.aval()?;
        let dims = axes.resolve(operation, aval)?;
        let reduce = |x: &Tensor, axis| bind1(ArgReduce { kind, axis, index_dtype: DType::I32 }, &[x]);
        let out = match dims[..] {
            [axis] => reduce(self, axis),
            _ if dims.len() == aval.rank() => reduce(&self.flatten(), 0),
            _ => {
                let message = format!("takes one axis of {aval}, or `..` for all, and got {}", dims.len());
                return Err(Error::new(ErrorKind::Axis, operation, message));
            }
        };
        let mut dims = dims;
        dims.sort_unstable();
        Ok(if axes.keeps() { expand(&out, dims) } else { out })
    }

    /// The tensor as bools.
    fn truth(&self) -> Result<Tensor> {
        Ok(if self.dtype()? == DType::Bool { self.clone() } else { self.ne(0) })
    }

    /// Runs a computation in f32 for the narrow floats, whose sums would otherwise overflow and lose digits.
    pub(crate) fn in_wide(&self, operation: &str, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let aval = self.aval()?;
        require_float(operation, aval)?;
        match aval.dtype {
            DType::F16 | DType::Bf16 => Ok(f(&self.to_dtype(DType::F32))?.to_dtype(aval.dtype)),
            _ => f(self),
        }
    }

    fn plain_mean(&self, operation: &str, axes: &dyn Axes) -> Result<Tensor> {
        let count = reduced_size(self.aval()?, &axes.resolve(operation, self.aval()?)?);
        Ok(self.reduce(operation, ReduceKind::Sum, axes)? / count as f64)
    }

    fn plain_variance(&self, operation: &str, axes: &dyn Axes, ddof: usize) -> Result<Tensor> {
        let dims = axes.resolve(operation, self.aval()?)?;
        let centered = self - self.plain_mean(operation, &super::keep(&dims[..]))?;
        let count = reduced_size(self.aval()?, &dims) as f64 - ddof as f64;
        Ok(centered.square().reduce(operation, ReduceKind::Sum, axes)? / count.max(0.0))
    }
}

/// The number of elements that a reduction combines into one.
pub(crate) fn reduced_size(aval: &Aval, dims: &[usize]) -> usize {
    dims.iter().map(|&d| aval.shape[d]).product()
}
