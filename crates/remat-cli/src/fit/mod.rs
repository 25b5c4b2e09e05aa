//! `remat fit`: the memory and time of a training step of `remat train` on chips that are not in the machine, under each policy.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `row`: rows of the table; `estimate`: operations and times
//! 2. `step`: the training step, traced
//! 3. `place`: a step compiled for a target; `search`: the largest batch; `jobs`: several at one time; `stop`: signals
//! 4. `measured`: a step run on a device of this machine
//! 5. `report`, `page`: the rows as text, JSON and a page; `self_test`: checks of all of this

mod estimate;
mod jobs;
mod measured;
mod page;
mod place;
mod report;
mod row;
mod search;
mod self_test;
mod step;
mod stop;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use remat::Policy;
use remat_command::arguments::{self, magnitude, up_to};
use remat_command::command::Exit;
use remat_command::progress;
use remat_xla::{AheadOptions, Effort};

use crate::config::{Config, Form, OptimizerName, Precision, Setting};
use crate::model::{Architecture, Sizes};
use crate::policy::{self, COMPILED};
use crate::train::architecture;
use place::Place;
use row::Row;
use search::Search;
use step::{NO_OPTIMIZER, Step};
use stop::Stop;

/// Arguments of `remat fit`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings, like that of `remat train`: the step that it runs with them, whose weights are f32, instead of the defaults
    /// below
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The model: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-1b, llama-3b, llama-8b, decoder-3b, gpt2-tiny, llama-tiny, or the config.json
    /// of a Hugging Face model (GPT-2, Llama, Mistral, Qwen2) [default: gpt2]
    #[arg(long)]
    model: Option<String>,
    /// Target chips: tpu-v4, tpu-v5e, tpu-v5p, tpu-v6e, h100, h200, b200, several of one kind as in tpu-v5e:2x4 or h100:8; cpu (this
    /// machine, with the native engine), xla-cpu (with XLA); all (one of each chip, and cpu); or a list separated by commas
    #[arg(long = "target", default_value = "tpu-v5e", value_delimiter = ',')]
    targets: Vec<String>,
    /// A policy to compare; repeat the flag for several. The names in a block are qkv, attn, up, mlp and, in Llama, gate;
    /// offload_names moves values to the memory of the host [default: none, dots, dots_with_no_batch_dims, names(qkv, attn),
    /// offload_names(qkv, attn), nothing]
    #[arg(long = "policy")]
    policies: Vec<String>,
    /// Sequences per batch, on all chips together [default: 8]
    #[arg(long, value_parser = up_to(1 << 20))]
    batch: Option<usize>,
    /// Tokens per sequence [default: those of the model, up to 1024]
    #[arg(long, value_parser = up_to(1 << 24))]
    context: Option<usize>,
    /// The optimizer of the step: adamw, adafactor, adam8bit, lion, sgd, muon, or none, where it returns the gradient [default: adamw]
    #[arg(long, value_name = "NAME", value_parser = optimizer)]
    optimizer: Option<Optimizer>,
    /// Clip gradients to this global norm, 0 for no limit; `remat train` clips them to 1 unless it is told otherwise [default: 0]
    #[arg(long, value_parser = magnitude)]
    clip_norm: Option<f64>,
    /// Form of the blocks in the program: scan (a loop over stacked weights, which compiles once), unroll (the equations of each block, the
    /// default of `remat train`) [default: scan]
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    layers_as: Option<Form>,
    /// Dtype of activations and products: bf16, f16 (with loss scaling) or f32 [default: bf16]
    #[arg(long, hide_possible_values = true)]
    dtype: Option<Precision>,
    /// Dtype of the weights, converted where they are used: f32, which `remat train` has, bf16 or f16 [default: that of --dtype]
    #[arg(long, value_name = "DTYPE", hide_possible_values = true)]
    parameters: Option<Precision>,
    /// The effort of the compiler
    #[arg(long, value_enum, default_value = "fast")]
    level: Level,
    /// Search for the largest batch that fits under each policy; this compiles mostly 2 or 3 more batch sizes for each policy, and at most
    /// 8
    #[arg(long)]
    largest_batch: bool,
    /// Time limit of one compilation in seconds; time spent waiting for a processor does not count, up to four times the limit
    #[arg(long, default_value_t = 600, value_parser = up_to(1 << 20))]
    time_limit: usize,
    /// Write the table as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a self-contained page with a chart of memory against time to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Instead run the step on this device of this machine, such as cuda:0, xla-cpu or cpu, with random weights, each policy in its own process:
    /// its time, the peak that was planned and the peak that the device's allocator counted
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["targets", "html", "largest_batch", "level", "time_limit", "self_test"])]
    run: Option<String>,
    /// With --run: timed steps, after one that compiles
    #[arg(long, default_value_t = 5, value_parser = up_to(1_000_000), requires = "run")]
    steps: usize,
    /// With --run: a batch that the process of each policy runs; repeat the flag for several, which run one after the other, also after one that
    /// does not fit [default: that of --batch]
    #[arg(long, value_name = "BATCH", value_parser = up_to(1 << 20), requires = "run")]
    run_batch: Vec<usize>,
    /// Compile small steps and some known ones for every target, and check the results; it takes about ten minutes, and fails if a plugin
    /// is missing
    #[arg(long, exclusive = true)]
    self_test: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Level {
    /// XLA's optimization level O0, which takes a fraction of the time; programs that nearly fit, and the best policy of each target, are
    /// compiled again at full effort
    Fast,
    /// The effort that XLA takes for programs that will run
    Full,
}

