//! Dropout.

use remat_ir::{Error, ErrorKind};

use crate::Tensor;
use crate::layer::deferred;
use crate::random::{self, Key};

/// Sets each element of `x` to zero with probability `rate`, and divides the others by `1 - rate`, so that the mean stays the same.
///
/// There is no training mode: for inference, leave the call out or pass a rate of 0. Inside a checkpoint the mask is computed again from
/// the same key. Source: Srivastava et al., "Dropout", JMLR 2014.
///
/// # Errors
/// If the rate is not between 0 and 1, or the dtype is not a float.
///
/// ```
/// use remat::{DType, Tensor, nn, random};
/// let x = Tensor::ones([1000], DType::F32);
/// let y = nn::dropout(random::key(0), &x, 0.25).to_vec::<f32>()?;
/// assert!(y.iter().all(|&y| y == 0.0 || (y - 4.0 / 3.0).abs() < 1e-6));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn dropout(key: Key, x: &Tensor, rate: f64) -> Tensor {
    deferred(|| {
        let aval = x.aval()?;
        if !(0.0..=1.0).contains(&rate) {
            let message = format!("the rate is {rate}, and not between 0 and 1");
            return Err(Error::new(ErrorKind::Argument, "nn::dropout", message));
        }
        if !aval.dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, "nn::dropout", format!("takes floats, not {aval}")));
        }
        if rate == 0.0 {
            return Ok(x.clone());
        }
        if rate == 1.0 {
            return Ok(x.zeros_like());
        }
        let keep = random::bernoulli(key, &aval.shape[..], crate::DType::F32, 1.0 - rate);
        Ok(keep.select(x / (1.0 - rate), 0.0))
    })
}
