//! The first screen of the README.

use remat::report::print_saved_residuals;
use remat::{DType, Policy, Result, Tensor, checkpoint, jit, random, value_and_grad};

pub(crate) fn main() -> Result<()> {
    let x = Tensor::ones([64, 128], DType::F32);
    let pair = |key: random::Key| {
        let [up, down] = key.split();
        let normal = |key, shape| random::normal(key, shape, DType::F32) * 0.1;
        (normal(up, [128, 512]), normal(down, [512, 128]))
    };
    let layers: Vec<(Tensor, Tensor)> = random::key(0).split_vec(2).into_iter().map(pair).collect();
    println!("== first");
    // ANCHOR: first
    let layer = |x: Tensor, (up, down): &(Tensor, Tensor)| {
        let block = |x: &Tensor| x + x.matmul(up).named("hidden").gelu().matmul(down);
        checkpoint(Policy::names(["hidden"]), block)(&x)
    };
    let loss = |layers: &Vec<(Tensor, Tensor)>| layers.iter().fold(x.clone(), layer).square().mean(..);
    println!("{}", jit(value_and_grad(loss)).memory(&layers)?); // the peak, before anything runs
    print_saved_residuals(loss, &layers)?; // what the backward pass keeps
    let (value, gradient) = value_and_grad(loss)(&layers)?; // gradient: Vec<(Tensor, Tensor)>
    // ANCHOR_END: first
    assert!(value.item::<f32>()? > 0.0 && gradient.len() == 2);
    Ok(())
}
