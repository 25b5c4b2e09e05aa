//! `remat train`.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::optim::{AdamW, Mask, Moments, Schedule, clip_by_global_norm};
use remat::{Policy, Tensor, jit, leaves, random, value_and_grad};

use crate::data::{Batch, batches, load, random_batch};
use crate::model::{Gpt, Sizes};
use crate::table::thousands;
use crate::{Result, line, memory, policy, sample};

/// The gradient's norm above which it is scaled down.
const MAX_NORM: f64 = 1.0;

/// Batches of held-out text that are tested at most: a small part of the time of training.
const TESTED: usize = 16;

/// How much of the shown loss stays from step to step.
const SMOOTHING: f64 = 0.95;

/// Lines of progress where the output is no terminal.
const LINES: usize = 20;

/// Arguments of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file or a folder of text; by default the text files of the checkout or folder that this runs in
    #[arg(long, value_name = "PATH")]
    text: Option<PathBuf>,
    #[arg(long, default_value = "names:attn,mlp", help = policy::HELP)]
    policy: String,
    #[command(flatten)]
    sizes: Sizes,
    /// Training steps
    #[arg(long, default_value_t = 2000)]
    steps: u32,
    /// The highest learning rate: it rises over the first steps, and falls to a tenth at the end
    #[arg(long, default_value_t = 3e-3)]
    learning_rate: f64,
    /// The seed of weights, batches and sample: the same seed gives the same run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Bytes of text that the model writes at the end
    #[arg(long, default_value_t = 300, value_name = "BYTES")]
    sample: usize,
    /// How bold the written text is: 0 takes the likeliest byte each time
    #[arg(long, default_value_t = 0.7)]
    temperature: f64,
}

/// Trains a model and reports on it.
///
/// # Errors
/// In one line, what is wrong with the arguments or the text.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Args { sizes, .. } = args;
    check(args)?;
    let policy = policy::parse(&args.policy)?;
    let text = load(args.text.as_deref())?;
    let (train, test) = text.divide(sizes.context)?;
    let [weights, batch_key, sample_key] = random::key(args.seed).split();
    let model = Gpt::init(weights, sizes).map_err(line)?;

    println!(
        "text: {} bytes in {}; {} of them are held out",
        thousands(text.size()),
        text.source,
        thousands(test.len())
    );
    let parameters = leaves(&model).iter().map(|(_, leaf)| leaf.size()).sum::<remat::Result<usize>>().map_err(line)?;
    println!(
        "model: {} parameters (layers {}, width {}, heads {}, context {}), batch {}",
        thousands(parameters),
        sizes.layers,
        sizes.width,
        sizes.heads,
        sizes.context,
        sizes.batch
    );
    let batch = |step: u32| random_batch(batch_key.fold_in(step), &train, sizes.batch, sizes.context);
    println!("what each policy keeps of one training step for its backward pass:\n");
    println!("{}\n", memory::report(&model, &batch(0).map_err(line)?, &args.policy)?);

    let tests = batches(&test, sizes.batch, sizes.context, TESTED);
    let before = held_out_loss(&model, &tests).map_err(line)?;
    println!("held-out loss before training: {before:.4}");
    let started = Instant::now();
    let mut progress = Progress::new(args);
    let model = fit(model, args, policy.as_ref(), batch, |loss| progress.step(loss)).map_err(line)?;
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    let after = held_out_loss(&model, &tests).map_err(line)?;
    let tokens = args.steps as usize * sizes.batch * sizes.context;
    println!("held-out loss after training: {after:.4}");
    println!(
        "{} steps in {seconds:.1} s, {} tokens/s",
        args.steps,
        thousands((tokens as f64 / seconds.max(1e-9)) as usize)
    );
    if args.sample > 0 {
        let prompt = &test[..sizes.context.min(test.len())];
        let written = sample::sample(&model, prompt, args.sample, sizes.context, args.temperature, sample_key);
        println!("\nthe model continues {:?}:\n", readable(prompt));
        println!("{}", readable(&written.map_err(line)?));
    }
    Ok(())
}