/// The optimizer of a step, if it has one.
#[derive(Clone, Copy)]
struct Optimizer(Option<OptimizerName>);

fn optimizer(name: &str) -> Result<Optimizer, String> {
    if name == NO_OPTIMIZER {
        return Ok(Optimizer(None));
    }
    let names = || OptimizerName::value_variants().iter().map(|optimizer| optimizer.name());
    let list = || format!("the optimizers are {} and {NO_OPTIMIZER}", names().collect::<Vec<_>>().join(", "));
    OptimizerName::from_str(name, false).map(|name| Optimizer(Some(name))).map_err(|_| list())
}

/// The settings without those of the user: weights and activations of one dtype, blocks as a loop, and gradients that are not clipped.
fn defaults() -> Result<Config> {
    let (model, dtype, layers_as) = ("gpt2".to_string(), Precision::Bf16, Form::Scan);
    Ok(Config { model, dtype, layers_as, clip_norm: 0.0, ..Config::of(&[])? })
}

impl Args {
    /// The step that is asked for, on one chip.
    ///
    /// # Errors
    /// If there is no such model, a file cannot be read, or settings are not valid.
    fn step(&self) -> Result<Step> {
        let mut config = match &self.config {
            Some(path) => Config::of(&Setting::read(path)?)?,
            None => defaults()?,
        };
        if let Some(model) = &self.model {
            config.model = model.clone();
        }
        config.sizes.context = self.context.or(config.sizes.context);
        config.batch = self.batch.unwrap_or(config.batch);
        config.dtype = self.dtype.unwrap_or(config.dtype);
        config.clip_norm = self.clip_norm.unwrap_or(config.clip_norm);
        config.layers_as = self.layers_as.unwrap_or(config.layers_as);
        let updates = !matches!(self.optimizer, Some(Optimizer(None)));
        if let Some(Optimizer(Some(optimizer))) = self.optimizer {
            config.optimizer = optimizer;
        }
        if let (None, Some(context)) = (&self.config, self.context) {
            let most = Architecture::named(&config.model, &Sizes::default())?.positions();
            let model = &config.model;
            ensure!(
                most.is_none_or(|most| context <= most),
                "{model} has {} positions, fewer than the {context} of --context",
                most.unwrap_or_default()
            );
        }
        let of_weights = if self.config.is_some() { Precision::F32 } else { config.dtype };
        let parameters = self.parameters.unwrap_or(of_weights).dtype();
        Ok(Step { architecture: architecture(&config)?, config, parameters, updates, chips: 1 })
    }
}

