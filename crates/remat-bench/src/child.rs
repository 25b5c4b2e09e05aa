//! Each measurement in a process of its own, so that none leaves memory or warm caches to the next.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::case::{Case, Record};
use crate::options::json;

/// The hidden command that measures one case.
pub(crate) const COMMAND: &str = "one";

/// The measurements of all cases, one after the other; `done` gets each as soon as it is made. A bar shows the progress
/// where errors go to a terminal.
///
/// # Errors
/// The first error of a case or of `done`. Measurements before it were given to `done`.
pub(crate) fn measure_all(cases: &[Case], mut done: impl FnMut(&Record) -> Result<()>) -> Result<Vec<Record>> {
    let bar = ProgressBar::with_draw_target(Some(cases.len() as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(250));
    let mut records = Vec::new();
    for case in cases {
        bar.set_message(name(case));
        let record = measure(case).with_context(|| name(case)).inspect_err(|_| bar.finish_and_clear())?;
        bar.suspend(|| done(&record))?;
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
    let mut command = Command::new(std::env::current_exe()?);
    command.args([COMMAND, &serde_json::to_string(case)?]).env("REMAT_THREADS", case.threads.to_string());
    // The child ends when this pipe does, and so with this process, however that ends.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    let output = child.wait_with_output()?;
    drop(pipe);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        match said.trim().strip_prefix("error: ") {
            Some(message) => bail!("{message}"),
            None => bail!("ended with {}\n{}", output.status, said.trim()),
        }
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Measures the case of this text, for the process that started this one.
///
/// # Errors
/// If the text is not a case, or the case cannot be measured.
pub(crate) fn run(case: &str, out: &mut impl Write) -> Result<()> {
    let (started, wait) = mpsc::channel();
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let _ = started.send(());
        // Nothing is written there: the end comes with the end of the process that holds the other side.
        let _ = stdin.read(&mut [0]);
        std::process::exit(1);
    });
    // What the thread allocates when it starts must not count as the step's.
    wait.recv()?;
    let case: Case = serde_json::from_str(case)?;
    Ok(writeln!(out, "{}", json(&case.measure()?)?)?)
}
