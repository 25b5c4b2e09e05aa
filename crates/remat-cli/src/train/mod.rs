//! `remat train`.

mod evaluate;
mod measure;
mod optimizer;
mod origin;
mod plan;
mod progress;
mod step;
mod stop;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use remat::optim::LossScale;
use remat::{Cpu, Tensor, jit_with, random, tree};
use remat_cli::arguments;
use remat_cli::table::thousands;

pub(crate) use evaluate::mean_loss;
pub(crate) use measure::{Measured, architecture, measure};
pub(crate) use optimizer::OptimizerState;
pub(crate) use plan::shapes;
pub(crate) use step::Step;

use crate::config::{Config, Given, Setting};
use crate::data::{Batch, Batches, load, open};
use crate::model::Model;
use crate::records::Report;
use crate::run::{Fingerprint, Run, RunOf, Saved, State};
use crate::sample::{sample_text, shown};
use crate::{machine, memory};
use evaluate::mean_loss_of;
use origin::Origin;
use plan::Limit;
use progress::Progress;
use stop::Stop;

/// Arguments of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with settings, whose keys are the names of the flags below; a flag overrides the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Instead of training, print the configuration as such a file
    #[arg(long)]
    print_config: bool,
    /// Go on with the run of this folder, with its model, text and seed
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

impl Args {
    /// The configuration: of the run that goes on, else the defaults; with the settings of the file, then the flags.
    ///
    /// # Errors
    /// What is wrong with a setting, and where it stands.
    fn config(&self, saved: Option<&Saved>) -> Result<Config> {
        let mut settings = self.config.as_deref().map_or_else(|| Ok(Vec::new()), Setting::read)?;
        settings.extend(self.given.0.iter().cloned());
        saved.map_or_else(|| Config::of(&settings), |saved| saved.config.resumed(&settings))
    }
}

/// Trains a model, saves it and reports on it.
///
/// # Errors
/// What is wrong with the arguments, the environment or the text; if the run cannot be saved, or is interrupted; if the output cannot be
/// written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let saved = args.resume.as_deref().map(Saved::to_resume).transpose()?;
    let config = args.config(saved.as_ref())?;
    if args.print_config {
        return Ok(write!(out, "{}", config.to_toml()?)?);
    }
    train(config, args.resume.as_ref().zip(saved), out)
}

