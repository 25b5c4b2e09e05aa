//! AdamW with 8-bit moments.

use remat_ir::{Aval, Error, ErrorKind, Result};

use super::adamw::AdamStep;
use super::code::Code;
use super::leaves::{self, Slot, next_step, no_steps, scoped, working_dtype};
use super::schedule::of_rate;
use super::{AdamW, Mask, Optimizer};
use crate::argument::keep;
use crate::trace::{pinned, setters};
use crate::{DType, Tensor, Tree};

/// [`AdamW`] with moments in eight bits: a quarter of the memory of f32, plus one float for each block of each moment.
///
/// A step decodes both moments to f32, applies AdamW, and encodes them again. The elements of a parameter (of each layer, if layers are
/// stacked) are cut into blocks in row-major order. A block is divided by its largest magnitude, which is kept as its scale, and each
/// quotient is stored as a u8 of a dynamic code: 7 decades, with more values in the upper ones. The code of the squared gradient has no
/// sign, and only 0 itself is stored as 0, so that no step divides by a square that was rounded to zero. A block with an element that is
/// NaN or infinite decodes to NaN in all of its elements.
///
/// Source: Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022, with the values of its
/// code; storing small squares as nonzero is from Li, Chen and Zhu, "Memory efficient optimizers with 4-bit states", NeurIPS 2023.
///
/// ```
/// use remat::optim::{Adam8bit, Optimizer};
/// use remat::{DType, Tensor};
/// let adam = Adam8bit::new(0.1);
/// let model = (Tensor::ones([64, 128], DType::F32), Tensor::ones([128], DType::F32));
/// let state = adam.init(&model);
/// assert_eq!((state.mu.0.dtype()?, state.mu.0.shape()?), (DType::U8, &[64, 128][..]));
/// assert_eq!(state.mu_scale.0.shape()?, [32]);
/// // Few elements are kept as AdamW keeps them.
/// assert_eq!((state.mu.1.dtype()?, state.mu_scale.1.size()?), (DType::F32, 0));
/// let (model, _) = adam.update(&model, &model, &state)?;
/// assert!(model.0.allclose(&Tensor::full([64, 128], 0.9, DType::F32), 1e-4, 0.0)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adam8bit {
    /// The learning rate, decay rates of averages, and weight decay.
    pub adamw: AdamW,
    /// The number of elements of a block, at least 1; 256 by default.
    pub block: usize,
    /// Parameters (layers, if they are stacked) with fewer elements keep their moments in f32; 4096 by default, as in bitsandbytes.
    pub min_size: usize,
}

/// The state of [`Adam8bit`].
#[derive(Clone, Debug, Tree)]
pub struct Moments8bit<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The codes of the moving average of the gradient, u8 in the shape of the parameter; for small parameters the average itself, as in
    /// [`Moments`](super::Moments).
    pub mu: M,
    /// The largest magnitude of each block of `mu`, `f32[blocks]` (f64 for parameters in f64); empty for small parameters.
    pub mu_scale: M,
    /// The codes of the moving average of the squared gradient, as `mu`.
    pub nu: M,
    /// The largest element of each block of `nu`, as `mu_scale`.
    pub nu_scale: M,
}

impl Default for Adam8bit {
    fn default() -> Adam8bit {
        Adam8bit { adamw: AdamW::default(), block: 256, min_size: 4096 }
    }
}

of_rate!(Adam8bit: adamw.learning_rate);

setters! { Adam8bit:
    b1(f64) => adamw.b1;
    b2(f64) => adamw.b2;
    eps(f64) => adamw.eps;
    weight_decay(f64) => adamw.weight_decay;
    decay(Mask) => adamw.decay;
    block(usize) => block;
    min_size(usize) => min_size;
}

impl Optimizer for Adam8bit {
    type State<M: Tree> = Moments8bit<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Moments8bit<M> {
        pinned(|| {
            let [mu, mu_scale, nu, nu_scale] =
                leaves::init(model, |parameter, layer_axes| self.slots(parameter, layer_axes));
            Moments8bit { step: no_steps(), mu, mu_scale, nu, nu_scale }
        })
    }

