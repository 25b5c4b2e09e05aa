//! Llama.

use remat_ir::{Error, ErrorKind, Result};

use super::{checked, logits, positions, untied_head, with_normal_matrices};
use crate::layer::{deferred, pinned};
use crate::nn::attention::head_size;
use crate::nn::{
    Decoder, Embedding, GatedMlp, GroupedAttention, KvCache, Linear, RmsNorm, RopeScaling, Rotary, Rotation, Stack,
};
use crate::random::Key;
use crate::trace::current_loc;
use crate::{DType, Tensor, Tree, named_scope};

/// The sizes of a [`Llama`]; the names are those of Hugging Face's `config.json`, and the defaults those of `LlamaConfig` there.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// The number of features.
    pub hidden_size: usize,
    /// The hidden features of a block.
    pub intermediate_size: usize,
    /// The number of blocks.
    pub num_hidden_layers: usize,
    /// The number of heads.
    pub num_attention_heads: usize,
    /// The number of key heads, which divides the number of heads; `None` means the number of heads.
    pub num_key_value_heads: Option<usize>,
    /// The features of a head; `None` means the number of features divided by the number of heads.
    pub head_dim: Option<usize>,
    /// The longest sequence that the model was trained on. Longer ones are accepted.
    pub max_position_embeddings: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// The base of the rotary frequencies.
    pub rope_theta: f64,
    /// How these frequencies are scaled.
    pub rope_scaling: RopeScaling,
    /// Whether the head shares the weights of the token embedding.
    pub tie_word_embeddings: bool,
    /// Whether the maps of the attention have biases.
    pub attention_bias: bool,
    /// Whether the maps of the gated MLP have biases.
    pub mlp_bias: bool,
    /// The standard deviation of weights.
    pub initializer_range: f64,
    /// The token that begins a text. The model uses neither this nor the fields below.
    pub bos_token_id: Option<i64>,
    /// The tokens that end a text.
    pub eos_token_id: Vec<i64>,
    /// The token that pads short texts; some files have -1 for none.
    pub pad_token_id: Option<i64>,
}

impl Default for LlamaConfig {
    fn default() -> LlamaConfig {
        LlamaConfig {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            tie_word_embeddings: false,
            attention_bias: false,
            mlp_bias: false,
            initializer_range: 0.02,
            bos_token_id: Some(1),
            eos_token_id: vec![2],
            pad_token_id: None,
        }
    }
}

/// A block of [`Llama`]: `x + attn(norm1(x))`, then the same with `norm2` and a [`GatedMlp`].
#[derive(Clone, Debug, Tree)]
pub struct LlamaBlock {
    /// Before the attention (`input_layernorm`).
    pub norm1: RmsNorm,
    /// The attention (`self_attn`).
    pub attn: GroupedAttention,
    /// Before the gated MLP (`post_attention_layernorm`).
    pub norm2: RmsNorm,
    /// The gated MLP.
    pub mlp: GatedMlp,
}

impl LlamaBlock {
    /// The block's result for `x`, of type `dtype[.., positions, features]`; it has the same type.
    ///
    /// # Errors
    /// As [`GroupedAttention::apply`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor, rotation: &Rotation) -> Tensor {
        pinned(|| {
            named_scope("block", || {
                let x = x + self.attn.apply(&self.norm1.apply(x), Some(rotation));
                &x + self.mlp.apply(&self.norm2.apply(&x))
            })
        })
    }

    /// As [`LlamaBlock::apply`] for the next positions of a cache. `layer` is the number of this block in the cache, an i32 scalar, and `x`
    /// is `dtype[batch, positions, features]`.
    ///
    /// # Errors
    /// As [`GroupedAttention::apply_cached`].
    #[track_caller]
    pub fn apply_cached(
        &self,
        x: &Tensor,
        rotation: &Rotation,
        layer: &Tensor,
        cache: &KvCache,
    ) -> Result<(Tensor, KvCache)> {
        pinned(|| {
            named_scope("block", || {
                let (mixed, cache) = self.attn.apply_cached(&self.norm1.apply(x), Some(rotation), layer, cache)?;
                let x = x + mixed;
                Ok((&x + self.mlp.apply(&self.norm2.apply(&x)), cache))
            })
        })
    }
}

