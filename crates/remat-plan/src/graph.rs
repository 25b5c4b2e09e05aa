//! A program for scheduling and planning: steps, and the buffers that they read and write.

use oxc_index::IndexVec;
use smallvec::SmallVec;

use crate::align::aligned;
use crate::ids::{BufferId, StepId};

/// Steps and buffers. The steps are in program order, which can run.
///
/// ```
/// use remat_plan::{BufferKind, BufferNode, Graph, StepNode};
///
/// // y = f(x), and z = g(y) in the memory of y if that is free.
/// let mut graph = Graph::default();
/// let x = graph.buffers.push(BufferNode { bytes: 4000, kind: BufferKind::Argument });
/// let [y, z] = [(); 2].map(|()| graph.buffers.push(BufferNode { bytes: 4000, kind: BufferKind::Temporary }));
/// let f = StepNode { reads: [x].into_iter().collect(), writes: [y].into_iter().collect(), ..StepNode::default() };
/// let mut g = StepNode { reads: [y].into_iter().collect(), writes: [z].into_iter().collect(), ..StepNode::default() };
/// g.in_place.push((y, z));
/// graph.steps.extend([f, g]);
/// assert_eq!((graph.bytes(x), graph.is_temporary(x), graph.is_temporary(y)), (4032, false, true));
/// ```
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Graph {
    /// The steps. Each reads arguments, constants and what earlier steps write.
    pub steps: IndexVec<StepId, StepNode>,
    /// The buffers that the steps read and write.
    pub buffers: IndexVec<BufferId, BufferNode>,
}

/// The buffers and the scratch memory of one kernel.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct StepNode {
    /// The buffers that it reads, each once.
    pub reads: SmallVec<[BufferId; 4]>,
    /// The buffers that it writes: temporaries and outputs that no other step writes.
    pub writes: SmallVec<[BufferId; 2]>,
    /// Bytes that it needs while it runs.
    pub scratch: usize,
    /// Pairs of a buffer that it reads and one that it writes that may share memory if no later step reads the operand. The first possible
    /// pair is preferred. Only temporaries and arguments with as many bytes as the result are taken. A temporary that an output takes lies
    /// in the memory of the output from the beginning. An argument is taken if the caller donates it, which is known only when the program
    /// runs.
    pub in_place: SmallVec<[(BufferId, BufferId); 2]>,
    /// The time that it takes, in picoseconds.
    pub cost: u64,
    /// Whether it must not run a second time: it waits for others (a barrier, a collective), or its time is not known (a `while` loop).
    pub runs_once: bool,
}

/// A piece of memory that a step writes once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferNode {
    /// The bytes of its elements, before they are rounded up to the alignment.
    pub bytes: usize,
    /// Who owns its memory.
    pub kind: BufferKind,
}

/// Who owns a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferKind {
    /// The arena. The buffer is live from the step that writes it to the last one that reads it.
    Temporary,
    /// The caller. The buffer is live throughout, unless it is donated.
    Argument,
    /// The caller. The buffer exists throughout and is free until a step writes it.
    Output,
    /// The executable. The buffer is live throughout.
    Constant,
}

impl Graph {
    /// The bytes that a buffer takes, a multiple of the alignment.
    pub fn bytes(&self, buffer: BufferId) -> usize {
        aligned(self.buffers[buffer].bytes)
    }

    /// Whether a buffer is a temporary.
    pub fn is_temporary(&self, buffer: BufferId) -> bool {
        self.buffers[buffer].kind == BufferKind::Temporary
    }
}
