//! Low-rank adapters (LoRA): a trained model learns something new, and only a small part of its parameters changes.
//!
//! Run it with `cargo run -p remat --example lora`.

use remat::nn::{Gpt2, Gpt2Config, Lora, next_token_loss};
use remat::optim::{AdamW, Frozen, Optimizer, Partition};
use remat::{Result, Tensor, jit, random, tree, value_and_grad};

/// Sequences that count up by `by`, modulo 32.
fn counting(by: i32) -> Tensor {
    let start = Tensor::arange(0..16).reshape([16, 1]) * 2;
    (start + Tensor::arange(0..13) * by) % 32
}

fn loss(model: &Gpt2, text: &Tensor) -> Tensor {
    next_token_loss(&model.apply(&text.index((.., ..-1))), &text.index((.., 1..)), None)
}

/// The model after `steps` steps of an optimizer on a text.
fn trained<O: Optimizer>(optimizer: &O, model: Gpt2, text: &Tensor, steps: usize) -> Result<Gpt2> {
    let step = jit(|(model, state): &(Gpt2, O::State<Gpt2>)| -> Result<_> {
        let (loss, gradient) = value_and_grad(|model: &Gpt2| loss(model, text))(model)?;
        let (model, state) = optimizer.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    let state = optimizer.init(&model);
    let parameters =
        |tree: &Vec<(tree::Path, Tensor)>| -> Result<usize> { tree.iter().map(|(_, leaf)| leaf.size()).sum() };
    println!("  the optimizer keeps {} numbers", parameters(&tree::leaves(&state))?);
    let (mut model, mut state) = (model, state);
    for i in 0..steps {
        let loss;
        (model, state, loss) = step.call((model, state))?;
        if i == 0 || i + 1 == steps {
            println!("  step {:>2}: loss {loss}", i + 1);
        }
    }
    Ok(model)
}

fn main() -> Result<()> {
    let config =
        Gpt2Config { vocab_size: 32, n_positions: 12, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
    let [weights, adapters] = random::key(0).split();
    let adam = AdamW::new(0.02);

    println!("all parameters learn to count by one:");
    let base = trained(&adam, Gpt2::new(weights, &config), &counting(1), 40)?;

    println!("adapters learn to count by three:");
    let lora = Lora { rank: 4, alpha: 8.0, maps: vec!["**.attn.qkv".into(), "**.mlp.*".into()] };
    let model = lora.attach(adapters, &base)?;
    let only_adapters = Partition { mask: Lora::mask(), chosen: adam, others: Frozen };
    let adapted = trained(&only_adapters, model, &counting(3), 60)?;

    // The weights are as they were.
    assert!(adapted.embed.table.allclose(&base.embed.table, 0.0, 0.0)?);
    // Merged, the model has the shape that it had, and computes what the adapters taught it.
    let merged = Lora::merge(&adapted);
    let (before, after) = (loss(&base, &counting(3)).item::<f32>()?, loss(&merged, &counting(3)).item::<f32>()?);
    println!("counting by three: loss {before:.3} of the base, {after:.3} of the merged model");
    assert!(after < 0.5 * before);
    Ok(())
}
