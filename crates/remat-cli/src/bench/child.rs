//! Each measurement in a process of its own, so that none leaves memory or warm caches to the next.

use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::case::{Case, Record};
use crate::Result;

/// The hidden command that measures one case.
pub(crate) const COMMAND: &str = "one";

/// The measurements of all cases, one after the other, each given to `done` when it is there. A bar shows how far they are
/// where errors go to a terminal.
///
/// # Errors
/// The first error of a case. What was done before it was given to `done`.
pub(crate) fn measure_all(cases: &[Case], mut done: impl FnMut(&Record)) -> Result<Vec<Record>> {
    let bar = ProgressBar::with_draw_target(Some(cases.len() as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(250));
    let mut records = Vec::new();
    for case in cases {
        bar.set_message(name(case));
        let record = measure(case).inspect_err(|_| bar.finish_and_clear())?;
        bar.suspend(|| done(&record));
        bar.inc(1);
        records.push(record);
    }
    bar.finish_and_clear();
    Ok(records)
}

/// A case in one line.
fn name(case: &Case) -> String {
    case.labels().into_iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Measures a case in a process of its own.
fn measure(case: &Case) -> Result<Record> {
    let failed = |why: String| format!("{}: {why}", name(case));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let asked = serde_json::to_string(case).map_err(|error| failed(error.to_string()))?;
    let threads = case.threads.to_string();
    let output = Command::new(program)
        .args(["bench", COMMAND, &asked])
        .env("REMAT_THREADS", &threads)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        return Err(failed(match said.strip_prefix("error: ") {
            Some(message) => message.to_string(),
            None => format!("ended with {}\n{said}", output.status),
        }));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}
