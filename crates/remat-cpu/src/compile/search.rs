//! The search for the fastest steps of one form within a limit, plan after plan.

use std::rc::Rc;

use remat_ir::Result;
use remat_plan::{Effort, Graph, Rematerialized, StepId, rematerialize, rematerialize_from};

use super::plans::{Form, Repeated};

/// The work of a plan from everything kept on, and of one that follows another for almost the same bytes.
const SEARCH: Effort = Effort::of(150_000);
const ADJUST: Effort = Effort::of(100_000);

/// A plan that leaves less than this part of its memory free is good enough: half a percent of memory is worth less than 0.1 % of time.
const ROOM: usize = 200;

/// A plan to be made. Plans of several forms are made side by side.
pub(super) struct Job<'a> {
    graph: &'a Graph,
    order: &'a [StepId],
    /// The bytes of its arena.
    goal: usize,
    begin: Begin<'a>,
}

/// Where a plan begins, and its work.
#[derive(Clone, Copy)]
enum Begin<'a> {
    /// With everything kept; if nothing is found, with another plan.
    Anew(Effort, Option<&'a Rematerialized>),
    /// With another plan; if nothing is found, with everything kept, where that has work too.
    From(&'a Rematerialized, Effort, Option<Effort>),
}

impl<'a> Job<'a> {
    /// A first plan of a form.
    pub(super) fn anew(form: &'a Form, goal: usize, effort: Effort) -> Job<'a> {
        Job { graph: &form.graph, order: &form.order, goal, begin: Begin::Anew(effort, None) }
    }

    /// A plan of a form that follows another.
    pub(super) fn from(form: &'a Form, plan: &'a Rematerialized, goal: usize, effort: Effort) -> Job<'a> {
        Job { begin: Begin::From(plan, effort, None), ..Job::anew(form, goal, effort) }
    }

    /// The plan, by this many threads.
    ///
    /// # Errors
    /// If none is found, or what is planned is wrong, which is a defect.
    pub(super) fn run(&self, threads: usize) -> Result<Rematerialized> {
        let Job { graph, order, goal, begin } = *self;
        let anew = |effort: Effort| rematerialize(graph, order, goal, effort.on_threads(threads));
        let from = |plan, effort| rematerialize_from(plan, graph, order, goal, effort);
        match begin {
            Begin::Anew(effort, None) => anew(effort),
            Begin::Anew(effort, Some(plan)) => anew(effort).or_else(|_| from(plan, effort)),
            Begin::From(plan, effort, None) => from(plan, effort),
            Begin::From(plan, effort, Some(other)) => from(plan, effort).or_else(|_| anew(other)),
        }
    }
}

/// A search. The engine's figure of the last plan decides for how many bytes the next one is made: one that needs too much is followed by one
/// for fewer, and one that leaves room by one for more.
pub(super) struct Search {
    pub(super) last: Rc<Repeated>,
    pub(super) best: Option<Rc<Repeated>>,
    limit: usize,
    /// The bytes of the arena for which the last plan was made, and the next one will be.
    goal: usize,
    next: usize,
    is_first: bool,
    pub(super) is_done: bool,
}

impl Search {
    /// A search after a first plan.
    pub(super) fn new(first: Rc<Repeated>, limit: usize) -> Search {
        let goal = first.form.goal(limit);
        let best = (first.peak <= limit).then(|| first.clone());
        Search { last: first, best, limit, goal, next: goal, is_first: true, is_done: false }
    }

    /// Decides about the next plan.
    pub(super) fn turn(&mut self) {
        if self.is_done {
            return;
        }
        let Search { last, best, limit, .. } = &*self;
        let form = &last.form;
        let fits = last.peak <= *limit;
        // What the engine needs beyond the plan, the next plan leaves free; what lies in outputs instead of the arena, it may use.
        let arena = (form.arena + last.planned_peak).saturating_sub(form.peak);
        let next = (form.goal(*limit) + last.plan.judged.peak).saturating_sub(arena);
        // One that needs too much may be far faster, since its loops could be computed in blocks: then the next one is for fewer bytes.
        let is_slower = best.as_ref().is_some_and(|best| best.time <= last.time);
        let is_enough = if fits { next <= self.goal.saturating_add(self.goal / ROOM) } else { is_slower };
        (self.next, self.is_done) = (next, is_enough && !self.is_first);
    }

    /// The next plan; `effort` gives the work of a plan in this program.
    pub(super) fn job(&self, effort: impl Fn(Effort) -> Effort) -> Job<'_> {
        let Repeated { form, plan, .. } = &*self.last;
        let (search, adjust) = (effort(SEARCH), effort(ADJUST));
        let begin = match (self.is_first, &self.best) {
            (true, _) => Begin::Anew(search, Some(plan)),
            (false, Some(_)) => Begin::From(plan, adjust, None),
            (false, None) => Begin::From(plan, adjust, Some(search)),
        };
        Job { begin, ..Job::anew(form, self.next, search) }
    }

    /// Takes the steps of the next plan, which may be the best so far, or ends if there are none.
    pub(super) fn found(&mut self, repeated: Option<Rc<Repeated>>) {
        (self.goal, self.is_first) = (self.next, false);
        let Some(repeated) = repeated else {
            self.is_done = true;
            return;
        };
        let is_faster = self.best.as_ref().is_none_or(|best| repeated.time < best.time);
        if repeated.peak <= self.limit && is_faster {
            self.best = Some(repeated.clone());
        }
        self.last = repeated;
    }
}
