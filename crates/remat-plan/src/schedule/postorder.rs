//! Depth-first scheduling: each step comes after its operands, the most demanding operand first.
//!
//! For expression trees this is optimal (Sethi and Ullman 1970; for results of different sizes Liu 1987): an operand whose
//! computation needs much memory and leaves little comes first, while nothing else is held. In other graphs it is a
//! heuristic, as XLA's `DFSMemoryScheduler`.

use std::cmp::Reverse;

use oxc_index::{IndexVec, index_vec};

use super::flow::Flow;
use crate::align::aligned;
use crate::ids::StepId;

/// Schedules the steps that each result needs, results in the given order.
pub(super) fn postorder(flow: &Flow, order: &[StepId]) -> Vec<StepId> {
    let needs = needs(flow, order);
    let writes = |step: StepId| flow.graph.steps[step].writes.iter();
    let mut scheduled = Vec::with_capacity(order.len());
    let mut is_visited: IndexVec<StepId, bool> = index_vec![false; order.len()];
    let mut stack = Vec::new();
    for &root in order.iter().filter(|&&step| writes(step).all(|&b| flow.readers(b).is_empty())) {
        stack.push((root, false));
        while let Some((step, is_ready)) = stack.pop() {
            if is_ready {
                scheduled.push(step);
                continue;
            }
            if std::mem::replace(&mut is_visited[step], true) {
                continue;
            }
            stack.push((step, true));
            let first = stack.len();
            let writers = flow.inputs(step).filter_map(|b| flow.writer(b));
            stack.extend(writers.filter(|&w| !is_visited[w]).map(|w| (w, false)));
            // The last one on the stack is visited first.
            stack[first..].sort_by_key(|&(writer, _)| needs[writer].excess());
        }
    }
    scheduled
}

/// The memory that a step and all steps that it depends on need.
#[derive(Clone, Copy, Default)]
struct Need {
    /// The bytes live at the peak.
    peak: i64,
    /// The bytes of its results.
    result: i64,
}

impl Need {
    fn excess(self) -> i64 {
        self.peak - self.result
    }
}

/// The memory that each step needs if no two steps share an operand.
fn needs(flow: &Flow, order: &[StepId]) -> IndexVec<StepId, Need> {
    let mut needs: IndexVec<StepId, Need> = index_vec![Need::default(); order.len()];
    let mut writers: Vec<StepId> = Vec::new();
    for &number in order {
        let step = &flow.graph.steps[number];
        writers.clear();
        writers.extend(flow.inputs(number).filter_map(|b| flow.writer(b)));
        writers.sort_unstable();
        writers.dedup();
        writers.sort_by_key(|&w| Reverse(needs[w].excess()));
        let (mut held, mut peak) = (0, 0);
        for &writer in &writers {
            peak = peak.max(held + needs[writer].peak);
            held += needs[writer].result;
        }
        let result = step.writes.iter().map(|&b| flow.weight[b]).sum();
        needs[number] = Need { peak: peak.max(held + result + aligned(step.scratch) as i64), result };
    }
    needs
}
