//! Schedules in which steps run more than once.
//!
//! A [`Schedule`] lists the runs of steps in order. Each run reads the newest copy of each of its operands, and a value is freed after the
//! last run that reads that copy. So a value that is read again long after it was computed either stays in memory or is computed again.
//!
//! (Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020, state the problem in this form.)

mod expand;
#[cfg(test)]
mod tests;

pub use expand::Expanded;

use crate::ids::StepId;

/// The runs of steps in order. A step that is listed again computes its results again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// The step of each run.
    pub runs: Vec<StepId>,
}

/// The time and the memory of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// The sum of the costs of all runs, in picoseconds.
    pub time: u64,
    /// The most bytes of temporaries and scratch memory that are live at one time, a lower bound for the arena.
    pub peak: usize,
    /// The first run during which that many bytes are live.
    pub position: usize,
}
