//! Faults at every call on a file: the command meets one, is run again as a user would, and has to end with the numbers of an undisturbed
//! run, bit for bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::process::{Ended, Job};
use crate::harness::report::{Finding, Row};
use crate::harness::trace::{self, Call, FAULTS, Fault};
use crate::harness::work::{Work, copy};

/// What a run has computed: the hash of each file of weights, the bits of each loss, what is left in the folder.
type Outcome = BTreeMap<String, String>;

/// A command that is disturbed.
struct Scenario {
    name: &'static str,
    /// Makes the folder in which it runs.
    prepare: fn(&Work, &Path) -> Result<()>,
    /// The command.
    job: fn(&Work, &Path) -> Job,
    /// The command that goes on after it, tried first; the command itself follows if this one has nothing to go on from.
    again: Option<fn(&Work, &Path) -> Job>,
    outcome: fn(&Path, &Ended) -> Result<Outcome>,
}

const TRAIN: &str = "--eval-every 0 --sample 0 --steps 4 --save-every 2 --save run";

/// The commands of the sweep; the last needs XLA's plugin for CPUs.
const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "train", prepare: text, job: train, again: Some(resume), outcome: trained },
    Scenario { name: "train --resume", prepare: half_trained, job: resume, again: Some(resume), outcome: trained },
    Scenario { name: "export", prepare: whole_run, job: export, again: None, outcome: exported },
    Scenario { name: "tokenization", prepare: text, job: tokenize, again: None, outcome: printed },
    Scenario { name: "cache of programs", prepare: text, job: compile, again: None, outcome: printed },
];

fn text(work: &Work, folder: &Path) -> Result<()> {
    work.text(folder)
}

fn train(work: &Work, folder: &Path) -> Job {
    work.remat(folder).words("train").words(crate::harness::work::SMALL).words(TRAIN)
}

fn resume(work: &Work, folder: &Path) -> Job {
    work.remat(folder).words("train --resume run")
}

/// One checkpoint: of a run, an older one is exported, with a note, if the last cannot be read.
fn export(work: &Work, folder: &Path) -> Job {
    work.remat(folder).words("export run/step-000004 --to exported")
}

fn tokenize(work: &Work, folder: &Path) -> Job {
    work.own(folder).words("tokenize text.txt tokens")
}

fn compile(work: &Work, folder: &Path) -> Job {
    work.own(folder).words("compile")
}

/// A run with a tokenizer, if there are tokenizers, so that an export has one to copy.
fn whole_run(work: &Work, folder: &Path) -> Result<()> {
    work.text(folder)?;
    let mut job = train(work, folder);
    if cfg!(feature = "tokenizers") {
        job = job.words("--tokenizer").with([crate::harness::formats::TOKENIZER]).words("--vocab 512");
    }
    succeeded(&job).map(drop)
}

/// A run of four steps that was stopped after two.
fn half_trained(work: &Work, folder: &Path) -> Result<()> {
    work.text(folder)?;
    succeeded(&train(work, folder))?;
    Ok(fs::remove_dir_all(folder.join("run/step-000004"))?)
}

fn succeeded(job: &Job) -> Result<Ended> {
    let ended = job.run()?;
    ensure!(ended.is_success(), "`{}` fails undisturbed: {:?} {}", job.shown(), ended.ending, ended.output);
    Ok(ended)
}

/// Weights, state of the optimizer, and losses.
fn trained(folder: &Path, _: &Ended) -> Result<Outcome> {
    let run = folder.join("run");
    let mut outcome = remains(folder)?;
    for name in ["model", "optimizer"] {
        let file = run.join(format!("step-000004/{name}.safetensors"));
        let bytes = fs::read(&file).with_context(|| format!("there is no {}", file.display()))?;
        outcome.insert(name.into(), format!("{:016x}", twox_hash::XxHash3_64::oneshot(&bytes)));
    }
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).context("there are no measurements")?;
    for line in metrics.lines() {
        let line: Value = serde_json::from_str(line).context("a line of measurements")?;
        outcome.insert(format!("loss of step {}", line["step"]), line["loss"].to_string());
    }
    Ok(outcome)
}

/// Every file of the exported folder.
fn exported(folder: &Path, _: &Ended) -> Result<Outcome> {
    let mut outcome = remains(folder)?;
    for entry in fs::read_dir(folder.join("exported")).context("nothing is exported")? {
        let entry = entry?;
        let hash = twox_hash::XxHash3_64::oneshot(&fs::read(entry.path())?);
        outcome.insert(entry.file_name().to_string_lossy().into_owned(), format!("{hash:016x}"));
    }
    Ok(outcome)
}

/// What a process of this program printed; XLA may print notes beside it.
fn printed(_: &Path, ended: &Ended) -> Result<Outcome> {
    let result = ended.output.lines().find(|line| line.starts_with("result ")).context("there is no result")?;
    Ok(Outcome::from([("the result".into(), result.into())]))
}

/// The unfinished files and folders that are left behind.
fn remains(folder: &Path) -> Result<Outcome> {
    let mut left = Outcome::new();
    for folder in [folder.to_path_buf(), folder.join("run")] {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".partial") || name.ends_with(".new") {
                // Its name has random letters.
                *left.entry("unfinished files left behind".into()).or_default() += "*";
            }
        }
    }
    Ok(left)
}

/// A scenario that has run undisturbed.
struct Prepared {
    scenario: &'static Scenario,
    folder: TempDir,
    calls: Vec<Call>,
    expected: Outcome,
}

