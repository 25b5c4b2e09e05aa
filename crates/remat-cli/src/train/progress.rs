//! The progress of training, for the user.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::report::readable_bytes;
use remat_command::resident;
use remat_command::table::thousands;

use crate::config::Config;

/// The decay rate of the shown loss.
const SMOOTHING: f64 = 0.95;

/// Lines of progress where the output is not a terminal.
const LINES: usize = 20;

/// Progress of training: a bar in a terminal, some lines elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Steps done, including those of earlier processes.
    done: usize,
    /// The steps done by earlier processes.
    first: usize,
    /// The average of recent losses, since some batches are easier than others.
    loss: f64,
    steps: usize,
    tokens_of_step: usize,
    /// The useful flops of a step, if they are known.
    flops_of_step: Option<u64>,
    started: Instant,
    /// The time spent on other work since then.
    paused: Duration,
}

/// The rates so far.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub(super) tokens_per_second: f64,
    /// The rate of useful flops.
    pub(super) flops_per_second: Option<f64>,
    /// The bytes that the process has in memory.
    pub(super) resident: Option<usize>,
}

impl Progress {
    pub(super) fn new(config: &Config, tokens_of_step: usize, flops_of_step: Option<u64>, first: u32) -> Progress {
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
        let (started, paused) = (Instant::now(), Duration::ZERO);
        Progress { bar, done: first, first, loss: 0.0, steps, tokens_of_step, flops_of_step, started, paused }
    }

    /// Records a step with this loss and the number of skipped steps. Returns the rates so far.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn step(&mut self, loss: f32, skipped: i32, out: &mut impl Write) -> Result<Rates> {
        self.done += 1;
        let done = self.done - self.first;
        self.loss = SMOOTHING * self.loss + (1.0 - SMOOTHING) * f64::from(loss);
        let loss = self.loss / (1.0 - SMOOTHING.powf(done as f64));
        let seconds = self.started.elapsed().saturating_sub(self.paused).as_secs_f64().max(1e-9);
        let per_second = done as f64 / seconds;
        let rates = Rates {
            tokens_per_second: self.tokens_of_step as f64 * per_second,
            flops_per_second: self.flops_of_step.map(|flops| flops as f64 * per_second),
            resident: resident::now(),
        };
        let is_shown = done == 1 || self.done == self.steps || self.done.is_multiple_of(self.steps.div_ceil(LINES));
        if self.bar.is_some() || is_shown {
            let mut text = format!("loss {loss:.4}  {} tokens/s", thousands(rates.tokens_per_second as usize));
            if let Some(rate) = rates.flops_per_second {
                text += &format!("  {:.1} GFLOP/s", rate / 1e9);
            }
            if let Some(resident) = rates.resident {
                text += &format!("  {}", readable_bytes(resident));
            }
            if skipped > 0 {
                text += &format!("  {skipped} skipped");
            }
            match &self.bar {
                Some(bar) => {
                    bar.inc(1);
                    bar.set_message(text);
                }
                None => {
                    let left = Duration::from_secs_f64((self.steps - self.done) as f64 / per_second);
                    writeln!(out, "step {}/{}  {text}  {} left", self.done, self.steps, readable_time(left))?;
                }
            }
        }
        Ok(rates)
    }

    /// Shows the text that `work` returns; its time does not count as training.
    ///
    /// # Errors
    /// The error of `work`; if the output cannot be written.
    pub(super) fn beside<T>(&mut self, out: &mut impl Write, work: impl FnOnce() -> Result<(String, T)>) -> Result<T> {
        let started = Instant::now();
        let (text, value) = work()?;
        match &self.bar {
            Some(bar) => bar.println(text),
            None => writeln!(out, "{text}")?,
        }
        self.paused += started.elapsed();
        Ok(value)
    }

    /// Leaves the bar in its last state.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

/// A time for people: `45 s`, `3 min 20 s`, `2 h 5 min`.
fn readable_time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        let text = |seconds| readable_time(Duration::from_secs(seconds));
        assert_eq!(
            [0, 59, 60, 200, 3600, 7500].map(text),
            ["0 s", "59 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 5 min"]
        );
    }
}
