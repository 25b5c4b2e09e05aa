//! The axis of the channels.

use remat_ir::{Aval, ConvDims, Error, ErrorKind, Result};

use crate::tensor::convolution;
use crate::{ConvConfig, Tensor};

/// Where a layer finds the channels of a batch. Its weights are the same in both cases, so a model keeps its weights when it changes from
/// one to the other. Windows of pooling cover the last axes, so with the channels last they have a 1 for them: `PoolConfig::new([2, 2, 1])`.
///
/// ```
/// use remat::nn::{BatchNorm, Channels, Conv};
/// use remat::{DType, Tensor, random};
/// let conv = Conv::new(random::key(0), 3, 8, [3, 3]).channels(Channels::Last);
/// let norm = BatchNorm::new(8).channels(Channels::Last);
/// let images = Tensor::ones([2, 16, 16, 3], DType::F32);
/// assert_eq!(norm.apply(&conv.apply(&images)).shape()?, [2, 16, 16, 8]);
/// # Ok::<(), remat::Error>(())
/// ```
#[doc(alias = "channels_last")]
#[doc(alias = "NHWC")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Channels {
    /// `[batch, channels, spatial..]`, as in PyTorch: the default.
    #[default]
    First,
    /// `[batch, spatial.., channels]`, as in Flax and TensorFlow.
    Last,
}

impl Channels {
    /// The axis in a batch of this rank, which is at least 2.
    pub(super) fn axis(self, rank: usize) -> usize {
        match self {
            Channels::First => 1,
            Channels::Last => rank - 1,
        }
    }

    /// The spatial axes of a batch of this rank.
    pub(super) fn spatial(self, rank: usize) -> impl Iterator<Item = usize> {
        let channels = self.axis(rank);
        (1..rank).filter(move |&axis| axis != channels)
    }

    /// The convolution of a batch with a kernel `[outputs, inputs / groups, spatial..]`, plus a bias.
    ///
    /// # Errors
    /// As [`Tensor::conv`].
    pub(super) fn convolve(
        self,
        x: &Tensor,
        kernel: &Tensor,
        config: &ConvConfig,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let dims = |channels: Channels, rank| ConvDims {
            first: 0,
            second: channels.axis(rank),
            spatial: channels.spatial(rank).collect(),
        };
        let all = |rank| Ok([dims(self, rank), dims(Channels::First, rank), dims(self, rank)]);
        let y = convolution(x, kernel, config, all)?;
        Ok(match bias {
            Some(bias) => &y + self.broadcast(bias, y.rank()?),
            None => y,
        })
    }

    /// Weights `[channels]` reshaped so that they broadcast along the channels of a batch of this rank.
    pub(super) fn broadcast(self, weights: &Tensor, rank: usize) -> Tensor {
        let mut shape = vec![1; rank - self.axis(rank)];
        shape[0] = -1;
        weights.reshape(shape)
    }

    /// What an error says of the axis.
    pub(super) fn words(self) -> &'static str {
        match self {
            Channels::First => "axis 1",
            Channels::Last => "the last axis",
        }
    }

    /// The aval of a batch with the channels of these weights, `[channels]`.
    ///
    /// # Errors
    /// If it has less than two axes, or another number of channels.
    pub(super) fn of_weights<'a>(self, operation: &str, x: &'a Tensor, weights: &Tensor) -> Result<&'a Aval> {
        let (aval, weights) = (x.aval()?, weights.aval()?);
        if aval.rank() < 2 || weights.shape[..] != [aval.shape[self.axis(aval.rank())]] {
            let axis = self.words();
            let message = format!("takes a batch with the channels of the weights {weights} as {axis}, not {aval}");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        }
        Ok(aval)
    }
}
