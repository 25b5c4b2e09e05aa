//! The time and the memory of training steps, without a text.

use anyhow::Result;
use remat::{Cpu, DType, JitOptions, random, tree};
use remat_cli::resident;
use remat_cli::times::median;
use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::plan::Subject;
use super::step::{Step, fit};
use crate::config::Config;
use crate::data::Batch;
use crate::model::Architecture;
use crate::run::State;

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

/// Trains on random tokens for one step, then for the timed steps. With a memory limit, values are computed again until a step needs no more.
///
/// # Errors
/// If the configuration has no model or policy, or the first error of a step; if no plan is found for the limit.
pub(crate) fn measure(config: &Config, repeat: u32) -> Result<Measured> {
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
    let model = tree::map(&config.model(&architecture, &weights)?, |_, leaf| leaf.to_device(&device));
    let (optimizer, scale) = step.init(&model)?;
    let state = State { step: 0, model, optimizer, scale };
    let options = JitOptions { plan, ..config.options(&state.model)? };
    let vocabulary = architecture.vocabulary() as i64;
    let batch = |step: u32| -> remat::Result<Batch> {
        let drawn = random::randint(tokens.fold_in(step), [sequences, context + 1], DType::I32, 0..vocabulary);
        Ok(Batch { tokens: drawn.index((.., ..context)), targets: drawn.index((.., 1..)) })
    };
    let (mut times, mut last) = (Vec::new(), std::time::Instant::now());
    let done = |state: &State, _: f32| {
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
        tokens_per_second: (sequences * context) as f64 / seconds,
        planned,
        resident: resident::peak().zip(before).map(|(after, before)| after.saturating_sub(before)),
    })
}