/// Llama: RMS norms, rotary positions, grouped-query attention and gated MLPs. Mistral and other models have the same architecture.
///
/// Source: Touvron et al., "LLaMA", 2023.
///
/// ```
/// use remat::nn::{Llama, LlamaConfig, next_token_loss};
/// use remat::{Tensor, random};
/// let config = LlamaConfig {
///     vocab_size: 50,
///     hidden_size: 16,
///     intermediate_size: 40,
///     num_hidden_layers: 2,
///     num_attention_heads: 4,
///     num_key_value_heads: Some(2),
///     ..LlamaConfig::default()
/// };
/// let model = Llama::new(random::key(0), &config);
/// let tokens = Tensor::arange(0..24).reshape([2, 12]);
/// let logits = model.apply(&tokens);
/// let loss = next_token_loss(&logits, &tokens, None).item::<f32>()?;
/// assert!((loss - 50f32.ln()).abs() < 0.5);
///
/// let (prompt, last) = (tokens.index((.., ..11)), tokens.index((.., 11..)));
/// let (_, cache) = model.apply_cached(&prompt, model.cache(2, 12)?)?;
/// let (next, _) = model.apply_cached(&last, cache)?;
/// assert!(next.allclose(&logits.index((.., 11..)), 1e-4, 1e-5)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Llama {
    /// The vectors of tokens (`embed_tokens`).
    pub embed: Embedding,
    /// The blocks (`layers`). `attn.out` is `o_proj`; the others have the same names without `_proj`.
    pub blocks: Stack<LlamaBlock>,
    /// The norm after the last block.
    pub norm: RmsNorm,
    /// The head, unless it is tied to the token embedding (`lm_head`).
    pub head: Option<Linear>,
    /// The rotary positions of all blocks.
    pub rotary: Rotary,
}

impl Llama {
    /// Normal weights with the standard deviation of the configuration, and biases of zeros.
    ///
    /// # Errors
    /// If the heads do not divide the features and `head_dim` is not given, the key heads do not divide the heads, the dtype is not a float,
    /// or there are too many weights: they are failed tensors.
    #[track_caller]
    pub fn init(key: Key, config: &LlamaConfig, dtype: DType) -> Llama {
        pinned(|| {
            let (features, hidden, heads) = (config.hidden_size, config.intermediate_size, config.num_attention_heads);
            let key_heads = config.num_key_value_heads.unwrap_or(heads);
            let size = config.head_dim.unwrap_or(features / heads.max(1));
            let norm = || RmsNorm { eps: config.rms_norm_eps, ..RmsNorm::init(features, dtype) };
            let biased = |map: &Linear, outputs, wanted: bool| Linear {
                weight: map.weight.clone(),
                bias: wanted.then(|| Tensor::zeros([outputs], dtype)),
                adapter: None,
            };
            let [embed, blocks, head, weights] = key.split();
            let block = |key: Key| {
                let [attn, mlp] = key.split();
                let attn = GroupedAttention::init(attn, features, [heads, key_heads], size, dtype);
                let mlp = GatedMlp::init(mlp, features, hidden, dtype);
                let (of_attn, of_mlp) = (config.attention_bias, config.mlp_bias);
                let [of_heads, of_key_heads] = [heads, key_heads].map(|count| count.saturating_mul(size));
                LlamaBlock {
                    norm1: norm(),
                    attn: GroupedAttention {
                        q: biased(&attn.q, of_heads, of_attn),
                        k: biased(&attn.k, of_key_heads, of_attn),
                        v: biased(&attn.v, of_key_heads, of_attn),
                        out: biased(&attn.out, features, of_attn),
                        ..attn
                    },
                    norm2: norm(),
                    mlp: GatedMlp {
                        gate: biased(&mlp.gate, hidden, of_mlp),
                        up: biased(&mlp.up, hidden, of_mlp),
                        down: biased(&mlp.down, features, of_mlp),
                    },
                }
            };
            let model = Llama {
                embed: Embedding::init(embed, config.vocab_size, features, dtype),
                blocks: Stack::init(blocks, config.num_hidden_layers, block),
                norm: norm(),
                head: untied_head(head, config.tie_word_embeddings, [features, config.vocab_size], dtype),
                rotary: Rotary { theta: config.rope_theta, scaling: config.rope_scaling, ..Rotary::new(size) },
            };
            let model = with_normal_matrices(&weights, &model, |_| config.initializer_range);
            let divides = match config.head_dim {
                Some(_) => Ok(()),
                None => head_size("nn::Llama::init", features, heads).map(drop),
            };
            checked(divides, model)
        })
    }

