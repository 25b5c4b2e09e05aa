//! The ten-minute start.

// ANCHOR: uses
use remat::optim::{self, AdamW, Optimizer};
use remat::report::print_saved_residuals;
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, grad, jit, nn, random};
// ANCHOR_END: uses

// ANCHOR: model
#[derive(Clone, Tree)]
struct Model {
    up: nn::Linear,
    down: nn::Linear,
}

impl Model {
    fn init(key: random::Key) -> Model {
        let [up, down] = key.split();
        Model { up: nn::Linear::new(up, 2, 32), down: nn::Linear::new(down, 32, 1) }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.down.apply(&self.up.apply(x).named("hidden").tanh())
    }
}
// ANCHOR_END: model

// ANCHOR: loss
fn loss(model: &Model, x: &Tensor, y: &Tensor) -> Tensor {
    (model.apply(x) - y).square().mean(..)
}
// ANCHOR_END: loss

pub(crate) fn main() -> Result<()> {
    println!("== derivative");
    // ANCHOR: derivative
    let f = |x: &Tensor| x.sin() * x;
    let x = Tensor::from(2.0f64);
    println!("f(2) = {}, f'(2) = {}, f''(2) = {}", f(&x), grad(f)(&x)?, grad(grad(f))(&x)?);
    // ANCHOR_END: derivative

    println!("== train");
    // ANCHOR: train
    // Points of a saddle: y = x0 * x1.
    let [weights, points] = random::key(0).split();
    let x = random::uniform(points, [256, 2], DType::F32, -1.0..1.0);
    let y = x.index((.., ..1)) * x.index((.., 1..));

    let adam = AdamW::new(0.02);
    let mut state = adam.start(Model::init(weights)); // the model, and the state of the optimizer
    let step = jit(optim::step(adam, |model: &Model, (x, y): &(Tensor, Tensor)| loss(model, x, y)));

    let batch = (x.clone(), y.clone());
    for i in 0..=200 {
        let loss = step.update(&mut state, &batch)?;
        if i % 50 == 0 {
            println!("step {i:>3}: loss {:.4}", loss.item::<f32>()?);
        }
    }
    let (model, _) = state;
    // ANCHOR_END: train

    println!("== kept");
    // ANCHOR: kept
    print_saved_residuals(|model: &Model| loss(model, &x, &y), &model)?;
    // ANCHOR_END: kept

    println!("== checkpoint");
    // ANCHOR: checkpoint
    let frugal = checkpoint(Policy::Nothing, |model: &Model| loss(model, &x, &y));
    print_saved_residuals(&frugal, &model)?;

    let plain = grad(|model: &Model| loss(model, &x, &y))(&model)?;
    let again = grad(&frugal)(&model)?;
    assert_eq!(plain.up.weight.to_vec::<f32>()?, again.up.weight.to_vec::<f32>()?); // in every bit
    // ANCHOR_END: checkpoint
    Ok(())
}
