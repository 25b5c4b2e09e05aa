//! The writer and the readers of each buffer, and its weight.

use oxc_index::{IndexVec, index_vec};

use crate::graph::Graph;
use crate::ids::{BufferId, StepId};
use crate::outputs::in_outputs;

/// The dependencies of a graph.
pub(super) struct Flow<'g> {
    pub(super) graph: &'g Graph,
    /// The bytes that each buffer adds to the arena while it is live. A buffer that is certain to lie in the memory of an output weighs
    /// nothing, nor does one that no step reads.
    pub(super) weight: IndexVec<BufferId, i64>,
    /// The step that writes each buffer, if one does.
    writer: IndexVec<BufferId, Option<StepId>>,
    /// The readers of all buffers, one buffer after the other, each in the program's order.
    readers: Vec<StepId>,
    /// The range of each buffer's readers in that list.
    ranges: IndexVec<BufferId, (u32, u32)>,
}

impl<'g> Flow<'g> {
    pub(super) fn new(graph: &'g Graph) -> Flow<'g> {
        let count = graph.buffers.len();
        let mut writer = index_vec![None; count];
        let mut ranges = index_vec![(0u32, 0u32); count];
        for (number, step) in graph.steps.iter_enumerated() {
            for &buffer in &step.writes {
                writer[buffer] = Some(number);
            }
            for &buffer in &step.reads {
                ranges[buffer].1 += 1;
            }
        }
        let mut end = 0;
        for range in &mut ranges {
            // Empty at first; it grows as readers are added.
            let start = end;
            end += range.1;
            *range = (start, start);
        }
        let mut readers = vec![StepId::new(0); end as usize];
        for (number, step) in graph.steps.iter_enumerated() {
            for &buffer in &step.reads {
                readers[ranges[buffer].1 as usize] = number;
                ranges[buffer].1 += 1;
            }
        }
        let mut flow = Flow { graph, weight: IndexVec::new(), writer, readers, ranges };
        flow.weight = flow.weights();
        flow
    }

    /// The weight of each buffer.
    fn weights(&self) -> IndexVec<BufferId, i64> {
        let is_in_output = in_outputs(self.graph);
        let weighs = |b: BufferId| self.graph.is_temporary(b) && !self.readers(b).is_empty() && !is_in_output[b];
        self.graph.buffers.indices().map(|b| if weighs(b) { self.graph.bytes(b) as i64 } else { 0 }).collect()
    }

    /// The steps that read a buffer.
    pub(super) fn readers(&self, buffer: BufferId) -> &[StepId] {
        let (start, end) = self.ranges[buffer];
        &self.readers[start as usize..end as usize]
    }

    /// The step that writes a buffer, if one does.
    pub(super) fn writer(&self, buffer: BufferId) -> Option<StepId> {
        self.writer[buffer]
    }

    /// The buffers that a step reads and another step writes.
    pub(super) fn inputs(&self, step: StepId) -> impl Iterator<Item = BufferId> {
        self.graph.steps[step].reads.iter().copied().filter(|&b| self.writer[b].is_some())
    }
}