/// Compiles the step for each target under each policy, and prints its memory and time.
///
/// # Errors
/// If arguments are not valid, no plugin is installed for a target, a self-test fails, or the output cannot be written. If a compiler
/// refuses a program, or fails, that is a row of the table; if it fails for each of them, the exit code is 1. After a signal the table has
/// the rows that are done, and the exit code is that of the signal.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    if args.self_test {
        return self_test::run(out);
    }
    let asked = args.step()?;
    let mut policies =
        if args.policies.is_empty() { COMPILED.map(String::from).to_vec() } else { args.policies.clone() };
    if args.config.is_some() && args.policies.is_empty() {
        policies.push(asked.config.policy.clone());
    }
    let mut read: Vec<Option<Policy>> = Vec::new();
    for text in &policies {
        let policy = arguments::policy(text)?;
        if !read.contains(&policy) {
            read.push(policy);
        }
    }
    let policies = read;
    if let Some(device) = &args.run {
        return run_on(device, args, &asked, &policies, out);
    }
    let mut places = Vec::new();
    for target in &args.targets {
        places.extend(Place::read(target)?);
    }
    for place in &places {
        place.expect_compiler()?;
        let chips = place.chips();
        let batch = asked.config.batch;
        ensure!(batch.is_multiple_of(chips), "{chips} chips do not divide a batch of {batch}");
    }
    let pairs: Vec<Pair<'_>> =
        places.iter().flat_map(|place| policies.iter().map(move |policy| (place, policy.as_ref()))).collect();
    // Mistakes in a policy, in sizes or in the path of a file are reported before anything is compiled.
    for (place, policy) in &pairs {
        asked.with(asked.config.batch, place.chips()).trace(*policy)?;
    }
    expect_writable([&args.json, &args.html])?;
    for place in &places {
        place.prepare(asked.dtype())?;
    }
    let stop = Stop::new()?;
    let rows = compile(args, &pairs, &asked, &stop)?;
    let is_unknown = rows.iter().all(Row::is_failed);
    let table = report::Table::new(&asked, rows)?;
    write!(out, "{table}")?;
    for (path, text) in [(&args.json, table.json()?), (&args.html, page::page(&table)?)] {
        if let Some(path) = path {
            fs::write(path, text).with_context(|| path.display().to_string())?;
        }
    }
    match stop.signal() {
        Some(signal) => Err(Exit(128 + signal).into()),
        None if is_unknown => Err(Exit(1).into()),
        None => Ok(()),
    }
}

