//! What is measured at the steps of a training run: as lines of JSON, and as event files that TensorBoard reads.

mod events;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use remat::files::{cannot, write_bytes};
use remat::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::open::open;
use events::Events;

/// The operation that errors name.
const METRICS: &str = "metrics";

/// The name of the step in its line.
const STEP: &str = "step";

/// Writes what is measured at the steps of a training run: loss, learning rate, norm of the gradient, tokens per second, whatever there is.
///
/// A folder gets `metrics.jsonl`, with an object for each step (`{"step":1,"loss":2.5}`; a number that is not finite is `null`), and a file of
/// events for TensorBoard (`tensorboard --logdir FOLDER`), with the same numbers as f32.
///
/// ```
/// use remat::optim::{self, AdamW, Optimizer, Schedule};
/// use remat::{DType, Tensor, value_and_grad};
/// use remat_io::Metrics;
///
/// let folder = tempfile::tempdir()?;
/// let schedule = Schedule::Linear { start: 0.1, end: 0.0, steps: 3 };
/// let optimizer = AdamW { learning_rate: schedule.clone(), ..AdamW::default() };
/// let mut w = Tensor::ones([4], DType::F32);
/// let mut state = optimizer.init(&w);
/// let mut metrics = Metrics::open(folder.path(), 0)?;
/// for step in 1..=3 {
///     let rate = schedule.at(&Tensor::from(step - 1), DType::F32).item::<f32>()?;
///     let (loss, gradient) = value_and_grad(|w: &Tensor| w.square().sum(..))(&w)?;
///     let norm = optim::global_norm(&gradient).item::<f32>()?;
///     (w, state) = optimizer.update(&w, &gradient, &state)?;
///     let numbers = [("loss", loss.item::<f32>()?), ("learning_rate", rate), ("gradient_norm", norm)];
///     metrics.write(step as u64, &numbers.map(|(name, number)| (name, f64::from(number))))?;
/// }
/// metrics.flush()?;
/// let lines = std::fs::read_to_string(folder.path().join("metrics.jsonl"))?;
/// assert!(lines.lines().count() == 3 && lines.contains("\"loss\":4.0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Metrics {
    path: PathBuf,
    lines: BufWriter<File>,
    events: Events,
}

impl Metrics {
    /// The name of the file with lines of JSON.
    pub const FILE: &str = "metrics.jsonl";

    /// The metrics of a run in this folder, which is made if it is missing. `step` is the number of steps that were done before: 0 for a new run.
    /// Lines of later steps are dropped, since a resumed run does these again; so are lines that a kill cut off.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Io`](remat::ErrorKind::Io) if the files cannot be read or written.
    pub fn open(folder: impl AsRef<Path>, step: u64) -> Result<Metrics> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let path = folder.join(Metrics::FILE);
        let kept = kept_lines(&path, step).map_err(|error| cannot(METRICS, "read", &path, &error))?;
        write_bytes(METRICS, &path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| cannot_write(&path, &error))?;
        let events = Events::create(folder, step.saturating_add(1))?;
        Ok(Metrics { path, lines: BufWriter::new(file), events })
    }

    /// Writes the numbers of a step, each under its name.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Argument`](remat::ErrorKind::Argument) if a number has the name `step`, and of kind
    /// [`ErrorKind::Io`](remat::ErrorKind::Io) if a file cannot be written.
    pub fn write(&mut self, step: u64, numbers: &[(&str, f64)]) -> Result<()> {
        if numbers.iter().any(|(name, _)| *name == STEP) {
            let message = format!("a number must not have the name `{STEP}`, which is that of the step itself");
            return Err(Error::new(remat::ErrorKind::Argument, METRICS, message));
        }
        // JSON has no NaN.
        let value = |number: f64| if number.is_finite() { Value::from(number) } else { Value::Null };
        self.line(step, numbers.iter().map(|&(name, number)| (name.to_string(), value(number))))?;
        self.events.scalars(step, numbers.iter().copied())
    }

    /// Writes what happened at a step, in words, as the `note` of a line.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Io`](remat::ErrorKind::Io) if the file cannot be written.
    pub fn note(&mut self, step: u64, note: &str) -> Result<()> {
        self.line(step, [("note".to_string(), Value::from(note))])
    }

    /// Gives the written data to the system. What is not flushed is lost when the process is killed; dropping flushes, and ignores errors.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Io`](remat::ErrorKind::Io) if a file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.lines.flush().map_err(|error| cannot_write(&self.path, &error))?;
        self.events.flush()
    }

    fn line(&mut self, step: u64, fields: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let mut line = Map::from_iter([(STEP.to_string(), Value::from(step))]);
        line.extend(fields);
        writeln!(self.lines, "{}", Value::Object(line)).map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    cannot(METRICS, "write", path, error)
}

