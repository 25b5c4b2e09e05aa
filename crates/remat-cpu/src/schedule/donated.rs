//! The graph for callers who donate their arguments.
//!
//! A step that updates a parameter reads a gradient, which dies there, and the parameter, which dies there too. Which of the two the new
//! parameter takes the memory of makes no difference to a caller who keeps the arguments but one gradient's bytes: results need
//! memory of their own, and a gradient may lie in it from the beginning. Where the old parameters are donated, their memory serves
//! the new ones, and gradients that lie in the memory of results would be as many bytes again. So there the gradients are
//! temporaries, each of which is live from the step that computes it to its update.

use oxc_index::{IndexVec, index_vec};

use super::graph::{BufferKind, BufferNode, Graph};
use crate::ids::{BufferId, StepId};

impl Graph {
    /// This graph, in which an output takes the memory of an argument rather than that of a temporary, and is written when no other
    /// step reads the argument any more: those steps come before it by tokens of no bytes. `None` where nothing changes.
    pub(crate) fn for_donated_arguments(&self) -> Option<Graph> {
        let mut readers: IndexVec<BufferId, Vec<StepId>> = index_vec![Vec::new(); self.buffers.len()];
        for (number, step) in self.steps.iter_enumerated() {
            for &buffer in step.reads.iter().filter(|&&buffer| self.kind(buffer) == BufferKind::Argument) {
                readers[buffer].push(number);
            }
        }
        let mut graph = self.clone();
        let mut is_changed = false;
        for (number, step) in self.steps.iter_enumerated() {
            for (argument, output) in self.taken_arguments(number, &readers) {
                let pairs = &mut graph.steps[number].in_place;
                pairs.retain(|&mut (input, result)| result != output || input == argument);
                is_changed |= pairs.len() < step.in_place.len();
                for &reader in readers[argument].iter().filter(|&&reader| reader != number) {
                    let token = graph.buffers.push(BufferNode { bytes: 0, kind: BufferKind::Temporary });
                    graph.steps[reader].writes.push(token);
                    graph.steps[number].reads.push(token);
                    is_changed = true;
                }
            }
        }
        is_changed.then_some(graph)
    }

    /// The arguments that the outputs of a step can take the memory of, each once: no later step of the program's own order reads them.
    fn taken_arguments(&self, number: StepId, readers: &IndexVec<BufferId, Vec<StepId>>) -> Vec<(BufferId, BufferId)> {
        let mut taken: Vec<(BufferId, BufferId)> = Vec::new();
        for &(input, output) in &self.steps[number].in_place {
            let is_pair = self.kind(input) == BufferKind::Argument && self.kind(output) == BufferKind::Output;
            let fits = self.buffers[input].bytes == self.buffers[output].bytes;
            let is_free = taken.iter().all(|&(argument, result)| argument != input && result != output);
            if is_pair && fits && is_free && readers[input].last() == Some(&number) {
                taken.push((input, output));
            }
        }
        taken
    }

    fn kind(&self, buffer: BufferId) -> BufferKind {
        self.buffers[buffer].kind
    }
}
