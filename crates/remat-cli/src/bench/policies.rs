//! `remat bench policies`: the time and the planned and measured memory of a training step under each policy.

mod report;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use remat_command::arguments;
use remat_command::{child, progress};
use remat_io::save_report_with;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{Config, Flags};
use crate::model::Architecture;
use crate::policy::{LISTED, shown};
use crate::train::{Measured, architecture, measure, planned_step, planned_under};
use report::Table;

/// Arguments of `remat bench policies`. The configuration has the same flags and file keys as that of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings, like that of `remat train`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A policy to measure, or `planned`: no policy, with values computed again as the fastest plan says that needs no more than the policy with the
    /// least planned peak; repeat the flag for several [default: those that `remat train` lists, that of --policy, and planned]
    #[arg(long = "only", value_name = "POLICY")]
    only: Vec<String>,
    /// Steps to time, after one untimed step
    #[arg(long, value_name = "STEPS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Write the measurements to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a chart of time against memory to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write an HTML page with the chart and the table to this file, and one with the memory of a step beside it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// The name of the row without a policy, for the bytes of the best of them.
const PLANNED: &str = "planned";

/// A policy to measure in another process.
#[derive(Serialize, Deserialize)]
pub(super) struct Case {
    settings: Map<String, Value>,
    repeat: u32,
}

/// The result for one policy.
#[derive(Serialize)]
struct Row {
    policy: String,
    #[serde(flatten)]
    measured: Option<Measured>,
    /// The reason if there are no measurements.
    error: Option<String>,
}

/// Measures one policy, in this process.
///
/// # Errors
/// If a setting is not valid; the error of a step under this policy.
pub(super) fn one(case: Case) -> Result<Measured> {
    measure(&Config::from_settings(&case.settings)?, case.repeat)
}

/// Runs the command.
///
/// # Errors
/// If a setting or a policy is not valid, or an output cannot be written. A failure under one policy is an error in its row.
pub(super) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let settings = args.flags.settings(args.config.as_deref())?;
    let config = Config::of(&settings)?;
    let named = |text: &str| Ok::<_, anyhow::Error>(shown(arguments::policy(text)?.as_ref()));
    let asked: Vec<&str> = match args.only.is_empty() {
        true => LISTED.into_iter().chain([config.policy.as_str()]).collect(),
        false => args.only.iter().map(String::as_str).collect(),
    };
    let mut names: Vec<String> = Vec::new();
    let is_planned = args.only.is_empty() || asked.contains(&PLANNED);
    for text in asked.into_iter().filter(|text| *text != PLANNED) {
        let name = named(text)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let described = architecture(&config)?;
    let context = config.context(&described);
    let title = format!("{described}, context {context}, batch {}", config.batch);
    writeln!(out, "{title}; {} steps timed under each policy", args.repeat)?;
    let bar = progress::bar(names.len() + usize::from(is_planned));
    let mut rows = Vec::new();
    let measured = |name: &str, config: Config| -> Result<Row> {
        bar.set_message(name.to_string());
        let case = Case { settings: config.to_settings()?, repeat: args.repeat };
        let measured = child::ask(&["bench", super::ONE_POLICY], &case, &[]);
        let error = measured.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
        bar.inc(1);
        Ok(Row { policy: name.to_string(), measured: measured.ok(), error })
    };
    for name in names {
        rows.push(measured(&name, Config { policy: name.clone(), ..config.clone() })?);
    }
    // A plan for the bytes of the best policy: what it takes less is the price of that policy.
    let planned = |row: &Row| row.measured.as_ref()?.planned;
    if let Some(least) = rows.iter().filter_map(planned).min().filter(|_| is_planned) {
        let limited = Config { policy: "none".into(), memory_limit: Some(least.to_string()), ..config.clone() };
        rows.push(measured(PLANNED, limited)?);
    }
    bar.finish_and_clear();
    let mut table = Table { model: title, repeat: args.repeat, rows, memory: None };
    write!(out, "\n{table}")?;
    if let Some(page) = &args.html {
        // The measurements stand without the page of their memory.
        match memory_page(page, &config, &described, &table) {
            Ok(Some(path)) => {
                writeln!(out, "wrote {}", path.display())?;
                table.memory = path.file_name().map(|name| name.to_string_lossy().into_owned());
            }
            Ok(None) => {}
            Err(error) => writeln!(out, "the page of the memory of a step was not written: {error:#}")?,
        }
    }
    let files = [(&args.json, table.json()?), (&args.svg, table.chart()?), (&args.html, table.page()?)];
    for (path, text) in files {
        if let Some(path) = path {
            fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
            writeln!(out, "wrote {}", path.display())?;
        }
    }
    Ok(())
}

/// Writes the page of the memory of a step without a policy beside this page, with the policies that were measured as points of its curve.
/// Returns where it is; `None` if the engine has no plans.
fn memory_page(page: &Path, config: &Config, architecture: &Architecture, table: &Table) -> Result<Option<PathBuf>> {
    if !config.device()?.engine().plans_memory() {
        return Ok(None);
    }
    let measured = table.rows.iter().filter(|row| row.measured.is_some() && row.policy != PLANNED);
    let names: Vec<String> = measured.map(|row| row.policy.clone()).collect();
    let under = planned_under(config, architecture, names).map(|(name, plan)| Ok((name, plan?)));
    let policies: Vec<(String, remat::Plan)> = under.collect::<Result<_>>()?;
    let plain = Config { policy: "none".into(), ..config.clone() };
    let path = page.with_extension("memory.html");
    // What was measured may compute values again for the limit; the curve shows what limits cost.
    let without = if config.memory_limit.is_some() { ", without the memory limit" } else { "" };
    let title = format!("{}{without}", table.model);
    save_report_with(&path, &title, &[planned_step(&plain, architecture)?], &policies)?;
    Ok(Some(path))
}
