//! When each temporary is live under an order, and which of them are one piece of memory.

use super::graph::{BufferKind, Graph, aligned};

/// A temporary that is taken by a result: both are one piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct InPlace {
    pub(crate) step: usize,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// One piece of memory: a temporary and those that take it in place, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// The positions in the order at which it is live: from `first` to `last`, both included.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) bytes: usize,
    /// The output of the program that the last of them is: then the memory is the output's and no part of the arena.
    pub(crate) output: Option<usize>,
}

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// In this block.
    Block(usize),
    /// In memory of its own: an argument, a constant, an output that takes no temporary.
    Own,
}

/// The lives of all temporaries.
pub(crate) struct Lives {
    pub(crate) blocks: Vec<Block>,
    /// Where each buffer lies.
    pub(crate) slots: Vec<Slot>,
    /// The temporaries that are taken, in the order of the steps.
    pub(crate) in_place: Vec<InPlace>,
}

impl Lives {
    /// Follows the steps in this order. A temporary that a step reads last is taken by what the step writes, where the
    /// step allows it.
    pub(crate) fn new(graph: &Graph, order: &[usize]) -> Lives {
        let mut last = vec![0; graph.buffers.len()];
        for (position, &step) in order.iter().enumerate() {
            let step = &graph.steps[step];
            for &buffer in step.reads.iter().chain(&step.writes) {
                last[buffer] = position;
            }
        }
        let mut lives = Lives { blocks: Vec::new(), slots: vec![Slot::Own; graph.buffers.len()], in_place: Vec::new() };
        for (position, &number) in order.iter().enumerate() {
            let step = &graph.steps[number];
            let taken = lives.in_place.len();
            for &(input, output) in &step.in_place {
                let is_free = lives.in_place[taken..].iter().all(|t| t.input != input && t.output != output);
                let dies = graph.is_temporary(input) && last[input] == position;
                if is_free && dies && graph.bytes(input) == graph.bytes(output) {
                    lives.take(graph, InPlace { step: number, input, output }, last[output]);
                }
            }
            for &output in &step.writes {
                if graph.is_temporary(output) && lives.slots[output] == Slot::Own {
                    lives.slots[output] = Slot::Block(lives.blocks.len());
                    let bytes = graph.bytes(output);
                    lives.blocks.push(Block { first: position, last: last[output], bytes, output: None });
                }
            }
        }
        lives
    }

    fn take(&mut self, graph: &Graph, pair: InPlace, last: usize) {
        let Slot::Block(number) = self.slots[pair.input] else { return };
        let block = &mut self.blocks[number];
        block.last = last;
        if graph.buffers[pair.output].kind == BufferKind::Output {
            block.output = Some(pair.output);
        }
        self.slots[pair.output] = Slot::Block(number);
        self.in_place.push(pair);
    }

    /// The most bytes that are live at one time in the arena, scratch memory with them, and the first position at which
    /// they are.
    pub(crate) fn peak(&self, graph: &Graph, order: &[usize]) -> (usize, usize) {
        let mut change = vec![0isize; order.len() + 1];
        for block in self.blocks.iter().filter(|block| block.output.is_none()) {
            change[block.first] += block.bytes as isize;
            change[block.last + 1] -= block.bytes as isize;
        }
        let mut live = 0;
        let mut peak = (0, 0);
        for (position, &step) in order.iter().enumerate() {
            live += change[position];
            let bytes = live as usize + aligned(graph.steps[step].scratch);
            if bytes > peak.0 {
                peak = (bytes, position);
            }
        }
        peak
    }
}
