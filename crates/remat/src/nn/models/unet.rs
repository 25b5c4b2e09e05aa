//! U-Nets.

use remat_ir::{Error, ErrorKind, Result, counted};

use crate::layer::{deferred, pinned};
use crate::nn::{Attention, Conv, GroupNorm, Linear, sinusoidal_embedding};
use crate::random::Key;
use crate::{DType, Padding, Tensor, Tree, named_scope};

/// The sizes of a [`UNet`]; the names are those of `UNet2DModel` in `diffusers`.
#[derive(Clone, Debug, PartialEq)]
pub struct UNetConfig {
    /// The channels of an image.
    pub in_channels: usize,
    /// The channels of the result.
    pub out_channels: usize,
    /// The features of each level, from the largest images to the smallest.
    pub block_out_channels: Vec<usize>,
    /// The blocks of each level on the way down; there is one more on the way up.
    pub layers_per_block: usize,
    /// The groups of the norms, which divide all numbers of features.
    pub norm_num_groups: usize,
    /// The levels, counted from 0, with self-attention of the pixels after each block.
    pub attention_levels: Vec<usize>,
    /// Whether the model takes a time: the time step of a diffusion process.
    pub time: bool,
}

/// Four levels of 64 to 512 features, without a time.
impl Default for UNetConfig {
    fn default() -> UNetConfig {
        UNetConfig {
            in_channels: 3,
            out_channels: 3,
            block_out_channels: vec![64, 128, 256, 512],
            layers_per_block: 2,
            norm_num_groups: 32,
            attention_levels: Vec::new(),
            time: false,
        }
    }
}

/// A residual block of two convolutions, each after a norm and `silu`; the time embedding is added between them.
#[derive(Clone, Debug, Tree)]
pub struct UNetBlock {
    /// Before the first convolution.
    pub norm1: GroupNorm,
    /// The first convolution.
    pub conv1: Conv,
    /// From the embedding of the time to the features.
    pub time: Option<Linear>,
    /// Before the second convolution.
    pub norm2: GroupNorm,
    /// The second convolution.
    pub conv2: Conv,
    /// The convolution of the shortcut, if the number of features changes.
    pub shortcut: Option<Conv>,
    /// A norm and self-attention of the pixels, added to the result.
    pub attention: Option<(GroupNorm, Attention)>,
}

/// The parts from which blocks are created.
struct Parts<'a> {
    config: &'a UNetConfig,
    dtype: DType,
}

impl Parts<'_> {
    fn conv(&self, key: Key, inputs: usize, outputs: usize, window: usize) -> Conv {
        let pad = (window as i64 - 1) / 2;
        let padding = Padding::Explicit(vec![(pad, pad); 2]);
        Conv { padding, ..Conv::init(key, inputs, outputs, [window, window], self.dtype) }
    }

    fn norm(&self, features: usize) -> GroupNorm {
        GroupNorm::init(features, self.config.norm_num_groups, self.dtype)
    }

    fn block(&self, key: Key, inputs: usize, outputs: usize, level: usize) -> UNetBlock {
        let [conv1, conv2, short, time, attention] = key.split();
        let attends = self.config.attention_levels.contains(&level);
        UNetBlock {
            norm1: self.norm(inputs),
            conv1: self.conv(conv1, inputs, outputs, 3),
            time: self.config.time.then(|| Linear::init(time, self.time_features(), outputs, self.dtype)),
            norm2: self.norm(outputs),
            conv2: self.conv(conv2, outputs, outputs, 3),
            shortcut: (inputs != outputs).then(|| self.conv(short, inputs, outputs, 1)),
            attention: attends.then(|| {
                let attention = Attention { causal: false, ..Attention::init(attention, outputs, 1, self.dtype) };
                (self.norm(outputs), attention)
            }),
        }
    }

    /// The features of the embedding of a time.
    fn time_features(&self) -> usize {
        self.config.block_out_channels.first().copied().unwrap_or(0).saturating_mul(4)
    }
}

