//! Attention.

use remat_ir::{Error, ErrorKind, Result};

use super::Linear;
use crate::random::Key;
use crate::trace::{current_loc, deferred, pinned};
use crate::{DType, Tensor, Tree, einsum, named_scope};

/// Causal self-attention with several heads: each place of a sequence looks at itself and at those before it.
///
/// Source: Vaswani et al., "Attention is all you need", 2017. Two values bear names: `qkv`, the queries, keys and values
/// in one, and `attn`, the result.
///
/// ```
/// use remat::{DType, Tensor, nn::Attention, random};
/// let attention = Attention::init(random::key(0), 16, 4, DType::F32)?;
/// let x = random::normal(random::key(1), [2, 8, 16], DType::F32);
/// let y = attention.apply(&x);
/// assert_eq!(y.dims()?, [2, 8, 16]);
/// // What comes later does not matter.
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
}

impl Attention {
    /// Weights as [`Linear::init`] makes them.
    ///
    /// # Errors
    /// If the heads do not divide the features.
    #[track_caller]
    pub fn init(key: Key, features: usize, heads: usize, dtype: DType) -> Result<Attention> {
        let loc = current_loc();
        head_size("nn::Attention::init", features, heads).map_err(|error| error.at(loc))?;
        Ok(pinned(|| {
            let [qkv, out] = key.split();
            let qkv = Linear::init(qkv, features, 3 * features, dtype);
            Attention { qkv, out: Linear::init(out, features, features, dtype), heads }
        }))
    }

    /// The attention of `x`, of type `dtype[.., places, features]`; the result has the same type.
    ///
    /// # Errors
    /// If `x` has fewer than two dimensions, its last size is not the number of features, or the dtypes differ.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        pinned(|| named_scope("attention", || deferred(|| self.attend(x))))
    }

    fn attend(&self, x: &Tensor) -> Result<Tensor> {
        const NAME: &str = "nn::Attention::apply";
        let aval = x.aval()?;
        let [batch @ .., places, features] = &aval.shape[..] else {
            let message = format!("takes dimensions of places and of features, not {aval}");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        };
        let size = head_size(NAME, *features, self.heads)?;
        let qkv = self.qkv.apply(x).named("qkv");
        let parts: Vec<usize> = batch.iter().copied().chain([*places, 3, self.heads, size]).collect();
        let qkv = qkv.reshape(parts);
        let [q, k, v] = [0, 1, 2].map(|i| qkv.index((crate::Ellipsis, i, .., ..)));
        let scores = einsum("...qhd,...khd->...hqk", &[&q, &k]) / (size as f64).sqrt();
        let earlier = Tensor::ones([*places, *places], DType::Bool).tril(0);
        let weights = earlier.select(scores, f64::NEG_INFINITY).softmax(-1);
        let mixed = einsum("...hqk,...khd->...qhd", &[&weights, &v]).reshape(&aval.shape[..]);
        Ok(self.out.apply(&mixed).named("attn"))
    }
}

/// The number of features of a head.
///
/// # Errors
/// If the heads do not divide the features.
fn head_size(operation: &str, features: usize, heads: usize) -> Result<usize> {
    if heads == 0 || !features.is_multiple_of(heads) {
        let message = format!("{heads} heads do not divide {features} features");
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(features / heads)
}
