//! The memory plan: temporaries and scratch memory get offsets in one arena, and some temporaries in outputs that are not yet written.

pub(crate) mod check;
mod pack;
#[cfg(test)]
mod tests;
mod within;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Error, ErrorKind, Result};

use crate::align::aligned;
use crate::graph::Graph;
use crate::ids::{BufferId, StepId};
use crate::liveness::{BlockId, InPlace, Liveness, Storage, first_peak};

use pack::Item;

/// The memory of all buffers while the steps run in a given order.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// The location of each buffer.
    pub locations: IndexVec<BufferId, Location>,
    /// The offset in the arena of each step's scratch memory.
    pub scratch: IndexVec<StepId, usize>,
    /// The bytes of the arena.
    pub arena: usize,
    /// The bytes of the arena's temporaries and scratch memory that are live at its peak, a lower bound for the arena.
    pub peak: usize,
    /// The bytes of the arena's temporaries and scratch memory that are live while each step runs, in order.
    pub timeline: Vec<usize>,
    /// The live values at the peak: temporaries in the arena, and scratch memory, largest first.
    pub live: Vec<Live>,
    /// The arguments whose memory a result may take if the caller donates them. The output that holds the result then lies in the memory of
    /// the argument.
    pub donations: Vec<InPlace>,
}

/// The location of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// At this offset of the arena.
    Arena(usize),
    /// In the memory of this argument, constant or output: its own, or that of the output that it becomes in place.
    Buffer(BufferId),
    /// In the memory of an output that no step has written yet.
    Within {
        /// The output.
        output: BufferId,
        /// The offset in its memory.
        offset: usize,
    },
}

/// A value or scratch memory in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Live {
    /// A value.
    Buffer {
        /// The temporary that holds it.
        buffer: BufferId,
        /// Its bytes, before they are rounded up to the alignment.
        bytes: usize,
    },
    /// Scratch memory.
    Scratch {
        /// The step that needs it.
        step: StepId,
        /// Its bytes, before they are rounded up to the alignment.
        bytes: usize,
    },
}

impl Live {
    /// The bytes that it needs, before they are rounded up to the alignment.
    pub fn bytes(self) -> usize {
        match self {
            Live::Buffer { bytes, .. } | Live::Scratch { bytes, .. } => bytes,
        }
    }
}

/// Plans the memory of the steps in this order and checks the plan, on which the code that runs it relies.
///
/// The size of the arena is at least the peak, and nearly always equal to it.
///
/// ```
/// use remat_plan::examples::chain;
/// use remat_plan::{Location, plan_memory, schedule};
///
/// // Ten operations whose results the backward pass reads.
/// let graph = chain(10, None, 4096);
/// let plan = plan_memory(&graph, &schedule(&graph))?;
/// assert_eq!((plan.arena, plan.peak), (9 * 4096, 9 * 4096));
/// let temporaries = graph.buffers.indices().filter(|&buffer| graph.is_temporary(buffer));
/// for (buffer, location) in temporaries.map(|buffer| (buffer, plan.locations[buffer])) {
///     match location {
///         Location::Arena(offset) => assert!(offset + graph.bytes(buffer) <= plan.arena),
///         Location::Buffer(output) => assert_ne!(output, buffer, "it lies in the output that it becomes"),
///         Location::Within { .. } => unreachable!("outputs hold nothing else"),
///     }
/// }
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the plan is wrong, which is a defect of the planner.
pub fn plan_memory(graph: &Graph, order: &[StepId]) -> Result<MemoryPlan> {
    planned(graph, order, &Liveness::new(graph, order))
}

