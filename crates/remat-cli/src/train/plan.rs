//! What a run needs memory for, known before it begins, and what would make it fit.

use std::fmt::Write;

use anyhow::{Result, bail};
use remat::ir::{LiveKind, LiveValue};
use remat::memory::Part;
use remat::report::readable_bytes;
use remat::tree::leaves;
use remat::{Cpu, DType, JitOptions, Tensor, Tree, eval_shape, jit_with, random};
use remat_cli::resident;
use remat_cli::table::table;

use super::step::{Arguments, GRADIENT, Step};
use crate::config::{Config, OptimizerName};
use crate::data::Batch;
use crate::machine;
use crate::model::{Architecture, Model};
use crate::policy::LISTED;

/// The memory of a run on this CPU's own engine, and its work.
pub(super) struct Plan {
    /// The bytes of each part at the peak of a step.
    parts: Vec<(Part, usize)>,
    /// The most bytes that are live in a step that is given what it changes.
    pub(super) peak: usize,
    /// The same of a step after which its arguments are still there: while a checkpoint is written.
    pub(super) saving: usize,
    /// The bytes beside a step that has ended: what it keeps for the next, with the loss of held-out text.
    evaluating: usize,
    /// The bytes that are live while each step of the program runs.
    pub(super) timeline: Vec<usize>,
    /// The operations of a step, with those that are done again in the backward pass.
    flops: u64,
}

/// The plan of what a configuration asks for.
///
/// # Errors
/// If the step has an error, such as heads that do not divide the width, or a policy with a name that no value has.
pub(super) fn plan(config: &Config, architecture: &Architecture, context: usize) -> Result<Plan> {
    let step = Step::of(config)?;
    let model = shapes(config, architecture)?;
    let (state, scale) = eval_shape(|model: &Model| step.init(model))(&model)?;
    let counts = [leaves(&model).len(), leaves(&state).len() + leaves(&scale).len()];
    // The peak is asked for, whatever limit the environment sets.
    let device = Some(Cpu::default().into());
    let options = JitOptions { device, memory_limit: Some(usize::MAX), ..JitOptions::default() };
    let test = jit_with(&options, |(model, batch): &(Model, Batch)| step.loss(model, batch, None));
    let test = test.lower(&(model.clone(), batch(config.batch, context)))?.compile()?.memory();
    let batch = batch(config.sequences(context)?, context);
    let program = jit_with(&options, |arguments: &Arguments| step.run(arguments));
    let lowered = program.lower(&(model, state, scale, batch))?;
    let report = lowered.compile()?.memory_report();
    let captured = lowered.jaxpr().ins.len() - counts[0] - counts[1] - 2;
    let mut parts: Vec<(Part, usize)> = Part::ALL.map(|part| (part, 0)).into();
    let mut add = |part: Part, bytes: usize| {
        parts.iter_mut().filter(|(of, _)| *of == part).for_each(|(_, sum)| *sum += bytes);
    };
    for value in &report.donated {
        add(part(value, captured, counts), value.bytes);
    }
    let peak = report.stats.donated_peak;
    let listed: usize = report.donated.iter().map(|value| value.bytes).sum();
    add(Part::Overhead, peak.saturating_sub(listed));
    let kept = report.stats.arguments + report.stats.temporaries;
    let evaluating = kept + test.peak.saturating_sub(test.arguments);
    Ok(Plan {
        parts,
        peak,
        saving: report.stats.peak,
        evaluating,
        timeline: report.timeline,
        flops: lowered.cost().flops,
    })
}

/// The part that a live value of a step belongs to.
fn part(value: &LiveValue, captured: usize, [parameters, state]: [usize; 2]) -> Part {
    match value.kind {
        LiveKind::Constant => Part::Batch,
        LiveKind::Argument(i) if i < captured => Part::Batch,
        LiveKind::Argument(i) if i < captured + parameters => Part::Parameters,
        LiveKind::Argument(i) if i < captured + parameters + state => Part::Optimizer,
        LiveKind::Argument(_) => Part::Batch,
        LiveKind::Temporary if value.name.as_deref() == Some(GRADIENT) => Part::Gradients,
        LiveKind::Temporary => Part::Activations,
        LiveKind::Scratch => Part::Scratch,
        LiveKind::Output => Part::Overhead,
    }
}

