//! The speed of tracing and transforming: nothing here computes with tensors. `cargo bench -p remat --bench core`.

use divan::{Bencher, black_box};
use remat::ir::Jaxpr;
use remat::{DType, Policy, Tensor, Tree, checkpoint, einsum, grad, jit, make_jaxpr};

fn main() {
    divan::main();
}

/// The equations of a chain: time must grow as they do.
const LENGTHS: [usize; 3] = [10_000, 100_000, 1_000_000];

/// A chain of sines of the given length.
fn chain(length: usize) -> impl Fn(&Tensor) -> Tensor {
    move |x| {
        let mut y = x.clone();
        for _ in 0..length {
            y = y.sin();
        }
        y
    }
}

/// A chain traced, differentiated and printed: gives the length of the text.
#[divan::bench(args = LENGTHS, sample_count = 3, sample_size = 1)]
fn chain_trace_grad_print(length: usize) -> usize {
    let program = gradient(chain(length), &Tensor::from(1.0f32));
    program.to_string().len()
}

#[divan::bench(args = LENGTHS, sample_count = 3, sample_size = 1)]
fn chain_trace(length: usize) -> usize {
    make_jaxpr(chain(length))(&Tensor::from(1.0f32)).unwrap().jaxpr.eqns.len()
}

#[divan::bench(args = LENGTHS, sample_count = 3, sample_size = 1)]
fn chain_checkpointed(length: usize) -> usize {
    gradient(checkpoint(Policy::Nothing, chain(length)), &Tensor::from(1.0f32)).eqns.len()
}

/// The regions are nested to the depth of the logarithm of the length.
#[divan::bench(args = [256, 1024, 4096], sample_count = 3, sample_size = 1)]
fn recursive_checkpoint(length: usize) -> usize {
    gradient(move |x: &Tensor| recursive(length, x), &Tensor::from(1.0f32)).eqns.len()
}

/// Applies `sin` to `x` `length` times; the first half of each half is a region.
fn recursive(length: usize, x: &Tensor) -> Tensor {
    if length == 1 {
        return x.sin();
    }
    let first = checkpoint(Policy::Nothing, move |x: &Tensor| recursive(length / 2, x))(x);
    recursive(length - length / 2, &first)
}

fn gradient(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Jaxpr {
    (*make_jaxpr(grad(f))(x).unwrap().jaxpr).clone()
}

#[divan::bench]
fn gpt_trace(bencher: Bencher) {
    let model = Gpt::new(24);
    bencher.bench_local(|| make_jaxpr(|m: &Gpt| loss(m, &Policy::Nothing))(black_box(&model)).unwrap());
}

/// Trace, gradient with every block checkpointed, dead code eliminated, simplified: what compiling starts from.
#[divan::bench(args = ["Nothing", "Everything", "Dots", "Names"])]
fn gpt_trace_grad_checkpoint_dce(bencher: Bencher, policy: &str) {
    let model = Gpt::new(24);
    let policy = match policy {
        "Nothing" => Policy::Nothing,
        "Everything" => Policy::Everything,
        "Dots" => Policy::Dots,
        _ => Policy::names(["attn"]),
    };
    bencher.bench_local(|| {
        let step = jit(grad(|m: &Gpt| loss(m, &policy)));
        step.lower(black_box(&model)).unwrap().jaxpr().eqns.len()
    });
}

const VOCABULARY: usize = 32;
const CONTEXT: usize = 8;
const WIDTH: usize = 16;
const HEADS: usize = 4;

/// A transformer, as small as it can be: its size does not matter, since nothing is computed.
#[derive(Clone, Tree)]
struct Gpt {
    tokens: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: (Tensor, Tensor),
    head: Tensor,
}

#[derive(Clone, Tree)]
struct Block {
    norm1: (Tensor, Tensor),
    qkv: (Tensor, Tensor),
    out: (Tensor, Tensor),
    norm2: (Tensor, Tensor),
    up: (Tensor, Tensor),
    down: (Tensor, Tensor),
}

impl Gpt {
    fn new(layers: usize) -> Gpt {
        let zeros = |shape: &[usize]| Tensor::zeros(shape.to_vec(), DType::F32);
        let linear = |n: usize, m: usize| (zeros(&[n, m]), zeros(&[m]));
        let norm = || (zeros(&[WIDTH]), zeros(&[WIDTH]));
        let block = || Block {
            norm1: norm(),
            qkv: linear(WIDTH, 3 * WIDTH),
            out: linear(WIDTH, WIDTH),
            norm2: norm(),
            up: linear(WIDTH, 4 * WIDTH),
            down: linear(4 * WIDTH, WIDTH),
        };
        Gpt {
            tokens: zeros(&[VOCABULARY, WIDTH]),
            positions: zeros(&[CONTEXT, WIDTH]),
            blocks: (0..layers).map(|_| block()).collect(),
            norm: norm(),
            head: zeros(&[WIDTH, VOCABULARY]),
        }
    }
}

fn apply_linear((weight, bias): &(Tensor, Tensor), x: &Tensor) -> Tensor {
    x.matmul(weight) + bias
}

fn apply_norm((scale, bias): &(Tensor, Tensor), x: &Tensor) -> Tensor {
    x.layer_norm(-1, 1e-5, Some(scale), Some(bias))
}

fn attention(block: &Block, x: &Tensor) -> Tensor {
    let batch = x.shape().unwrap()[0];
    let qkv = apply_linear(&block.qkv, x).reshape([batch, CONTEXT, 3, HEADS, WIDTH / HEADS]);
    let part = |i: i64| qkv.index((.., .., i)).transpose([0, 2, 1, 3]);
    let scores = einsum("bhqd,bhkd->bhqk", &[&part(0), &part(1)]) * 0.5;
    let mask = Tensor::ones([CONTEXT, CONTEXT], DType::Bool).tril(0);
    let weights = mask.select(&scores, scores.full_like(-1e9)).softmax(-1);
    let mixed = einsum("bhqk,bhkd->bqhd", &[&weights, &part(2)]).reshape([batch, CONTEXT, WIDTH]);
    apply_linear(&block.out, &mixed)
}

fn apply_block(block: &Block, x: &Tensor) -> Tensor {
    let x = x + attention(block, &apply_norm(&block.norm1, x)).named("attn");
    let hidden = apply_linear(&block.up, &apply_norm(&block.norm2, &x)).gelu();
    &x + apply_linear(&block.down, &hidden)
}

/// Cross entropy of the next token, every block a region.
fn loss(model: &Gpt, policy: &Policy) -> Tensor {
    let tokens = Tensor::zeros([2, CONTEXT], DType::I32);
    let mut x = model.tokens.take(&tokens, 0) + &model.positions;
    for block in &model.blocks {
        x = checkpoint(policy.clone(), |(block, x): &(Block, Tensor)| apply_block(block, x))(&(block.clone(), x));
    }
    let logits = apply_norm(&model.norm, &x).matmul(&model.head);
    -logits.log_softmax(-1).take_along_axis(&tokens.expand_dims([-1]), -1).mean(..)
}
