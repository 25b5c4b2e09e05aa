//! MobileNetV2: loss and gradient with respect to all weights.
//!
//! Source: Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018. Batch norm uses the statistics of the batch.
//! Convolutions have the name `conv`.

use remat::nn::{Linear, cross_entropy};
use remat::{DType, Policy, Tensor, Tree, checkpoint, random};

use super::resnet::{Batch, Sizes, Unit};
use super::{ChannelsAre, Form};

/// Of each row of blocks: how often the middle is as wide as the input, the output features, the blocks, and the stride of the first.
const ROWS: [(usize, usize, usize, usize); 7] =
    [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];

/// Output features of the first convolution, and of the last.
const FIRST: usize = 32;
const LAST: usize = 1280;

/// A block: to more features, each of them by itself, and to fewer.
#[derive(Clone, Tree)]
struct Block {
    widen: Option<Unit>,
    depthwise: Unit,
    narrow: Unit,
}

/// The model.
#[derive(Clone, Tree)]
pub(crate) struct MobileNet {
    #[tree(static)]
    channels: ChannelsAre,
    stem: Unit,
    blocks: Vec<Block>,
    last: Unit,
    head: Linear,
}

/// The rectifier that ends at 6.
fn relu6(x: &Tensor) -> Tensor {
    x.clamp(0.0, 6.0)
}

impl Block {
    fn init(key: random::Key, inputs: usize, times: usize, outputs: usize, stride: usize, form: Form) -> Block {
        let [widen, depthwise, narrow] = key.split();
        let middle = times * inputs;
        Block {
            widen: (times > 1).then(|| Unit::init(widen, inputs, middle, 1, 1, form)),
            depthwise: Unit::init(depthwise, 1, middle, 3, stride, form).groups(middle),
            narrow: Unit::init(narrow, middle, outputs, 1, 1, form),
        }
    }

    fn apply(&self, x: &Tensor) -> remat::Result<Tensor> {
        let wide = self.widen.as_ref().map_or(x.clone(), |unit| relu6(&unit.apply(x)));
        let y = self.narrow.apply(&relu6(&self.depthwise.apply(&wide)));
        Ok(if y.shape()? == x.shape()? { x + y } else { y })
    }
}

impl MobileNet {
    /// The sizes at which it is measured.
    pub(crate) const SIZES: Sizes = Sizes { batch: 16, ..Sizes::DEFAULT };

    pub(crate) fn init(key: random::Key, sizes: &Sizes, dtype: DType) -> MobileNet {
        let form = Form { dtype, channels: sizes.channels };
        let [stem, blocks, last, head] = key.split();
        let mut keys = blocks.split_vec(ROWS.iter().map(|&(_, _, count, _)| count).sum()).into_iter();
        let (mut inputs, mut blocks) = (FIRST, Vec::new());
        for (times, outputs, count, stride) in ROWS {
            for (i, key) in keys.by_ref().take(count).enumerate() {
                blocks.push(Block::init(key, inputs, times, outputs, if i == 0 { stride } else { 1 }, form));
                inputs = outputs;
            }
        }
        MobileNet {
            channels: sizes.channels,
            stem: Unit::init(stem, 3, FIRST, 3, 2, form),
            blocks,
            last: Unit::init(last, inputs, LAST, 1, 1, form),
            head: Linear::init(head, LAST, sizes.classes, dtype),
        }
    }

    /// The mean cross-entropy of a batch, each block under the policy.
    ///
    /// # Errors
    /// If sizes do not fit.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> remat::Result<Tensor> {
        let mut x = relu6(&self.stem.apply(&batch.images));
        for block in &self.blocks {
            x = checkpoint(policy.cloned(), |(block, x): &(Block, Tensor)| block.apply(x))(&(block.clone(), x))?;
        }
        let x = relu6(&self.last.apply(&x)).mean(self.channels.spatial::<2>());
        Ok(cross_entropy(&self.head.apply(&x), &batch.classes))
    }
}

#[cfg(test)]
mod tests {
    use remat::eval_shape;
    use remat::tree::parameters;

    use super::*;

    #[test]
    fn it_is_the_known_model() {
        let init = |key: &Tensor| MobileNet::init(random::Key::from_data(key.clone()), &MobileNet::SIZES, DType::F32);
        let model = eval_shape(init)(random::key(0).data()).unwrap();
        assert_eq!(parameters(&model), 3_504_872);
    }
}
