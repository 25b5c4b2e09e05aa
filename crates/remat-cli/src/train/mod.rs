//! `remat train`.

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::optim::{AdamW, LossScale, Mask, Moments, Optimizer, Schedule, clip_by_global_norm};
use remat::tree::leaves;
use remat::{Device, Policy, Tensor, jit_with, random, tree, value_and_grad};
use remat_cli::arguments::{self, magnitude, up_to};
use remat_cli::table::thousands;

use crate::data::{Batch, batches, load, random_batch};
use crate::model::{Gpt, Sizes};
use crate::run::{Config, Fingerprint, Run, Saved, State};
use crate::sample::{Choice, Readable};
use crate::{machine, memory, policy, sample};

/// The steps of a run whose number is not said.
const STEPS: u32 = 2000;

/// The peak learning rate where it is not said.
const LEARNING_RATE: f64 = 3e-3;

/// The steps from one checkpoint to the next where they are not said.
const SAVE_EVERY: u32 = 500;

/// The gradient's norm above which it is scaled down.
const MAX_NORM: f64 = 1.0;

/// At most this many batches of held-out text are tested: a small part of the time of training.
const TESTED: usize = 16;

/// How much of the shown loss stays from step to step.
const SMOOTHING: f64 = 0.95;

/// Tokens of a training step at most: their batch takes a gibibyte.
const MOST_TOKENS: usize = 1 << 27;

/// Lines of progress where the output is not a terminal.
const LINES: usize = 20;

/// Arguments of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file or folder of text [default: the text files of the current git checkout or folder]
    #[arg(long, value_name = "PATH")]
    text: Option<PathBuf>,
    #[arg(long, default_value = policy::DEFAULT, help = policy::HELP)]
    policy: String,
    /// The device to train on: cpu (the native engine), xla-cpu, cuda:0, tpu [default: what REMAT_DEVICE says, else cpu]
    #[arg(long)]
    device: Option<String>,
    /// Transformer blocks
    #[arg(long, default_value_t = 2, value_parser = up_to(10_000))]
    layers: usize,
    #[command(flatten)]
    sizes: Sizes,
    /// Training steps [default: 2000, or those of the run that is resumed]
    #[arg(long)]
    steps: Option<u32>,
    /// Peak learning rate: it rises over the first steps, then falls to a tenth by a cosine [default: 0.003, or that of the run that is
    /// resumed]
    #[arg(long, value_parser = magnitude, allow_negative_numbers = true)]
    learning_rate: Option<f64>,
    /// The seed of weights, batches and sample: the same seed gives the same run
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// The folder that the run is saved to [default: a new one in `runs`]
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// Steps from one checkpoint to the next; the last three stay [default: 500, or those of the run that is resumed]
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    save_every: Option<u32>,
    /// Go on with the run of this folder, with its sizes, text and seed
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["text", "policy", "layers", "width", "heads", "context", "batch", "seed", "save"]
    )]
    resume: Option<PathBuf>,
    /// Bytes of text that the model writes at the end
    #[arg(long, default_value_t = 300, value_name = "BYTES")]
    sample: usize,
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    /// The configuration of a new run.
    fn config(&self) -> Config {
        let Args { policy, layers, sizes, seed, .. } = self;
        Config {
            text: self.text.clone(),
            policy: policy.clone(),
            layers: *layers,
            sizes: *sizes,
            steps: self.steps.unwrap_or(STEPS),
            learning_rate: self.learning_rate.unwrap_or(LEARNING_RATE),
            seed: *seed,
            device: self.device.clone(),
            save_every: self.save_every.unwrap_or(SAVE_EVERY),
        }
    }
}

