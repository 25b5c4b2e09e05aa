//! Attention.

use remat_ir::{Error, ErrorKind, Literal, Result};

use super::{KvCache, Linear};
use crate::layer::{apply, deferred, pinned};
use crate::random::Key;
use crate::trace::{current_loc, setters};
use crate::{DType, Tensor, Tree, named_scope};

/// The options of [`dot_product_attention`].
///
/// ```
/// use remat::nn::AttentionConfig;
/// let config = AttentionConfig { causal: true, ..AttentionConfig::default() };
/// # assert!(config.bias.is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct AttentionConfig {
    /// Whether query number *i* attends only to the keys up to number *i*, both counted from the first; `false` by default.
    pub causal: bool,
    /// The factor of the products of queries and keys; `None` is one over the square root of the number of features of a head.
    pub scale: Option<f64>,
    /// A bias that is added to the scores `[.., heads, queries, keys]` and broadcasts to them.
    pub bias: Option<Tensor>,
    /// Bools that select the keys to which each query attends; they broadcast to the scores.
    pub mask: Option<Tensor>,
}

/// Attention: for each query, the mean of the values weighted by the softmax of its products with the keys.
///
/// Queries are `[.., queries, heads, features]`, keys `[.., keys, key heads, features]` and values
/// `[.., keys, key heads, value features]`, all of one float dtype; the result is `[.., queries, heads, value features]`.
/// The number of heads is a multiple of the number of key heads: consecutive heads share a key head (grouped-query
/// attention). f16 and bf16 are computed in f32 and rounded once. A query that attends to no key gives zeros, where JAX gives
/// the mean of all values.
///
/// It is one operation, whose backward pass keeps queries, keys, values, the result and one number per query and head: the
/// matrix of scores is never a residual. [`Policy::Dots`](crate::Policy::Dots) saves its result. Source: Dao et al.,
/// "FlashAttention", 2022; the interface is that of `jax.nn.dot_product_attention`.
///
/// ```
/// use remat::{Tensor, nn::{AttentionConfig, dot_product_attention}};
/// let q = Tensor::new([[[0.0f32]], [[100.0]]]);
/// let (k, v) = (Tensor::new([[[1.0f32]], [[2.0]]]), Tensor::new([[[4.0f32]], [[8.0]]]));
/// let all = dot_product_attention(&q, &k, &v, &AttentionConfig::default());
/// assert_eq!(all.to_vec::<f32>()?, [6.0, 8.0]);
/// let causal = dot_product_attention(&q, &k, &v, &AttentionConfig { causal: true, ..AttentionConfig::default() });
/// assert_eq!(causal.to_vec::<f32>()?, [4.0, 8.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the shapes do not fit, the dtypes differ or are not floats, or the mask is not bool.
#[track_caller]
pub fn dot_product_attention(query: &Tensor, key: &Tensor, value: &Tensor, config: &AttentionConfig) -> Tensor {
    deferred(|| {
        let shape = &query.aval()?.shape;
        let batch = batch_of("queries", query)?;
        for (what, x) in [("keys", key), ("values", value)] {
            if batch_of(what, x)? != batch {
                let message = format!("the batches of queries {} and {what} {} differ", query.aval()?, x.aval()?);
                return Err(Error::new(ErrorKind::Shape, ATTENTION, message));
            }
        }
        let features = shape[shape.len() - 1];
        let scale = config.scale.unwrap_or_else(|| 1.0 / (features as f64).sqrt());
        let op = remat_ir::DotProductAttention {
            scale: Literal::from_f64(DType::F64, scale),
            causal: config.causal,
            bias: config.bias.is_some(),
            mask: config.mask.is_some(),
        };
        let mut operands = [query, key, value].map(|x| one_batch(x, batch)).into_iter().collect::<Result<Vec<_>>>()?;
        for (what, x) in [("bias", &config.bias), ("mask", &config.mask)] {
            if let Some(x) = x {
                operands.push(scores_of_one_batch(what, x, batch)?);
            }
        }
        let results = apply(op, &operands.iter().collect::<Vec<_>>())?;
        let out = &results[0];
        let sizes = [batch, &out.aval()?.shape[1..]].concat();
        Ok(out.reshape(sizes))
    })
}

const ATTENTION: &str = "dot_product_attention";

/// The dimensions before those of positions, heads and features.
fn batch_of<'a>(what: &str, x: &'a Tensor) -> Result<&'a [usize]> {
    let aval = x.aval()?;
    match &aval.shape[..] {
        [batch @ .., _, _, _] => Ok(batch),
        _ => {
            let message = format!("takes {what} [.., positions, heads, features], not {aval}");
            Err(Error::new(ErrorKind::Shape, ATTENTION, message))
        }
    }
}

/// `x` with one dimension for its batch.
fn one_batch(x: &Tensor, batch: &[usize]) -> Result<Tensor> {
    let own = &x.aval()?.shape[batch.len()..];
    Ok(x.reshape([&[batch.iter().product()], own].concat()))
}

