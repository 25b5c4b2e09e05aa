//! Programs: those in files, as text, and the training step of a model.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use remat::ir::{Jaxpr, RecomputedValue, counted};
use remat::report::readable_bytes;
use remat::{Cpu, Device, ErrorKind, JitOptions, Plan};
use remat_command::progress;
use remat_command::table::{table, thousands};
use remat_command::text::printable;
use remat_io::{REPORTED_PLANS, save_report_with};
use remat_opt::pipeline;
use remat_stablehlo::{Donation, ImportOptions, Imported, Module, import};
use serde::Serialize;

use super::budget::Budget;
use crate::lock::Lock;

/// About how many plans are listed without a budget.
const POINTS: usize = 8;

/// What is printed and written of programs.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    /// Lines of JSON instead of text.
    pub(super) json: bool,
    /// The file of a page.
    pub(super) html: Option<&'a Path>,
    /// The plans under policies, for the page.
    pub(super) policies: &'a [(String, Plan)],
}

/// The inputs of a program that its callers donate, so that results may take their memory.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Donated {
    All,
    /// Ranges of their numbers, with their ends.
    Ranges(Vec<(usize, usize)>),
}

impl Donated {
    /// Reads `all`, `none`, or numbers and ranges of them: `0-7,9`.
    ///
    /// # Errors
    /// What is wrong with the text, for the user.
    pub(super) fn parse(text: &str) -> Result<Donated, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some((first, last))
        };
        let donated = match text {
            "all" => Some(Donated::All),
            "none" => Some(Donated::Ranges(Vec::new())),
            _ => text.split(',').map(range).collect::<Option<Vec<_>>>().map(Donated::Ranges),
        };
        donated.ok_or_else(|| "must be all, none, or numbers of inputs such as 0-7,9".to_string())
    }

    /// Whether each input of a program is donated. Its constants are not, whatever the user says.
    ///
    /// # Errors
    /// If there is no input of a number.
    fn of(&self, program: &Jaxpr, consts: usize) -> Result<Vec<bool>> {
        let count = program.ins.len();
        let Donated::Ranges(ranges) = self else { return Ok((0..count).map(|input| input >= consts).collect()) };
        let last = ranges.iter().map(|&(_, last)| last).max();
        ensure!(last.is_none_or(|last| last < count), "--donate: the program has {count} inputs, numbered from 0");
        let is_donated = |input| ranges.iter().any(|&(first, last)| first <= input && input <= last);
        Ok((0..count).map(|input| input >= consts && is_donated(input)).collect())
    }
}

/// Whether a file has the beginning of a program: the text of a jaxpr, or the bytecode of StableHLO.
pub(super) fn is_program(text: &[u8]) -> bool {
    if text.starts_with(&remat_stablehlo::MAGIC) {
        return true;
    }
    let text = text.trim_ascii_start();
    let body = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    text.starts_with(b"let ") || body.is_some_and(|body| body.starts_with(b"lambda"))
}

/// The plan of a program in a file, without a limit. Without `donated`, the inputs that a program of JAX gives up are donated.
///
/// # Errors
/// If it is not a program, or cannot be planned. The message begins with the name of the file.
pub(super) fn read(path: &Path, text: &[u8], donated: Option<&Donated>) -> Result<Plan> {
    let read = || {
        let (program, consts, given_up) = if text.starts_with(&remat_stablehlo::MAGIC) {
            let Imported { jaxpr, constants, donations } = imported(text)?;
            let jaxpr = pipeline::run(pipeline::IMPORTED, &jaxpr)?;
            let given_up = donations.iter().map(|&donation| donation != Donation::No);
            let given_up = constants.iter().map(|_| false).chain(given_up).collect();
            (jaxpr, constants.len(), given_up)
        } else {
            let (program, consts) = Jaxpr::parse_closed(str::from_utf8(text).context("it is not UTF-8")?)?;
            let given_up = vec![false; program.ins.len()];
            (program, consts, given_up)
        };
        let donated = donated.map_or(Ok(given_up), |donated| donated.of(&program, consts))?;
        // The limit of the environment is that of programs that run.
        let options = JitOptions {
            device: Some(Device::from(Cpu::default())),
            memory_limit: Some(usize::MAX),
            ..JitOptions::default()
        };
        Ok::<_, anyhow::Error>(Plan::of_with(&options, &program, &donated)?)
    };
    read().with_context(|| path.display().to_string())
}

