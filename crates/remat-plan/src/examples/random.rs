//! Random graphs for tests.

use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::BufferId;
use crate::random::SplitMix;

/// A generator of random numbers that are the same on every machine. The field is the seed, and then the state.
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let mut bits = SplitMix(self.0);
        let number = bits.next() % end as u64;
        self.0 = bits.0;
        number as usize
    }

    /// Returns true once in `n` times on average.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number of bytes: often 0, often one of a few values so that buffers fit each other.
    fn bytes(&mut self) -> usize {
        match self.below(8) {
            0 => 0,
            1 => self.below(2000),
            _ => 64 << self.below(4),
        }
    }

    /// A graph of `steps` steps with buffers of every kind, results that no step reads, scratch memory and pairs that may
    /// share memory.
    pub fn graph(&mut self, steps: usize) -> Graph {
        let mut graph = Graph::default();
        for kind in [BufferKind::Argument, BufferKind::Argument, BufferKind::Constant] {
            graph.buffers.push(BufferNode { bytes: self.bytes(), kind });
        }
        for _ in 0..steps {
            let mut step = StepNode::default();
            for _ in 0..self.below(4) {
                let count = graph.buffers.len();
                // Mostly buffers that were written a short time ago.
                let read = if self.once_in(3) { self.below(count) } else { count - 1 - self.below(count.min(4)) };
                let read = BufferId::new(read);
                if !step.reads.contains(&read) {
                    step.reads.push(read);
                }
            }
            for _ in 0..1 + self.below(5) / 3 {
                let kind = if self.once_in(6) { BufferKind::Output } else { BufferKind::Temporary };
                let like = step.reads.first().filter(|_| self.once_in(2)).map(|&read| graph.buffers[read].bytes);
                let bytes = like.unwrap_or_else(|| self.bytes());
                let buffer = graph.buffers.push(BufferNode { bytes, kind });
                step.writes.push(buffer);
                for &read in &step.reads {
                    if self.once_in(2) {
                        step.in_place.push((read, buffer));
                    }
                }
            }
            if self.once_in(4) {
                step.scratch = self.bytes();
            }
            graph.steps.push(step);
        }
        graph
    }
}
