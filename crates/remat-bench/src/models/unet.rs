//! A U-Net that denoises images: loss and gradient with respect to all weights.
//!
//! Source of the architecture: Ronneberger, Fischer and Brox, "U-Net", 2015. Each level has two convolutions with group norm and `silu`.
//! The way down uses max pooling; the way up repeats each pixel, then applies a convolution. The result of a level on the way down is
//! joined on the way up. Convolutions have the name `conv`.

use remat::nn::{Conv, GroupNorm};
use remat::{DType, Policy, PoolConfig, Tensor, Tree, checkpoint, random};
use remat_command::arguments::up_to;
use serde::{Deserialize, Serialize};

use super::{ChannelsAre, Form};

/// Groups of each norm.
const GROUPS: usize = 8;

/// Features of an image.
const CHANNELS: usize = 3;

/// The sizes of the model and of a batch.
#[derive(Clone, Copy, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// Height and width of an image; they are halved from level to level
    #[arg(long, default_value_t = Sizes::DEFAULT.image, value_parser = up_to(1 << 16))]
    pub(crate) image: usize,
    /// Images per step
    #[arg(long, default_value_t = Sizes::DEFAULT.batch, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
    /// Channels of the first level, divisible by 8; each level below has twice as many
    #[arg(long, default_value_t = Sizes::DEFAULT.width, value_parser = up_to(1 << 16))]
    pub(crate) width: usize,
    /// Levels
    #[arg(long, default_value_t = Sizes::DEFAULT.levels, value_parser = up_to(32))]
    pub(crate) levels: usize,
    /// The axis of the channels
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub(crate) channels: ChannelsAre,
}

impl Sizes {
    /// The sizes at which frameworks are compared.
    pub(crate) const DEFAULT: Sizes =
        Sizes { image: 128, batch: 4, width: 32, levels: 4, channels: ChannelsAre::First };

    /// Fails unless an image can be halved from level to level.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Sizes { image, levels, width, .. } = *self;
        // A U-Net joins each level on the way up with the one on the way down, so no half may be rounded.
        anyhow::ensure!(
            levels as u32 - 1 <= image.trailing_zeros(),
            "an image of {image} can be halved {} times, so that there are at most {} levels, not {levels}",
            image.trailing_zeros(),
            image.trailing_zeros() + 1
        );
        anyhow::ensure!(
            width.is_multiple_of(GROUPS),
            "the {GROUPS} groups of the norms do not divide a width of {width}"
        );
        Ok(())
    }
}

/// A convolution, a norm, an activation.
#[derive(Clone, Tree)]
struct Unit {
    conv: Conv,
    norm: GroupNorm,
}

/// A level: two units.
#[derive(Clone, Tree)]
struct Level {
    first: Unit,
    second: Unit,
}

/// One level up: a convolution of the enlarged images, then the level, with the result of the way down joined.
#[derive(Clone, Tree)]
struct Up {
    #[tree(static)]
    channels: ChannelsAre,
    conv: Conv,
    level: Level,
}

/// The model.
#[derive(Clone, Tree)]
pub(crate) struct UNet {
    #[tree(static)]
    channels: ChannelsAre,
    down: Vec<Level>,
    up: Vec<Up>,
    out: Conv,
}

/// Images with noise, and the noise: `[batch, 3, image, image]`, or with the channels last.
#[derive(Clone, Tree)]
pub(crate) struct Batch {
    noisy: Tensor,
    noise: Tensor,
}

impl Batch {
    pub(crate) fn random(key: random::Key, sizes: &Sizes, dtype: DType) -> Batch {
        let [noisy, noise] = key.split();
        let normal = |key| random::normal(key, sizes.channels.shape(sizes.batch, CHANNELS, &[sizes.image; 2]), dtype);
        Batch { noisy: normal(noisy), noise: normal(noise) }
    }
}

/// A convolution of 3x3 pixels without a bias.
fn window(key: random::Key, inputs: usize, outputs: usize, form: Form) -> Conv {
    Conv::init(key, inputs, outputs, [3, 3], form.dtype).without_bias().channels(form.channels.option())
}

impl Unit {
    fn init(key: random::Key, inputs: usize, outputs: usize, form: Form) -> Unit {
        let norm = GroupNorm::init(outputs, GROUPS, form.dtype).channels(form.channels.option());
        Unit { conv: window(key, inputs, outputs, form), norm }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.norm.apply(&self.conv.apply(x).named("conv")).silu()
    }
}

impl Level {
    fn init(key: random::Key, inputs: usize, outputs: usize, form: Form) -> Level {
        let [first, second] = key.split();
        Level { first: Unit::init(first, inputs, outputs, form), second: Unit::init(second, outputs, outputs, form) }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.second.apply(&self.first.apply(x))
    }
}

