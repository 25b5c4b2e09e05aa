//! Losses of probabilities that are given as such; those of classes that are given by their indices are in `loss.rs`.

use remat_ir::{Error, ErrorKind};

use super::regression::{mean_of_pairs, same_floats};
use crate::Tensor;
use crate::layer::deferred;

/// The mean over all elements of the binary cross entropy of `sigmoid(logits)`:
/// `-labels log(sigmoid(logits)) - (1 - labels) log(sigmoid(-logits))`, without overflow.
///
/// `logits` and `labels` are floats of one dtype and shape; labels are probabilities, 0 or 1 for known classes. The result is a scalar of
/// their dtype. f16 and bf16 are computed in f32. The mean of no elements is NaN. This is the mean of optax's
/// `sigmoid_binary_cross_entropy`, and PyTorch's `binary_cross_entropy_with_logits`.
///
/// # Errors
/// If the operands are not floats of one dtype and of the same shape.
///
/// ```
/// use remat::{Tensor, nn};
/// let loss = nn::binary_cross_entropy(&Tensor::new([0.0f32, 1000.0]), &Tensor::new([1.0f32, 1.0]));
/// assert!((loss.item::<f32>()? - 0.5 * 2.0f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn binary_cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    // Two terms and not `softplus(x) - labels x`, whose difference loses the small loss of a sure and right prediction.
    mean_of_pairs("nn::binary_cross_entropy", ["logits", "labels"], logits, labels, |logits, labels| {
        labels * (-logits).softplus() + (1.0 - labels) * logits.softplus()
    })
}

/// The Kullback-Leibler divergence of predicted distributions from targets: the sum over the last axis of
/// `targets (log(targets) - log_predictions)`, and the mean of these over all other axes.
///
/// `log_predictions` are logarithms of probabilities, as [`Tensor::log_softmax`] gives them, and `targets` probabilities: floats
/// `[.., classes]` of one dtype. The result is a scalar of that dtype. f16 and bf16 are computed in f32. A target of 0 adds nothing,
/// whatever its prediction, and has a gradient of 0. Without positions the mean is NaN. This is the mean of optax's `kl_divergence`.
///
/// # Errors
/// If the operands are not floats of one dtype and of the same shape, or scalars.
///
/// ```
/// use remat::{Tensor, nn};
/// let log_predictions = Tensor::new([[0.5f32.ln(), 0.5f32.ln()]]);
/// let loss = nn::kl_divergence(&log_predictions, &Tensor::new([[1.0f32, 0.0]]));
/// assert!((loss.item::<f32>()? - 2.0f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn kl_divergence(log_predictions: &Tensor, targets: &Tensor) -> Tensor {
    const NAME: &str = "nn::kl_divergence";
    deferred(|| {
        same_floats(NAME, ["log predictions", "targets"], log_predictions, targets)?;
        if targets.rank()? == 0 {
            let message = format!("the targets {} have no axis of classes", targets.aval()?);
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        }
        let dtype = targets.dtype()?;
        let [log_predictions, targets] = [log_predictions, targets].map(|x| x.to_dtype(dtype.wide()));
        // Selected before the product, because zero times infinity is NaN, in the value and in the gradient.
        let is_zero = targets.eq(0.0);
        let ratio = is_zero.select(1.0, &targets).log() - is_zero.select(0.0, log_predictions);
        Ok((is_zero.select(0.0, targets) * ratio).sum(-1).mean(..).to_dtype(dtype))
    })
}
