//! `remat-bench plans`: what a budget of memory costs, by the planner and the cost model.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use remat::{Cpu, DType};
use remat_command::arguments::{policy, up_to};
use remat_command::table::table;
use remat_command::times::median;
use remat_ir::{Array, Aval, CompileOptions, Device, Executable, Jaxpr, Literal, MemoryStats, Rematerialization};
use serde::Serialize;

use crate::case::Work;
use crate::models::gpt::{self, Attention, LayersAs};
use crate::models::{resnet, unet};

/// Arguments of `remat-bench plans`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The models [default: each]
    #[arg(long, value_enum, value_delimiter = ',')]
    model: Vec<Model>,
    /// Budgets of temporaries, in percent of those without a budget
    #[arg(long, value_delimiter = ',', default_values_t = [90, 70, 50, 30, 20], value_parser = up_to(100))]
    percent: Vec<usize>,
    /// The layers of the GPTs
    #[arg(long, default_value_t = 24, value_parser = up_to(1000))]
    layers: usize,
    #[arg(long, default_value = "none", help = crate::arguments::POLICY_HELP)]
    policy: String,
    /// Run each plan this often, in turn with the program without a limit; compare the results bit for bit, and state the median of the ratios
    /// of their times
    #[arg(long, value_parser = up_to(1000))]
    measure: Option<usize>,
    /// Find a curve of this many plans too, and state the time that takes
    #[arg(long, value_parser = up_to(1000))]
    curve: Option<usize>,
    /// Print lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A training step: the loss and its gradient, f32, of the sizes that the other commands measure.
#[derive(Clone, Copy, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Model {
    /// A GPT, its layers unrolled
    Gpt,
    /// The same with attention as two products
    Plain,
    /// ResNet-50
    Resnet,
    /// A U-Net
    Unet,
}

/// A plan: bytes, and seconds by the cost model.
#[derive(Serialize)]
struct Record {
    framework: &'static str,
    model: Model,
    policy: String,
    steps: usize,
    percent: usize,
    /// The bytes that temporaries may take.
    budget: usize,
    /// Those that they take.
    temporaries: usize,
    fits: bool,
    /// The time beyond that without a limit, as a share of it.
    overhead: f64,
    /// That of the steps that run again.
    repeated: f64,
    /// No plan of these steps in this order takes less for those that run again.
    bound: f64,
    /// The overhead as measured, where it was.
    measured: Option<f64>,
    /// The time to compile.
    plan_s: f64,
    /// The time to compile with the steps that were found, as they are read from the file of a plan.
    replay_s: Option<f64>,
}

/// Plans each step for each budget.
///
/// # Errors
/// If a step cannot be built, or a plan is wrong.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let all = [Model::Gpt, Model::Plain, Model::Resnet, Model::Unet];
    let models = if args.model.is_empty() { &all[..] } else { &args.model[..] };
    let mut rows = Vec::new();
    for &model in models {
        let jaxpr = model.step(args)?;
        let free = Unlimited::new(&jaxpr)?;
        let records = [None].into_iter().chain(args.percent.iter().copied().map(Some));
        for percent in records {
            let record = match percent {
                None => free.record(model, args),
                Some(percent) => planned(model, args, &jaxpr, &free, percent)?,
            };
            if args.json {
                writeln!(out, "{}", serde_json::to_string(&record)?)?;
            }
            rows.push(row(&record));
        }
        if let Some(points) = args.curve {
            let started = Instant::now();
            let found = Cpu::default().pareto(&jaxpr, &vec![false; jaxpr.ins.len()], points)?;
            let seconds = started.elapsed().as_secs_f64();
            eprintln!("{model:?}: a curve of {} plans, of {points} tried, in {seconds:.2} s", found.len());
        }
    }
    if !args.json {
        let header = [
            "model",
            "budget",
            "MiB",
            "arena",
            "fits",
            "overhead",
            "again",
            "at least",
            "measured",
            "compiled in",
            "again in",
        ];
        writeln!(out, "{}", table(&header, &rows))?;
    }
    Ok(())
}

impl Model {
    /// The program of the step.
    fn step(self, args: &Args) -> Result<Arc<Jaxpr>> {
        let layers = args.layers;
        let sizes =
            gpt::Sizes { layers, width: 512, heads: 8, hidden: 2048, sequence: 512, batch: 4, vocabulary: 8192 };
        let gpt = |attention| Work::Step { sizes, layers_as: LayersAs::Unroll, attention };
        let work = match self {
            Model::Gpt => gpt(Attention::Fused),
            Model::Plain => gpt(Attention::Plain),
            Model::Resnet => Work::Resnet { sizes: resnet::Sizes::DEFAULT },
            Model::Unet => Work::Unet { sizes: unet::Sizes::DEFAULT },
        };
        Ok(work.step(policy(&args.policy)?, DType::F32)?)
    }
}

/// A step compiled without a limit.
struct Unlimited {
    memory: MemoryStats,
    steps: usize,
    compile_s: f64,
}

