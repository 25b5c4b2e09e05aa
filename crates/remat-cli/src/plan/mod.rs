//! `remat plan`: graphs and programs from files, and training steps, planned for budgets of memory.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `file`: the forms of a graph in a file; `budget`: budgets
//! 2. `graph`: the graph of a file, checked
//! 3. `answer`: the plan of a graph within a budget
//! 4. `report`: the plans as lines of JSON and as a table
//! 5. `program`: programs, which the native engine plans

mod answer;
mod budget;
mod file;
mod graph;
mod program;
mod report;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use remat_command::arguments;
use remat_command::progress;

use crate::config::{Config, Flags};
use crate::lock::Lock;
use crate::policy::{LISTED, shown};
use crate::train::{architecture, planned_step, planned_under};
use answer::Planner;
use budget::Budget;
pub(crate) use file::text;
use graph::Source;
pub(crate) use program::imported;
use program::{Donated, Form};

/// The budgets without a flag, in percent of the peak without recomputation.
const PERCENT: [u8; 7] = [90, 80, 70, 60, 50, 40, 30];

/// The forms of a graph and of a program, for the help.
pub(crate) const HELP: &str = "A program is the text of a jaxpr, as `make_jaxpr` prints it: { lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }; or what `jax.export` writes: the bytes of `jax.export.export(f)(*args).mlir_module_serialized`. A graph is a JSON object: {\"steps\": [{\"name\", \"reads\": [buffers], \"writes\": [buffers], \
     \"cost\": picoseconds, \"scratch\": bytes, \"in_place\": [[read, written]], \"runs_once\": bool}], \
     \"buffers\": [{\"bytes\", \"kind\": temporary, argument, output or constant}]}, or one of nodes with one result each: \
     {\"n\", \"cost\": [..], \"mem\": [..], \"edges\": [[from, to]]}. Buffers, steps and nodes are numbered from 0. docs/PLANNING.md describes both, and the lines of --json.\n\n\
     Exit codes: 0 if a plan was found for some row; 1 for an error, and if there is none for any row; 2 for invalid arguments.";

/// Arguments of `remat plan`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files with a graph or a program each, or folders of graphs, whose names end with .json [default: the training step of a model, which has
    /// the flags and keys of `remat train`]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The most memory: bytes such as 3GiB (units of the file in a graph of nodes), or percent of the peak without recomputation such as 50%;
    /// repeat the flag for several. Of a graph it is that of temporaries, of a program all that a call needs [default: 90%, 80%, .., 30% for
    /// graphs; about eight plans of any size for programs]
    #[arg(long = "budget", value_name = "BYTES", value_parser = budget::parse)]
    budgets: Vec<Budget>,
    /// How long to search for plans of graphs [default: good]
    #[arg(long, value_enum)]
    effort: Option<Effort>,
    /// Print a line of JSON for each graph or program and budget: of a graph the order with recomputed steps, offsets, peak, time and its lower
    /// bound; of a program the peak, the overhead and its lower bound, and the recomputed values
    #[arg(long)]
    json: bool,
    /// Also write the memory of the plans of a program over its steps as a page of HTML, a file that needs no server: without --budget, of up to 32
    /// plans. That of a training step has each policy as a point beside them
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also reorder the nodes of a graph of nodes, which otherwise run in the order of their numbers; graphs of steps are always reordered
    #[arg(long)]
    reorder: bool,
    /// The inputs of the programs in files whose memory results may take: all, none, or numbers such as 0-7,9. Constants are never donated
    /// [default: those that a program of JAX donates, or none; a training step donates model and state]
    #[arg(long, value_name = "INPUTS", value_parser = Donated::parse)]
    donate: Option<Donated>,
    #[command(flatten)]
    lock: Lock,
    /// A TOML file with settings, like that of `remat train`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
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

/// What to plan.
#[derive(Default)]
struct Subjects {
    /// Files.
    graphs: Vec<PathBuf>,
    /// Programs, without a limit, and their names.
    programs: Vec<(String, remat::Plan)>,
}

