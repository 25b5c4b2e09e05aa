//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod donation;
mod kernels;
mod layout;
mod loops;
mod report;
mod results;
#[cfg(test)]
mod tests;
mod text;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;

use crate::ids::{OutId, ResultId, StepId};
use crate::peak::Programs;
use crate::plan::{Plan, plan};
use crate::program::ProgramResult;
use crate::schedule::{Graph, schedule};
use crate::steps::Steps;
use kernels::Kernels;

/// Who runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user, to whom an argument can be returned as a result.
    User,
    /// A loop or a branch, which has the memory of every result ready.
    Control,
}

/// A program whose steps have kernels, orders and memory.
struct Planned<'a> {
    kernels: Kernels<'a>,
    results: IndexVec<ResultId, ProgramResult>,
    /// For callers who keep the arguments.
    keeping: Ordered,
    /// For callers who donate them, where that may be another.
    donating: Option<Ordered>,
}

/// An order of the steps, and the memory that they have in it.
struct Ordered {
    order: Vec<StepId>,
    plan: Plan,
}

impl Ordered {
    fn new(graph: &Graph) -> Result<Ordered> {
        let order = schedule(graph);
        let plan = plan(graph, &order)?;
        Ok(Ordered { order, plan })
    }
}

impl<'a> Planned<'a> {
    /// # Errors
    /// If there is no kernel for a step, or the plan is wrong.
    fn new(steps: &'a Steps, caller: Caller, threads: &'a Threads) -> Result<Planned<'a>> {
        let mut kernels = Kernels::new(steps, threads)?;
        let results = kernels.results(caller)?;
        let graph = kernels.graph();
        let keeping = Ordered::new(&graph)?;
        // The body of a loop or a branch donates what its control flow says, which its own plan serves.
        let donated = if caller == Caller::User { graph.for_donated_arguments() } else { None };
        let donating = donated.as_ref().map(Ordered::new).transpose()?;
        Ok(Planned { kernels, results, keeping, donating })
    }

    /// The bytes beside those of the arguments that a run needs to which no argument is donated, and one to which all are.
    fn needed(&self) -> [usize; 2] {
        let outputs = &self.kernels.buffers.outputs;
        let bytes = |out: OutId| self.kernels.buffers.aval(outputs[out]).bytes();
        let donated = |ordered: &Ordered| -> usize {
            let donated = donation::donated_arguments(&self.kernels, &ordered.plan);
            let own = donated.iter_enumerated().filter(|(_, argument)| argument.is_none());
            ordered.plan.arena + own.map(|(out, _)| bytes(out)).sum::<usize>()
        };
        let all = [Some(&self.keeping), self.donating.as_ref()].into_iter().flatten().map(donated).min();
        [self.keeping.plan.arena, all.unwrap_or(0)]
    }
}

/// How many times its bytes a value that is kept takes of those that are free, in turn, until the plan needs no more memory.
const MARGINS: [usize; 3] = [1, 2, 4];

/// Plans a program. What its loops compute again is kept where that needs no more memory.
///
/// # Errors
/// If an operation cannot be run.
fn plan_with<R>(
    jaxpr: &Jaxpr,
    caller: Caller,
    threads: &Threads,
    use_plan: impl FnOnce(&Planned<'_>) -> Result<R>,
) -> Result<R> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    let planned = Planned::new(&steps, caller, threads)?;
    let Ordered { order, plan } = &planned.keeping;
    let free: Vec<usize> = plan.timeline.iter().map(|live| plan.arena - live).collect();
    for margin in MARGINS {
        let Some(kept) = steps.keep(order, &free, margin)? else { break };
        let keeping = Planned::new(&kept, caller, threads)?;
        if keeping.needed().iter().zip(planned.needed()).all(|(&more, needed)| more <= needed) {
            return use_plan(&keeping);
        }
    }
    use_plan(&planned)
}

/// Compiles a program for these threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Programs> {
    plan_with(jaxpr, caller, threads, |planned| {
        let keeping = layout::program(jaxpr, planned, &planned.keeping)?;
        let donating = planned.donating.as_ref().map(|ordered| layout::program(jaxpr, planned, ordered)).transpose()?;
        let donating = donating.filter(|donating| donating.peak(|_| true) < keeping.peak(|_| true));
        Ok(Programs { keeping, donating })
    })
}

/// The text of the steps that [`compile`] makes of a program, its lines but the first indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    plan_with(jaxpr, caller, threads, |planned| planned.text(threads, indent))
}
