//! The time of each step of a graph, as a simple machine would take it.

use crate::graph::Graph;

/// Floating point operations and bytes per second of one core: those of the cost model.
const FLOPS: f64 = 200e9;
const BYTES: f64 = 15e9;

/// Gives each step its time in picoseconds: that of moving what it reads and writes, or of its operations, whichever is longer. A step with
/// two operands or more of which its result cannot take the memory counts as the product of the first two, of `m k` and `k n` numbers in 4
/// bytes each. Its `2 m k n` operations follow from the three sizes.
///
/// ```
/// use remat_plan::examples::{Gpt, Keep, priced};
/// let graph = priced(Gpt { layers: 2, keep: Keep::All, update: false }.graph());
/// assert!(graph.steps.iter().all(|step| step.cost > 0));
/// ```
pub fn priced(mut graph: Graph) -> Graph {
    let bytes: Vec<f64> = graph.buffers.iter().map(|buffer| buffer.bytes as f64).collect();
    for step in &mut graph.steps {
        let moved: f64 = step.reads.iter().chain(&step.writes).map(|buffer| bytes[buffer.index()]).sum();
        let sizes = step.reads.iter().take(2).chain(step.writes.first()).map(|buffer| bytes[buffer.index()] / 4.0);
        let is_product = step.reads.len() > 1 && step.in_place.is_empty();
        let operations = if is_product { 2.0 * libm::sqrt(sizes.product()) } else { 0.0 };
        step.cost = 1 + (1e12 * (moved / BYTES).max(operations / FLOPS)) as u64;
    }
    graph
}
