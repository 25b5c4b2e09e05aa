//! `remat train`.

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::optim::{AdamW, Mask, Moments, Optimizer, Schedule, clip_by_global_norm};
use remat::tree::leaves;
use remat::{Device, Policy, Tensor, jit_with, random, tree, value_and_grad};
use remat_cli::arguments::{self, magnitude, up_to};
use remat_cli::table::thousands;

use crate::data::{Batch, batches, load, random_batch};
use crate::model::{Gpt, Sizes};
use crate::{machine, memory, policy, sample};

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
    /// Training steps
    #[arg(long, default_value_t = 2000)]
    steps: u32,
    /// Peak learning rate: it rises over the first steps, then falls to a tenth by a cosine
    #[arg(long, default_value_t = 3e-3, value_parser = magnitude, allow_negative_numbers = true)]
    learning_rate: f64,
    /// The seed of weights, batches and sample: the same seed gives the same run
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Bytes of text that the model writes at the end
    #[arg(long, default_value_t = 300, value_name = "BYTES")]
    sample: usize,
    /// Sampling temperature; 0 is greedy: the most likely byte each time
    #[arg(long, default_value_t = 0.7, value_parser = magnitude, allow_negative_numbers = true)]
    temperature: f64,
}

/// Trains a model and reports on it.
///
/// # Errors
/// What is wrong with the arguments, the environment or the text; if the output cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let Args { sizes, .. } = args;
    let tokens_of_step = sizes.batch.saturating_mul(sizes.context);
    ensure!(
        tokens_of_step <= MOST_TOKENS,
        "a step of {} sequences of {} bytes is too large: at most {} bytes together",
        thousands(sizes.batch),
        thousands(sizes.context),
        thousands(MOST_TOKENS)
    );
    let policy = arguments::policy(&args.policy)?;
    // Compiles, so that what is wrong with the environment is said before anything else.
    let device = args.device.as_deref().map_or_else(Device::default_device, Device::named)?;
    let probe = Tensor::from(0.0f32).to_device(&device);
    jit_with(&machine::options(&probe)?, |x: &Tensor| x.clone()).call(probe)?;
    let text = load(args.text.as_deref())?;
    let (train, test) = text.divide(sizes.context)?;
    let [weights, batch_key, sample_key] = random::key(args.seed).split();
    let model = tree::map(&Gpt::init(weights, args.layers, sizes), |_, leaf| leaf.to_device(&device));
    let parameters = leaves(&model).iter().map(|(_, leaf)| leaf.size()).sum::<remat::Result<usize>>()?;

    for note in &text.notes {
        writeln!(out, "note: {note}")?;
    }
    let (size, held_out) = (thousands(text.size()), thousands(test.len()));
    writeln!(out, "text: {size} bytes in {}; {held_out} of them are held out", text.source)?;
    let Sizes { width, heads, context, batch } = sizes;
    let shape = format!("layers {}, width {width}, heads {heads}, context {context}", args.layers);
    writeln!(out, "model: {} parameters ({shape}), batch {batch}", thousands(parameters))?;
    let batch = |step: u32| random_batch(batch_key.fold_in(step), &train, sizes.batch, sizes.context);
    writeln!(out, "what each policy keeps of one training step for its backward pass:\n")?;
    writeln!(out, "{}\n", memory::report(&model, &batch(0)?, policy.as_ref())?)?;

    let tests = batches(&test, sizes.batch, sizes.context, TESTED);
    writeln!(out, "held-out loss before training: {:.4}", held_out_loss(&model, &tests)?)?;
    let started = Instant::now();
    let mut progress = Progress::new(args);
    let model = fit(model, args, policy.as_ref(), batch, |loss| progress.step(loss, out))?;
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "held-out loss after training: {:.4}", held_out_loss(&model, &tests)?)?;
    let rate = thousands((args.steps as f64 * tokens_of_step as f64 / seconds.max(1e-9)) as usize);
    writeln!(out, "{} steps in {seconds:.1} s, {rate} tokens/s", args.steps)?;
    if args.sample > 0 {
        let prompt = &test[..sizes.context.min(test.len())];
        let written = sample::sample(&model, prompt, args.sample, sizes.context, args.temperature, sample_key)?;
        writeln!(out, "\nthe model continues {:?}:\n", readable(prompt))?;
        writeln!(out, "{}", readable(&written))?;
    }
    Ok(())
}