/// The model that is trained, without memory.
///
/// # Errors
/// If its sizes do not fit each other, or adapters cannot be attached.
pub(crate) fn shapes(config: &Config, architecture: &Architecture) -> remat::Result<Model> {
    eval_shape(|(): &()| config.model(architecture, &random::key(0)))(&())
}

/// A batch, without memory.
pub(super) fn batch(rows: usize, context: usize) -> Batch {
    let tokens = Tensor::shape_only([rows, context], DType::I32);
    Batch { targets: tokens.clone(), tokens }
}

impl Plan {
    /// The most bytes that are taken at one time.
    fn total(&self) -> usize {
        self.peak.max(self.evaluating)
    }

    /// The operations that a step is for: those without what a checkpoint does again.
    ///
    /// # Errors
    /// As [`plan`].
    pub(super) fn useful_flops(&self, config: &Config, architecture: &Architecture, context: usize) -> Result<u64> {
        let plain = Config { policy: "none".into(), ..config.clone() };
        Ok(if config.policy == plain.policy { self.flops } else { plan(&plain, architecture, context)?.flops })
    }

    /// The parts of the peak that have any bytes, by name.
    pub(super) fn parts(&self) -> Vec<(String, usize)> {
        let some = self.parts.iter().filter(|(_, bytes)| *bytes > 0);
        some.map(|(part, bytes)| (part.to_string(), *bytes)).collect()
    }

    /// The peak and its parts as a line.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{} at its peak", readable_bytes(self.peak));
        let mut before = ": ";
        for (part, bytes) in self.parts() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}{part} {}", readable_bytes(bytes));
            before = ", ";
        }
        text
    }
}

/// A bound of memory.
pub(super) struct Limit {
    bytes: usize,
    /// What the process takes already, where the bound is one of the process.
    beside: usize,
    /// What it is called.
    name: &'static str,
}

impl Limit {
    /// That of the configuration, else of the environment, else the memory of the machine.
    pub(super) fn of(config: &Config) -> Option<Limit> {
        if let Some(bytes) = config.limit() {
            return Some(Limit { bytes, beside: resident::now().unwrap_or(0), name: "the memory limit" });
        }
        let set = std::env::var("REMAT_MEMORY_LIMIT").ok().and_then(|text| remat::ir::parse_bytes(&text));
        let set = set.map(|bytes| Limit { bytes, beside: 0, name: "REMAT_MEMORY_LIMIT" });
        set.or_else(|| machine::memory().map(|bytes| Limit { bytes, beside: 0, name: "the memory of this machine" }))
    }

    /// Whether this many bytes fit.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.beside.saturating_add(bytes) <= self.bytes
    }

    /// Fails unless a run fits; then what would make it fit is written.
    ///
    /// # Errors
    /// By how much it does not fit, and the change that makes it fit at the least cost.
    pub(super) fn check(
        &self,
        plan: &Plan,
        (config, architecture, context): (&Config, &Architecture, usize),
        out: &mut impl std::io::Write,
    ) -> Result<()> {
        if self.fits(plan.total()) {
            return Ok(());
        }
        let changes = changes(plan, config, architecture, context)?;
        writeln!(out, "what would make it fit, or come near:\n\n{}\n", self.table(&changes))?;
        let needs = self.beside.saturating_add(plan.total());
        let over = needs.saturating_sub(self.bytes);
        let mut text = format!(
            "training needs {}, {} more than {}, {}",
            readable_bytes(needs),
            readable_bytes(over),
            self.name,
            readable_bytes(self.bytes)
        );
        if self.beside > 0 {
            let _ = write!(text, " ({} of it are the process itself)", readable_bytes(self.beside));
        }
        let fitting = changes.iter().filter(|change| self.fits(change.total));
        let cost = |change: &&Change| (!change.keeps_results, change.more_operations, change.total);
        match fitting.min_by(|a, b| cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)) {
            Some(Change { flags, total, .. }) => {
                bail!("{text}; with {flags} it needs {}", readable_bytes(self.beside + total))
            }
            None => bail!("{text}; nothing that was tried makes it fit"),
        }
    }

    fn table(&self, changes: &[Change]) -> String {
        let rows = changes.iter().map(|change| {
            let mark = if self.fits(change.total) { "> " } else { "  " };
            let again = match change.more_operations {
                more if more > 0.005 => format!("{:.0} % more operations", 100.0 * more),
                _ => String::new(),
            };
            let other = if change.keeps_results { "" } else { "other results" };
            vec![
                format!("{mark}{}", change.flags),
                readable_bytes(self.beside + change.total),
                again,
                other.to_string(),
            ]
        });
        table(&["  change", "needs", "", ""], &rows.collect::<Vec<_>>())
    }
}

