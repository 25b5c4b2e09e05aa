//! A convolutional model for images.

use remat::nn::{BatchNorm, Channels, Conv, Linear, RunningStatistics, cross_entropy, global_avg_pool};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::random::{self, Key};
use remat::report::{readable_bytes, saved_residuals};
use remat::{
    ConvConfig, DType, Padding, Policy, Result, Tensor, Tree, checkpoint, jit, value_and_grad, value_and_grad_aux,
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
/// Twice a convolution, a batch norm and a ReLU, beside a shortcut.
#[derive(Clone, Tree)]
struct Block {
    convs: Vec<Conv>,
    norms: Vec<BatchNorm>,
}

impl Block {
    fn init(key: Key, channels: usize) -> Block {
        let conv = |key| Conv::new(key, channels, channels, [3, 3]).without_bias();
        Block { convs: key.split::<2>().map(conv).into(), norms: vec![BatchNorm::new(channels); 2] }
    }

    fn train(&self, x: &Tensor, stats: &[RunningStatistics]) -> Result<(Tensor, Vec<RunningStatistics>)> {
        let (mut y, mut after) = (x.clone(), Vec::new());
        for ((conv, norm), stats) in self.convs.iter().zip(&self.norms).zip(stats) {
            let (normal, stats) = norm.train(&conv.apply(&y).named("conv"), stats)?;
            y = normal.relu();
            after.push(stats);
        }
        Ok((x + y, after))
    }

    fn eval(&self, x: &Tensor, stats: &[RunningStatistics]) -> Tensor {
        let layers = self.convs.iter().zip(&self.norms).zip(stats);
        x + layers.fold(x.clone(), |y, ((conv, norm), stats)| norm.eval(&conv.apply(&y), stats).relu())
    }
}
// ANCHOR_END: model

/// The statistics of each norm of each block.
type Stats = Vec<Vec<RunningStatistics>>;

#[derive(Clone, Tree)]
struct Net {
    stem: Conv,
    blocks: Vec<Block>,
    out: Linear,
}

impl Net {
    fn init(key: Key, depth: i64) -> Net {
        let [stem, blocks, out] = key.split();
        Net {
            stem: Conv::new(stem, 1, 8, [3, 3]).strides([2, 2]),
            blocks: (0..depth).map(|i| Block::init(blocks.fold_in(i), 8)).collect(),
            out: Linear::new(out, 8, 4),
        }
    }

    /// The statistics before the first batch.
    fn stats(&self) -> Stats {
        vec![vec![RunningStatistics::new(8); 2]; self.blocks.len()]
    }

    // ANCHOR: passes
    /// The logits, and the statistics after this batch. Each block is a region with the policy.
    fn train(&self, policy: &Policy, x: &Tensor, stats: &Stats) -> Result<(Tensor, Stats)> {
        let (mut x, mut after) = (self.stem.apply(x).relu(), Vec::new());
        for (block, stats) in self.blocks.iter().zip(stats) {
            let (y, stats) = checkpoint(policy.clone(), |x: &Tensor| block.train(x, stats))(&x)?;
            x = y;
            after.push(stats);
        }
        Ok((self.out.apply(&global_avg_pool(&x)), after))
    }

    fn eval(&self, x: &Tensor, stats: &Stats) -> Tensor {
        let blocks = self.blocks.iter().zip(stats);
        let x = blocks.fold(self.stem.apply(x).relu(), |x, (block, stats)| block.eval(&x, stats));
        self.out.apply(&global_avg_pool(&x))
    }
    // ANCHOR_END: passes
}

/// What a step changes.
#[derive(Clone, Tree)]
struct State {
    net: Net,
    moments: Moments<Net>,
    stats: Stats,
}

pub(crate) fn main() -> Result<()> {
    println!("== layouts");
    // ANCHOR: layouts
    // Files and cameras have channels last. Layers of `nn` have them as axis 1, unless told.
    let photos = random::uniform(random::key(3), [2, 32, 48, 3], DType::F32, 0.0..1.0);
    let x = photos.transpose([0, 3, 1, 2]);
    let conv = Conv::new(random::key(4), 3, 8, [3, 3]).strides([2, 2]);
    let y = conv.apply(&x);
    println!("{} by {} is {}", x.aval()?, conv.kernel.aval()?, y.aval()?);
    let last = conv.clone().channels(Channels::Last).apply(&photos);
    println!("{} by {} is {}", photos.aval()?, conv.kernel.aval()?, last.aval()?);
    // ANCHOR_END: layouts
    assert!(last.transpose([0, 3, 1, 2]).allclose(&y, 1e-5, 1e-5)?);
    // The operation itself takes any order of the axes. The bias is zeros.
    let layout = Some(["NHWC", "OIHW", "NHWC"]);
    let config = ConvConfig { strides: vec![2, 2], padding: Padding::Same, layout, ..ConvConfig::default() };
    let same = photos.conv(&conv.kernel, &config);
    assert!(same.allclose(&last, 1e-5, 1e-5)?);

    println!("== train");
    // ANCHOR: train
    let [weights, batches, test] = random::key(0).split();
    let adam = AdamW::new(0.01);
    let step = jit(|(state, x, class): &(State, Tensor, Tensor)| -> Result<(State, Tensor)> {
        let loss = |net: &Net| -> Result<_> {
            let (logits, stats) = net.train(&Policy::Nothing, x, &state.stats)?;
            Ok((cross_entropy(&logits, class), stats))
        };
        let ((loss, stats), gradient) = value_and_grad_aux(loss)(&state.net)?;
        let (net, moments) = adam.update(&state.net, &gradient, &state.moments)?;
        Ok((State { net, moments, stats }, loss))
    });

    let net = Net::init(weights, 2);
    let mut state = State { moments: adam.init(&net), stats: net.stats(), net };
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
    // ANCHOR: policies
    let net = Net::init(random::key(5), 16);
    let (x, class) = stripes(random::key(6), 32);
    let mut peaks = Vec::new();
    for policy in [Policy::Everything, Policy::names(["conv"]), Policy::Nothing] {
        let loss = |net: &Net| Ok(cross_entropy(&net.train(&policy, &x, &net.stats())?.0, &class));
        let kept = saved_residuals(loss, &net)?.intermediate_bytes();
        peaks.push(jit(value_and_grad(loss)).memory(&net)?.peak);
        println!("{:<12} {} and {}", policy.to_string(), readable_bytes(kept), readable_bytes(peaks[peaks.len() - 1]));
    }
    // ANCHOR_END: policies
    assert!(peaks[2] * 3 < peaks[0] * 2, "{peaks:?}");
    Ok(())
}