/// The lines of a file up to a step; later steps are measured again.
fn kept_lines(path: &Path, step: u64) -> io::Result<String> {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
    }
    let mut kept = String::new();
    match open(path) {
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
        let path = folder.path().join(Metrics::FILE);
        assert_eq!(kept_lines(&path, 9).unwrap(), "");
        let lines = b"{\"step\":1,\"loss\":2.5}\r\n{\"step\":2,\"lo\xffs\":2.5}\n\xff\n\n{\"step\":3}\n{\"step\":10}\n{\"step\":4";
        fs::write(&path, lines).unwrap();
        assert_eq!(kept_lines(&path, 9).unwrap(), "{\"step\":1,\"loss\":2.5}\n{\"step\":3}\n");
    }

    #[test]
    fn a_resumed_run_goes_on_behind_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("runs/1");
        let write = |done: u64, steps: std::ops::RangeInclusive<u64>, loss: f64| {
            let mut metrics = Metrics::open(&at, done).unwrap();
            steps.for_each(|step| metrics.write(step, &[("loss", loss)]).unwrap());
            metrics.note(done + 1, "so it \"is\"\n").unwrap();
        };
        write(0, 1..=3, f64::NAN);
        write(2, 3..=4, 0.5);
        let lines = fs::read_to_string(at.join(Metrics::FILE)).unwrap();
        let expected = [
            r#"{"loss":null,"step":1}"#,
            r#"{"loss":null,"step":2}"#,
            r#"{"note":"so it \"is\"\n","step":1}"#,
            r#"{"loss":0.5,"step":3}"#,
            r#"{"loss":0.5,"step":4}"#,
            r#"{"note":"so it \"is\"\n","step":3}"#,
        ];
        let sorted = |line: &str| serde_json::from_str::<Value>(line).unwrap().to_string();
        assert_eq!(lines.lines().map(sorted).collect::<Vec<_>>(), expected.map(sorted));
        let events = fs::read_dir(&at)
            .unwrap()
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("events.out.tfevents."));
        assert_eq!(events.count(), 2);
    }

    #[test]
    fn no_number_takes_the_name_of_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let mut metrics = Metrics::open(folder.path(), 0).unwrap();
        let error = metrics.write(1, &[("loss", 0.5), ("step", 7.0)]).unwrap_err();
        assert_eq!(error.kind(), remat::ErrorKind::Argument);
        assert_eq!(error.message(), "a number must not have the name `step`, which is that of the step itself");
        metrics.write(1, &[("loss", 0.5)]).unwrap();
        metrics.flush().unwrap();
        let lines = fs::read_to_string(folder.path().join(Metrics::FILE)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&lines).unwrap(), serde_json::json!({"step": 1, "loss": 0.5}));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(Metrics::FILE)).unwrap();
        let error = Metrics::open(folder.path(), 0).err().unwrap();
        assert_eq!(error.kind(), remat::ErrorKind::Io);
        assert!(error.to_string().starts_with("metrics: ") && error.to_string().contains("metrics.jsonl`"), "{error}");
        #[cfg(unix)]
        {
            // A pipe that nobody writes would be waited for.
            let folder = tempfile::tempdir().unwrap();
            let pipe = folder.path().join(Metrics::FILE);
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let error = Metrics::open(folder.path(), 0).err().unwrap().to_string();
            assert!(error.starts_with("metrics: cannot read") && error.ends_with("it is not a file"), "{error}");
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Metrics::open(&file, 0).err().unwrap().to_string();
        assert!(error.contains("cannot write") && error.contains("file`"), "{error}");
    }
}
