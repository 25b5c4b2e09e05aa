//! A byte-level GPT.

use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, nn, random};
use remat_cli::arguments::up_to;
use serde::{Deserialize, Serialize};

use crate::data::Batch;

/// The size of the vocabulary: each byte is a token.
const BYTES: usize = 256;

/// The sizes of a block and of a batch.
#[derive(Clone, Copy, PartialEq, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// Model width: features per token
    #[arg(long, default_value_t = 96, value_parser = up_to(1 << 20))]
    pub(crate) width: usize,
    /// Attention heads; must divide the width
    #[arg(long, default_value_t = 4, value_parser = up_to(1 << 20))]
    pub(crate) heads: usize,
    /// Sequence length in bytes, each of which is a token
    #[arg(long, default_value_t = 64, value_parser = up_to(1 << 24))]
    pub(crate) context: usize,
    /// Sequences per training step
    #[arg(long, default_value_t = 8, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
}

/// The model: a plain struct of layers.
#[derive(Clone, Tree)]
pub(crate) struct Gpt {
    embed: nn::Embedding,
    positions: nn::Embedding,
    /// The blocks, all of one shape.
    pub(crate) blocks: Vec<nn::Block>,
    norm: nn::LayerNorm,
    head: nn::Linear,
}

impl Gpt {
    /// Random weights; failed ones if the heads do not divide the width.
    pub(crate) fn init(key: random::Key, layers: usize, sizes: &Sizes) -> Gpt {
        let [embed, positions, blocks, head] = key.split();
        let blocks = blocks.split_vec(layers).into_iter();
        Gpt {
            embed: nn::Embedding::init(embed, BYTES, sizes.width, DType::F32),
            positions: nn::Embedding::init(positions, sizes.context, sizes.width, DType::F32),
            blocks: blocks.map(|key| nn::Block::init(key, sizes.width, sizes.heads, DType::F32)).collect(),
            norm: nn::LayerNorm::init(sizes.width, DType::F32),
            head: nn::Linear { bias: None, ..nn::Linear::init(head, sizes.width, BYTES, DType::F32) },
        }
    }

    /// The logits of the byte that follows each token: `i32[batch, tokens]` to `f32[batch, tokens, 256]`.
    pub(crate) fn logits(&self, tokens: &Tensor, policy: Option<&Policy>) -> Result<Tensor> {
        let [_, length] = tokens.dims()?;
        let mut x = self.embed.apply(tokens) + self.positions.table.index(..length);
        for block in &self.blocks {
            x = apply(block, &x, policy);
        }
        Ok(self.head.apply(&self.norm.apply(&x)))
    }

    /// The mean loss of a batch: the cross-entropy of the next byte, in nats.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Result<Tensor> {
        Ok(nn::cross_entropy(&self.logits(&batch.tokens, policy)?, &batch.targets))
    }
}

/// A block under a policy, or without checkpoint.
pub(crate) fn apply(block: &nn::Block, x: &Tensor, policy: Option<&Policy>) -> Tensor {
    checkpoint(policy.cloned(), |x: &Tensor| block.apply(x))(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untrained_model_has_the_loss_of_chance() {
        let sizes = Sizes { width: 8, heads: 2, context: 6, batch: 3 };
        let gpt = Gpt::init(random::key(0), 2, &sizes);
        let tokens = Tensor::arange(0..18).reshape([3, 6]);
        assert_eq!(gpt.logits(&tokens, None).unwrap().shape().unwrap(), [3, 6, 256]);
        let loss = gpt.loss(&Batch { targets: &tokens + 100, tokens }, None).unwrap().item::<f32>().unwrap();
        assert!((loss - 256f32.ln()).abs() < 1.0, "{loss}");
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_an_error() {
        let sizes = Sizes { width: 8, heads: 3, context: 6, batch: 3 };
        let gpt = Gpt::init(random::key(0), 1, &sizes);
        let error = gpt.logits(&Tensor::zeros([3, 6], DType::I32), None).unwrap().error().cloned().unwrap();
        assert_eq!(error.operation(), "nn::Attention::init");
        assert_eq!(error.message(), "3 heads do not divide 8 features");
    }
}
