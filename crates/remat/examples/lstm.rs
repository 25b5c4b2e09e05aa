//! An LSTM, a loop over positions, remembers the first token of a sequence until the last.
//!
//! Run it with `cargo run -p remat --example lstm`. For long sequences the state is kept at some positions only, and the
//! positions between are computed again: `scan_checkpointed`.

use remat::nn::{Linear, Lstm, LstmState};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::report::saved_residuals;
use remat::{DType, LoopScheme, Result, Tensor, Tree, jit, nn, random, scan_checkpointed, value_and_grad};

const TOKENS: usize = 4;
const FEATURES: usize = 16;

#[derive(Clone, Tree)]
struct Reader {
    lstm: Lstm,
    out: Linear,
}

impl Reader {
    /// The logits after the last position of tokens `[batch, positions]`.
    fn apply(&self, tokens: &Tensor) -> Result<Tensor> {
        let (_, last) = self.lstm.apply(&tokens.one_hot(TOKENS, DType::F32), None)?;
        Ok(self.out.apply(&last.hidden))
    }

    /// The same, with few states kept: the step of an LSTM in a loop of one's own.
    fn apply_checkpointed(&self, tokens: &Tensor, scheme: LoopScheme) -> Result<Tensor> {
        let x = tokens.one_hot(TOKENS, DType::F32).swap_axes(0, 1);
        let zeros = Tensor::zeros([tokens.dim(0)?, FEATURES], DType::F32);
        let begin = LstmState { hidden: zeros.clone(), cell: zeros };
        let step = |state: &LstmState, x: &Tensor| Ok::<_, remat::Error>((self.lstm.step(x, state), ()));
        let (last, ()) = scan_checkpointed(scheme, step, &begin, &x)?;
        Ok(self.out.apply(&last.hidden))
    }
}

fn tokens(key: random::Key, positions: usize) -> Tensor {
    random::randint(key, [32, positions], DType::I32, 0..TOKENS as i32)
}

fn main() -> Result<()> {
    let [lstm, out, batches, long] = random::key(0).split();
    let mut model = Reader { lstm: Lstm::new(lstm, TOKENS, FEATURES), out: Linear::new(out, FEATURES, TOKENS) };

    let adam = AdamW::new(0.02);
    let step = jit(|(model, state, tokens): &(Reader, Moments<Reader>, Tensor)| -> Result<_> {
        let loss = |model: &Reader| Ok(nn::cross_entropy(&model.apply(tokens)?, &tokens.index((.., 0))));
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    let mut state = adam.init(&model);
    let mut last = f32::INFINITY;
    for i in 0..150 {
        let loss;
        (model, state, loss) = step.call((model, state, tokens(batches.fold_in(i), 8)))?;
        last = loss.item::<f32>()?;
        if i % 30 == 29 {
            println!("step {:>3}: loss {last:.4}", i + 1);
        }
    }
    assert!(last < 0.3, "the loss is {last}");

    // What the backward pass keeps of 256 positions.
    let tokens = tokens(long, 256);
    for scheme in [LoopScheme::Levels(1), LoopScheme::Levels(2), LoopScheme::Binomial { states: 8 }] {
        let loss = |model: &Reader| Ok(model.apply_checkpointed(&tokens, scheme.clone())?.square().sum(..));
        let kept = saved_residuals(loss, &model)?.intermediate_bytes();
        println!("256 positions, {scheme:?}: {kept} bytes");
    }
    Ok(())
}
