//! The planner: what to keep and what to compute again, so that a program fits a budget in the least time.
//!
//! Each step first runs at its place in the order, and values are dropped between two readers and computed again ([`state`]). Which ones is
//! a knapsack whose items depend on each other. First plans come from [`segments`] and from [`greedy`]; simulated annealing ([`anneal`],
//! [`moves`]) goes on from there, with moves of some microseconds. The work is counted in moves and not in seconds, and the random numbers
//! are fixed, so that the same program gets the same plan on every machine. docs/PLANNING.md has the figures.

mod anneal;
mod greedy;
mod moves;
mod problem;
mod segments;
mod side_by_side;
mod state;
#[cfg(test)]
mod tests;

use remat_ir::{Error, ErrorKind, Result};

use crate::align::ALIGNMENT;
use crate::bound::{bound, largest_step};
use crate::graph::Graph;
use crate::ids::StepId;
use crate::repeat::{Expanded, Judgement, Schedule};
use anneal::{Found, anneal};
use problem::Problem;
pub use side_by_side::side_by_side;
use state::{Hold, State};

/// The work that a search may take. It is counted in moves and not in seconds, so that a plan is the same on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// How many changes of a schedule are tried. In a program of some hundred steps a million takes about two seconds on one thread.
    pub evaluations: usize,
    /// How many threads search side by side. What they find does not depend on it.
    pub threads: usize,
}

impl Effort {
    /// A first plan, in about a fifth of a second for some hundred steps.
    pub const QUICK: Effort = Effort::of(60_000);
    /// A good plan, in a second or two for some hundred steps.
    pub const GOOD: Effort = Effort::of(600_000);
    /// A plan near the best, in some ten seconds for some hundred steps.
    pub const BEST: Effort = Effort::of(4_000_000);

    /// So many changes of a schedule, by one thread.
    pub const fn of(evaluations: usize) -> Effort {
        Effort { evaluations, threads: 1 }
    }

    /// The same work by so many threads.
    ///
    /// ```
    /// use remat_plan::{Effort, examples::chain, rematerialize};
    /// let mut graph = chain(12, None, 1024);
    /// graph.steps.iter_mut().for_each(|step| step.cost = 1000);
    /// let order: Vec<_> = graph.steps.indices().collect();
    /// let plan = |effort| rematerialize(&graph, &order, 5 * 1024, effort);
    /// assert_eq!(plan(Effort::QUICK.on_threads(4))?, plan(Effort::QUICK)?);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub const fn on_threads(self, threads: usize) -> Effort {
        Effort { threads, ..self }
    }
}

/// A schedule within a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rematerialized {
    /// The runs.
    pub schedule: Schedule,
    /// Its time and its peak, as the live ranges of its [`Expanded`] graph give them.
    pub judged: Judgement,
    /// The time of the program with each step run once, in picoseconds.
    pub once: u64,
    /// No schedule within the limit whose steps first run in this order takes less time, in picoseconds.
    pub bound: u64,
    /// The decisions that lead to this schedule; empty if each step runs once.
    holds: Vec<Hold>,
}

impl Rematerialized {
    /// The time beyond that of each step once, as a share of it.
    pub fn overhead(&self) -> f64 {
        self.judged.time.saturating_sub(self.once) as f64 / self.once.max(1) as f64
    }
}

/// The operation that errors name.
const PLAN: &str = "plan";

/// The moves of one search, at least. With more there are several, from other random numbers, and the last continues the best of them.
const EVALUATIONS_OF_SEARCH: usize = 250_000;

/// The first temperature of a search, and of the last one, in times of an average step.
const HOT: f64 = 0.5;
const WARM: f64 = 0.15;

/// The bytes of decisions beside those from which they follow, where a limit is approached.
const APPROACH: (i64, i64) = (3, 5);

/// How often the limit of the search is lowered if the judge finds more bytes than the search. They differ where a result lies in the memory
/// of an output only in some schedules.
const ATTEMPTS: usize = 8;

/// The fastest schedule that was found of which at most `limit` bytes of temporaries and scratch memory are live at a time.
///
/// The steps first run in the given order, which `schedule` gives.
///
/// ```
/// use remat_plan::{Effort, examples::chain, rematerialize};
/// // Twelve layers of 1 KiB, forward and backward: everything kept takes 12 KiB, and here 5 KiB suffice.
/// let mut graph = chain(12, None, 1024);
/// graph.steps.iter_mut().for_each(|step| step.cost = 1000);
/// let order: Vec<_> = graph.steps.indices().collect();
/// let plan = rematerialize(&graph, &order, 5 * 1024, Effort::QUICK)?;
/// assert!(plan.judged.peak <= 5 * 1024 && plan.judged.time >= plan.bound);
/// assert!(plan.schedule.runs.len() > order.len());
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If no such schedule was found, of the kind [`ErrorKind::Memory`]; the message has the peak with each step once, and names the step if one
/// alone needs more than the limit, in which case nothing is searched. If the order is not one of
/// all steps of the graph, or cannot run.
pub fn rematerialize(graph: &Graph, order: &[StepId], limit: usize, effort: Effort) -> Result<Rematerialized> {
    within(graph, order, limit, |problem, limit| search(problem, limit, effort))
}

