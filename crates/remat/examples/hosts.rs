//! Data parallel training by several processes, on one host or on many: each computes the gradient of its part of a batch.
//!
//! Run it with `cargo build -p remat --example hosts` and `remat launch -n 2 -- target/debug/examples/hosts`. By itself it is one
//! process, which has all of the batch, and learns the same.

use remat::cluster::Cluster;
use remat::optim::{AdamW, Optimizer};
use remat::{DType, Result, Tensor, Tree, jit, nn, random, value_and_grad};

#[derive(Clone, Tree)]
struct Net {
    hidden: nn::Linear,
    out: nn::Linear,
}

fn loss((net, x, y): &(Net, Tensor, Tensor)) -> Tensor {
    (net.out.apply(&net.hidden.apply(x).tanh()).index((.., 0)) - y).square().mean(..)
}

fn main() -> Result<()> {
    // Waits until all processes are there.
    let cluster = Cluster::from_env()?;
    let (rank, nodes) = (cluster.rank(), cluster.nodes());
    let [hidden, out, points] = random::key(0).split();
    let x = random::uniform(points, [256, 2], DType::F32, -1.0..1.0);
    let y = (x.index((.., 0)) * 3.0).sin() * x.index((.., 1));
    // The rows of this process: parts are equal, so that the mean of their gradients is the gradient.
    let size = 256 / nodes;
    let part = rank * size..(rank + 1) * size;
    let (x, y) = (x.index(part.clone()), y.index(part));

    let net = Net { hidden: nn::Linear::new(hidden, 2, 32), out: nn::Linear::new(out, 32, 1) };
    // All begin with the parameters of rank 0.
    let mut net = cluster.broadcast(&net)?;
    let adam = AdamW::new(0.02);
    let mut state = adam.init(&net);
    let gradient = jit(|(net, x, y): &(Net, Tensor, Tensor)| {
        value_and_grad(|net: &Net| loss(&(net.clone(), x.clone(), y.clone())))(net)
    });
    for i in 0..200 {
        let (loss, mean) = cluster.all_reduce_mean(&gradient.call((net.clone(), x.clone(), y.clone()))?)?;
        (net, state) = adam.update(&net, &mean, &state)?;
        if rank == 0 && i % 50 == 49 {
            println!("step {:>3}: loss {:.5}", i + 1, loss.item::<f32>()?);
        }
    }
    Ok(())
}
