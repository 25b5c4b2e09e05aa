//! A small GPT learns the text of this file, under a policy that keeps named values; before, it says what its memory is for.
//!
//! Run it with `cargo run -p remat --example gpt`. `remat train` trains such models in earnest.

use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
use remat::optim::{self, AdamW, Optimizer};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, jit, memory, random};

const BATCH: usize = 4;
const CONTEXT: usize = 32;

fn loss(model: &Gpt2, text: &Tensor) -> Tensor {
    next_token_loss(&model.apply(&text.index((.., ..-1))), &text.index((.., 1..)), None)
}

fn main() -> Result<()> {
    // Bytes are the tokens: [windows, CONTEXT + 1].
    let text: Vec<i32> = include_bytes!("gpt.rs").iter().map(|&byte| i32::from(byte)).collect();
    let windows: Vec<i32> = text.windows(CONTEXT + 1).step_by(7).flatten().copied().collect();
    let windows = Tensor::from(windows).reshape([-1, CONTEXT as i64 + 1]);

    let config = Gpt2Config {
        vocab_size: 128,
        n_positions: CONTEXT,
        n_embd: 32,
        n_layer: 2,
        n_head: 2,
        ..Gpt2Config::default()
    };
    let [weights, batches] = random::key(0).split();
    let model = Gpt2::new(weights, &config);

    // The blocks are a list; stacked, they run as a loop. Layers name the values that are worth keeping.
    let batch = windows.index(..BATCH);
    let with = |policy: Policy| -> Result<Gpt2> {
        Ok(Gpt2 { blocks: model.blocks.clone().stacked()?.with_policy(policy), ..model.clone() })
    };
    for policy in [Policy::Everything, Policy::names(["attn"]), Policy::Nothing] {
        let kept = saved_residuals(|model: &Gpt2| loss(model, &batch), &with(policy.clone())?)?;
        println!("{:<18} keeps {:>7} bytes", policy.to_string(), kept.intermediate_bytes());
    }

    // Where the memory of a step without a policy goes, and what would lower it. Nothing runs for this.
    let adam = AdamW::new(0.01);
    println!("{}", memory::report(&adam, &model, |model: &Gpt2| loss(model, &batch))?);
    let mut state = adam.start(with(Policy::names(["attn"]))?);
    let step = jit(optim::step(adam, loss));
    let (mut first, mut last) = (0.0, 0.0);
    let count = windows.dim(0)? as i32;
    for i in 0..40 {
        let rows = random::randint(batches.fold_in(i), [BATCH], DType::I32, 0..count);
        last = step.update(&mut state, &windows.take(&rows, 0))?.item::<f32>()?;
        if i == 0 {
            first = last;
        }
        if i % 10 == 9 {
            println!("step {:>2}: loss {last:.4}", i + 1);
        }
    }
    assert!(last < first - 1.0, "the loss went from {first} to {last}");

    Ok(())
}
