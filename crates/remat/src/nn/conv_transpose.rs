//! Transposed convolutions.

use remat_ir::{Error, ErrorKind, Result, counted};

use super::channels::Channels;
use super::conv::kernel;
use crate::layer::{deferred, pinned};
use crate::random::Key;
use crate::tensor::spatial_numbers;
use crate::trace::setters;
use crate::{ConvConfig, DType, Padding, Tensor, Tree};

/// A transposed convolution with weights, in any number of spatial dimensions. It is the transpose of a [`Conv`](super::Conv) with the same
/// strides, and makes images larger by the factor by which the convolution makes them smaller.
///
/// ```
/// use remat::{DType, Tensor, nn::ConvTranspose, random};
/// let doubled = ConvTranspose::new(random::key(0), 8, 3, [4, 4]).strides([2, 2]);
/// assert_eq!(doubled.apply(&Tensor::ones([2, 8, 5, 6], DType::F32)).shape()?, [2, 3, 10, 12]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct ConvTranspose {
    /// `[inputs, outputs / groups, spatial..]`
    pub kernel: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// The factor by which each spatial dimension grows; an empty `Vec` means ones.
    pub strides: Vec<usize>,
    /// How much is cut off the result. [`Padding::Valid`] keeps everything that a window reaches. [`Padding::Same`], the default, keeps the
    /// size of the input times the stride (if the total is odd, the end loses one more; with [`Padding::SameLower`] the start).
    /// [`Padding::Explicit`] cuts off these numbers; negative ones add zeros. PyTorch's `padding` and `output_padding` are `(padding,
    /// padding - output_padding)`.
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

const NAME: &str = "nn::ConvTranspose::apply";

setters! { ConvTranspose:
    strides(impl Into<Vec<usize>>) => strides;
    padding(Padding) => padding;
    dilation(impl Into<Vec<usize>>) => dilation;
    groups(usize) => groups;
    channels(Channels) => channels;
}

impl ConvTranspose {
    /// Weights as in [`Conv::init`](super::Conv::init), with a bias of zeros. `window` has the sizes of the kernel's spatial dimensions.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, inputs: usize, outputs: usize, window: impl AsRef<[usize]>, dtype: DType) -> ConvTranspose {
        pinned(|| ConvTranspose {
            kernel: kernel(key, [inputs, outputs], inputs, window.as_ref(), dtype),
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
    pub fn without_bias(self) -> ConvTranspose {
        ConvTranspose { bias: None, ..self }
    }

    /// The transposed convolution of `x`, of type `dtype[batch, input channels, spatial..]`: `dtype[batch, output channels, spatial..]`. With
    /// [`Channels::Last`] `dtype[batch, spatial.., input channels]` and `dtype[batch, spatial.., output channels]`.
    ///
    /// # Errors
    /// If the ranks, the numbers of channels or the dtypes do not fit, or a field does not have one number for each spatial dimension.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| self.convolved(x))
    }

    fn convolved(&self, x: &Tensor) -> Result<Tensor> {
        let (aval, kernel) = (x.aval()?, self.kernel.aval()?);
        let [inputs, outputs, window @ ..] = &kernel.shape[..] else {
            let message = format!("the kernel must be [inputs, outputs / groups, spatial..], not {kernel}");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        };
        if aval.rank() != kernel.rank() {
            let message = format!("{aval} and the kernel {kernel} must have the same rank");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        }
        if aval.shape[self.channels.axis(aval.rank())] != *inputs {
            let message = format!(
                "the channels are {} of a batch, and the kernel {kernel} takes {inputs} of them, not {aval}",
                self.channels.words()
            );
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        }
        if self.groups == 0 || !inputs.is_multiple_of(self.groups) {
            let message = format!("{} groups do not divide {inputs} features", self.groups);
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        }
        let strides = spatial_numbers(NAME, "strides", &self.strides, window.len())?;
        let dilation = spatial_numbers(NAME, "dilation", &self.dilation, window.len())?;
        // Saturating, so that the convolution rejects numbers beyond all memory.
        let reach: Vec<i64> = window
            .iter()
            .zip(&dilation)
            .map(|(&n, &d)| (signed(n) - 1).saturating_mul(signed(d)).saturating_add(1))
            .collect();
        let cut: Vec<(i64, i64)> = match &self.padding {
            Padding::Valid => vec![(0, 0); window.len()],
            Padding::Explicit(cut) if cut.len() == window.len() => cut.clone(),
            Padding::Explicit(cut) => {
                let message = format!("padding is {cut:?} and not {}", counted(window.len(), "pair"));
                return Err(Error::new(ErrorKind::Argument, NAME, message));
            }
            same => {
                let upper = usize::from(*same == Padding::SameLower) as i64;
                let cut = |(&reach, &stride): (&i64, &usize)| {
                    let total = reach - signed(stride);
                    // A window shorter than the stride lies at the start of its part of the result.
                    let start = ((total + upper) / 2).max(0);
                    (start, total - start)
                };
                reach.iter().zip(&strides).map(cut).collect()
            }
        };
        let left = |reach: i64, cut: i64| (reach - 1).saturating_sub(cut);
        let padding = reach.iter().zip(cut).map(|(&reach, (from, to))| (left(reach, from), left(reach, to))).collect();
        let config = ConvConfig {
            padding: Padding::Explicit(padding),
            input_dilation: strides.into_vec(),
            kernel_dilation: dilation.into_vec(),
            feature_groups: self.groups,
            ..ConvConfig::default()
        };
        // From [inputs, outputs / groups, ..] to [outputs, inputs / groups, ..], with the elements reversed.
        let grouped = [&[self.groups, inputs / self.groups, *outputs], window].concat();
        // Saturating, as a kernel without inputs may be of any number of groups: the reshape then rejects the sizes.
        let whole = [&[self.groups.saturating_mul(*outputs), inputs / self.groups], window].concat();
        let spatial: Vec<usize> = (2..kernel.rank()).collect();
        let kernel = self.kernel.reshape(grouped).swap_axes(1, 2).reshape(whole).flip(spatial);
        self.channels.convolve(x, &kernel, &config, self.bias.as_ref())
    }
}

/// A size as a signed number; one past 2^63 as the largest.
fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
