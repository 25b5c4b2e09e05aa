//! What a caller asks of a program: the most bytes that a run may need, or a schedule that an earlier plan found for them.

use std::sync::Arc;

use remat_ir::{CompileOptions, StepSchedule};

use crate::ids::ArgId;
use crate::peak::Programs;

/// The most bytes that a run may need, if there is such a limit, for callers who donate some arguments.
pub(crate) struct Limit {
    pub(super) bytes: usize,
    pub(super) caller: Donated,
    /// The steps to run, if they are known.
    pub(super) schedule: Option<Arc<StepSchedule>>,
}

impl Limit {
    /// What these options ask for, if it is anything.
    pub(crate) fn of(options: &CompileOptions) -> Option<Limit> {
        let CompileOptions { donated, memory_limit, schedule } = options;
        let is_set = memory_limit.is_some() || schedule.is_some() || donated.contains(&true);
        is_set.then(|| Limit {
            bytes: memory_limit.unwrap_or(usize::MAX),
            caller: Donated(donated.clone()),
            schedule: schedule.clone(),
        })
    }

    /// The arguments that the caller donates.
    pub(super) fn caller(&self) -> &Donated {
        &self.caller
    }

    /// Whether a program without repeated steps is what is asked for: no schedule is, and a call needs no more than the limit.
    pub(super) fn fits(&self, programs: &Programs) -> bool {
        self.schedule.is_none() && self.caller.peak(programs) <= self.bytes
    }
}

/// For each argument, whether the caller donates it. Empty if that is not known: the least that a call needs counts then, with all arguments
/// donated.
#[derive(Clone)]
pub(crate) struct Donated(pub(crate) Vec<bool>);

impl Donated {
    /// Whether the caller donates this argument.
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
