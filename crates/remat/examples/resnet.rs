//! A residual network with batch norm: statistics go in and come out, and a policy comes from outside of the model.
//!
//! Run it with `cargo run -p remat --example resnet`.

use remat::nn::{ResNet, ResNetConfig, RunningStatistics};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, checkpoint_layers, jit, nn, random, value_and_grad_aux};

/// The loss, and the statistics with those of this batch in them.
type Loss = (Tensor, Vec<RunningStatistics>);
type State = (ResNet, Moments<ResNet>, Vec<RunningStatistics>);

/// `n` images of 16 by 16 pixels of stripes in one of four directions, and which.
fn stripes(key: random::Key, n: usize) -> (Tensor, Tensor) {
    let [class, phase, noise] = key.split();
    let class = random::randint(class, [n], DType::I32, 0..4);
    let angle = class.to_dtype(DType::F32).reshape([-1, 1, 1, 1]) * (std::f64::consts::PI / 4.0);
    let (row, column) = (Tensor::iota([16, 16], 0, DType::F32), Tensor::iota([16, 16], 1, DType::F32));
    let phase = random::uniform(phase, [n, 1, 1, 1], DType::F32, 0.0..6.0);
    let x = (angle.cos() * row + angle.sin() * column + phase).sin();
    (x + random::normal(noise, [n, 1, 16, 16], DType::F32) * 0.3, class)
}

fn main() -> Result<()> {
    let [weights, batches, test] = random::key(0).split();
    let config = ResNetConfig {
        num_channels: 1,
        embedding_size: 8,
        hidden_sizes: vec![8, 16],
        depths: vec![1, 1],
        num_labels: 4,
        ..ResNetConfig::resnet18()
    };
    let mut model = ResNet::new(weights, &config);
    let mut statistics = model.statistics()?;

    let loss = |(model, statistics, x, class): &(ResNet, Vec<RunningStatistics>, Tensor, Tensor)| -> Result<Loss> {
        let (logits, statistics) = model.train(x, statistics)?;
        Ok((nn::cross_entropy(&logits, class), statistics))
    };
    // A checkpoint around every block of a model that says nothing of checkpoints. What is computed again is a function, so that
    // running statistics see each batch once.
    let recomputed = checkpoint_layers("block", Policy::Nothing, loss);

    let (x, class) = stripes(batches.fold_in(0), 16);
    let args = (model.clone(), statistics.clone(), x, class);
    let plain = saved_residuals(loss, &args)?.intermediate_bytes();
    let kept = saved_residuals(&recomputed, &args)?.intermediate_bytes();
    println!("kept for the backward pass: {plain} bytes, and {kept} with blocks computed again");
    assert!(kept < plain);

    let adam = AdamW::new(0.01);
    let step = jit(|((model, state, statistics), x, class): &(State, Tensor, Tensor)| -> Result<(State, Tensor)> {
        let loss = |model: &ResNet| recomputed(&(model.clone(), statistics.clone(), x.clone(), class.clone()));
        let ((loss, statistics), gradient) = value_and_grad_aux(loss)(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok(((model, state, statistics), loss))
    });
    let mut state = adam.init(&model);
    for i in 0..40 {
        let (x, class) = stripes(batches.fold_in(i), 16);
        let loss;
        ((model, state, statistics), loss) = step.call(((model, state, statistics), x, class))?;
        if i % 10 == 9 {
            println!("step {}: loss {loss}", i + 1);
        }
    }

    let (x, class) = stripes(test, 200);
    let right = model.eval(&x, &statistics)?.argmax(-1).eq(&class).to_dtype(DType::F32).mean(..).item::<f32>()?;
    println!("of 200 new images {:.1} % are told apart", 100.0 * right);
    assert!(right > 0.8);
    Ok(())
}
