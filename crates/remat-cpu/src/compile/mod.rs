//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod cost;
mod donation;
mod fused_loops;
mod kernels;
mod layout;
mod limit;
mod plans;
mod report;
mod results;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashSet;
use std::sync::Arc;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Rematerialization, Result, Var};
use remat_kernels::Threads;
use remat_opt::pipeline;
use remat_plan::{BufferId, Graph, MemoryPlan, StepId, plan_memory, schedule};

use crate::ids::{ArgId, ResultId};
use crate::peak::Programs;
use crate::program::{CompiledProgram, ProgramResult};
use crate::steps::{Step, Steps};

use buffers::Owner;
use kernels::{Controls, KernelCall, Kernels};
pub(crate) use limit::{Donated, Limit};
use plans::Plans;

/// The caller of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user: an argument can be returned as a result.
    User,
    /// A loop or a branch, which provides the memory of every result. It donates only the arguments from the first number to before the
    /// second, the carries of a loop.
    Control([usize; 2]),
}

impl Caller {
    /// The caller of a condition or of a branch.
    pub(crate) const WITHOUT_CARRIES: Caller = Caller::Control([0; 2]);

    /// The caller of the body of a loop with this many carries, which are its arguments from this one on.
    pub(crate) fn with_carries(first: usize, count: usize) -> Caller {
        Caller::Control([first, first + count])
    }
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
    plan: MemoryPlan,
}

impl Ordered {
    fn new(graph: &Graph) -> Result<Ordered> {
        let order = schedule(graph);
        let plan = plan_memory(graph, &order)?;
        Ok(Ordered { order, plan })
    }
}

