//! Saving and resuming.

use std::error::Error;
use std::path::Path;

use remat::optim::{AdamW, Optimizer};
use remat::{DType, Result, Tensor, jit, nn, random, value_and_grad};
use remat_io::{Checkpoint, Checkpoints, Latest, Progress, Snapshot, load, save};

// ANCHOR: train
/// Trains up to `steps` steps and saves each tenth. It goes on from the last checkpoint in the folder, if there is one.
fn train(run: &Path, steps: u64) -> Result<nn::Linear> {
    let adam = AdamW { learning_rate: 0.1.into(), ..AdamW::default() };
    let mut model = nn::Linear::init(random::key(0), 4, 1, DType::F32);
    let mut state = adam.init(&model);
    let mut done = 0;

    let mut checkpoints = Checkpoints::open(run)?;
    let Latest { checkpoint, skipped } = Checkpoint::latest(run)?;
    for error in skipped {
        eprintln!("note: {error}"); // a damaged one: the one before it is taken
    }
    if let Some(checkpoint) = checkpoint {
        done = checkpoint.progress::<(), ()>()?.step;
        (model, state) = (checkpoint.tree("model", &model)?, checkpoint.tree("optimizer", &state)?);
    }
    println!("from step {done}");

    let step = jit(|(model, state, x): &(nn::Linear, _, Tensor)| -> Result<_> {
        let (_, gradient) = value_and_grad(|model: &nn::Linear| (model.apply(x) - 1.0).square().mean(..))(model)?;
        adam.update(model, &gradient, state)
    });
    for i in done..steps {
        // The batch depends on the step alone, so that a resumed run sees the same ones.
        let x = random::normal(random::key(1).fold_in(i as i64), [8, 4], DType::F32);
        (model, state) = step.call((model, state, x))?;
        if (i + 1) % 10 == 0 {
            let progress = Progress { step: i + 1, seed: 0, data: (), config: () };
            checkpoints.save(Snapshot::new(&progress)?.with("model", &model)?.with("optimizer", &state)?)?;
        }
    }
    checkpoints.finish()?; // waits for what is still being written
    Ok(model)
}
// ANCHOR_END: train

pub(crate) fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();

    println!("== save");
    // ANCHOR: save
    let model = nn::Block::init(random::key(0), 16, 4, DType::F32);
    save(folder.join("model.safetensors"), &model)?;

    // Loaded into the structure of another one of the same sizes.
    let like = nn::Block::init(random::key(1), 16, 4, DType::F32);
    let loaded = load(folder.join("model.safetensors"), &like)?;
    assert_eq!(loaded.mlp.up.weight.to_vec::<f32>()?, model.mlp.up.weight.to_vec::<f32>()?);
    for (name, tensor) in remat_io::names(&model)?.iter().take(3) {
        println!("{name}: {}", tensor.aval()?);
    }
    // ANCHOR_END: save

    println!("== wrong");
    // ANCHOR: wrong
    let larger = nn::Block::init(random::key(1), 32, 4, DType::F32);
    let error = load(folder.join("model.safetensors"), &larger).expect_err("it has other shapes");
    println!("{}", error.message().replace(&folder.display().to_string(), "."));
    // ANCHOR_END: wrong

    println!("== resume");
    // ANCHOR: resume
    train(&folder.join("run"), 25)?;
    let resumed = train(&folder.join("run"), 40)?;
    let whole = train(&folder.join("other"), 40)?;
    assert_eq!(resumed.weight.to_vec::<f32>()?, whole.weight.to_vec::<f32>()?); // the same bits
    // ANCHOR_END: resume
    Ok(())
}
