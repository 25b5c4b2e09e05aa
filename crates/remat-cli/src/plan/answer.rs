//! The plan of a graph within a budget.

use std::time::Instant;

use anyhow::Result;
use remat::ErrorKind;
use remat_plan::{
    Effort, Expanded, MemoryPlan, Rematerialized, Schedule, StepId, plan_memory, rematerialize, schedule,
};

use super::budget::Budget;
use super::graph::Source;

/// Plans one graph for one budget after the other. Sizes are bytes of the graph, not units of the file.
pub(super) struct Planner<'s> {
    pub(super) source: &'s Source,
    order: Vec<StepId>,
    /// The peak without recomputation, and its time.
    pub(super) peak_once: usize,
    pub(super) time_once: u64,
    /// The least peak of all plans so far.
    least_peak: usize,
}

/// What was found for a budget.
pub(super) struct Answer {
    /// In bytes.
    pub(super) budget: usize,
    /// The plan, or the least peak of any that is known.
    pub(super) plan: Result<Plan, usize>,
    /// How long the search took.
    pub(super) seconds: f64,
}

/// A plan: what runs when, and where each result lies.
pub(super) struct Plan {
    pub(super) found: Rematerialized,
    pub(super) runs: Expanded,
    pub(super) memory: MemoryPlan,
}

impl Planner<'_> {
    /// A planner of a graph. Steps and buffers get an order with a low peak; nodes keep that of their numbers unless `reorder` is set.
    ///
    /// # Errors
    /// If the order is wrong, which is a defect of the planner.
    pub(super) fn new(source: &Source, reorder: bool) -> Result<Planner<'_>> {
        let graph = &source.graph;
        let order = if source.is_of_nodes && !reorder { graph.steps.indices().collect() } else { schedule(graph) };
        let once = Expanded::new(graph, &Schedule { runs: order.clone() })?.judge();
        Ok(Planner { source, order, peak_once: once.peak, time_once: once.time, least_peak: once.peak })
    }

    /// The fastest plan that is found within a budget.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect of the planner.
    pub(super) fn plan(&mut self, budget: &Budget, effort: Effort) -> Result<Answer> {
        let (graph, unit) = (&self.source.graph, self.source.unit());
        let budget = budget.of(self.peak_once / unit).saturating_mul(unit);
        let start = Instant::now();
        let plan = match rematerialize(graph, &self.order, budget, effort) {
            Ok(found) => {
                self.least_peak = self.least_peak.min(found.judged.peak);
                let runs = Expanded::new(graph, &found.schedule)?;
                let order: Vec<StepId> = runs.graph.steps.indices().collect();
                let memory = plan_memory(&runs.graph, &order)?;
                Ok(Plan { found, runs, memory })
            }
            Err(error) if error.kind() == ErrorKind::Memory => Err(self.least_peak),
            Err(error) => return Err(error.into()),
        };
        Ok(Answer { budget, plan, seconds: start.elapsed().as_secs_f64() })
    }
}

impl Plan {
    /// How many runs compute a step again.
    pub(super) fn recomputed(&self, source: &Source) -> usize {
        self.found.schedule.runs.len() - source.graph.steps.len()
    }
}
