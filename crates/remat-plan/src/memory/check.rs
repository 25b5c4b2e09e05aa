//! The checker of memory plans. The `unsafe` code that runs a plan relies on it.
//!
//! It follows the steps through the planned memory, once with all arguments kept and once with all possible arguments donated, and notes
//! which buffer each piece of memory holds. So it finds every operand that was not yet written or was overwritten, for whatever reason: two
//! live blocks that overlap, scratch memory over a value, a result in the memory of an operand that a later step reads. The time is
//! proportional to the number of operands, far less than planning takes, so every plan is checked in every build.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use oxc_index::{IndexVec, index_vec};
use remat_ir::Result;

use super::{Location, MemoryPlan, internal};
use crate::align::{ALIGNMENT, aligned};
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};

/// Checks that each step comes once, that all locations are inside of their memory, and that each step finds its operands
/// and the caller its outputs.
///
/// # Errors
/// The first fault.
pub(super) fn check(graph: &Graph, order: &[StepId], plan: &MemoryPlan) -> Result<()> {
    steps(graph, order)?;
    locations(graph, plan)?;
    Memory::new(graph, plan, false)?.follow(order)?;
    if plan.donations.is_empty() { Ok(()) } else { Memory::new(graph, plan, true)?.follow(order) }
}

/// Each step runs once, and each buffer has one writer, or none if the caller or the executable provides it.
fn steps(graph: &Graph, order: &[StepId]) -> Result<()> {
    let mut runs: IndexVec<StepId, bool> = index_vec![false; graph.steps.len()];
    for &step in order {
        match runs.get_mut(step) {
            None => return Err(internal(format!("there is no {step}"))),
            Some(runs) if *runs => return Err(internal(format!("{step} runs twice"))),
            Some(runs) => *runs = true,
        }
    }
    if let Some(step) = runs.indices().find(|&step| !runs[step]) {
        return Err(internal(format!("{step} never runs")));
    }
    let is_given = |kind| matches!(kind, BufferKind::Argument | BufferKind::Constant);
    let mut is_written: IndexVec<BufferId, bool> = graph.buffers.iter().map(|b| is_given(b.kind)).collect();
    for (step, node) in graph.steps.iter_enumerated() {
        for &buffer in &node.writes {
            if std::mem::replace(&mut is_written[buffer], true) {
                return Err(internal(format!("{step} writes {buffer}, which is written already")));
            }
        }
    }
    Ok(())
}

/// Each buffer lies inside of its memory, and so does the scratch memory of each step.
fn locations(graph: &Graph, plan: &MemoryPlan) -> Result<()> {
    if (plan.locations.len(), plan.scratch.len()) != (graph.buffers.len(), graph.steps.len()) {
        return Err(internal("buffers or steps are missing in it"));
    }
    let is_inside = |offset: usize, bytes: usize| {
        offset.is_multiple_of(ALIGNMENT) && offset.checked_add(aligned(bytes)).is_some_and(|end| end <= plan.arena)
    };
    for (buffer, node) in graph.buffers.iter_enumerated() {
        match plan.locations[buffer] {
            Location::Arena(offset) if node.kind != BufferKind::Temporary => {
                return Err(internal(format!("{buffer} is not a temporary and lies at {offset} of the arena")));
            }
            Location::Arena(offset) if !is_inside(offset, node.bytes) => {
                let bytes = node.bytes;
                return Err(internal(format!("{buffer} of {bytes} bytes at {offset} is outside of the arena")));
            }
            Location::Arena(_) => {}
            Location::Within { output, offset } => {
                let bytes = node.bytes;
                let output_bytes = match graph.buffers.get(output) {
                    Some(to) if (node.kind, to.kind) == (BufferKind::Temporary, BufferKind::Output) => to.bytes,
                    _ => return Err(internal(format!("{buffer} cannot lie in the memory of {output}"))),
                };
                let ends_inside = offset.checked_add(bytes).is_some_and(|end| end <= output_bytes);
                if !ends_inside || !offset.is_multiple_of(ALIGNMENT) {
                    return Err(internal(format!("{buffer} of {bytes} bytes at {offset} is outside of {output}")));
                }
            }
            Location::Buffer(target) if target == buffer && node.kind != BufferKind::Temporary => {}
            Location::Buffer(target) => {
                let fits = graph.buffers.get(target).is_some_and(|target| {
                    target.kind == BufferKind::Output
                        && target.bytes == node.bytes
                        && node.kind == BufferKind::Temporary
                });
                if !fits {
                    return Err(internal(format!("{buffer} cannot lie in the memory of {target}")));
                }
            }
        }
    }
    for (step, node) in graph.steps.iter_enumerated() {
        if node.scratch > 0 && !is_inside(plan.scratch[step], node.scratch) {
            let (bytes, offset) = (node.scratch, plan.scratch[step]);
            return Err(internal(format!(
                "the {bytes} bytes of scratch memory of {step} at {offset} are outside of the arena"
            )));
        }
    }
    Ok(())
}

/// The content of a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Buffer(BufferId),
    Scratch(StepId),
}

/// The pieces of a block of memory that were written, by their offsets: their ends and contents.
type Pieces = BTreeMap<usize, (usize, Holds)>;

/// The content of all memory between two steps.
struct Memory<'a> {
    graph: &'a Graph,
    plan: &'a MemoryPlan,
    arena: Pieces,
    /// The memory of each argument, constant and output.
    own: IndexVec<BufferId, Pieces>,
    /// The argument in whose memory each output lies, if it is donated.
    donated: IndexVec<BufferId, Option<BufferId>>,
}

