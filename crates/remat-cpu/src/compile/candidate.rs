//! A program with kernels, a schedule and a memory plan: what its bytes and its time are known of.

use std::rc::Rc;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_plan::{Graph, MemoryPlan, StepId, plan_memory, schedule};

use super::kernels::{Controls, Kernels};
use super::{Caller, Constraints, layout};
use crate::ids::{ArgId, ResultId};
use crate::peak::Programs;
use crate::program::ProgramResult;
use crate::steps::Steps;

/// What all candidates for a program share.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) jaxpr: &'a Jaxpr,
    pub(super) caller: Caller,
    pub(super) threads: &'a Threads,
    /// The bodies of loops and branches, which are compiled once.
    pub(super) controls: &'a Controls,
    pub(super) constraints: &'a Constraints,
}

/// Steps that compute a program, with what a run of them takes.
pub(super) struct Candidate<'a> {
    pub(super) kernels: Kernels<'a>,
    pub(super) results: IndexVec<ResultId, ProgramResult>,
    /// For callers who keep the arguments.
    pub(super) keeping: Ordered,
    /// For callers who donate them, if that needs another order.
    pub(super) donating: Option<Ordered>,
    /// The programs in these orders.
    pub(super) programs: Programs,
    /// The time of a run, in picoseconds by the cost model.
    pub(super) time: u64,
}

/// A schedule of the steps, and their memory in it.
pub(super) struct Ordered {
    pub(super) order: Vec<StepId>,
    pub(super) plan: MemoryPlan,
}

impl Ordered {
    fn new(graph: &Graph) -> Result<Ordered> {
        let order = schedule(graph);
        let plan = plan_memory(graph, &order)?;
        Ok(Ordered { order, plan })
    }

    /// The same order, with temporaries in outputs that no step has written yet where the arena is then smaller.
    fn within_outputs(self, graph: &Graph, kernels: &Kernels<'_>) -> Result<Ordered> {
        let Ordered { order, plan } = self;
        let plan = plan.within_outputs(graph, &order, |output, buffer| kernels.may_hold(output, buffer))?;
        Ok(Ordered { order, plan })
    }
}

impl<'a> Subject<'a> {
    /// A program that a user calls.
    pub(super) fn for_user(
        jaxpr: &'a Jaxpr,
        threads: &'a Threads,
        controls: &'a Controls,
        constraints: &'a Constraints,
    ) -> Subject<'a> {
        Subject { jaxpr, caller: Caller::User, threads, controls, constraints }
    }

    /// Whether a result may take the memory of this argument. A user may donate any in another call.
    pub(super) fn may_take(&self, argument: ArgId) -> bool {
        match self.caller {
            Caller::User => true,
            Caller::Control([first, end]) => (first..end).contains(&argument.index()),
        }
    }

    /// Whether results take the memory of this argument only where there is no other to take: the user keeps it, and donates others.
    pub(super) fn takes_last(&self, argument: ArgId) -> bool {
        let donated = &self.constraints.donated;
        self.caller == Caller::User && donated.is_known() && !donated.contains(argument)
    }

    /// # Errors
    /// If there is no kernel for a step, or the plan is wrong.
    pub(super) fn candidate(&self, steps: Steps) -> Result<Candidate<'a>> {
        let mut kernels = Kernels::new(Rc::new(steps), *self)?;
        let results = kernels.results()?;
        let graph = kernels.graph();
        let time = graph.steps.iter().map(|step| step.cost).fold(0, u64::saturating_add);
        let keeping = Ordered::new(&graph)?;
        // The body of a loop or a branch donates what its control flow allows, and its plan accounts for that.
        let donated = if self.caller == Caller::User { graph.for_donated_arguments() } else { None };
        let donating = donated.as_ref().map(Ordered::new).transpose()?;
        let programs = self.programs(&kernels, &results, &keeping, donating.as_ref())?;
        Ok(Candidate { kernels, results, keeping, donating, programs, time })
    }

    /// The same steps in the same orders, with temporaries in outputs that no step has written yet where the arena is then smaller. The
    /// memory of the outputs of a loop's or a branch's body may be that of its arguments, and holds nothing else.
    ///
    /// # Errors
    /// If the plan is wrong.
    pub(super) fn within_outputs(&self, mut candidate: Candidate<'a>) -> Result<Candidate<'a>> {
        let before = candidate.arenas();
        if self.caller != Caller::User || before == (0, 0) {
            return Ok(candidate);
        }
        let graph = candidate.kernels.graph();
        candidate.donating = match (candidate.donating, graph.for_donated_arguments()) {
            (Some(donating), Some(graph)) => Some(donating.within_outputs(&graph, &candidate.kernels)?),
            (donating, _) => donating,
        };
        candidate.keeping = candidate.keeping.within_outputs(&graph, &candidate.kernels)?;
        if candidate.arenas() != before {
            let Candidate { kernels, results, keeping, donating, .. } = &candidate;
            candidate.programs = self.programs(kernels, results, keeping, donating.as_ref())?;
        }
        Ok(candidate)
    }

    /// The programs in these orders.
    fn programs(
        &self,
        kernels: &Kernels<'_>,
        results: &IndexVec<ResultId, ProgramResult>,
        keeping: &Ordered,
        donating: Option<&Ordered>,
    ) -> Result<Programs> {
        let program = |ordered: &Ordered| layout::program(self.jaxpr, kernels, results, ordered);
        Ok(Programs::new(program(keeping)?, donating.map(program).transpose()?))
    }
}

impl Candidate<'_> {
    pub(super) fn steps(&self) -> &Rc<Steps> {
        &self.kernels.steps
    }

    /// The bytes of the arenas, for callers who keep arguments and who donate them.
    fn arenas(&self) -> (usize, usize) {
        (self.keeping.plan.arena, self.for_donating().plan.arena)
    }

    /// The order and memory for callers who donate arguments.
    pub(super) fn for_donating(&self) -> &Ordered {
        self.donating.as_ref().unwrap_or(&self.keeping)
    }
}