impl UNetBlock {
    fn apply(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        named_scope("block", || {
            let mut y = self.conv1.apply(&self.norm1.apply(x).silu()).named("conv");
            if let (Some(map), Some(time)) = (&self.time, time) {
                let time = map.apply(&time.silu());
                let [batch, features] = time.dims()?;
                y += time.reshape([batch, features, 1, 1]);
            }
            let y = self.conv2.apply(&self.norm2.apply(&y).silu()).named("conv");
            let y = self.shortcut.as_ref().map_or(x.clone(), |conv| conv.apply(x)) + y;
            let Some((norm, attention)) = &self.attention else { return Ok(y) };
            let [batch, features, height, width] = y.dims()?;
            let pixels = norm.apply(&y).reshape([batch, features, height * width]).swap_axes(1, 2);
            Ok(y + attention.apply(&pixels).swap_axes(1, 2).reshape([batch, features, height, width]))
        })
    }
}

/// A level on the way down: blocks and, at all levels but the last, a convolution of stride 2.
#[derive(Clone, Debug, Tree)]
pub struct UNetDown {
    /// The blocks.
    pub blocks: Vec<UNetBlock>,
    /// The convolution that halves the size.
    pub smaller: Option<Conv>,
}

/// A level on the way up: blocks, each of which also takes a result of the way down. At all levels except the largest, every pixel is then
/// repeated to two by two pixels, and the image convolved.
#[derive(Clone, Debug, Tree)]
pub struct UNetUp {
    /// The blocks.
    pub blocks: Vec<UNetBlock>,
    /// The convolution after the pixels are repeated.
    pub larger: Option<Conv>,
}

/// A U-Net: images become smaller and get more features from level to level; then they become larger again, joined with the results of the
/// way down. With a time it is the denoiser of a diffusion model.
///
/// Source: Ronneberger, Fischer and Brox, "U-Net", 2015; Ho, Jain and Abbeel, "Denoising diffusion probabilistic models", 2020.
/// Convolutions have the name `conv`.
///
/// ```
/// use remat::nn::{UNet, UNetConfig};
/// use remat::{DType, Tensor, random};
/// let config = UNetConfig {
///     block_out_channels: vec![4, 8], layers_per_block: 1, norm_num_groups: 2, attention_levels: vec![1], time: true,
///     ..UNetConfig::default()
/// };
/// let model = UNet::new(random::key(0), &config);
/// let noise = random::normal(random::key(1), [2, 3, 8, 8], DType::F32);
/// let predicted = model.apply(&noise, Some(&Tensor::new([3, 500])));
/// assert_eq!(predicted.shape()?, [2, 3, 8, 8]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct UNet {
    /// The embedding of the time: two maps with `silu` between them.
    pub time: Option<(Linear, Linear)>,
    /// The first convolution.
    pub first: Conv,
    /// The way down.
    pub down: Vec<UNetDown>,
    /// The blocks at the smallest size.
    pub middle: Vec<UNetBlock>,
    /// The way up.
    pub up: Vec<UNetUp>,
    /// The norm before the last convolution.
    pub norm: GroupNorm,
    /// The last convolution.
    pub last: Conv,
}

