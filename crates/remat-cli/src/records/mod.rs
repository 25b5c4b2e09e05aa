//! The records of a run besides its checkpoints: measurements as lines of JSON and as TensorBoard event files, and a page with charts.

mod report;
mod series;
mod tensorboard;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use report::Report;

use tensorboard::Events;

/// The file of measurements, which identifies the folder of a run.
pub(crate) const METRICS: &str = "metrics.jsonl";

/// Records the measurements of a run.
pub(crate) struct Measurements {
    path: PathBuf,
    lines: BufWriter<File>,
    events: Events,
}

impl Measurements {
    /// The measurements of a run in this folder that is resumed after a number of steps; those of later steps are dropped.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub(crate) fn open(folder: &Path, step: u32) -> Result<Measurements> {
        let path = folder.join(METRICS);
        let kept = kept_lines(&path, step).with_context(|| format!("cannot read `{}`", path.display()))?;
        let open = || -> std::io::Result<File> {
            replace(&path, &kept)?;
            OpenOptions::new().append(true).open(&path)
        };
        let lines = BufWriter::new(open().with_context(|| format!("cannot write `{}`", path.display()))?);
        let events = Events::create(folder, u64::from(step) + 1)?;
        Ok(Measurements { path, lines, events })
    }

    /// Writes the numbers of a step, each under its name.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn write(&mut self, step: u32, numbers: &[(&str, f64)]) -> Result<()> {
        // JSON has no NaN.
        let value = |number: f64| if number.is_finite() { Value::from(number) } else { Value::Null };
        let mut line = Map::from_iter([("step".to_string(), Value::from(step))]);
        line.extend(numbers.iter().map(|&(name, number)| (name.to_string(), value(number))));
        writeln!(self.lines, "{}", Value::Object(line))
            .with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.events.scalars(step.into(), numbers.iter().copied())
    }

    /// Flushes the written data to the system.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.lines.flush().with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.events.flush()
    }
}

/// Replaces a file atomically: a kill or a full disk leaves the old one as it was.
///
/// # Errors
/// The error of the system.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// The lines of measurements up to a step; later steps are measured again.
fn kept_lines(path: &Path, step: u32) -> std::io::Result<String> {
    #[derive(Deserialize)]
    struct Line {
        step: u32,
    }
    let mut kept = String::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) => {
            for line in BufReader::new(file).lines() {
                let line = line?;
                // A killed run may leave a partial line.
                if serde_json::from_str::<Line>(&line).is_ok_and(|line| line.step <= step) {
                    kept.push_str(&line);
                    kept.push('\n');
                }
            }
        }
    }
    Ok(kept)
}
