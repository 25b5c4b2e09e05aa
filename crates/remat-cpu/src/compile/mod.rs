//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod donation;
mod fused_loops;
mod kernels;
mod layout;
mod report;
mod results;
#[cfg(test)]
mod tests;
mod text;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;

use crate::ids::{ResultId, StepId};
use crate::peak::Programs;
use crate::plan::{Plan, plan};
use crate::program::{CompiledProgram, ProgramResult};
use crate::schedule::{Graph, schedule};
use crate::steps::Steps;
use kernels::{Controls, KernelCall, Kernels};

/// The caller of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user: an argument can be returned as a result.
    User,
    /// A loop or a branch, which provides the memory of every result.
    Control,
}

/// A program whose steps have kernels, schedules and memory.
struct Planned<'a> {
    kernels: Kernels<'a>,
    results: IndexVec<ResultId, ProgramResult>,
    /// For callers who keep the arguments.
    keeping: Ordered,
    /// For callers who donate them, if that needs another order.
    donating: Option<Ordered>,
}

/// A schedule of the steps, and their memory in it.
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
    fn new(steps: &'a Steps, caller: Caller, threads: &'a Threads, controls: &'a Controls) -> Result<Planned<'a>> {
        let mut kernels = Kernels::new(steps, threads, controls)?;
        let results = kernels.results(caller)?;
        let graph = kernels.graph();
        let keeping = Ordered::new(&graph)?;
        // The body of a loop or a branch donates what its control flow allows, and its plan accounts for that.
        let donated = if caller == Caller::User { graph.for_donated_arguments() } else { None };
        let donating = donated.as_ref().map(Ordered::new).transpose()?;
        Ok(Planned { kernels, results, keeping, donating })
    }

    /// The programs in the orders of this plan.
    fn programs(&self, jaxpr: &Jaxpr) -> Result<Programs> {
        let keeping = layout::program(jaxpr, self, &self.keeping)?;
        let donating = self.donating.as_ref().map(|ordered| layout::program(jaxpr, self, ordered)).transpose()?;
        let donating = donating.filter(|donating| donating.peak(|_| true) < keeping.peak(|_| true));
        Ok(Programs { keeping, donating })
    }
}

/// The multiples of its bytes that a kept value reserves from the free bytes. They are tried in turn until the program needs no more memory
/// than before.
const MARGINS: [usize; 2] = [1, 4];

/// Plans a program. Values that its loops would compute again are kept, loops are computed in blocks, and other loops are joined, where
/// none of it raises the memory.
///
/// # Errors
/// If an operation cannot be run.
fn plan_with<R>(
    jaxpr: &Jaxpr,
    caller: Caller,
    threads: &Threads,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    // The bodies of loops and branches are compiled once and shared by all plans.
    let controls = Controls::default();
    let planned = Planned::new(&steps, caller, threads, &controls)?;
    let programs = planned.programs(jaxpr)?;
    let Ordered { order, plan } = &planned.keeping;
    let free: Vec<usize> = plan.timeline.iter().map(|live| plan.arena - live).collect();
    for margin in MARGINS {
        let Some(kept) = steps.keep(order, &free, margin)? else { break };
        let keeping = Planned::new(&kept, caller, threads, &controls)?;
        let more = keeping.programs(jaxpr)?;
        if needs_no_more(&more, &programs) {
            return in_blocks(jaxpr, &keeping, more, caller, use_plan);
        }
    }
    in_blocks(jaxpr, &planned, programs, caller, use_plan)
}

/// Plans a program with its loops computed in blocks, unless that needs more memory than this plan.
///
/// # Errors
/// As [`plan_with`].
fn in_blocks<R>(
    jaxpr: &Jaxpr,
    planned: &Planned<'_>,
    programs: Programs,
    caller: Caller,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let steps = planned.kernels.steps;
    // The operand tables of large steps are memory too.
    let table = |call: &KernelCall| CompiledProgram::table(call.ins.len(), call.outs.len());
    let largest = planned.kernels.calls.iter().map(table).max().unwrap_or(0);
    let blocks = steps.in_blocks(|ins, outs| CompiledProgram::table(ins, outs) <= largest)?;
    replaced(jaxpr, planned, programs, caller, blocks, |planned, programs| {
        joined(jaxpr, planned, programs, caller, use_plan)
    })
}

/// Plans a program with its loops joined where they share work, unless that needs more memory than this plan. Loops that are computed in
/// blocks stay as they are: a normalisation of channels gains more in blocks than by a loop that it shares.
///
/// # Errors
/// As [`plan_with`].
fn joined<R>(
    jaxpr: &Jaxpr,
    planned: &Planned<'_>,
    programs: Programs,
    caller: Caller,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let joined = planned.kernels.steps.join(&planned.keeping.order)?;
    replaced(jaxpr, planned, programs, caller, joined, use_plan)
}

/// Plans a program with these steps instead of those of a plan, if there are any, unless that needs more memory.
///
/// # Errors
/// As [`plan_with`].
fn replaced<R>(
    jaxpr: &Jaxpr,
    planned: &Planned<'_>,
    programs: Programs,
    caller: Caller,
    steps: Option<Steps>,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    if let Some(steps) = steps {
        let Kernels { threads, controls, .. } = planned.kernels;
        let other = Planned::new(&steps, caller, threads, controls)?;
        let more = other.programs(jaxpr)?;
        if needs_no_more(&more, &programs) {
            return use_plan(&other, more);
        }
    }
    use_plan(planned, programs)
}

/// Whether a program needs no more memory than another, whichever arguments the caller donates.
fn needs_no_more(more: &Programs, than: &Programs) -> bool {
    let peaks = |programs: &Programs| [programs.keeping.peak(|_| false), programs.for_donated(|_| true).peak(|_| true)];
    let mut donated = more.keeping.donated.iter().zip(&than.keeping.donated);
    peaks(more).iter().zip(peaks(than)).all(|(&more, than)| more <= than)
        && donated.all(|(more, than)| than.is_none() || more == than)
}

/// Compiles a program for these threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Programs> {
    plan_with(jaxpr, caller, threads, |_, programs| Ok(programs))
}

/// The text of the steps that [`compile`] makes of a program. All lines except the first are indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    plan_with(jaxpr, caller, threads, |planned, _| planned.text(threads, indent))
}
