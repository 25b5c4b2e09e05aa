//! Sinusoidal embeddings of positions and times.

use remat_ir::{Error, ErrorKind};

use super::reserved::reserved;
use crate::layer::deferred;
use crate::{DType, Tensor};

/// Sines, then cosines, of numbers at frequencies from 1 down to one over `max_period`. Diffusion models embed the time in this way, and
/// transformers without learned positions the position of a token.
///
/// Frequency number *i* of *n* is `max_period^(-i / n)`; with an odd number of features the last one is 0. `positions` are numbers `[..]`,
/// and the result is `dtype[.., features]`, computed in f32, or in f64 for f64. Source: Vaswani et al., "Attention is all you need", 2017,
/// where `max_period` is 10,000; the order is that of `diffusers` (`get_timestep_embedding` without a shift).
///
/// # Errors
/// If the dtype is not a float, the positions are bools, or there is no memory for the frequencies.
///
/// ```
/// use remat::{DType, Tensor, nn};
/// let times = nn::sinusoidal_embedding(&Tensor::new([0, 500]), 6, 10_000.0, DType::F32);
/// assert_eq!(times.shape()?, [2, 6]);
/// assert_eq!(times.index(0).to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn sinusoidal_embedding(positions: &Tensor, features: usize, max_period: f64, dtype: DType) -> Tensor {
    deferred(|| {
        const NAME: &str = "nn::sinusoidal_embedding";
        let aval = positions.aval()?;
        if !dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, NAME, format!("gives floats, not {dtype}")));
        }
        if aval.dtype == DType::Bool {
            return Err(Error::new(ErrorKind::DType, NAME, format!("takes numbers, not {aval}")));
        }
        let (work, half) = (dtype.wide(), features / 2);
        let of_features = || format!("the frequencies of {features} features");
        let mut frequencies: Vec<f64> = reserved(NAME, of_features, Some(half))?;
        frequencies.extend((0..half).map(|i| max_period.powf(-(i as f64) / half as f64)));
        let angles = positions.to_dtype(work).expand_dims(-1) * Tensor::from_vec(frequencies, [half]).to_dtype(work);
        let mut parts = vec![angles.sin(), angles.cos()];
        if !features.is_multiple_of(2) {
            parts.push(Tensor::zeros([&aval.shape[..], &[1]].concat(), work));
        }
        Ok(Tensor::concatenate(&parts, -1).to_dtype(dtype))
    })
}
