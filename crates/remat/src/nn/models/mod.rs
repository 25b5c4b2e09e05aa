//! Whole models: configurations with the field names of Hugging Face's `config.json`, weights, and forward passes.

mod gpt2;
mod llama;
mod resnet;
mod unet;
mod vit;

pub use gpt2::{Gpt2, Gpt2Config};
pub use llama::{Llama, LlamaBlock, LlamaConfig};
pub use resnet::{ConvNorm, ResNet, ResNetBlock, ResNetConfig};
pub use unet::{UNet, UNetBlock, UNetConfig, UNetDown, UNetUp};
pub use vit::{Vit, VitConfig};

use remat_ir::{Error, ErrorKind, Result};

use crate::layer::deferred;
use crate::nn::{Embedding, Linear};
use crate::random::{self, Key};
use crate::{DType, Tensor, tree};

/// The number of positions of `tokens`, integers `[batch, positions]`.
fn positions(operation: &str, tokens: &Tensor) -> Result<usize> {
    let aval = tokens.aval()?;
    match aval.shape[..] {
        [_, positions] if aval.dtype.is_integer() => Ok(positions),
        _ => {
            let message = format!("the tokens must be integers [batch, positions], not {aval}");
            Err(Error::new(ErrorKind::Shape, operation, message))
        }
    }
}

/// The head of a language model, unless it is tied to the token embedding. Its sizes are `features` and the size of the vocabulary.
fn untied_head(key: Key, is_tied: bool, [features, vocabulary]: [usize; 2], dtype: DType) -> Option<Linear> {
    (!is_tied).then(|| Linear { bias: None, ..Linear::init(key, features, vocabulary, dtype) })
}

/// The logits of normalised features, from the head or the token embedding.
fn logits(head: Option<&Linear>, embed: &Embedding, x: &Tensor) -> Tensor {
    head.map_or_else(|| embed.logits(x), |head| head.apply(x))
}

/// The model, or one with failed weights if its configuration is wrong.
fn checked<M: crate::Tree>(configuration: Result<()>, model: M) -> M {
    match configuration {
        Ok(()) => model,
        Err(error) => tree::map(&model, |_| deferred(|| Err(error.clone()))),
    }
}

/// The model with normal weights of mean 0 in every matrix; vectors, which are biases and scales, stay. `deviation` gives the standard
/// deviation of the matrix at a path. Failed weights stay too.
fn with_normal_matrices<M: crate::Tree>(key: &Key, model: &M, deviation: impl Fn(&str) -> f64) -> M {
    let mut number = 0u32;
    tree::map_with_path(model, |path, leaf| match leaf.aval() {
        Ok(aval) if aval.rank() >= 2 => {
            number += 1;
            let normal = random::normal(key.fold_in(number), &aval.shape[..], DType::F32);
            (normal * deviation(&path.to_string())).to_dtype(aval.dtype)
        }
        _ => leaf.clone(),
    })
}