/// Trains a model, saves it and reports on it.
///
/// # Errors
/// What is wrong with the arguments, the environment or the text; if the run cannot be saved, or is interrupted; if the output cannot be
/// written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let saved = args.resume.as_deref().map(Saved::to_resume).transpose()?;
    let mut config = saved.as_ref().map_or_else(|| args.config(), |saved| saved.config.clone());
    config.steps = args.steps.unwrap_or(config.steps);
    config.learning_rate = args.learning_rate.unwrap_or(config.learning_rate);
    config.save_every = args.save_every.unwrap_or(config.save_every);
    config.device = args.device.clone().or(config.device);
    let sizes = config.sizes;
    let tokens_of_step = sizes.batch.saturating_mul(sizes.context);
    ensure!(
        tokens_of_step <= MOST_TOKENS,
        "a step of {} sequences of {} bytes is too large: at most {} bytes together",
        thousands(sizes.batch),
        thousands(sizes.context),
        thousands(MOST_TOKENS)
    );
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
    let (train, test) = text.divide(sizes.context)?;
    let [weights, batch_key, sample_key] = random::key(config.seed).split();
    let optimizer = optimizer(&config);
    let state = match &saved {
        Some(saved) => saved.state(&optimizer)?,
        None => {
            let model = Gpt::init(weights, config.layers, &sizes);
            State { step: 0, optimizer: optimizer.init(&model), model }
        }
    };
    let state = State {
        model: tree::map(&state.model, |_, leaf| leaf.to_device(&device)),
        optimizer: tree::map(&state.optimizer, |_, leaf| leaf.to_device(&device)),
        ..state
    };
    let parameters = leaves(&state.model).iter().map(|(_, leaf)| leaf.size()).sum::<remat::Result<usize>>()?;

    for note in text.notes.iter().chain(saved.iter().flat_map(|saved| &saved.notes)) {
        writeln!(out, "note: {note}")?;
    }
    if saved.as_ref().is_some_and(|saved| saved.text != fingerprint) {
        writeln!(out, "note: the text is not the one that the run began with, so that its batches are others")?;
    }
    let schedule = |config: &Config| (config.steps, config.learning_rate);
    if saved.as_ref().is_some_and(|saved| schedule(&saved.config) != schedule(&config)) {
        writeln!(
            out,
            "note: the learning rate goes on by the new schedule, so that the run is neither the old one nor a new one"
        )?;
    }
    let (size, held_out) = (thousands(text.size()), thousands(test.len()));
    writeln!(out, "text: {size} bytes in {}; {held_out} of them are held out", text.source)?;
    let Sizes { width, heads, context, batch } = sizes;
    let shape = format!("layers {}, width {width}, heads {heads}, context {context}", config.layers);
    writeln!(out, "model: {} parameters ({shape}), batch {batch}", thousands(parameters))?;
    let batch = |step: u32| random_batch(batch_key.fold_in(step), &train, sizes.batch, sizes.context);
    writeln!(out, "what each policy keeps of one training step for its backward pass:\n")?;
    writeln!(out, "{}\n", memory::report(&state.model, &batch(0)?, policy.as_ref())?)?;
    let mut folder = match &args.resume {
        Some(folder) => Run::resume(folder, config.clone(), fingerprint, state.step)?,
        None => Run::begin(args.save.as_deref(), config.clone(), fingerprint)?,
    };
    if let Some(saved) = &saved {
        writeln!(out, "going on after step {} with {}", state.step, saved.path().display())?;
    }

    let tests: Vec<Batch> = batches(&test, sizes.batch, sizes.context).take(TESTED).collect();
    writeln!(out, "held-out loss before training: {:.4}", mean_loss(&state.model, tests.iter().cloned())?)?;
    let (started, first) = (Instant::now(), state.step);
    let mut progress = Progress::new(&config, first);
    let stop = Stop::new()?;
    let each = |state: &State, loss: f32| {
        let rate = progress.step(loss, out)?;
        folder.measured(state.step, loss, rate)?;
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
    let state = fit(state, &config, &optimizer, policy.as_ref(), batch, each)?;
    progress.finish();
    if folder.saved() != Some(state.step) {
        folder.save(&state)?;
    }
    let folder = folder.finish()?;
    let folder = folder.display();
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
    if args.sample > 0 {
        let prompt = &test[..sizes.context.min(test.len())];
        let mut written = Vec::new();
        let each = |byte| {
            written.push(byte);
            Ok(())
        };
        sample::sample(&state.model, prompt, args.sample, sizes.context, &args.choice, sample_key, each)?;
        writeln!(out, "\nthe model continues {:?}:\n", Readable::all(prompt))?;
        writeln!(out, "{}", Readable::all(&written))?;
    }
    writeln!(out, "\nsaved in {folder}; to go on:")?;
    writeln!(out, "  remat generate {folder} --prompt \"fn main\"")?;
    writeln!(out, "  remat train --resume {folder} --steps {}", config.steps.saturating_mul(2))?;
    Ok(())
}

