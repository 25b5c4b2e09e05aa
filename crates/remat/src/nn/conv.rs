//! Convolutions.

use remat_ir::{Error, ErrorKind, Result};

use super::channels::Channels;
use super::linear::normal;
use crate::layer::{deferred, pinned};
use crate::random::Key;
use crate::trace::setters;
use crate::{ConvConfig, DType, Padding, Tensor, Tree};

/// A convolution with weights, in any number of spatial dimensions.
///
/// The strides and other options are fields, set by methods where the layer is created. For a convolution in groups, create the weights with the input
/// channels of one group:
///
/// ```
/// use remat::{DType, Padding, Tensor, nn::Conv, random};
/// let [first, second] = random::key(0).split();
/// let halved = Conv::new(first, 3, 8, [3, 3]).strides([2, 2]);
/// let x = Tensor::ones([2, 3, 16, 16], DType::F32);
/// assert_eq!(halved.apply(&x).shape()?, [2, 8, 8, 8]);
///
/// let depthwise = Conv::new(second, 1, 8, [3, 3]).groups(8).padding(Padding::Valid);
/// assert_eq!(depthwise.apply(&halved.apply(&x)).shape()?, [2, 8, 6, 6]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Conv {
    /// `[outputs, inputs / groups, spatial..]`
    pub kernel: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// The distance between windows in each spatial dimension; an empty `Vec` means ones.
    pub strides: Vec<usize>,
    /// The padding of the input; by default [`Padding::Same`], which keeps its size if the strides are 1.
    #[tree(static)]
    pub padding: Padding,
    /// The distance between the elements of the kernel in each spatial dimension; an empty `Vec` means ones.
    pub dilation: Vec<usize>,
    /// The number of groups of channels, each of which is convolved by itself; 1 by default.
    pub groups: usize,
    /// The axis of the channels in input and output.
    #[tree(static)]
    pub channels: Channels,
}

setters! { Conv:
    strides(impl Into<Vec<usize>>) => strides;
    padding(Padding) => padding;
    dilation(impl Into<Vec<usize>>) => dilation;
    groups(usize) => groups;
    channels(Channels) => channels;
}

impl Conv {
    /// Weights as in [`Linear::init`](super::Linear::init), where the number of inputs is that of the elements in a window, and a bias of
    /// zeros. `window` has the sizes of the kernel's spatial dimensions.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, inputs: usize, outputs: usize, window: impl AsRef<[usize]>, dtype: DType) -> Conv {
        pinned(|| Conv {
            kernel: kernel(key, [outputs, inputs], inputs, window.as_ref(), dtype),
            bias: Some(Tensor::zeros([outputs], dtype)),
            strides: Vec::new(),
            padding: Padding::Same,
            dilation: Vec::new(),
            groups: 1,
            channels: Channels::First,
        })
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(self) -> Conv {
        Conv { bias: None, ..self }
    }

    /// The convolution of `x`, of type `dtype[batch, input channels, spatial..]`: `dtype[batch, output channels, spatial..]`. With
    /// [`Channels::Last`] `dtype[batch, spatial.., input channels]` and `dtype[batch, spatial.., output channels]`.
    ///
    /// # Errors
    /// If the ranks, the numbers of channels or the dtypes do not fit, or a field does not have one number for each spatial
    /// dimension.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            self.expect_channels(x)?;
            let config = ConvConfig {
                strides: self.strides.clone(),
                padding: self.padding.clone(),
                kernel_dilation: self.dilation.clone(),
                feature_groups: self.groups,
                ..ConvConfig::default()
            };
            self.channels.convolve(x, &self.kernel, &config, self.bias.as_ref())
        })
    }

    /// Fails unless `x` has the channels that the kernel takes.
    fn expect_channels(&self, x: &Tensor) -> Result<()> {
        let (x, kernel) = (x.aval()?, self.kernel.aval()?);
        // Another rank, and kernels that are none, are errors of the convolution.
        let (true, Some(&inputs)) = (x.rank() == kernel.rank(), kernel.shape.get(1)) else { return Ok(()) };
        if inputs.checked_mul(self.groups) == Some(x.shape[self.channels.axis(x.rank())]) {
            return Ok(());
        }
        let grouped = if self.groups == 1 { String::new() } else { format!(" in {} groups", self.groups) };
        let message = format!(
            "the channels are {} of a batch, and the kernel {kernel}{grouped} takes {} of them, not {x}",
            self.channels.words(),
            inputs.saturating_mul(self.groups)
        );
        Err(Error::new(ErrorKind::Shape, "nn::Conv::apply", message))
    }
}

/// The weights of a convolution, `[channels.., window..]`, whose windows cover `inputs` channels: as in
/// [`Linear::init`](super::Linear::init), with the elements of a window as inputs.
pub(super) fn kernel(key: Key, features: [usize; 2], inputs: usize, window: &[usize], dtype: DType) -> Tensor {
    let elements = window.iter().fold(inputs, |product, &size| product.saturating_mul(size));
    let shape: Vec<usize> = features.iter().chain(window).copied().collect();
    normal(key, &shape, dtype, 1.0 / (elements.max(1) as f64).sqrt())
}