/// A change of a configuration, and what a run needs with it.
struct Change {
    flags: String,
    total: usize,
    /// As a share of those of the step as it is.
    more_operations: f64,
    /// Whether the losses are the same, but for rounding.
    keeps_results: bool,
}

/// Changes that take less memory, those with the same results first.
///
/// # Errors
/// As [`plan`].
fn changes(before: &Plan, config: &Config, architecture: &Architecture, context: usize) -> Result<Vec<Change>> {
    let policy = |policy: &str, config: &Config| Config { policy: policy.into(), ..config.clone() };
    let parts = |count: usize, config: &Config| Config {
        batch: config.batch / count,
        accumulate: config.accumulate * count,
        ..config.clone()
    };
    let mut tried = Vec::new();
    for listed in LISTED {
        tried.push(policy(listed, config));
    }
    let halves = (1..).map(|power| 1 << power).take_while(|&count| config.batch.is_multiple_of(count));
    for count in halves {
        tried.extend([parts(count, config), parts(count, &policy("Nothing", config))]);
    }
    if config.clip_norm > 0.0 {
        let unclipped = Config { clip_norm: 0.0, ..config.clone() };
        tried.extend([policy("Nothing", &unclipped), unclipped]);
    }
    for optimizer in [OptimizerName::Adafactor, OptimizerName::Adam8bit] {
        let smaller = Config { optimizer, ..config.clone() };
        if smaller.weight_decay().is_err() {
            continue;
        }
        tried.extend([policy("Nothing", &smaller), smaller.clone()]);
        tried.push(policy("Nothing", &Config { clip_norm: 0.0, ..smaller }));
    }
    let mut changes = Vec::new();
    for changed in tried {
        let plan = plan(&changed, architecture, context)?;
        let keeps_results = changed.optimizer == config.optimizer && changed.clip_norm == config.clip_norm;
        if plan.total() < before.total() {
            let more_operations = plan.flops as f64 / before.flops.max(1) as f64 - 1.0;
            changes.push(Change {
                flags: flags(config, &changed)?,
                total: plan.total(),
                more_operations,
                keeps_results,
            });
        }
    }
    changes.sort_by_key(|change| (!change.keeps_results, change.total));
    Ok(changes)
}

/// The flags that differ.
///
/// # Errors
/// If a path is not Unicode.
fn flags(config: &Config, changed: &Config) -> Result<String> {
    let before = config.to_settings()?;
    let text =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), |text| text.replace(' ', ""));
    let flag = |(key, value): (&String, &serde_json::Value)| {
        (before.get(key) != Some(value)).then(|| {
            let text = text(value);
            if text.contains('(') { format!("--{key} '{text}'") } else { format!("--{key} {text}") }
        })
    };
    Ok(changed.to_settings()?.iter().filter_map(flag).collect::<Vec<_>>().join(" "))
}

/// The number of parameters of a tree.
///
/// # Errors
/// The error of a failed leaf.
pub(super) fn size(tree: &impl Tree) -> remat::Result<usize> {
    leaves(tree).iter().map(|(_, leaf)| leaf.size()).sum()
}
