//! Programs that have to fit a number of bytes: steps run again until they do.
//!
//! A plan is made for the parts of loops ([`in_parts`](Steps::in_parts)), in the order in which the program would run without a limit. What
//! it needs is known to the byte only when its steps have kernels and offsets, so that the engine's own figure decides: a plan that needs too
//! much is followed by one for fewer bytes, and one that leaves room by one for more.

use std::rc::Rc;

use remat_ir::{ErrorKind, Jaxpr, Rematerialization, Result, StepSchedule};
use remat_opt::pipeline;
use remat_plan::{
    BufferId, Effort, Graph, Location, Rematerialized, Schedule, StepId, bound_within_outputs, least_memory,
    pareto_front, rematerialize_from, replayed, side_by_side,
};

use super::candidate::{Candidate, Ordered, Subject};
use super::improve::{Allowed, Decided};
use super::kernels::Kernels;
use super::report;
use super::search::{Job, Search};
use crate::steps::{Part, Steps};

/// How many plans are made for one limit, at most.
const PLANS: usize = 8;

/// The work of the last plan, which goes on from the fastest.
const POLISH: Effort = Effort::of(300_000);

/// The work of one plan of a curve, which follows the one for a few more bytes.
const CURVE: Effort = Effort::of(40_000);

/// Parts of a program's steps for which the work is this much. Where there are fewer, it is less in proportion: the plans of a small GPT
/// (guide/src/memory.md) take between 0.6 points of time more and 0.6 less than with all of it.
const PARTS: usize = 375;

/// Forms whose first plans take more time than the fastest by no more than this part of it are planned further, and at most this many of them.
const NEAR: u64 = 20;
const SEARCHED: usize = 3;

/// A program of which plans are made.
pub(super) struct Plans<'a> {
    subject: Subject<'a>,
    /// The bytes that a call needs, and its time, without a limit.
    unlimited: (usize, u64),
}

/// The forms of the steps, which differ in what they store and compute again on their own, and whether moves are made before the plan or only
/// after it. A plan of steps after moves keeps loops in blocks together, which is faster; one of steps before them has more to choose from.
const FORMS: [(fn(Jaxpr) -> Result<Steps>, bool); 4] =
    [(Steps::of, false), (Steps::storing, false), (Steps::of, true), (Steps::storing, true)];

/// The steps of a program, of which some may run again.
pub(super) struct Form {
    /// Its number among the forms.
    number: u32,
    steps: Rc<Steps>,
    /// The parts of the steps, the order in which they first run, and their graph.
    parts: Vec<Part>,
    pub(super) order: Vec<StepId>,
    pub(super) graph: Graph,
    /// The bytes of the arena with all temporaries in it, as a search counts them, and those that a call needs where results hold some, if no
    /// step runs again and no loops are in blocks or joined.
    pub(super) arena: usize,
    pub(super) peak: usize,
    /// The bytes of a call that are not in the memory of the arena, which are the same whatever the plan.
    fixed: usize,
    /// The outputs in the memory of donated arguments, which hold nothing else.
    donated: Vec<BufferId>,
}

/// Steps in which some run again.
pub(super) struct Repeated {
    pub(super) plan: Rematerialized,
    pub(super) form: Rc<Form>,
    /// The bytes of a call within which moves are made.
    limit: usize,
    /// The bytes that a call needs before any moves.
    pub(super) planned_peak: usize,
    /// The bytes that it needs.
    pub(super) peak: usize,
    /// The time of a run, in picoseconds by the cost model.
    pub(super) time: u64,
}

/// Steps in which some run again, with their kernels and the moves that were made and refused.
pub(super) struct Made<'a> {
    pub(super) repeated: Rc<Repeated>,
    pub(super) candidate: Candidate<'a>,
    pub(super) decided: Vec<Decided>,
}

