//! A training loop as users of other libraries know it, with dropout, batch norm, mixed precision and clipping.

use remat::nn::{BatchNorm, Linear, Precision, RunningStatistics, cross_entropy, dropout};
use remat::optim::{AdamW, Moments, Optimizer, clip_by_global_norm};
use remat::random::Key;
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, jit, random, value_and_grad_aux};

// ANCHOR: model
#[derive(Clone, Tree)]
struct Net {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
}

impl Net {
    fn init(key: Key) -> Net {
        let [first, second] = key.split();
        Net { first: Linear::new(first, 8, 64), norm: BatchNorm::new(64), second: Linear::new(second, 64, 2) }
    }

    /// The statistics go in and come out; so does the key of the dropout.
    fn train(&self, x: &Tensor, stats: &RunningStatistics, key: Key) -> Result<(Tensor, RunningStatistics)> {
        let (x, stats) = self.norm.train(&self.first.apply(x), stats)?;
        Ok((self.second.apply(&dropout(key, &x.relu(), 0.1)), stats))
    }

    fn eval(&self, x: &Tensor, stats: &RunningStatistics) -> Tensor {
        self.second.apply(&self.norm.eval(&self.first.apply(x), stats).relu())
    }
}
// ANCHOR_END: model

// ANCHOR: state
/// What a step changes.
#[derive(Clone, Tree)]
struct State {
    net: Net,
    moments: Moments<Net>,
    stats: RunningStatistics,
}
// ANCHOR_END: state

pub(crate) fn main() -> Result<()> {
    println!("== train");
    // ANCHOR: train
    let [weights, data, masks] = random::key(0).split();
    let x = random::normal(data, [128, 8], DType::F32);
    let class = (x.index((.., 0)) * x.index((.., 1))).gt(0.0).to_dtype(DType::I32);

    let adam = AdamW::new(0.01);
    let precision = Precision::bf16();
    let step = jit(|(state, key): &(State, Key)| -> Result<(State, Tensor)> {
        let loss = checkpoint(Policy::Nothing, |net: &Net| -> Result<(Tensor, RunningStatistics)> {
            let (net, x) = precision.to_compute(&(net.clone(), x.clone()));
            let (logits, stats) = net.train(&x, &state.stats, key.reuse())?;
            Ok((cross_entropy(&precision.to_output(&logits), &class), stats))
        });
        let ((loss, stats), gradient) = value_and_grad_aux(loss)(&state.net)?;
        let (gradient, _) = clip_by_global_norm(&gradient, 1.0);
        let (net, moments) = adam.update(&state.net, &gradient, &state.moments)?;
        Ok((State { net, moments, stats }, loss))
    });

    let net = Net::init(weights);
    let mut state = State { moments: adam.init(&net), stats: RunningStatistics::new(64), net };
    for i in 0..=100 {
        let loss;
        (state, loss) = step.call((state, masks.fold_in(i)))?;
        if i % 50 == 0 {
            println!("step {i:>3}: loss {:.1}", loss.item::<f32>()?);
        }
    }
    let right = state.net.eval(&x, &state.stats).argmax(-1).eq(&class).to_dtype(DType::F32).mean(..);
    assert!(right.item::<f32>()? > 0.9);
    // ANCHOR_END: train
    Ok(())
}
