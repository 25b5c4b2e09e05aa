//! A small network learns which of two spirals a point belongs to.
//!
//! Run it with `cargo run -p remat --example train_mlp`.

use remat::optim::{self, AdamW, Optimizer, Schedule};
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, jit, nn, random};

#[derive(Clone, Tree)]
struct Mlp {
    layers: Vec<nn::Linear>,
    out: nn::Linear,
}

impl Mlp {
    fn init(key: random::Key, width: usize, depth: usize) -> Mlp {
        let [layers, out] = key.split();
        let layers = layers.split_vec(depth).into_iter().enumerate();
        let inputs = |i: usize| if i == 0 { 2 } else { width };
        Mlp {
            layers: layers.map(|(i, key)| nn::Linear::new(key, inputs(i), width)).collect(),
            out: nn::Linear::new(out, width, 2),
        }
    }

    /// The hidden layers are computed again in the backward pass, from the first one's input.
    fn apply(&self, x: &Tensor) -> Tensor {
        let hidden = checkpoint(Policy::Nothing, |x: &Tensor| {
            self.layers.iter().fold(x.clone(), |x, layer| layer.apply(&x).tanh())
        });
        self.out.apply(&hidden(x))
    }
}

/// `n` points in the plane, and the spiral that each is on.
fn spirals(key: random::Key, n: usize) -> (Tensor, Tensor) {
    let [radius, noise] = key.split();
    let class = Tensor::iota(n, 0, DType::I32) % 2;
    let radius = random::uniform(radius, [n], DType::F32, 0.1..1.0);
    let angle = &radius * 6.0 + class.to_dtype(DType::F32) * std::f64::consts::PI;
    let x = Tensor::stack(&[&radius * angle.cos(), &radius * angle.sin()], 1);
    (x + random::normal(noise, [n, 2], DType::F32) * 0.02, class)
}

fn main() -> Result<()> {
    let [weights, train, test] = random::key(1).split();
    let steps = 300;
    let learning_rate = Schedule::WarmupCosine { start: 0.0, peak: 0.02, end: 0.0, warmup_steps: 20, steps };
    let adam = AdamW::new(learning_rate);

    // The state, of model and optimizer, is updated in place. The points are the batch of every step.
    let mut state = adam.start(Mlp::init(weights, 32, 3));
    let step =
        jit(optim::step(adam, |model: &Mlp, (x, class): &(Tensor, Tensor)| nn::cross_entropy(&model.apply(x), class)));
    let train = spirals(train, 256);
    for i in 0..steps {
        let loss = step.update(&mut state, &train)?;
        if i % 50 == 0 || i + 1 == steps {
            println!("step {i:>3}: loss {loss}");
        }
    }

    let ((model, _), (x, class)) = (state, spirals(test, 1000));
    let found = model.apply(&x).argmax(-1);
    let right = found.eq(&class).to_dtype(DType::F32).mean(..).item::<f32>()?;
    println!("of 1000 new points {:.1} % are put on their spiral", 100.0 * right);
    assert!(right > 0.95);
    Ok(())
}
