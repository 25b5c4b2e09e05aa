//! The reference step: loss and gradient of a GPT with respect to all of its weights.
//!
//! The work is the same in every framework that is measured (`bench/peers`): pre-norm blocks, layer norm without scale and bias, causal
//! softmax attention, an MLP with the `tanh` approximation of gelu, no biases, no positions, a head tied to the token embedding, and the
//! mean cross entropy of the next token. Weights and tokens are those that JAX draws from the key 0, so that the losses can be compared
//! too.

use std::array;

use remat::nn::{AttentionConfig, cross_entropy, dot_product_attention};
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, einsum, random, scan};
use remat_command::arguments::up_to;
use serde::{Deserialize, Serialize};

/// Added to a variance before its root.
const EPS: f64 = 1e-5;

/// The score of a masked position.
const MASKED: f64 = -1e9;

/// The standard deviation of the weights.
const DEVIATION: f64 = 0.02;

/// The sizes of the model and of a batch.
#[derive(Clone, Copy, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// Transformer blocks
    #[arg(long, default_value_t = Sizes::REFERENCE.layers, value_parser = up_to(10_000))]
    pub(crate) layers: usize,
    /// Model width: features per token
    #[arg(long, default_value_t = Sizes::REFERENCE.width, value_parser = up_to(1 << 20))]
    pub(crate) width: usize,
    /// Attention heads; they divide the width
    #[arg(long, default_value_t = Sizes::REFERENCE.heads, value_parser = up_to(1 << 20))]
    pub(crate) heads: usize,
    /// Hidden features of the MLP
    #[arg(long, default_value_t = Sizes::REFERENCE.hidden, value_parser = up_to(1 << 20))]
    pub(crate) hidden: usize,
    /// Sequence length in tokens
    #[arg(long, default_value_t = Sizes::REFERENCE.sequence, value_parser = up_to(1 << 24))]
    pub(crate) sequence: usize,
    /// Sequences per step
    #[arg(long, default_value_t = Sizes::REFERENCE.batch, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
    /// Vocabulary size
    #[arg(long, default_value_t = Sizes::REFERENCE.vocabulary, value_parser = up_to(1 << 24))]
    pub(crate) vocabulary: usize,
}

impl Sizes {
    /// The sizes at which frameworks are compared: those of the reference step.
    pub(crate) const REFERENCE: Sizes =
        Sizes { layers: 8, width: 512, heads: 8, hidden: 2048, sequence: 512, batch: 4, vocabulary: 8192 };

    /// Fails unless the heads divide the width.
    ///
    /// # Errors
    /// If they do not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Sizes { heads, width, .. } = self;
        anyhow::ensure!(width.is_multiple_of(*heads), "{heads} heads do not divide a width of {width}");
        Ok(())
    }

    /// Useful operations of a step: those of the matrix products of the forward pass, with the whole square of the attention, and twice as
    /// many for the gradient.
    pub(crate) fn flops(&self) -> f64 {
        let [layers, width, hidden, sequence, batch, vocabulary] =
            [self.layers, self.width, self.hidden, self.sequence, self.batch, self.vocabulary].map(|n| n as f64);
        let block = 2.0 * (4.0 * width * width + 2.0 * width * hidden) + 4.0 * sequence * width;
        3.0 * batch * sequence * (layers * block + 2.0 * width * vocabulary)
    }
}

/// How the blocks are laid out in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LayersAs {
    /// One after the other
    Unroll,
    /// As a loop over stacked weights
    Scan,
}

/// How the attention is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attention {
    /// By two products and a softmax
    Plain,
    /// As one operation
    Fused,
}

/// The weights of a block, or of all blocks stacked, in the same type.
#[derive(Clone, Tree)]
pub(crate) struct Block {
    /// `[width, width]`, as the next three.
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    /// `[width, hidden]`
    up: Tensor,
    /// `[hidden, width]`
    down: Tensor,
}

/// The weights of all blocks.
#[derive(Clone, Tree)]
pub(crate) enum Blocks {
    Unrolled(Vec<Block>),
    Scanned(Box<Block>),
}

/// The model: all weights of the gradient.
#[derive(Clone, Tree)]
pub(crate) struct Gpt {
    blocks: Blocks,
    /// `[vocabulary, width]`
    embed: Tensor,
}

