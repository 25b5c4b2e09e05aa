//! The records of a run besides its checkpoints: measurements as lines of JSON and as TensorBoard event files, and a page with charts.

mod report;
mod series;
mod tensorboard;

use std::fs::File;
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
        let file = replace(&path, &kept).with_context(|| format!("cannot write `{}`", path.display()))?;
        let lines = BufWriter::new(file);
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
        self.line(step, numbers.iter().map(|&(name, number)| (name.to_string(), value(number))))?;
        self.events.scalars(step.into(), numbers.iter().copied())
    }

    /// Writes what happened at a step, in words.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn note(&mut self, step: u32, note: &str) -> Result<()> {
        self.line(step, [("note".to_string(), Value::from(note))])
    }

    fn line(&mut self, step: u32, fields: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let mut line = Map::from_iter([("step".to_string(), Value::from(step))]);
        line.extend(fields);
        writeln!(self.lines, "{}", Value::Object(line))
            .with_context(|| format!("cannot write `{}`", self.path.display()))
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

/// Replaces a file atomically: a kill or a full disk leaves the old one as it was. A link of this name is replaced, not followed, and nobody
/// can foresee the name of the file that is written first. Returns the new file, open behind its text.
///
/// # Errors
/// The error of the system.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As other new files, less the umask of the process; a temporary file is its owner's alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut new = builder.prefix(".").suffix(".partial").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    Ok(new.persist(path)?)
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
            for line in BufReader::new(file).split(b'\n') {
                // A killed run may leave a partial line, and a disk one that is damaged.
                let line = line?;
                let Ok(line) = std::str::from_utf8(&line).map(str::trim_end) else { continue };
                if serde_json::from_str::<Line>(line).is_ok_and(|line| line.step <= step) {
                    kept.push_str(line);
                    kept.push('\n');
                }
            }
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_that_are_cut_off_or_damaged_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        assert_eq!(kept_lines(&path, 9).unwrap(), "");
        let lines = b"{\"step\":1,\"loss\":2.5}\r\n{\"step\":2,\"lo\xffs\":2.5}\n\xff\n\n{\"step\":3}\n{\"step\":10}\n{\"step\":4";
        fs::write(&path, lines).unwrap();
        assert_eq!(kept_lines(&path, 9).unwrap(), "{\"step\":1,\"loss\":2.5}\n{\"step\":3}\n");
    }
}
