//! The block of a transformer.

use super::{Attention, KvCache, LayerNorm, Linear};
use crate::layer::pinned;
use crate::random::Key;
use crate::{DType, Result, Tensor, Tree, named_scope};

/// Two linear maps with a [`Tensor::gelu`] between them. The result of the first map has the name `up`, that of the second `mlp`.
///
/// ```
/// use remat::{DType, Tensor, nn::Mlp, random};
/// let mlp = Mlp::new(random::key(0), 16, 64);
/// assert_eq!(mlp.apply(&Tensor::ones([8, 16], DType::F32)).shape()?, [8, 16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Mlp {
    /// From the features to the hidden ones.
    pub up: Linear,
    /// From the hidden features back.
    pub down: Linear,
}

impl Mlp {
    /// Weights as in [`Linear::init`].
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, features: usize, hidden: usize, dtype: DType) -> Mlp {
        pinned(|| {
            let [up, down] = key.split();
            Mlp { up: Linear::init(up, features, hidden, dtype), down: Linear::init(down, hidden, features, dtype) }
        })
    }

    /// The map of `x`, of type `dtype[.., features]`; the result has the same type.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of features, or the dtypes differ.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        pinned(|| named_scope("mlp", || self.down.apply(&self.up.apply(x).named("up").gelu()).named("mlp")))
    }
}

/// A pre-norm transformer block: `x + attn(norm1(x))`, then the same with `norm2` and a [`Mlp`].
///
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
///
/// ```
/// use remat::{DType, Policy, Tensor, checkpoint, nn::Block, random};
/// let block = Block::new(random::key(0), 16, 4);
/// let apply = checkpoint(Policy::names(["attn"]), |x: &Tensor| block.apply(x));
/// assert_eq!(apply(&Tensor::ones([2, 8, 16], DType::F32)).shape()?, [2, 8, 16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Block {
    /// Before the attention.
    pub norm1: LayerNorm,
    /// The attention.
    pub attn: Attention,
    /// Before the two linear maps.
    pub norm2: LayerNorm,
    /// The two linear maps.
    pub mlp: Mlp,
}

impl Block {
    /// Weights as the parts initialise them, with four times as many hidden features.
    ///
    /// # Errors
    /// If the heads do not divide the features, or the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, features: usize, heads: usize, dtype: DType) -> Block {
        pinned(|| {
            let [attn, mlp] = key.split();
            let hidden = features.saturating_mul(4);
            Block {
                norm1: LayerNorm::init(features, dtype),
                attn: Attention::init(attn, features, heads, dtype),
                norm2: LayerNorm::init(features, dtype),
                mlp: Mlp::init(mlp, features, hidden, dtype),
            }
        })
    }

    /// The block's result for `x`, of type `dtype[.., positions, features]`; it has the same type.
    ///
    /// # Errors
    /// As [`Attention::apply`].
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        pinned(|| {
            named_scope("block", || {
                let x = x + self.attn.apply(&self.norm1.apply(x));
                &x + self.mlp.apply(&self.norm2.apply(&x))
            })
        })
    }

    /// As [`Block::apply`] for the next positions of a cache. `layer` is the number of this block in the cache, an i32 scalar, and `x` is
    /// `dtype[batch, positions, features]`.
    ///
    /// # Errors
    /// As [`Attention::apply_cached`].
    #[track_caller]
    pub fn apply_cached(&self, x: &Tensor, layer: &Tensor, cache: &KvCache) -> Result<(Tensor, KvCache)> {
        pinned(|| {
            named_scope("block", || {
                let (mixed, cache) = self.attn.apply_cached(&self.norm1.apply(x), layer, cache)?;
                let x = x + mixed;
                Ok((&x + self.mlp.apply(&self.norm2.apply(&x)), cache))
            })
        })
    }
}
