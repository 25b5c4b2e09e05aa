//! Hostile flags and variables: each flag of each command, and each variable of the environment, with values that nobody means.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::harness::process::{Ending, Job};
use crate::harness::report::{Finding, Row};
use crate::harness::work::{SMALL, Work, copy};

/// A command as it works, from which one flag at a time is given another value.
struct Base {
    /// The words that choose the command.
    command: &'static str,
    /// The rest of it: flags first.
    rest: &'static str,
}

/// All commands but `plugin install`, which downloads, and `bench`, which measures for minutes what it is asked to.
const BASES: [Base; 10] = [
    Base { command: "train", rest: "--steps 1 --eval-every 0 --sample 0 --save new" },
    Base { command: "generate", rest: "--length 5 run" },
    Base { command: "eval", rest: "--text text.txt run" },
    Base { command: "export", rest: "--to new run" },
    Base { command: "show", rest: "" },
    Base { command: "fit", rest: "--target tpu-v0" },
    Base { command: "plan", rest: "--effort quick graph.json" },
    Base { command: "launch", rest: "--nodes 1 -- true" },
    Base { command: "cache", rest: "show" },
    Base { command: "plugin", rest: "list" },
];

/// Numbers, of which large ones may ask for more work than there is time for.
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "7",
    "+3",
    "0x10",
    "1e3",
    "0.5",
    "-0.0",
    "1e-320",
    "1e308",
    "NaN",
    "inf",
    "-inf",
    "65537",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
];

const WORDS: [&str; 14] = [
    "",
    " ",
    "-",
    "--",
    "none",
    "true",
    "cpu:99999999999",
    "names(",
    "%s%n",
    "\u{1b}]0;x\u{7}",
    "\u{202e}日本\u{0301}",
    "a\nb",
    "1GiB",
    "99999999999999EiB",
];

/// Paths in the folder of a case: nothing there, folders, a loop of links, a file of bytes, a pipe that nobody writes to.
const PATHS: [&str; 8] = ["none/there", ".", "..", "run/step-000001", "text.txt/x", "loop", "binary", "pipe"];

/// A file without an end. It is not a value of a flag whose file is written, since a fault could replace it.
const ENDLESS: &str = "/dev/zero";

/// The time after which a command that was asked for too much is told to end.
const LONG: Duration = Duration::from_secs(15);

/// One flag or variable with a value.
struct Case {
    command: &'static str,
    rest: &'static str,
    what: What,
    value: OsString,
}

enum What {
    Flag(String),
    Variable(String),
}

/// The values of a flag.
fn values(is_read: bool) -> Vec<OsString> {
    let texts = NUMBERS.into_iter().chain(WORDS).chain(PATHS).chain(is_read.then_some(ENDLESS)).map(OsString::from);
    let long = ["9".repeat(400), "x".repeat(100_000), "(".repeat(100_000), "names(".repeat(20_000)].map(OsString::from);
    texts.chain(long).chain([OsString::from_vec(vec![b'a', 0xff, 0xc0])]).collect()
}

/// The flags in a help, by the lines that begin with them.
fn flags(help: &str) -> Vec<String> {
    let flag = |line: &str| {
        let line = line.trim_start();
        let from = if line.starts_with("--") { 0 } else { line.find(", --").filter(|&at| at == 2)? + 2 };
        let (name, value) = line[from..].split_once(' ')?;
        // Others are switches, and `--help`.
        value.trim_start().starts_with('<').then(|| name.to_string())
    };
    help.lines().filter_map(flag).collect()
}

/// The variables that remat reads, by their names in its code.
fn variables(work: &Work) -> Result<Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<String> =
        ["HOME", "XDG_CACHE_HOME", "TMPDIR", "COLUMNS", "NPROC", "NO_COLOR", "XLA_FLAGS"].map(str::to_string).into();
    for entry in fs::read_dir(crates)? {
        let entry = entry?;
        if entry.file_name() != env!("CARGO_PKG_NAME") {
            names(&entry.path().join("src"), &mut found)?;
        }
    }
    found.sort();
    found.dedup();
    // What the command tells a copy of itself is not for a user.
    found.retain(|name| name != "REMAT_AHEAD_JOB");
    ensure!(found.iter().any(|name| name == "REMAT_THREADS") && work.remat.exists(), "the variables are not found");
    Ok(found)
}

/// The names in quotes of the Rust files of a folder that begin as the variables do.
fn names(folder: &Path, found: &mut Vec<String>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            names(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let quoted = text.split("\"REMAT_").skip(1).filter_map(|rest| rest.split_once('"'));
            let names =
                quoted.map(|(name, _)| name).filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            found.extend(names.map(|name| format!("REMAT_{name}")));
        }
    }
    Ok(())
}

