//! The time and the memory of training steps, without a text.

use std::time::Instant;

use anyhow::{Result, anyhow};
use remat::report::Profile;
use remat::{DType, JitOptions, jit_with, random, tree};
use remat_command::resident;
use remat_command::times::{median, median_profile};
use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::plan::Subject;
use crate::config::Config;
use crate::data::Batch;
use crate::model::{Architecture, Model};
use crate::step::{Arguments, Results, Step};

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
    /// The steps, and the model before the first one.
    ///
    /// # Errors
    /// As [`measure`].
    fn of(config: &Config) -> Result<(Steps, Model)> {
        let architecture = architecture(config)?;
        let context = config.context(&architecture);
        let sequences = config.sequences(context)?;
        let device = config.device()?;
        let (mut planned, mut plan) = (None, None);
        if device.engine().plans_memory() {
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
        let options = JitOptions { plan, ..config.options(&model)? };
        let (shape, vocabulary) = ([sequences, context + 1], architecture.vocabulary() as i64);
        Ok((Steps { step, options, tokens, shape, vocabulary, planned, before }, model))
    }

    /// What `run` measures of this many steps, which come after one that compiles, and whose memory is new. Batches are drawn between runs.
    ///
    /// # Errors
    /// The first error of a step.
    fn measured<T>(
        &self,
        model: Model,
        repeat: u32,
        run: impl Fn(Arguments) -> remat::Result<(Results, T)>,
    ) -> remat::Result<Vec<T>> {
        let (optimizer, scale) = self.step.init(&model)?;
        let (mut state, mut measured) = ((model, optimizer, scale), Vec::new());
        for number in 0..=repeat {
            let (model, optimizer, scale) = state;
            let batch = drawn(self.tokens.fold_in(number), self.shape, self.vocabulary);
            let ((model, optimizer, scale, _), of_step) = run((model, optimizer, scale, batch))?;
            state = (model, optimizer, scale);
            measured.extend((number > 0).then_some(of_step));
        }
        Ok(measured)
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
    let (steps, model) = Steps::of(config)?;
    let program = jit_with(&steps.options, |arguments: &Arguments| steps.step.run(arguments));
    let mut times = steps.measured(model, repeat, |arguments| {
        let started = Instant::now();
        let results = program.call(arguments)?;
        // It is computed once it can be read.
        results.3.loss.item::<f32>()?;
        Ok((results, started.elapsed().as_secs_f64()))
    })?;
    let seconds = median(&mut times);
    Ok(Measured {
        seconds,
        tokens_per_second: (steps.shape[0] * (steps.shape[1] - 1)) as f64 / seconds,
        planned: steps.planned,
        resident: resident::peak().zip(steps.before).map(|(after, before)| after.saturating_sub(before)),
    })
}

/// The profile of a step on random tokens: of this many after an untimed one, that with the median time.
///
/// # Errors
/// As [`measure`]; if the device is not the native engine.
pub(crate) fn profiled(config: &Config, repeat: u32) -> Result<Profile> {
    let (steps, model) = Steps::of(config)?;
    let program = jit_with(&steps.options, |arguments: &Arguments| steps.step.run(arguments));
    let profiles = steps.measured(model, repeat, |arguments| program.profile(arguments))?;
    median_profile(profiles).ok_or_else(|| anyhow!("no step was timed"))
}
