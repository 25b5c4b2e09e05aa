//! The steps of a run, one after the other.

use anyhow::Result;
use remat::{JitOptions, jit_with};

use crate::data::Batch;
use crate::run::State;
use crate::step::{Arguments, Numbers, Step};

/// The state after the steps up to `steps`. `done` gets each new state with the numbers and the learning rate of its step, and returns whether
/// to continue.
///
/// # Errors
/// The first error of a step or of `done`.
pub(super) fn fit(
    mut state: State,
    steps: u32,
    step: &Step,
    options: &JitOptions,
    batch: impl Fn(u32) -> remat::Result<Batch>,
    mut done: impl FnMut(&State, Numbers<f32>, f64) -> Result<bool>,
) -> Result<State> {
    let program = jit_with(options, |arguments: &Arguments| step.run(arguments));
    for i in state.step..steps {
        let learning_rate = step.learning_rate(state.step, state.scale.as_ref())?;
        let (model, optimizer, scale, numbers) =
            program.call((state.model, state.optimizer, state.scale, batch(i)?))?;
        state = State { step: i + 1, model, optimizer, scale };
        let Numbers { loss, gradient_norm } = numbers;
        let gradient_norm = gradient_norm.map(|norm| norm.item::<f32>()).transpose()?;
        if !done(&state, Numbers { loss: loss.item::<f32>()?, gradient_norm }, learning_rate)? {
            break;
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use remat::optim::LossScale;
    use remat::{random, tree};

    use super::*;
    use crate::config::{Config, Setting};
    use crate::data::random_batch;
    use crate::model::Architecture;

    /// The configuration of a small run with these settings.
    fn config(settings: &[(&str, &str)]) -> Config {
        let small = [("steps", "4"), ("width", "8"), ("heads", "2"), ("context", "6"), ("batch", "4")];
        let settings = small.iter().chain(settings).map(|(key, value)| Setting::flag(key, value));
        Config::of(&settings.collect::<Vec<_>>()).unwrap()
    }

    /// The state after a small run, and its losses.
    fn trained(settings: &[(&str, &str)]) -> (State, Vec<f32>) {
        let config = config(settings);
        let architecture: Architecture = config.architecture().unwrap();
        let step = Step::of(&config).unwrap();
        let model = config.model(&architecture, &random::key(0)).unwrap();
        let (optimizer, scale) = step.init(&model).unwrap();
        let state = State { step: 0, model, optimizer, scale };
        let text: Vec<u8> = (0..100).collect();
        let rows = config.batch * config.accumulate;
        let batch = |step: u32| random_batch(random::key(1).fold_in(step), &text, rows, 6);
        let mut losses = Vec::new();
        let done = |_: &State, Numbers { loss, gradient_norm }: Numbers<f32>, _| {
            assert_eq!(gradient_norm.is_some(), config.clip_norm > 0.0);
            assert!(gradient_norm.is_none_or(|norm| norm > 0.0 || !norm.is_finite()));
            losses.push(loss);
            Ok(true)
        };
        let state = fit(state, config.steps, &step, &JitOptions::default(), batch, done).unwrap();
        assert_eq!(losses.len(), 4);
        (state, losses)
    }

    #[test]
    fn no_policy_changes_a_bit() {
        let bits = |model: &str, policy: &str| {
            let (_, losses) = trained(&[("model", model), ("policy", policy)]);
            losses.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        for model in ["gpt2-tiny", "llama-tiny"] {
            let expected = bits(model, "none");
            let more = ["anything_but(qkv, attn)", "save_and_offload_names((), (attn), host)"];
            for policy in crate::policy::LISTED.into_iter().chain(more) {
                assert_eq!(bits(model, policy), expected, "{model} {policy}");
            }
        }
    }

    /// The largest difference between losses that should be equal up to rounding.
    fn difference(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn parts_of_a_batch_are_the_whole_batch() {
        let (_, whole) = trained(&[]);
        for parts in [[("batch", "2"), ("accumulate", "2")], [("batch", "1"), ("accumulate", "4")]] {
            let (_, losses) = trained(&parts);
            assert!(difference(&whole, &losses) < 1e-4, "{whole:?} {losses:?}");
        }
    }

    #[test]
    fn every_optimizer_dtype_and_form_trains() {
        let (_, plain) = trained(&[]);
        let (_, scanned) = trained(&[("layers-as", "scan")]);
        assert!(difference(&plain, &scanned) < 1e-4, "{plain:?} {scanned:?}");
        for optimizer in ["adafactor", "adam8bit", "lion", "sgd", "muon"] {
            for form in ["unroll", "scan"] {
                let (_, losses) = trained(&[("optimizer", optimizer), ("layers-as", form)]);
                assert!(losses.iter().all(|loss| loss.is_finite()), "{optimizer}: {losses:?}");
                // The first loss is that before any step. With adam8bit, small parameters have 32-bit moments too.
                let is_another = optimizer == "adam8bit" || losses[3] != plain[3];
                assert!((losses[0] - plain[0]).abs() < 1e-5 && is_another, "{optimizer}: {losses:?}");
            }
        }
        for dtype in ["bf16", "f16"] {
            let (state, losses) = trained(&[("dtype", dtype)]);
            assert!(difference(&plain, &losses) < 0.05, "{dtype}: {plain:?} {losses:?}");
            assert_eq!(state.scale.is_some(), dtype == "f16");
            let accumulated = trained(&[("dtype", dtype), ("batch", "2"), ("accumulate", "2")]).1;
            assert!((losses[0] - accumulated[0]).abs() < 0.01, "{dtype}: {losses:?} {accumulated:?}");
        }
        let (_, unbounded) = trained(&[("clip-norm", "0"), ("clip-value", "0.01")]);
        assert!(unbounded.iter().all(|loss| loss.is_finite()));
    }

    #[test]
    fn a_gradient_that_overflows_is_skipped() {
        let config = config(&[("dtype", "f16"), ("steps", "1")]);
        let step = Step::of(&config).unwrap();
        let model = config.model(&config.architecture().unwrap(), &random::key(0)).unwrap();
        let (optimizer, _) = step.init(&model).unwrap();
        let state = State { step: 0, model: model.clone(), optimizer, scale: Some(LossScale::new(1e38)) };
        let batch = |_| random_batch(random::key(1), &[7; 50], 4, 6);
        let state = fit(state, 1, &step, &JitOptions::default(), batch, |_, numbers, _| {
            assert!(numbers.loss.is_finite());
            Ok(true)
        });
        let state = state.unwrap();
        assert_eq!(state.scale.unwrap().skipped.item::<i32>().unwrap(), 1);
        for ((_, before), (_, after)) in tree::leaves(&model).into_iter().zip(tree::leaves(&state.model)) {
            assert_eq!(before.to_vec::<f32>().unwrap(), after.to_vec::<f32>().unwrap());
        }
    }

    #[test]
    fn a_skipped_step_has_the_rate_of_the_next_one() {
        let config = config(&[("dtype", "f16"), ("steps", "40"), ("learning-rate", "0.5")]);
        let step = Step::of(&config).unwrap();
        let model = config.model(&config.architecture().unwrap(), &random::key(0)).unwrap();
        let (optimizer, _) = step.init(&model).unwrap();
        let small = LossScale::new(1.0);
        let batch = |_| random_batch(random::key(1), &[7; 50], 4, 6);
        let mut rates = Vec::new();
        let mut run = |state: State, steps: u32| {
            fit(state, steps, &step, &JitOptions::default(), batch, |_, _, rate| {
                rates.push(rate);
                Ok(true)
            })
            .unwrap()
        };
        let first = run(State { step: 0, model, optimizer, scale: Some(small.clone()) }, 1);
        // The second step is skipped.
        let second = run(State { scale: Some(LossScale::new(1e38)), ..first }, 2);
        let skipped = second.scale.as_ref().unwrap().skipped.clone();
        assert_eq!(skipped.item::<i32>().unwrap(), 1);
        run(State { scale: Some(LossScale { skipped, ..small }), ..second }, 4);
        // The rate rises from zero in four counted steps.
        assert_eq!(rates, [0.0, 0.125, 0.125, 0.25]);
    }

    #[test]
    fn adapters_are_trained_and_nothing_else() {
        for (model, form) in [("gpt2-tiny", "unroll"), ("llama-tiny", "scan")] {
            let settings = [("model", model), ("layers-as", form), ("lora", "2")];
            let config = config(&settings);
            let before = config.model(&config.architecture().unwrap(), &random::key(0)).unwrap();
            let (state, losses) = trained(&settings);
            assert!(losses.iter().all(|loss| loss.is_finite()));
            for ((path, before), (_, after)) in tree::leaves(&before).into_iter().zip(tree::leaves(&state.model)) {
                let is_same = before.to_vec::<f32>().unwrap() == after.to_vec::<f32>().unwrap();
                assert_ne!(path.to_string().contains("adapter"), is_same, "{path}");
            }
            // The moments of all others are empty.
            let sizes =
                tree::leaves(&state.optimizer).into_iter().filter(|(path, _)| path.to_string().ends_with("table"));
            assert!(sizes.into_iter().all(|(_, leaf)| leaf.size().unwrap() == 0));
        }
    }
}
