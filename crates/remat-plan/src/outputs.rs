//! The temporaries that lie in the memory of an output in every order.

use oxc_index::{IndexVec, index_vec};

use crate::graph::{BufferKind, Graph};
use crate::ids::BufferId;

/// The temporaries that are certain to lie in the memory of an output. A temporary with one reader dies there in any order, so it is known
/// before the order is that a result takes its memory: an output, or another such temporary.
pub(crate) fn in_outputs(graph: &Graph) -> IndexVec<BufferId, bool> {
    let mut readers: IndexVec<BufferId, u32> = index_vec![0; graph.buffers.len()];
    graph.steps.iter().flat_map(|step| &step.reads).for_each(|&buffer| readers[buffer] += 1);
    let mut is_output: IndexVec<BufferId, bool> = graph.buffers.iter().map(|b| b.kind == BufferKind::Output).collect();
    let mut is_in_output: IndexVec<BufferId, bool> = index_vec![false; graph.buffers.len()];
    for step in graph.steps.iter().rev() {
        for &(input, output) in &step.in_place {
            let fits = graph.buffers[input].bytes == graph.buffers[output].bytes;
            if !fits || !is_output[output] {
                continue;
            }
            if graph.buffers[input].kind == BufferKind::Argument {
                // The output may lie in the memory of the argument.
                is_output[output] = false;
            } else if graph.is_temporary(input) && readers[input] == 1 && !is_output[input] {
                is_in_output[input] = true;
                is_output[input] = true;
                is_output[output] = false;
            }
        }
    }
    is_in_output
}