/// Fails if a file cannot be written, which nobody wants to know only after minutes of work.
fn expect_writable<'a>(paths: impl IntoIterator<Item = &'a Option<PathBuf>>) -> Result<()> {
    for path in paths.into_iter().flatten() {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

pub(crate) use measured::{ONE as ONE_POLICY, one as one_policy};

/// Runs the step on a device of this machine under each policy, and prints what it took.
///
/// # Errors
/// If there is no such device, or the output or the file cannot be written. If a policy fails at each batch, that is a row of the table; if
/// all do, the exit code is 1.
fn run_on(device: &str, args: &Args, step: &Step, policies: &[Option<Policy>], out: &mut impl Write) -> Result<()> {
    let case = measured::Case {
        settings: step.config.to_settings()?,
        parameters: step.parameters.to_string(),
        updates: step.updates,
        device: device.to_string(),
        policy: "none".to_string(),
        batches: if args.run_batch.is_empty() { vec![step.config.batch] } else { args.run_batch.clone() },
        steps: args.steps,
    };
    expect_writable([&args.json])?;
    let measured = measured::run(&case, policies, out)?;
    if let Some(path) = &args.json {
        fs::write(path, measured.json()?).with_context(|| path.display().to_string())?;
    }
    if measured.is_failed() { Err(Exit(1).into()) } else { Ok(()) }
}

/// A target and a policy, which are a row.
type Pair<'a> = (&'a Place, Option<&'a Policy>);

/// The rows, as far as they are done before the user stops the command: each at the effort of the arguments, the chosen ones in full too.
fn compile(args: &Args, pairs: &[Pair<'_>], asked: &Step, stop: &Stop) -> Result<Vec<Row>> {
    let effort = if args.level == Level::Fast { Effort::Fast } else { Effort::Full };
    let time_limit = Duration::from_secs(args.time_limit as u64);
    let options = AheadOptions { effort, time_limit, ..AheadOptions::default() };
    let at_once = jobs::at_once();
    let step = |batch: usize, place: &Place| asked.with(batch, place.chips());
    let batch = asked.config.batch;
    let bar = progress::bar(pairs.len());
    let row_of = |&(place, policy): &Pair<'_>| {
        if stop.signal().is_some() {
            return Ok(None);
        }
        bar.set_message(format!("{place}  {}", policy::shown(policy)));
        let mut row = place.row(&step(batch, place), policy, &options)?;
        if row.is_failed() && stop.signal().is_some() {
            return Ok(None);
        }
        if args.largest_batch && (row.fits() || row.peak.is_some()) {
            let found = Search::new(&row).run(|batch| {
                bar.set_message(format!("{place}  {}  batch {batch}", row.policy));
                place.row(&step(batch, place), policy, &options)
            });
            (row.largest_batch, row.largest_batch_level) = (found.batch, found.level);
            if let Some(failure) = found.failure {
                let policy = &row.policy;
                let note = format!("the search for the largest batch of {policy} on {place} ended at {failure}");
                progress::say(&bar, &note);
            }
        }
        Ok(Some(row))
    };
    let tell = |row: &Row| progress::say(&bar, &report::line(row));
    let rows = jobs::each(pairs, at_once, row_of, |row| {
        row.iter().for_each(tell);
        bar.inc(1);
    })?;
    let (pairs, mut rows): (Vec<Pair<'_>>, Vec<Row>) =
        pairs.iter().zip(rows).filter_map(|(pair, row)| Some((*pair, row?))).unzip();
    let full = AheadOptions { effort: Effort::Full, ..options.clone() };
    let in_full = |(i, name): &(usize, String)| {
        let (place, policy) = pairs[*i];
        bar.set_message(format!("{place}  {name} in full"));
        place.row(&step(batch, place), policy, &full)
    };
    // A policy that does not fit at full effort is not chosen; the next one is compiled then.
    let mut compiled = Vec::new();
    while effort == Effort::Fast && stop.signal().is_none() {
        let is_open = |i: &usize| rows[*i].level == "fast" && !compiled.contains(i);
        let named = |i: usize| (i, rows[i].policy.clone());
        let chosen: Vec<(usize, String)> = row::chosen(&rows).into_iter().filter(is_open).map(named).collect();
        if chosen.is_empty() {
            break;
        }
        let again = jobs::each(&chosen, at_once, in_full, tell)?;
        for ((i, _), row) in chosen.into_iter().zip(again) {
            compiled.push(i);
            if !row.is_failed() {
                let Row { largest_batch, largest_batch_level, .. } = rows[i];
                rows[i] = Row { largest_batch, largest_batch_level, ..row };
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// The step with the default settings of a model at this context, on one chip.
///
/// # Errors
/// If there is no such model.
fn usual(model: &str, context: usize) -> Result<Step> {
    let sizes = Sizes { context: Some(context), ..Sizes::default() };
    let config = Config { model: model.to_string(), sizes, ..defaults()? };
    let parameters = config.dtype.dtype();
    Ok(Step { architecture: config.architecture()?, config, parameters, updates: true, chips: 1 })
}
