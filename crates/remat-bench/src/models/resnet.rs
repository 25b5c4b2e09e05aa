//! ResNet-50: loss and gradient with respect to all weights.
//!
//! Source: He et al., "Deep residual learning for image recognition", 2016, with the stride in the middle convolution of a block, as is
//! usual now. Batch norm uses the statistics of the batch and keeps no running averages. Convolutions have the name `conv`.

use remat::nn::{BatchNorm, Conv, Linear, cross_entropy};
use remat::{DType, Padding, Policy, PoolConfig, Tensor, Tree, checkpoint, random};
use remat_command::arguments::up_to;
use serde::{Deserialize, Serialize};

use super::{ChannelsAre, Form};

/// Blocks of each stage.
const STAGES: [usize; 4] = [3, 4, 6, 3];

/// The output features of a block, as a multiple of those in its middle.
const EXPANSION: usize = 4;

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// Height and width of an image
    #[arg(long, default_value_t = Sizes::DEFAULT.image, value_parser = up_to(1 << 16))]
    pub(crate) image: usize,
    /// Images per step
    #[arg(long, default_value_t = Sizes::DEFAULT.batch, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
    /// Classes
    #[arg(long, default_value_t = Sizes::DEFAULT.classes, value_parser = up_to(1 << 24))]
    pub(crate) classes: usize,
    /// The axis of the channels
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub(crate) channels: ChannelsAre,
}

impl Sizes {
    /// The sizes at which frameworks are compared.
    pub(crate) const DEFAULT: Sizes = Sizes { image: 224, batch: 8, classes: 1000, channels: ChannelsAre::First };
}

/// A convolution and the norm after it.
#[derive(Clone, Tree)]
pub(super) struct Unit {
    conv: Conv,
    norm: BatchNorm,
}

/// A block: three units, and one on the shortcut where the sizes change.
#[derive(Clone, Tree)]
struct Block {
    narrow: Unit,
    middle: Unit,
    widen: Unit,
    shortcut: Option<Unit>,
}

/// The model.
#[derive(Clone, Tree)]
pub(crate) struct ResNet {
    #[tree(static)]
    channels: ChannelsAre,
    stem: Unit,
    blocks: Vec<Block>,
    head: Linear,
}

/// Images and their classes.
#[derive(Clone, Tree)]
pub(crate) struct Batch {
    /// `[batch, 3, image, image]`, or with the channels last
    pub(super) images: Tensor,
    /// `i32[batch]`
    pub(super) classes: Tensor,
}

impl Batch {
    pub(crate) fn random(key: random::Key, sizes: &Sizes, dtype: DType) -> Batch {
        let [images, classes] = key.split();
        Batch {
            images: random::normal(images, sizes.channels.shape(sizes.batch, 3, &[sizes.image; 2]), dtype),
            classes: random::randint(classes, [sizes.batch], DType::I32, 0..sizes.classes as i64),
        }
    }
}

impl Unit {
    pub(super) fn init(
        key: random::Key,
        inputs: usize,
        outputs: usize,
        window: usize,
        stride: usize,
        form: Form,
    ) -> Unit {
        let before = (window / 2) as i64;
        let conv = Conv {
            bias: None,
            strides: vec![stride; 2],
            padding: Padding::Explicit(vec![(before, before); 2]),
            channels: form.channels.option(),
            ..Conv::init(key, inputs, outputs, [window; 2], form.dtype)
        };
        Unit { conv, norm: BatchNorm::init(outputs, form.dtype).channels(form.channels.option()) }
    }

    /// The same over groups of channels. Its inputs are those of one of them.
    pub(super) fn groups(self, groups: usize) -> Unit {
        Unit { conv: self.conv.groups(groups), ..self }
    }

    pub(super) fn apply(&self, x: &Tensor) -> Tensor {
        self.norm.apply(&self.conv.apply(x).named("conv"))
    }
}

impl Block {
    fn init(key: random::Key, inputs: usize, features: usize, stride: usize, form: Form) -> Block {
        let [narrow, middle, widen, shortcut] = key.split();
        let outputs = EXPANSION * features;
        let changes = stride != 1 || inputs != outputs;
        Block {
            narrow: Unit::init(narrow, inputs, features, 1, 1, form),
            middle: Unit::init(middle, features, features, 3, stride, form),
            widen: Unit::init(widen, features, outputs, 1, 1, form),
            shortcut: changes.then(|| Unit::init(shortcut, inputs, outputs, 1, stride, form)),
        }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        let y = self.middle.apply(&self.narrow.apply(x).relu()).relu();
        let beside = self.shortcut.as_ref().map_or(x.clone(), |unit| unit.apply(x));
        (self.widen.apply(&y) + beside).relu()
    }
}

impl ResNet {
    pub(crate) fn init(key: random::Key, sizes: &Sizes, dtype: DType) -> ResNet {
        let form = Form { dtype, channels: sizes.channels };
        let [stem, blocks, head] = key.split();
        let mut keys = blocks.split_vec(STAGES.iter().sum()).into_iter();
        let mut inputs = 64;
        let mut blocks = Vec::new();
        for (stage, &count) in STAGES.iter().enumerate() {
            let features = 64 << stage;
            for (i, key) in keys.by_ref().take(count).enumerate() {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                blocks.push(Block::init(key, inputs, features, stride, form));
                inputs = EXPANSION * features;
            }
        }
        let head = Linear::init(head, inputs, sizes.classes, dtype);
        ResNet { channels: sizes.channels, stem: Unit::init(stem, 3, 64, 7, 2, form), blocks, head }
    }

    /// The mean cross-entropy of a batch, each block under the policy.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        let pool = PoolConfig {
            strides: self.channels.of_pool(vec![2, 2], 1),
            padding: Padding::Explicit(self.channels.of_pool(vec![(1, 1), (1, 1)], (0, 0))),
            ..PoolConfig::new(self.channels.of_pool(vec![3, 3], 1))
        };
        let mut x = self.stem.apply(&batch.images).relu().max_pool(&pool);
        for block in &self.blocks {
            x = checkpoint(policy.cloned(), |(block, x): &(Block, Tensor)| block.apply(x))(&(block.clone(), x));
        }
        cross_entropy(&self.head.apply(&x.mean(self.channels.spatial::<2>())), &batch.classes)
    }
}

#[cfg(test)]
mod tests {
    use remat::tree::parameters;
    use remat::{eval_shape, make_jaxpr};

    use super::*;
    use remat_opt::cost::contractions;

    #[test]
    fn it_is_the_known_model() {
        let sizes = Sizes { batch: 2, ..Sizes::DEFAULT };
        let init = |key: &Tensor| ResNet::init(random::Key::from_data(key.clone()), &sizes, DType::F32);
        let model = eval_shape(init)(random::key(0).data()).unwrap();
        assert_eq!(parameters(&model), 25_557_032);
        let loss = |key: &Tensor| init(key).loss(&Batch::random(random::key(1), &sizes, DType::F32), None);
        let forward = contractions(&make_jaxpr(loss)(random::key(0).data()).unwrap().jaxpr).flops as f64 / 2.0;
        assert!((forward / 2.0 / 4.089e9 - 1.0).abs() < 0.001, "{forward}");
    }
}
