//! Linear maps and embeddings.

use remat_ir::{Error, ErrorKind, Result};

use super::LowRank;
use crate::layer::{deferred, pinned};
use crate::random::{self, Key};
use crate::{DType, Tensor, Tree};

/// `x @ weight + bias` along the last axis.
///
/// ```
/// use remat::{DType, Tensor, nn::Linear, random};
/// let layer = Linear::new(random::key(0), 3, 5);
/// let y = layer.apply(&Tensor::ones([2, 4, 3], DType::F32));
/// assert_eq!(y.shape()?, [2, 4, 5]);
///
/// let no_bias = layer.without_bias();
/// # assert_eq!(no_bias.apply(&Tensor::ones([3], DType::F32)).shape()?, [5]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Linear {
    /// `[inputs, outputs]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// A low-rank product that is added to the weight; [`Lora`](super::Lora) sets it.
    pub adapter: Option<LowRank>,
}

impl Linear {
    /// Normal weights of variance `1 / inputs`, truncated at two standard deviations, and a bias of zeros. Source: LeCun et al., "Efficient
    /// backprop", 1998.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, inputs: usize, outputs: usize, dtype: DType) -> Linear {
        pinned(|| {
            let weight = normal(key, &[inputs, outputs], dtype, 1.0 / (inputs.max(1) as f64).sqrt());
            Linear { weight, bias: Some(Tensor::zeros([outputs], dtype)), adapter: None }
        })
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }

    /// The map of `x`, of type `dtype[.., inputs]`: `dtype[.., outputs]`.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of inputs, or the dtypes differ.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            expect_features("nn::Linear::apply", x, &self.weight, 0)?;
            let mut y = x.matmul(&self.weight);
            if let Some(LowRank { a, b, scale }) = &self.adapter {
                y += x.matmul(a).matmul(b) * *scale;
            }
            Ok(match &self.bias {
                Some(bias) => y + bias,
                None => y,
            })
        })
    }
}

/// Fails unless the last axis of `x` has the features of this axis of a layer's weights.
pub(super) fn expect_features(layer: &str, x: &Tensor, weights: &Tensor, axis: usize) -> Result<()> {
    let (x, weights) = (x.aval()?, weights.aval()?);
    // Weights without this axis are an error of the product.
    let Some(&features) = weights.shape.get(axis) else { return Ok(()) };
    if x.shape.last() == Some(&features) {
        return Ok(());
    }
    let message = format!("takes {features} features in the last axis, as its weights {weights} do, not {x}");
    Err(Error::new(ErrorKind::Shape, layer, message))
}

/// A table of vectors, one for each entry.
///
/// ```
/// use remat::{Tensor, nn::Embedding, random};
/// let bytes = Embedding::new(random::key(0), 256, 16);
/// let x = bytes.apply(&Tensor::new([[104, 105]]));
/// assert_eq!(x.shape()?, [1, 2, 16]);
/// assert_eq!(bytes.logits(&x).shape()?, [1, 2, 256]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Embedding {
    /// `[entries, features]`
    pub table: Tensor,
}

impl Embedding {
    /// Normal vectors of standard deviation 0.02, truncated at two standard deviations. Source: Radford et al., "Improving language
    /// understanding by generative pre-training", 2018.
    ///
    /// # Errors
    /// If the dtype is not a float: the table is a failed tensor.
    #[track_caller]
    pub fn init(key: Key, entries: usize, features: usize, dtype: DType) -> Embedding {
        pinned(|| Embedding { table: normal(key, &[entries, features], dtype, 0.02) })
    }

    /// The vectors at these indices, a tensor of integers, as in [`Tensor::take`]: `dtype[.., features]`.
    ///
    /// # Errors
    /// If the indices are not integers.
    #[track_caller]
    pub fn apply(&self, entries: &Tensor) -> Tensor {
        self.table.take(entries, 0)
    }

    /// The products of `x`, of type `dtype[.., features]`, with the vectors of all entries, `dtype[.., entries]`: an output head that
    /// shares the weights.
    ///
    /// # Errors
    /// If the last size of `x` is not the number of features, or the dtypes differ.
    #[track_caller]
    pub fn logits(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            expect_features("nn::Embedding::logits", x, &self.table, 1)?;
            Ok(x.matmul(&self.table.t()))
        })
    }
}

/// Normal numbers of this standard deviation, truncated at two standard deviations.
pub(super) fn normal(key: Key, shape: &[usize], dtype: DType, deviation: f64) -> Tensor {
    deferred(|| {
        expect_float_weights(dtype)?;
        Ok(random::truncated_normal(key, shape, dtype, -2.0..2.0) * deviation)
    })
}

/// Fails unless weights of this dtype can be drawn.
pub(super) fn expect_float_weights(dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::DType, "nn", format!("weights must have a float dtype, not {dtype}")))
}
