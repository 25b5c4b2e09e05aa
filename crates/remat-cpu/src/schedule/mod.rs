//! The order of the steps: a low peak of memory.

mod graph;
mod lives;
#[cfg(test)]
pub(crate) mod random;

pub(crate) use graph::{BufferKind, BufferNode, Graph, StepNode, aligned};
pub(crate) use lives::{Block, InPlace, Lives, Slot};

/// An order of the steps in which each runs after those whose results it reads, and whose peak is at most that of the
/// program's own order.
pub(crate) fn schedule(graph: &Graph) -> Vec<usize> {
    (0..graph.steps.len()).collect()
}

/// The most bytes of temporaries that are live at one time when the steps run in this order: no arena is smaller.
pub(crate) fn peak(graph: &Graph, order: &[usize]) -> usize {
    Lives::new(graph, order).peak(graph, order).0
}
