//! The graph for callers who donate their arguments.
//!
//! A step that updates a parameter reads a gradient and the parameter, and both die there; the new parameter can take the memory of either.
//! If the caller keeps the arguments, the gradient is the better choice: results need memory of their own, and the gradient can lie in it
//! from the beginning, which saves its bytes. If the caller donates the old parameters, the new ones take their memory, and gradients in
//! the memory of results would need the same bytes again. In this graph the gradients are therefore temporaries, each live from the step
//! that computes it to its update.

use oxc_index::{IndexVec, index_vec};

use crate::graph::{BufferKind, BufferNode, Graph};
use crate::ids::{BufferId, StepId};

impl Graph {
    /// This graph with each output taking the memory of an argument rather than of a temporary, where it can. The output is written after
    /// all other readers of the argument, which is expressed by tokens of no bytes. `None` if nothing changes.
    pub fn for_donated_arguments(&self) -> Option<Graph> {
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

    /// The arguments whose memory the outputs of a step can take, each once. No later step in the program's order reads them.
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
