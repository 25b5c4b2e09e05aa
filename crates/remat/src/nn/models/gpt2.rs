//! GPT-2.

use remat_ir::{Error, ErrorKind, Result};

use super::{logits, positions, untied_head, with_normal_matrices};
use crate::layer::{deferred, pinned};
use crate::nn::{Block, Decoder, Embedding, KvCache, LayerNorm, Linear, Mlp, Stack};
use crate::random::Key;
use crate::trace::current_loc;
use crate::{DType, Tensor, Tree, named_scope};

/// The sizes of a [`Gpt2`]; the names are those of Hugging Face's `config.json`. The default is the model of 124 million parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpt2Config {
    /// The number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// The positions of the longest sequence.
    pub n_positions: usize,
    /// The number of features.
    pub n_embd: usize,
    /// The number of blocks.
    pub n_layer: usize,
    /// The number of heads, which divides the number of features.
    pub n_head: usize,
    /// The hidden features of a block; `None` means four times the number of features.
    pub n_inner: Option<usize>,
    /// Added to the variance in norms.
    pub layer_norm_epsilon: f64,
    /// The standard deviation of weights.
    pub initializer_range: f64,
    /// Whether the head shares the weights of the token embedding.
    pub tie_word_embeddings: bool,
    /// The token that begins a text. The model uses neither this nor the fields below.
    pub bos_token_id: Option<i64>,
    /// The tokens that end a text.
    pub eos_token_id: Vec<i64>,
    /// The token that pads short texts; some files have -1 for none.
    pub pad_token_id: Option<i64>,
}

impl Default for Gpt2Config {
    fn default() -> Gpt2Config {
        Gpt2Config {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            tie_word_embeddings: true,
            bos_token_id: Some(50_256),
            eos_token_id: vec![50_256],
            pad_token_id: None,
        }
    }
}

/// GPT-2: learned positions, pre-norm blocks, the `tanh` approximation of gelu, and a head tied to the token embedding.
///
/// There is no dropout. Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
///
/// ```
/// use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
/// use remat::{Policy, Tensor, grad, random};
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
/// let mut model = Gpt2::new(random::key(0), &config);
/// let tokens = Tensor::arange(0..24).reshape([2, 12]);
/// assert_eq!(model.apply(&tokens).shape()?, [2, 12, 50]);
///
/// // The blocks as a loop under a policy, for training:
/// model.blocks = model.blocks.stacked()?.with_policy(Policy::Dots);
/// let gradient = grad(|model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None))(&model)?;
/// assert_eq!(gradient.embed.table.shape()?, [50, 8]);
///
/// // One token after the other:
/// let (logits, cache) = model.apply_cached(&tokens, model.cache(2, 16)?)?;
/// let next = logits.index((.., -1)).argmax(-1);
/// let (logits, _) = model.apply_cached(&next.expand_dims(-1), cache)?;
/// assert_eq!(logits.shape()?, [2, 1, 50]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Gpt2 {
    /// The vectors of tokens (`wte`).
    pub embed: Embedding,
    /// The vectors of positions (`wpe`).
    pub positions: Embedding,
    /// The blocks (`h`): `attn.qkv` is `c_attn`, `attn.out` and `mlp.down` are each a `c_proj`, `mlp.up` is `c_fc`.
    pub blocks: Stack<Block>,
    /// The norm after the last block (`ln_f`).
    pub norm: LayerNorm,
    /// The head, unless it is tied to the token embedding (`lm_head`).
    pub head: Option<Linear>,
}

