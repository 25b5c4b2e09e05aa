//! Grouped-query attention and the gated MLP.

use remat_ir::{Error, ErrorKind, Result};

use super::attention::head_size;
use super::{AttentionConfig, KvCache, Linear, Rotation, dot_product_attention};
use crate::layer::{deferred, pinned};
use crate::random::Key;
use crate::trace::current_loc;
use crate::{DType, Tensor, Tree, named_scope};

/// Causal self-attention in which consecutive heads share a key head, with rotary positions.
///
/// With as many key heads as heads it is ordinary attention, with one key head it is multi-query attention. Rotated queries and keys, and
/// values, have the name `qkv`; the result has the name `attn`. Source: Ainslie et al., "GQA", 2023.
///
/// ```
/// use remat::{DType, Tensor, nn::{GroupedAttention, Rotary}, random};
/// let attention = GroupedAttention::new(random::key(0), 16, [4, 2], 4);
/// let rotation = Rotary::new(4).at(&Tensor::arange(0..8), DType::F32);
/// let x = random::normal(random::key(1), [3, 8, 16], DType::F32);
/// assert_eq!(attention.apply(&x, Some(&rotation)).shape()?, [3, 8, 16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct GroupedAttention {
    /// From the features to the queries of all heads.
    pub q: Linear,
    /// From the features to the keys of all key heads.
    pub k: Linear,
    /// From the features to the values of all key heads.
    pub v: Linear,
    /// From the features of all heads to the features.
    pub out: Linear,
    /// The number of heads.
    pub heads: usize,
    /// The number of key heads, which divides the number of heads.
    pub key_heads: usize,
}

const NAME: &str = "nn::GroupedAttention::apply";

impl GroupedAttention {
    /// Weights as in [`Linear::init`], without biases, for this many heads and key heads of `size` features each.
    ///
    /// # Errors
    /// If the key heads do not divide the heads, the dtype is not a float, or there are too many weights: they are failed tensors.
    #[track_caller]
    pub fn init(
        key: Key,
        features: usize,
        [heads, key_heads]: [usize; 2],
        size: usize,
        dtype: DType,
    ) -> GroupedAttention {
        pinned(|| {
            let maps = init_maps("nn::GroupedAttention::init", key, [features; 2], [heads, key_heads], size, dtype);
            let [q, k, v, out] = maps.map(Linear::without_bias);
            GroupedAttention { q, k, v, out, heads, key_heads }
        })
    }

    /// The attention of `x`, of type `dtype[.., positions, features]`, with queries and keys rotated. The result has the same type.
    ///
    /// # Errors
    /// If `x` has fewer than two dimensions, shapes or dtypes do not fit, or the key heads do not divide the heads.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, rotation: Option<&Rotation>) -> Tensor {
        pinned(|| {
            named_scope("attention", || {
                deferred(|| {
                    let [q, k, v] = self.project(x, rotation)?;
                    let config = AttentionConfig { causal: true, ..AttentionConfig::default() };
                    join_heads(NAME, &self.out, &dot_product_attention(&q, &k, &v, &config))
                })
            })
        })
    }

    /// As [`GroupedAttention::apply`] for the next positions of a cache. `layer` is the number of this layer in the cache, an i32 scalar,
    /// and `x` is `dtype[batch, positions, features]`.
    ///
    /// # Errors
    /// As [`GroupedAttention::apply`] and [`KvCache::attend`].
    #[track_caller]
    pub fn apply_cached(
        &self,
        x: &Tensor,
        rotation: Option<&Rotation>,
        layer: &Tensor,
        cache: &KvCache,
    ) -> Result<(Tensor, KvCache)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("attention", || {
                let [q, k, v] = self.project(x, rotation)?;
                let (mixed, cache) = cache.attend(layer, &q, &k, &v, None)?;
                Ok((join_heads(NAME, &self.out, &mixed)?, cache))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// Queries, keys and values, by heads.
    fn project(&self, x: &Tensor, rotation: Option<&Rotation>) -> Result<[Tensor; 3]> {
        expect_positions(NAME, x)?;
        // An error of the weights, such as that of `init`, takes precedence over the other ones of this call.
        self.q.weight.aval()?;
        expect_groups(NAME, self.heads, self.key_heads)?;
        let rotated = |y: Tensor| rotation.map_or(y.clone(), |rotation| rotation.apply(&y));
        let [q, k] = [(&self.q, self.heads), (&self.k, self.key_heads)].map(|(map, n)| split_heads(NAME, map, x, n));
        let [q, k] = [q?, k?].map(rotated);
        Ok([q, k, split_heads(NAME, &self.v, x, self.key_heads)?].map(|y| y.named("qkv")))
    }
}

/// A map of `x`, whose last axis becomes one of heads and one of the features of a head.
///
/// # Errors
/// If `x` has no positions, or the heads do not divide the features of the map.
pub(super) fn split_heads(operation: &str, map: &Linear, x: &Tensor, heads: usize) -> Result<Tensor> {
    let batch = expect_positions(operation, x)?;
    let y = map.apply(x);
    let size = head_size(operation, y.dim(-1)?, heads)?;
    Ok(y.reshape([batch, &[heads, size]].concat()))
}

/// The result of a layer, given the results of all heads.
pub(super) fn join_heads(operation: &str, out: &Linear, mixed: &Tensor) -> Result<Tensor> {
    let [batch @ .., heads, size] = mixed.shape()? else {
        return Err(no_positions(operation, mixed.aval()?));
    };
    Ok(out.apply(&mixed.reshape([batch, &[heads * size]].concat())).named("attn"))
}

/// The dimensions before that of features, at least one.
fn expect_positions<'a>(operation: &str, x: &'a Tensor) -> Result<&'a [usize]> {
    let aval = x.aval()?;
    match &aval.shape[..] {
        [batch @ .., _] if !batch.is_empty() => Ok(batch),
        _ => Err(no_positions(operation, aval)),
    }
}