impl<'a> Planned<'a> {
    /// # Errors
    /// If there is no kernel for a step, or the plan is wrong.
    fn new(steps: &'a Steps, caller: Caller, threads: &'a Threads, controls: &'a Controls) -> Result<Planned<'a>> {
        let mut kernels = Kernels::new(steps, threads, controls)?;
        let results = kernels.results(caller)?;
        let mut graph = kernels.graph();
        if let Caller::Control([first, end]) = caller {
            let is_kept = |buffer: BufferId| match kernels.buffers.owner(buffer) {
                Owner::Argument(argument) => !(first..end).contains(&argument.index()),
                _ => false,
            };
            graph.steps.iter_mut().for_each(|step| step.in_place.retain(|(input, _)| !is_kept(*input)));
        }
        let keeping = Ordered::new(&graph)?;
        // The body of a loop or a branch donates what its control flow allows, and its plan accounts for that.
        let donated = if caller == Caller::User { graph.for_donated_arguments() } else { None };
        let donating = donated.as_ref().map(Ordered::new).transpose()?;
        Ok(Planned { kernels, results, keeping, donating })
    }

    /// The results of the loops of changed steps during which more memory is live than another plan needs, or of those with the most live
    /// memory if there are none: the holes between values need memory too. `is_changed` tells which steps are.
    fn too_large(&self, than: &Planned<'_>, is_changed: impl Fn(&Step) -> bool) -> Vec<Var> {
        let mut results = Vec::new();
        for (mine, other) in [(Some(&self.keeping), &than.keeping), (self.donating.as_ref(), than.for_donating())] {
            let Some(Ordered { order, plan }) = mine.filter(|mine| mine.plan.arena > other.plan.arena) else {
                continue;
            };
            let steps = order.iter().map(|step| self.kernels.steps.steps.get(step.index()));
            let live = steps.zip(&plan.timeline).filter_map(|(step, &live)| Some((step?, live)));
            let changed: Vec<(&Step, usize)> = live.filter(|(step, _)| is_changed(step)).collect();
            let most = changed.iter().map(|(_, live)| *live).max().unwrap_or(0);
            let limit = most.min(other.plan.arena + 1);
            results.extend(changed.iter().filter(|(_, live)| *live >= limit).flat_map(|(step, _)| step.loop_results()));
        }
        results
    }

    fn for_donating(&self) -> &Ordered {
        self.donating.as_ref().unwrap_or(&self.keeping)
    }

    /// The programs in the orders of this plan.
    fn programs(&self, jaxpr: &Jaxpr) -> Result<Programs> {
        let keeping = layout::program(jaxpr, self, &self.keeping)?;
        let donating = self.donating.as_ref().map(|ordered| layout::program(jaxpr, self, ordered)).transpose()?;
        let donating = donating.filter(|donating| donating.peak(|_| true) < keeping.peak(|_| true));
        Ok(Programs { keeping, donating, rematerialization: None })
    }

    /// The time of a run, in picoseconds by the cost model.
    fn time(&self) -> u64 {
        self.kernels.graph().steps.iter().map(|step| step.cost).fold(0, u64::saturating_add)
    }
}

/// The multiples of its bytes that a kept value reserves from the free bytes, since the plan cannot use all of them. They are tried in turn
/// until the program needs no more memory than before.
const MARGINS: [usize; 2] = [1, 4];

/// Plans a program, and hands the plan that is chosen to `use_plan`, since a plan borrows its steps. If it needs more than the limit, steps
/// run again.
///
/// # Errors
/// If an operation cannot be run.
fn plan_with<R>(
    jaxpr: &Jaxpr,
    caller: Caller,
    threads: &Threads,
    limit: Option<&Limit>,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    // The bodies of loops and branches are compiled once and shared by all plans.
    let controls = Controls::default();
    plan_steps(jaxpr, &steps, caller, threads, &controls, |planned, programs| {
        let Some(limit) = limit.filter(|limit| !limit.fits(&programs)) else { return use_plan(planned, programs) };
        let unlimited = (limit.caller.peak(&programs), planned.time());
        let plans = Plans { jaxpr, caller: &limit.caller, threads, controls: &controls, unlimited };
        let scheduled = limit.schedule.as_ref().map(|schedule| plans.scheduled(schedule, limit.bytes)).transpose()?;
        let repeated = scheduled.flatten().map_or_else(|| plans.within(limit.bytes), |repeated| Ok(Some(repeated)))?;
        let Some(repeated) = repeated else { return use_plan(planned, programs) };
        let rematerialization = Some(Arc::new(plans.rematerialization(&repeated)));
        plan_steps(jaxpr, &repeated.steps, caller, threads, &controls, |planned, programs| {
            use_plan(planned, Programs { rematerialization, ..programs })
        })
    })
}

/// Plans steps. Values that loops would compute again are kept, loops are computed in blocks, and other loops are joined, where none of it
/// raises the memory.
///
/// # Errors
/// As [`plan_with`].
fn plan_steps<R>(
    jaxpr: &Jaxpr,
    steps: &Steps,
    caller: Caller,
    threads: &Threads,
    controls: &Controls,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let planned = Planned::new(steps, caller, threads, controls)?;
    let programs = planned.programs(jaxpr)?;
    let Ordered { order, plan } = &planned.keeping;
    let free: Vec<usize> = plan.timeline.iter().map(|live| plan.arena - live).collect();
    for margin in MARGINS {
        let Some(kept) = steps.keep(order, &free, margin)? else { break };
        let other = Planned::new(&kept, caller, threads, controls)?;
        let more = other.programs(jaxpr)?;
        if needs_no_more(&more, &programs, caller) {
            return in_blocks(jaxpr, &other, more, caller, use_plan);
        }
    }
    in_blocks(jaxpr, &planned, programs, caller, use_plan)
}

/// Plans a program with its loops computed in blocks, and others joined where they share work. Loops in blocks stay as they are: a
/// normalisation of channels gains more in blocks than by a loop that it shares.
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
    // The operand tables of large steps are memory too.
    let table = |call: &KernelCall| CompiledProgram::table_bytes(call.ins.len(), call.outs.len());
    let largest = planned.kernels.calls.iter().map(table).max().unwrap_or(0);
    let is_small = |ins, outs| CompiledProgram::table_bytes(ins, outs) <= largest;
    let in_blocks = |planned: &Planned<'_>, apart: &HashSet<Var>| planned.kernels.steps.in_blocks(is_small, apart);
    let join = |planned: &Planned<'_>, apart: &HashSet<Var>| planned.kernels.steps.join(&planned.keeping.order, apart);
    changed(jaxpr, planned, programs, caller, in_blocks, |planned, programs| {
        changed(jaxpr, planned, programs, caller, join, use_plan)
    })
}