impl<'a> Plans<'a> {
    /// Plans beside the candidate without a limit.
    pub(super) fn new(subject: Subject<'a>, unlimited: &Candidate<'_>) -> Plans<'a> {
        let peak = subject.constraints.donated.peak(&unlimited.programs);
        Plans { subject, unlimited: (peak, unlimited.time) }
    }

    /// The forms of the steps that differ. Moves may change nothing, and a program without loops has one form.
    ///
    /// # Errors
    /// If an operation cannot be run.
    fn forms(&self) -> Result<Vec<Rc<Form>>> {
        let mut forms: Vec<Rc<Form>> = Vec::new();
        for form in (0..FORMS.len() as u32).filter_map(|number| self.form(number).transpose()) {
            let form = form?;
            if !forms.iter().any(|other| other.graph == form.graph && other.order == form.order) {
                forms.push(form);
            }
        }
        Ok(forms)
    }

    /// A form of the steps, if there is one of this number.
    fn form(&self, number: u32) -> Result<Option<Rc<Form>>> {
        let Some((lower, is_moved)) = FORMS.get(number as usize) else { return Ok(None) };
        let mut candidate = self.subject.candidate(lower(pipeline::run(pipeline::CPU, self.subject.jaxpr)?)?)?;
        if *is_moved {
            candidate = self.subject.improved(candidate, Allowed::AsBefore, &mut Vec::new())?;
        }
        let programs = &candidate.programs;
        let is_donated = |argument| self.subject.constraints.donated.contains(argument);
        let is_keeping = std::ptr::eq(programs.for_donated(is_donated), &programs.keeping);
        let ordered = if is_keeping { &candidate.keeping } else { candidate.for_donating() };
        let (parts, order, mut graph) = self.in_parts(candidate.steps(), ordered)?;
        if !is_keeping && let Some(donating) = graph.for_donated_arguments() {
            graph = donating;
        }
        let program = programs.for_donated(is_donated);
        let (arena, fixed) = (ordered.plan.arena, program.peak(is_donated).saturating_sub(program.arena));
        let donated = ordered.plan.donations.iter().filter_map(|pair| match ordered.plan.locations[pair.output] {
            Location::Buffer(output) => Some(output),
            _ => None,
        });
        let (donated, steps) = (donated.collect(), candidate.steps().clone());
        let peak = self.subject.constraints.donated.peak(&self.subject.within_outputs(candidate)?.programs);
        Ok(Some(Rc::new(Form { number, parts, order, graph, arena, peak, fixed, donated, steps })))
    }

    /// The parts of steps in an order, the same order of the parts, and their graph. Copies of results are no steps of the program and no
    /// parts; they keep their place in the order.
    fn in_parts(&self, steps: &Steps, ordered: &Ordered) -> Result<(Vec<Part>, Vec<StepId>, Graph)> {
        let count = steps.steps.len();
        let positions: Vec<usize> = ordered.order.iter().map(|step| step.index()).filter(|&at| at < count).collect();
        let (in_parts, parts) = steps.in_parts(&positions);
        let mut kernels = Kernels::new(Rc::new(in_parts), self.subject)?;
        kernels.results()?;
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

    /// The steps of the program with as many of them repeated as it takes to fit a limit, in the least time that is found; if nothing fits,
    /// those with the least memory. `None` if nothing needs less memory than the program without repeated steps.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect.
    pub(super) fn within(&self, limit: usize) -> Result<Option<Rc<Repeated>>> {
        // A first plan of each form tells which ones to go on with.
        let (forms, mut first) = (self.forms()?, Vec::new());
        let jobs = forms.iter().map(|form| Job::anew(form, form.goal(limit), self.effort(form, Effort::QUICK)));
        for (form, plan) in forms.iter().zip(self.plans(jobs.collect())) {
            first.extend(self.found(form, plan, limit)?);
        }
        let most = most_near(first.iter().map(|repeated| repeated.time));
        first.sort_by_key(|repeated| repeated.time);
        first.truncate(SEARCHED);
        let near = first.iter().take_while(|repeated| repeated.time <= most).count();
        let far = first.split_off(near);
        // The others only if none of those that are near leads to one that fits.
        let mut best = self.fastest(first, limit)?;
        for repeated in far {
            best = if best.is_none() { self.fastest(vec![repeated], limit)? } else { best };
        }
        if let Some(best) = best {
            let Repeated { form, plan, .. } = &*best;
            let polished =
                rematerialize_from(plan, &form.graph, &form.order, plan.judged.peak, self.effort(form, POLISH));
            let polished = self.found(form, polished, limit)?.filter(|polished| polished.peak <= limit);
            return Ok(polished.into_iter().chain([best]).min_by_key(|repeated| repeated.time));
        }
        // Plans for fewer and fewer bytes reach what no search reaches at once.
        let mut least = Vec::new();
        for form in &forms {
            let repeated = self.repeated(form, self.least_memory(form)?, limit)?;
            if repeated.peak <= limit
                && let Some(repeated) = self.fastest(vec![repeated.clone()], limit)?
            {
                return Ok(Some(repeated));
            }
            least.push(repeated);
        }
        Ok(least.into_iter().min_by_key(|repeated| repeated.peak).filter(|least| least.peak < self.unlimited.0))
    }

    /// The fastest steps that are found for a limit after first plans, each of another form. Their searches make plan after plan side by side.
    fn fastest(&self, first: Vec<Rc<Repeated>>, limit: usize) -> Result<Option<Rc<Repeated>>> {
        let mut searches: Vec<Search> = first.into_iter().map(|first| Search::new(first, limit)).collect();
        for _ in 0..PLANS {
            searches.iter_mut().for_each(Search::turn);
            let active: Vec<&mut Search> = searches.iter_mut().filter(|search| !search.is_done).collect();
            let jobs = active.iter().map(|search| search.job(|effort| self.effort(&search.last.form, effort)));
            let plans = self.plans(jobs.collect());
            for (search, plan) in active.into_iter().zip(plans) {
                let found = self.found(&search.last.form, plan, limit)?;
                search.found(found);
            }
        }
        Ok(searches.into_iter().filter_map(|search| search.best).min_by_key(|repeated| repeated.time))
    }

    /// The plans of some jobs, by the threads of the program.
    fn plans(&self, jobs: Vec<Job<'_>>) -> Vec<Result<Rematerialized>> {
        let threads = self.subject.threads.count();
        let each = threads.div_ceil(jobs.len().max(1));
        side_by_side(threads, jobs, |job| job.run(each))
    }

    /// The least bytes that are found, and faster and faster plans for more bytes, up to those of a program without a limit: about this many.
    ///
    /// # Errors
    /// As [`Plans::within`].
    pub(super) fn pareto(&self, points: usize) -> Result<Vec<Rematerialization>> {
        let forms = self.forms()?;
        let Some(first) = forms.first() else { return Ok(Vec::new()) };
        let mut found: Vec<Rc<Repeated>> = Vec::new();
        // The forms that are planned further, with their last plans: each plan goes on from the one for a few more bytes.
        let mut planned: Vec<(&Rc<Form>, Option<Rc<Repeated>>)> = forms.iter().map(|form| (form, None)).collect();
        for point in (1..=points).rev() {
            let limit = first.fixed + first.peak.saturating_sub(first.fixed) / points * point;
            let jobs = planned.iter().map(|(form, last)| match last {
                Some(last) => Job::from(form, &last.plan, form.goal(limit), self.effort(form, CURVE)),
                None => Job::anew(form, form.goal(limit), self.effort(form, Effort::QUICK)),
            });
            let plans = self.plans(jobs.collect());
            let mut next = Vec::new();
            for ((form, _), plan) in planned.iter().zip(plans) {
                next.extend(self.found(form, plan, limit)?.map(|repeated| (*form, repeated)));
            }
            let most = most_near(next.iter().map(|(_, repeated)| repeated.time));
            found.extend(next.iter().map(|(_, repeated)| repeated.clone()));
            planned = next
                .into_iter()
                .filter(|(_, repeated)| repeated.time <= most)
                .map(|(form, repeated)| (form, Some(repeated)))
                .collect();
        }
        // Plans for fewer and fewer bytes reach what no search reaches at once.
        if found.is_empty() {
            for form in &forms {
                let least = self.least_memory(form)?;
                found.push(self.repeated(form, least, 0)?);
            }
        }
        found.retain(|repeated| repeated.peak < self.unlimited.0);
        let curve = pareto_front(found, |repeated| (repeated.peak, repeated.time));
        Ok(curve.iter().map(|repeated| self.rematerialization(repeated)).collect())
    }

    /// The steps of a schedule that an earlier search found. `None` if it is that of another program or number of threads, or needs more than
    /// the limit.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect.
    pub(super) fn scheduled(&self, schedule: &StepSchedule, limit: usize) -> Result<Option<Made<'a>>> {
        let Some(form) = self.form(schedule.form)? else { return Ok(None) };
        let runs: Vec<StepId> = schedule.runs.iter().map(|&run| StepId::new(run as usize)).collect();
        let Ok(plan) = replayed(&form.graph, &form.order, Schedule { runs }) else { return Ok(None) };
        let made = self.made(&form, plan, schedule.limit)?;
        Ok(Some(made).filter(|made| made.repeated.peak <= limit))
    }

    /// What was decided for steps of this program.
    pub(super) fn rematerialization(&self, repeated: &Repeated) -> Rematerialization {
        let (form, runs) = (&repeated.form, &repeated.plan.schedule.runs);
        let mut times: Vec<usize> = vec![0; form.graph.steps.len()];
        runs.iter().for_each(|run| times[run.index()] += 1);
        let again = form.parts.iter().enumerate().filter(|&(part, _)| times[part] > 1);
        let recomputed = again.map(|(part, what)| {
            let time = form.graph.steps[StepId::new(part)].cost;
            report::recomputed(&form.steps, what, times[part] - 1, time)
        });
        let mut recomputed: Vec<_> = recomputed.flatten().collect();
        recomputed.sort_by_key(|value| (std::cmp::Reverse(value.time), std::cmp::Reverse(value.value.bytes)));
        let may_hold = |output: BufferId| !form.donated.contains(&output);
        // Moves may save bytes, which the steps of the form do not have.
        let bytes = repeated.limit.max(repeated.planned_peak).max(repeated.peak);
        Rematerialization {
            schedule: StepSchedule {
                form: form.number,
                runs: runs.iter().map(|run| run.index() as u32).collect(),
                limit: repeated.limit,
            }
            .into(),
            peak: repeated.peak,
            time: repeated.time,
            unlimited_time: self.unlimited.1,
            bound: bound_within_outputs(&form.graph, &form.order, bytes.saturating_sub(form.fixed), may_hold),
            recomputed,
        }
    }

    /// This work, as far as the form has parts for it.
    fn effort(&self, form: &Form, effort: Effort) -> Effort {
        Effort::of(effort.evaluations * form.parts.len().min(PARTS) / PARTS)
    }

    /// The plan of a form with the least memory that is found.
    fn least_memory(&self, form: &Form) -> Result<Rematerialized> {
        let effort = self.effort(form, Effort::QUICK).on_threads(self.subject.threads.count());
        least_memory(&form.graph, &form.order, effort)
    }

    /// The steps of a plan within a limit, if one was found.
    fn found(&self, form: &Rc<Form>, plan: Result<Rematerialized>, limit: usize) -> Result<Option<Rc<Repeated>>> {
        match plan {
            Ok(plan) => self.repeated(form, plan, limit).map(Some),
            Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The steps of a plan within a limit.
    fn repeated(&self, form: &Rc<Form>, plan: Rematerialized, limit: usize) -> Result<Rc<Repeated>> {
        Ok(self.made(form, plan, limit)?.repeated)
    }

    /// The candidate of steps that were found.
    ///
    /// # Errors
    /// If an operation cannot be run.
    pub(super) fn made_again(&self, Repeated { plan, form, limit, .. }: &Repeated) -> Result<Made<'a>> {
        self.made(form, plan.clone(), *limit)
    }

    /// The candidate of a plan within a limit.
    fn made(&self, form: &Rc<Form>, plan: Rematerialized, limit: usize) -> Result<Made<'a>> {
        let (first, mut decided) = (self.first(form, &plan)?, Vec::new());
        let planned_peak = self.subject.constraints.donated.peak(&first.programs);
        let candidate =
            self.subject.improved(first, Allowed::Within(&self.subject.constraints.donated, limit), &mut decided)?;
        let (peak, time) = (self.subject.constraints.donated.peak(&candidate.programs), candidate.time);
        let repeated = Rc::new(Repeated { plan, form: form.clone(), limit, planned_peak, peak, time });
        Ok(Made { repeated, candidate, decided })
    }

    /// The candidate of a plan before any moves.
    fn first(&self, form: &Form, plan: &Rematerialized) -> Result<Candidate<'a>> {
        let Schedule { runs } = &plan.schedule;
        let parts: Vec<Part> = runs.iter().filter_map(|step| form.parts.get(step.index())).cloned().collect();
        self.subject.within_outputs(self.subject.candidate(form.steps.repeated(&parts)?)?)
    }
}