fn no_positions(operation: &str, aval: &remat_ir::Aval) -> Error {
    Error::new(ErrorKind::Shape, operation, format!("takes axes of positions and of features, not {aval}"))
}

pub(super) fn expect_groups(operation: &str, heads: usize, key_heads: usize) -> Result<()> {
    if key_heads == 0 || !heads.is_multiple_of(key_heads) {
        let message = format!("{key_heads} key heads do not divide {heads} heads");
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(())
}

/// The maps of an attention, to queries, keys, values and results, with the weights of [`Linear::init`]; those of queries have failed if the
/// key heads do not divide the heads.
pub(super) fn init_maps(
    operation: &str,
    key: Key,
    [features, source]: [usize; 2],
    [heads, key_heads]: [usize; 2],
    size: usize,
    dtype: DType,
) -> [Linear; 4] {
    let [q, k, v, out] = key.split();
    let [of_heads, of_key_heads] = [heads, key_heads].map(|count| count.saturating_mul(size));
    let q = Linear::init(q, features, of_heads, dtype);
    let weight = deferred(|| expect_groups(operation, heads, key_heads).map(|()| q.weight.clone()));
    [
        Linear { weight, ..q },
        Linear::init(k, source, of_key_heads, dtype),
        Linear::init(v, source, of_key_heads, dtype),
        Linear::init(out, of_heads, features, dtype),
    ]
}

/// `down(silu(gate(x)) * up(x))`. The result has the name `mlp`; those of `gate` and `up` have the names of these fields. Source: Shazeer,
/// "GLU variants improve transformer", 2020.
///
/// ```
/// use remat::{DType, Tensor, nn::GatedMlp, random};
/// let mlp = GatedMlp::new(random::key(0), 16, 40);
/// assert_eq!(mlp.apply(&Tensor::ones([8, 16], DType::F32)).shape()?, [8, 16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[doc(alias = "SwiGLU")]
#[derive(Clone, Debug, Tree)]
pub struct GatedMlp {
    /// From the features to the hidden ones; these pass through [`Tensor::silu`].
    pub gate: Linear,
    /// From the features to the hidden ones.
    pub up: Linear,
    /// From the hidden features back.
    pub down: Linear,
}

impl GatedMlp {
    /// Weights as in [`Linear::init`], without biases.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, features: usize, hidden: usize, dtype: DType) -> GatedMlp {
        pinned(|| {
            let [gate, up, down] = key.split();
            let map = |key, inputs, outputs| Linear { bias: None, ..Linear::init(key, inputs, outputs, dtype) };
            GatedMlp {
                gate: map(gate, features, hidden),
                up: map(up, features, hidden),
                down: map(down, hidden, features),
            }
        })
    }

    /// The map of `x`, of type `dtype[.., features]`; the result has the same type.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of features, or the dtypes differ.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        pinned(|| {
            named_scope("mlp", || {
                let hidden = self.gate.apply(x).named("gate").silu() * self.up.apply(x).named("up");
                self.down.apply(&hidden).named("mlp")
            })
        })
    }
}
