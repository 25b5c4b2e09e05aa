//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod donation;
mod kernels;
mod layout;
mod loops;
mod report;
mod results;
mod text;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;

use crate::ids::{ResultId, StepId};
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
}

/// The steps of a program, after the passes.
fn steps(jaxpr: &Jaxpr) -> Result<Steps> {
    Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)
}

/// Compiles a program for these threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Programs> {
    let steps = steps(jaxpr)?;
    let planned = Planned::new(&steps, caller, threads)?;
    let keeping = layout::program(jaxpr, &planned, &planned.keeping)?;
    let donating = planned.donating.as_ref().map(|ordered| layout::program(jaxpr, &planned, ordered)).transpose()?;
    let donating = donating.filter(|donating| donating.peak(|_| true) < keeping.peak(|_| true));
    Ok(Programs { keeping, donating })
}

/// The text of the steps that [`compile`] makes of a program, its lines but the first indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    Planned::new(&steps(jaxpr)?, caller, threads)?.text(threads, indent)
}