/// As [`rematerialize`], from another plan of the same graph and order on, for a limit near that of this plan. One search suffices then,
/// of at most `effort`.
///
/// ```
/// use remat_plan::{Effort, examples::chain, rematerialize, rematerialize_from};
/// let mut graph = chain(12, None, 1024);
/// graph.steps.iter_mut().for_each(|step| step.cost = 1000);
/// let order: Vec<_> = graph.steps.indices().collect();
/// let plan = rematerialize(&graph, &order, 6 * 1024, Effort::QUICK)?;
/// let smaller = rematerialize_from(&plan, &graph, &order, 5 * 1024, Effort::QUICK)?;
/// assert!(smaller.judged.peak <= 5 * 1024);
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// As [`rematerialize`].
pub fn rematerialize_from(
    plan: &Rematerialized,
    graph: &Graph,
    order: &[StepId],
    limit: usize,
    effort: Effort,
) -> Result<Rematerialized> {
    within(graph, order, limit, |problem, limit| {
        let start = if plan.holds.len() == problem.gaps.len() { plan.holds.clone() } else { problem.keep_all() };
        anneal(problem, limit, effort.evaluations, start, WARM, 0)
    })
}

/// A schedule that an earlier search found, judged again. Its bound is that of a limit of its own peak.
///
/// # Errors
/// If it is not a schedule of this graph.
pub fn replayed(graph: &Graph, order: &[StepId], schedule: Schedule) -> Result<Rematerialized> {
    let judged = Expanded::new(graph, &schedule)?.judge();
    let once = Expanded::new(graph, &Schedule { runs: order.to_vec() })?.judge().time;
    let bound = once.saturating_add(bound(graph, order, judged.peak));
    Ok(Rematerialized { schedule, judged, once, bound, holds: Vec::new() })
}

/// The fastest schedule within a limit that a search finds.
///
/// # Errors
/// As [`rematerialize`].
fn within(
    graph: &Graph,
    order: &[StepId],
    limit: usize,
    search: impl Fn(&Problem, i64) -> Option<Found>,
) -> Result<Rematerialized> {
    if order.len() != graph.steps.len() {
        let message =
            format!("an order has each of the {} steps once, and this one has {}", graph.steps.len(), order.len());
        return Err(Error::new(ErrorKind::Argument, PLAN, message));
    }
    let once = Expanded::new(graph, &Schedule { runs: order.to_vec() })?.judge();
    if once.peak <= limit {
        // No schedule takes less time than each step once.
        let schedule = Schedule { runs: order.to_vec() };
        return Ok(Rematerialized { schedule, judged: once, once: once.time, bound: once.time, holds: Vec::new() });
    }
    if let Some((bytes, step)) = largest_step(graph).filter(|&(bytes, _)| bytes > limit) {
        let message = format!(
            "no schedule needs at most {limit} bytes at a time: {step} alone needs {bytes}; without running steps again the program needs {}",
            once.peak
        );
        return Err(Error::new(ErrorKind::Memory, PLAN, message));
    }
    let bound = once.time.saturating_add(bound(graph, order, limit));
    let problem = Problem::new(graph, order);
    let mut inner = i64::try_from(limit).unwrap_or(i64::MAX);
    for _ in 0..ATTEMPTS {
        let Some(Found { holds, .. }) = search(&problem, inner) else { break };
        let schedule = runs(&State::new(&problem, holds.clone()));
        let judged = Expanded::new(graph, &schedule)?.judge();
        if judged.peak <= limit {
            return Ok(Rematerialized { schedule, judged, once: once.time, bound, holds });
        }
        inner -= (judged.peak - limit) as i64;
    }
    Err(over_limit(limit, once.peak))
}

/// The schedule with the least peak that was found.
///
/// # Errors
/// As [`rematerialize`], but for the limit.
pub fn least_memory(graph: &Graph, order: &[StepId], effort: Effort) -> Result<Rematerialized> {
    let mut least = rematerialize(graph, order, usize::MAX, effort)?;
    descend(graph, order, effort, &mut least, |_| {})?;
    Ok(least)
}

