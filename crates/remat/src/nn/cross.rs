//! Attention from one sequence to another.

use remat_ir::Result;

use super::grouped::{expect_groups, init_maps, join_heads, split_heads};
use super::{AttentionConfig, Linear, dot_product_attention};
use crate::layer::{deferred, pinned};
use crate::random::Key;
use crate::trace::{deferred_array, setters};
use crate::{DType, Tensor, Tree, named_scope};

/// Cross-attention: each position of a sequence attends to the positions of another one, the source, as those of a decoder to the result
/// of an encoder. Consecutive heads share a key head.
///
/// Queries, keys and values have the name `qkv`, the result has the name `attn`, and all is in the scope `cross_attention`. Sources:
/// Vaswani et al., "Attention is all you need", 2017; Ainslie et al., "GQA", 2023, for heads that share a key head.
///
/// ```
/// use remat::{DType, Tensor, nn::CrossAttention, random};
/// let attention = CrossAttention::new(random::key(0), [16, 24], [4, 2], 4);
/// let [a, b] = random::key(1).split();
/// let x = random::normal(a, [2, 5, 16], DType::F32);
/// let source = random::normal(b, [2, 7, 24], DType::F32);
/// // The second sequence of the batch has four positions, and the rest is padding.
/// let lengths = Tensor::new([7, 4]).reshape([2, 1, 1, 1]);
/// let mask = Tensor::arange(0..7).lt(&lengths);
/// let y = attention.apply(&x, &source, Some(&mask));
/// assert_eq!(y.shape()?, [2, 5, 16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct CrossAttention {
    /// From the features to the queries of all heads.
    pub q: Linear,
    /// From the features of the source to the keys of all key heads.
    pub k: Linear,
    /// From the features of the source to the values of all key heads.
    pub v: Linear,
    /// From the features of all heads to the features.
    pub out: Linear,
    /// The number of heads.
    pub heads: usize,
    /// The number of key heads, which divides the number of heads.
    pub key_heads: usize,
    /// Whether position number *i* attends only to the positions of the source up to number *i*, both counted from the first; `false` by
    /// default.
    pub causal: bool,
}

setters! { CrossAttention:
    causal(bool) => causal;
}

const APPLY: &str = "nn::CrossAttention::apply";

impl CrossAttention {
    /// Weights as in [`Linear::init`], for sequences with this many features and sources with that many, and for this many heads and key
    /// heads of `size` features each.
    ///
    /// # Errors
    /// If the key heads do not divide the heads, the dtype is not a float, or there are too many weights: they are failed tensors.
    #[track_caller]
    pub fn init(
        key: Key,
        [features, source]: [usize; 2],
        [heads, key_heads]: [usize; 2],
        size: usize,
        dtype: DType,
    ) -> CrossAttention {
        pinned(|| {
            let maps = init_maps("nn::CrossAttention::init", key, [features, source], [heads, key_heads], size, dtype);
            let [q, k, v, out] = maps;
            CrossAttention { q, k, v, out, heads, key_heads, causal: false }
        })
    }

    /// The same without biases.
    #[must_use]
    pub fn without_bias(self) -> CrossAttention {
        let [q, k, v, out] = [self.q, self.k, self.v, self.out].map(Linear::without_bias);
        CrossAttention { q, k, v, out, ..self }
    }

    /// The attention of `x`, of type `dtype[.., positions, features]`, to `source`, of type `dtype[.., source positions, source features]`.
    /// The result has the type of `x`. A `mask` of bools selects the positions of the source to which each position attends; it broadcasts
    /// to `[.., heads, positions, source positions]`. A position that attends to none gets the bias of [`out`](Self::out).
    ///
    /// # Errors
    /// If `x` or `source` has fewer than two dimensions, shapes or dtypes do not fit, the mask is not bool, or the key heads do not divide
    /// the heads.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, source: &Tensor, mask: Option<&Tensor>) -> Tensor {
        pinned(|| {
            let projected = self.project(source);
            self.apply_projected(x, &projected, mask)
        })
    }

    /// The keys and the values of a source, `dtype[.., source positions, key heads, size]`, for [`CrossAttention::apply_projected`]: a
    /// decoder that computes one position after another needs them once.
    ///
    /// ```
    /// use remat::{DType, Tensor, nn::CrossAttention, random};
    /// let attention = CrossAttention::new(random::key(0), [16, 24], [4, 2], 4);
    /// let source = random::normal(random::key(1), [2, 7, 24], DType::F32);
    /// let projected = attention.project(&source);
    /// assert_eq!(projected[0].shape()?, [2, 7, 2, 4]);
    /// let x = random::normal(random::key(2), [2, 1, 16], DType::F32);
    /// let y = attention.apply_projected(&x, &projected, None);
    /// assert_eq!(y.to_vec::<f32>()?, attention.apply(&x, &source, None).to_vec::<f32>()?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`CrossAttention::apply`]: both are failed tensors.
    #[track_caller]
    pub fn project(&self, source: &Tensor) -> [Tensor; 2] {
        pinned(|| {
            named_scope("cross_attention", || {
                deferred_array(|| {
                    self.expect_heads()?;
                    let [k, v] = [&self.k, &self.v].map(|map| split_heads(APPLY, map, source, self.key_heads));
                    Ok([k?, v?].map(|y| y.named("qkv")))
                })
            })
        })
    }

    /// As [`CrossAttention::apply`], given what [`CrossAttention::project`] makes of the source.
    ///
    /// # Errors
    /// As [`CrossAttention::apply`].
    #[track_caller]
    pub fn apply_projected(&self, x: &Tensor, [keys, values]: &[Tensor; 2], mask: Option<&Tensor>) -> Tensor {
        pinned(|| {
            named_scope("cross_attention", || {
                deferred(|| {
                    self.expect_heads()?;
                    let q = split_heads(APPLY, &self.q, x, self.heads)?.named("qkv");
                    let config =
                        AttentionConfig { causal: self.causal, mask: mask.cloned(), ..AttentionConfig::default() };
                    join_heads(APPLY, &self.out, &dot_product_attention(&q, keys, values, &config))
                })
            })
        })
    }

    /// Fails if the heads do not fit. An error of the weights, such as that of `init`, takes precedence over those of a call.
    fn expect_heads(&self) -> Result<()> {
        self.q.weight.aval()?;
        expect_groups(APPLY, self.heads, self.key_heads)
    }
}
