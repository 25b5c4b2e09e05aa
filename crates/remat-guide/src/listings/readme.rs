//! The first screen of the README.

use remat::report::print_saved_residuals;
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, jit, random, value_and_grad};

// ANCHOR: first
#[derive(Clone, Tree)]
struct Layer {
    up: Tensor,
    down: Tensor,
}

fn loss(layers: &[Layer], x: &Tensor) -> Tensor {
    let run = |x: Tensor, layer: &Layer| {
        let block = |x: &Tensor| x + x.matmul(&layer.up).named("hidden").gelu().matmul(&layer.down);
        checkpoint(Policy::names(["hidden"]), block)(&x)
    };
    layers.iter().fold(x.clone(), run).square().mean(..)
}
// ANCHOR_END: first

pub(crate) fn main() -> Result<()> {
    let (x, weights) = (Tensor::ones([64, 128], DType::F32), random::key(0).split_vec(2));
    let layer = |key| {
        let [up, down] = random::Key::split(key);
        let normal = |key, shape| random::normal(key, shape, DType::F32) * 0.1;
        Layer { up: normal(up, [128, 512]), down: normal(down, [512, 128]) }
    };
    let layers: Vec<Layer> = weights.into_iter().map(layer).collect();
    println!("== first");
    // ANCHOR: use
    let step = jit(|layers: &Vec<Layer>| value_and_grad(|layers: &Vec<Layer>| loss(layers, &x))(layers));
    println!("{}", step.memory(&layers)?); // before anything runs
    print_saved_residuals(|layers: &Vec<Layer>| loss(layers, &x), &layers)?;
    let (value, gradient) = step.call(layers)?; // gradient: Vec<Layer>
    // ANCHOR_END: use
    println!("loss {:.4}, gradients of {} layers", value.item::<f32>()?, gradient.len());
    assert!(gradient.len() == 2);
    Ok(())
}