/// Lowers the peak of a plan as far as plans are found, and hands over each plan that another one replaces.
fn descend(
    graph: &Graph,
    order: &[StepId],
    effort: Effort,
    least: &mut Rematerialized,
    mut replaced: impl FnMut(Rematerialized),
) -> Result<()> {
    let mut low = largest_step(graph).map_or(0, |(bytes, _)| bytes);
    // Each attempt halves what is left between the least peak and the least that no search has failed at. Peaks are multiples of the alignment.
    while least.judged.peak.saturating_sub(low) > least.judged.peak / LEAST_STEP {
        let middle = (low + (least.judged.peak - low) / 2) / ALIGNMENT * ALIGNMENT;
        // From a plan for a few more bytes a search goes further than from the start, unless that plan leads the wrong way.
        let plan = rematerialize_from(least, graph, order, middle, effort);
        match plan.or_else(|_| rematerialize(graph, order, middle, effort)) {
            Ok(plan) => replaced(std::mem::replace(least, plan)),
            Err(error) if error.kind() == ErrorKind::Memory => low = middle + ALIGNMENT,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The least peak is searched for until it is known to this part of itself.
const LEAST_STEP: usize = 100;

/// Schedules for budgets from the least peak to that of each step once, in steps of equal size, and those that were found on the way to the
/// least peak. Each takes less time than those with lower peaks; budgets for which no faster schedule was found are left out.
///
/// # Errors
/// As [`least_memory`].
pub fn pareto(graph: &Graph, order: &[StepId], points: usize, effort: Effort) -> Result<Vec<Rematerialized>> {
    let mut least = rematerialize(graph, order, usize::MAX, effort)?;
    let high = least.judged.peak;
    let mut plans = Vec::new();
    descend(graph, order, effort, &mut least, |plan| plans.push(plan))?;
    let low = least.judged.peak;
    plans.push(least);
    for point in 1..points.saturating_sub(1) {
        let limit = low + (high - low) / (points - 1) * point;
        match rematerialize(graph, order, limit, effort) {
            Ok(plan) => plans.push(plan),
            Err(error) if error.kind() == ErrorKind::Memory => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pareto_front(plans, |plan| (plan.judged.peak, plan.judged.time)))
}

/// The Pareto front of plans: those that take less time than all with fewer bytes, from the fewest bytes on. `cost` gives the bytes and the
/// time of a plan.
///
/// ```
/// use remat_plan::pareto_front;
/// let plans = vec![(300, 10), (100, 30), (200, 30), (200, 20)];
/// assert_eq!(pareto_front(plans, |&plan| plan), [(100, 30), (200, 20), (300, 10)]);
/// ```
pub fn pareto_front<T>(mut plans: Vec<T>, cost: impl Fn(&T) -> (usize, u64)) -> Vec<T> {
    plans.sort_by_key(&cost);
    let mut front: Vec<T> = Vec::new();
    for plan in plans {
        if front.last().is_none_or(|last| cost(&plan).1 < cost(last).1) {
            front.push(plan);
        }
    }
    front
}

/// Where a search starts.
enum Start {
    From(Vec<Hold>),
    /// From what [`approach`] finds.
    Approach,
}

/// The best of several searches: from the plans that are found at once, from everything kept, and from the best of these.
fn search(problem: &Problem, limit: i64, Effort { evaluations, threads }: Effort) -> Option<Found> {
    let searches = (evaluations / EVALUATIONS_OF_SEARCH).clamp(5, 16);
    let each = evaluations / searches;
    let seeds = segments::segments(problem, limit).into_iter().chain([greedy::greedy(problem, limit)]);
    let seeds = seeds.map(Start::From).chain([Start::Approach]);
    let warm = seeds.zip(1..searches as u64).map(|(start, seed)| (start, WARM, seed));
    let hot = (3..searches as u64).map(|seed| (Start::From(problem.keep_all()), HOT, seed));
    let found = side_by_side(threads, warm.chain(hot).collect(), |(start, temperature, seed)| {
        let start = match start {
            Start::From(holds) => holds,
            Start::Approach => approach(problem, limit, each)?,
        };
        anneal(problem, limit, each, start, temperature, seed)
    });
    let best = found.into_iter().flatten().min_by_key(|found| found.time);
    let start = best.as_ref().map_or_else(|| problem.keep_all(), |found| found.holds.clone());
    let last = anneal(problem, limit, each, start, WARM, 0);
    best.into_iter().chain(last).min_by_key(|found| found.time)
}

/// Decisions for a limit that is far away: those for more bytes, from which those for fewer follow, and so on. `None` if the limit is near.
fn approach(problem: &Problem, limit: i64, evaluations: usize) -> Option<Vec<Hold>> {
    let (mut bytes, _) = State::new(problem, problem.keep_all()).peak();
    let mut holds = None;
    loop {
        bytes = bytes / APPROACH.1 * APPROACH.0;
        if bytes <= limit {
            return holds;
        }
        let start = holds.take().unwrap_or_else(|| problem.keep_all());
        holds = Some(anneal(problem, bytes, evaluations, start, WARM, 0)?.holds);
    }
}

/// The runs of a state in order.
fn runs(state: &State<'_>) -> Schedule {
    let runs = state.stages.iter().flat_map(|stage| &stage.runs);
    Schedule { runs: runs.map(|&place| state.problem.order[place as usize]).collect() }
}

fn over_limit(limit: usize, peak: usize) -> Error {
    let message = format!(
        "no schedule was found that needs at most {limit} bytes at a time; without running steps again it needs {peak}"
    );
    Error::new(ErrorKind::Memory, PLAN, message)
}