/// A program that JAX exported.
///
/// # Errors
/// If the file is damaged, or if there is something in it that has no counterpart.
pub(crate) fn imported(bytes: &[u8]) -> Result<Imported> {
    Ok(import(&Module::read(bytes)?, ImportOptions::default())?)
}

/// Prints the plans of a program for budgets, or some on the curve of bytes against time without any. Returns whether there is one.
///
/// # Errors
/// If a plan is wrong, which is a defect; if the plan of a file cannot be used and no other may be made; if the output cannot be written.
pub(super) fn show(
    name: &str,
    free: &Plan,
    budgets: &[Budget],
    lock: &Lock,
    Form { json, html, policies }: Form<'_>,
    bar: &ProgressBar,
    out: &mut impl Write,
) -> Result<bool> {
    if budgets.is_empty() {
        // A report has as many as its slider goes through.
        let points = if html.is_some() { REPORTED_PLANS } else { POINTS };
        bar.set_message(format!("{}  {points} plans, which takes a while", printable(name)));
        let plans = free.pareto(points)?;
        bar.inc(1);
        let lines = plans.iter().map(|plan| Line::of(name, free, plan, None).json());
        let text = if json { lines.collect::<Result<Vec<_>>>()?.join("\n") } else { curve(name, free, &plans) };
        bar.suspend(|| writeln!(out, "{text}"))?;
        html.map_or(Ok(()), |path| report(path, name, &plans, policies, bar))?;
        return Ok(true);
    }
    let mut plans = Vec::new();
    for budget in budgets {
        bar.set_message(format!("{}  {budget}", printable(name)));
        let bytes = budget.of(free.peak());
        // A note is not one of the lines of the output.
        let mut notes = Vec::new();
        let found = within(free, bytes, lock, &mut notes)?;
        String::from_utf8_lossy(&notes).lines().for_each(|note| progress::say(bar, note));
        bar.inc(1);
        let text = match (&found, json) {
            (Ok(plan), true) => Line::of(name, free, plan, Some(bytes)).json()?,
            (Err(error), true) => Line::without(name, free, bytes, error).json()?,
            (Ok(plan), false) => plan.explain()?.to_string(),
            (Err(error), false) => error.message().to_string(),
        };
        let title =
            if json { String::new() } else { format!("{}, within {}:\n", printable(name), readable_bytes(bytes)) };
        let end = if json { "" } else { "\n" };
        bar.suspend(|| writeln!(out, "{title}{text}{end}"))?;
        plans.extend(found.ok());
    }
    if let Some(path) = html.filter(|_| !plans.is_empty()) {
        report(path, name, &plans, policies, bar)?;
    }
    Ok(!plans.is_empty())
}

/// Writes the page of some plans, and says so.
fn report(path: &Path, name: &str, plans: &[Plan], policies: &[(String, Plan)], bar: &ProgressBar) -> Result<()> {
    let plans = spread(plans, REPORTED_PLANS);
    save_report_with(path, name, &plans, policies)?;
    let (plans, path) = (counted(plans.len(), "plan"), path.display().to_string());
    progress::say(bar, &format!("wrote the memory of {plans} to {}", printable(&path)));
    Ok(())
}

/// At most `most` elements of a list, two or more: the first, the last, and others between them in equal steps.
fn spread<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    let chosen = (0..count).map(|i| if count == all.len() { i } else { i * (all.len() - 1) / (count - 1) });
    chosen.filter_map(|i| all.get(i).cloned()).collect()
}

/// The plan of the file of `lock`, or else the fastest that is found, which is written there. The error is that nothing fits.
fn within(free: &Plan, bytes: usize, lock: &Lock, out: &mut impl Write) -> Result<Result<Plan, remat::Error>> {
    if let Some(plan) = lock.read(free, |plan| Ok(plan.peak() <= bytes), out)? {
        return Ok(Ok(plan));
    }
    match free.for_bytes(bytes) {
        Ok(plan) => {
            lock.write(&plan)?;
            Ok(Ok(plan))
        }
        Err(error) if error.kind() == ErrorKind::Memory => Ok(Err(error)),
        Err(error) => bail!(error),
    }
}

