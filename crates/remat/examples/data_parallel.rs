//! Data parallel training: the batch is cut over four devices, which average their gradients.
//!
//! Run it with `cargo run -p remat --example data_parallel`. The devices are virtual ones of XLA for CPUs where its plugin is installed
//! (`remat plugin install cpu`); otherwise the native engine computes all shards, with the same losses.

use remat::optim::{AdamW, Moments, Optimizer};
use remat::{DType, Device, Mesh, Result, Tensor, Tree, jit, nn, pmean, random, shard_map, spec, value_and_grad};

#[derive(Clone, Tree)]
struct Net {
    hidden: nn::Linear,
    out: nn::Linear,
}

impl Net {
    fn apply(&self, x: &Tensor) -> Tensor {
        self.out.apply(&self.hidden.apply(x).tanh())
    }
}

fn main() -> Result<()> {
    let device = Device::xla_cpus(4).unwrap_or_else(|_| Device::cpu());
    println!("on {}", device.name());
    let mesh = Mesh::new([("data", 4)])?;
    let [hidden, out, points] = random::key(0).split();
    let x = random::uniform(points, [256, 2], DType::F32, -1.0..1.0);
    let y = (x.index((.., 0)) * 3.0).sin() * x.index((.., 1));
    let adam = AdamW::new(0.02);

    // Model and state are copied to every device, points are cut. The shards of the results are equal, since the gradients are.
    let step = shard_map(
        &mesh,
        (spec![], spec![], spec!["data"], spec!["data"]),
        spec![],
        |(net, state, x, y): &(Net, Moments<Net>, Tensor, Tensor)| -> Result<(Net, Moments<Net>, Tensor)> {
            let loss = |net: &Net| (net.apply(x).index((.., 0)) - y).square().mean(..);
            let (loss, gradient) = pmean(&value_and_grad(loss)(net)?, "data");
            let (net, state) = adam.update(net, &gradient, state)?;
            Ok((net, state, loss))
        },
    );
    let step = jit(step).on(device);

    let mut net = Net { hidden: nn::Linear::new(hidden, 2, 32), out: nn::Linear::new(out, 32, 1) };
    let mut state = adam.init(&net);
    let mut last = f32::INFINITY;
    for i in 0..200 {
        let loss;
        (net, state, loss) = step.call((net, state, x.clone(), y.clone()))?;
        if i % 50 == 49 {
            last = loss.item::<f32>()?;
            println!("step {:>3}: loss {last:.5}", i + 1);
        }
    }
    assert!(last < 0.01, "the loss is {last}");
    Ok(())
}
