//! Low-rank adapters of linear maps.

use remat_ir::{Error, ErrorKind, Result};

use super::Linear;
use super::linear::normal;
use crate::optim::Mask;
use crate::random::Key;
use crate::trace::{current_loc, pinned};
use crate::tree::{Path, map_nodes};
use crate::{Tensor, Tree};

/// A low-rank addition to the weights of a linear map: the product of two narrow matrices, times a factor.
#[derive(Clone, Debug, Tree)]
pub struct LowRank {
    /// `[inputs, rank]`
    pub a: Tensor,
    /// `[rank, outputs]`
    pub b: Tensor,
    /// The factor of the product.
    pub scale: f64,
}

/// Low-rank adapters (LoRA) adapt a model by training two narrow matrices beside each chosen linear map, while the model's own weights stay
/// fixed.
///
/// The maps are the [`Linear`]s whose paths match a pattern, as in [`Mask::Paths`], in any model: `blocks.*.attn.qkv`, `**.q`. Source: Hu
/// et al., "LoRA", 2021.
///
/// ```
/// use remat::nn::{Gpt2, Gpt2Config, Lora, next_token_loss};
/// use remat::optim::{AdamW, Frozen, Optimizer, Partition};
/// use remat::{Tensor, grad, random};
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
/// let tokens = Tensor::arange(0..16).reshape([2, 8]);
/// let loss = |model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None);
///
/// let [weights, adapters] = random::key(0).split();
/// let lora = Lora { rank: 4, alpha: 8.0, maps: vec!["**.attn.qkv".into()] };
/// let model = lora.attach(adapters, &Gpt2::new(weights, &config))?;
/// // The adapters are trained, and nothing else; there is no state for the rest.
/// let optimizer = Partition { mask: Lora::mask(), chosen: AdamW::default(), others: Frozen };
/// let state = optimizer.init(&model);
/// let (trained, _) = optimizer.update(&model, &grad(loss)(&model)?, &state)?;
/// assert!(trained.embed.table.allclose(&model.embed.table, 0.0, 0.0)?);
///
/// // In the end they become a part of the weights.
/// let merged = Lora::merge(&trained);
/// assert!(loss(&merged).allclose(&loss(&trained), 1e-5, 1e-6)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// The rank: the width of the narrow matrices.
    pub rank: usize,
    /// The product of the two matrices is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Patterns of the paths of the linear maps.
    pub maps: Vec<String>,
}

const NAME: &str = "nn::Lora::attach";

impl Lora {
    /// The model with adapters beside the maps that match the patterns, in the dtype of their weights. `a` is normal with variance `1 /
    /// inputs` and `b` is zero, so the model computes the same at first. Maps with stacked weights, in a [`Stack`](super::Stack), get
    /// stacked adapters.
    ///
    /// # Errors
    /// If there is no pattern, a pattern matches no linear map, a map already has an adapter or its weights are failed tensors or not
    /// floats, or the rank is 0.
    #[track_caller]
    pub fn attach<M: Tree>(&self, key: Key, model: &M) -> Result<M> {
        let loc = current_loc();
        pinned(|| self.attached(&key, model)).map_err(|error: Error| error.at(loc))
    }

    fn attached<M: Tree>(&self, key: &Key, model: &M) -> Result<M> {
        if self.rank == 0 {
            return Err(Error::new(ErrorKind::Argument, NAME, "the rank must be at least 1"));
        }
        if self.maps.is_empty() {
            let message = "there is no pattern of the linear maps that get adapters";
            return Err(Error::new(ErrorKind::Argument, NAME, message));
        }
        let masks: Vec<Mask> = self.maps.iter().map(|pattern| Mask::paths([pattern])).collect();
        let (mut met, mut paths, mut failed, mut number) = (vec![false; masks.len()], Vec::new(), None, 0u32);
        let adapted = map_nodes(model, |path, map: &Linear| {
            paths.push(path.to_string());
            let mut is_meant = false;
            for (mask, met) in masks.iter().zip(&mut met) {
                let takes = mask.takes(path, &map.weight, 0);
                (*met, is_meant) = (*met || takes, is_meant || takes);
            }
            if !is_meant {
                return None;
            }
            number += 1;
            self.adapter(key.fold_in(number), path, map).map_err(|error| failed.get_or_insert(error).clone()).ok()
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match met.iter().position(|met| !met) {
            None => Ok(adapted),
            Some(i) => {
                let shown: Vec<&str> = paths.iter().take(8).map(String::as_str).collect();
                let more = if paths.len() > shown.len() { ", .." } else { "" };
                let known = if shown.is_empty() { "it has none".to_string() } else { shown.join(", ") + more };
                let message = format!("the pattern `{}` matches no linear map of the model: {known}", self.maps[i]);
                Err(Error::new(ErrorKind::Argument, NAME, message))
            }
        }
    }

    fn adapter(&self, key: Key, path: &Path, map: &Linear) -> Result<Linear> {
        if map.adapter.is_some() {
            return Err(Error::new(ErrorKind::Argument, NAME, format!("the map at `{path}` has an adapter already")));
        }
        let aval = map.weight.aval()?;
        let [stacked @ .., inputs, outputs] = &aval.shape[..] else {
            let message = format!("the weight at `{path}` is not a matrix: {aval}");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        };
        if !aval.dtype.is_float() {
            let message = format!("the weight at `{path}` is not a float: {aval}");
            return Err(Error::new(ErrorKind::DType, NAME, message));
        }
        let shape = |matrix: [usize; 2]| [stacked, &matrix].concat();
        let adapter = LowRank {
            a: normal(key, &shape([*inputs, self.rank]), aval.dtype, 1.0 / (*inputs.max(&1) as f64).sqrt()),
            b: Tensor::zeros(shape([self.rank, *outputs]), aval.dtype),
            scale: self.alpha / self.rank as f64,
        };
        Ok(Linear { weight: map.weight.clone(), bias: map.bias.clone(), adapter: Some(adapter) })
    }

    /// The parameters of all adapters, for a [`Partition`](crate::optim::Partition).
    pub fn mask() -> Mask {
        Mask::paths(["**.adapter.*"])
    }

    /// The model without adapters, whose products are added to the weights. It computes the same up to roundings, also those of weights
    /// narrower than f32.
    #[track_caller]
    pub fn merge<M: Tree>(model: &M) -> M {
        pinned(|| {
            map_nodes(model, |_, map: &Linear| {
                let LowRank { a, b, scale } = map.adapter.as_ref()?;
                let weight = crate::layer::deferred(|| {
                    let dtype = map.weight.dtype()?;
                    let [a, b, weight] = [a, b, &map.weight].map(|x| x.to_dtype(dtype.wide()));
                    Ok((weight + a.matmul(&b) * *scale).to_dtype(dtype))
                });
                Some(Linear { weight, bias: map.bias.clone(), adapter: None })
            })
        })
    }
}
