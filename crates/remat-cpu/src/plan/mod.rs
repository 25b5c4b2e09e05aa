//! The places of all buffers: temporaries and scratch memory in one arena.

mod pack;
#[cfg(test)]
mod tests;

use crate::schedule::{Graph, InPlace, Lives, Slot};

use pack::Item;

/// Where everything lies while the steps run in a given order.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The place of each buffer.
    pub(crate) places: Vec<Place>,
    /// The offset in the arena of each step's scratch memory.
    pub(crate) scratch: Vec<usize>,
    /// The bytes of the arena.
    pub(crate) arena: usize,
    /// The bytes of temporaries and scratch memory that are live at the peak: no arena is smaller.
    #[allow(dead_code, reason = "tests and benchmarks compare plans by it")]
    pub(crate) peak: usize,
    /// What is live at the peak: temporaries that lie in the arena, and scratch memory, largest first.
    pub(crate) live: Vec<Live>,
    /// The temporaries whose memory a result takes.
    #[allow(dead_code, reason = "tests check that each was allowed")]
    pub(crate) in_place: Vec<InPlace>,
    /// The arguments whose memory a result may take, if the caller gives them up: then the output in whose memory the
    /// result lies has the argument's.
    pub(crate) donations: Vec<InPlace>,
}

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At this offset of the arena.
    Arena(usize),
    /// In the memory of this argument, constant or output: its own, or that of the output that it becomes in place.
    Buffer(usize),
}

/// What takes memory of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Live {
    Buffer { buffer: usize, bytes: usize },
    Scratch { step: usize, bytes: usize },
}

impl Live {
    /// The bytes that it needs.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Live::Buffer { bytes, .. } | Live::Scratch { bytes, .. } => bytes,
        }
    }
}

/// Plans the memory of the steps in this order.
pub(crate) fn plan(graph: &Graph, order: &[usize]) -> Plan {
    let lives = Lives::new(graph, order);
    let (peak, position) = lives.peak(graph, order);
    let items = items(graph, order, &lives);
    let packed = pack::pack(&items, peak, position);
    let mut offsets = packed.offsets.iter().copied();
    let blocks: Vec<Place> = lives
        .blocks
        .iter()
        .map(|block| match block.output {
            Some(output) => Place::Buffer(output),
            None => Place::Arena(offsets.next().unwrap_or(0)),
        })
        .collect();
    let mut scratch = vec![0; order.len()];
    for (&step, offset) in order.iter().filter(|&&step| graph.steps[step].scratch > 0).zip(offsets) {
        scratch[step] = offset;
    }
    let places = lives.slots.iter().enumerate().map(|(buffer, &slot)| match slot {
        Slot::Block(block) => blocks[block],
        Slot::Own => Place::Buffer(buffer),
    });
    let places = places.collect();
    let live = live(graph, order, &lives, position);
    Plan { places, scratch, arena: packed.size, peak, live, in_place: lives.in_place, donations: lives.donations }
}

/// What has to be packed: first the blocks of the arena, then the scratch memory of each step that needs any, in order.
fn items(graph: &Graph, order: &[usize], lives: &Lives) -> Vec<Item> {
    let blocks = lives.blocks.iter().filter(|block| block.output.is_none());
    let blocks = blocks.map(|b| Item { first: b.first, last: b.last, bytes: b.bytes });
    let scratch = order.iter().enumerate().filter(|&(_, &step)| graph.steps[step].scratch > 0);
    let scratch = scratch.map(|(i, &step)| Item {
        first: i,
        last: i,
        bytes: crate::schedule::aligned(graph.steps[step].scratch),
    });
    blocks.chain(scratch).collect()
}

/// What is live at a position, largest first.
fn live(graph: &Graph, order: &[usize], lives: &Lives, position: usize) -> Vec<Live> {
    // Of the temporaries that share a block, the one that the block holds then: the last that was written.
    let mut holds: Vec<Option<usize>> = vec![None; lives.blocks.len()];
    for &step in order.iter().take(position + 1) {
        for &buffer in &graph.steps[step].writes {
            if let Slot::Block(block) = lives.slots[buffer] {
                holds[block] = Some(buffer);
            }
        }
    }
    let held = lives.blocks.iter().zip(holds).filter(|(block, _)| block.output.is_none() && block.last >= position);
    let buffers = held.filter_map(|(_, buffer)| buffer);
    let mut live: Vec<Live> =
        buffers.map(|buffer| Live::Buffer { buffer, bytes: graph.buffers[buffer].bytes }).collect();
    if let Some(&step) = order.get(position) {
        live.push(Live::Scratch { step, bytes: graph.steps[step].scratch });
    }
    live.retain(|l| l.bytes() > 0);
    live.sort_by_key(|l| std::cmp::Reverse(l.bytes()));
    live
}