    /// The logits for the token after each of `tokens`, integers `[batch, positions]`: `dtype[batch, positions, vocabulary]`. A token
    /// outside the vocabulary makes them NaN.
    ///
    /// # Errors
    /// If the tokens are not integers `[batch, positions]`, weights are failed tensors, or shapes do not fit.
    #[track_caller]
    pub fn apply(&self, tokens: &Tensor) -> Tensor {
        deferred(|| {
            named_scope("llama", || {
                let count = positions("nn::Llama::apply", tokens)?;
                let at = Tensor::iota([count], 0, DType::I32);
                let x = self.embed.apply(tokens);
                let rotation = self.rotation("nn::Llama::apply", &at, x.dtype()?)?;
                let x = self.blocks.apply(|block, x| block.apply(x, &rotation), &x)?;
                Ok(self.logits(&x))
            })
        })
    }

    /// An empty cache for sequences of up to `positions` tokens.
    ///
    /// # Errors
    /// If weights are failed tensors.
    #[track_caller]
    pub fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        let loc = current_loc();
        pinned(|| {
            let dtype = self.embed.table.dtype()?;
            let key_heads = self.blocks.first().map_or(1, |block| block.attn.key_heads);
            Ok(KvCache::init([self.blocks.len(), batch, positions, key_heads, self.rotary.features], dtype))
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// As [`Llama::apply`] for tokens that follow those of a cache. Returns the next cache too.
    ///
    /// # Errors
    /// As [`Llama::apply`] and [`KvCache::attend`]; if the cache has another number of layers.
    #[track_caller]
    pub fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("llama", || {
                let count = positions("nn::Llama::apply_cached", tokens)?;
                cache.expect_layers("nn::Llama::apply_cached", self.blocks.len())?;
                let at = cache.positions(count)?;
                let x = self.embed.apply(tokens);
                let rotation = self.rotation("nn::Llama::apply_cached", &at, x.dtype()?)?;
                let step = |block: &LlamaBlock, (x, cache, layer): &(Tensor, KvCache, Tensor)| {
                    let (x, cache) = block.apply_cached(x, &rotation, layer, cache)?;
                    Ok::<_, Error>((x, cache, layer + 1))
                };
                let (x, cache, _) = self.blocks.apply(step, &(x, cache, Tensor::from(0i32)))?;
                Ok((self.logits(&x), cache.advanced(count)))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// The rotation of all blocks at these positions.
    ///
    /// # Errors
    /// If the weights of the first block have failed, or its heads have fewer features than are rotated. Sizes beyond all memory are
    /// refused so before there are frequencies of as many features.
    fn rotation(&self, operation: &str, at: &Tensor, dtype: DType) -> Result<Rotation> {
        if let Some(LlamaBlock { attn, .. }) = self.blocks.first() {
            let size = attn.q.weight.dim(-1)? / attn.heads.max(1);
            if self.rotary.features > size {
                let message = format!("the heads have {size} features, and {} are to be rotated", self.rotary.features);
                return Err(Error::new(ErrorKind::Shape, operation, message));
            }
        }
        Ok(self.rotary.at(at, dtype))
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        logits(self.head.as_ref(), &self.embed, &self.norm.apply(x))
    }
}

impl Decoder for Llama {
    fn vocabulary(&self) -> Result<usize> {
        Ok(self.embed.table.dims::<2>()?[0])
    }

    // Rotary positions have no limit; the model was trained on sequences of `max_position_embeddings` tokens.
    fn context(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn cache(&self, batch: usize, positions: usize) -> Result<KvCache> {
        Llama::cache(self, batch, positions)
    }

    fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)> {
        Llama::apply_cached(self, tokens, cache)
    }
}