/// The choices of a measurement besides the weights.
pub(crate) struct Choices {
    pub(crate) sizes: Sizes,
    pub(crate) attention: Attention,
    pub(crate) policy: Option<Policy>,
}

impl Gpt {
    /// Random weights, and the tokens of a batch: `i32[batch, sequence]`.
    pub(crate) fn init(sizes: &Sizes, layers_as: LayersAs, dtype: DType) -> (Gpt, Tensor) {
        let normal = |shape: &[usize]| (random::normal(random::key(0), shape, DType::F32) * DEVIATION).to_dtype(dtype);
        let shape = [sizes.batch, sizes.sequence];
        let tokens = random::randint(random::key(0), shape, DType::I32, 0..sizes.vocabulary as i64);
        (Gpt::with(sizes, layers_as, normal), tokens)
    }

    /// Weights of zeros, and tokens of zeros.
    pub(crate) fn zeros(sizes: &Sizes, layers_as: LayersAs, dtype: DType) -> (Gpt, Tensor) {
        let tokens = Tensor::zeros([sizes.batch, sizes.sequence], DType::I32);
        (Gpt::with(sizes, layers_as, |shape| Tensor::zeros(shape, dtype)), tokens)
    }

    /// The model with weights made from their shapes.
    fn with(sizes: &Sizes, layers_as: LayersAs, weights: impl Fn(&[usize]) -> Tensor) -> Gpt {
        let Sizes { layers, width, hidden, vocabulary, .. } = *sizes;
        let [q, k, v, o] = array::from_fn(|_| weights(&[layers, width, width]));
        let stacked =
            Block { q, k, v, o, up: weights(&[layers, width, hidden]), down: weights(&[layers, hidden, width]) };
        let blocks = match layers_as {
            LayersAs::Scan => Blocks::Scanned(Box::new(stacked)),
            LayersAs::Unroll => Blocks::Unrolled((0..layers).map(|i| stacked.of_layer(i)).collect()),
        };
        Gpt { blocks, embed: weights(&[vocabulary, width]) }
    }

    /// The mean cross entropy of each token except the first, in nats.
    ///
    /// # Errors
    /// The first error of a block.
    pub(crate) fn loss(&self, tokens: &Tensor, choices: &Choices) -> Result<Tensor> {
        let mut x = self.embed.take(tokens, 0);
        match &self.blocks {
            Blocks::Unrolled(blocks) => {
                for block in blocks {
                    x = block.checkpointed(&x, choices);
                }
            }
            Blocks::Scanned(blocks) => {
                (x, ()) = scan(|x: &Tensor, block: &Block| (block.checkpointed(x, choices), ()), &x, &**blocks)?;
            }
        }
        let logits = norm(&x).matmul(&self.embed.t());
        Ok(cross_entropy(&logits.index((.., ..-1)), &tokens.index((.., 1..))))
    }
}

impl Block {
    /// The weights of one of the stacked blocks.
    fn of_layer(&self, layer: usize) -> Block {
        remat::tree::map(self, |stacked| stacked.index(layer))
    }

    /// The block under the policy.
    fn checkpointed(&self, x: &Tensor, choices: &Choices) -> Tensor {
        let run = |(block, x): &(Block, Tensor)| block.apply(x, choices);
        checkpoint(choices.policy.clone(), run)(&(self.clone(), x.clone()))
    }

    /// `x` and the result are `[batch, sequence, width]`.
    fn apply(&self, x: &Tensor, choices: &Choices) -> Tensor {
        let Sizes { batch, sequence, heads, width, .. } = choices.sizes;
        let h = norm(x);
        let split = |y: Tensor| y.reshape([batch, sequence, heads, width / heads]);
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|weight| split(h.matmul(weight)));
        let mixed = match choices.attention {
            Attention::Plain => plain_attention(&q, &k, &v, &choices.sizes),
            Attention::Fused => {
                let causal = AttentionConfig { causal: true, ..AttentionConfig::default() };
                dot_product_attention(&q, &k, &v, &causal)
            }
        };
        let x = x + mixed.reshape([batch, sequence, width]).named("attn").matmul(&self.o);
        &x + norm(&x).matmul(&self.up).named("up").gelu().matmul(&self.down)
    }
}

fn norm(x: &Tensor) -> Tensor {
    x.layer_norm(-1, EPS, None, None)
}

