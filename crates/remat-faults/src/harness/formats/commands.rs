//! What only the `remat` command reads: configurations, folders of runs, and models as it is given them.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{Format, Place, Read, Rule, hash};
use crate::harness::process::{Ended, Job};
use crate::harness::work::{SMALL, Work};

/// The most characters that a command prints about a file, whatever names are in it: about a page of a terminal.
const LONGEST: usize = 4000;

pub(super) fn formats() -> Vec<Format> {
    let rule = Rule::Formed;
    vec![
        Format {
            name: "config.toml",
            rule,
            place: Place::Name("config.toml"),
            writes: false,
            make: make_config,
            read: read_config,
        },
        Format {
            name: "folder of a run",
            rule: Rule::Noticed,
            place: Place::Name("run"),
            writes: true,
            make: make_run,
            read: resume_run,
        },
        Format {
            name: "model, by the command",
            rule,
            place: Place::Name("model"),
            writes: false,
            make: make_model,
            read: eval_model,
        },
    ]
}

fn succeeded(job: &Job) -> Result<Ended> {
    let ended = job.run()?;
    ensure!(ended.is_success(), "`{}` fails undisturbed: {}", job.shown(), ended.output);
    Ok(ended)
}

/// What came of a command, with a value of its own where it succeeded.
fn read(job: &Job, value: impl Fn(&Ended) -> Result<String>) -> Read {
    let ended = match job.run() {
        Ok(ended) => ended,
        Err(error) => return Read::Broken(format!("{error:#}")),
    };
    match ended.broken() {
        Some(broken) => Read::Broken(broken),
        None if ended.is_success() => match value(&ended) {
            Ok(value) => Read::Value(value),
            Err(error) => Read::Broken(format!("success, and {error:#}")),
        },
        None if ended.output.chars().count() > LONGEST => {
            Read::Broken(format!("an error of {} characters", ended.output.chars().count()))
        }
        None => Read::Error(ended.output.split_once("error: ").map_or_else(String::new, |(_, error)| error.into())),
    }
}

fn make_config(work: &Work, folder: &Path) -> Result<()> {
    let printed = succeeded(&work.remat(folder).words("train").words(SMALL).words("--steps 1 --print-config"))?;
    Ok(fs::write(folder.join("config.toml"), printed.output)?)
}

fn read_config(work: &Work, folder: &Path) -> Read {
    read(&work.remat(folder).words("train --config config.toml --print-config"), |ended| Ok(ended.output.clone()))
}

/// A run of three steps that was stopped after two; its text is beside it, and is not damaged.
fn make_run(work: &Work, folder: &Path) -> Result<()> {
    let beside = folder.join("..");
    work.text(&beside)?;
    let flags = "--steps 3 --save-every 1 --eval-every 0 --sample 0 --save files/run";
    succeeded(&work.remat(&beside.canonicalize()?).words("train").words(SMALL).words(flags))?;
    Ok(fs::remove_dir_all(folder.join("run/step-000003"))?)
}

/// A run whose last checkpoint is damaged goes on from the one before, and ends with the same weights.
fn resume_run(work: &Work, folder: &Path) -> Read {
    let weights = folder.join("run/step-000003/model.safetensors");
    let text = folder.join("../text.txt");
    let job = work.remat(folder).words("train --resume run --text").with([text]);
    read(&job, |_| Ok(hash(&fs::read(&weights)?)))
}

fn make_model(work: &Work, folder: &Path) -> Result<()> {
    work.text(folder)?;
    let flags = "--steps 1 --eval-every 0 --sample 0 --save run";
    succeeded(&work.remat(folder).words("train").words(SMALL).words(flags))?;
    succeeded(&work.remat(folder).words("export run --to model"))?;
    fs::rename(folder.join("text.txt"), folder.join("../text.txt"))?;
    Ok(fs::remove_dir_all(folder.join("run"))?)
}

fn eval_model(work: &Work, folder: &Path) -> Read {
    let job = work.remat(folder).words("eval model --text ../text.txt");
    read(&job, |ended| Ok(ended.output.clone()))
}
