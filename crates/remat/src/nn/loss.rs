//! Losses.

use crate::Tensor;
use crate::trace::pinned;

/// The mean over all places of the negative logarithm of the probability that `softmax(logits)` gives to the target.
///
/// `logits` are floats `[.., classes]`, `targets` integers `[..]` that number the classes: a scalar of the dtype of the
/// logits. A target out of range makes the mean NaN, and so does having no places.
///
/// # Errors
/// If the targets are no integers, or their shape is not that of the logits without the last dimension.
///
/// ```
/// use remat::{Tensor, nn};
/// let logits = Tensor::new([[0.0f32, 0.0], [100.0, 0.0]]);
/// let loss = nn::cross_entropy(&logits, &Tensor::new([1, 0]));
/// assert!((loss.item::<f32>()? - 0.5 * 2.0f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Tensor {
    pinned(|| -logits.log_softmax(-1).take_along_axis(&targets.expand_dims(-1), -1).mean(..))
}
