//! The language model that the commands train, evaluate and sample: one of the library's, with the sizes of an [`Architecture`].

mod architecture;
mod decode;

use std::path::Path;

use remat::tree::Walk;
use remat::{DType, Policy, Result, Tensor, Tree, nn, random};
use remat_io::huggingface;

pub(crate) use architecture::{Architecture, Sizes};
pub(crate) use decode::Narrowed;

use crate::data::Batch;

/// A model of one of the families.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "there are a few models at a time, and their tensors are shared")]
pub(crate) enum Model {
    Gpt2(nn::Gpt2),
    Llama(nn::Llama),
}

/// The paths are those of the inner model.
impl Tree for Model {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        match self {
            Model::Gpt2(model) => {
                walk.variant("Gpt2");
                Model::Gpt2(model.map_leaves(walk))
            }
            Model::Llama(model) => {
                walk.variant("Llama");
                Model::Llama(model.map_leaves(walk))
            }
        }
    }
}

impl Model {
    /// A model with random weights; they are failed tensors if the sizes do not fit together.
    pub(crate) fn init(key: random::Key, architecture: &Architecture, dtype: DType) -> Model {
        match architecture {
            Architecture::Gpt2(config) => Model::Gpt2(nn::Gpt2::init(key, config, dtype)),
            Architecture::Llama(config) => Model::Llama(nn::Llama::init(key, config, dtype)),
            Architecture::Qwen2(config) => Model::Llama(without_out_biases(nn::Llama::init(key, config, dtype))),
        }
    }

    /// The weights of a Hugging Face folder, of this architecture; without a dtype, of that of the token embedding.
    ///
    /// # Errors
    /// If they cannot be read, or are not those of the architecture.
    pub(crate) fn load(folder: &Path, architecture: &Architecture, dtype: Option<DType>) -> Result<Model> {
        Ok(match architecture {
            Architecture::Gpt2(config) => {
                Model::Gpt2(huggingface::load_as::<nn::Gpt2>(folder, config, dtype, |model| model)?)
            }
            Architecture::Llama(config) => {
                Model::Llama(huggingface::load_as::<nn::Llama>(folder, config, dtype, |model| model)?)
            }
            Architecture::Qwen2(config) => {
                Model::Llama(huggingface::load_as::<nn::Llama>(folder, config, dtype, without_out_biases)?)
            }
        })
    }

    /// The same model with this policy for a checkpoint around each block, or without checkpoints.
    pub(crate) fn with_policy(&self, policy: Option<&Policy>) -> Model {
        let mut model = self.clone();
        match &mut model {
            Model::Gpt2(model) => model.blocks.policy = policy.cloned(),
            Model::Llama(model) => model.blocks.policy = policy.cloned(),
        }
        model
    }

    /// The same model with its floats in this dtype, those of a block inside its checkpoint.
    pub(crate) fn computed_in(&self, compute: DType) -> Model {
        let precision = nn::Precision { compute, ..nn::Precision::default() };
        match self {
            Model::Gpt2(model) => {
                let blocks = model.blocks.clone().with_compute(compute);
                let rest = nn::Gpt2 { blocks: Vec::new().into(), ..model.clone() };
                Model::Gpt2(nn::Gpt2 { blocks, ..precision.to_compute(&rest) })
            }
            Model::Llama(model) => {
                let blocks = model.blocks.clone().with_compute(compute);
                let rest = nn::Llama { blocks: Vec::new().into(), ..model.clone() };
                Model::Llama(nn::Llama { blocks, ..precision.to_compute(&rest) })
            }
        }
    }

    /// The same model with its blocks stacked, so that they run as a loop.
    ///
    /// # Errors
    /// If a block differs from the first.
    pub(crate) fn stacked(self) -> Result<Model> {
        Ok(match self {
            Model::Gpt2(model) => Model::Gpt2(nn::Gpt2 { blocks: model.blocks.stacked()?, ..model }),
            Model::Llama(model) => Model::Llama(nn::Llama { blocks: model.blocks.stacked()?, ..model }),
        })
    }

    /// The same model with its blocks as a list.
    pub(crate) fn unstacked(self) -> Model {
        match self {
            Model::Gpt2(model) => Model::Gpt2(nn::Gpt2 { blocks: model.blocks.unstacked(), ..model }),
            Model::Llama(model) => Model::Llama(nn::Llama { blocks: model.blocks.unstacked(), ..model }),
        }
    }

    /// The logits of the token after each token: `i32[batch, tokens]` to `f32[batch, tokens, vocabulary]`.
    pub(crate) fn logits(&self, tokens: &Tensor) -> Tensor {
        match self {
            Model::Gpt2(model) => model.apply(tokens),
            Model::Llama(model) => model.apply(tokens),
        }
    }

    /// The mean loss of a batch, f32: the cross entropy of the next token, in nats.
    pub(crate) fn loss(&self, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        let logits = self.with_policy(policy).logits(&batch.tokens);
        nn::cross_entropy_in(&logits, &batch.targets, DType::F32)
    }
}

/// The model without the biases of the maps from its heads to its features.
fn without_out_biases(model: nn::Llama) -> nn::Llama {
    let without = |block: nn::LlamaBlock| {
        let attn = nn::GroupedAttention { out: block.attn.out.without_bias(), ..block.attn };
        nn::LlamaBlock { attn, ..block }
    };
    let blocks: Vec<nn::LlamaBlock> = model.blocks.to_layers().into_iter().map(without).collect();
    nn::Llama { blocks: nn::Stack::from(blocks), ..model }
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
    fn a_qwen2_has_biases_of_queries_keys_and_values_alone() {
        let Architecture::Llama(config) = Architecture::named("llama-tiny", &Sizes::default()).unwrap() else {
            panic!()
        };
        let qwen = Architecture::Qwen2(nn::LlamaConfig { attention_bias: true, ..config });
        let model = Model::init(random::key(0), &qwen, DType::F32);
        let biased: Vec<String> = remat::tree::leaves(&model).into_iter().map(|(path, _)| path.to_string()).collect();
        let biased: Vec<&str> = biased.iter().filter_map(|path| path.strip_suffix(".bias")).collect();
        let expected = ["0.attn.q", "0.attn.k", "0.attn.v", "1.attn.q", "1.attn.k", "1.attn.v"];
        assert_eq!(biased, expected.map(|name| format!("blocks.{name}")));
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_an_error() {
        let error = tiny("gpt2-tiny", 3).logits(&Tensor::zeros([3, 6], DType::I32)).error().cloned().unwrap();
        assert_eq!(error.operation(), "nn::Attention::init");
        assert_eq!(error.message(), "3 heads do not divide 8 features");
    }
}