impl Subjects {
    /// Those of the arguments.
    ///
    /// # Errors
    /// If a file cannot be read or is wrong, or the model has an error; if a flag is not one for them.
    fn of(args: &Args) -> Result<Subjects> {
        let mut subjects = Subjects::default();
        if args.files.is_empty() {
            subjects.programs.push(step(args)?);
        }
        // What is wrong in any file is reported before anything is planned. The graphs are read again, since together they may be large.
        for path in files(&args.files)? {
            let text = file::text(&path).with_context(|| path.display().to_string())?;
            if program::is_program(&text) {
                let plan = program::read(&path, &text, args.donate.as_ref())?;
                subjects.programs.push((path.display().to_string(), plan));
                continue;
            }
            let is_graph = is_json(&path) || text.trim_ascii_start().starts_with(b"{");
            ensure!(
                is_graph,
                "{}: it is neither a graph, an object of JSON, nor a program, which begins with `{{ lambda` or is bytecode of StableHLO",
                path.display()
            );
            Source::read(&path, &text)?;
            subjects.graphs.push(path);
        }
        let (has_graphs, has_programs) = (!subjects.graphs.is_empty(), !subjects.programs.is_empty());
        let is_of_model = args.config.is_some() || !args.flags.0.is_empty();
        ensure!(args.files.is_empty() || !is_of_model, "the flags of a model do not go with files");
        ensure!(has_graphs || !args.reorder && args.effort.is_none(), "--effort and --reorder go with graphs");
        ensure!(
            !args.files.is_empty() && has_programs || args.donate.is_none(),
            "--donate goes with programs in files"
        );
        let is_one = !has_graphs && subjects.programs.len() == 1 && args.budgets.len() == 1;
        ensure!(!args.lock.is_given() || is_one, "--plan goes with one program and one --budget");
        let is_page = !has_graphs && subjects.programs.len() == 1 && args.budgets.len() <= remat_io::REPORTED_PLANS;
        let most = remat_io::REPORTED_PLANS;
        ensure!(args.html.is_none() || is_page, "--html goes with one program and at most {most} budgets");
        let is_nothing = has_programs && args.budgets.contains(&Budget::Size(0));
        ensure!(!is_nothing, "--budget: a program needs more than 0 bytes");
        Ok(subjects)
    }
}

/// The plan of a program in a file, without a limit.
///
/// # Errors
/// If the file cannot be read, or is not a program that can be planned.
pub(crate) fn of_file(path: &Path) -> Result<remat::Plan> {
    let text = file::text(path).with_context(|| path.display().to_string())?;
    program::read(path, &text, None)
}

/// The plan of a training step of the model of the flags, and its name.
fn step(args: &Args) -> Result<(String, remat::Plan)> {
    let settings = args.flags.settings(args.config.as_deref())?;
    let config = Config::of(&settings)?;
    let device = config.device()?;
    ensure!(device.engine().plans_memory(), "the engine of {} has no plans; the native engine has", device.name());
    let architecture = architecture(&config)?;
    let context = config.context(&architecture);
    let name = format!("a step of {architecture}, context {context}, batch {}, policy {}", config.batch, config.policy);
    Ok((name, planned_step(&config, &architecture)?))
}

/// The plans of a training step under each policy, for a page about the model of the flags.
///
/// # Errors
/// If a setting is not valid.
fn policies(args: &Args, bar: &ProgressBar) -> Result<Vec<(String, remat::Plan)>> {
    if args.html.is_none() || !args.files.is_empty() {
        return Ok(Vec::new());
    }
    let config = Config::of(&args.flags.settings(args.config.as_deref())?)?;
    let architecture = architecture(&config)?;
    let mut names: Vec<String> = LISTED.map(String::from).into();
    let own = shown(arguments::policy(&config.policy)?.as_ref());
    if !names.contains(&own) {
        names.push(own);
    }
    let mut plans = Vec::new();
    for (policy, plan) in planned_under(&config, &architecture, names) {
        bar.set_message(policy.clone());
        match plan {
            Ok(plan) => plans.push((policy, plan)),
            // A model may not have the names of a policy.
            Err(error) => progress::say(bar, &format!("{policy} is not on the page: {error:#}")),
        }
    }
    Ok(plans)
}

/// Plans each graph and program for each budget, and prints the plans.
///
/// # Errors
/// If a file cannot be read or is wrong, in which case none is planned; if the output cannot be written. If no plan was found for any
/// of them and any budget, the exit code is 1.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let Subjects { graphs, programs } = Subjects::of(args)?;
    let effort = match args.effort.unwrap_or(Effort::Good) {
        Effort::Quick => remat_plan::Effort::QUICK,
        Effort::Good => remat_plan::Effort::GOOD,
        Effort::Best => remat_plan::Effort::BEST,
    };
    let budgets = if args.budgets.is_empty() { PERCENT.map(Budget::percent).to_vec() } else { args.budgets.clone() };
    let bar = progress::bar(graphs.len() * budgets.len() + programs.len() * args.budgets.len().max(1));
    let mut table = report::Table::new(graphs.len() > 1);
    let mut is_some_found = false;
    for path in &graphs {
        let text = file::text(path).with_context(|| path.display().to_string())?;
        let source = Source::read(path, &text)?;
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
    let policies = policies(args, &bar)?;
    let form = Form { json: args.json, html: args.html.as_deref(), policies: &policies };
    for (name, free) in &programs {
        is_some_found |= program::show(name, free, &args.budgets, &args.lock, form, &bar, out)?;
    }
    bar.finish_and_clear();
    if !args.json && !graphs.is_empty() {
        writeln!(out, "{table}")?;
    }
    let is_one = if graphs.is_empty() { args.budgets.len() == 1 } else { budgets.len() == 1 };
    ensure!(is_some_found, "no plan was found within {}", if is_one { "the budget" } else { "any budget" });
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
    let mut graphs: Vec<PathBuf> = paths.into_iter().filter(|path| is_json(path)).collect();
    graphs.sort();
    Ok(graphs)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}
