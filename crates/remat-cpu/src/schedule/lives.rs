//! When each temporary is live under an order, and which of them are one piece of memory.

use super::graph::{BufferKind, Graph, aligned};

/// A value whose memory a result takes: both are one piece of memory.
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
    /// The arguments that may be taken where the caller gives them up, in the order of the steps. The result is an output
    /// or lies in the memory of one, in which nothing lay before.
    pub(crate) donations: Vec<InPlace>,
}

impl Lives {
    /// Follows the steps in this order. What a step reads last is taken by what the step writes, where the step allows it.
    pub(crate) fn new(graph: &Graph, order: &[usize]) -> Lives {
        let mut last = vec![0; graph.buffers.len()];
        for (position, &step) in order.iter().enumerate() {
            let step = &graph.steps[step];
            for &buffer in step.reads.iter().chain(&step.writes) {
                last[buffer] = position;
            }
        }
        let slots = vec![Slot::Own; graph.buffers.len()];
        let mut lives = Lives { blocks: Vec::new(), slots, in_place: Vec::new(), donations: Vec::new() };
        for (position, &number) in order.iter().enumerate() {
            let step = &graph.steps[number];
            lives.pair(graph, number, |buffer| last[buffer] == position, |buffer| last[buffer]);
            for &output in &step.writes {
                if graph.is_temporary(output) && lives.slots[output] == Slot::Own {
                    lives.slots[output] = Slot::Block(lives.blocks.len());
                    let bytes = graph.bytes(output);
                    lives.blocks.push(Block { first: position, last: last[output], bytes, output: None });
                }
            }
        }
        let Lives { blocks, slots, donations, .. } = &mut lives;
        donations.retain(|donation| match slots[donation.output] {
            Slot::Own => true,
            Slot::Block(block) => blocks[block].output.is_some(),
        });
        lives
    }

    /// Decides which of its results a step computes in place.
    fn pair(&mut self, graph: &Graph, step: usize, dies: impl Fn(usize) -> bool, last: impl Fn(usize) -> usize) {
        let (taken, given) = (self.in_place.len(), self.donations.len());
        let kind = |buffer: usize| graph.buffers[buffer].kind;
        // A temporary takes no argument in place of another temporary: whether the argument is given up is not known yet.
        for is_argument in [false, true] {
            for &(input, output) in &graph.steps[step].in_place {
                let pairs = self.in_place[taken..].iter().chain(&self.donations[given..]);
                let is_free = pairs.into_iter().all(|pair| pair.input != input && pair.output != output);
                let fits = graph.buffers[input].bytes == graph.buffers[output].bytes;
                if !is_free || !fits || !dies(input) {
                    continue;
                }
                let pair = InPlace { step, input, output };
                match kind(input) {
                    BufferKind::Temporary => self.take(pair, last(output), kind(output)),
                    BufferKind::Argument if is_argument || kind(output) == BufferKind::Output => {
                        self.donations.push(pair);
                    }
                    _ => {}
                }
            }
        }
    }

    fn take(&mut self, pair: InPlace, last: usize, kind: BufferKind) {
        let Slot::Block(number) = self.slots[pair.input] else { return };
        let block = &mut self.blocks[number];
        block.last = last;
        if kind == BufferKind::Output {
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
