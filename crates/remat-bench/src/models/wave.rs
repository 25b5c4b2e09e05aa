//! A network for sound, with convolutions along time: loss and gradient with respect to all weights.
//!
//! Source: M11 of Dai et al., "Very deep convolutional neural networks for raw waveforms", 2016. Batch norm uses the statistics of the batch.
//! Convolutions have the name `conv`.

use remat::nn::{BatchNorm, Conv, Linear, cross_entropy};
use remat::{DType, Policy, PoolConfig, Tensor, Tree, checkpoint, random};

use super::{ChannelsAre, Form};

/// The features and the number of convolutions of each stage, which follows a pooling by 4.
const STAGES: [(usize, usize); 4] = [(64, 2), (128, 2), (256, 3), (512, 2)];

/// Clips, numbers in a clip (4 seconds), and classes.
const CLIPS: usize = 16;
const LENGTH: usize = 32_000;
const CLASSES: usize = 10;

/// A convolution, a norm, a rectifier.
#[derive(Clone, Tree)]
struct Unit {
    conv: Conv,
    norm: BatchNorm,
}

/// The model.
#[derive(Clone, Tree)]
pub(crate) struct Wave {
    #[tree(static)]
    channels: ChannelsAre,
    stem: Unit,
    stages: Vec<Vec<Unit>>,
    head: Linear,
}

/// Sounds and their classes.
#[derive(Clone, Tree)]
pub(crate) struct Batch {
    /// `[clips, 1, length]`, or with the channels last
    sounds: Tensor,
    /// `i32[clips]`
    classes: Tensor,
}

impl Batch {
    pub(crate) fn random(key: random::Key, form: Form) -> Batch {
        let [sounds, classes] = key.split();
        Batch {
            sounds: random::normal(sounds, form.channels.shape(CLIPS, 1, &[LENGTH]), form.dtype),
            classes: random::randint(classes, [CLIPS], DType::I32, 0..CLASSES as i64),
        }
    }
}

impl Unit {
    fn init(key: random::Key, inputs: usize, outputs: usize, window: usize, stride: usize, form: Form) -> Unit {
        let channels = form.channels.option();
        let conv = Conv::init(key, inputs, outputs, [window], form.dtype).without_bias().strides([stride]);
        Unit { conv: conv.channels(channels), norm: BatchNorm::init(outputs, form.dtype).channels(channels) }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.norm.apply(&self.conv.apply(x).named("conv")).relu()
    }
}

impl Wave {
    pub(crate) fn init(key: random::Key, form: Form) -> Wave {
        let [stem, stages, head] = key.split();
        let mut inputs = STAGES[0].0;
        let stage = |(key, (outputs, count)): (random::Key, (usize, usize))| {
            let unit = |key| Unit::init(key, std::mem::replace(&mut inputs, outputs), outputs, 3, 1, form);
            key.split_vec(count).into_iter().map(unit).collect()
        };
        let stages = stages.split_vec(STAGES.len()).into_iter().zip(STAGES).map(stage).collect();
        Wave {
            channels: form.channels,
            stem: Unit::init(stem, 1, STAGES[0].0, 80, 4, form),
            stages,
            head: Linear::init(head, inputs, CLASSES, form.dtype),
        }
    }

    /// The mean cross-entropy of a batch, each stage under the policy.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        let mut x = self.stem.apply(&batch.sounds);
        for stage in &self.stages {
            let run = |(stage, x): &(Vec<Unit>, Tensor)| {
                let pool = PoolConfig::new(self.channels.of_pool(vec![4], 1));
                stage.iter().fold(x.max_pool(&pool), |x, unit| unit.apply(&x))
            };
            x = checkpoint(policy.cloned(), run)(&(stage.clone(), x));
        }
        cross_entropy(&self.head.apply(&x.mean(self.channels.spatial::<1>())), &batch.classes)
    }
}

#[cfg(test)]
mod tests {
    use remat::eval_shape;
    use remat::tree::parameters;

    use super::*;

    #[test]
    fn it_is_the_known_model() {
        let form = Form { dtype: DType::F32, channels: ChannelsAre::First };
        let init = |key: &Tensor| Wave::init(random::Key::from_data(key.clone()), form);
        let model = eval_shape(init)(random::key(0).data()).unwrap();
        assert!((1_780_000..1_800_000).contains(&parameters(&model)), "{}", parameters(&model));
    }
}
