//! How far training is, for the user.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat_cli::table::thousands;

use crate::config::Config;

/// How much of the shown loss stays from step to step.
const SMOOTHING: f64 = 0.95;

/// Lines of progress where the output is not a terminal.
const LINES: usize = 20;

/// Progress of training: a bar in a terminal, some lines elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Steps done, those of earlier processes included.
    done: usize,
    /// The steps that earlier processes have done.
    first: usize,
    /// The average of recent losses: one batch is easier than another.
    loss: f64,
    steps: usize,
    tokens_of_step: usize,
    started: Instant,
}

impl Progress {
    pub(super) fn new(config: &Config, tokens_of_step: usize, first: u32) -> Progress {
        let bar = stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(u64::from(config.steps)), ProgressDrawTarget::stdout());
            bar.set_position(u64::from(first));
            bar.reset_eta();
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let (first, steps) = (first as usize, config.steps as usize);
        Progress { bar, done: first, first, loss: 0.0, steps, tokens_of_step, started: Instant::now() }
    }

    /// One more step is done, with this loss. The tokens per second so far.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn step(&mut self, loss: f32, out: &mut impl Write) -> Result<f64> {
        self.done += 1;
        let done = self.done - self.first;
        self.loss = SMOOTHING * self.loss + (1.0 - SMOOTHING) * f64::from(loss);
        let loss = self.loss / (1.0 - SMOOTHING.powf(done as f64));
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let rate = (done * self.tokens_of_step) as f64 / seconds;
        let shown = thousands(rate as usize);
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("loss {loss:.4}  {shown} tokens/s"));
        } else if done == 1 || self.done == self.steps || self.done.is_multiple_of(self.steps.div_ceil(LINES)) {
            writeln!(out, "step {}/{}  loss {loss:.4}  {shown} tokens/s", self.done, self.steps)?;
        }
        Ok(rate)
    }

    /// The last state of the bar stays.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
