//! Temporaries in the memory of outputs that no step has written yet.
//!
//! The caller provides the memory of an output for the whole run, and before the first step that writes it the memory is free. A temporary
//! that dies by then may lie there, and the arena needs none for it. XLA assigns buffers in this way too. For a training step this is a
//! part of what the backward pass reads: gradients are outputs, most of which are written late.
//!
//! The choice is greedy: the largest block that is live at the peak of the arena moves into an output where it fits for its whole live
//! range, until none fits.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use oxc_index::{IndexVec, index_vec};

use super::pack::timeline::Timeline;
use super::pack::{Item, gaps};
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};
use crate::liveness::{Block, BlockId, Liveness, Storage, first_peak};

/// The work for each block and section of a program: comparisons with other blocks and with outputs, of about a
/// nanosecond.
const WORK: usize = 1000;

/// Memory of an output before its first write.
struct Free {
    output: BufferId,
    bytes: usize,
    /// The position of the step that writes it first, also as a temporary that becomes the output in place.
    until: usize,
    /// The blocks in it, by their offsets.
    blocks: Vec<gaps::Block>,
}

/// Moves blocks out of the arena into outputs. Returns whether there are any.
pub(super) fn place(
    graph: &Graph,
    order: &[StepId],
    liveness: &mut Liveness,
    may_hold: impl Fn(BufferId, BufferId) -> bool,
) -> bool {
    let mut outputs = free(graph, order, liveness);
    if outputs.is_empty() {
        return false;
    }
    let mut held: IndexVec<BlockId, Vec<BufferId>> = index_vec![Vec::new(); liveness.blocks.len()];
    for (buffer, storage) in liveness.storage.iter_enumerated() {
        if let Storage::Block(block) = *storage {
            held[block].push(buffer);
        }
    }
    // The blocks of the arena come first among the items.
    let Timeline { items, mut live } = Timeline::new(&super::items(graph, order, liveness));
    let in_arena = liveness.blocks.iter_enumerated().filter(|(_, block)| block.is_in_arena());
    let mut todo: Vec<(BlockId, Item)> = in_arena.map(|(block, _)| block).zip(items).collect();
    todo.retain(|(_, item)| item.bytes > 0);
    todo.sort_by_key(|(_, item)| Reverse(item.bytes));
    let mut is_done = vec![false; todo.len()];
    let mut work = WORK * (todo.len() + live.len());
    let mut is_any = false;
    loop {
        let (_, peak) = first_peak(&live);
        let is_next =
            |(&is_done, (_, item)): (&bool, &(BlockId, Item))| !is_done && item.first <= peak && peak <= item.last;
        let Some(next) = is_done.iter().zip(&todo).position(is_next) else { break };
        is_done[next] = true;
        let (number, item) = todo[next];
        let block = liveness.blocks[number];
        let Some(&first) = held[number].first() else { continue };
        let written_earlier = outputs.partition_point(|output| output.until <= block.last);
        let others = &mut outputs[written_earlier..];
        let compared = others.iter().map(|output| 1 + output.blocks.len()).sum::<usize>();
        let Some(left) = work.checked_sub(live.len() + next + compared) else { break };
        work = left;
        let fits = |output: &Free| {
            let is_allowed = |&buffer: &BufferId| may_hold(output.output, buffer);
            output.offset(&block, graph.buffers[first].bytes).filter(|_| held[number].iter().all(is_allowed))
        };
        // The output that is written first leaves the others to blocks that are live for longer.
        if let Some((offset, output)) = others.iter_mut().find_map(|output| Some((fits(output)?, output))) {
            output.hold(&block, offset);
            liveness.blocks[number].within = Some((output.output, offset));
            live[item.first..=item.last].iter_mut().for_each(|live| *live -= item.bytes);
            is_any = true;
        }
    }
    is_any
}

/// The outputs that have free memory, by the steps that write them first. Those that may lie in the memory of a donated argument have none.
fn free(graph: &Graph, order: &[StepId], liveness: &Liveness) -> Vec<Free> {
    let mut until: IndexVec<BufferId, usize> = index_vec![0; graph.buffers.len()];
    for (position, &step) in order.iter().enumerate() {
        graph.steps[step].writes.iter().for_each(|&buffer| until[buffer] = position);
    }
    for block in &liveness.blocks {
        if let Some(output) = block.output {
            until[output] = block.first;
        }
    }
    for donation in &liveness.donations {
        let output = match liveness.storage[donation.output] {
            Storage::Own => Some(donation.output),
            Storage::Block(block) => liveness.blocks[block].output,
        };
        output.into_iter().for_each(|output| until[output] = 0);
    }
    let outputs = graph.buffers.iter_enumerated().filter(|(_, node)| node.kind == BufferKind::Output && node.bytes > 0);
    let outputs =
        outputs.map(|(output, node)| Free { output, bytes: node.bytes, until: until[output], blocks: Vec::new() });
    let mut outputs: Vec<Free> = outputs.filter(|output| output.until > 0).collect();
    outputs.sort_by_key(|output| output.until);
    outputs
}

impl Free {
    /// The offset at which a block that ends before the first write, with this many bytes of elements, fits, if there is one.
    fn offset(&self, block: &Block, bytes: usize) -> Option<usize> {
        if self.bytes < bytes {
            return None;
        }
        let is_near = |other: &&gaps::Block| other.first <= block.last && block.first <= other.last;
        let near: Vec<gaps::Block> = self.blocks.iter().filter(is_near).copied().collect();
        Some(gaps::gap(&near, block.bytes)).filter(|&offset| offset <= self.bytes - bytes)
    }

    fn hold(&mut self, &Block { first, last, bytes, .. }: &Block, offset: usize) {
        let at = self.blocks.partition_point(|other| other.offset <= offset);
        self.blocks.insert(at, gaps::Block { first, last, offset, end: offset + bytes });
    }
}