impl Unlimited {
    fn new(jaxpr: &Arc<Jaxpr>) -> Result<Unlimited> {
        let started = Instant::now();
        let (graph, memory) = Cpu::default().graph(jaxpr, &CompileOptions::default())?;
        let compile_s = started.elapsed().as_secs_f64();
        Ok(Unlimited { memory, steps: graph.steps.len(), compile_s })
    }

    fn record(&self, model: Model, args: &Args) -> Record {
        let temporaries = self.memory.temporaries;
        Record {
            framework: FRAMEWORK,
            model,
            policy: args.policy.clone(),
            steps: self.steps,
            percent: 100,
            budget: temporaries,
            temporaries,
            fits: true,
            overhead: 0.0,
            repeated: 0.0,
            bound: 0.0,
            measured: None,
            plan_s: self.compile_s,
            replay_s: None,
        }
    }
}

const FRAMEWORK: &str = concat!("remat ", env!("CARGO_PKG_VERSION"));

fn planned(model: Model, args: &Args, jaxpr: &Arc<Jaxpr>, free: &Unlimited, percent: usize) -> Result<Record> {
    let MemoryStats { temporaries, donated_peak, .. } = free.memory;
    let budget = temporaries / 100 * percent;
    let limit = donated_peak - temporaries + budget;
    let options = CompileOptions { memory_limit: Some(limit), ..CompileOptions::default() };
    let started = Instant::now();
    let program = Cpu::default().compile_with(jaxpr, &options)?;
    let plan_s = started.elapsed().as_secs_f64();
    let plan = program.rematerialization();
    let again = |plan: Arc<Rematerialization>| -> Result<f64> {
        let options = CompileOptions { schedule: Some(plan.schedule.clone()), ..options.clone() };
        let started = Instant::now();
        Cpu::default().compile_with(jaxpr, &options)?;
        Ok(started.elapsed().as_secs_f64())
    };
    let replay_s = plan.clone().map(again).transpose()?;
    let of_plan = |of: fn(&Rematerialization) -> f64| plan.as_deref().map_or(0.0, of);
    Ok(Record {
        steps: plan.as_ref().map_or(free.steps, |plan| plan.schedule.runs.len()),
        percent,
        budget,
        temporaries: program.memory().temporaries,
        fits: program.memory_where_donated(&[]).peak <= limit,
        overhead: of_plan(Rematerialization::overhead),
        repeated: of_plan(|plan| plan.share(plan.repeated())),
        bound: of_plan(|plan| plan.share(plan.bound)),
        measured: args.measure.map(|times| measured(jaxpr, &*program, times)).transpose()?,
        plan_s,
        replay_s,
        ..free.record(model, args)
    })
}

/// The measured time of a program with a limit beyond that without one, as a share of it.
///
/// # Errors
/// If a program cannot be run, or a result differs in a bit.
fn measured(jaxpr: &Arc<Jaxpr>, limited: &dyn Executable, times: usize) -> Result<f64> {
    let free = Cpu::default().compile(jaxpr)?;
    let programs = [&*free, limited];
    let args: Vec<Array> = jaxpr.in_avals().iter().map(numbers).collect::<remat::Result<_>>()?;
    let mut ratios = Vec::with_capacity(times);
    for turn in 0..=times {
        let (mut seconds, mut results) = ([0.0; 2], [const { Vec::new() }; 2]);
        for (i, program) in programs.iter().enumerate() {
            let started = Instant::now();
            results[i] = program.run(args.clone())?;
            seconds[i] = started.elapsed().as_secs_f64();
        }
        ensure!(bits(&results[0]) == bits(&results[1]), "a program with a limit has other results");
        // New memory is cleared in the first turn.
        ratios.extend((turn > 0).then(|| seconds[1] / seconds[0]));
    }
    Ok(median(&mut ratios) - 1.0)
}

/// The bits of all results, which are f32.
fn bits(results: &[Array]) -> Vec<u32> {
    results.iter().filter_map(Array::as_slice::<f32>).flatten().map(|x| x.to_bits()).collect()
}

/// Numbers of a model, whose weights are f32: small ones, or zeros for targets and keys.
fn numbers(aval: &Aval) -> remat::Result<Array> {
    let shape = aval.shape.iter().copied();
    match aval.dtype {
        DType::F32 => Array::from_vec((0..aval.size()).map(|i| (i % 17) as f32 / 400.0 - 0.02).collect(), shape),
        dtype => Ok(Array::full(Literal::from_f64(dtype, 0.0), shape)),
    }
}

fn row(record: &Record) -> Vec<String> {
    let mib = |bytes: usize| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    vec![
        format!("{:?}, {} steps", record.model, record.steps),
        format!("{}%", record.percent),
        mib(record.budget),
        mib(record.temporaries),
        if record.fits { "yes".into() } else { "no".into() },
        percent(record.overhead),
        percent(record.repeated),
        percent(record.bound),
        record.measured.map_or_else(|| "-".into(), percent),
        format!("{:.2} s", record.plan_s),
        record.replay_s.map_or_else(|| "-".into(), |seconds| format!("{seconds:.2} s")),
    ]
}
