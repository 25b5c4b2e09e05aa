//! Losses of numbers: the mean over all elements of a function of `predictions - targets`.
//!
//! Both have the same shape. They are not broadcast, because `[n, 1]` and `[n]` would then silently make `n` by `n` differences.

use remat_ir::{Error, ErrorKind, Result};

use crate::Tensor;
use crate::layer::deferred;

/// The mean over all elements of `(predictions - targets)^2`, a scalar of the dtype of the operands. f16 and bf16 are computed in f32.
/// The mean of no elements is NaN.
///
/// # Errors
/// If the operands are not floats of one dtype and of the same shape.
///
/// ```
/// use remat::{Tensor, nn};
/// let loss = nn::mean_squared_error(&Tensor::new([1.0f32, 5.0]), &Tensor::new([1.0f32, 2.0]));
/// assert_eq!(loss.item::<f32>()?, 4.5);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn mean_squared_error(predictions: &Tensor, targets: &Tensor) -> Tensor {
    mean("nn::mean_squared_error", predictions, targets, |error| error.square())
}

/// The mean over all elements of `|predictions - targets|`, a scalar of the dtype of the operands. f16 and bf16 are computed in f32. The
/// mean of no elements is NaN. The derivative at equal elements is that of [`Tensor::abs`], 1 divided by the number of elements.
///
/// # Errors
/// As [`mean_squared_error`].
///
/// ```
/// use remat::{Tensor, nn};
/// let loss = nn::mean_absolute_error(&Tensor::new([1.0f32, 5.0]), &Tensor::new([1.0f32, 2.0]));
/// assert_eq!(loss.item::<f32>()?, 1.5);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn mean_absolute_error(predictions: &Tensor, targets: &Tensor) -> Tensor {
    mean("nn::mean_absolute_error", predictions, targets, |error| error.abs())
}

/// The mean over all elements of Huber's loss of the error `e = predictions - targets`: `e^2 / 2` where `|e| <= delta`, and
/// `delta (|e| - delta / 2)` elsewhere. The result is a scalar of the dtype of the operands; f16 and bf16 are computed in f32.
///
/// This is the mean of optax's `huber_loss`. Source: Huber, "Robust estimation of a location parameter", 1964.
///
/// # Errors
/// As [`mean_squared_error`]; if `delta` is not positive and finite.
///
/// ```
/// use remat::{Tensor, nn};
/// let loss = nn::huber_loss(&Tensor::new([1.5f32, 5.0]), &Tensor::new([1.0f32, 2.0]), 1.0);
/// assert_eq!(loss.item::<f32>()?, (0.125 + 2.5) / 2.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn huber_loss(predictions: &Tensor, targets: &Tensor, delta: f64) -> Tensor {
    const NAME: &str = "nn::huber_loss";
    deferred(|| {
        if !(delta > 0.0 && delta.is_finite()) {
            let message = format!("delta must be positive and finite, not {delta}");
            return Err(Error::new(ErrorKind::Argument, NAME, message));
        }
        Ok(mean(NAME, predictions, targets, |error| {
            let size = error.abs();
            // Only the chosen case has finite operands, so that no infinite square gives the other a gradient of NaN.
            let is_linear = size.gt(delta);
            let square = is_linear.select(0.0, error).square() * 0.5;
            is_linear.select((size - 0.5 * delta) * delta, square)
        }))
    })
}

/// The mean of the losses of the errors, computed in f32 for f16 and bf16.
#[track_caller]
fn mean(name: &str, predictions: &Tensor, targets: &Tensor, loss: impl Fn(&Tensor) -> Tensor) -> Tensor {
    mean_of_pairs(name, ["predictions", "targets"], predictions, targets, |predictions, targets| {
        loss(&(predictions - targets))
    })
}

/// The mean of the losses of corresponding elements, computed in f32 for f16 and bf16.
#[track_caller]
pub(super) fn mean_of_pairs(
    name: &str,
    names: [&str; 2],
    one: &Tensor,
    other: &Tensor,
    loss: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> Tensor {
    deferred(|| {
        same_floats(name, names, one, other)?;
        let dtype = one.dtype()?;
        let [one, other] = [one, other].map(|x| x.to_dtype(dtype.wide()));
        Ok(loss(&one, &other).mean(..).to_dtype(dtype))
    })
}

/// Fails unless both are floats of one dtype and of the same shape.
pub(super) fn same_floats(name: &str, names: [&str; 2], one: &Tensor, other: &Tensor) -> Result<()> {
    let (one, other) = (one.aval()?, other.aval()?);
    for (name_of, aval) in names.into_iter().zip([one, other]) {
        if !aval.dtype.is_float() {
            let message = format!("the {name_of} must be floats, not {aval}; convert them with .to_dtype(DType::F32)");
            return Err(Error::new(ErrorKind::DType, name, message));
        }
    }
    let [first, second] = names;
    if one.dtype != other.dtype {
        let message = format!("the {first} {one} and the {second} {other} have different dtypes");
        return Err(Error::new(ErrorKind::DType, name, message));
    }
    if one.shape != other.shape {
        let message =
            format!("the {first} {one} and the {second} {other} have different shapes, and are not broadcast");
        return Err(Error::new(ErrorKind::Shape, name, message));
    }
    Ok(())
}