/// Causal attention of `[batch, sequence, heads, size]`, by the operations that define it.
fn plain_attention(q: &Tensor, k: &Tensor, v: &Tensor, sizes: &Sizes) -> Tensor {
    let scores = einsum("bqhd,bkhd->bhqk", &[q, k]) / ((sizes.width / sizes.heads) as f64).sqrt();
    let visible = Tensor::ones([sizes.sequence, sizes.sequence], DType::Bool).tril(0);
    let weights = visible.select(scores, MASKED).softmax(-1);
    einsum("bhqk,bkhd->bqhd", &[&weights, v])
}

#[cfg(test)]
mod tests {

    use remat::{Cpu, JitOptions, jit_with, make_jaxpr, value_and_grad};

    use super::*;
    use remat_opt::cost::contractions;

    const SMALL: Sizes = Sizes { layers: 3, width: 8, heads: 2, hidden: 20, sequence: 6, batch: 2, vocabulary: 30 };

    fn choices(attention: Attention, policy: Option<Policy>) -> Choices {
        Choices { sizes: SMALL, attention, policy }
    }

    #[test]
    fn the_useful_operations_are_the_products_of_the_program() {
        let plain = choices(Attention::Plain, None);
        for layers_as in [LayersAs::Unroll, LayersAs::Scan] {
            let (model, tokens) = Gpt::init(&SMALL, layers_as, DType::F32);
            let program = make_jaxpr(|model: &Gpt| model.loss(&tokens, &plain))(&model).unwrap();
            assert_eq!(3.0 * contractions(&program.jaxpr).flops as f64, SMALL.flops(), "{layers_as:?}");
        }
        assert_eq!((Sizes::REFERENCE.flops() / 1e9).round(), 412.0);
    }

    #[test]
    fn the_loss_is_that_of_jax() {
        for attention in [Attention::Plain, Attention::Fused] {
            let loss = |layers_as, policy| {
                let (model, tokens) = Gpt::init(&SMALL, layers_as, DType::F32);
                model.loss(&tokens, &choices(attention, policy)).unwrap().item::<f32>().unwrap()
            };
            let first = loss(LayersAs::Unroll, None);
            // What `bench/peers/jax_step.py` prints for these sizes.
            assert!((first - 3.357_061).abs() < 1e-6, "{attention:?}: {first}");
            assert_eq!(loss(LayersAs::Scan, Some(Policy::Nothing)), first, "{attention:?}");
        }
    }

    /// MiB of temporaries of the reference step, which is compiled for two threads and not run.
    fn temporaries(layers_as: LayersAs, policy: Option<Policy>, dtype: DType) -> f64 {
        let choices = Choices { sizes: Sizes::REFERENCE, attention: Attention::Fused, policy };
        let options = JitOptions { device: Some(Cpu::with_threads(2).unwrap().into()), ..JitOptions::default() };
        let step = jit_with(&options, |(model, tokens): &(Gpt, Tensor)| {
            value_and_grad(|model: &Gpt| model.loss(tokens, &choices))(model)
        });
        let memory = step.memory(&Gpt::zeros(&Sizes::REFERENCE, layers_as, dtype)).unwrap();
        memory.temporaries as f64 / (1 << 20) as f64
    }

    #[test]
    fn temporaries_of_the_reference_step_stay_within_their_targets() {
        let targets = [
            (None, 550.0),
            (Some(Policy::Dots), 540.0),
            (Some(Policy::DotsWithNoBatchDims), 470.0),
            (Some(Policy::Nothing), 240.0),
        ];
        for (policy, target) in targets {
            let [unrolled, scanned] =
                [LayersAs::Unroll, LayersAs::Scan].map(|layers_as| temporaries(layers_as, policy.clone(), DType::F32));
            let text = format!("{policy:?}: {unrolled:.1} MiB unrolled, {scanned:.1} scanned");
            println!("{text}");
            assert!(unrolled.max(scanned) <= target, "{text}");
            // Unrolled layers may keep statistics of rows, and no larger value that a loop over layers does not keep. They need less, since
            // temporaries lie in gradients that are not yet written, and a loop writes those of all layers from its first iteration on.
            assert!(unrolled - scanned <= 1.0, "{text}");
            if policy.is_none() {
                let halves = temporaries(LayersAs::Unroll, None, DType::Bf16);
                println!("{halves:.1} MiB in bf16");
                assert!(halves <= 0.55 * unrolled, "{halves:.1} MiB in bf16, {text}");
            }
        }
    }
}