impl<'a> Memory<'a> {
    /// The memory before the first step.
    fn new(graph: &'a Graph, plan: &'a MemoryPlan, is_donated: bool) -> Result<Memory<'a>> {
        let given = graph.buffers.iter_enumerated().map(|(buffer, node)| match node.kind {
            BufferKind::Argument | BufferKind::Constant => {
                Pieces::from([(0, (aligned(node.bytes), Holds::Buffer(buffer)))])
            }
            BufferKind::Output | BufferKind::Temporary => Pieces::new(),
        });
        let own = given.collect();
        let mut donated: IndexVec<BufferId, Option<BufferId>> = index_vec![None; graph.buffers.len()];
        let mut is_taken: IndexVec<BufferId, bool> = index_vec![false; graph.buffers.len()];
        for donation in plan.donations.iter().filter(|_| is_donated) {
            let input = donation.input;
            let Location::Buffer(output) = plan.locations[donation.output] else {
                return Err(internal(format!("{input} is donated to the arena")));
            };
            let [from, to] = [input, output].map(|buffer| graph.buffers[buffer]);
            if from.kind != BufferKind::Argument || to.kind != BufferKind::Output || from.bytes != to.bytes {
                return Err(internal(format!("{input} cannot be donated to {output}")));
            }
            if std::mem::replace(&mut is_taken[input], true) || donated[output].replace(input).is_some() {
                return Err(internal(format!("{input} is donated to {output}, and one of them twice")));
            }
        }
        Ok(Memory { graph, plan, arena: BTreeMap::new(), own, donated })
    }

    fn follow(&mut self, order: &[StepId]) -> Result<()> {
        for &step in order {
            self.step(step)?;
        }
        for (buffer, node) in self.graph.buffers.iter_enumerated() {
            if node.kind == BufferKind::Output && !self.holds(buffer) {
                return Err(internal(format!("the output {buffer} is not there in the end")));
            }
        }
        Ok(())
    }

    fn step(&mut self, step: StepId) -> Result<()> {
        let graph = self.graph;
        let node = &graph.steps[step];
        for &buffer in &node.reads {
            if !self.holds(buffer) {
                return Err(internal(format!("{step} reads {buffer}, which was not written or was overwritten")));
            }
        }
        let scratch = self.plan.scratch[step];
        if node.scratch > 0 {
            write(&mut self.arena, scratch, node.scratch, Holds::Scratch(step));
        }
        for &buffer in &node.writes {
            self.write(buffer);
        }
        if node.scratch > 0 && !holds(&self.arena, scratch, node.scratch, Holds::Scratch(step)) {
            return Err(internal(format!("a result of {step} overlaps its scratch memory")));
        }
        if let Some(buffer) = node.writes.iter().find(|&&buffer| !self.holds(buffer)) {
            return Err(internal(format!("another result of {step} overlaps {buffer}")));
        }
        for &input in node.reads.iter().filter(|&&buffer| !self.holds(buffer)) {
            let mut pairs = node.in_place.iter().filter(|pair| pair.0 == input);
            if !pairs.any(|&(_, output)| self.is_same(input, output)) {
                return Err(internal(format!("{step} overwrites its operand {input}")));
            }
        }
        Ok(())
    }

    /// Whether two buffers are one piece of memory.
    fn is_same(&self, a: BufferId, b: BufferId) -> bool {
        self.graph.buffers[a].bytes == self.graph.buffers[b].bytes && self.place(a) == self.place(b)
    }

    /// The buffer in whose memory a buffer lies, if it is not in the arena, and the offset there. The memory of an output is that of the
    /// argument that was donated to it.
    fn place(&self, buffer: BufferId) -> (Option<BufferId>, usize) {
        let (target, offset) = match self.plan.locations[buffer] {
            Location::Arena(offset) => return (None, offset),
            Location::Buffer(target) => (target, 0),
            Location::Within { output, offset } => (output, offset),
        };
        (Some(self.donated[target].unwrap_or(target)), offset)
    }

    /// Whether the memory of a buffer still holds its elements.
    fn holds(&self, buffer: BufferId) -> bool {
        let (target, offset) = self.place(buffer);
        let pieces = target.map_or(&self.arena, |target| &self.own[target]);
        let bytes = self.graph.buffers[buffer].bytes;
        bytes == 0 || holds(pieces, offset, bytes, Holds::Buffer(buffer))
    }

    fn write(&mut self, buffer: BufferId) {
        let (target, offset) = self.place(buffer);
        let pieces = target.map_or(&mut self.arena, |target| &mut self.own[target]);
        let bytes = self.graph.buffers[buffer].bytes;
        if bytes > 0 {
            write(pieces, offset, bytes, Holds::Buffer(buffer));
        }
    }
}

/// Whether the memory at this offset holds this.
fn holds(pieces: &Pieces, offset: usize, bytes: usize, what: Holds) -> bool {
    pieces.get(&offset) == Some(&(offset + aligned(bytes), what))
}

/// Writes a piece of memory. Pieces that it overlaps are lost.
fn write(pieces: &mut Pieces, offset: usize, bytes: usize, what: Holds) {
    let end = offset + aligned(bytes);
    while let Some((&start, _)) = pieces.range(..end).next_back().filter(|(_, piece)| piece.0 > offset) {
        pieces.remove(&start);
    }
    pieces.insert(offset, (end, what));
}