    /// # Errors
    /// As [`Optimizer::update`]; if `block` is 0.
    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Moments8bit<M>) -> Result<(M, Moments8bit<M>)> {
        const NAME: &str = "optim::Adam8bit::update";
        scoped("adam8bit", || {
            if self.block == 0 {
                return Err(Error::new(ErrorKind::Argument, NAME, "`block` is 0 and must be at least 1"));
            }
            let step = next_step(&state.step);
            let mut rule = AdamStep::new(&self.adamw, model, &state.step, &step)?;
            let trees = (model, gradients, [&state.mu, &state.mu_scale, &state.nu, &state.nu_scale]);
            let slots = |parameter: &Aval, layer_axes| self.slots(parameter, layer_axes);
            let (model, [mu, mu_scale, nu, nu_scale]) = leaves::update(NAME, trees, slots, |leaf| {
                let [mu, mu_scale, nu, nu_scale] = &leaf.state;
                let layers = layers(leaf.parameter.aval()?, leaf.layer_axes);
                if !self.is_coded(leaf.parameter.aval()?, layers) {
                    let (parameter, mu, nu) = rule.apply(&leaf, mu, nu);
                    return Ok((parameter, [mu, mu_scale.clone(), nu, nu_scale.clone()]));
                }
                let mu = self.decode(Code::Signed, mu, mu_scale, layers)?;
                let nu = self.decode(Code::Unsigned, nu, nu_scale, layers)?;
                let (parameter, mu, nu) = rule.apply(&leaf, &mu, &nu);
                let (mu, mu_scale) = self.encode(Code::Signed, &mu, layers)?;
                let (nu, nu_scale) = self.encode(Code::Unsigned, &nu, layers)?;
                Ok((parameter, [mu, mu_scale, nu, nu_scale]))
            })?;
            drop(rule);
            Ok((model, Moments8bit { step, mu, mu_scale, nu, nu_scale }))
        })
    }
}

impl Adam8bit {
    fn is_coded(&self, parameter: &Aval, layers: usize) -> bool {
        parameter.size() / layers >= self.min_size.max(1)
    }

    fn slots(&self, parameter: &Aval, layer_axes: usize) -> [Slot; 4] {
        let layers = layers(parameter, layer_axes);
        if !self.is_coded(parameter, layers) {
            return [Slot::like(parameter), Slot::none(), Slot::like(parameter), Slot::none()];
        }
        let codes = |code: Code| Slot { shape: parameter.shape.to_vec(), dtype: DType::U8, fill: code.zero() };
        let blocks = layers * (parameter.size() / layers).div_ceil(self.block.max(1));
        let scales = Slot::zeros(&[blocks], working_dtype(parameter.dtype));
        [codes(Code::Signed), scales.clone(), codes(Code::Unsigned), scales]
    }

    fn encode(&self, code: Code, moments: &Tensor, layers: usize) -> Result<(Tensor, Tensor)> {
        let blocks = self.blocks(moments, layers)?;
        let largest = blocks.abs().max(keep(1));
        // An infinite scale times the code of a nonzero number would be infinite.
        let scales = largest.is_finite().select(&largest, f64::NAN);
        // A block of zeros has scale 0 and codes of zeros.
        let codes = code.encode(&blocks, &scales.eq(0).select(1, &scales));
        Ok((joined(&codes, moments, layers)?, scales.squeeze(1)))
    }

    fn decode(&self, code: Code, codes: &Tensor, scales: &Tensor, layers: usize) -> Result<Tensor> {
        let values = code.decode(&self.blocks(codes, layers)?, scales.dtype()?) * scales.expand_dims([1]);
        joined(&values, codes, layers)
    }

    /// The elements as a matrix with one block per row; the last block of each layer is padded with zeros.
    fn blocks(&self, x: &Tensor, layers: usize) -> Result<Tensor> {
        let size = x.size()? / layers;
        let (blocks, block) = (size.div_ceil(self.block), self.block.min(size));
        let (flat, missing) = (x.reshape([layers, size]), blocks * block - size);
        let flat = if missing == 0 { flat } else { flat.pad([(0, 0), (0, missing as i64)], 0) };
        Ok(flat.reshape([layers * blocks, block]))
    }
}

/// The elements of blocks, in the shape of `like`.
fn joined(blocks: &Tensor, like: &Tensor, layers: usize) -> Result<Tensor> {
    let (size, padded) = (like.size()? / layers, blocks.size()? / layers);
    let flat = blocks.reshape([layers, padded]);
    let flat = if padded == size { flat } else { flat.index((.., ..size)) };
    Ok(flat.reshape(like.shape()?))
}

/// The number of stacked layers of a parameter, each with its own blocks; at least 1.
fn layers(parameter: &Aval, layer_axes: usize) -> usize {
    parameter.shape.iter().take(layer_axes).product::<usize>().max(1)
}
