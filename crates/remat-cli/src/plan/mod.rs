//! `remat plan`: graphs from files, planned for budgets of memory.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `file`: the forms of a graph in a file; `budget`: budgets
//! 2. `graph`: the graph of a file, checked
//! 3. `answer`: the plan of a graph within a budget
//! 4. `report`: the plans as lines of JSON and as a table

mod answer;
mod budget;
mod file;
mod graph;
mod report;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use remat_cli::progress;

use answer::Planner;
use budget::Budget;
use graph::Source;

/// The budgets without a flag, in percent of the peak without recomputation.
const PERCENT: [u8; 7] = [90, 80, 70, 60, 50, 40, 30];

/// The forms of a graph, for the help.
pub(crate) const HELP: &str = "A graph is a JSON object: {\"steps\": [{\"name\", \"reads\": [buffers], \"writes\": [buffers], \
     \"cost\": picoseconds, \"scratch\": bytes, \"in_place\": [[read, written]], \"runs_once\": bool}], \
     \"buffers\": [{\"bytes\", \"kind\": temporary, argument, output or constant}]}, or one of nodes with one result each: \
     {\"n\", \"cost\": [..], \"mem\": [..], \"edges\": [[from, to]]}. Buffers, steps and nodes are numbered from 0. docs/PLANNING.md describes both, and the lines of --json.\n\n\
     Exit codes: 0 if a plan was found for some row; 1 for an error, and if there is none for any row; 2 for invalid arguments.";

/// Arguments of `remat plan`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files with a graph each, or folders of such files, whose names end with .json
    #[arg(required = true, value_name = "GRAPH")]
    graphs: Vec<PathBuf>,
    /// The most memory of temporaries at one time: bytes such as 3GiB (units of the file in a graph of nodes), or percent of the peak
    /// without recomputation such as 50%; repeat the flag for several [default: 90%, 80%, .., 30%]
    #[arg(long = "budget", value_name = "BYTES", value_parser = budget::parse)]
    budgets: Vec<Budget>,
    /// How long to search
    #[arg(long, value_enum, default_value = "good")]
    effort: Effort,
    /// Print a line of JSON for each graph and budget: the order with recomputed steps, offsets, peak, time and its lower bound
    #[arg(long)]
    json: bool,
    /// Also reorder the nodes of a graph of nodes, which otherwise run in the order of their numbers; graphs of steps are always reordered
    #[arg(long)]
    reorder: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Effort {
    /// About a fifth of a second for a graph of some hundred steps
    Quick,
    /// A second or two for such a graph
    Good,
    /// About ten seconds for such a graph
    Best,
}

/// Plans each graph for each budget, and prints the plans.
///
/// # Errors
/// If a graph cannot be read or is wrong, in which case none is planned; if the output cannot be written. If no plan was found for any
/// graph and budget, the exit code is 1.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let files = files(&args.graphs)?;
    // What is wrong in any file is reported before anything is planned. The graphs are read again, since together they may be large.
    for file in &files {
        Source::read(file)?;
    }
    let effort = match args.effort {
        Effort::Quick => remat_plan::Effort::QUICK,
        Effort::Good => remat_plan::Effort::GOOD,
        Effort::Best => remat_plan::Effort::BEST,
    };
    let budgets = if args.budgets.is_empty() { PERCENT.map(Budget::percent).to_vec() } else { args.budgets.clone() };
    let bar = progress::bar(files.len() * budgets.len());
    let mut table = report::Table::new(files.len() > 1);
    let mut is_some_found = false;
    for file in &files {
        let source = Source::read(file)?;
        let mut planner = Planner::new(&source, args.reorder)?;
        table.title(&planner);
        for budget in &budgets {
            bar.set_message(format!("{}  {budget}", source.name));
            let answer = planner.plan(budget, effort)?;
            is_some_found |= answer.plan.is_ok();
            if args.json {
                let line = report::json(&planner, &answer)?;
                bar.suspend(|| writeln!(out, "{line}"))?;
            } else {
                table.add(&planner, &answer);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if !args.json {
        writeln!(out, "{table}")?;
    }
    ensure!(is_some_found, "no plan was found within {}", if budgets.len() == 1 { "the budget" } else { "any budget" });
    Ok(())
}

/// The files, and in place of each folder its files whose names end with `.json`, in the order of their names.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found = listed(path).with_context(|| path.display().to_string())?;
            ensure!(!found.is_empty(), "{}: no file of this folder is called `.json`", path.display());
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let is_graph = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut graphs: Vec<PathBuf> = paths.into_iter().filter(is_graph).collect();
    graphs.sort();
    Ok(graphs)
}
