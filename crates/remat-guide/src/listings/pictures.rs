//! A convolutional model for images.

use remat::nn::{BatchNorm, Conv, Linear, RunningStatistics, cross_entropy, global_avg_pool};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::random::{self, Key};
use remat::report::{readable_bytes, saved_residuals};
use remat::{
    ConvConfig, DType, Padding, Policy, PoolConfig, Result, Tensor, Tree, checkpoint, jit, value_and_grad,
    value_and_grad_aux,
};

/// `n` images of 16 by 16 pixels, `[n, 1, 16, 16]`, of stripes in one of four directions with noise, and the directions.
fn stripes(key: Key, n: usize) -> (Tensor, Tensor) {
    let [class, phase, noise] = key.split();
    let class = random::randint(class, [n], DType::I32, 0..4);
    let angle = class.to_dtype(DType::F32).reshape([-1, 1, 1, 1]) * (std::f64::consts::PI / 4.0);
    let (row, column) = (Tensor::iota([16, 16], 0, DType::F32), Tensor::iota([16, 16], 1, DType::F32));
    let phase = random::uniform(phase, [n, 1, 1, 1], DType::F32, 0.0..6.0);
    let x = (angle.cos() * row + angle.sin() * column + phase).sin();
    (x + random::normal(noise, [n, 1, 16, 16], DType::F32) * 0.3, class)
}

// ANCHOR: model
/// A convolution, a batch norm, a ReLU and pooling: half the height and width.
#[derive(Clone, Tree)]
struct Stage {
    conv: Conv,
    norm: BatchNorm,
}

impl Stage {
    fn init(key: Key, inputs: usize, outputs: usize) -> Stage {
        let conv = Conv { bias: None, ..Conv::init(key, inputs, outputs, [3, 3], DType::F32) };
        Stage { conv, norm: BatchNorm::init(outputs, DType::F32) }
    }

    fn train(&self, x: &Tensor, stats: &RunningStatistics) -> Result<(Tensor, RunningStatistics)> {
        let (y, stats) = self.norm.train(&self.conv.apply(x).named("conv"), stats)?;
        Ok((y.relu().max_pool(&PoolConfig::new([2, 2])), stats))
    }

    fn eval(&self, x: &Tensor, stats: &RunningStatistics) -> Tensor {
        self.norm.eval(&self.conv.apply(x), stats).relu().max_pool(&PoolConfig::new([2, 2]))
    }
}
// ANCHOR_END: model

#[derive(Clone, Tree)]
struct Net {
    stages: Vec<Stage>,
    out: Linear,
}

impl Net {
    fn init(key: Key) -> Net {
        let [first, second, out] = key.split();
        let stages = vec![Stage::init(first, 1, 8), Stage::init(second, 8, 16)];
        Net { stages, out: Linear::init(out, 16, 4, DType::F32) }
    }

    // ANCHOR: passes
    /// The logits, and the statistics after this batch. Each stage is a region with the policy.
    fn train(
        &self,
        policy: &Policy,
        x: &Tensor,
        stats: &[RunningStatistics],
    ) -> Result<(Tensor, Vec<RunningStatistics>)> {
        let (mut x, mut after) = (x.clone(), Vec::new());
        for (stage, stats) in self.stages.iter().zip(stats) {
            let (y, stats) = checkpoint(policy.clone(), |x: &Tensor| stage.train(x, stats))(&x)?;
            x = y;
            after.push(stats);
        }
        Ok((self.out.apply(&global_avg_pool(&x)), after))
    }

    fn eval(&self, x: &Tensor, stats: &[RunningStatistics]) -> Tensor {
        let x = self.stages.iter().zip(stats).fold(x.clone(), |x, (stage, stats)| stage.eval(&x, stats));
        self.out.apply(&global_avg_pool(&x))
    }
    // ANCHOR_END: passes
}

// ANCHOR: state
/// What a step changes.
#[derive(Clone, Tree)]
struct State {
    net: Net,
    moments: Moments<Net>,
    stats: Vec<RunningStatistics>,
}
// ANCHOR_END: state

pub(crate) fn main() -> Result<()> {
    println!("== layouts");
    // ANCHOR: layouts
    // Files and cameras have channels last. Layers of `nn` have them as axis 1.
    let photos = random::uniform(random::key(3), [2, 32, 48, 3], DType::F32, 0.0..1.0);
    let x = photos.transpose([0, 3, 1, 2]);
    let conv = Conv { strides: vec![2, 2], ..Conv::init(random::key(4), 3, 8, [3, 3], DType::F32) };
    let y = conv.apply(&x);
    println!("{} by {} is {}", x.aval()?, conv.kernel.aval()?, y.aval()?);

    // The operation itself takes any order of the axes.
    let layout = Some(["NHWC", "OIHW", "NHWC"]);
    let config = ConvConfig { strides: vec![2, 2], padding: Padding::Same, layout, ..ConvConfig::default() };
    let last = photos.conv(&conv.kernel, &config);
    assert!(last.transpose([0, 3, 1, 2]).allclose(&y, 1e-5, 1e-5)?);
    // ANCHOR_END: layouts

    println!("== train");
    // ANCHOR: train
    let [weights, batches, test] = random::key(0).split();
    let adam = AdamW { learning_rate: 0.01.into(), ..AdamW::default() };
    let policy = Policy::names(["conv"]);
    let step = jit(|(state, x, class): &(State, Tensor, Tensor)| -> Result<(State, Tensor)> {
        let loss = |net: &Net| -> Result<_> {
            let (logits, stats) = net.train(&policy, x, &state.stats)?;
            Ok((cross_entropy(&logits, class), stats))
        };
        let ((loss, stats), gradient) = value_and_grad_aux(loss)(&state.net)?;
        let (net, moments) = adam.update(&state.net, &gradient, &state.moments)?;
        Ok((State { net, moments, stats }, loss))
    });

    let net = Net::init(weights);
    let stats = vec![RunningStatistics::init(8, DType::F32), RunningStatistics::init(16, DType::F32)];
    let mut state = State { moments: adam.init(&net), stats, net };
    for i in 0..60 {
        let (x, class) = stripes(batches.fold_in(i), 32);
        let loss;
        (state, loss) = step.call((state, x, class))?;
        if i % 20 == 19 {
            println!("step {}: loss {:.1}", i + 1, loss.item::<f32>()?);
        }
    }

    // New images, and the statistics of the training.
    let (x, class) = stripes(test, 200);
    let right = state.net.eval(&x, &state.stats).argmax(-1).eq(&class).to_dtype(DType::F32).mean(..);
    assert!(right.item::<f32>()? > 0.9);
    // ANCHOR_END: train

    println!("== policies");
    let mut peaks = Vec::new();
    // ANCHOR: policies
    let (x, class) = stripes(random::key(5), 32);
    for policy in [Policy::Everything, Policy::names(["conv"]), Policy::Nothing] {
        let loss = |net: &Net| Ok(cross_entropy(&net.train(&policy, &x, &state.stats)?.0, &class));
        let kept = saved_residuals(loss, &state.net)?.intermediate_bytes();
        let peak = jit(value_and_grad(loss)).memory(&state.net)?.peak;
        println!("{:<11}  keeps {}, peak {}", policy.to_string(), readable_bytes(kept), readable_bytes(peak));
        peaks.push(peak);
    }
    // ANCHOR_END: policies
    assert!(peaks.is_sorted_by(|a, b| a >= b) && peaks[2] < peaks[0], "{peaks:?}");
    Ok(())
}
