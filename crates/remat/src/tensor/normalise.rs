//! Normalisation over axes.

use remat_ir::{Error, ErrorKind, Result};

use super::argument::{Axes, keep};
use crate::Tensor;
use crate::trace::deferred;

impl Tensor {
    /// `(x - mean) / sqrt(variance + eps)` over axes, then `* scale + bias` if these are given; they broadcast. f16 and bf16 are normalised
    /// in f32. Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, the dtype is not a float, or scale or bias have another dtype or do not
    /// broadcast.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([[1.0f32, 3.0]]).layer_norm(-1, 0.0, None, Some(&Tensor::from(1.0f32)));
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn layer_norm(&self, axes: impl Axes, eps: f64, scale: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        deferred(|| {
            let axes = axes.resolve("layer_norm", self.aval()?)?;
            let normal = self.in_wide("layer_norm", |x| {
                let centered = x - x.mean(keep(&axes[..]));
                let variance = centered.square().mean(keep(&axes[..]));
                Ok(&centered * (variance + eps).rsqrt())
            })?;
            scaled(normal, scale, bias)
        })
    }

    /// `x / sqrt(mean(x^2) + eps)` over axes, then `* scale` if it is given; it broadcasts. f16 and bf16 are normalised in f32. Source:
    /// Zhang and Sennrich, "Root mean square layer normalization", 2019.
    ///
    /// # Errors
    /// As [`Tensor::layer_norm`].
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([3.0f32, 4.0]).rms_norm(-1, 0.0, None);
    /// assert!(y.allclose(&Tensor::new([0.84852815f32, 1.1313709]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn rms_norm(&self, axes: impl Axes, eps: f64, scale: Option<&Tensor>) -> Tensor {
        deferred(|| {
            let axes = axes.resolve("rms_norm", self.aval()?)?;
            let normal = self.in_wide("rms_norm", |x| Ok(x * (x.square().mean(keep(&axes[..])) + eps).rsqrt()))?;
            scaled(normal, scale, None)
        })
    }

    /// `x / max(norm, eps)` over axes, with the Euclidean norm.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, the dtype is not a float, or `eps` is negative or NaN.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([3.0f32, 4.0]).normalize(-1, 1e-12);
    /// assert!(y.allclose(&Tensor::new([0.6f32, 0.8]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn normalize(&self, axes: impl Axes, eps: f64) -> Tensor {
        deferred(|| {
            if eps.is_nan() || eps < 0.0 {
                return Err(Error::new(
                    ErrorKind::Argument,
                    "normalize",
                    format!("eps is {eps} and must be at least 0"),
                ));
            }
            let axes = axes.resolve("normalize", self.aval()?)?;
            // The maximum of squares, since the square root has no derivative at 0.
            self.in_wide("normalize", |x| Ok(x * x.square().sum(keep(&axes[..])).maximum(eps * eps).rsqrt()))
        })
    }
}

fn scaled(normal: Tensor, scale: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let normal = scale.map_or(normal.clone(), |scale| normal * scale);
    Ok(bias.map_or(normal.clone(), |bias| normal + bias))
}
