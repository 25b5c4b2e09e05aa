//! Normalisation with weights.

use remat_ir::{Error, ErrorKind, Result};

use super::channels::Channels;
use super::linear::expect_features;
use crate::argument::keep;
use crate::layer::{deferred, pinned};
use crate::tensor::reduced_size;
use crate::trace::setters;
use crate::{DType, Tensor, Tree};

/// The default number that is added to a variance before the square root.
const EPS: f64 = 1e-5;

/// [`Tensor::layer_norm`] of the last axis with weights.
///
/// ```
/// use remat::{Tensor, nn::LayerNorm};
/// let norm = LayerNorm::new(2).eps(0.0);
/// assert_eq!(norm.apply(&Tensor::new([[1.0f32, 3.0]])).to_vec::<f32>()?, [-1.0, 1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct LayerNorm {
    /// `[features]`
    pub scale: Tensor,
    /// `[features]`
    pub bias: Option<Tensor>,
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
}

setters! { LayerNorm:
    eps(f64) => eps;
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

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(self) -> LayerNorm {
        LayerNorm { bias: None, ..self }
    }

    /// `x` normalised, of type `dtype[.., features]`.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of features, or the dtypes differ or are not floats.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            // Another size could broadcast.
            expect_features("nn::LayerNorm::apply", x, &self.scale, 0)?;
            Ok(x.layer_norm(-1, self.eps, Some(&self.scale), self.bias.as_ref()))
        })
    }
}

/// [`Tensor::rms_norm`] of the last axis with weights.
///
/// ```
/// use remat::{Tensor, nn::RmsNorm};
/// let norm = RmsNorm::new(2).eps(0.0);
/// assert_eq!(norm.apply(&Tensor::new([[5.0f32, -5.0]])).to_vec::<f32>()?, [1.0, -1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct RmsNorm {
    /// `[features]`
    pub scale: Tensor,
    /// Added to the mean square; 1e-5 by default.
    pub eps: f64,
}

setters! { RmsNorm:
    eps(f64) => eps;
}

impl RmsNorm {
    /// A scale of ones.
    #[track_caller]
    pub fn init(features: usize, dtype: DType) -> RmsNorm {
        pinned(|| RmsNorm { scale: Tensor::ones([features], dtype), eps: EPS })
    }

    /// `x` normalised, of type `dtype[.., features]`.
    ///
    /// # Errors
    /// As [`LayerNorm::apply`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            expect_features("nn::RmsNorm::apply", x, &self.scale, 0)?;
            Ok(x.rms_norm(-1, self.eps, Some(&self.scale)))
        })
    }
}

/// Batch norm: normalises each channel to mean 0 and variance 1 over a batch, then applies weights. The channels are axis 1, or the
/// last axis with [`Channels::Last`].
///
/// [`BatchNorm::apply`] uses the statistics of its own batch, as in training, and keeps none of them. A model that is used on single
/// examples stores averages of [`BatchNorm::statistics`] beside its weights and passes them to [`BatchNorm::apply_given`]. Source: Ioffe
/// and Szegedy, "Batch normalization", 2015.
///
/// ```
/// use remat::{Tensor, nn::BatchNorm};
/// let norm = BatchNorm::new(1).eps(0.0);
/// let x = Tensor::new([[1.0f32], [3.0]]);
/// assert_eq!(norm.apply(&x).to_vec::<f32>()?, [-1.0, 1.0]);
/// let (mean, variance) = norm.statistics(&x);
/// assert_eq!(norm.apply_given(&Tensor::new([[4.0f32]]), &mean, &variance).to_vec::<f32>()?, [2.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct BatchNorm {
    /// `[features]`
    pub scale: Tensor,
    /// `[features]`
    pub bias: Tensor,
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// The axis of the channels.
    #[tree(static)]
    pub channels: Channels,
}

setters! { BatchNorm:
    eps(f64) => eps;
    channels(Channels) => channels;
}

impl BatchNorm {
    /// A scale of ones and a bias of zeros.
    #[track_caller]
    pub fn init(features: usize, dtype: DType) -> BatchNorm {
        pinned(|| BatchNorm {
            scale: Tensor::ones([features], dtype),
            bias: Tensor::zeros([features], dtype),
            eps: EPS,
            channels: Channels::First,
        })
    }

