//! Saved sets by a knapsack, in the way of PyTorch's partitioner with an `activation_memory_budget`: of the values that the forward pass
//! computes and the backward pass reads, those are saved that would take the most time to compute again for a number of bytes. Each value counts
//! with the time of its own step alone. The backward pass computes the rest again when it first reads it, with what that needs, once.

use remat_plan::{BufferId, Graph, Schedule, StepId};

/// The parts into which the budget is divided.
const PARTS: usize = 1000;

/// The schedule with saved values of at most this many bytes. The true peak is higher, and need not grow with the budget.
pub(crate) fn schedule(graph: &Graph, order: &[StepId], loss: StepId, budget: usize) -> Option<Schedule> {
    let places = super::places(graph, order);
    let is_forward = |step: StepId| places[step.index()] <= places[loss.index()];
    let mut writer = vec![None; graph.buffers.len()];
    for (number, step) in graph.steps.iter_enumerated() {
        step.writes.iter().for_each(|buffer| writer[buffer.index()] = Some(number));
    }
    let backward = graph.steps.iter_enumerated().filter(|&(number, _)| !is_forward(number));
    let mut items: Vec<BufferId> = backward.flat_map(|(_, step)| step.reads.iter().copied()).collect();
    items.sort();
    items.dedup();
    items.retain(|&b| graph.is_temporary(b) && writer[b.index()].is_some_and(is_forward));
    let cost = |buffer: BufferId| writer[buffer.index()].map_or(0, |step| graph.steps[step].cost);
    let mut is_saved = vec![false; graph.buffers.len()];
    for i in knapsack(&items.iter().map(|&b| (graph.bytes(b), cost(b))).collect::<Vec<_>>(), budget) {
        is_saved[items[i].index()] = true;
    }
    // What must not run again is saved in any case.
    for (buffer, writer) in writer.iter().enumerate() {
        is_saved[buffer] |= writer.is_some_and(|step| graph.steps[step].runs_once);
    }
    let mut runs = Vec::new();
    for &step in order {
        if !is_forward(step) {
            let mut needed = vec![(step, false)];
            // Operands before what reads them.
            while let Some((at, is_ready)) = needed.pop() {
                if is_ready {
                    if at != step && graph.steps[at].writes.iter().any(|b| !is_saved[b.index()]) {
                        runs.push(at);
                        graph.steps[at].writes.iter().for_each(|b| is_saved[b.index()] = true);
                    }
                    continue;
                }
                needed.push((at, true));
                for read in graph.steps[at].reads.iter().filter(|&&b| graph.is_temporary(b) && !is_saved[b.index()]) {
                    needed.extend(writer[read.index()].filter(|&step| is_forward(step)).map(|step| (step, false)));
                }
            }
        }
        runs.push(step);
    }
    Some(Schedule { runs })
}

/// Indices of items of bytes and worth that are worth the most together within a budget. Sizes are rounded up.
fn knapsack(items: &[(usize, u64)], budget: usize) -> Vec<usize> {
    let part = budget.div_ceil(PARTS).max(1);
    let sizes: Vec<usize> = items.iter().map(|(bytes, _)| bytes.div_ceil(part)).collect();
    let parts = budget / part;
    let mut best = vec![0u64; parts + 1];
    let mut is_taken = vec![vec![false; parts + 1]; items.len()];
    for (i, &(_, worth)) in items.iter().enumerate() {
        for room in (sizes[i]..=parts).rev() {
            let with = best[room - sizes[i]] + worth;
            if with > best[room] {
                best[room] = with;
                is_taken[i][room] = true;
            }
        }
    }
    let mut room = parts;
    let mut taken = Vec::new();
    for i in (0..items.len()).rev() {
        if is_taken[i][room] {
            room -= sizes[i];
            taken.push(i);
        }
    }
    taken
}
