//! `remat fit`: the memory and time of a training step on chips that are not in the machine, under each policy.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `config`, `row`: sizes of models, rows of the table
//! 2. `decoder`: the model; `estimate`: operations and times
//! 3. `step`: the training step, traced
//! 4. `place`: a step compiled for a target; `search`: the largest batch; `jobs`: several at one time; `stop`: signals
//! 5. `measured`: a step run on a device of this machine
//! 6. `report`, `page`: the rows as text, JSON and a page; `self_test`: checks of all of this

mod config;
mod decoder;
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
use remat::{DType, Policy};
use remat_cli::arguments::{self, up_to};
use remat_cli::command::Exit;
use remat_cli::progress;
use remat_xla::{AheadOptions, Effort};

use config::Config;
use place::Place;
use row::Row;
use search::Search;
use step::{Optimizer, Step};
use stop::Stop;

/// The default policies of the table, with some of the names of values in a block (`Block::apply`).
const POLICIES: [&str; 6] =
    ["none", "Dots", "DotsWithNoBatchDims", "Names(qkv, attn)", "OffloadNames(qkv, attn)", "Nothing"];

/// Arguments of `remat fit`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-1b, llama-3b, llama-8b, decoder-3b, or the config.json of a Hugging Face
    /// model (GPT-2, Llama, Mistral, Qwen2)
    #[arg(long, default_value = "gpt2")]
    model: String,
    /// Target chips: tpu-v4, tpu-v5e, tpu-v5p, tpu-v6e, h100, h200, b200, several of one kind as in tpu-v5e:2x4 or h100:8; cpu (this
    /// machine, with the native engine), xla-cpu (with XLA); all (one of each chip, and cpu); or a list separated by commas
    #[arg(long = "target", default_value = "tpu-v5e", value_delimiter = ',')]
    targets: Vec<String>,
    /// A policy to compare; repeat the flag for several. The names in a block are qkv, attn, gate (if the model has one) and up;
    /// offload_names moves values to the memory of the host [default: none, dots, dots_with_no_batch_dims, names(qkv, attn),
    /// offload_names(qkv, attn), nothing]
    #[arg(long = "policy")]
    policies: Vec<String>,
    /// Sequences per step, on all chips together
    #[arg(long, default_value_t = 8, value_parser = up_to(1 << 20))]
    batch: usize,
    /// Tokens per sequence
    #[arg(long, default_value_t = 1024, value_parser = up_to(1 << 24))]
    context: usize,
    /// The optimizer of the step
    #[arg(long, value_enum, default_value = "adamw")]
    optimizer: Optimizer,
    /// Dtype of activations and products: bf16, f16 or f32
    #[arg(long, default_value = "bf16", value_parser = dtype)]
    dtype: DType,
    /// Dtype of the weights, converted where they are used: f32 beside bf16 is what training usually takes [default: that of --dtype]
    #[arg(long, value_parser = dtype)]
    parameters: Option<DType>,
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

fn dtype(name: &str) -> Result<DType, String> {
    match name {
        "bf16" => Ok(DType::Bf16),
        "f16" => Ok(DType::F16),
        "f32" => Ok(DType::F32),
        _ => Err("the dtypes are bf16, f16 and f32".to_string()),
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
    let config = Config::read(&args.model)?;
    config.check()?;
    config.check_context(args.context)?;
    let policies = if args.policies.is_empty() { POLICIES.map(String::from).to_vec() } else { args.policies.clone() };
    let policies: Vec<Option<Policy>> = policies.iter().map(|text| arguments::policy(text)).collect::<Result<_>>()?;
    if let Some(device) = &args.run {
        return run_on(device, args, &policies, out);
    }
    let mut places = Vec::new();
    for target in &args.targets {
        places.extend(Place::read(target)?);
    }
    for place in &places {
        place.expect_compiler()?;
        let chips = place.chips();
        ensure!(args.batch.is_multiple_of(chips), "{chips} chips do not divide a batch of {}", args.batch);
    }
    let step = |batch: usize, place: &Place| Step {
        config: config.clone(),
        dtype: args.dtype,
        parameters: args.parameters.unwrap_or(args.dtype),
        optimizer: args.optimizer,
        batch,
        context: args.context,
        chips: place.chips(),
    };
    let pairs: Vec<Pair<'_>> =
        places.iter().flat_map(|place| policies.iter().map(move |policy| (place, policy.as_ref()))).collect();
    // Mistakes in a policy, in sizes or in the path of a file are reported before anything is compiled.
    for (place, policy) in &pairs {
        step(args.batch, place).trace(*policy)?;
    }
    for path in [&args.json, &args.html].into_iter().flatten() {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.with_context(|| path.display().to_string())?;
    }
    for place in &places {
        place.prepare(args.dtype)?;
    }
    let stop = Stop::new()?;
    let rows = compile(args, &pairs, &step, &stop)?;
    let is_unknown = rows.iter().all(Row::is_failed);
    let shown = step(args.batch, &places[0]);
    let table = report::Table::new(&shown, shown.count()?, rows);
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

pub(crate) use measured::{ONE as ONE_POLICY, one as one_policy};

/// Runs the step on a device of this machine under each policy, and prints what it took.
///
/// # Errors
/// If there is no such device, or the output cannot be written. If a policy fails at each batch, that is a row of the table; if all do, the exit
/// code is 1.
fn run_on(device: &str, args: &Args, policies: &[Option<Policy>], out: &mut impl Write) -> Result<()> {
    let parameters = args.parameters.unwrap_or(args.dtype).to_string();
    let case = measured::Case {
        model: args.model.clone(),
        device: device.to_string(),
        policy: "none".to_string(),
        batches: if args.run_batch.is_empty() { vec![args.batch] } else { args.run_batch.clone() },
        context: args.context,
        optimizer: args.optimizer,
        dtype: args.dtype.to_string(),
        parameters,
        steps: args.steps,
    };
    let measured = measured::run(&case, policies, out)?;
    if let Some(path) = &args.json {
        fs::write(path, measured.json()?).with_context(|| path.display().to_string())?;
    }
    if measured.is_failed() { Err(Exit(1).into()) } else { Ok(()) }
}

/// A target and a policy, which are a row.
type Pair<'a> = (&'a Place, Option<&'a Policy>);

/// The rows, as far as they are done before the user stops the command: each at the effort of the arguments, the chosen ones in full too.
fn compile(
    args: &Args,
    pairs: &[Pair<'_>],
    step: &(dyn Fn(usize, &Place) -> Step + Sync),
    stop: &Stop,
) -> Result<Vec<Row>> {
    let effort = if args.level == Level::Fast { Effort::Fast } else { Effort::Full };
    let time_limit = Duration::from_secs(args.time_limit as u64);
    let options = AheadOptions { effort, time_limit, ..AheadOptions::default() };
    let at_once = jobs::at_once();
    let bar = progress::bar(pairs.len());
    let row_of = |&(place, policy): &Pair<'_>| {
        if stop.signal().is_some() {
            return Ok(None);
        }
        bar.set_message(format!("{place}  {}", place::shown(policy)));
        let mut row = place.row(&step(args.batch, place), policy, &options)?;
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
        place.row(&step(args.batch, place), policy, &full)
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
