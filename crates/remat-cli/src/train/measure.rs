//! The time and the memory of training steps, without a text.

use anyhow::{Result, anyhow};
use remat::report::Profile;
use remat::{Cpu, DType, JitOptions, jit_with, random, tree};
use remat_command::resident;
use remat_command::times::{median, median_profile};
use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::plan::Subject;
use super::steps::fit;
use crate::config::Config;
use crate::data::Batch;
use crate::model::Architecture;
use crate::run::State;
use crate::step::{Arguments, Numbers, Step};

/// The measurements of a configuration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The median time of a step.
    pub(crate) seconds: f64,
    pub(crate) tokens_per_second: f64,
    /// The peak of a step as planned by the native engine, in bytes, including model, optimizer state and batch. `None` on other devices,
    /// whose own compilers plan.
    pub(crate) planned: Option<usize>,
    /// The growth of the process at its peak, in bytes, without its code and libraries. `None` if the system does not report it.
    pub(crate) resident: Option<usize>,
}

/// The architecture that a configuration trains, which may be that of another run.
///
/// # Errors
/// If there is no such model.
pub(crate) fn architecture(config: &Config) -> Result<Architecture> {
    Origin::of(config)?.architecture(config)
}

/// Steps of a configuration on random tokens.
struct Steps {
    step: Step,
    state: State,
    options: JitOptions,
    /// The key of tokens, and the shape of a batch with one more token in each sequence.
    tokens: random::Key,
    shape: [usize; 2],
    vocabulary: i64,
    /// The peak of a step as planned.
    planned: Option<usize>,
    /// The memory of the process before there was a model.
    before: Option<usize>,
}

impl Steps {
    /// # Errors
    /// As [`measure`].
    fn of(config: &Config) -> Result<Steps> {
        let architecture = architecture(config)?;
        let context = config.context(&architecture);
        let sequences = config.sequences(context)?;
        let device = config.device()?;
        let (mut planned, mut plan) = (None, None);
        if device.name() == Cpu::NAME {
            let program = Subject::of_steps(config, &architecture).program()?;
            planned = Some(program.plan()?.step);
            if let Some(limit) = config.limit() {
                let within = program.step()?.for_bytes(limit)?;
                planned = Some(within.peak());
                plan = Some(within);
            }
        }
        let before = resident::now();
        resident::reset_peak();
        let [weights, tokens] = random::key(config.seed).split();
        let step = Step::of(config)?;
        let model = tree::map(&config.model(&architecture, &weights)?, |leaf| leaf.to_device(&device));
        let (optimizer, scale) = step.init(&model)?;
        let state = State { step: 0, model, optimizer, scale };
        let options = JitOptions { plan, ..config.options(&state.model)? };
        let (shape, vocabulary) = ([sequences, context + 1], architecture.vocabulary() as i64);
        Ok(Steps { step, state, options, tokens, shape, vocabulary, planned, before })
    }
}

/// The batch of a step, drawn with this key.
fn drawn(key: random::Key, shape: [usize; 2], vocabulary: i64) -> Batch {
    let tokens = random::randint(key, shape, DType::I32, 0..vocabulary);
    let context = shape[1] - 1;
    Batch { tokens: tokens.index((.., ..context)), targets: tokens.index((.., 1..)) }
}

/// Trains on random tokens for one step, then for the timed steps. With a memory limit, values are computed again until a step needs no more.
///
/// # Errors
/// If the configuration has no model or policy, or the first error of a step; if no plan is found for the limit.
pub(crate) fn measure(config: &Config, repeat: u32) -> Result<Measured> {
    let Steps { step, state, options, tokens, shape, vocabulary, planned, before } = Steps::of(config)?;
    let batch = |step: u32| Ok(drawn(tokens.fold_in(step), shape, vocabulary));
    let (mut times, mut last) = (Vec::new(), std::time::Instant::now());
    let done = |state: &State, _: Numbers<f32>, _| {
        // The first step compiles, and its memory is new.
        if state.step > 1 {
            times.push(last.elapsed().as_secs_f64());
        }
        last = std::time::Instant::now();
        Ok(true)
    };
    fit(state, repeat + 1, &step, &options, batch, done)?;
    let seconds = median(&mut times);
    Ok(Measured {
        seconds,
        tokens_per_second: (shape[0] * (shape[1] - 1)) as f64 / seconds,
        planned,
        resident: resident::peak().zip(before).map(|(after, before)| after.saturating_sub(before)),
    })
}

/// The profile of a step on random tokens: of this many after an untimed one, that with the median time.
///
/// # Errors
/// As [`measure`]; if the device is not the native engine.
pub(crate) fn profiled(config: &Config, repeat: u32) -> Result<Profile> {
    let Steps { step, state, options, tokens, shape, vocabulary, .. } = Steps::of(config)?;
    let program = jit_with(&options, |arguments: &Arguments| step.run(arguments));
    let (mut state, mut profiles) = ((state.model, state.optimizer, state.scale), Vec::new());
    for number in 0..=repeat {
        let (model, optimizer, scale) = state;
        let batch = drawn(tokens.fold_in(number), shape, vocabulary);
        let ((model, optimizer, scale, _), profile) = program.profile((model, optimizer, scale, batch))?;
        state = (model, optimizer, scale);
        profiles.extend((number > 0).then_some(profile));
    }
    median_profile(profiles).ok_or_else(|| anyhow!("no step was timed"))
}
