//! The plans as lines of JSON and as a table.

use std::fmt;

use anyhow::Result;
use remat::ir::counted;
use remat::report::readable_bytes;
use remat_command::table::{readable_seconds, table, thousands};
use remat_command::text::printable;
use remat_plan::{BufferId, Location, StepId};
use serde::Serialize;

use super::answer::{Answer, Plan, Planner};
use super::graph::Source;

/// A line of JSON. Sizes and times are in the units of the file. It says nothing of how long the search took, so that the same graph
/// gives the same bytes.
#[derive(Serialize)]
struct Line<'a> {
    graph: &'a str,
    size_unit: &'static str,
    time_unit: &'static str,
    budget: usize,
    peak_once: usize,
    time_once: u64,
    #[serde(flatten)]
    found: Found<'a>,
}

/// What was found.
#[derive(Serialize)]
#[serde(untagged)]
enum Found<'a> {
    Plan {
        peak: usize,
        arena: usize,
        time: u64,
        overhead: f64,
        bound: u64,
        repetitions: usize,
        order: Vec<usize>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        names: Vec<&'a str>,
        offsets: Vec<Vec<Place>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        scratch: Vec<Option<usize>>,
    },
    Nothing {
        error: &'static str,
        least_peak: usize,
    },
}

/// Where a result lies.
#[derive(Serialize)]
#[serde(untagged)]
enum Place {
    /// At this offset of the arena.
    Offset(usize),
    /// In the memory of an output, by the number of its buffer.
    Output { output: usize },
}

/// A line for a graph and a budget.
///
/// # Errors
/// If it cannot be written as JSON.
pub(super) fn json(planner: &Planner<'_>, answer: &Answer) -> Result<String> {
    let (source, unit) = (planner.source, planner.source.unit());
    let found = match &answer.plan {
        Ok(plan) => found(source, plan),
        &Err(peak) => Found::Nothing { error: "no plan was found within the budget", least_peak: peak / unit },
    };
    let (size_unit, time_unit) = if source.is_of_nodes { ("1", "1") } else { ("B", "ps") };
    let line = Line {
        graph: &source.name,
        size_unit,
        time_unit,
        budget: answer.budget / unit,
        peak_once: planner.peak_once / unit,
        time_once: planner.time_once,
        found,
    };
    Ok(serde_json::to_string(&line)?)
}

fn found<'a>(source: &'a Source, plan: &Plan) -> Found<'a> {
    let Plan { found, runs, memory } = plan;
    let unit = source.unit();
    let place = |&buffer: &BufferId| match memory.locations[buffer] {
        Location::Arena(offset) => Place::Offset(offset / unit),
        Location::Buffer(output) | Location::Within { output, .. } => Place::Output { output: output.index() },
    };
    let steps = || found.schedule.runs.iter().map(|step| step.index());
    let scratch = |(step, &offset): (StepId, &usize)| (runs.graph.steps[step].scratch > 0).then_some(offset / unit);
    let has_scratch = runs.graph.steps.iter().any(|step| step.scratch > 0);
    Found::Plan {
        peak: found.judged.peak / unit,
        arena: memory.arena / unit,
        time: found.judged.time,
        overhead: found.overhead(),
        bound: found.bound,
        repetitions: plan.recomputed(source),
        order: steps().map(|step| source.number[step]).collect(),
        names: steps().filter_map(|step| source.names.get(step).map(String::as_str)).collect(),
        offsets: runs.graph.steps.iter().map(|step| step.writes.iter().map(place).collect()).collect(),
        scratch: if has_scratch { memory.scratch.iter_enumerated().map(scratch).collect() } else { Vec::new() },
    }
}

/// A row for each graph and budget.
pub(super) struct Table {
    has_graphs: bool,
    /// What each graph needs without recomputation.
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows, which names the graph of each if there are several.
    pub(super) fn new(has_graphs: bool) -> Table {
        Table { has_graphs, titles: Vec::new(), rows: Vec::new() }
    }

    /// Adds a line about a graph.
    pub(super) fn title(&mut self, planner: &Planner<'_>) {
        let source = planner.source;
        let (name, steps) = (printable(&source.name), counted(source.number.len(), "step"));
        let (peak, time) = (size(source, planner.peak_once), time(source, planner.time_once));
        self.titles.push(format!("{name}: {steps}; without recomputation peak {peak}, time {time}"));
    }

    /// Adds a row.
    pub(super) fn add(&mut self, planner: &Planner<'_>, answer: &Answer) {
        let source = planner.source;
        let size = |bytes: usize| size(source, bytes);
        let share = |time: u64| {
            let more = time.saturating_sub(planner.time_once) as f64 / planner.time_once.max(1) as f64;
            format!("{:.2}", 100.0 * more)
        };
        let mut row = if self.has_graphs { vec![printable(&source.name)] } else { Vec::new() };
        let of_peak = 100.0 * answer.budget as f64 / planner.peak_once.max(1) as f64;
        row.extend([size(answer.budget), format!("{of_peak:.0}")]);
        match &answer.plan {
            Ok(plan) => row.extend([
                size(plan.found.judged.peak),
                size(plan.memory.arena),
                time(source, plan.found.judged.time),
                share(plan.found.judged.time),
                share(plan.found.bound),
                thousands(plan.recomputed(source)),
            ]),
            &Err(least) => {
                row.push(format!("none, least known {}", size(least)));
                row.extend(["", "", "", "", ""].map(String::from));
            }
        }
        row.push(format!("{:.1}", answer.seconds));
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "budget",
            "% of peak",
            "peak",
            "arena",
            "time",
            "overhead %",
            "lower bound %",
            "recomputed steps",
            "seconds",
        ];
        let header: Vec<&str> = self.has_graphs.then_some("graph").into_iter().chain(header).collect();
        self.titles.iter().try_for_each(|title| writeln!(f, "{title}"))?;
        write!(f, "\n{}", table(&header, &self.rows))
    }
}

/// Bytes, or units of the file.
fn size(source: &Source, bytes: usize) -> String {
    if source.is_of_nodes { thousands(bytes / source.unit()) } else { readable_bytes(bytes) }
}

/// A time of picoseconds, or of units of the file.
fn time(source: &Source, time: u64) -> String {
    match time {
        _ if source.is_of_nodes => thousands(time as usize),
        0..1_000_000_000 => format!("{:.2} µs", time as f64 * 1e-6),
        _ => readable_seconds(time as f64 * 1e-12),
    }
}
