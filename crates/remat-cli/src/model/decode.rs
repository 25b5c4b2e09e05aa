//! The model with a cache.

use remat::nn::{Decoder, KvCache};
use remat::{Result, Tensor};

use super::Model;

impl Decoder for Model {
    fn vocabulary(&self) -> Result<usize> {
        match self {
            Model::Gpt2(model) => model.vocabulary(),
            Model::Llama(model) => model.vocabulary(),
        }
    }

    fn context(&self) -> Result<Option<usize>> {
        match self {
            Model::Gpt2(model) => model.context(),
            Model::Llama(model) => model.context(),
        }
    }

    fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        match self {
            Model::Gpt2(model) => model.cache(batch, positions),
            Model::Llama(model) => model.cache(batch, positions),
        }
    }

    fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        match self {
            Model::Gpt2(model) => model.apply_cached(tokens, cache),
            Model::Llama(model) => model.apply_cached(tokens, cache),
        }
    }
}
