//! The model with a cache.

use remat::nn::{Decoder, KvCache};
use remat::{Result, Tensor, Tree};

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

/// A model that writes only the first tokens of its vocabulary, which may be larger than that of the tokenizer; the other tokens have no
/// meaning.
#[derive(Clone, Tree)]
pub(crate) struct Narrowed {
    pub(crate) model: Model,
    /// The number of tokens that it may write; at least one.
    pub(crate) vocabulary: usize,
}

impl Decoder for Narrowed {
    fn vocabulary(&self) -> Result<usize> {
        Ok(self.model.vocabulary()?.min(self.vocabulary))
    }

    fn context(&self) -> Result<Option<usize>> {
        self.model.context()
    }

    fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        self.model.cache(batch, positions)
    }

    fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        let (logits, cache) = self.model.apply_cached(tokens, cache)?;
        Ok((logits.index((.., .., ..self.vocabulary()?)), cache))
    }
}
