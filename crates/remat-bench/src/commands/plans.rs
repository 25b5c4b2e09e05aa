//! `remat-bench plans`: what a budget of memory costs, by the planner and the cost model.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use remat::{Cpu, DType};
use remat_cli::arguments::{policy, up_to};
use remat_cli::table::table;
use remat_ir::Jaxpr;
use remat_plan::{Effort, Expanded, Graph, StepId, peak, plan_memory, rematerialize, schedule};
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
    /// How many changes of a plan are tried
    #[arg(long, default_value_t = Effort::GOOD.evaluations, value_parser = up_to(1_000_000_000))]
    evaluations: usize,
    /// The layers of the GPTs
    #[arg(long, default_value_t = 24, value_parser = up_to(1000))]
    layers: usize,
    #[arg(long, default_value = "none", help = crate::arguments::POLICY_HELP)]
    policy: String,
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
    limit: usize,
    /// `None` where no plan was found.
    peak: Option<usize>,
    arena: Option<usize>,
    runs: Option<usize>,
    overhead: Option<f64>,
    /// No plan in this order has less.
    bound: f64,
    plan_s: f64,
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
        let graph = Cpu::default().graph(&*model.step(args)?)?;
        let order = schedule(&graph);
        for &percent in &args.percent {
            let record = planned(model, args, &graph, &order, percent)?;
            if args.json {
                writeln!(out, "{}", serde_json::to_string(&record)?)?;
            }
            rows.push(row(&record));
        }
    }
    if !args.json {
        let header =
            ["model", "budget", "MiB", "peak MiB", "arena / peak", "runs", "overhead", "at least", "planned in"];
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
            Model::Resnet => Work::Resnet { sizes: resnet::Sizes { image: 224, batch: 8, classes: 1000 } },
            Model::Unet => Work::Unet { sizes: unet::Sizes { image: 128, batch: 4, width: 32, levels: 4 } },
        };
        Ok(work.step(policy(&args.policy)?, DType::F32)?)
    }
}

fn planned(model: Model, args: &Args, graph: &Graph, order: &[StepId], percent: usize) -> Result<Record> {
    let limit = peak(graph, order) / 100 * percent;
    let started = Instant::now();
    let plan = rematerialize(graph, order, limit, Effort { evaluations: args.evaluations });
    let plan_s = started.elapsed().as_secs_f64();
    let mut record = Record {
        framework: concat!("remat ", env!("CARGO_PKG_VERSION")),
        model,
        policy: args.policy.clone(),
        steps: graph.steps.len(),
        percent,
        limit,
        peak: None,
        arena: None,
        runs: None,
        overhead: None,
        bound: 0.0,
        plan_s,
    };
    if let Ok(plan) = plan {
        let expanded = Expanded::new(graph, &plan.schedule)?;
        let runs: Vec<StepId> = expanded.graph.steps.indices().collect();
        record.arena = Some(plan_memory(&expanded.graph, &runs)?.arena);
        record.peak = Some(plan.judged.peak);
        record.runs = Some(runs.len());
        record.overhead = Some(plan.overhead());
        record.bound = plan.bound.saturating_sub(plan.once) as f64 / plan.once as f64;
    }
    Ok(record)
}

fn row(record: &Record) -> Vec<String> {
    let mib = |bytes: usize| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".into());
    let packed = record.arena.zip(record.peak).map(|(arena, peak)| format!("{:.4}", arena as f64 / peak as f64));
    vec![
        format!("{:?}, {} steps", record.model, record.steps),
        format!("{}%", record.percent),
        mib(record.limit),
        or_none(record.peak.map(mib)),
        or_none(packed),
        or_none(record.runs.map(|runs| runs.to_string())),
        or_none(record.overhead.map(percent)),
        percent(record.bound),
        format!("{:.2} s", record.plan_s),
    ]
}
