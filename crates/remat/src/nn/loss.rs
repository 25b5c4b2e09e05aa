//! Losses.

use remat_ir::{CrossEntropyTangent, Error, ErrorKind, Result};

use crate::index::{Ellipsis, non_negative};
use crate::layer::{apply, deferred};
use crate::trace::deferred_array;
use crate::{DType, Tensor, custom_jvp};

/// Cross entropy: the mean over all positions of the negative log probability that `softmax(logits)` gives to the target.
///
/// `logits` are floats `[.., classes]`, `targets` integers `[..]`: indices of classes, with negative ones counted from the end. The result
/// is a scalar of the dtype of the logits. f16 and bf16 are computed in f32. A target out of range makes the mean NaN, and so do empty
/// logits.
///
/// The backward pass keeps the logits, the targets and two numbers per position: the largest logit, and the logarithm of the sum of the
/// exponentials relative to it. The gradient is one elementwise expression of them, and the probabilities are not residuals. Loss and
/// gradient are as accurate for logits far from zero as for logits near it.
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
        check("nn::cross_entropy", logits, targets)?;
        Ok(losses(logits, targets).mean(..).to_dtype(logits.dtype()?))
    })
}

/// [`cross_entropy`] with a result of this dtype: with f32, the loss of bf16 logits is not rounded, and the logits that the backward pass keeps
/// are bf16.
///
/// ```
/// use remat::{DType, Tensor, nn};
/// let logits = Tensor::new([[1.0f32, 0.0]]).to_dtype(DType::Bf16);
/// let loss = nn::cross_entropy_in(&logits, &Tensor::new([0]), DType::F32);
/// assert!((loss.item::<f32>()? - (-1.0f32).exp().ln_1p()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`cross_entropy`]; if `dtype` is not a float.
#[track_caller]
pub fn cross_entropy_in(logits: &Tensor, targets: &Tensor, dtype: DType) -> Tensor {
    const NAME: &str = "nn::cross_entropy_in";
    deferred(|| {
        check(NAME, logits, targets)?;
        if !dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, NAME, format!("the loss is a float, not {dtype}")));
        }
        Ok(losses(logits, targets).mean(..).to_dtype(dtype))
    })
}

/// [`cross_entropy`] with label smoothing: the target class has the probability `1 - smoothing`, and all classes share `smoothing`
/// equally. `smoothing` is between 0, which is [`cross_entropy`], and 1.
///
/// Like that, it keeps no probabilities for the backward pass. This is optax's `softmax_cross_entropy` of `smooth_labels`, and PyTorch's
/// `cross_entropy` with `label_smoothing`. Source: Szegedy et al., "Rethinking the inception architecture for computer vision", 2016.
///
/// # Errors
/// As [`cross_entropy`]; if `smoothing` is not between 0 and 1.
///
/// ```
/// use remat::{Tensor, nn};
/// let logits = Tensor::new([[2.0f32, 0.0]]);
/// let loss = nn::smoothed_cross_entropy(&logits, &Tensor::new([0]), 0.2);
/// // The target has the probability 0.9, and the other class 0.1.
/// assert!((loss.item::<f32>()? - ((-2.0f32).exp().ln_1p() + 0.1 * 2.0)).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn smoothed_cross_entropy(logits: &Tensor, targets: &Tensor, smoothing: f64) -> Tensor {
    const NAME: &str = "nn::smoothed_cross_entropy";
    deferred(|| {
        check(NAME, logits, targets)?;
        check_smoothing(NAME, smoothing)?;
        Ok(smoothed_losses(logits, targets, smoothing).mean(..).to_dtype(logits.dtype()?))
    })
}

/// [`smoothed_cross_entropy`] over the positions whose `mask` is true, as in [`cross_entropy_where`]: bools of the shape of the targets, or
/// broadcasting to it. Targets at other positions are not read and may be out of range. If no position counts, the mean is NaN.
///
/// This is PyTorch's `cross_entropy` with `label_smoothing` and `ignore_index`.
///
/// # Errors
/// As [`cross_entropy_where`]; if `smoothing` is not between 0 and 1.
///
/// ```
/// use remat::{Tensor, nn};
/// let logits = Tensor::new([[2.0f32, 0.0], [100.0, 0.0]]);
/// let targets = Tensor::new([0, -100]);
/// let loss = nn::smoothed_cross_entropy_where(&logits, &targets, 0.2, &targets.ge(0));
/// assert!((loss.item::<f32>()? - ((-2.0f32).exp().ln_1p() + 0.1 * 2.0)).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn smoothed_cross_entropy_where(logits: &Tensor, targets: &Tensor, smoothing: f64, mask: &Tensor) -> Tensor {
    const NAME: &str = "nn::smoothed_cross_entropy_where";
    deferred(|| {
        check(NAME, logits, targets)?;
        check_smoothing(NAME, smoothing)?;
        mean_where(NAME, logits, targets, mask, |targets| smoothed_losses(logits, targets, smoothing))
    })
}