impl Case {
    /// The command with the value, in a folder.
    fn job(&self, work: &Work, folder: &Path) -> Job {
        let job = work.remat(folder).words(self.command);
        let small = if self.command == "train" { SMALL } else { "" };
        let words: Vec<&str> = small.split_whitespace().chain(self.rest.split_whitespace()).collect();
        match &self.what {
            What::Variable(name) => job.with(words).variable(name, &self.value),
            What::Flag(flag) => {
                let mut kept = Vec::new();
                let mut rest = words.iter();
                while let Some(word) = rest.next() {
                    if word == flag {
                        rest.next();
                    } else {
                        kept.push(*word);
                    }
                }
                // Before the rest, since `launch` takes all that follows as its command.
                let mut given = OsString::from(format!("{flag}="));
                given.push(&self.value);
                job.with([given]).with(kept)
            }
        }
    }

    /// Its name on the command line of the harness.
    fn name(&self) -> String {
        let (What::Flag(of) | What::Variable(of)) = &self.what;
        let value: String = self.value.to_string_lossy().chars().take(40).flat_map(char::escape_default).collect();
        format!("{} {of}={value} ({})", self.command, self.value.len())
    }

    /// Whether the value may ask for more than there is time for: a large number, a cluster whose other nodes never come, or a pipe that
    /// nobody writes to.
    fn may_take_long(&self) -> bool {
        let is_large =
            self.value.to_str().and_then(|value| value.parse::<f64>().ok()).is_some_and(|value| value > 1000.0);
        let waits = matches!(&self.what, What::Variable(name) if name.contains("NODE") || name.contains("COORDINATOR"));
        is_large || waits || self.value == "pipe"
    }

    /// What is wrong with what came of it.
    fn tried(&self, work: &Work, prepared: &Path) -> Result<Option<Finding>> {
        let outer = TempDir::new()?;
        // The parent of the folder is a value too.
        let folder = outer.path().join("a/b");
        fs::create_dir_all(&folder)?;
        copy(prepared, &folder)?;
        std::os::unix::fs::symlink("loop", folder.join("loop"))?;
        mkfifo(&folder.join("pipe"), Mode::S_IRWXU)?;
        let mut job = self.job(work, &folder);
        if self.may_take_long() {
            job = job.within(LONG);
        }
        let ended = job.run()?;
        let is_working = ended.ending == Ending::Told && self.may_take_long();
        let problem = ended.broken().filter(|_| !is_working);
        Ok(problem.map(|problem| Finding { what: job.shown(), problem }))
    }
}

/// Tries as many values of flags and variables as there is time for, in a random order.
pub(crate) fn run(work: &Work, only: Option<&str>) -> Result<(Vec<Row>, Vec<Finding>)> {
    let prepared = TempDir::new()?;
    work.text(prepared.path())?;
    fs::write(prepared.path().join("binary"), (0..5000u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>())?;
    fs::write(prepared.path().join("graph.json"), r#"{"n": 2, "cost": [1, 2], "mem": [3, 4], "edges": [[0, 1]]}"#)?;
    let train = work.remat(prepared.path()).words("train").words(SMALL);
    let ended = train.words("--steps 1 --eval-every 0 --sample 0 --save run").run()?;
    ensure!(ended.is_success(), "a training run fails undisturbed: {}", ended.output);
    let mut cases = Vec::new();
    for &Base { command, rest } in &BASES {
        let help = work.remat(prepared.path()).words(command).words("--help").run()?;
        for flag in flags(&help.output) {
            let is_read = !matches!(flag.as_str(), "--save" | "--to" | "--json" | "--html");
            let values = values(is_read).into_iter();
            cases.extend(values.map(|value| Case { command, rest, what: What::Flag(flag.clone()), value }));
        }
    }
    for name in variables(work)? {
        for &Base { command, rest } in [&BASES[0], &BASES[4]] {
            let values = values(true).into_iter();
            cases.extend(values.map(|value| Case { command, rest, what: What::Variable(name.clone()), value }));
        }
    }
    let of = |is_flag: bool| cases.iter().filter(|case| matches!(case.what, What::Flag(_)) == is_flag).count();
    let all = [of(true), of(false)];
    let results = work.each(cases, only, Case::name, |case| {
        case.tried(work, prepared.path())
            .unwrap_or_else(|error| Some(Finding { what: case.name(), problem: format!("{error:#}") }))
    });
    let row = |what: &str, is_flag: bool, all: usize| {
        let count = results.of(|case| matches!(case.what, What::Flag(_)) == is_flag);
        Row { part: "hostile values", what: what.into(), tried: count.tried, of: Some(all), held: count.held }
    };
    let rows = vec![row("flags", true, all[0]), row("variables of the environment", false, all[1])];
    Ok((rows, results.findings("flags")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_help() {
        let help = "Options:\n      --config <FILE>   A file, --like <THIS>\n      --passes  Print\n  -n, --nodes <NODES>  Processes\n\
                    \x20     --target <TARGETS>\n          Chips\n  -h, --help  Print help\n";
        assert_eq!(flags(help), ["--config", "--nodes", "--target"]);
    }
}