/// A bias or mask with four dimensions, the first of which is the batch or 1.
fn scores_of_one_batch(what: &str, x: &Tensor, batch: &[usize]) -> Result<Tensor> {
    let aval = x.aval()?;
    let rank = batch.len() + 3;
    let Some(missing) = rank.checked_sub(aval.rank()) else {
        let message = format!("the {what} {aval} has more dimensions than the scores, which have {rank}");
        return Err(Error::new(ErrorKind::Shape, ATTENTION, message));
    };
    let full: Vec<usize> = std::iter::repeat_n(1, missing).chain(aval.shape.iter().copied()).collect();
    let (own_batch, scores) = full.split_at(batch.len());
    if own_batch.iter().all(|&n| n == 1) {
        return Ok(x.reshape([&[1], scores].concat()));
    }
    one_batch(&x.broadcast_to([batch, scores].concat()), batch)
}

/// Self-attention with several heads: each position of a sequence attends to itself and to earlier positions, or with `causal: false` to
/// all.
///
/// Source: Vaswani et al., "Attention is all you need", 2017. Two values have names: `qkv`, the queries, keys and values in one tensor, and
/// `attn`, the result.
///
/// ```
/// use remat::{DType, Tensor, nn::Attention, random};
/// let attention = Attention::new(random::key(0), 16, 4);
/// let x = random::normal(random::key(1), [2, 8, 16], DType::F32);
/// let y = attention.apply(&x);
/// assert_eq!(y.shape()?, [2, 8, 16]);
/// // Later positions do not matter.
/// let first = attention.apply(&x.index((.., ..3)));
/// assert!(y.index((.., ..3)).allclose(&first, 1e-5, 1e-6)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Attention {
    /// From the features to queries, keys and values, in this order, each with the features of all heads.
    pub qkv: Linear,
    /// From the features of all heads to the features.
    pub out: Linear,
    /// The number of heads.
    pub heads: usize,
    /// Whether a position attends only to itself and to earlier positions; `true` by default. With a cache this is always so.
    pub causal: bool,
}

setters! { Attention:
    causal(bool) => causal;
}

impl Attention {
    /// Weights as in [`Linear::init`].
    ///
    /// # Errors
    /// If the heads do not divide the features, or the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, features: usize, heads: usize, dtype: DType) -> Attention {
        pinned(|| {
            let [qkv, out] = key.split();
            let qkv = Linear::init(qkv, features, features.saturating_mul(3), dtype);
            let weight = deferred(|| head_size("nn::Attention::init", features, heads).map(|_| qkv.weight));
            let qkv = Linear { weight, ..qkv };
            Attention { qkv, out: Linear::init(out, features, features, dtype), heads, causal: true }
        })
    }

    /// The attention of `x`, of type `dtype[.., positions, features]`; the result has the same type.
    ///
    /// # Errors
    /// If `x` has fewer than two dimensions, its last size is not the number of features, or the dtypes differ.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        pinned(|| named_scope("attention", || deferred(|| self.attend(x))))
    }

    /// As [`Attention::apply`] for the next positions of a cache. `layer` is the number of this layer in the cache, an i32 scalar, and `x`
    /// is `dtype[batch, positions, features]`.
    ///
    /// # Errors
    /// As [`Attention::apply`] and [`KvCache::attend`].
    #[track_caller]
    pub fn apply_cached(&self, x: &Tensor, layer: &Tensor, cache: &KvCache) -> Result<(Tensor, KvCache)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("attention", || {
                let [q, k, v] = self.project(x)?;
                let (mixed, cache) = cache.attend(layer, &q, &k, &v, None)?;
                Ok((self.out.apply(&mixed.reshape(x.shape()?)).named("attn"), cache))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    fn attend(&self, x: &Tensor) -> Result<Tensor> {
        let [q, k, v] = self.project(x)?;
        let config = AttentionConfig { causal: self.causal, ..AttentionConfig::default() };
        let mixed = dot_product_attention(&q, &k, &v, &config).reshape(x.shape()?);
        Ok(self.out.apply(&mixed).named("attn"))
    }

    /// Queries, keys and values, by heads.
    fn project(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        const NAME: &str = "nn::Attention::apply";
        let aval = x.aval()?;
        let [batch @ .., positions, features] = &aval.shape[..] else {
            let message = format!("takes axes of positions and of features, not {aval}");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        };
        // An error of the weights, such as that of `init`, takes precedence over those of this call.
        self.qkv.weight.aval()?;
        let size = head_size(NAME, *features, self.heads)?;
        let qkv = self.qkv.apply(x).named("qkv");
        let parts: Vec<usize> = batch.iter().copied().chain([*positions, 3, self.heads, size]).collect();
        let qkv = qkv.reshape(parts);
        Ok([0, 1, 2].map(|i| qkv.index((crate::index::Ellipsis, i, .., ..))))
    }
}

/// The number of features of a head.
///
/// # Errors
/// If the heads do not divide the features.
pub(in crate::nn) fn head_size(operation: &str, features: usize, heads: usize) -> Result<usize> {
    if heads == 0 || !features.is_multiple_of(heads) {
        let message = format!("{heads} heads do not divide {features} features");
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(features / heads)
}
