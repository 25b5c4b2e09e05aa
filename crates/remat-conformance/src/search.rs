//! A search for wrong results among random programs, which ends after a time or a number of comparisons.

use std::fmt;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use remat_ir::Device;

use crate::cases::catch;
use crate::rereads::{Program, programs};
use crate::trial::{Outcome, trial, ways};

/// When a search ends, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// No program is begun after this time.
    pub time: Duration,
    /// No program is begun after this number of comparisons of elements.
    pub comparisons: u64,
    /// The seed of the first program. Those of the next ones are the next numbers.
    pub seed: u64,
}

/// A wrong result.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The seed of the program.
    pub seed: u64,
    /// The way in which it was run, and the difference.
    pub message: String,
    /// The program, or a shorter one that is wrong too.
    pub program: Program,
}

/// What a search tried, and what it found. It prints as a table.
#[derive(Clone, Debug)]
pub struct Report {
    device: String,
    seed: u64,
    programs: u64,
    time: Duration,
    /// For each way to run a program: runs, comparisons, and wrong runs.
    rows: Vec<(String, [u64; 3])>,
    /// The wrong results, at most one for each program.
    pub wrong: Vec<Wrong>,
}

/// The most runs that a wrong program is shortened with.
const SHORTENING: usize = 20;

/// Runs random programs of [`rereads`](crate::rereads) on a device, each in some of these ways: without regions and with regions of several
/// policies, with kept and with donated arguments. Each result is compared with that of the reference evaluator for the program without regions.
///
/// ```
/// use std::time::Duration;
/// use remat_conformance::search::{Limits, search};
/// use remat_ir::Reference;
///
/// let report = search(&Reference, &Limits { time: Duration::from_secs(60), comparisons: 100, seed: 7 });
/// assert!(report.comparisons() >= 100 && report.wrong.is_empty(), "{report}");
/// ```
pub fn search(device: &dyn Device, limits: &Limits) -> Report {
    let mut report = Report {
        device: device.name().to_string(),
        seed: limits.seed,
        programs: 0,
        time: Duration::ZERO,
        rows: ways().into_iter().map(|way| (way.name, [0; 3])).collect(),
        wrong: Vec::new(),
    };
    let begin = Instant::now();
    while begin.elapsed() < limits.time && report.comparisons() < limits.comparisons {
        report.run(device, limits.seed.wrapping_add(report.programs));
        report.programs += 1;
    }
    report.time = begin.elapsed();
    report
}

impl Report {
    /// The number of elements that were compared.
    pub fn comparisons(&self) -> u64 {
        self.rows.iter().map(|(_, [_, comparisons, _])| comparisons).sum()
    }

    fn run(&mut self, device: &dyn Device, seed: u64) {
        let mut tree = match programs().new_tree(&mut runner(seed)) {
            Ok(tree) => tree,
            Err(_) => return,
        };
        let outcomes = match catch(|| run(device, &tree.current(), seed)) {
            Ok(outcomes) => outcomes,
            Err(message) => return self.wrong.push(Wrong { seed, message, program: tree.current() }),
        };
        for Outcome { way, comparisons, wrong } in &outcomes {
            let [runs, compared, failures] = &mut self.rows[*way].1;
            *runs += 1;
            *compared += comparisons;
            *failures += u64::from(wrong.is_some());
        }
        if let Some(mut message) = self.message(&outcomes) {
            let mut program = tree.current();
            let mut moves = tree.simplify();
            for _ in 0..SHORTENING {
                if !moves {
                    break;
                }
                let shorter =
                    catch(|| run(device, &tree.current(), seed)).ok().and_then(|outcomes| self.message(&outcomes));
                moves = match shorter {
                    Some(shorter) => {
                        (message, program) = (shorter, tree.current());
                        tree.simplify()
                    }
                    None => tree.complicate(),
                };
            }
            self.wrong.push(Wrong { seed, message, program });
        }
    }

    /// The first outcome that is wrong.
    fn message(&self, outcomes: &[Outcome]) -> Option<String> {
        outcomes.iter().find_map(|outcome| {
            let wrong = outcome.wrong.as_ref()?;
            Some(format!("{}: {wrong}", self.rows[outcome.way].0))
        })
    }
}

/// Runs a program in every third way: compiling takes most of the time, and programs differ more than ways do.
fn run(device: &dyn Device, program: &Program, seed: u64) -> Result<Vec<Outcome>, String> {
    trial(device, program, |way| way as u64 % 3 == seed % 3)
}

/// Draws the program of a seed.
fn runner(seed: u64) -> TestRunner {
    TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() })
}

/// The program of a seed.
pub(crate) fn program(seed: u64) -> Result<Program, String> {
    programs().new_tree(&mut runner(seed)).map(|tree| tree.current()).map_err(|reason| reason.to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { device, seed, programs, time, rows, wrong } = self;
        writeln!(f, "{device}: {programs} programs from seed {seed} in {:.0} s", time.as_secs_f64())?;
        writeln!(f, "{:<26} {:>9} {:>13} {:>7}", "regions, arguments", "runs", "comparisons", "wrong")?;
        for (name, [runs, comparisons, wrong]) in rows {
            writeln!(f, "{name:<26} {runs:>9} {comparisons:>13} {wrong:>7}")?;
        }
        let total = |i: usize| rows.iter().map(|(_, counts)| counts[i]).sum::<u64>();
        writeln!(f, "{:<26} {:>9} {:>13} {:>7}", "all", total(0), total(1), total(2))?;
        for Wrong { seed, message, program } in wrong {
            writeln!(f, "\n--seed {seed}: {message}\n{program:?}")?;
        }
        Ok(())
    }
}
