//! The steps of training.

use anyhow::Result;
use remat::optim::{AdamW, Mask, Moments, Optimizer, Schedule, clip_by_global_norm};
use remat::report::MemoryReport;
use remat::{Policy, Tensor, jit_with, value_and_grad};

use crate::config::Config;
use crate::data::Batch;
use crate::machine;
use crate::model::Model;
use crate::run::State;

/// The gradient's norm above which it is scaled down.
const MAX_NORM: f64 = 1.0;

/// The optimizer of a run.
pub(super) fn optimizer(config: &Config) -> AdamW {
    let steps = u64::from(config.steps);
    let learning_rate = Schedule::WarmupCosine {
        start: 0.0,
        peak: config.learning_rate,
        end: config.learning_rate / 10.0,
        warmup_steps: (steps / 10).min(100),
        steps,
    };
    AdamW { learning_rate, weight_decay: 0.1, decay: Mask::Matrices, b2: 0.99, ..AdamW::default() }
}

/// Model, state of the optimizer, and batch of a step.
type Arguments = (Model, Moments<Model>, Batch);

/// A step: the model and the state after it, and the loss before it.
fn step(
    (model, state, batch): &Arguments,
    adam: &AdamW,
    policy: Option<&Policy>,
) -> remat::Result<(Model, Moments<Model>, Tensor)> {
    let (loss, gradient) = value_and_grad(|model: &Model| model.loss(batch, policy))(model)?;
    let (gradient, _) = clip_by_global_norm(&gradient, MAX_NORM);
    let (model, state) = adam.update(model, &gradient, state)?;
    Ok((model, state, loss))
}

/// The memory that a step needs.
///
/// # Errors
/// The first error of the step.
pub(super) fn memory(state: &State, adam: &AdamW, policy: Option<&Policy>, batch: Batch) -> Result<MemoryReport> {
    let step = jit_with(&machine::options(&state.model)?, |args: &Arguments| step(args, adam, policy));
    Ok(step.memory_report(&(state.model.clone(), state.optimizer.clone(), batch))?)
}

/// The state after the steps that are left; `done` gets each new state with the loss of its step, and says whether to go on.
///
/// # Errors
/// The first error of a step or of `done`.
pub(super) fn fit(
    mut state: State,
    config: &Config,
    adam: &AdamW,
    policy: Option<&Policy>,
    batch: impl Fn(u32) -> remat::Result<Batch>,
    mut done: impl FnMut(&State, f32) -> Result<bool>,
) -> Result<State> {
    let step = jit_with(&machine::options(&state.model)?, |args: &Arguments| step(args, adam, policy));
    for i in state.step..config.steps {
        let (model, optimizer, loss) = step.call((state.model, state.optimizer, batch(i)?))?;
        state = State { step: i + 1, model, optimizer };
        if !done(&state, loss.item::<f32>()?)? {
            break;
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use remat::{DType, random};
    use remat_cli::arguments;

    use super::*;
    use crate::data::random_batch;
    use crate::model::{Architecture, Sizes};

    /// The bits of the losses of a small run.
    fn losses(model: &str, policy: &str) -> Vec<u32> {
        let config = Config { steps: 4, ..Config::of(&[]).unwrap() };
        let sizes = Sizes { width: Some(8), heads: Some(2), context: Some(6), ..Sizes::default() };
        let architecture = Architecture::named(model, &sizes).unwrap();
        let (model, optimizer) = (Model::init(random::key(0), &architecture, DType::F32), optimizer(&config));
        let state = State { step: 0, optimizer: optimizer.init(&model), model };
        let text: Vec<u8> = (0..100).collect();
        let batch = |step: u32| random_batch(random::key(1).fold_in(step), &text, 3, 6);
        let policy = arguments::policy(policy).unwrap();
        let mut losses = Vec::new();
        let done = |_: &State, loss: f32| {
            losses.push(loss.to_bits());
            Ok(true)
        };
        fit(state, &config, &optimizer, policy.as_ref(), batch, done).unwrap();
        losses
    }

    #[test]
    fn no_policy_changes_a_bit() {
        for model in ["gpt2-tiny", "llama-tiny"] {
            let expected = losses(model, "none");
            assert_eq!(expected.len(), 4);
            let more = ["anything_but(qkv, attn)", "save_and_offload_names((), (attn), host)"];
            for policy in crate::policy::LISTED.into_iter().chain(more) {
                assert_eq!(losses(model, policy), expected, "{model} {policy}");
            }
        }
    }
}
