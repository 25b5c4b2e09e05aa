//! What a run leaves beside its checkpoints: its measurements as lines of JSON and as event files of TensorBoard, and a page with charts.

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

/// The file of measurements, by which the folder of a run is known.
pub(crate) const METRICS: &str = "metrics.jsonl";

/// The measurements of a run, as they are made.
pub(crate) struct Measurements {
    path: PathBuf,
    lines: BufWriter<File>,
    events: Events,
}

impl Measurements {
    /// Those of a run in this folder that goes on after a number of steps: what was measured of later ones is dropped.
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

    /// Gives what was written to the system.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.lines.flush().with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.events.flush()
    }
}

/// Writes a file in place of the one that may be there, which a kill or a full disk leaves as it was.
///
/// # Errors
/// That of the system.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// The lines of measurements up to a step: those after it are measured again.
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
                // A run that was killed may leave a part of a line.
                if serde_json::from_str::<Line>(&line).is_ok_and(|line| line.step <= step) {
                    kept.push_str(&line);
                    kept.push('\n');
                }
            }
        }
    }
    Ok(kept)
}
