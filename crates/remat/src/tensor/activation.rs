//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use super::argument::{Axes, Operand, keep};
use super::elementwise::require_float;
use crate::Tensor;
use crate::trace::deferred;

impl Tensor {
    /// `max(x, 0)`. Its derivative at 0 is 0, as in JAX and PyTorch. [`maximum`](Tensor::maximum), in contrast, shares the derivative
    /// between equal operands.
    ///
    /// ```
    /// use remat::{Tensor, grad};
    /// let x = Tensor::new([-1.0f32, 0.0, 2.0]);
    /// assert_eq!(x.relu().to_vec::<f32>()?, [0.0, 0.0, 2.0]);
    /// assert_eq!(grad(|x: &Tensor| x.relu().sum(..))(&x)?.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        deferred(|| {
            // The derivative of `clamp` is 0 at its bounds. Only floats have one, and an upper bound that has no effect.
            let is_float = self.dtype()?.is_float();
            Ok(if is_float { self.clamp(0, f64::INFINITY) } else { self.maximum(self.zero_scalar()?) })
        })
    }

    /// `min(max(x, 0), 6)`, whose derivative at 0 and 6 is 0.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 2.0, 7.0]).relu6().to_vec::<f32>()?, [0.0, 2.0, 6.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        deferred(|| Ok(self.clamp(0, 6)))
    }

    /// `x` where it is not negative, `slope * x` elsewhere; 0.01 is a usual slope.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 2.0]).leaky_relu(0.5).to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: impl Operand) -> Tensor {
        deferred(|| {
            require_float("leaky_relu", self.aval()?)?;
            Ok(self.ge(0).select(self, self.mul(slope)))
        })
    }

    /// `x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([-1.0f32, 2.0]).elu(1.0);
    /// assert!(y.allclose(&Tensor::new([-0.63212056f32, 2.0]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: impl Operand) -> Tensor {
        deferred(|| {
            require_float("elu", self.aval()?)?;
            let positive = self.gt(0);
            // Where the other branch is chosen the argument is 0, so that the derivative has no infinity.
            let exponent = positive.select(0, self).expm1();
            Ok(positive.select(self, exponent.mul(alpha)))
        })
    }

    /// The Gaussian error linear unit in its tanh approximation (`approximate="tanh"` in PyTorch). Source: Hendrycks and Gimpel, "Gaussian
    /// error linear units", 2016.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([-1.0f32, 0.0, 1.0]).gelu();
    /// assert!(y.allclose(&Tensor::new([-0.15880801f32, 0.0, 0.841192]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        deferred(|| {
            require_float("gelu", self.aval()?)?;
            let inner = (self + 0.044715 * self.powi(3)) * (2.0 / PI).sqrt();
            Ok(self * (0.5 * (1.0 + inner.tanh())))
        })
    }

    /// The exact Gaussian error linear unit: `x` times the cumulative distribution function of the standard normal at `x`, computed by
    /// `erf`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([-1.0f32, 0.0, 1.0]).gelu_exact();
    /// assert!(y.allclose(&Tensor::new([-0.15865526f32, 0.0, 0.8413447]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_exact(&self) -> Tensor {
        deferred(|| {
            require_float("gelu_exact", self.aval()?)?;
            Ok(0.5 * self * (self * -FRAC_1_SQRT_2).erfc())
        })
    }

    /// `x * sigmoid(x)`, also called swish.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).silu();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.7310586]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "swish")]
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        deferred(|| Ok(self * self.sigmoid()))
    }

    /// `log(1 + exp(x))`, without overflow.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([0.0f32, 1000.0]).softplus();
    /// assert!(y.allclose(&Tensor::new([0.6931472f32, 1000.0]), 1e-6, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        deferred(|| {
            require_float("softplus", self.aval()?)?;
            // By selection, not by `max` and `abs`, whose derivatives at 0 would make the second derivative wrong.
            let positive = self.gt(0);
            let tail = positive.select(-self, self).exp().log1p();
            Ok(positive.select(self, 0) + tail)
        })
    }

    /// `exp(x)` divided by its sum over axes. The largest element is subtracted first, against overflow; the derivative treats it as a
    /// constant. A row of negative infinities gives NaN, and an empty row stays empty.
    ///
    /// # Errors
    /// If an axis is out of range or given twice, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([0.0f32, 0.0, f32::NEG_INFINITY]).softmax(-1);
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5, 0.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            require_float("softmax", self.aval()?)?;
            let axes = axes.resolve("softmax", self.aval()?)?;
            let powers = (self - self.largest("softmax", &axes)?).exp();
            let sum = powers.sum(keep(&axes[..]));
            Ok(powers / sum)
        })
    }

    /// The logarithm of the softmax over axes, accurate even where the softmax is tiny.
    ///
    /// # Errors
    /// As [`Tensor::softmax`].
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([0.0f32, 1000.0]).log_softmax(-1);
    /// assert_eq!(y.to_vec::<f32>()?, [-1000.0, 0.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn log_softmax(&self, axes: impl Axes) -> Tensor {
        deferred(|| {
            require_float("log_softmax", self.aval()?)?;
            let axes = axes.resolve("log_softmax", self.aval()?)?;
            let shifted = self - self.largest("log_softmax", &axes)?;
            let sum = shifted.exp().sum(keep(&axes[..]));
            Ok(shifted - sum.log())
        })
    }

    /// Zero in the dtype of this tensor.
    fn zero_scalar(&self) -> remat_ir::Result<Tensor> {
        Ok(Tensor::literal(super::construct::zero(self.dtype()?)))
    }
}
