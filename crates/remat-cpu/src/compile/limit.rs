//! Programs that have to fit a number of bytes: steps run again until they do.
//!
//! A plan is made for the parts of loops ([`in_parts`](Steps::in_parts)), in the order in which the program would run without a limit. What
//! it needs is known to the byte only when its steps have kernels and offsets, so that the engine's own figure decides: a plan that needs too
//! much is followed by one for fewer bytes, and one that leaves room by one for more.

use remat_ir::{CompileOptions, ErrorKind, Jaxpr, Result};
use remat_kernels::Threads;
use remat_plan::{Effort, Graph, Rematerialized, Schedule, StepId, least_memory, rematerialize};

use super::kernels::{Controls, Kernels};
use super::{Caller, Ordered, Planned};
use crate::ids::ArgId;
use crate::peak::Programs;
use crate::steps::{Part, Steps};

/// How many plans are made for one limit, at most. Each takes a second or two for a thousand steps.
const PLANS: usize = 6;

/// A plan that leaves less than this part of its memory free is good enough: half a percent of memory is worth less than 0.1 % of time.
const ROOM: usize = 200;

/// The most bytes that a run may need.
pub(crate) struct Limit {
    bytes: usize,
    /// For each argument, whether the caller donates it. Empty if that is not known: the least that a call needs has to fit then, with all
    /// arguments donated.
    donated: Vec<bool>,
}

impl Limit {
    /// The limit of these options, if they have one.
    pub(crate) fn of(options: &CompileOptions) -> Option<Limit> {
        let CompileOptions { donated, memory_limit } = options;
        memory_limit.map(|bytes| Limit { bytes, donated: donated.clone() })
    }

    fn is_donated(&self, argument: ArgId) -> bool {
        self.donated.is_empty() || self.donated.get(argument.index()).copied().unwrap_or(false)
    }

    /// The bytes that a call of a program needs.
    fn peak(&self, programs: &Programs) -> usize {
        let is_donated = |argument| self.is_donated(argument);
        programs.for_donated(is_donated).peak(is_donated)
    }

    /// Whether a call of a program needs no more than the limit.
    pub(super) fn fits(&self, programs: &Programs) -> bool {
        self.peak(programs) <= self.bytes
    }
}

/// Steps in which some run again.
struct Repeated {
    steps: Steps,
    /// The bytes of temporaries by the plan.
    planned: usize,
    /// The bytes that a call needs.
    peak: usize,
    /// The time of a run, in picoseconds by the cost model.
    time: u64,
}

/// Plans within a limit, of one form of a program.
struct Planner<'a> {
    limit: &'a Limit,
    jaxpr: &'a Jaxpr,
    steps: &'a Steps,
    threads: &'a Threads,
    controls: &'a Controls,
    /// The parts of the steps, the order in which they first run, and their graph.
    parts: Vec<Part>,
    order: Vec<StepId>,
    graph: Graph,
    /// The bytes that a call needs if no step runs again.
    peak: usize,
    /// The bytes of the arena with which it would be at the limit. What is not in the arena needs the same bytes whatever the plan.
    goal: usize,
}

/// The steps of a program with as many of them repeated as it takes to fit a limit, in the least time that is found; if nothing fits, those
/// with the least memory. `forms` are the steps in several forms, which differ in what they store and compute again on their own. `None` if
/// nothing needs less memory than the first form.
///
/// # Errors
/// If an operation cannot be run, or a plan is wrong, which is a defect.
pub(super) fn repeated(
    limit: &Limit,
    jaxpr: &Jaxpr,
    forms: [&Steps; 2],
    threads: &Threads,
    controls: &Controls,
) -> Result<Option<Steps>> {
    let mut planners: Vec<Planner<'_>> = Vec::new();
    for steps in forms {
        planners.push(Planner::new(limit, jaxpr, steps, threads, controls)?);
    }
    // A first plan of each form tells which one to go on with.
    let mut first = Vec::new();
    for planner in &planners {
        first.extend(planner.plan(planner.goal)?.map(|repeated| (planner, repeated)));
    }
    first.sort_by_key(|(_, repeated)| repeated.time);
    for (planner, repeated) in first {
        if let Some(repeated) = planner.fastest(repeated)? {
            return Ok(Some(repeated.steps));
        }
    }
    let unrepeated = planners.first().map_or(0, |planner| planner.peak);
    let mut least: Option<Repeated> = None;
    for planner in &planners {
        let repeated = planner.repeated(&least_memory(&planner.graph, &planner.order, Effort::QUICK)?)?;
        if repeated.peak < least.as_ref().map_or(unrepeated, |least| least.peak) {
            least = Some(repeated);
        }
    }
    Ok(least.map(|repeated| repeated.steps))
}

