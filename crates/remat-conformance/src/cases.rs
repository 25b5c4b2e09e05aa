//! The cases of a property, and those that fail.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_alloc::Recording;

use crate::conform::{Check, conform_together};
use crate::engine::{Engine, Exclusion};

/// How many failures of one property are printed.
const PRINTED: usize = 30;

/// The failures of one property; it prints the first 30 in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failures {
    /// The property.
    pub property: &'static str,
    /// The number of cases.
    pub cases: usize,
    /// Failed cases, then exclusions that do not hold.
    pub failures: Vec<Failure>,
}

/// A case that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its name, which [`Engine::excluding`] takes.
    pub case: String,
    /// The reason, usually with the program.
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
    /// The number of cases, including those that did not run.
    seen: usize,
    count: usize,
    /// Cases that run together when there are enough of them.
    waiting: Vec<(String, Vec<Check>)>,
    failures: Vec<Failure>,
    excluded: Vec<Excluded<'a>>,
}

/// An exclusion of the current property.
struct Excluded<'a> {
    exclusion: &'a Exclusion,
    count: usize,
    passing: Vec<String>,
}

impl Cases<'_> {
    /// Runs a property of this name. Returns the number of its cases, which is at least one.
    pub(crate) fn run(
        engine: &Engine,
        property: &'static str,
        check: impl FnOnce(&mut Cases<'_>),
        is_property: impl Fn(&str) -> bool,
    ) -> Result<usize, Failures> {
        let excluded = engine.exclusions.iter().filter(|exclusion| exclusion.property == property);
        let excluded = excluded.map(|exclusion| Excluded { exclusion, count: 0, passing: Vec::new() }).collect();
        let mut cases = Cases { engine, seen: 0, count: 0, waiting: Vec::new(), failures: Vec::new(), excluded };
        if engine.is_exact && !records() {
            cases.fail("memory", "the test program's global allocator is not `Recording`");
        } else {
            check(&mut cases);
            cases.run_waiting();
        }
        let Cases { count, mut failures, excluded, .. } = cases;
        if count == 0 && failures.is_empty() && excluded.iter().all(|excluded| excluded.count == 0) {
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
    pub(crate) fn case(&mut self, name: String, case: impl FnOnce(&Engine) -> Result<(), String>) {
        if self.is_next(&name) {
            let outcome = catch(|| case(self.engine));
            self.judge(name, outcome);
        }
    }

    /// A case of programs that all must conform. It may run later, together with others.
    pub(crate) fn programs(&mut self, name: String, programs: impl FnOnce() -> Result<Vec<Check>, String>) {
        if !self.is_next(&name) {
            return;
        }
        match catch(programs) {
            Err(message) => self.judge(name, Err(message)),
            Ok(checks) => self.waiting.push((name, checks)),
        }
        if self.waiting.iter().map(|(_, checks)| checks.len()).sum::<usize>() >= self.engine.together {
            self.run_waiting();
        }
    }

    fn run_waiting(&mut self) {
        let (names, cases): (Vec<String>, Vec<Vec<Check>>) = self.waiting.drain(..).unzip();
        let outcomes = catch(|| Ok(conform_together(self.engine, &cases)));
        // A panic counts as one of each case.
        let outcomes = outcomes.unwrap_or_else(|message| vec![Err(message); names.len()]);
        for (name, outcome) in names.into_iter().zip(outcomes) {
            self.judge(name, outcome);
        }
    }

    /// Whether the next case runs.
    fn is_next(&mut self, name: &str) -> bool {
        self.seen += 1;
        let mut is_next = (self.seen - 1).is_multiple_of(self.engine.every);
        for excluded in self.excluded.iter_mut().filter(|excluded| excluded.exclusion.has(name)) {
            if !excluded.exclusion.runs {
                excluded.count += 1;
                return false;
            }
            is_next = true;
        }
        is_next
    }

    fn judge(&mut self, name: String, outcome: Result<(), String>) {
        self.count += 1;
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

/// Converts a panic to an error.
pub(crate) fn catch<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(format!("panics: {}", text(&*panic))))
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
