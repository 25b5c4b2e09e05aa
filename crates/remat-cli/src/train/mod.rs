//! `remat train`.

mod evaluate;
mod progress;
mod step;
mod stop;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use remat::optim::{LossScale, Optimizer};
use remat::report::MemoryReport;
use remat::tree::leaves;
use remat::{DType, Device, Tensor, jit_with, random, tree};
use remat_cli::arguments;
use remat_cli::table::thousands;

pub(crate) use evaluate::mean_loss;

use crate::config::{Config, Given, Setting};
use crate::data::{Batches, load};
use crate::model::Model;
use crate::records::Report;
use crate::run::{Fingerprint, Run, Saved, State};
use crate::sample::Readable;
use crate::{machine, memory, sample};
use progress::Progress;
use stop::Stop;

/// Tokens of a training step at most: their batch takes a gibibyte.
const MOST_TOKENS: usize = 1 << 27;

/// The tokens of a text.
const BYTES: usize = 256;

/// Arguments of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with settings: keys are the names of the flags below, which hold in place of those of the file
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
        return Ok(write!(out, "{}", config.to_toml())?);
    }
    train(config, args.resume.as_ref().zip(saved), out)
}

/// As [`run`], for a configuration, and the folder of a run that goes on.
fn train(mut config: Config, resumed: Option<(&PathBuf, Saved)>, out: &mut impl Write) -> Result<()> {
    let saved = resumed.as_ref().map(|(_, saved)| saved);
    let architecture = saved.map_or_else(|| config.architecture(), |saved| Ok(saved.architecture.clone()))?;
    let context = config.context(&architecture);
    let tokens_of_step = tokens_of_step(&config, context)?;
    let vocabulary = architecture.vocabulary();
    ensure!(vocabulary >= BYTES, "a vocabulary of {vocabulary} is too small for text: a token is one of {BYTES} bytes");
    let policy = arguments::policy(&config.policy)?;
    // Compiles, so that what is wrong with the environment is said before anything else.
    let device = config.device.as_deref().map_or_else(Device::default_device, Device::named)?;
    let probe = Tensor::from(0.0f32).to_device(&device);
    jit_with(&machine::options(&probe)?, |x: &Tensor| x.clone()).call(probe)?;
    let text = load(config.text.as_deref())?;
    if saved.is_none() {
        // The run may be resumed from another folder.
        config.text = text.path.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    }
    let fingerprint = Fingerprint::of(&text);
    let [weights, batch_key, sample_key] = random::key(config.seed).split();
    let batches = Batches::new(&text, batch_key, config.batch, context)?;
    let optimizer = step::optimizer(&config);
    let state = match saved {
        Some(saved) => saved.state(&optimizer)?,
        None => {
            let model = Model::init(weights, &architecture, DType::F32);
            State { step: 0, optimizer: optimizer.init(&model), model }
        }
    };
    let state = State {
        model: tree::map(&state.model, |_, leaf| leaf.to_device(&device)),
        optimizer: tree::map(&state.optimizer, |_, leaf| leaf.to_device(&device)),
        ..state
    };

    for note in text.notes.iter().chain(saved.iter().flat_map(|saved| &saved.notes)) {
        writeln!(out, "note: {note}")?;
    }
    if let Some(saved) = saved {
        note_changes(saved, &config, fingerprint, out)?;
    }
    let (size, held_out) = (thousands(text.size()), thousands(batches.held_out()));
    writeln!(out, "text: {size} bytes in {}; {held_out} of them are held out", text.source)?;
    let parameters = leaves(&state.model).iter().map(|(_, leaf)| leaf.size()).sum::<remat::Result<usize>>()?;
    let parameters = thousands(parameters);
    let described = format!("{parameters} parameters ({architecture}), context {context}, batch {}", config.batch);
    writeln!(out, "model: {described}")?;
    writeln!(out, "what each policy keeps of one training step for its backward pass:\n")?;
    writeln!(out, "{}\n", memory::report(&state.model, &batches.batch(0)?, policy.as_ref())?)?;
    let mut folder = match &resumed {
        Some((folder, _)) => Run::resume(folder, config.clone(), architecture, fingerprint, state.step)?,
        None => Run::begin(config.clone(), architecture, fingerprint)?,
    };
    if let Some(saved) = saved {
        writeln!(out, "going on after step {} with {}", state.step, saved.path().display())?;
    }

    let tests = batches.tests();
    writeln!(out, "held-out loss before training: {:.4}", mean_loss(&state.model, tests.iter().cloned())?)?;
    let (started, first) = (Instant::now(), state.step);
    let mut progress = Progress::new(&config, tokens_of_step, first);
    let stop = Stop::new()?;
    let each = |state: &State, loss: f32| {
        let rate = progress.step(loss, out)?;
        folder.measured(state.step, &[("loss", loss.into()), ("tokens_per_second", rate.round())])?;
        if !loss.is_finite() {
            let last = folder.last_checkpoint();
            bail!("the loss of step {} is {loss}; a lower --learning-rate may help. {last}", state.step);
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
    let state = step::fit(state, &config, &optimizer, policy.as_ref(), |step| batches.batch(step), each)?;
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
    writeln!(out, "held-out loss after training: {:.4}", mean_loss(&state.model, tests)?)?;
    let steps = config.steps.saturating_sub(first);
    let rate = thousands((f64::from(steps) * tokens_of_step as f64 / seconds.max(1e-9)) as usize);
    writeln!(out, "{steps} steps in {seconds:.1} s, {rate} tokens/s")?;
    let mut written = Vec::new();
    if config.sample > 0 {
        let prompt = batches.prompt();
        let each = |byte| {
            written.push(byte);
            Ok(())
        };
        sample::sample(&state.model, prompt, config.sample, context, &config.choice, sample_key, each)?;
        writeln!(out, "\nthe model continues {:?}:\n", Readable::all(prompt))?;
        writeln!(out, "{}", Readable::all(&written))?;
    }
    let memory = step::memory(&state, &optimizer, policy.as_ref(), batches.batch(0)?)?;
    let sample = Readable::all(&written);
    let report = Report {
        title: folder.to_string(),
        model: described,
        config: config.to_toml(),
        parts: parts(&state, &memory)?,
        timeline: memory.timeline,
        sample: (!written.is_empty()).then_some(&sample),
    };
    let page = report.write(&saved_in)?;
    writeln!(out, "\nsaved in {folder}, with charts in {}; to go on:", page.display())?;
    writeln!(out, "  remat generate {folder} --prompt \"fn main\"")?;
    writeln!(out, "  remat train --resume {folder} --steps {}", config.steps.saturating_mul(2))?;
    Ok(())
}

/// The parts of the peak of a step.
///
/// # Errors
/// If the bytes of a tensor are not known.
fn parts(state: &State, memory: &MemoryReport) -> Result<Vec<(String, usize)>> {
    let bytes = |leaves: Vec<(tree::Path, Tensor)>| -> remat::Result<usize> {
        leaves.iter().map(|(_, leaf)| leaf.aval().map(|aval| aval.bytes())).sum()
    };
    let (parameters, moments) = (bytes(leaves(&state.model))?, bytes(leaves(&state.optimizer))?);
    let rest = memory.stats.donated_peak.saturating_sub(parameters + moments);
    let parts = [
        ("parameters", parameters),
        ("state of the optimizer", moments),
        ("activations, gradients, batch, workspace", rest),
    ];
    Ok(parts.map(|(name, bytes)| (name.to_string(), bytes)).into())
}

/// The tokens of a step.
///
/// # Errors
/// If there are more than a batch can have.
fn tokens_of_step(config: &Config, context: usize) -> Result<usize> {
    let tokens = config.batch.saturating_mul(context);
    ensure!(
        tokens <= MOST_TOKENS,
        "a step of {} sequences of {} tokens is too large: at most {} tokens together",
        thousands(config.batch),
        thousands(context),
        thousands(MOST_TOKENS)
    );
    Ok(tokens)
}

/// Says what makes the rest of a run another than it would have been.
fn note_changes(saved: &Saved, config: &Config, text: Fingerprint, out: &mut impl Write) -> Result<()> {
    if saved.text != text {
        writeln!(out, "note: the text is not the one that the run began with, so that its batches are others")?;
    }
    let schedule = |config: &Config| (config.steps, config.learning_rate);
    if schedule(&saved.config) != schedule(config) {
        let message =
            "the learning rate goes on by the new schedule, so that the run is neither the old one nor a new one";
        writeln!(out, "note: {message}")?;
    }
    Ok(())
}
