//! The steps of a run, and the work between them.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use remat::optim::LossScale;
use remat::{JitOptions, Jitted, Tensor, jit_with};
use remat_command::output::Output;
use remat_command::text::shell_word;

use super::evaluate::HeldOut;
use super::prepare::{Job, Planned};
use super::progress::Progress;
use super::steps;
use super::stop::Stop;
use crate::machine;
use crate::model::Model;
use crate::run::{Run, State};
use crate::sample::Samples;
use crate::step::Numbers;

/// The programs of a run. On the native engine they share one block of memory, so that they need no memory beside each other; the plan
/// relies on this.
pub(super) struct Programs<'a> {
    job: &'a Job<'a>,
    options: JitOptions,
    held_out: HeldOut<'a>,
    samples: Samples,
    /// Whether all parameters are finite.
    finite: Jitted<Model, remat::Result<Tensor>, fn(&Model) -> remat::Result<Tensor>>,
}

/// A finished run.
pub(super) struct Ended {
    pub(super) state: State,
    /// The folder in which it is saved.
    pub(super) folder: PathBuf,
    pub(super) steps: u32,
    pub(super) seconds: f64,
}

impl<'a> Programs<'a> {
    /// The programs for training models like this one.
    ///
    /// # Errors
    /// The error of a failed weight.
    pub(super) fn new(job: &'a Job<'a>, model: &Model) -> Result<Programs<'a>> {
        let options = machine::sharing_memory(&job.device, job.config.options(model)?);
        let vocabulary = job.tokenizer.vocabulary();
        Ok(Programs {
            held_out: HeldOut::new(&options, &job.step, job.batches.tests()),
            samples: Samples::new(&options, model, vocabulary, job.context, &job.config.choice)?,
            finite: jit_with(&options, (|model| LossScale::all_finite(model)) as fn(&Model) -> _),
            job,
            options,
        })
    }

    /// The loss of held-out text.
    ///
    /// # Errors
    /// The first error of the model.
    pub(super) fn loss(&self, model: &Model) -> Result<f64> {
        Ok(self.held_out.of(model)?)
    }

    /// A sample that continues the beginning of the held-out text, at a step, or at the end.
    ///
    /// # Errors
    /// The first error of the model.
    pub(super) fn sample(&self, model: &Model, step: Option<u32>) -> Result<String> {
        let Job { tokenizer, batches, config, samples, .. } = self.job;
        let key = step.map_or_else(|| samples.reuse(), |step| samples.fold_in(step));
        self.samples.write(model, tokenizer, batches.prompt(), config.sample, key)
    }

    /// Trains from a state on, and saves the results.
    ///
    /// # Errors
    /// The first error of a step; if the loss or the parameters are not finite, the run is stopped, or it cannot be saved.
    pub(super) fn train(
        &self,
        state: State,
        planned: Option<&Planned>,
        mut folder: Run,
        out: &mut Output<impl Write>,
    ) -> Result<Ended> {
        let Job { config, step, sequences, context, batches, .. } = self.job;
        let (started, first) = (Instant::now(), state.step);
        let flops = planned.map(|planned| planned.useful_flops);
        let mut progress = Progress::new(config, sequences * context, flops, first);
        let stop = Stop::new()?;
        let mut is_read = true;
        let each = |state: &State, numbers: Numbers<f32>, learning_rate: f64| {
            self.measure(state, numbers, learning_rate, &mut progress, &mut folder, out)?;
            if std::mem::replace(&mut is_read, !out.is_lost()) && out.is_lost() {
                folder.unread(state.step)?;
            }
            if is_due(config.sample_every, state.step, config.steps) && config.sample > 0 {
                progress.beside(out, || {
                    let text = self.sample(&state.model, Some(state.step))?;
                    Ok((format!("after step {} the model writes:\n\n{text}\n", state.step), ()))
                })?;
            }
            let is_stopped = stop.is_asked();
            if is_stopped || state.step == config.steps || state.step.is_multiple_of(config.save_every) {
                self.save(state, &mut folder)?;
            }
            Ok(!is_stopped)
        };
        let ahead = batches.ahead(first)?;
        let options = JitOptions { plan: planned.and_then(|planned| planned.step.clone()), ..self.options.clone() };
        let state = steps::fit(state, config.steps, step, &options, |_| ahead.next(), each)?;
        progress.finish();
        if folder.saved() != Some(state.step) {
            folder.save(&state)?;
        }
        let folder = folder.finish()?;
        ensure!(
            state.step == config.steps || !stop.is_asked(),
            "stopped after step {}, which is saved; resume with: remat train --resume {}",
            state.step,
            shell_word(&folder)
        );
        let (steps, seconds) = (config.steps.saturating_sub(first), started.elapsed().as_secs_f64());
        Ok(Ended { state, folder, steps, seconds })
    }

    /// Shows and records the measurements of a step, with the held-out loss if it is due.
    ///
    /// # Errors
    /// If the loss is not finite; the first error of the model; if something cannot be written.
    fn measure(
        &self,
        state: &State,
        Numbers { loss, gradient_norm }: Numbers<f32>,
        learning_rate: f64,
        progress: &mut Progress,
        folder: &mut Run,
        out: &mut impl Write,
    ) -> Result<()> {
        let config = &self.job.config;
        let skipped = state.scale.as_ref().map(|scale| scale.skipped.item::<i32>()).transpose()?;
        let rates = progress.step(loss, skipped.unwrap_or(0), out)?;
        let mut held_out_loss = None;
        if is_due(config.eval_every, state.step, config.steps) && loss.is_finite() {
            held_out_loss = Some(progress.beside(out, || {
                let loss = self.loss(&state.model)?;
                Ok((format!("held-out loss after step {}: {loss:.4}", state.step), loss))
            })?);
        }
        let optional = [
            ("gradient_norm", gradient_norm.map(f64::from)),
            ("learning_rate", Some(learning_rate)),
            ("flops_per_second", rates.flops_per_second.map(f64::round)),
            ("resident_bytes", rates.resident.map(|bytes| bytes as f64)),
            ("held_out_loss", held_out_loss),
            ("skipped_steps", skipped.map(f64::from)),
        ];
        let known = optional.into_iter().filter_map(|(name, number)| Some((name, number?)));
        let first = [("loss", f64::from(loss)), ("tokens_per_second", rates.tokens_per_second.round())];
        folder.measured(state.step, &first.into_iter().chain(known).collect::<Vec<_>>())?;
        if !loss.is_finite() {
            let last = folder.last_checkpoint();
            bail!("the loss of step {} is {loss}; a lower --learning-rate may help. {last}", state.step);
        }
        Ok(())
    }

    /// Saves a state whose parameters are finite.
    ///
    /// # Errors
    /// If they are not finite, or the state cannot be saved.
    fn save(&self, state: &State, folder: &mut Run) -> Result<()> {
        if !self.finite.call(state.model.clone())?.item::<bool>()? {
            let (step, last) = (state.step, folder.last_checkpoint());
            bail!("the parameters after step {step} are not finite; a lower --learning-rate may help. {last}");
        }
        folder.save(state)
    }
}

/// Whether a periodic task is due after this step. At the end it is done in any case.
fn is_due(every: u32, step: u32, last: u32) -> bool {
    every > 0 && step.is_multiple_of(every) && step < last
}
