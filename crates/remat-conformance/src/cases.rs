//! The cases of a property, and those that fail.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_alloc::Recording;

use crate::engine::{Engine, Exclusion};

/// How many failures of one property are printed.
const PRINTED: usize = 30;

/// The failures of one property; it prints the first 30 in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failures {
    /// The property.
    pub property: &'static str,
    /// How many cases there were.
    pub cases: usize,
    /// What fails: cases, then exclusions that do not hold.
    pub failures: Vec<Failure>,
}

/// A case that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its name, which [`Engine::excluding`] takes.
    pub case: String,
    /// Why, mostly with the program.
    pub message: String,
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failures { property, cases, failures } = self;
        writeln!(f, "{property}: {} failures in {cases} cases:", failures.len())?;
        for Failure { case, message } in failures.iter().take(PRINTED) {
            writeln!(f, "{case}: {message}\n")?;
        }
        match failures.len().checked_sub(PRINTED) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(f, "and {more} more"),
        }
    }
}

impl std::error::Error for Failures {}

/// Runs the cases of a property on an engine.
pub(crate) struct Cases<'a> {
    pub(crate) engine: &'a Engine,
    count: usize,
    failures: Vec<Failure>,
    excluded: Vec<Excluded<'a>>,
}

/// An exclusion of the property that runs.
struct Excluded<'a> {
    exclusion: &'a Exclusion,
    count: usize,
    passing: Vec<String>,
}

impl Cases<'_> {
    /// Runs a property of this name. Gives the number of its cases, of which there is at least one.
    pub(crate) fn run(
        engine: &Engine,
        property: &'static str,
        check: impl FnOnce(&mut Cases<'_>),
        is_property: impl Fn(&str) -> bool,
    ) -> Result<usize, Failures> {
        let excluded = engine.exclusions.iter().filter(|exclusion| exclusion.property == property);
        let excluded = excluded.map(|exclusion| Excluded { exclusion, count: 0, passing: Vec::new() }).collect();
        let mut cases = Cases { engine, count: 0, failures: Vec::new(), excluded };
        if engine.is_exact && !records() {
            cases.fail("memory", "the test program's global allocator is not `Recording`");
        } else {
            check(&mut cases);
        }
        let Cases { count, mut failures, excluded, .. } = cases;
        if count == 0 && failures.is_empty() {
            failures.push(Failure { case: property.to_string(), message: "there is no case".to_string() });
        }
        for Excluded { exclusion: Exclusion { cases, reason, .. }, count, passing } in excluded {
            if count == 0 {
                let message = format!("is excluded ({reason}), and there is no such case");
                failures.push(Failure { case: cases.clone(), message });
            }
            let message = format!("passes, and is excluded by {cases:?} ({reason})");
            failures.extend(passing.into_iter().map(|case| Failure { case, message: message.clone() }));
        }
        for Exclusion { property, cases, .. } in engine.exclusions.iter().filter(|e| !is_property(&e.property)) {
            let message = format!("is excluded from {property:?}, and there is no such property");
            failures.push(Failure { case: cases.clone(), message });
        }
        if failures.is_empty() { Ok(count) } else { Err(Failures { property, cases: count, failures }) }
    }

    /// Runs one case; a panic is a failure.
    pub(crate) fn case(&mut self, name: impl FnOnce() -> String, case: impl FnOnce(&Engine) -> Result<(), String>) {
        self.count += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| case(self.engine)));
        let outcome = outcome.unwrap_or_else(|panic| Err(format!("panics: {}", text(&*panic))));
        if outcome.is_ok() && self.excluded.is_empty() {
            return;
        }
        let name = name();
        let mut is_excluded = false;
        for excluded in self.excluded.iter_mut().filter(|excluded| excluded.exclusion.has(&name)) {
            is_excluded = true;
            excluded.count += 1;
            if outcome.is_ok() {
                excluded.passing.push(name.clone());
            }
        }
        if let Err(message) = outcome
            && !is_excluded
        {
            self.fail(name, message);
        }
    }

    fn fail(&mut self, case: impl Into<String>, message: impl Into<String>) {
        self.failures.push(Failure { case: case.into(), message: message.into() });
    }
}

/// Whether the global allocator records blocks.
fn records() -> bool {
    let ((), events) = Recording::record(|| drop(std::hint::black_box(Box::new(0u8))));
    !events.is_empty()
}

/// The message of a panic.
fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}
