//! A U-Net removes noise from images, told how much there is: one step of a diffusion model.
//!
//! Run it with `cargo run -p remat --example unet`.

use remat::nn::{UNet, UNetConfig};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, checkpoint, jit, random, value_and_grad};

/// Images with noise, how much noise (0 to 999), and the noise itself.
type Batch = (Tensor, Tensor, Tensor);

/// `n` discs in images of 16 by 16 pixels, mixed with noise.
fn discs(key: random::Key, n: usize) -> Batch {
    let [centre, time, noise] = key.split();
    let centre = random::uniform(centre, [n, 2, 1, 1], DType::F32, 4.0..12.0);
    let row = Tensor::iota([1, 16, 16], 1, DType::F32) - centre.index((.., 0));
    let column = Tensor::iota([1, 16, 16], 2, DType::F32) - centre.index((.., 1));
    let images = (row.square() + column.square()).lt(16.0).to_dtype(DType::F32).expand_dims(1) * 2.0 - 1.0;
    let time = random::randint(time, [n], DType::I32, 100..900);
    let share = (time.to_dtype(DType::F32) / 1000.0).reshape([-1, 1, 1, 1]);
    let noise = random::normal(noise, [n, 1, 16, 16], DType::F32);
    let mixed = images * (-share.square() + 1.0).sqrt() + &noise * share;
    (mixed, time, noise)
}

/// How far the noise that the model finds is from what was added.
fn loss(model: &UNet, (x, time, noise): &Batch) -> Tensor {
    (model.apply(x, Some(time)) - noise).square().mean(..)
}

fn main() -> Result<()> {
    let config = UNetConfig {
        in_channels: 1,
        out_channels: 1,
        block_out_channels: vec![4, 8],
        layers_per_block: 1,
        norm_num_groups: 2,
        attention_levels: vec![1],
        time: true,
    };
    let [weights, batches] = random::key(0).split();
    let mut model = UNet::new(weights, &config);

    // Convolutions have the name `conv`. The policy is around the whole model: what it does not name is computed again.
    let batch = discs(batches.fold_in(0), 4);
    for policy in [Policy::Everything, Policy::names(["conv"]), Policy::Nothing] {
        let loss = checkpoint(policy.clone(), |model: &UNet| loss(model, &batch));
        let kept = saved_residuals(loss, &model)?.intermediate_bytes();
        println!("{:<12} keeps {kept:>7} bytes", policy.to_string());
    }

    let adam = AdamW::new(0.005);
    let step = jit(|(model, state, batch): &(UNet, Moments<UNet>, Batch)| -> Result<(UNet, Moments<UNet>, Tensor)> {
        let loss = checkpoint(Policy::names(["conv"]), |model: &UNet| loss(model, batch));
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    let mut state = adam.init(&model);
    let (mut first, mut last) = (0.0, 0.0);
    for i in 0..30 {
        let loss;
        (model, state, loss) = step.call((model, state, discs(batches.fold_in(i), 4)))?;
        last = loss.item::<f32>()?;
        if i == 0 {
            first = last;
        }
        if i % 10 == 9 {
            println!("step {}: loss {last:.4}", i + 1);
        }
    }
    assert!(last < 0.7 * first, "the loss went from {first} to {last}");
    Ok(())
}
