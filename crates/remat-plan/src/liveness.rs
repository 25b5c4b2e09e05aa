//! Live ranges of temporaries in a given order, and which temporaries share memory.

use oxc_index::{IndexVec, define_index_type, index_vec};

use crate::align::aligned;
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};

define_index_type! {
    /// A block.
    pub struct BlockId = u32;
}

/// A value whose memory a result takes, so that both share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InPlace {
    /// The step that computes the result, and the last one that reads the value.
    pub step: StepId,
    /// The value.
    pub input: BufferId,
    /// The result.
    pub output: BufferId,
}

/// Memory that temporaries share: a temporary and those that take it in place, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// The positions in the order at which it is live: from `first` to `last`, both included.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) bytes: usize,
    /// The output that the last of them is, if it is one. The memory is then the output's, not part of the arena.
    pub(crate) output: Option<BufferId>,
    /// The output in whose memory the block lies before a step writes it, and the offset there, if it was moved out of the arena.
    pub(crate) within: Option<(BufferId, usize)>,
}

impl Block {
    /// Whether it is a part of the arena.
    pub(crate) fn is_in_arena(&self) -> bool {
        self.output.is_none() && self.within.is_none()
    }
}

/// The storage of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Storage {
    /// In this block.
    Block(BlockId),
    /// In memory of its own: an argument, a constant, an output that takes no temporary.
    Own,
}

/// The live ranges of all temporaries.
pub(crate) struct Liveness {
    pub(crate) blocks: IndexVec<BlockId, Block>,
    /// The storage of each buffer.
    pub(crate) storage: IndexVec<BufferId, Storage>,
    /// The temporaries whose memory a result takes, in the order of the steps.
    pub(crate) in_place: Vec<InPlace>,
    /// The arguments whose memory a result takes if the caller donates them, in the order of the steps. The result is an output, or lies in
    /// the memory of an output that held nothing before.
    pub(crate) donations: Vec<InPlace>,
}

impl Liveness {
    /// Follows the steps in this order. At the last reader of a buffer, a result may take its memory if the step allows that.
    pub(crate) fn new(graph: &Graph, order: &[StepId]) -> Liveness {
        let mut last = index_vec![0; graph.buffers.len()];
        for (position, &step) in order.iter().enumerate() {
            let step = &graph.steps[step];
            for &buffer in step.reads.iter().chain(&step.writes) {
                last[buffer] = position;
            }
        }
        let mut liveness = Liveness {
            blocks: IndexVec::new(),
            storage: index_vec![Storage::Own; graph.buffers.len()],
            in_place: Vec::new(),
            donations: Vec::new(),
        };
        for (position, &number) in order.iter().enumerate() {
            let step = &graph.steps[number];
            liveness.pair(graph, number, |buffer| last[buffer] == position, |buffer| last[buffer]);
            for &output in &step.writes {
                if graph.is_temporary(output) && liveness.storage[output] == Storage::Own {
                    let bytes = graph.bytes(output);
                    let block = Block { first: position, last: last[output], bytes, output: None, within: None };
                    liveness.storage[output] = Storage::Block(liveness.blocks.push(block));
                }
            }
        }
        let Liveness { blocks, storage, donations, .. } = &mut liveness;
        donations.retain(|donation| match storage[donation.output] {
            Storage::Own => true,
            Storage::Block(block) => blocks[block].output.is_some(),
        });
        liveness
    }

    /// Decides which results of a step are computed in place.
    fn pair(&mut self, graph: &Graph, step: StepId, dies: impl Fn(BufferId) -> bool, last: impl Fn(BufferId) -> usize) {
        let (taken, given) = (self.in_place.len(), self.donations.len());
        let kind = |buffer: BufferId| graph.buffers[buffer].kind;
        // A temporary never takes an argument rather than another temporary, since it is not known yet whether the argument is donated.
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
        let Storage::Block(number) = self.storage[pair.input] else { return };
        let block = &mut self.blocks[number];
        block.last = last;
        if kind == BufferKind::Output {
            block.output = Some(pair.output);
        }
        self.storage[pair.output] = Storage::Block(number);
        self.in_place.push(pair);
    }

    /// The live bytes of the arena while each step runs, including scratch memory.
    pub(crate) fn timeline(&self, graph: &Graph, order: &[StepId]) -> Vec<usize> {
        let mut change = vec![0isize; order.len() + 1];
        for block in self.blocks.iter().filter(|block| block.is_in_arena()) {
            change[block.first] += block.bytes as isize;
            change[block.last + 1] -= block.bytes as isize;
        }
        let mut live = 0;
        let at = |(position, &step): (usize, &StepId)| {
            live += change[position];
            live as usize + aligned(graph.steps[step].scratch)
        };
        order.iter().enumerate().map(at).collect()
    }

    /// The most live bytes of the arena at one time, including scratch memory, and the first position at which they occur.
    pub(crate) fn peak(&self, graph: &Graph, order: &[StepId]) -> (usize, usize) {
        first_peak(&self.timeline(graph, order))
    }
}

/// The largest number, and the first position that has it.
pub(crate) fn first_peak(timeline: &[usize]) -> (usize, usize) {
    let larger = |peak: (usize, usize), (position, &bytes): (usize, &usize)| {
        if bytes > peak.0 { (bytes, position) } else { peak }
    };
    timeline.iter().enumerate().fold((0, 0), larger)
}
