//! The example of the README, word for word: so Clippy reads it too.

use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, jit, value_and_grad};

#[derive(Clone, Tree)]
struct Block {
    up: Tensor,
    down: Tensor,
}

#[derive(Clone, Tree)]
struct Model {
    blocks: Vec<Block>,
}

fn loss(model: &Model, x: &Tensor) -> Tensor {
    let mut x = x.clone();
    for block in &model.blocks {
        let run = |x: &Tensor| x + x.matmul(&block.up).gelu().named("hidden").matmul(&block.down);
        x = checkpoint(Policy::names(["hidden"]), run)(&x);
    }
    x.square().mean(..)
}

fn main() -> Result<()> {
    let block = Block { up: Tensor::full([4, 8], 0.1, DType::F32), down: Tensor::full([8, 4], 0.1, DType::F32) };
    let model = Model { blocks: vec![block; 3] };
    let step = jit(|(model, x): &(Model, Tensor)| value_and_grad(|model: &Model| loss(model, x))(model));
    let (value, gradient) = step.call((model, Tensor::ones([2, 4], DType::F32)))?;
    println!("{value}, and gradients of {} blocks", gradient.blocks.len()); // gradient: Model
    Ok(())
}