impl<'a> Planner<'a> {
    fn new(
        limit: &'a Limit,
        jaxpr: &'a Jaxpr,
        steps: &'a Steps,
        threads: &'a Threads,
        controls: &'a Controls,
    ) -> Result<Planner<'a>> {
        let planned = Planned::new(steps, Caller::User, threads, controls)?;
        let programs = planned.programs(jaxpr)?;
        let is_donated = |argument| limit.is_donated(argument);
        let is_keeping = std::ptr::eq(programs.for_donated(is_donated), &programs.keeping);
        let ordered = if is_keeping { &planned.keeping } else { planned.for_donating() };
        let (parts, order, mut graph) = in_parts(steps, ordered, threads, controls)?;
        if !is_keeping && let Some(donating) = graph.for_donated_arguments() {
            graph = donating;
        }
        let peak = limit.peak(&programs);
        let goal = ordered.plan.arena.saturating_sub(peak.saturating_sub(limit.bytes));
        Ok(Planner { limit, jaxpr, steps, threads, controls, parts, order, graph, peak, goal })
    }

    /// The fastest steps that are found for the limit, from those of a first plan on.
    fn fastest(&self, first: Repeated) -> Result<Option<Repeated>> {
        let (mut goal, limit) = (self.goal, self.limit.bytes);
        let (mut next, mut best): (_, Option<Repeated>) = (Some(first), None);
        // The least goal whose plan needs too much.
        let mut too_much = usize::MAX;
        let mut plans = 0;
        while let Some(repeated) = next {
            plans += 1;
            match limit.checked_sub(repeated.peak) {
                None if best.is_some() => break,
                None => {
                    too_much = too_much.min(goal);
                    goal = goal.min(repeated.planned).saturating_sub(repeated.peak - limit);
                }
                Some(room) => {
                    let is_best = best.as_ref().is_none_or(|best| repeated.time < best.time);
                    if is_best {
                        best = Some(repeated);
                    }
                    if !is_best || room <= goal / ROOM || goal + room >= too_much {
                        break;
                    }
                    goal += room;
                }
            }
            next = if plans < PLANS { self.plan(goal)? } else { None };
        }
        Ok(best)
    }

    /// The steps of a plan with this many bytes of temporaries at most, if one is found.
    fn plan(&self, goal: usize) -> Result<Option<Repeated>> {
        match rematerialize(&self.graph, &self.order, goal, Effort::GOOD) {
            Ok(plan) => self.repeated(&plan).map(Some),
            Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The steps of a plan.
    fn repeated(&self, plan: &Rematerialized) -> Result<Repeated> {
        let Schedule { runs } = &plan.schedule;
        let parts: Vec<Part> = runs.iter().filter_map(|step| self.parts.get(step.index())).cloned().collect();
        let steps = self.steps.repeated(&parts)?;
        let planned = Planned::new(&steps, Caller::User, self.threads, self.controls)?;
        let peak = self.limit.peak(&planned.programs(self.jaxpr)?);
        let time = planned.kernels.graph().steps.iter().map(|step| step.cost).fold(0, u64::saturating_add);
        Ok(Repeated { steps, planned: plan.judged.peak, peak, time })
    }
}

/// The parts of steps in an order, the same order of the parts, and their graph. Copies of results are no steps of the program and no parts;
/// they keep their place in the order.
fn in_parts(
    steps: &Steps,
    ordered: &Ordered,
    threads: &Threads,
    controls: &Controls,
) -> Result<(Vec<Part>, Vec<StepId>, Graph)> {
    let count = steps.steps.len();
    let positions: Vec<usize> = ordered.order.iter().map(|step| step.index()).filter(|&at| at < count).collect();
    let (in_parts, parts) = steps.in_parts(&positions);
    let mut kernels = Kernels::new(&in_parts, threads, controls)?;
    kernels.results(Caller::User)?;
    let mut next = (0..parts.len()).peekable();
    let mut order = Vec::new();
    for step in &ordered.order {
        match step.index().checked_sub(count) {
            Some(copy) => order.push(StepId::new(parts.len() + copy)),
            None => {
                while let Some(part) = next.next_if(|&part| parts[part].step == step.index()) {
                    order.push(StepId::new(part));
                }
            }
        }
    }
    Ok((parts, order, kernels.graph()))
}