impl UNet {
    /// Weights as the parts initialise them.
    ///
    /// # Errors
    /// If the groups do not divide the features, an attention level does not exist, or the dtype is not a float: the weights are failed
    /// tensors.
    #[track_caller]
    pub fn init(key: Key, config: &UNetConfig, dtype: DType) -> UNet {
        pinned(|| {
            let parts = Parts { config, dtype };
            let mut number = 0u32;
            let mut next = || {
                number += 1;
                key.fold_in(number)
            };
            let sizes = &config.block_out_channels;
            let [begin, end] = [sizes.first(), sizes.last()].map(|size| size.copied().unwrap_or(config.in_channels));
            let mut first = parts.conv(next(), config.in_channels, begin, 3);
            if let Some(level) = config.attention_levels.iter().find(|&&level| level >= sizes.len()) {
                let message = format!("attention level {level} is not one of the {}", counted(sizes.len(), "level"));
                first.kernel = deferred(|| Err(Error::new(ErrorKind::Argument, "nn::UNet::init", message)));
            }
            // The features of each result that is passed to the way up.
            let (mut features, mut kept) = (begin, vec![begin]);
            let mut down = Vec::new();
            for (level, &size) in sizes.iter().enumerate() {
                let mut blocks = Vec::new();
                for _ in 0..config.layers_per_block {
                    blocks.push(parts.block(next(), features, size, level));
                    features = size;
                    kept.push(features);
                }
                let smaller = (level + 1 < sizes.len())
                    .then(|| Conv { strides: vec![2, 2], ..parts.conv(next(), features, features, 3) });
                kept.extend(smaller.is_some().then_some(features));
                down.push(UNetDown { blocks, smaller });
            }
            let lowest = sizes.len().saturating_sub(1);
            let middle = (0..2).map(|_| parts.block(next(), end, end, lowest)).collect();
            features = end;
            let mut up = Vec::new();
            for (level, &size) in sizes.iter().enumerate().rev() {
                let mut blocks = Vec::new();
                for _ in 0..=config.layers_per_block {
                    let joined = features.saturating_add(kept.pop().unwrap_or(0));
                    blocks.push(parts.block(next(), joined, size, level));
                    features = size;
                }
                up.push(UNetUp { blocks, larger: (level > 0).then(|| parts.conv(next(), size, size, 3)) });
            }
            let time = config.time.then(|| {
                let features = parts.time_features();
                (Linear::init(next(), begin, features, dtype), Linear::init(next(), features, features, dtype))
            });
            let last = parts.conv(next(), features, config.out_channels, 3);
            UNet { time, first, down, middle, up, norm: parts.norm(features), last }
        })
    }

    /// The result for images `dtype[batch, channels, height, width]`, which has the same size. `time` is `[batch]` numbers, for a model
    /// that takes a time.
    ///
    /// # Errors
    /// If height or width cannot be halved at every level, the time is missing or not expected, or shapes or dtypes do not fit.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, time: Option<&Tensor>) -> Tensor {
        deferred(|| named_scope("unet", || self.run(x, time)))
    }

    fn run(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        const NAME: &str = "nn::UNet::apply";
        let aval = x.aval()?;
        let halvings = self.down.len().saturating_sub(1) as u32;
        match aval.shape[..] {
            [_, _, height, width] if (height | width).trailing_zeros() >= halvings => {}
            _ => {
                let message = format!(
                    "takes images [batch, channels, height, width] that can be halved {halvings} times, not {aval}"
                );
                return Err(Error::new(ErrorKind::Shape, NAME, message));
            }
        }
        let time = match (&self.time, time) {
            (None, None) => None,
            (Some((first, second)), Some(time)) => {
                let features = first.weight.dim(0)?;
                let times = sinusoidal_embedding(time, features, 10_000.0, aval.dtype);
                Some(second.apply(&first.apply(&times).silu()))
            }
            (own, _) => {
                let message = match own {
                    Some(_) => "the model was made with `time: true` and needs a time",
                    None => "the model was made with `time: false` and takes no time",
                };
                return Err(Error::new(ErrorKind::Argument, NAME, message));
            }
        };
        let mut x = self.first.apply(x).named("conv");
        let mut kept = vec![x.clone()];
        for level in &self.down {
            for block in &level.blocks {
                x = block.apply(&x, time.as_ref())?;
                kept.push(x.clone());
            }
            if let Some(smaller) = &level.smaller {
                x = smaller.apply(&x).named("conv");
                kept.push(x.clone());
            }
        }
        for block in &self.middle {
            x = block.apply(&x, time.as_ref())?;
        }
        for level in &self.up {
            for block in &level.blocks {
                let joined: Vec<Tensor> = std::iter::once(x).chain(kept.pop()).collect();
                x = block.apply(&Tensor::concatenate(&joined, 1), time.as_ref())?;
            }
            if let Some(larger) = &level.larger {
                x = larger.apply(&x.repeat(2, 2).repeat(2, 3)).named("conv");
            }
        }
        Ok(self.last.apply(&self.norm.apply(&x).silu()).named("conv"))
    }
}