/// As [`run`], for a configuration, and the folder of a run that goes on.
fn train(mut config: Config, resumed: Option<(&PathBuf, Saved)>, out: &mut impl Write) -> Result<()> {
    let saved = resumed.as_ref().map(|(_, saved)| saved);
    let origin = if saved.is_some() { Origin::Fresh } else { Origin::of(&config)? };
    // The run may be resumed from another folder.
    let whole = |path: PathBuf| path.canonicalize().ok().filter(|path| path.to_str().is_some()).unwrap_or(path);
    config.tokenizer = config.tokenizer.take().or_else(|| origin.tokenizer()).map(whole);
    let tokenizer = config.tokenizer()?;
    let architecture = saved.map_or_else(|| origin.architecture(&config), |saved| Ok(saved.architecture.clone()))?;
    let context = config.context(&architecture);
    let sequences = config.sequences(context)?;
    let vocabulary = architecture.vocabulary();
    let least = tokenizer.vocabulary();
    ensure!(vocabulary >= least, "a vocabulary of {vocabulary} is too small for text: a token is one of {least}");
    let step = Step::of(&config)?;
    let policy = arguments::policy(&config.policy)?;
    // Compiles, so that what is wrong with the environment is said before anything else.
    let device = config.device()?;
    let probe = Tensor::from(0.0f32).to_device(&device);
    jit_with(&machine::options(&probe)?, |x: &Tensor| x.clone()).call(probe)?;
    let text = load(&open(config.text.as_deref(), config.column.as_deref())?, &tokenizer)?;
    // What cannot be written is refused before the training.
    config.text = text.path.clone().map(whole);
    config.to_settings()?;
    let fingerprint = Fingerprint::of(&text);
    let [weights, batch_key, sample_key] = random::key(config.seed).split();
    let batches = Batches::new(&text, batch_key, sequences, config.batch, context)?;

    let model = plan::shapes(&config, &architecture)?;
    for note in text.notes.iter().chain(saved.iter().flat_map(|saved| &saved.notes)) {
        writeln!(out, "note: {note}")?;
    }
    if let Some(saved) = saved {
        note_changes(saved, &config, fingerprint, out)?;
    }
    let (size, held_out) = (thousands(text.size()), thousands(batches.held_out()));
    let tokens =
        if config.tokenizer.is_some() { format!(", {} tokens", thousands(text.tokens())) } else { String::new() };
    writeln!(out, "text: {size} bytes in {}{tokens}; {held_out} of them are held out", text.source)?;
    let parameters = thousands(plan::size(&model)?);
    let described = format!("{parameters} parameters ({architecture}), context {context}, batch {}", config.batch);
    writeln!(out, "model: {described}")?;
    writeln!(out, "what each policy keeps of one batch for its backward pass:\n")?;
    let batch = plan::batch(config.batch, context);
    let loss = |model: &Model, policy: Option<&remat::Policy>| step.loss(model, &batch, policy);
    writeln!(out, "{}\n", memory::report(&model, loss, policy.as_ref())?)?;
    // Programs for other devices are planned by their own compilers.
    let plan = (device.name() == Cpu::NAME).then(|| plan::plan(&config, &architecture, context)).transpose()?;
    let (mut flops, mut saves_in_background) = (None, true);
    if let Some(plan) = &plan {
        writeln!(out, "a step takes {}", plan.describe())?;
        if let Some(limit) = Limit::of(&config) {
            limit.check(plan, (&config, &architecture, context), out)?;
            saves_in_background = limit.fits(plan.saving);
        }
        flops = Some(plan.useful_flops(&config, &architecture, context)?);
    }

    let state = match saved {
        Some(saved) => saved.state(&step)?,
        None => {
            let model = origin.model(&config, &architecture, &weights)?;
            let (optimizer, scale) = step.init(&model)?;
            State { step: 0, optimizer, scale, model }
        }
    };
    drop(origin);
    let state = State {
        model: tree::map(&state.model, |_, leaf| leaf.to_device(&device)),
        optimizer: tree::map(&state.optimizer, |_, leaf| leaf.to_device(&device)),
        scale: tree::map(&state.scale, |_, leaf| leaf.to_device(&device)),
        ..state
    };
    let options = config.options(&state.model)?;
    let of = RunOf { config: config.clone(), architecture, text: fingerprint, saves_in_background };
    let mut folder = match &resumed {
        Some((folder, _)) => Run::resume(folder, of, state.step)?,
        None => Run::begin(of, out)?,
    };
    if let Some(saved) = saved {
        writeln!(out, "going on after step {} with {}", state.step, saved.path().display())?;
    }

    let tests = batches.tests();
    let loss = jit_with(&options, |(model, batch): &(Model, Batch)| step.loss(model, batch, None));
    let held_out = |model: &Model| mean_loss_of(&loss, model, tests.iter().cloned().map(Ok));
    let written = |model: &Model, count: usize, key: random::Key| -> Result<String> {
        let model = remat::nn::Lora::merge(model);
        sample_text(&model, &tokenizer, batches.prompt(), count, context, &config.choice, key)
    };
    writeln!(out, "held-out loss before training: {:.4}", held_out(&state.model)?)?;
    let (started, first) = (Instant::now(), state.step);
    let mut progress = Progress::new(&config, sequences * context, flops, first);
    let stop = Stop::new()?;
    let each = |state: &State, loss: f32| {
        let is_due = |every: u32| every > 0 && state.step.is_multiple_of(every) && state.step < config.steps;
        let skipped = state.scale.as_ref().map(|scale| scale.skipped.item::<i32>()).transpose()?;
        let rates = progress.step(loss, skipped.unwrap_or(0), out)?;
        let mut held_out_loss = None;
        if is_due(config.eval_every) && loss.is_finite() {
            held_out_loss = Some(progress.beside(out, || {
                let loss = held_out(&state.model)?;
                Ok((format!("held-out loss after step {}: {loss:.4}", state.step), loss))
            })?);
        }
        let optional = [
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
        if is_due(config.sample_every) && config.sample > 0 {
            progress.beside(out, || {
                let text = written(&state.model, config.sample, sample_key.fold_in(state.step))?;
                Ok((format!("after step {} the model writes:\n\n{text}\n", state.step), ()))
            })?;
        }
        let is_stopped = stop.is_asked();
        if is_stopped || state.step == config.steps || state.step.is_multiple_of(config.save_every) {
            if !LossScale::all_finite(&state.model)?.item::<bool>()? {
                let last = folder.last_checkpoint();
                bail!(
                    "the parameters after step {} are not finite; a lower --learning-rate may help. {last}",
                    state.step
                );
            }
            folder.save(state)?;
        }
        Ok(!is_stopped)
    };
    let ahead = batches.ahead(first)?;
    let state = step::fit(state, config.steps, &step, &options, |_| ahead.next(), each)?;
    progress.finish();
    if folder.saved() != Some(state.step) {
        folder.save(&state)?;
    }
    let saved_in = folder.finish()?;
    let folder = saved_in.display();
    ensure!(
        state.step == config.steps || !stop.is_asked(),
        "stopped after step {}, which is saved; go on with: remat train --resume {folder}",
        state.step
    );
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "held-out loss after training: {:.4}", held_out(&state.model)?)?;
    let steps = config.steps.saturating_sub(first);
    let rate = thousands((f64::from(steps) * (sequences * context) as f64 / seconds.max(1e-9)) as usize);
    writeln!(out, "{steps} steps in {seconds:.1} s, {rate} tokens/s")?;
    let mut sample = None;
    if config.sample > 0 {
        let text = written(&state.model, config.sample, sample_key)?;
        writeln!(out, "\nthe model continues {:?}:\n\n{text}", shown(&tokenizer.decode(batches.prompt())?))?;
        sample = Some(text);
    }
    let (parts, timeline) = plan.map_or_else(Default::default, |plan| (plan.parts(), plan.timeline));
    let (title, config_text) = (folder.to_string(), config.to_toml()?);
    let report = Report { title, model: described, config: config_text, parts, timeline, sample: sample.as_deref() };
    let page = report.write(&saved_in)?;
    writeln!(out, "\nsaved in {folder}, with charts in {}; to go on:", page.display())?;
    writeln!(out, "  remat generate {folder} --prompt \"fn main\"")?;
    writeln!(out, "  remat train --resume {folder} --steps {}", config.steps.saturating_mul(2))?;
    Ok(())
}

/// Says what makes the rest of a run differ from what it would have been.
fn note_changes(saved: &Saved, config: &Config, text: Fingerprint, out: &mut impl Write) -> Result<()> {
    if saved.text != text {
        writeln!(out, "note: the text is not the one that the run began with, so that its batches differ")?;
    }
    let schedule = |config: &Config| (config.steps, config.learning_rate);
    if schedule(&saved.config) != schedule(config) {
        let message =
            "the learning rate goes on by the new schedule, so that the run is neither the old one nor a new one";
        writeln!(out, "note: {message}")?;
    }
    Ok(())
}