fn check_smoothing(name: &str, smoothing: f64) -> Result<()> {
    if (0.0..=1.0).contains(&smoothing) {
        return Ok(());
    }
    let message = format!("the smoothing must be between 0 and 1, not {smoothing}");
    Err(Error::new(ErrorKind::Argument, name, message))
}

/// As [`losses`], with label smoothing. Both have the same logsumexp, so their tangents differ by a linear map that keeps no floats: the
/// smoothing times the tangent at the target minus the mean of the tangent.
#[track_caller]
fn smoothed_losses(logits: &Tensor, targets: &Tensor, smoothing: f64) -> Tensor {
    // Not zero times the mean, which would be NaN for a class with the logit of negative infinity.
    if smoothing == 0.0 {
        return losses(logits, targets);
    }
    let primal = move |normaliser: &[Tensor; 2], logits: &Tensor, targets: &Tensor| {
        let [shift, logarithm] = normaliser;
        let spread = logarithm.expand_dims(-1) - (wide(logits) - shift.expand_dims(-1));
        let all = spread.mean(-1) * smoothing;
        // Nor zero times the loss of the target.
        if smoothing == 1.0 { all } else { loss(normaliser, logits, targets) * (1.0 - smoothing) + all }
    };
    let losses = custom_jvp(
        move |(logits, targets): &(Tensor, Tensor)| primal(&normaliser(logits), logits, targets),
        move |(logits, targets), (tangent, _)| {
            let normaliser = normaliser(logits);
            let moved = chosen(tangent, targets) - wide(tangent).mean(-1);
            let tangent = tangent_of_losses(&normaliser, logits, targets, tangent) + moved * smoothing;
            (primal(&normaliser, logits, targets), tangent)
        },
    );
    losses(&(logits.clone(), targets.clone()))
}

/// The loss of each position, in the dtype in which losses are computed, with the derivative that keeps no probabilities.
#[track_caller]
fn losses(logits: &Tensor, targets: &Tensor) -> Tensor {
    let losses = custom_jvp(cross_entropies, |(logits, targets), (tangent, _)| {
        let normaliser = normaliser(logits);
        let tangent = tangent_of_losses(&normaliser, logits, targets, tangent);
        (loss(&normaliser, logits, targets), tangent)
    });
    losses(&(logits.clone(), targets.clone()))
}

/// The tangent of the loss of each position, without smoothing.
fn tangent_of_losses(normaliser: &[Tensor; 2], logits: &Tensor, targets: &Tensor, tangent: &Tensor) -> Tensor {
    deferred(|| {
        let aval = logits.aval()?;
        let labels = non_negative(targets, aval.shape[aval.rank() - 1]);
        let [shift, logarithm] = normaliser;
        Ok(apply(CrossEntropyTangent, &[logits, &labels, shift, logarithm, tangent])?.swap_remove(0))
    })
}

/// As [`cross_entropy`], over the positions whose `mask` is true: bools of the shape of the targets, or broadcasting to it. Targets at
/// other positions are not read and may be out of range. If no position counts, the mean is NaN.
///
/// # Errors
/// As [`cross_entropy`]; if the mask is not bool or does not broadcast to the targets.
///
/// ```
/// use remat::{Tensor, nn};
/// let logits = Tensor::new([[0.0f32, 0.0], [100.0, 0.0]]);
/// let targets = Tensor::new([1, -100]);
/// let loss = nn::cross_entropy_where(&logits, &targets, &targets.ge(0));
/// assert!((loss.item::<f32>()? - 2.0f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy_where(logits: &Tensor, targets: &Tensor, mask: &Tensor) -> Tensor {
    const NAME: &str = "nn::cross_entropy_where";
    deferred(|| {
        check(NAME, logits, targets)?;
        mean_where(NAME, logits, targets, mask, |targets| losses(logits, targets))
    })
}

/// The mean of the losses of the positions that the mask selects. `losses` gets targets that are in range at the other positions.
fn mean_where(
    name: &str,
    logits: &Tensor,
    targets: &Tensor,
    mask: &Tensor,
    losses: impl Fn(&Tensor) -> Tensor,
) -> Result<Tensor> {
    let counted = mask.aval()?;
    if counted.dtype != DType::Bool {
        let message = format!("the mask must be bool, not {counted}; compare it first, as in `x.ge(0)`");
        return Err(Error::new(ErrorKind::DType, name, message));
    }
    let mask = over_targets(name, mask, targets)?;
    let losses = losses(&mask.select(targets, 0));
    let count = mask.to_dtype(losses.dtype()?).sum(..);
    Ok((mask.select(losses, 0.0).sum(..) / count).to_dtype(logits.dtype()?))
}

