//! Optimizers and schedules.

use std::error::Error;

use remat::nn::{Linear, Mlp};
use remat::optim::{
    Accumulate, Adafactor, Adam8bit, AdamW, Ema, Frozen, Lion, Mask, Muon, Optimizer, Partition, Schedule, Sgd,
    clip_by_global_norm,
};
use remat::{DType, Result, Tensor, eval_shape, grad, jit, random, tree, value_and_grad};
use remat_io::{load, save};

type State = <Accumulate<AdamW> as Optimizer>::State<Mlp>;

/// The bytes of an optimizer's state for a linear map from 1,024 features to 1,024. `eval_shape` makes no tensor.
fn state_bytes(optimizer: &impl Optimizer) -> Result<usize> {
    let state = eval_shape(|_: &()| optimizer.init(&Linear::init(random::key(0), 1024, 1024, DType::F32)))(&())?;
    tree::leaves(&state).iter().map(|(_, leaf)| Ok(leaf.aval()?.bytes())).sum()
}

pub(crate) fn main() -> std::result::Result<(), Box<dyn Error>> {
    println!("== bytes");
    let momentum = Sgd::default().momentum(0.9);
    for (name, bytes) in [
        ("Sgd", state_bytes(&Sgd::default())?),
        ("Sgd, momentum", state_bytes(&momentum)?),
        ("AdamW", state_bytes(&AdamW::default())?),
        ("Adam8bit", state_bytes(&Adam8bit::default())?),
        ("Adafactor", state_bytes(&Adafactor::default())?),
        ("Lion", state_bytes(&Lion::default())?),
        ("Muon", state_bytes(&Muon::default())?),
        ("Accumulate<AdamW>", state_bytes(&Accumulate::new(AdamW::default(), 4))?),
    ] {
        println!("{name:<18} {bytes:>9} bytes");
    }

    println!("== rates");
    // ANCHOR: rates
    let rate = Schedule::WarmupCosine { start: 0.0, peak: 0.05, end: 0.005, warmup_steps: 10, steps: 100 };
    for step in [0, 5, 10, 55, 100] {
        println!("step {step:>3}: {:.4}", rate.at(&Tensor::from(step), DType::F64).item::<f64>()?);
    }
    // ANCHOR_END: rates

    println!("== train");
    // ANCHOR: train
    // Decay for matrices, not for biases. The rate counts updates: one for each four calls.
    let adam = Accumulate::new(AdamW::new(rate).weight_decay(0.01).decay(Mask::Matrices), 4);
    let step = jit(|(model, state, x): &(Mlp, State, Tensor)| -> Result<(Mlp, State, Tensor, Tensor)> {
        let loss = |model: &Mlp| (model.apply(x) - x.sin()).square().mean(..);
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (gradient, norm) = clip_by_global_norm(&gradient, 1.0);
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok((model, state, loss, norm))
    });

    let batch = |i: i64| random::normal(random::key(1).fold_in(i), [32, 4], DType::F32);
    let mut model = Mlp::init(random::key(0), 4, 32, DType::F32);
    let mut state = adam.init(&model);
    for i in 0..400 {
        let (loss, norm);
        (model, state, loss, norm) = step.call((model, state, batch(i)))?;
        if i == 0 || i == 399 {
            println!("batch {:>3}: loss {:.1}, gradient {:.1}", i + 1, loss.item::<f32>()?, norm.item::<f32>()?);
        }
    }
    println!("{} updates", state.inner.step);
    // ANCHOR_END: train
    let loss = (model.apply(&batch(400)) - batch(400).sin()).square().mean(..).item::<f32>()?;
    assert!(loss < 0.1, "{loss}");

    println!("== save");
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    // ANCHOR: save
    // Two more batches, and stop in the middle of an update.
    for i in 400..402 {
        (model, state, _, _) = step.call((model, state, batch(i)))?;
    }
    save(folder.join("model.safetensors"), &model)?;
    save(folder.join("state.safetensors"), &state)?;

    let like = Mlp::init(random::key(9), 4, 32, DType::F32);
    let mut loaded = load(folder.join("model.safetensors"), &like)?;
    let mut loaded_state = load(folder.join("state.safetensors"), &adam.init(&like))?;
    for i in 402..410 {
        (model, state, _, _) = step.call((model, state, batch(i)))?;
        (loaded, loaded_state, _, _) = step.call((loaded, loaded_state, batch(i)))?;
    }
    assert_eq!(model.up.weight.to_vec::<f32>()?, loaded.up.weight.to_vec::<f32>()?); // in every bit
    println!("the same model after {} and {} updates", state.inner.step, loaded_state.inner.step);
    // ANCHOR_END: save

    println!("== parts");
    // ANCHOR: parts
    // Only the second map is trained. The first has no state, and inside `jit` its gradient is not computed.
    let optimizer = Partition::new(Mask::paths(["down.**"]), AdamW::default(), Frozen);
    let gradient = grad(|model: &Mlp| model.apply(&batch(0)).square().mean(..))(&model)?;
    let (next, state) = optimizer.update(&model, &gradient, &optimizer.init(&model))?;
    assert_eq!(next.up.weight.to_vec::<f32>()?, model.up.weight.to_vec::<f32>()?);
    assert_ne!(next.down.weight.to_vec::<f32>()?, model.down.weight.to_vec::<f32>()?);
    println!("{} and {} elements of state", state.chosen.mu.up.weight.size()?, state.chosen.mu.down.weight.size()?);
    // ANCHOR_END: parts

    // ANCHOR: ema
    let ema = Ema::new(0.9);
    let mut averaged = ema.init(&model);
    for model in [&model, &next] {
        averaged = ema.update(model, &averaged)?; // after each step
    }
    let smooth = ema.average(&next, &averaged)?; // a model to evaluate
    // ANCHOR_END: ema
    let between =
        (&model.down.bias.clone().expect("a bias") * 0.09 + next.down.bias.clone().expect("a bias") * 0.1) / 0.19;
    assert!(smooth.down.bias.expect("a bias").allclose(&between, 1e-4, 1e-6)?);
    Ok(())
}
