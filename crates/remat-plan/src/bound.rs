//! A lower bound of the time of every schedule within a limit.
//!
//! When a step runs for the first time, each value that an earlier step has computed and a later one reads is either in memory or is
//! computed again later. So the bytes above the limit at that place have to go, at the least price at which they can: a knapsack, whose
//! fractional solution (Dantzig 1957) is a lower bound. The bound of a program is the largest of its places.

use oxc_index::{IndexVec, index_vec};

use crate::align::aligned;
use crate::graph::Graph;
use crate::ids::{BufferId, StepId};
use crate::outputs::in_outputs;

/// The least time in picoseconds beyond that of each step once that a schedule takes whose steps first run in this order and of which at most
/// `limit` bytes are live at a time. It may be less than any schedule takes.
pub fn bound(graph: &Graph, order: &[StepId], limit: usize) -> u64 {
    let mut last: IndexVec<BufferId, usize> = index_vec![0; graph.buffers.len()];
    for (place, &step) in order.iter().enumerate() {
        graph.steps[step].reads.iter().for_each(|&buffer| last[buffer] = place);
    }
    let is_in_output = in_outputs(graph);
    let counts = |&&buffer: &&BufferId| graph.is_temporary(buffer) && !is_in_output[buffer];
    // What is live across each place, by the step that has computed it.
    let mut live: Vec<StepId> = Vec::new();
    let mut most = 0.0f64;
    for (place, &number) in order.iter().enumerate() {
        let step = &graph.steps[number];
        live.retain(|&other| graph.steps[other].writes.iter().filter(counts).any(|&buffer| last[buffer] > place));
        let read = step.reads.iter().filter(counts).map(|&buffer| graph.bytes(buffer)).sum::<usize>();
        // A result may lie in the memory of an operand.
        let is_in_place = |buffer: BufferId| step.in_place.iter().any(|pair| pair.1 == buffer);
        let written =
            step.writes.iter().filter(counts).filter(|&&b| !is_in_place(b)).map(|&b| graph.bytes(b)).sum::<usize>();
        let mut items: Vec<(u64, usize)> = Vec::new();
        let mut needed = read + written + aligned(step.scratch);
        for &other in &live {
            let writer = &graph.steps[other];
            let crossing =
                writer.writes.iter().filter(counts).filter(|&&b| last[b] > place && !step.reads.contains(&b));
            let bytes = crossing.map(|&b| graph.bytes(b)).sum::<usize>();
            needed += bytes;
            if bytes > 0 && !writer.runs_once {
                items.push((writer.cost, bytes));
            }
        }
        if needed > limit {
            most = most.max(knapsack(items, needed - limit));
        }
        live.push(number);
    }
    most.floor() as u64
}

/// The least price of this many bytes of items, of which a part may be taken.
fn knapsack(mut items: Vec<(u64, usize)>, mut bytes: usize) -> f64 {
    items.sort_by(|a, b| (u128::from(a.0) * b.1 as u128).cmp(&(u128::from(b.0) * a.1 as u128)));
    let mut price = 0.0;
    for (cost, of) in items {
        let taken = of.min(bytes);
        price += cost as f64 * (taken as f64 / of as f64);
        bytes -= taken;
        if bytes == 0 {
            break;
        }
    }
    price
}
