//! A decoder as a function, with its blocks as a loop over stacked weights.

use remat::nn::{AttentionConfig, cross_entropy, dot_product_attention};
use remat::{DType, Device, JitOptions, Policy, Result, Tensor, Tree, checkpoint, jit_with, random, scan, tree};

use super::config::{Config, Kind};

/// The number that is added to a variance before the square root.
const EPS: f64 = 1e-5;

/// The base of the rotary frequencies of queries and keys.
const ROTATION_BASE: f64 = 500_000.0;

/// The range of random weights on either side of 0.
const RANGE: f64 = 0.035;

/// Scale and shift of a norm; RMS norms have no shift.
#[derive(Clone, Tree)]
struct Norm {
    scale: Tensor,
    bias: Option<Tensor>,
}

#[derive(Clone, Tree)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// The weights of all blocks, stacked along the first axis; inside the loop, those of one block.
#[derive(Clone, Tree)]
struct Block {
    norm1: Norm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norm2: Norm,
    /// The gate of the MLP, if it has one.
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
}

/// The weights of a model.
#[derive(Clone, Tree)]
pub(crate) struct Decoder {
    embed: Tensor,
    positions: Option<Tensor>,
    blocks: Block,
    norm: Norm,
    /// The head, unless it is the embedding.
    head: Option<Tensor>,
}

/// Tokens and their successors, `i32[batch, sequence]`.
#[derive(Clone, Tree)]
pub(crate) struct Batch {
    tokens: Tensor,
    targets: Tensor,
}

impl Batch {
    /// Tokens and their successors.
    pub(crate) fn new(tokens: Tensor, targets: Tensor) -> Batch {
        Batch { tokens, targets }
    }

    /// A batch without elements, for tracing.
    pub(crate) fn shape_only(batch: usize, sequence: usize) -> Batch {
        let tokens = Tensor::shape_only([batch, sequence], DType::I32);
        Batch { targets: tokens.clone(), tokens }
    }
}

impl Decoder {
    /// A model without elements, for tracing.
    pub(crate) fn shape_only(config: &Config, dtype: DType) -> Decoder {
        let Config { layers, width, heads, key_heads, head_features, hidden, vocabulary, .. } = *config;
        let is_gpt = matches!(config.kind, Kind::Gpt2 { .. });
        let weights = |shape: &[usize]| Tensor::shape_only(shape, dtype);
        let norm = |stack: &[usize]| {
            let shape = [stack, &[width]].concat();
            Norm { scale: weights(&shape), bias: is_gpt.then(|| weights(&shape)) }
        };
        let linear = |inputs: usize, outputs: usize, bias: bool| Linear {
            weight: weights(&[layers, inputs, outputs]),
            bias: bias.then(|| weights(&[layers, outputs])),
        };
        let (queries, keys) = (heads * head_features, key_heads * head_features);
        let blocks = Block {
            norm1: norm(&[layers]),
            q: linear(width, queries, config.qkv_bias),
            k: linear(width, keys, config.qkv_bias),
            v: linear(width, keys, config.qkv_bias),
            out: linear(queries, width, config.out_bias),
            norm2: norm(&[layers]),
            gate: (!is_gpt).then(|| linear(width, hidden, config.mlp_bias)),
            up: linear(width, hidden, config.mlp_bias),
            down: linear(hidden, width, config.mlp_bias),
        };
        let positions = match config.kind {
            Kind::Gpt2 { positions } => Some(weights(&[positions, width])),
            Kind::Llama => None,
        };
        let head = (!config.tied).then(|| weights(&[vocabulary, width]));
        Decoder { embed: weights(&[vocabulary, width]), positions, blocks, norm: norm(&[]), head }
    }

    /// A model of random weights on a device. They are drawn on the native engine, so that they are the same everywhere, and that the device needs
    /// no memory to draw them: of -0.035 to 0.035, so that their deviation is 0.02; scales of
    /// norms are 1, and shifts 0. The weights of leaf `i` are `uniform(fold_in(key(0), i), ..)` of f32, which JAX's generator gives too.
    ///
    /// # Errors
    /// If the device has no memory for them.
    pub(crate) fn random(config: &Config, dtype: DType, device: &Device) -> Result<Decoder> {
        let options = JitOptions { device: Some(Device::cpu()), ..JitOptions::default() };
        let (mut number, mut failure) = (0, None);
        let model = tree::map_with_path(&Decoder::shape_only(config, dtype), |path, leaf| {
            let (name, index) = (path.to_string(), number);
            number += 1;
            let drawn = |_: &()| -> Result<Tensor> {
                let shape = leaf.shape()?;
                Ok(if name.ends_with("scale") {
                    Tensor::ones(shape, dtype)
                } else if name.ends_with("bias") {
                    Tensor::zeros(shape, dtype)
                } else {
                    random::uniform(random::key(0).fold_in(index), shape, DType::F32, -RANGE..RANGE).to_dtype(dtype)
                })
            };
            let drawn = jit_with(&options, drawn).call(()).map(|weights| weights.to_device(device));
            drawn.unwrap_or_else(|error| {
                failure.get_or_insert(error);
                leaf.clone()
            })
        });
        failure.map_or(Ok(model), Err)
    }

