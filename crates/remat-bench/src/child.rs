//! Runs each measurement in its own process, so that none leaves memory or warm caches to the next.

use std::io::Write;

use anyhow::{Context, Result};
use remat_command::{child, progress};

use crate::case::{Case, Record};

/// The hidden command that measures one case.
pub(crate) const COMMAND: &str = "one";

/// Measures all cases one after the other, and calls `done` with each result at once. Shows a progress bar if the standard error is a
/// terminal.
///
/// # Errors
/// The first error of a case or of `done`. Earlier measurements were passed to `done`.
pub(crate) fn measure_all(cases: &[Case], mut done: impl FnMut(&Record) -> Result<()>) -> Result<Vec<Record>> {
    let bar = progress::bar(cases.len());
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

/// Measures a case in its own process.
fn measure(case: &Case) -> Result<Record> {
    child::ask(&[COMMAND], case, &[("REMAT_THREADS", case.threads.to_string())])
}

/// Measures the case of this text, for the process that started this one.
///
/// # Errors
/// If the text is not a case, or the case cannot be measured.
pub(crate) fn run(case: &str, out: &mut impl Write) -> Result<()> {
    child::answer(case, out, Case::measure)
}