/// How often a change of the steps is planned, with those loops apart that needed too much memory the last time.
const ATTEMPTS: usize = 4;

/// Plans a program with several loops in one step, as far as that needs no more memory than this plan. `change` changes the steps of a plan,
/// except for the loops that compute some variables.
///
/// # Errors
/// As [`plan_with`].
fn changed<R>(
    jaxpr: &Jaxpr,
    planned: &Planned<'_>,
    programs: Programs,
    caller: Caller,
    change: impl Fn(&Planned<'_>, &HashSet<Var>) -> Result<Option<Steps>>,
    use_plan: impl FnOnce(&Planned<'_>, Programs) -> Result<R>,
) -> Result<R> {
    let mut apart: HashSet<Var> = HashSet::new();
    for _ in 0..ATTEMPTS {
        let Some(steps) = change(planned, &apart)? else { break };
        let Kernels { threads, controls, .. } = planned.kernels;
        let other = Planned::new(&steps, caller, threads, controls)?;
        let more = other.programs(jaxpr)?;
        if needs_no_more(&more, &programs, caller) {
            return use_plan(&other, more);
        }
        // Loops that compute the same equations again differ in their results.
        let results = |step: &Step| -> Vec<Var> { step.loop_results().collect() };
        let before: HashSet<Vec<Var>> = planned.kernels.steps.steps.iter().map(results).collect();
        let too_large = other.too_large(planned, |step| !before.contains(&results(step)));
        if too_large.is_empty() {
            break;
        }
        apart.extend(too_large);
    }
    use_plan(planned, programs)
}

/// Whether a program needs no more memory than another if the caller donates no arguments, all of them, or those with which the other
/// program saves more, which are the worst to donate.
fn needs_no_more(more: &Programs, than: &Programs, caller: Caller) -> bool {
    // A loop gives a carry that is not computed in place a second buffer.
    let mut donated = more.keeping.donated.iter().zip(&than.keeping.donated);
    if caller != Caller::User && donated.any(|(more, than)| than.is_some() && more != than) {
        return false;
    }
    let peak =
        |programs: &Programs, is_donated: &dyn Fn(ArgId) -> bool| programs.for_donated(is_donated).peak(is_donated);
    let saved = [more, than].map(|programs| programs.keeping.saved_bytes());
    let is_worse = |arg: ArgId| saved[0][arg] < saved[1][arg];
    let donated: [&dyn Fn(ArgId) -> bool; 3] = [&|_| false, &|_| true, &is_worse];
    donated.into_iter().all(|is_donated| peak(more, is_donated) <= peak(than, is_donated))
}

/// Compiles a program for these threads. With a limit, steps run again until it fits, or needs as little memory as was found.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, limit: Option<&Limit>) -> Result<Programs> {
    plan_with(jaxpr, caller, threads, limit, |_, programs| Ok(programs))
}

/// The text of the steps that [`compile`] makes of a program. All lines except the first are indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    plan_with(jaxpr, caller, threads, None, |planned, _| planned.text(threads, indent))
}

/// The steps that [`compile`] makes of a program, their buffers, and the program.
///
/// # Errors
/// As [`compile`].
pub(crate) fn graph(jaxpr: &Jaxpr, threads: &Threads, limit: Option<&Limit>) -> Result<(Graph, Programs)> {
    plan_with(jaxpr, Caller::User, threads, limit, |planned, programs| Ok((planned.kernels.graph(), programs)))
}

/// Ways to run a program in less memory, from the least bytes on: about this many, each faster than those with fewer.
///
/// # Errors
/// As [`compile`].
pub(crate) fn pareto(
    jaxpr: &Jaxpr,
    caller: &Donated,
    threads: &Threads,
    points: usize,
) -> Result<Vec<Rematerialization>> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    let controls = Controls::default();
    plan_steps(jaxpr, &steps, Caller::User, threads, &controls, |planned, programs| {
        let unlimited = (caller.peak(&programs), planned.time());
        Plans { jaxpr, caller, threads, controls: &controls, unlimited }.pareto(points)
    })
}