impl Gpt2 {
    /// Normal weights with the standard deviation of the configuration, and biases of zeros. Weights that write to the residual stream are
    /// divided by the square root of the number of such maps.
    ///
    /// # Errors
    /// If the heads do not divide the features or the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, config: &Gpt2Config, dtype: DType) -> Gpt2 {
        pinned(|| {
            let features = config.n_embd;
            let hidden = config.n_inner.unwrap_or(features.saturating_mul(4));
            let norm = || LayerNorm { eps: config.layer_norm_epsilon, ..LayerNorm::init(features, dtype) };
            let [embed, at, blocks, head, weights] = key.split();
            let block = |key: Key| {
                let [block, mlp] = key.split();
                let block = Block::init(block, features, config.n_head, dtype);
                Block { norm1: norm(), norm2: norm(), mlp: Mlp::init(mlp, features, hidden, dtype), ..block }
            };
            let model = Gpt2 {
                embed: Embedding::init(embed, config.vocab_size, features, dtype),
                positions: Embedding::init(at, config.n_positions, features, dtype),
                blocks: Stack::init(blocks, config.n_layer, block),
                norm: norm(),
                head: untied_head(head, config.tie_word_embeddings, [features, config.vocab_size], dtype),
            };
            let residual = 1.0 / (2.0 * config.n_layer.max(1) as f64).sqrt();
            with_normal_matrices(&weights, &model, |path| {
                let writes = path.ends_with("attn.out.weight") || path.ends_with("mlp.down.weight");
                config.initializer_range * if writes { residual } else { 1.0 }
            })
        })
    }

    /// The logits for the token after each of `tokens`, integers `[batch, positions]`: `dtype[batch, positions, vocabulary]`. A token
    /// outside the vocabulary makes them NaN.
    ///
    /// # Errors
    /// If the tokens are not integers `[batch, positions]`, or have more positions than the model.
    #[track_caller]
    pub fn apply(&self, tokens: &Tensor) -> Tensor {
        deferred(|| {
            named_scope("gpt2", || {
                let count = positions("nn::Gpt2::apply", tokens)?;
                self.expect_positions("nn::Gpt2::apply", count)?;
                let x = self.embed.apply(tokens) + self.positions.table.index(..count);
                let x = self.blocks.apply(|block, x| block.apply(x), &x)?;
                Ok(self.logits(&x))
            })
        })
    }

    /// An empty cache for sequences of up to `positions` tokens.
    ///
    /// # Errors
    /// If the model has fewer positions, or its weights are failed tensors.
    #[track_caller]
    pub fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        let loc = current_loc();
        pinned(|| {
            self.expect_positions("nn::Gpt2::cache", positions)?;
            let aval = self.embed.table.aval()?;
            let [_, features] = self.embed.table.dims()?;
            let heads = self.blocks.first().map_or(1, |block| block.attn.heads).max(1);
            Ok(KvCache::init([self.blocks.len(), batch, positions, heads, features / heads], aval.dtype))
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// As [`Gpt2::apply`] for tokens that follow those of a cache. Returns the next cache too.
    ///
    /// # Errors
    /// As [`Gpt2::apply`] and [`KvCache::attend`]; if the cache has another number of layers.
    #[track_caller]
    pub fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("gpt2", || {
                let count = positions("nn::Gpt2::apply_cached", tokens)?;
                cache.expect_layers("nn::Gpt2::apply_cached", self.blocks.len())?;
                let at = cache.positions(count)?;
                let x = self.embed.apply(tokens) + self.positions.apply(&at);
                let step = |block: &Block, (x, cache, layer): &(Tensor, KvCache, Tensor)| {
                    let (x, cache) = block.apply_cached(x, layer, cache)?;
                    Ok::<_, Error>((x, cache, layer + 1))
                };
                let (x, cache, _) = self.blocks.apply(step, &(x, cache, Tensor::from(0i32)))?;
                Ok((self.logits(&x), cache.advanced(count)))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        logits(self.head.as_ref(), &self.embed, &self.norm.apply(x))
    }

    fn expect_positions(&self, operation: &str, count: usize) -> Result<()> {
        let [all, _] = self.positions.table.dims()?;
        if count > all {
            let message = format!("{count} positions are more than the {all} that the model has");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        }
        Ok(())
    }
}

impl Decoder for Gpt2 {
    fn vocabulary(&self) -> Result<usize> {
        Ok(self.embed.table.dims::<2>()?[0])
    }

    fn context(&self) -> Result<Option<usize>> {
        Ok(Some(self.positions.table.dims::<2>()?[0]))
    }

    fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        Gpt2::cache(self, batch, positions)
    }

    fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        Gpt2::apply_cached(self, tokens, cache)
    }
}