    /// The mean cross entropy of the next tokens, in nats, with this policy around each block. It is computed in this dtype: weights of
    /// another one are converted where they are used, those of a block inside its region.
    ///
    /// # Errors
    /// The first error of a block.
    pub(crate) fn loss(&self, batch: &Batch, config: &Config, dtype: DType, policy: Option<&Policy>) -> Result<Tensor> {
        let [_, sequence] = batch.tokens.dims()?;
        let mut x = self.embed.take(&batch.tokens, 0).to_dtype(dtype);
        if let Some(positions) = &self.positions {
            x += positions.index(..sequence).to_dtype(dtype);
        }
        let angles = match config.kind {
            Kind::Llama => Some(Angles::new(sequence, config.head_features, x.dtype()?)),
            Kind::Gpt2 { .. } => None,
        };
        let step = |x: &Tensor, block: &Block| {
            let run = |(block, x): &(Block, Tensor)| in_dtype(block, dtype).apply(x, config, angles.as_ref());
            (checkpoint(policy.cloned(), run)(&(block.clone(), x.clone())), ())
        };
        let (x, ()) = scan(step, &x, &self.blocks)?;
        let head = self.head.as_ref().unwrap_or(&self.embed).to_dtype(dtype);
        let logits = in_dtype(&self.norm, dtype).apply(&x).matmul(&head.t());
        Ok(cross_entropy(&logits, &batch.targets))
    }
}

/// Weights in this dtype.
fn in_dtype<T: Tree>(weights: &T, dtype: DType) -> T {
    tree::map(weights, |weight| weight.to_dtype(dtype))
}

impl Norm {
    fn apply(&self, x: &Tensor) -> Tensor {
        match &self.bias {
            Some(bias) => x.layer_norm(-1, EPS, Some(&self.scale), Some(bias)),
            None => x.rms_norm(-1, EPS, Some(&self.scale)),
        }
    }
}

impl Linear {
    fn apply(&self, x: &Tensor) -> Tensor {
        let y = x.matmul(&self.weight);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

impl Block {
    /// The block's result for `x`, of type `dtype[batch, sequence, width]`. Queries, keys and values have the name `qkv`, the result of the
    /// attention `attn`, and the results of the MLP's first products `gate` and `up`.
    fn apply(&self, x: &Tensor, config: &Config, angles: Option<&Angles>) -> Tensor {
        let h = self.norm1.apply(x);
        let heads =
            |linear: &Linear, count: usize| linear.apply(&h).named("qkv").split_heads(count, config.head_features);
        let [q, k, v] = [(&self.q, config.heads), (&self.k, config.key_heads), (&self.v, config.key_heads)]
            .map(|(linear, count)| heads(linear, count));
        let [q, k] = [q, k].map(|x| angles.map_or_else(|| x.clone(), |angles| angles.rotate(&x)));
        let causal = AttentionConfig { causal: true, ..AttentionConfig::default() };
        // The result is named directly: the attention's cotangent reads it, so saving it does not store it twice. The logarithms of its
        // sums have no name and are computed again.
        let mixed = dot_product_attention(&q, &k, &v, &causal).named("attn").join_heads();
        let x = x + self.out.apply(&mixed);
        let h = self.norm2.apply(&x);
        let up = self.up.apply(&h).named("up");
        let hidden = match &self.gate {
            Some(gate) => gate.apply(&h).named("gate").silu() * up,
            None => up.gelu(),
        };
        &x + self.down.apply(&hidden)
    }
}

/// Splits heads into a separate axis and joins them.
trait Heads {
    fn split_heads(&self, count: usize, features: usize) -> Tensor;
    fn join_heads(&self) -> Tensor;
}

impl Heads for Tensor {
    fn split_heads(&self, count: usize, features: usize) -> Tensor {
        // A failed tensor stays failed.
        let Ok(shape) = self.shape() else { return self.clone() };
        self.reshape([shape[0], shape[1], count, features])
    }

    fn join_heads(&self) -> Tensor {
        let Ok(shape) = self.shape() else { return self.clone() };
        self.reshape([shape[0], shape[1], shape[2] * shape[3]])
    }
}

/// Cosines and sines of the rotary angles at each position: `[sequence, 1, features / 2]`.
struct Angles {
    cos: Tensor,
    sin: Tensor,
}

impl Angles {
    /// Source: Su et al., "RoFormer", 2021; features of the two halves are paired, as in Llama.
    fn new(sequence: usize, features: usize, dtype: DType) -> Angles {
        let half = features / 2;
        let exponent = Tensor::iota([half], 0, DType::F32) * (-ROTATION_BASE.ln() / half as f64);
        let angles = Tensor::iota([sequence, 1, half], 0, DType::F32) * exponent.exp();
        Angles { cos: angles.cos().to_dtype(dtype), sin: angles.sin().to_dtype(dtype) }
    }

    /// `x` is `[batch, sequence, heads, features]`.
    fn rotate(&self, x: &Tensor) -> Tensor {
        let halves = x.split(2, -1);
        let [a, b] = &halves[..] else { return x.clone() };
        let rotated = [a * &self.cos - b * &self.sin, b * &self.cos + a * &self.sin];
        Tensor::concatenate(&rotated, -1)
    }
}
