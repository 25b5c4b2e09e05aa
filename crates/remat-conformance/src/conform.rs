//! Running one program on every engine.

use std::any::Any;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use remat::Error;
use remat::ir::{Array, Device, Executable, Jaxpr, Reference};
use remat_alloc::{Event, Recording};

use crate::closeness::{Closeness, Scale, difference, is_identical};
use crate::memory::account;
use crate::{Engine, engines};

/// How many failures of one property are printed.
const PRINTED: usize = 30;

/// Compares a device with the evaluator: results that are close, or the same error. Gives the results, if there are any.
fn agree(
    expected: &Result<Vec<Array>, Error>,
    got: Result<Vec<Array>, Error>,
    closeness: Closeness,
    scale: Scale,
) -> Result<Option<Vec<Array>>, String> {
    let (got, expected) = match (got, expected) {
        (Ok(got), Ok(expected)) => (got, expected),
        (Err(got), Err(expected)) if got.kind() == expected.kind() && got.message() == expected.message() => {
            return Ok(None);
        }
        (Err(got), Err(expected)) => return Err(format!("the error is\n{got}\nand not\n{expected}")),
        (Err(got), Ok(_)) => return Err(format!("it fails: {got}")),
        (Ok(_), Err(expected)) => return Err(format!("it does not fail: {expected}")),
    };
    if got.len() != expected.len() {
        return Err(format!("{} results and not {}", got.len(), expected.len()));
    }
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        if let Some(difference) = difference(got, expected, closeness, scale) {
            return Err(format!("result {i}: {difference}"));
        }
    }
    Ok(Some(got))
}

/// Runs a program on every engine.
pub(crate) fn conform(jaxpr: &Jaxpr, args: &[Array], closeness: Closeness) -> Result<(), String> {
    let jaxpr = Arc::new(jaxpr.clone());
    let expected = Reference.compile(&jaxpr).and_then(|e| e.run(args.to_vec()));
    for engine in engines() {
        let Engine { devices, is_exact } = engine;
        conform_on(devices, *is_exact, &jaxpr, args, &expected, closeness)
            .map_err(|e| format!("{}: {e}\n{jaxpr}", devices[0].name()))?;
    }
    Ok(())
}

fn conform_on(
    devices: &[Arc<dyn Device>],
    is_exact: bool,
    jaxpr: &Arc<Jaxpr>,
    args: &[Array],
    expected: &Result<Vec<Array>, Error>,
    closeness: Closeness,
) -> Result<(), String> {
    let executable = match devices[0].compile(jaxpr) {
        Ok(executable) => executable,
        Err(error) => return agree(expected, Err(error), closeness, Scale::of(jaxpr, args)).map(|_| ()),
    };
    let before: Vec<Array> = args.iter().map(copy).collect();
    let (got, events) = run(&*executable, args.to_vec(), is_exact);
    if !is_identical(args, &before) {
        return Err("an argument that somebody else holds was overwritten".to_string());
    }
    let Some(got) = agree(expected, got, closeness, Scale::of(jaxpr, args))? else { return Ok(()) };
    if is_exact {
        let kept = account(&events, executable.memory(), args, &got, None)?;
        let (again, events) = run(&*executable, args.to_vec(), true);
        let again = again.map_err(|e| e.to_string())?;
        account(&events, executable.memory(), args, &again, Some(kept))?;
    }
    // The copies are nobody else's, and may be overwritten.
    let given_up = run(&*executable, before, false).0.map_err(|e| e.to_string())?;
    if !is_identical(&given_up, &got) {
        return Err("the results are others where arguments may be overwritten".to_string());
    }
    for (i, device) in devices.iter().enumerate().skip(1) {
        let executable = device.compile(jaxpr).map_err(|e| e.to_string())?;
        let (other, events) = run(&*executable, args.to_vec(), is_exact);
        let other = other.map_err(|e| e.to_string())?;
        if is_exact {
            account(&events, executable.memory(), args, &other, None)?;
        }
        if !is_identical(&other, &got) {
            return Err(format!("the results are others on {} threads", i + 1));
        }
    }
    Ok(())
}

/// Runs a program; `is_recorded` says whether the blocks that it asks for are wanted.
fn run(executable: &dyn Executable, args: Vec<Array>, is_recorded: bool) -> (Result<Vec<Array>, Error>, Vec<Event>) {
    if is_recorded { Recording::record(|| executable.run(args)) } else { (executable.run(args), Vec::new()) }
}

/// An array that shares nothing.
fn copy(x: &Array) -> Array {
    Array::new(x.aval().clone(), x.data().clone()).expect("the elements are those of an array")
}

/// The message of a panic.
fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}

/// Collects the failures of many cases, panics included.
#[derive(Default)]
pub(crate) struct Failures {
    cases: usize,
    failures: usize,
    report: String,
}

impl Failures {
    /// Runs one case.
    pub(crate) fn case(&mut self, name: impl FnOnce() -> String, case: impl FnOnce() -> Result<(), String>) {
        self.cases += 1;
        let outcome = catch_unwind(AssertUnwindSafe(case));
        let Err(message) = outcome.unwrap_or_else(|panic| Err(format!("panics: {}", text(&*panic)))) else { return };
        self.failures += 1;
        if self.failures <= PRINTED {
            let _ = writeln!(self.report, "{}: {message}\n", name());
        }
    }

    /// Fails if one case did, or there was none.
    pub(crate) fn finish(self) {
        assert!(self.cases > 0, "there is no case");
        println!("{} cases", self.cases);
        assert!(self.failures == 0, "{} of {} cases fail:\n{}", self.failures, self.cases, self.report);
    }
}
