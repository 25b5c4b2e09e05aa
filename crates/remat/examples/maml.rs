//! Model-agnostic meta-learning: parameters from which one step of gradient descent learns a new task.
//!
//! Run it with `cargo run -p remat --example maml`. The step is inside of the loss, so that training takes the gradient of a
//! gradient; tasks are the examples of a `vmap`. Source: Finn, Abbeel and Levine, 2017.

use remat::nn::Linear;
use remat::optim::{AdamW, Moments, Optimizer};
use remat::{DType, Result, Tensor, Tree, grad, jit, random, tree, value_and_grad, vmap};

#[derive(Clone, Tree)]
struct Net {
    layers: Vec<Linear>,
    out: Linear,
}

impl Net {
    fn apply(&self, x: &Tensor) -> Tensor {
        self.out.apply(&self.layers.iter().fold(x.clone(), |x, layer| layer.apply(&x).tanh()))
    }

    fn loss(&self, (x, y): &(Tensor, Tensor)) -> Tensor {
        (self.apply(x) - y).square().mean(..)
    }

    /// The net after one step on these points.
    fn adapted(&self, points: &(Tensor, Tensor)) -> Result<Net> {
        let gradient = grad(|net: &Net| net.loss(points))(self)?;
        tree::map2(self, &gradient, |weight, slope| weight - slope * 0.1)
    }
}

/// Points to adapt to and points to be judged by, of one task or of many: `[tasks, points, 1]` each.
type Tasks = ((Tensor, Tensor), (Tensor, Tensor));

/// Sines of different heights and phases.
fn sines(key: random::Key, tasks: usize) -> Tasks {
    let [height, phase, x] = key.split();
    let height = random::uniform(height, [tasks, 1, 1], DType::F32, 0.5..2.0);
    let phase = random::uniform(phase, [tasks, 1, 1], DType::F32, 0.0..3.0);
    let x = random::uniform(x, [tasks, 20, 1], DType::F32, -3.0..3.0);
    let y = (&x + phase).sin() * height;
    let half = |tensor: &Tensor, from| tensor.index((.., from..from + 10));
    ((half(&x, 0), half(&y, 0)), (half(&x, 10), half(&y, 10)))
}

/// The mean loss over tasks, after each has adapted.
fn meta_loss(net: &Net, tasks: &Tasks) -> Result<Tensor> {
    let losses = vmap(|(known, asked): &Tasks| Ok(net.adapted(known)?.loss(asked)))(tasks)?;
    Ok(losses.mean(..))
}

fn main() -> Result<()> {
    let [first, second, out, batches, test] = random::key(0).split();
    let layer = |key, inputs| Linear::new(key, inputs, 24);
    let mut net = Net { layers: vec![layer(first, 1), layer(second, 24)], out: Linear::new(out, 24, 1) };

    let adam = AdamW::new(0.005).weight_decay(0.0);
    let step = jit(|(net, state, tasks): &(Net, Moments<Net>, Tasks)| -> Result<(Net, Moments<Net>, Tensor)> {
        let (loss, gradient) = value_and_grad(|net: &Net| meta_loss(net, tasks))(net)?;
        let (net, state) = adam.update(net, &gradient, state)?;
        Ok((net, state, loss))
    });
    let mut state = adam.init(&net);
    for i in 0..200 {
        let loss;
        (net, state, loss) = step.call((net, state, sines(batches.fold_in(i), 8)))?;
        if i % 50 == 49 {
            println!("step {:>3}: loss after adapting {loss}", i + 1);
        }
    }

    let tasks = sines(test, 50);
    let before = vmap(|(_, asked): &Tasks| net.loss(asked))(&tasks)?.mean(..).item::<f32>()?;
    let after = meta_loss(&net, &tasks)?.item::<f32>()?;
    println!("50 new tasks: loss {before:.3} before the step, {after:.3} after it");
    assert!(after < 0.7 * before);
    Ok(())
}
