//! Normalisation with weights.

use crate::trace::pinned;
use crate::{DType, Tensor, Tree};

/// What is added to a variance before its root is taken, by default.
const EPS: f64 = 1e-5;

/// [`Tensor::layer_norm`] of the last dimension with weights.
///
/// ```
/// use remat::{DType, Tensor, nn::LayerNorm};
/// let norm = LayerNorm { eps: 0.0, ..LayerNorm::init(2, DType::F32) };
/// assert_eq!(norm.apply(&Tensor::new([[1.0f32, 3.0]])).to_vec::<f32>()?, [-1.0, 1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct LayerNorm {
    /// `[features]`
    pub scale: Tensor,
    /// `[features]`
    pub bias: Option<Tensor>,
    /// What is added to the variance; 1e-5 by default.
    pub eps: f64,
}

impl LayerNorm {
    /// A scale of ones and a bias of zeros.
    #[track_caller]
    pub fn init(features: usize, dtype: DType) -> LayerNorm {
        pinned(|| LayerNorm {
            scale: Tensor::ones([features], dtype),
            bias: Some(Tensor::zeros([features], dtype)),
            eps: EPS,
        })
    }

    /// The normal form of `x`, of type `dtype[.., features]`.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of features, or the dtypes differ or are no floats.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        x.layer_norm(-1, self.eps, Some(&self.scale), self.bias.as_ref())
    }
}

/// [`Tensor::rms_norm`] of the last dimension with weights.
///
/// ```
/// use remat::{DType, Tensor, nn::RmsNorm};
/// let norm = RmsNorm { eps: 0.0, ..RmsNorm::init(2, DType::F32) };
/// assert_eq!(norm.apply(&Tensor::new([[5.0f32, -5.0]])).to_vec::<f32>()?, [1.0, -1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct RmsNorm {
    /// `[features]`
    pub scale: Tensor,
    /// What is added to the mean square; 1e-5 by default.
    pub eps: f64,
}

impl RmsNorm {
    /// A scale of ones.
    #[track_caller]
    pub fn init(features: usize, dtype: DType) -> RmsNorm {
        pinned(|| RmsNorm { scale: Tensor::ones([features], dtype), eps: EPS })
    }

    /// The normal form of `x`, of type `dtype[.., features]`.
    ///
    /// # Errors
    /// As [`LayerNorm::apply`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        x.rms_norm(-1, self.eps, Some(&self.scale))
    }
}
