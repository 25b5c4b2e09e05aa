//! Losses.

use remat_ir::{CrossEntropyTangent, Error, ErrorKind, Result};

use crate::index::non_negative;
use crate::layer::{apply, deferred};
use crate::{Tensor, custom_jvp};

/// The mean over all positions of the negative logarithm of the probability that `softmax(logits)` gives to the target.
///
/// `logits` are floats `[.., classes]`, `targets` integers `[..]`: indices of classes, negative ones from the end. The result
/// is a scalar of the dtype of the logits. f16 and bf16 are computed in f32. A target out of range makes the mean NaN; so do
/// empty logits.
///
/// The backward pass keeps the logits, the targets and one number per position; the gradient is one elementwise expression of
/// them, and the probabilities are not residuals.
///
/// # Errors
/// If the logits are not floats, the targets are not integers, or their shape is not that of the logits without the last
/// dimension.
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
    deferred(|| {
        check(logits, targets)?;
        let losses = custom_jvp(cross_entropies, |(logits, targets), (tangent, _)| {
            let logsumexp = logsumexp(logits);
            let losses = &logsumexp - chosen(logits, targets);
            let tangent = deferred(|| {
                let aval = logits.aval()?;
                let labels = non_negative(targets, aval.shape[aval.rank() - 1]);
                Ok(apply(CrossEntropyTangent, &[logits, &labels, &logsumexp, tangent])?.swap_remove(0))
            });
            (losses, tangent)
        });
        Ok(losses(&(logits.clone(), targets.clone())).mean(..).to_dtype(logits.dtype()?))
    })
}

fn check(logits: &Tensor, targets: &Tensor) -> Result<()> {
    const NAME: &str = "nn::cross_entropy";
    let (logits, targets) = (logits.aval()?, targets.aval()?);
    if !logits.dtype.is_float() {
        let message = format!("the logits are floats, not {logits}; convert them with .to_dtype(DType::F32)");
        return Err(Error::new(ErrorKind::DType, NAME, message));
    }
    if !targets.dtype.is_integer() {
        let message = format!("the targets are integers, not {targets}; convert them with .to_dtype(DType::I32)");
        return Err(Error::new(ErrorKind::DType, NAME, message));
    }
    match logits.shape.split_last() {
        Some((_, positions)) if targets.shape[..] == *positions => Ok(()),
        _ => {
            let message = format!("the targets {targets} are not one for each position of the logits {logits}");
            Err(Error::new(ErrorKind::Shape, NAME, message))
        }
    }
}

/// The loss of each position.
fn cross_entropies((logits, targets): &(Tensor, Tensor)) -> Tensor {
    logsumexp(logits) - chosen(logits, targets)
}

fn logsumexp(logits: &Tensor) -> Tensor {
    wide(logits).logsumexp(-1)
}

/// The logits of the targets.
fn chosen(logits: &Tensor, targets: &Tensor) -> Tensor {
    wide(&logits.take_along_axis(&targets.expand_dims(-1), -1).squeeze(-1))
}

/// `x` in the dtype that losses are computed in.
fn wide(x: &Tensor) -> Tensor {
    deferred(|| Ok(x.to_dtype(x.dtype()?.wide())))
}
