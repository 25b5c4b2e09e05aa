//! `remat train`.

mod course;
mod evaluate;
mod limit;
mod measure;
mod origin;
mod plan;
mod prepare;
mod progress;
mod steps;
mod stop;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use remat_command::output::Output;
use remat_command::table::thousands;
use remat_command::text::{printable, shell_word};
use remat_io::{Checkpoints, save_report};

pub(crate) use evaluate::mean_loss;
pub(crate) use measure::{Measured, architecture, measure, profiled};
pub(crate) use plan::{step as planned_step, under as planned_under};

use crate::config::{Config, Flags};
use crate::lock::Lock;
use crate::records::Report;
use crate::run::Saved;
use course::{Ended, Programs};
use prepare::{Job, Planned, Resumed};

/// Arguments of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings, whose keys are the names of the flags below; a flag overrides the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration as such a file instead of training
    #[arg(long)]
    print_config: bool,
    /// Resume the run in this folder, with its model, text and seed
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    lock: Lock,
    #[command(flatten)]
    flags: Flags,
}

impl Args {
    /// The configuration: that of the resumed run or the defaults, with the settings of the file, then the flags.
    ///
    /// # Errors
    /// A mistake in a setting, with its origin.
    fn config(&self, saved: Option<&Saved>) -> Result<Config> {
        let settings = self.flags.settings(self.config.as_deref())?;
        saved.map_or_else(|| Config::of(&settings), |saved| saved.config.resumed(&settings))
    }
}

/// Trains a model, saves it and reports on it.
///
/// # Errors
/// If the arguments, the environment or the text are not valid; if the run cannot be saved, or is interrupted.
pub(crate) fn run(args: &Args, out: &mut Output<impl Write>) -> Result<()> {
    let resumed = args.resume.as_deref();
    if args.print_config {
        let saved = resumed.map(Saved::of_run).transpose()?;
        return Ok(write!(out, "{}", args.config(saved.as_ref())?.to_toml()?)?);
    }
    let (saved, checkpoints) = resumed.map(Saved::to_resume).transpose()?.unzip();
    let config = args.config(saved.as_ref())?;
    if let Some(done) = saved.as_ref().map(|saved| saved.step).filter(|&done| done > config.steps) {
        bail!("the run has already done {done} steps: --steps includes these, so {} is too few", config.steps);
    }
    train(config, &args.lock, resumed.zip(saved), checkpoints, out)
}

/// As [`run`], for a configuration, a resumed run, and the checkpoints of its folder.
fn train(
    config: Config,
    lock: &Lock,
    resumed: Option<Resumed<'_>>,
    checkpoints: Option<Checkpoints>,
    out: &mut Output<impl Write>,
) -> Result<()> {
    let job = Job::prepare(config, resumed)?;
    job.describe(out)?;
    let planned = job.plan(lock, out)?;
    let state = job.state()?;
    let programs = Programs::new(&job, &state.model)?;
    let folder = job.folder(planned.as_ref(), &state, checkpoints, out)?;
    writeln!(out, "held-out loss before training: {:.4}", programs.loss(&state.model)?)?;
    let ended = programs.train(state, planned.as_ref(), folder, out)?;
    finish(&job, &programs, &ended, planned, out)
}

/// Reports the result of a run and how to use it, and writes its page.
///
/// # Errors
/// The first error of the model; if something cannot be written.
fn finish(
    job: &Job<'_>,
    programs: &Programs<'_>,
    ended: &Ended,
    planned: Option<Planned>,
    out: &mut impl Write,
) -> Result<()> {
    let (config, folder) = (&job.config, shell_word(&ended.folder));
    writeln!(out, "held-out loss after training: {:.4}", programs.loss(&ended.state.model)?)?;
    let tokens = f64::from(ended.steps) * (job.sequences * job.context) as f64;
    let rate = thousands((tokens / ended.seconds.max(1e-9)) as usize);
    writeln!(out, "{} steps in {:.1} s, {rate} tokens/s", ended.steps, ended.seconds)?;
    let mut sample = None;
    if config.sample > 0 {
        let text = programs.sample(&ended.state.model, None)?;
        let prompt = printable(&job.tokenizer.decode(job.batches.prompt())?);
        writeln!(out, "\nthe model continues {prompt:?}:\n\n{text}")?;
        sample = Some(text);
    }
    // The run is saved: a page that cannot be written is told and costs nothing else.
    let memory = match planned.as_ref().map(|planned| memory_page(job, planned, ended)).transpose() {
        Ok(memory) => memory,
        Err(error) => {
            writeln!(out, "\nthe page of the memory of a step was not written: {error:#}")?;
            None
        }
    };
    let (parts, timeline) = planned.map_or_else(Default::default, |Planned { plan, .. }| (plan.parts(), plan.timeline));
    let (title, model, config_text) = (ended.folder.display().to_string(), job.model()?, config.to_toml()?);
    let report = Report { title, model, config: config_text, parts, timeline, memory, sample: sample.as_deref() };
    let page = report.write(&ended.folder)?;
    writeln!(out, "\nsaved in {}, with charts in {}; to go on:", ended.folder.display(), page.display())?;
    writeln!(out, "  remat generate {folder} --prompt \"fn main\"")?;
    writeln!(out, "  remat train --resume {folder} --steps {}", config.steps.saturating_mul(2))?;
    Ok(())
}

/// Writes the page of the memory of a step, as it ran, into the folder of the run, and returns its name there.
fn memory_page(job: &Job<'_>, planned: &Planned, ended: &Ended) -> Result<&'static str> {
    const NAME: &str = "memory.html";
    let step = planned.step.clone().map_or_else(|| planned_step(&job.config, &job.architecture), Ok)?;
    save_report(ended.folder.join(NAME), &format!("a training step of {}", ended.folder.display()), &[step])?;
    Ok(NAME)
}