impl MemoryPlan {
    /// This plan with temporaries in the memory of outputs that no step has written yet, if the arena is then smaller. The caller provides that
    /// memory in any case. `may_hold` tells whether the memory of an output may hold a temporary: it is the output's alone, and aligned for
    /// the elements of both.
    ///
    /// ```
    /// use remat_plan::examples::Net;
    /// use remat_plan::{BufferKind, Location, StepId, plan_memory};
    ///
    /// // `b` is computed from `a`, and the second output from `b` alone: until then, `a` lies in its memory.
    /// let mut net = Net::default();
    /// let x = net.buffer(4096, BufferKind::Argument);
    /// let a = net.product(&[x], 4096);
    /// let b = net.product(&[a], 4096);
    /// let output = net.step(&[b], 8192, BufferKind::Output, false);
    /// let order: Vec<StepId> = net.graph.steps.indices().collect();
    /// let plan = plan_memory(&net.graph, &order)?;
    /// assert_eq!(plan.arena, 2 * 4096);
    /// let plan = plan.within_outputs(&net.graph, &order, |_, _| true)?;
    /// assert_eq!((plan.arena, plan.locations[a]), (4096, Location::Within { output, offset: 0 }));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`plan_memory`].
    pub fn within_outputs(
        self,
        graph: &Graph,
        order: &[StepId],
        may_hold: impl Fn(BufferId, BufferId) -> bool,
    ) -> Result<MemoryPlan> {
        let mut liveness = Liveness::new(graph, order);
        if !within::place(graph, order, &mut liveness, may_hold) {
            return Ok(self);
        }
        let other = planned(graph, order, &liveness)?;
        Ok(if other.arena < self.arena { other } else { self })
    }
}

/// The plan for these live ranges, checked.
fn planned(graph: &Graph, order: &[StepId], liveness: &Liveness) -> Result<MemoryPlan> {
    let timeline = liveness.timeline(graph, order);
    let (peak, position) = first_peak(&timeline);
    let items = items(graph, order, liveness);
    let packed = pack::pack(&items, peak, position);
    let mut offsets = packed.offsets.into_iter();
    let mut offset = || offsets.next().ok_or_else(|| internal("something was not packed"));
    let mut blocks: IndexVec<BlockId, Location> = IndexVec::with_capacity(liveness.blocks.len());
    for block in &liveness.blocks {
        blocks.push(match (block.output, block.within) {
            (Some(output), _) => Location::Buffer(output),
            (None, Some((output, offset))) => Location::Within { output, offset },
            (None, None) => Location::Arena(offset()?),
        });
    }
    let mut scratch = index_vec![0; graph.steps.len()];
    for &step in order.iter().filter(|&&step| graph.steps[step].scratch > 0) {
        scratch[step] = offset()?;
    }
    let locations = liveness.storage.iter_enumerated().map(|(buffer, &storage)| match storage {
        Storage::Block(block) => blocks[block],
        Storage::Own => Location::Buffer(buffer),
    });
    let locations = locations.collect();
    let live = live(graph, order, liveness, position);
    let plan = MemoryPlan {
        locations,
        scratch,
        arena: packed.size,
        peak,
        timeline,
        live,
        donations: liveness.donations.clone(),
    };
    check::check(graph, order, &plan)?;
    Ok(plan)
}

/// The items to pack: first the blocks of the arena, then the scratch memory of each step that needs any, in order.
fn items(graph: &Graph, order: &[StepId], liveness: &Liveness) -> Vec<Item> {
    let blocks = liveness.blocks.iter().filter(|block| block.is_in_arena());
    let blocks = blocks.map(|b| Item { first: b.first, last: b.last, bytes: b.bytes });
    let scratch = order.iter().enumerate().filter(|&(_, &step)| graph.steps[step].scratch > 0);
    let scratch = scratch.map(|(i, &step)| Item { first: i, last: i, bytes: aligned(graph.steps[step].scratch) });
    blocks.chain(scratch).collect()
}

/// The values that are live at a position, largest first.
fn live(graph: &Graph, order: &[StepId], liveness: &Liveness, position: usize) -> Vec<Live> {
    // Among the temporaries that share a block, the one that it holds at that time: the last one written.
    let mut holds: IndexVec<BlockId, Option<BufferId>> = index_vec![None; liveness.blocks.len()];
    for &step in order.iter().take(position + 1) {
        for &buffer in &graph.steps[step].writes {
            if let Storage::Block(block) = liveness.storage[buffer] {
                holds[block] = Some(buffer);
            }
        }
    }
    let held = liveness.blocks.iter().zip(holds).filter(|(block, _)| block.is_in_arena() && block.last >= position);
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

/// The error of a plan that is wrong.
fn internal(fault: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, "compile", format!("the memory plan is wrong: {fault}"))
}