    /// `x` normalised, of type `dtype[batch, channels, spatial..]`, by its own statistics.
    ///
    /// # Errors
    /// If `x` has fewer than two dimensions, another number of channels or another dtype than the weights.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            let rank = self.channels.of_weights("nn::BatchNorm::apply", x, &self.scale)?.rank();
            let axes = self.reduced(rank);
            self.normalised("nn::BatchNorm::apply", x, |x| {
                let centered = x - x.mean(keep(&axes[..]));
                // Of an empty batch zero and not NaN, which would be the gradient of the scale.
                let count = reduced_size(x.aval()?, &axes).max(1);
                let variance = centered.square().sum(&axes[..]) / count as f64;
                Ok((centered, variance))
            })
        })
    }

    /// As [`BatchNorm::apply`] with a given mean and variance, `[channels]` each.
    ///
    /// # Errors
    /// As [`BatchNorm::apply`]; if the statistics have another shape or are not floats. They may have more bits than the batch.
    #[track_caller]
    pub fn apply_given(&self, x: &Tensor, mean: &Tensor, variance: &Tensor) -> Tensor {
        deferred(|| {
            const NAME: &str = "nn::BatchNorm::apply_given";
            let rank = self.channels.of_weights(NAME, x, &self.scale)?.rank();
            self.check_statistics(NAME, mean, variance)?;
            self.normalised(NAME, x, |x| {
                let wide = x.dtype()?;
                let [mean, variance] = [mean, variance].map(|statistics| statistics.to_dtype(wide));
                Ok((x - self.channels.broadcast(&mean, rank), variance))
            })
        })
    }

    /// Fails unless a mean and a variance are floats, one for each channel.
    pub(super) fn check_statistics(&self, operation: &str, mean: &Tensor, variance: &Tensor) -> Result<()> {
        let weights = self.scale.aval()?;
        for (what, given) in [("mean", mean), ("variance", variance)] {
            let given = given.aval()?;
            if given.shape != weights.shape || !given.dtype.is_float() {
                let message =
                    format!("takes a {what} of floats for each channel of the weights {weights}, not {given}");
                return Err(Error::new(ErrorKind::Shape, operation, message));
            }
        }
        Ok(())
    }

    /// The mean and the variance of each channel of `x`, of type `dtype[batch, channels, spatial..]`: `dtype[channels]` each.
    ///
    /// # Errors
    /// As [`BatchNorm::apply`].
    #[track_caller]
    pub fn statistics(&self, x: &Tensor) -> (Tensor, Tensor) {
        let axes = || -> Result<Vec<usize>> {
            Ok(self.reduced(self.channels.of_weights("nn::BatchNorm::statistics", x, &self.scale)?.rank()))
        };
        (deferred(|| Ok(x.mean(axes()?))), deferred(|| Ok(x.variance(axes()?))))
    }

    /// `x` normalised in f32 for f16 and bf16, and rounded to its dtype once, given its difference from the mean and the variance,
    /// `[channels]`.
    ///
    /// The root and the scale are one factor of a channel. So each element is multiplied once, and one sum over the elements serves the
    /// derivatives of both.
    fn normalised(
        &self,
        operation: &str,
        x: &Tensor,
        moments: impl FnOnce(&Tensor) -> Result<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        let aval = x.aval()?;
        for weights in [&self.scale, &self.bias] {
            let weights = weights.aval()?;
            if weights.dtype != aval.dtype {
                let message = format!("takes a batch of the dtype of the weights {weights}, not {aval}");
                return Err(Error::new(ErrorKind::DType, operation, message));
            }
        }
        x.in_wide(operation, |x| {
            let (wide, rank) = (x.dtype()?, x.rank()?);
            let (centered, variance) = moments(x)?;
            let [scale, bias] = [&self.scale, &self.bias].map(|weights| weights.to_dtype(wide));
            let factor = (variance + self.eps).rsqrt() * scale;
            Ok(centered * self.channels.broadcast(&factor, rank) + self.channels.broadcast(&bias, rank))
        })
    }

    /// The axes of a batch of this rank over which a channel is normalised.
    pub(super) fn reduced(&self, rank: usize) -> Vec<usize> {
        std::iter::once(0).chain(self.channels.spatial(rank)).collect()
    }
}

/// Group norm: normalises each group of channels of each example to mean 0 and variance 1, then applies weights. The channels are axis 1,
/// or the last axis with [`Channels::Last`].
///
/// Unlike [`BatchNorm`], the result for an example does not depend on the rest of its batch. Source: Wu and He, "Group normalization",
/// 2018.
///
/// ```
/// use remat::{Tensor, nn::GroupNorm};
/// let norm = GroupNorm::new(4, 2).eps(0.0);
/// let x = Tensor::new([[1.0f32, 3.0, 10.0, 20.0]]);
/// assert_eq!(norm.apply(&x).to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct GroupNorm {
    /// `[features]`
    pub scale: Tensor,
    /// `[features]`
    pub bias: Tensor,
    /// The number of groups; they divide the channels.
    pub groups: usize,
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// The axis of the channels.
    #[tree(static)]
    pub channels: Channels,
}

setters! { GroupNorm:
    eps(f64) => eps;
    channels(Channels) => channels;
}

impl GroupNorm {
    /// A scale of ones and a bias of zeros.
    ///
    /// # Errors
    /// If the groups do not divide the channels: the weights are failed tensors.
    #[track_caller]
    pub fn init(features: usize, groups: usize, dtype: DType) -> GroupNorm {
        pinned(|| {
            let fitting = |weights| deferred(|| group_size("nn::GroupNorm::init", features, groups).map(|_| weights));
            GroupNorm {
                scale: fitting(Tensor::ones([features], dtype)),
                bias: fitting(Tensor::zeros([features], dtype)),
                groups,
                eps: EPS,
                channels: Channels::First,
            }
        })
    }

    /// `x` normalised, of type `dtype[batch, channels, spatial..]`.
    ///
    /// # Errors
    /// As [`BatchNorm::apply`]; if the groups do not divide the channels.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        const NAME: &str = "nn::GroupNorm::apply";
        deferred(|| {
            let aval = self.channels.of_weights(NAME, x, &self.scale)?;
            let channels = self.channels.axis(aval.rank());
            let size = group_size(NAME, aval.shape[channels], self.groups)?;
            // The channels become two axes: the groups, and the channels within a group.
            let mut grouped = aval.shape.to_vec();
            grouped.splice(channels..=channels, [self.groups, size]);
            let mut axes: Vec<usize> = (1..grouped.len()).collect();
            axes.retain(|&axis| axis != channels);
            let mut of_features = vec![1; grouped.len() - channels];
            of_features[..2].copy_from_slice(&[self.groups, size]);
            let [scale, bias] = [&self.scale, &self.bias].map(|weights| weights.reshape(&of_features));
            Ok(x.reshape(grouped).layer_norm(axes, self.eps, Some(&scale), Some(&bias)).reshape(&aval.shape[..]))
        })
    }
}

/// The number of channels in a group.
///
/// # Errors
/// If the groups do not divide the channels.
fn group_size(operation: &str, features: usize, groups: usize) -> Result<usize> {
    if groups == 0 || !features.is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide {features} features");
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(features / groups)
}