impl Up {
    fn init(key: random::Key, inputs: usize, outputs: usize, form: Form) -> Up {
        let [conv, level] = key.split();
        Up {
            channels: form.channels,
            conv: window(conv, inputs, outputs, form),
            level: Level::init(level, 2 * outputs, outputs, form),
        }
    }

    /// From the result of the level below and the skip connection of this level.
    fn apply(&self, coarse: &Tensor, skip: &Tensor) -> Tensor {
        let [height, width] = self.channels.spatial();
        let enlarged = self.conv.apply(&coarse.repeat(2, height).repeat(2, width)).named("conv");
        self.level.apply(&Tensor::concatenate(&[skip, &enlarged], self.channels.axis(2)))
    }
}

impl UNet {
    /// Random weights; failed ones if the groups of the norms do not divide the features.
    pub(crate) fn init(key: random::Key, sizes: &Sizes, dtype: DType) -> UNet {
        let form = Form { dtype, channels: sizes.channels };
        let [down, up, out] = key.split();
        let features = |level: usize| sizes.width << level;
        let inputs = |level: usize| if level == 0 { CHANNELS } else { features(level - 1) };
        let down = down.split_vec(sizes.levels).into_iter().enumerate();
        let up = up.split_vec(sizes.levels - 1).into_iter().enumerate().rev();
        UNet {
            channels: sizes.channels,
            down: down.map(|(i, key)| Level::init(key, inputs(i), features(i), form)).collect(),
            up: up.map(|(i, key)| Up::init(key, features(i + 1), features(i), form)).collect(),
            out: Conv::init(out, sizes.width, CHANNELS, [1, 1], dtype).channels(sizes.channels.option()),
        }
    }

    /// The mean squared error of the predicted noise, each level under the policy.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        let mut x = batch.noisy.clone();
        let mut left = Vec::new();
        for (i, level) in self.down.iter().enumerate() {
            if i > 0 {
                left.push(x.clone());
                x = x.max_pool(&PoolConfig::new(self.channels.of_pool(vec![2, 2], 1)));
            }
            x = checkpoint(policy.cloned(), |(level, x): &(Level, Tensor)| level.apply(x))(&(level.clone(), x));
        }
        for (up, beside) in self.up.iter().zip(left.into_iter().rev()) {
            let run = |(up, below, beside): &(Up, Tensor, Tensor)| up.apply(below, beside);
            x = checkpoint(policy.cloned(), run)(&(up.clone(), x, beside));
        }
        (self.out.apply(&x) - &batch.noise).square().mean(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_knows_nothing_is_as_far_as_the_noise_is_wide() {
        let sizes = Sizes { image: 8, batch: 2, width: 8, levels: 3, ..Sizes::DEFAULT };
        let model = UNet::init(random::key(0), &sizes, DType::F32);
        let batch = Batch::random(random::key(1), &sizes, DType::F32);
        let loss = |policy: Option<&Policy>| model.loss(&batch, policy).item::<f32>().unwrap();
        assert!((0.8..3.0).contains(&loss(None)), "{}", loss(None));
        assert_eq!(loss(Some(&Policy::names(["conv"]))).to_bits(), loss(None).to_bits());
    }

    #[test]
    fn channels_last_are_the_same_model() {
        let first = Sizes { image: 8, batch: 2, width: 8, levels: 3, ..Sizes::DEFAULT };
        let last = Sizes { channels: ChannelsAre::Last, ..first };
        let loss = |sizes: &Sizes, batch: &Batch| {
            UNet::init(random::key(0), sizes, DType::F32).loss(batch, None).item::<f32>().unwrap()
        };
        let batch = Batch::random(random::key(1), &first, DType::F32);
        let moved = |x: &Tensor| x.transpose([0, 2, 3, 1]);
        let of_last = Batch { noisy: moved(&batch.noisy), noise: moved(&batch.noise) };
        let (a, b) = (loss(&first, &batch), loss(&last, &of_last));
        assert!((a - b).abs() < 1e-5 * a, "{a} {b}");
    }

    #[test]
    fn features_that_the_groups_do_not_divide_are_an_error() {
        let sizes = Sizes { image: 8, batch: 1, width: 12, levels: 2, ..Sizes::DEFAULT };
        let model = UNet::init(random::key(0), &sizes, DType::F32);
        let loss = model.loss(&Batch::random(random::key(1), &sizes, DType::F32), None);
        assert_eq!(loss.error().unwrap().message(), "8 groups do not divide 12 features");
    }
}
