//! Schedules the steps for a low peak of memory.
//!
//! Finding the best order is NP-complete (Sethi 1975), and the program's own order is already good: derivatives come in the reverse order
//! of their primals. So a few orders are derived from it, the one with the lowest peak is chosen, and the steps around the peak are then
//! ordered exactly.

mod flow;
mod list;
mod postorder;
#[cfg(test)]
mod tests;
mod window;

use oxc_index::index_vec;

use crate::graph::Graph;
use crate::ids::StepId;
use crate::liveness::Liveness;
use flow::Flow;
use window::WINDOW;

/// Programs with more steps get fewer candidate orders, since the time of each grows with the steps.
const LARGE: usize = 20_000;

/// How many steps the searches around the peak visit in all, which bounds their time in large programs: the peak is found again after each
/// improvement.
const REFINEMENT_STEPS: usize = 300_000;

/// How often the steps around the peak are reordered at most, which bounds their time in small programs.
const REFINEMENTS: usize = 50;

/// A schedule of the steps: each runs after the steps whose results it reads, and the peak is at most that of the program's own order.
///
/// ```
/// use remat_plan::examples::chain;
/// use remat_plan::{StepId, peak, schedule};
///
/// // A backward pass that computes all its segments again before it begins. The schedule computes each when it is needed.
/// let graph = chain(100, Some(10), 4096);
/// let given: Vec<StepId> = graph.steps.indices().collect();
/// let order = schedule(&graph);
/// assert!(peak(&graph, &order) < peak(&graph, &given) / 4);
/// ```
pub fn schedule(graph: &Graph) -> Vec<StepId> {
    let mut best = Candidate::new(graph, graph.steps.indices().collect());
    if graph.steps.len() < 3 {
        return best.order;
    }
    let flow = Flow::new(graph);
    let sunk = list::backward(&flow, &best.order, 0);
    let hoisted = list::forward(&flow, &best.order, 0);
    let mut orders = vec![list::backward(&flow, &hoisted, 0)];
    if graph.steps.len() <= LARGE {
        orders.push(list::forward(&flow, &sunk, 0));
        orders.push(list::forward(&flow, &best.order, i64::MAX));
        orders.push(list::backward(&flow, &best.order, i64::MAX));
    }
    orders.extend([sunk, hoisted]);
    for order in orders {
        best = best.or_lower(Candidate::new(graph, order));
    }
    let by_depth = postorder::postorder(&flow, &best.order);
    best = best.or_lower(Candidate::new(graph, by_depth));
    refine(&flow, &mut best);
    best.order
}

/// The most bytes of temporaries and scratch memory that are live at one time in this order, a lower bound for the arena.
///
/// ```
/// use remat_plan::examples::chain;
/// use remat_plan::{StepId, peak};
///
/// // Nine results are live when the cotangent, which takes the memory of the tenth, begins its way back.
/// let graph = chain(10, None, 4096);
/// let order: Vec<StepId> = graph.steps.indices().collect();
/// assert_eq!(peak(&graph, &order), 9 * 4096);
/// ```
pub fn peak(graph: &Graph, order: &[StepId]) -> usize {
    Liveness::new(graph, order).peak(graph, order).0
}

/// An order and its peak.
struct Candidate {
    order: Vec<StepId>,
    peak: usize,
    /// The first position at which the peak is reached.
    position: usize,
}

impl Candidate {
    fn new(graph: &Graph, order: Vec<StepId>) -> Candidate {
        let (peak, position) = Liveness::new(graph, &order).peak(graph, &order);
        Candidate { order, peak, position }
    }

    /// The candidate with the lower peak; `self` if they are equal.
    fn or_lower(self, other: Candidate) -> Candidate {
        if other.peak < self.peak { other } else { self }
    }
}

/// Reorders the steps around the peak as long as that lowers it or moves its first position later.
fn refine(flow: &Flow, best: &mut Candidate) {
    let count = best.order.len();
    let size = WINDOW.min(count);
    for _ in 0..REFINEMENTS.min(REFINEMENT_STEPS / count) {
        let mut position = index_vec![0u32; count];
        best.order.iter().enumerate().for_each(|(i, &step)| position[step] = i as u32);
        // Every third window: neighbouring ones share most of their orders.
        let starts = (0..=size).step_by(3).map(|back| best.position.saturating_sub(back).min(count - size));
        let better = starts.filter_map(|start| {
            let window = window::improve(flow, &best.order[start..start + size], &position)?;
            let mut order = best.order.clone();
            order[start..start + size].copy_from_slice(&window);
            Some(order)
        });
        // Several positions may share the peak. An improvement then moves the first one later.
        let is_better = |c: &Candidate| (c.peak, best.position) < (best.peak, c.position);
        match better.map(|order| Candidate::new(flow.graph, order)).find(is_better) {
            Some(candidate) => *best = candidate,
            None => return,
        }
    }
}
