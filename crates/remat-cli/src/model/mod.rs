//! The language model that the commands train, evaluate and sample: one of the library's, of the sizes of an [`Architecture`].

mod architecture;

use remat::{DType, Policy, Tensor, Tree, nn, random};

pub(crate) use architecture::{Architecture, Sizes};

use crate::data::Batch;

/// A model of one of the families that there are.
#[derive(Clone, Tree)]
#[allow(clippy::large_enum_variant, reason = "there are a few models at a time, and their tensors are shared")]
pub(crate) enum Model {
    Gpt2(nn::Gpt2),
    Llama(nn::Llama),
}

impl Model {
    /// Random weights; failed ones if the sizes do not fit each other.
    pub(crate) fn init(key: random::Key, architecture: &Architecture, dtype: DType) -> Model {
        match architecture {
            Architecture::Gpt2(config) => Model::Gpt2(nn::Gpt2::init(key, config, dtype)),
            Architecture::Llama(config) => Model::Llama(nn::Llama::init(key, config, dtype)),
        }
    }

    /// The same model with a checkpoint of this policy around each block, or without checkpoints.
    pub(crate) fn with_policy(&self, policy: Option<&Policy>) -> Model {
        let mut model = self.clone();
        match &mut model {
            Model::Gpt2(model) => model.blocks.policy = policy.cloned(),
            Model::Llama(model) => model.blocks.policy = policy.cloned(),
        }
        model
    }

    /// The logits of the token that follows each token: `i32[batch, tokens]` to `f32[batch, tokens, vocabulary]`.
    pub(crate) fn logits(&self, tokens: &Tensor) -> Tensor {
        match self {
            Model::Gpt2(model) => model.apply(tokens),
            Model::Llama(model) => model.apply(tokens),
        }
    }

    /// The mean loss of a batch: the cross-entropy of the next token, in nats.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        nn::cross_entropy(&self.with_policy(policy).logits(&batch.tokens), &batch.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(name: &str, heads: usize) -> Model {
        let sizes = Sizes { layers: Some(2), width: Some(8), heads: Some(heads), context: Some(6), ..Sizes::default() };
        Model::init(random::key(0), &Architecture::named(name, &sizes).unwrap(), DType::F32)
    }

    #[test]
    fn an_untrained_model_has_the_loss_of_chance() {
        for model in [tiny("gpt2-tiny", 2), tiny("llama-tiny", 2)] {
            let tokens = Tensor::arange(0..18).reshape([3, 6]);
            assert_eq!(model.logits(&tokens).shape().unwrap(), [3, 6, 256]);
            let loss = model.loss(&Batch { targets: &tokens + 100, tokens }, None).item::<f32>().unwrap();
            assert!((loss - 256f32.ln()).abs() < 1.0, "{loss}");
        }
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_an_error() {
        let error = tiny("gpt2-tiny", 3).logits(&Tensor::zeros([3, 6], DType::I32)).error().cloned().unwrap();
        assert_eq!(error.operation(), "nn::Attention::init");
        assert_eq!(error.message(), "3 heads do not divide 8 features");
    }
}