/// The model after all steps; `done` gets the loss of each.
///
/// # Errors
/// The first error of a step or of `done`.
fn fit(
    mut model: Gpt,
    args: &Args,
    policy: Option<&Policy>,
    batch: impl Fn(u32) -> remat::Result<Batch>,
    mut done: impl FnMut(f32) -> Result<()>,
) -> Result<Gpt> {
    let steps = u64::from(args.steps);
    let learning_rate = Schedule::WarmupCosine {
        start: 0.0,
        peak: args.learning_rate,
        end: args.learning_rate / 10.0,
        warmup_steps: (steps / 10).min(100),
        steps,
    };
    let adam = AdamW { learning_rate, weight_decay: 0.1, decay: Mask::Matrices, b2: 0.99, ..AdamW::default() };
    let step = jit_with(
        &machine::options(&model)?,
        |(model, state, batch): &(Gpt, Moments<Gpt>, Batch)| -> remat::Result<(Gpt, Moments<Gpt>, Tensor)> {
            let (loss, gradient) = value_and_grad(|model: &Gpt| model.loss(batch, policy))(model)?;
            let (gradient, _) = clip_by_global_norm(&gradient, MAX_NORM);
            let (model, state) = adam.update(model, &gradient, state)?;
            Ok((model, state, loss))
        },
    );
    let mut state = adam.init(&model);
    for i in 0..args.steps {
        let loss;
        (model, state, loss) = step.call((model, state, batch(i)?))?;
        done(loss.item::<f32>()?)?;
    }
    Ok(model)
}

/// The mean loss over batches that the model has not seen.
///
/// # Errors
/// The first error of the model.
fn held_out_loss(model: &Gpt, tests: &[Batch]) -> remat::Result<f64> {
    let loss = jit_with(&machine::options(model)?, |(model, batch): &(Gpt, Batch)| model.loss(batch, None));
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch.clone()))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}

/// Bytes as text; bytes that are not text are shown as replacement characters.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// Progress of training: a bar in a terminal, some lines elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    done: usize,
    /// The average of recent losses: one batch is easier than another.
    loss: f64,
    steps: usize,
    tokens_of_step: usize,
    started: Instant,
}

impl Progress {
    fn new(args: &Args) -> Progress {
        let bar = stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(u64::from(args.steps)), ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let tokens_of_step = args.sizes.batch * args.sizes.context;
        Progress { bar, done: 0, loss: 0.0, steps: args.steps as usize, tokens_of_step, started: Instant::now() }
    }

    /// One more step is done, with this loss.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn step(&mut self, loss: f32, out: &mut impl Write) -> Result<()> {
        self.done += 1;
        self.loss = SMOOTHING * self.loss + (1.0 - SMOOTHING) * f64::from(loss);
        let loss = self.loss / (1.0 - SMOOTHING.powf(self.done as f64));
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let rate = thousands(((self.done * self.tokens_of_step) as f64 / seconds) as usize);
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("loss {loss:.4}  {rate} tokens/s"));
        } else if self.done == 1 || self.done == self.steps || self.done.is_multiple_of(self.steps.div_ceil(LINES)) {
            writeln!(out, "step {}/{}  loss {loss:.4}  {rate} tokens/s", self.done, self.steps)?;
        }
        Ok(())
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
        let args = Cli::parse_from(flags.split(' ')).args;
        let model = Gpt::init(random::key(0), args.layers, &args.sizes);
        let text: Vec<u8> = (0..100).collect();
        let batch = |step: u32| random_batch(random::key(1).fold_in(step), &text, 3, 6);
        let policy = arguments::policy(policy).unwrap();
        let mut losses = Vec::new();
        let done = |loss: f32| {
            losses.push(loss.to_bits());
            Ok(())
        };
        fit(model, &args, policy.as_ref(), batch, done).unwrap();
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

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(readable(b"a\tb\n\x1b\xff"), "a\tb\n\u{fffd}\u{fffd}");
    }
}