/// The mask with the shape of the targets.
///
/// # Errors
/// If it does not broadcast to that.
fn over_targets(name: &str, mask: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (mask_aval, aval) = (mask.aval()?, targets.aval()?);
    let mask = mask.broadcast_to(&aval.shape[..]);
    if mask.error().is_some() {
        let message = format!("the mask {mask_aval} does not broadcast to the targets {aval}");
        return Err(Error::new(ErrorKind::Shape, name, message));
    }
    Ok(mask)
}

/// The mean cross entropy of all tokens of a sequence except the first: the logits at each position are scored against the token that
/// follows. `logits` are floats `[.., positions, classes]`, `tokens` integers `[.., positions]`. A `mask` of the shape of the tokens
/// selects the tokens that count; its first entry is not read.
///
/// # Errors
/// As [`cross_entropy_where`]; if there is no axis of positions.
///
/// ```
/// use remat::{DType, Tensor, nn};
/// let logits = Tensor::zeros([2, 5, 7], DType::F32);
/// let tokens = Tensor::arange(0..10).reshape([2, 5]);
/// let loss = nn::next_token_loss(&logits, &tokens, Some(&tokens.lt(7)));
/// assert!((loss.item::<f32>()? - 7f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn next_token_loss(logits: &Tensor, tokens: &Tensor, mask: Option<&Tensor>) -> Tensor {
    deferred(|| {
        check("nn::next_token_loss", logits, tokens)?;
        if tokens.rank()? == 0 {
            let message = format!("the tokens {} have no axis of positions", tokens.aval()?);
            return Err(Error::new(ErrorKind::Shape, "nn::next_token_loss", message));
        }
        let (logits, targets) = (logits.index((Ellipsis, ..-1, ..)), tokens.index((Ellipsis, 1..)));
        Ok(match mask {
            None => cross_entropy(&logits, &targets),
            Some(mask) => {
                let mask = over_targets("nn::next_token_loss", mask, tokens)?.index((Ellipsis, 1..));
                cross_entropy_where(&logits, &targets, &mask)
            }
        })
    })
}

fn check(name: &str, logits: &Tensor, targets: &Tensor) -> Result<()> {
    let (logits, targets) = (logits.aval()?, targets.aval()?);
    if !logits.dtype.is_float() {
        let message = format!("the logits must be floats, not {logits}; convert them with .to_dtype(DType::F32)");
        return Err(Error::new(ErrorKind::DType, name, message));
    }
    if !targets.dtype.is_integer() {
        let message = format!("the targets must be integers, not {targets}; convert them with .to_dtype(DType::I32)");
        return Err(Error::new(ErrorKind::DType, name, message));
    }
    match logits.shape.split_last() {
        Some((_, positions)) if targets.shape[..] == *positions => Ok(()),
        _ => {
            let message = format!("the targets {targets} are not one for each position of the logits {logits}");
            Err(Error::new(ErrorKind::Shape, name, message))
        }
    }
}

/// The loss of each position.
fn cross_entropies((logits, targets): &(Tensor, Tensor)) -> Tensor {
    loss(&normaliser(logits), logits, targets)
}

/// The logsumexp of the logits of each position in two parts: the largest logit, and the logarithm of the sum of the exponentials relative
/// to it.
fn normaliser(logits: &Tensor) -> [Tensor; 2] {
    deferred_array(|| {
        let logits = wide(logits);
        let (shift, logarithm) = logits.logsumexp_parts("nn::cross_entropy", &[logits.rank()? - 1])?;
        Ok([shift, logarithm].map(|x| x.squeeze(-1)))
    })
}

/// The logsumexp minus the logit of the target, both relative to the largest logit.
fn loss([shift, logarithm]: &[Tensor; 2], logits: &Tensor, targets: &Tensor) -> Tensor {
    logarithm - (chosen(logits, targets) - shift)
}

/// The logits of the targets.
fn chosen(logits: &Tensor, targets: &Tensor) -> Tensor {
    wide(&logits.take_along_axis(&targets.expand_dims(-1), -1).squeeze(-1))
}

/// `x` in the dtype in which losses are computed.
fn wide(x: &Tensor) -> Tensor {
    deferred(|| Ok(x.to_dtype(x.dtype()?.wide())))
}