impl Form {
    /// The bytes of the arena with which a call needs no more than a limit.
    pub(super) fn goal(&self, limit: usize) -> usize {
        self.arena.saturating_sub(self.peak.saturating_sub(limit))
    }
}

/// The most time of a form that is planned further beside others of these times.
fn most_near(times: impl Iterator<Item = u64>) -> u64 {
    let least = times.min().unwrap_or(0);
    least.saturating_add(least / NEAR)
}

#[cfg(test)]
mod tests {
    use remat_kernels::Threads;

    use super::super::Constraints;
    use super::super::kernels::Controls;
    use super::super::tests::READ_LATE;
    use super::*;

    #[test]
    fn every_plan_of_a_search_may_be_its_best() {
        let jaxpr: Jaxpr = READ_LATE.parse().unwrap_or_else(|e| panic!("{e}"));
        let (threads, controls) = (Threads::new(1).expect("one thread"), Controls::default());
        let constraints = Constraints::default();
        let subject = Subject::for_user(&jaxpr, &threads, &controls, &constraints);
        let candidate = subject.chosen().expect("it is planned").candidate;
        let plans = Plans::new(subject, &candidate);
        let limit = plans.unlimited.0 - 64 * 128 * 4;
        let found = plans.within(limit).expect("it is planned").expect("less memory is enough");
        let other = |peak, time| {
            let (plan, form) = (found.plan.clone(), found.form.clone());
            Rc::new(Repeated { plan, form, limit, planned_peak: peak, peak, time })
        };
        let mut search = Search::new(other(limit + 1, 5), limit);
        let best = |search: &Search| search.best.as_ref().map(|best| best.time);
        assert_eq!(best(&search), None);
        for (plan, expected) in [((limit, 9), 9), ((limit, 7), 7), ((limit, 8), 7), ((limit + 1, 6), 7)] {
            search.turn();
            search.found(Some(other(plan.0, plan.1)));
            assert_eq!(best(&search), Some(expected), "{plan:?}");
        }
        assert_eq!(best(&Search::new(other(limit, 4), limit)), Some(4));
    }
}