/// The optimizer of a run.
fn optimizer(config: &Config) -> AdamW {
    let steps = u64::from(config.steps);
    let learning_rate = Schedule::WarmupCosine {
        start: 0.0,
        peak: config.learning_rate,
        end: config.learning_rate / 10.0,
        warmup_steps: (steps / 10).min(100),
        steps,
    };
    AdamW { learning_rate, weight_decay: 0.1, decay: Mask::Matrices, b2: 0.99, ..AdamW::default() }
}

/// The state after the steps that are left; `done` gets each new state with the loss of its step, and says whether to go on.
///
/// # Errors
/// The first error of a step or of `done`.
fn fit(
    mut state: State,
    config: &Config,
    adam: &AdamW,
    policy: Option<&Policy>,
    batch: impl Fn(u32) -> remat::Result<Batch>,
    mut done: impl FnMut(&State, f32) -> Result<bool>,
) -> Result<State> {
    let step = jit_with(
        &machine::options(&state.model)?,
        |(model, state, batch): &(Gpt, Moments<Gpt>, Batch)| -> remat::Result<(Gpt, Moments<Gpt>, Tensor)> {
            let (loss, gradient) = value_and_grad(|model: &Gpt| model.loss(batch, policy))(model)?;
            let (gradient, _) = clip_by_global_norm(&gradient, MAX_NORM);
            let (model, state) = adam.update(model, &gradient, state)?;
            Ok((model, state, loss))
        },
    );
    for i in state.step..config.steps {
        let (model, optimizer, loss) = step.call((state.model, state.optimizer, batch(i)?))?;
        state = State { step: i + 1, model, optimizer };
        if !done(&state, loss.item::<f32>()?)? {
            break;
        }
    }
    Ok(state)
}

/// Whether the user has asked the run to stop, by Ctrl-C or a signal to end. A second one ends the process at once.
struct Stop(Arc<AtomicBool>);

impl Stop {
    #[cfg(unix)]
    fn new() -> Result<Stop> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset.
            signal_hook::flag::register_conditional_default(signal, asked.clone())?;
            signal_hook::flag::register(signal, asked.clone())?;
        }
        Ok(Stop(asked))
    }

    #[cfg(not(unix))]
    fn new() -> Result<Stop> {
        Ok(Stop(Arc::default()))
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The mean loss over batches.
///
/// # Errors
/// The first error of the model.
pub(crate) fn mean_loss(model: &Gpt, tests: impl IntoIterator<Item = Batch>) -> remat::Result<f64> {
    let loss = jit_with(&machine::options(model)?, |(model, batch): &(Gpt, Batch)| model.loss(batch, None));
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}

/// Progress of training: a bar in a terminal, some lines elsewhere.
struct Progress {
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
    fn new(config: &Config, first: u32) -> Progress {
        let bar = stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(u64::from(config.steps)), ProgressDrawTarget::stdout());
            bar.set_position(u64::from(first));
            bar.reset_eta();
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let tokens_of_step = config.sizes.batch * config.sizes.context;
        let (first, steps) = (first as usize, config.steps as usize);
        Progress { bar, done: first, first, loss: 0.0, steps, tokens_of_step, started: Instant::now() }
    }

    /// One more step is done, with this loss. The tokens per second so far.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn step(&mut self, loss: f32, out: &mut impl Write) -> Result<f64> {
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
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// The bits of the losses of a small run.
    fn losses(policy: &str) -> Vec<u32> {
        let flags = "train --layers 2 --width 8 --heads 2 --context 6 --batch 3 --steps 4";
        let config = Cli::parse_from(flags.split(' ')).args.config();
        let (model, optimizer) = (Gpt::init(random::key(0), config.layers, &config.sizes), optimizer(&config));
        let state = State { step: 0, optimizer: optimizer.init(&model), model };
        let text: Vec<u8> = (0..100).collect();
        let batch = |step: u32| random_batch(random::key(1).fold_in(step), &text, 3, 6);
        let policy = arguments::policy(policy).unwrap();
        let mut losses = Vec::new();
        let done = |_: &State, loss: f32| {
            losses.push(loss.to_bits());
            Ok(true)
        };
        fit(state, &config, &optimizer, policy.as_ref(), batch, done).unwrap();
        losses
    }

    #[test]
    fn no_policy_changes_a_bit() {
        let expected = losses("none");
        assert_eq!(expected.len(), 4);
        let more = ["anything_but(qkv, attn)", "save_and_offload_names((), (attn), host)"];
        for policy in policy::LISTED.into_iter().chain(more) {
            assert_eq!(losses(policy), expected, "{policy}");
        }
    }
}