/// A line of JSON. It says nothing of how long the search took, so that the same program gives the same bytes.
#[derive(Serialize)]
struct Line<'a> {
    program: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<usize>,
    peak_once: usize,
    #[serde(flatten)]
    found: Found,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Plan { peak: usize, overhead: f64, repeated: f64, bound: f64, recomputed: Vec<Recomputed> },
    Nothing { error: String },
}

/// A value that is computed again.
#[derive(Serialize)]
struct Recomputed {
    value: String,
    bytes: usize,
    times: usize,
    time: u64,
}

impl Recomputed {
    fn of(value: &RecomputedValue) -> Recomputed {
        let RecomputedValue { value, times, time } = value;
        Recomputed { value: value.to_string(), bytes: value.bytes, times: *times, time: *time }
    }
}

impl Line<'_> {
    fn of<'a>(name: &'a str, free: &Plan, plan: &Plan, budget: Option<usize>) -> Line<'a> {
        let recomputed = plan.recomputed().iter().map(Recomputed::of).collect();
        let (peak, overhead, repeated, bound) = (plan.peak(), plan.overhead(), plan.repeated(), plan.bound());
        let found = Found::Plan { peak, overhead, repeated, bound, recomputed };
        Line { program: name, budget, peak_once: free.peak(), found }
    }

    /// That of a budget without a plan: the first line of the error has the least bytes that were found.
    fn without<'a>(name: &'a str, free: &Plan, budget: usize, error: &remat::Error) -> Line<'a> {
        let error = error.message().lines().next().unwrap_or_default().to_string();
        Line { program: name, budget: Some(budget), peak_once: free.peak(), found: Found::Nothing { error } }
    }

    fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// The plans as a table.
fn curve(name: &str, free: &Plan, plans: &[Plan]) -> String {
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    let rows = plans.iter().map(|plan| {
        let of_peak = 100.0 * plan.peak() as f64 / free.peak().max(1) as f64;
        let again = plan.recomputed().iter().map(|value| value.times).sum();
        let [overhead, repeated, bound] = [plan.overhead(), plan.repeated(), plan.bound()].map(percent);
        vec![readable_bytes(plan.peak()), format!("{of_peak:.0}"), overhead, repeated, bound, thousands(again)]
    });
    let header = ["peak", "% of peak", "overhead %", "recomputed %", "lower bound %", "recomputed values"];
    let (name, peak) = (printable(name), readable_bytes(free.peak()));
    format!("{name}: a call needs {peak} without recomputation\n\n{}", table(&header, &rows.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_named_by_their_numbers() {
        let program = Jaxpr::parse_closed("{ lambda a:f32[] ; b:f32[] c:f32[]. let  in (a, b, c) }").unwrap();
        let of = |text: &str| Donated::parse(text).map(|donated| donated.of(&program.0, program.1).ok());
        assert_eq!(of("none"), Ok(Some(vec![false; 3])));
        // A constant is the program's own.
        assert_eq!(of("all"), Ok(Some(vec![false, true, true])));
        assert_eq!(of("0-1"), Ok(Some(vec![false, true, false])));
        assert_eq!(of("2, 1"), Ok(Some(vec![false, true, true])));
        assert_eq!(of("0-3"), Ok(None));
        for text in ["", "some", "1-", "2-1", "-1", "1.5", "0,,1"] {
            assert!(Donated::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_spread_has_both_ends() {
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(spread(&all, 4), [0, 3, 6, 9]);
        assert_eq!(spread(&all, 10), all);
        assert_eq!((spread(&all[..1], 4), spread(&all[..0], 4)), (vec![0], vec![]));
    }

    #[test]
    fn programs_are_told_from_graphs() {
        for text in
            ["{ lambda ; . let in () }", "\n {lambda a:f32[] ; . let in () }", "let f = { lambda ; . let in () } in"]
        {
            assert!(is_program(text.as_bytes()), "{text}");
        }
        assert!(is_program(b"ML\xefR\x0dStableHLO_v1.18.0"));
        for text in ["", "{", "{\"lambda\": 1}", "{}", "[]", "lambda", "letter"] {
            assert!(!is_program(text.as_bytes()), "{text}");
        }
    }
}
