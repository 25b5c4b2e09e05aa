//! What a caller asks of a program.

use std::sync::Arc;

use remat_ir::{CompileOptions, StepSchedule};

use crate::ids::ArgId;
use crate::peak::Programs;

/// What a program has to comply with. By default that is nothing.
pub(crate) struct Constraints {
    /// The most bytes that a call may need.
    pub(super) bytes: usize,
    pub(crate) donated: Donated,
    /// The steps to run, as an earlier plan found them, if they are known.
    pub(super) schedule: Option<Arc<StepSchedule>>,
}

impl Default for Constraints {
    fn default() -> Constraints {
        Constraints { bytes: usize::MAX, donated: Donated::default(), schedule: None }
    }
}

impl Constraints {
    /// What these options ask for.
    pub(crate) fn of(options: &CompileOptions) -> Constraints {
        let CompileOptions { donated, memory_limit, schedule } = options;
        Constraints {
            bytes: memory_limit.unwrap_or(usize::MAX),
            donated: Donated(donated.clone()),
            schedule: schedule.clone(),
        }
    }

    /// Whether a program without repeated steps is what is asked for: no schedule is, and a call needs no more than the limit.
    pub(super) fn are_met(&self, programs: &Programs) -> bool {
        self.schedule.is_none() && self.donated.peak(programs) <= self.bytes
    }
}

/// For each argument, whether the caller donates it. Empty if that is not known: then any may be donated, and the least that a call needs
/// counts, with all of them donated.
#[derive(Clone, Default)]
pub(crate) struct Donated(pub(crate) Vec<bool>);

impl Donated {
    /// Whether the caller may donate this argument.
    pub(crate) fn contains(&self, argument: ArgId) -> bool {
        self.0.is_empty() || self.0.get(argument.index()).copied().unwrap_or(false)
    }

    /// Whether the caller is known to donate an argument.
    pub(super) fn is_known(&self) -> bool {
        self.0.contains(&true)
    }

    /// The bytes that a call of a program needs.
    pub(crate) fn peak(&self, programs: &Programs) -> usize {
        let is_donated = |argument| self.contains(argument);
        programs.for_donated(is_donated).peak(is_donated)
    }
}
