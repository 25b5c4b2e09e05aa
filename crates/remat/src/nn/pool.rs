//! Pooling as layers.

use remat_ir::{Error, ErrorKind, Result, counted};

use super::reserved::reserved;
use crate::layer::deferred;
use crate::{PoolConfig, Tensor, Tree};

/// [`Tensor::max_pool`] with a configuration: a layer without weights.
///
/// ```
/// use remat::{DType, PoolConfig, Tensor, nn::MaxPool};
/// let pool = MaxPool { config: PoolConfig::new([2, 2]) };
/// assert_eq!(pool.apply(&Tensor::ones([1, 3, 8, 8], DType::F32)).shape()?, [1, 3, 4, 4]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct MaxPool {
    /// The windows.
    #[tree(static)]
    pub config: PoolConfig,
}

impl MaxPool {
    /// The largest element of each window.
    ///
    /// # Errors
    /// As [`Tensor::max_pool`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        x.max_pool(&self.config)
    }
}

/// [`Tensor::avg_pool`] with a configuration: a layer without weights.
///
/// ```
/// use remat::{DType, PoolConfig, Tensor, nn::AvgPool};
/// let pool = AvgPool { config: PoolConfig::new([4]) };
/// assert_eq!(pool.apply(&Tensor::ones([1, 3, 8], DType::F32)).to_vec::<f32>()?, [1.0; 6]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct AvgPool {
    /// The windows.
    #[tree(static)]
    pub config: PoolConfig,
}

impl AvgPool {
    /// The mean of each window.
    ///
    /// # Errors
    /// As [`Tensor::avg_pool`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        x.avg_pool(&self.config)
    }
}

/// The mean over all spatial axes of `x`, of type `dtype[batch, channels, spatial..]`: `dtype[batch, channels]`.
///
/// # Errors
/// If `x` has fewer than two dimensions, or is not a float.
///
/// ```
/// use remat::{DType, Tensor, nn};
/// assert_eq!(nn::global_avg_pool(&Tensor::ones([2, 3, 5, 7], DType::F32)).shape()?, [2, 3]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn global_avg_pool(x: &Tensor) -> Tensor {
    deferred(|| {
        let rank = spatial("nn::global_avg_pool", x)?;
        Ok(x.mean((2..2 + rank).collect::<Vec<usize>>()))
    })
}

/// The largest elements over all spatial axes of `x`, of type `dtype[batch, channels, spatial..]`: `dtype[batch, channels]`.
///
/// # Errors
/// If `x` has fewer than two dimensions, or a spatial dimension of size 0.
///
/// ```
/// use remat::{Tensor, nn};
/// let x = Tensor::arange(0..12).reshape([1, 2, 6]);
/// assert_eq!(nn::global_max_pool(&x).to_vec::<i32>()?, [5, 11]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn global_max_pool(x: &Tensor) -> Tensor {
    deferred(|| {
        let rank = spatial("nn::global_max_pool", x)?;
        Ok(x.max((2..2 + rank).collect::<Vec<usize>>()))
    })
}

/// Means over windows such that the spatial dimensions of the result have these sizes. Window number *i* of *n* goes from `i * size / n`,
/// rounded down, to `(i + 1) * size / n`, rounded up, as in PyTorch's `AdaptiveAvgPool2d`.
///
/// # Errors
/// If there is not one size for each spatial dimension of `x`, of type `dtype[batch, channels, spatial..]`, a size is 0, or `x` is not a
/// float; if the result is too large to be counted, or there is no memory for the windows of an axis.
///
/// ```
/// use remat::{Tensor, nn};
/// let x = Tensor::arange(0.0..5.0f32).reshape([1, 1, 5]);
/// assert_eq!(nn::adaptive_avg_pool(&x, [2]).to_vec::<f32>()?, [1.0, 3.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn adaptive_avg_pool(x: &Tensor, sizes: impl AsRef<[usize]>) -> Tensor {
    const NAME: &str = "nn::adaptive_avg_pool";
    // In f32, so that a mean of means is rounded once.
    deferred(|| x.in_wide(NAME, |x| adaptive(NAME, x, sizes.as_ref(), |window, axis| window.mean(axis))))
}

/// As [`adaptive_avg_pool`] with the largest element of each window.
///
/// # Errors
/// As [`adaptive_avg_pool`], except for the dtype.
///
/// ```
/// use remat::{Tensor, nn};
/// let x = Tensor::arange(0..5).reshape([1, 1, 5]);
/// assert_eq!(nn::adaptive_max_pool(&x, [2]).to_vec::<i32>()?, [2, 4]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn adaptive_max_pool(x: &Tensor, sizes: impl AsRef<[usize]>) -> Tensor {
    const NAME: &str = "nn::adaptive_max_pool";
    deferred(|| adaptive(NAME, x, sizes.as_ref(), |window, axis| window.max(axis)))
}

/// Reduces one dimension after the other. A window is a box, so its mean is the mean of the means along each axis.
fn adaptive(name: &str, x: &Tensor, sizes: &[usize], reduce: impl Fn(&Tensor, usize) -> Tensor) -> Result<Tensor> {
    let rank = spatial(name, x)?;
    if sizes.len() != rank || sizes.contains(&0) {
        let message = format!("the sizes are {sizes:?} and not {}", counted(rank, "positive number"));
        return Err(Error::new(ErrorKind::Argument, name, message));
    }
    // Each window is an operation, so that a result that no array can be is refused before there are any.
    let aval = x.aval()?;
    let result = aval.with_shape(aval.shape[..2].iter().chain(sizes).copied());
    if let Some(excess) = result.excess() {
        return Err(Error::new(ErrorKind::Shape, name, format!("the result {result} {excess}")));
    }
    let mut y = x.clone();
    for (axis, &count) in (2..).zip(sizes) {
        let size = y.dim(axis)?;
        if size == 0 {
            let message = format!("a spatial dimension of {} is empty", x.aval()?);
            return Err(Error::new(ErrorKind::Shape, name, message));
        }
        if size.is_multiple_of(count) {
            let mut shape = y.shape()?.to_vec();
            shape.splice(axis..=axis, [count, size / count]);
            y = reduce(&y.reshape(shape), axis + 1);
            continue;
        }
        let what = || format!("the {count} windows of axis {axis} of {aval}");
        let mut windows: Vec<Tensor> = reserved(name, what, Some(count))?;
        // The products of a number and a size may be past what a usize holds; the bounds are at most the size.
        let [wide_size, wide_count] = [size, count].map(|n| n as u128);
        windows.extend((0..count as u128).map(|i| {
            let (from, to) = (i * wide_size / wide_count, ((i + 1) * wide_size).div_ceil(wide_count));
            let window = y.split_at(&[from as usize, to as usize], axis).swap_remove(1);
            reduce(&window, axis)
        }));
        y = Tensor::stack(&windows, axis);
    }
    Ok(y)
}

/// The number of spatial dimensions.
fn spatial(name: &str, x: &Tensor) -> Result<usize> {
    let aval = x.aval()?;
    aval.rank().checked_sub(2).ok_or_else(|| {
        let message = format!("takes an array [batch, features, spatial..], not {aval}");
        Error::new(ErrorKind::Shape, name, message)
    })
}