impl Prepared {
    fn of(work: &Work, scenario: &'static Scenario) -> Result<Prepared> {
        let folder = TempDir::new()?;
        (scenario.prepare)(work, folder.path())?;
        let at = copied(folder.path())?;
        let job = (scenario.job)(work, at.path());
        let traced = trace::run(&job, at.path(), None)?;
        let Ended { ending, output } = &traced.ended;
        ensure!(traced.ended.is_success(), "`{}` fails undisturbed: {ending:?} {output}", job.shown());
        let expected = (scenario.outcome)(at.path(), &traced.ended)?;
        Ok(Prepared { scenario, folder, calls: traced.calls, expected })
    }

    /// What is wrong after a fault at a call.
    fn disturbed(&self, work: &Work, number: usize, fault: Fault) -> Result<Option<String>> {
        let at = copied(self.folder.path())?;
        let job = (self.scenario.job)(work, at.path());
        let traced = trace::run(&job, at.path(), Some((number, fault)))?;
        let ended = traced.ended;
        if fault == Fault::Kill {
            if let Some(next) = self.scenario.again {
                // Killed again, anywhere while it goes on.
                let anywhere = fastrand::Rng::with_seed(work.seed ^ number as u64).usize(..self.calls.len());
                trace::run(&next(work, at.path()), at.path(), Some((anywhere, fault)))?;
            }
            return Ok(self.gone_on(work, at.path(), fault).err().map(|error| format!("{error:#}")));
        }
        if let Some(broken) = ended.broken() {
            return Ok(Some(broken));
        }
        let whole = || self.compared(at.path(), &ended, fault);
        let held = match ended.is_success() {
            true => whole().context("it ended with success"),
            false if fault.is_to_be_invisible() => Err(anyhow::anyhow!("an error: {}", ended.last_line())),
            false => self.gone_on(work, at.path(), fault),
        };
        Ok(held.err().map(|error| format!("{error:#}")))
    }

    /// Goes on after a fault, as a user does.
    fn gone_on(&self, work: &Work, folder: &Path, fault: Fault) -> Result<()> {
        let mut said = String::new();
        for next in self.scenario.again.into_iter().chain([self.scenario.job]) {
            let ended = next(work, folder).run()?;
            if let Some(broken) = ended.broken() {
                bail!("the next command: {broken}");
            }
            if ended.is_success() {
                return self.compared(folder, &ended, fault).context("after the next command");
            }
            if ended.last_line().contains("is there already, and is not overwritten") {
                // The fault came when the folder had its name: then it has to be whole.
                return self.compared(folder, &ended, fault).context("what is there already");
            }
            said = ended.last_line().to_string();
        }
        bail!("the next command: {said}")
    }

    fn compared(&self, folder: &Path, ended: &Ended, fault: Fault) -> Result<()> {
        let outcome = (self.scenario.outcome)(folder, ended)?;
        for name in self.expected.keys().chain(outcome.keys()) {
            let [expected, is] = [&self.expected, &outcome].map(|of| of.get(name));
            let is_allowed = fault.prevents_removal() && name.starts_with("unfinished");
            let shown = |value: Option<&String>| value.map_or("missing", |value| value.trim_end()).to_string();
            ensure!(expected == is || is_allowed, "{name} is {} and not {}", shown(is), shown(expected));
        }
        Ok(())
    }
}

/// A copy of a folder, whose path has no links.
fn copied(folder: &Path) -> Result<TempDir> {
    let at = TempDir::new_in(std::env::temp_dir().canonicalize()?)?;
    copy(folder, at.path())?;
    Ok(at)
}

/// Disturbs every command at as many calls as there is time for, in a random order, and returns a row for each.
pub(crate) fn run(work: &Work, only: Option<&str>) -> Result<(Vec<Row>, Vec<Finding>)> {
    let asked_for = only.and_then(|only| only.split(':').next());
    let is_there = |scenario: &&Scenario| {
        (scenario.name != "cache of programs" || work.has_plugin())
            && asked_for.is_none_or(|name| scenario.name == name)
    };
    let mut all = Vec::new();
    for scenario in SCENARIOS.iter().filter(is_there) {
        all.push(Prepared::of(work, scenario)?);
    }
    let cases: Vec<(&Prepared, usize, Fault)> = all
        .iter()
        .flat_map(|of| of.calls.iter().enumerate().map(move |(number, call)| (of, number, call)))
        .flat_map(|(of, number, call)| {
            FAULTS.into_iter().filter(|fault| fault.may_meet(call)).map(move |fault| (of, number, fault))
        })
        .collect();
    let name =
        |&(of, number, fault): &(&Prepared, usize, Fault)| format!("{}:{number}:{}", of.scenario.name, fault.word());
    let results = work.each(cases, only, name, |&(of, number, fault)| {
        let problem = of.disturbed(work, number, fault).unwrap_or_else(|error| Some(format!("{error:#}")));
        problem.map(|problem| {
            let Call { kind, path, .. } = &of.calls[number];
            let what = format!("{}: {} at call {number} ({kind:?} of {})", of.scenario.name, fault.word(), named(path));
            Finding { what, problem }
        })
    });
    let row = |of: &Prepared| {
        let all = of.calls.iter().map(|call| FAULTS.iter().filter(|fault| fault.may_meet(call)).count()).sum();
        let of_it = results.of(|case| std::ptr::eq(case.0, of));
        Row {
            part: "faults at calls",
            what: of.scenario.name.into(),
            tried: of_it.tried,
            of: Some(all),
            held: of_it.held,
        }
    };
    let rows = all.iter().map(row).collect();
    Ok((rows, results.findings("sweep")))
}

/// The end of a path, without the folder that has another name each time.
fn named(path: &Path) -> String {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    names[names.len().saturating_sub(2)..].join("/")
}