/// Fails on numbers that cannot be meant.
fn check(args: &Args) -> Result<()> {
    if !(args.learning_rate.is_finite() && args.learning_rate >= 0.0) {
        return Err(format!("the learning rate is {}, and not a number from 0 up", args.learning_rate));
    }
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(format!("the temperature is {}, and not a number from 0 up", args.temperature));
    }
    Ok(())
}

/// The model after all steps; each tells its loss.
///
/// # Errors
/// The first error of a step.
fn fit(
    mut model: Gpt,
    args: &Args,
    policy: Option<&Policy>,
    batch: impl Fn(u32) -> remat::Result<Batch>,
    mut done: impl FnMut(f32),
) -> remat::Result<Gpt> {
    let steps = u64::from(args.steps);
    let learning_rate = Schedule::WarmupCosine {
        start: 0.0,
        peak: args.learning_rate,
        end: args.learning_rate / 10.0,
        warmup_steps: (steps / 10).min(100),
        steps,
    };
    let adam = AdamW { learning_rate, weight_decay: 0.1, decay: Mask::Matrices, b2: 0.99, ..AdamW::default() };
    let step =
        jit(|(model, state, batch): &(Gpt, Moments<Gpt>, Batch)| -> remat::Result<(Gpt, Moments<Gpt>, Tensor)> {
            let (loss, gradient) = value_and_grad(|model: &Gpt| model.loss(batch, policy))(model)?;
            let (gradient, _) = clip_by_global_norm(&gradient, MAX_NORM);
            let (model, state) = adam.update(model, &gradient, state)?;
            Ok((model, state, loss))
        });
    let mut state = adam.init(&model);
    for i in 0..args.steps {
        let loss;
        (model, state, loss) = step.call((model, state, batch(i)?))?;
        done(loss.item::<f32>()?);
    }
    Ok(model)
}

/// The mean loss over batches that the model has not seen.
///
/// # Errors
/// The first error of the model.
fn held_out_loss(model: &Gpt, tests: &[Batch]) -> remat::Result<f64> {
    let loss = jit(|(model, batch): &(Gpt, Batch)| model.loss(batch, None));
    let (mut sum, mut places) = (0.0, 0);
    for batch in tests {
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch.clone()))?.item::<f32>()?) * size as f64;
        places += size;
    }
    Ok(sum / places as f64)
}

/// Bytes as text; what is no text is shown as such.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// How far training is: a bar in a terminal, some lines elsewhere.
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

    /// One step more is done, of this loss.
    fn step(&mut self, loss: f32) {
        self.done += 1;
        self.loss = SMOOTHING * self.loss + (1.0 - SMOOTHING) * f64::from(loss);
        let loss = self.loss / (1.0 - SMOOTHING.powf(self.done as f64));
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let rate = thousands(((self.done * self.tokens_of_step) as f64 / seconds) as usize);
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("loss {loss:.4}  {rate} tokens/s"));
        } else if self.done == 1 || self.done == self.steps || self.done.is_multiple_of(self.steps.div_ceil(LINES)) {
            println!("step {}/{}  loss {loss:.4}  {rate} tokens/s", self.done, self.steps);
        }
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
        let model = Gpt::init(random::key(0), &args.sizes).unwrap();
        let text: Vec<u8> = (0..100).collect();
        let batch = |step: u32| random_batch(random::key(1).fold_in(step), &text, 3, 6);
        let policy = policy::parse(policy).unwrap();
        let mut losses = Vec::new();
        fit(model, &args, policy.as_ref(), batch, |loss| losses.push(loss.to_bits())).unwrap();
        losses
    }

    #[test]
    fn no_policy_changes_a_bit() {
        let expected = losses("none");
        assert_eq!(expected.len(), 4);
        for policy in policy::LISTED.into_iter().chain(["anything-but:qkv,attn", "offload-names:attn"]) {
            assert_eq!(losses(policy), expected, "{policy}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        assert_eq!(readable(b"a\tb\n\x1b\xff"), "a\tb\n\u{fffd}\u{fffd}");
    }
}
