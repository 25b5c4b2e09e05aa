//! Who writes and who reads each buffer, and what it weighs.

use super::graph::{BufferKind, Graph};

/// The dependencies of a graph.
pub(super) struct Flow<'g> {
    pub(super) graph: &'g Graph,
    /// The bytes that each buffer adds to the arena while it is live. What surely ends in the memory of an output weighs
    /// nothing, and neither does what nobody reads.
    pub(super) weight: Vec<i64>,
    /// The step that writes each buffer, if one does.
    writer: Vec<Option<u32>>,
    /// The readers of buffer `b` are `readers[starts[b]..starts[b + 1]]`, in the program's order.
    starts: Vec<u32>,
    readers: Vec<u32>,
}

impl<'g> Flow<'g> {
    pub(super) fn new(graph: &'g Graph) -> Flow<'g> {
        let count = graph.buffers.len();
        let mut writer = vec![None; count];
        let mut starts = vec![0u32; count + 1];
        for (number, step) in graph.steps.iter().enumerate() {
            for &buffer in &step.writes {
                writer[buffer] = Some(number as u32);
            }
            for &buffer in &step.reads {
                starts[buffer + 1] += 1;
            }
        }
        for buffer in 0..count {
            starts[buffer + 1] += starts[buffer];
        }
        let mut readers = vec![0u32; starts[count] as usize];
        let mut next = starts.clone();
        for (number, step) in graph.steps.iter().enumerate() {
            for &buffer in &step.reads {
                readers[next[buffer] as usize] = number as u32;
                next[buffer] += 1;
            }
        }
        let mut flow = Flow { graph, weight: Vec::new(), writer, starts, readers };
        flow.weight = flow.weights();
        flow
    }

    /// A temporary with one reader dies there in any order, so that what it becomes in place is known without one.
    fn weights(&self) -> Vec<i64> {
        let graph = self.graph;
        let in_arena = |b: usize| graph.is_temporary(b) && !self.readers(b).is_empty();
        let mut weight: Vec<i64> =
            (0..graph.buffers.len()).map(|b| if in_arena(b) { graph.bytes(b) as i64 } else { 0 }).collect();
        let mut is_output: Vec<bool> = graph.buffers.iter().map(|b| b.kind == BufferKind::Output).collect();
        for step in graph.steps.iter().rev() {
            for &(input, output) in &step.in_place {
                let fits = graph.buffers[input].bytes == graph.buffers[output].bytes;
                if !fits || !is_output[output] {
                    continue;
                }
                if graph.buffers[input].kind == BufferKind::Argument {
                    // The output may be the argument's memory.
                    is_output[output] = false;
                } else if in_arena(input) && self.readers(input).len() == 1 && !is_output[input] {
                    weight[input] = 0;
                    is_output[input] = true;
                    is_output[output] = false;
                }
            }
        }
        weight
    }

    /// The steps that read a buffer.
    pub(super) fn readers(&self, buffer: usize) -> &[u32] {
        &self.readers[self.starts[buffer] as usize..self.starts[buffer + 1] as usize]
    }

    /// The step that writes a buffer, if one does.
    pub(super) fn writer(&self, buffer: usize) -> Option<usize> {
        self.writer[buffer].map(|step| step as usize)
    }

    /// What a step reads that another step writes.
    pub(super) fn inputs(&self, step: usize) -> impl Iterator<Item = usize> {
        self.graph.steps[step].reads.iter().copied().filter(|&b| self.writer[b].is_some())
    }
}
