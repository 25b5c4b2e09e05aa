//! What an engine decides so that a program fits its memory limit: which steps run again.

use std::sync::Arc;

use crate::LiveValue;

/// The steps of a program in the order in which they run, some of them several times, as an engine numbers them.
///
/// The same engine of the same version compiles the same program for the same number of threads from it, without a search
/// ([`CompileOptions::schedule`](crate::CompileOptions::schedule)). The numbers mean nothing to others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StepSchedule {
    /// The form of the steps, of which an engine may have several.
    pub form: u32,
    /// The step of each run.
    pub runs: Vec<u32>,
    /// The bytes of a call for which it was chosen. The engine changes the steps further as far as a call then still fits.
    pub limit: usize,
}

/// A value that a program computes several times.
#[derive(Clone, Debug)]
pub struct RecomputedValue {
    /// The value: its bytes, its name, and the operation that computes it.
    pub value: LiveValue,
    /// How many times it is computed after the first.
    pub times: usize,
    /// The time of these runs by the cost model, in picoseconds. If a step computes several values, each has an equal part of it.
    pub time: u64,
}

/// How a program was made to fit its memory limit.
#[derive(Clone, Debug)]
pub struct Rematerialization {
    /// The steps.
    pub schedule: Arc<StepSchedule>,
    /// The most bytes that a run needs, with arguments, results and overhead, for the caller for whom the program was planned.
    pub peak: usize,
    /// The time of a run by the cost model, in picoseconds.
    pub time: u64,
    /// The time of a run without a limit.
    pub unlimited_time: u64,
    /// The picoseconds beyond the time without a limit that any plan for these bytes takes at least, if its steps first run in the same order.
    pub bound: u64,
    /// The values that are computed several times, those that take the most time first.
    pub recomputed: Vec<RecomputedValue>,
}

impl Rematerialization {
    /// The time beyond that without a limit, as a share of it: 0.1 for a tenth more.
    pub fn overhead(&self) -> f64 {
        self.time as f64 / self.unlimited_time.max(1) as f64 - 1.0
    }
}
