//! A program as scheduling and planning see it: steps, and the buffers that they read and write.

use smallvec::SmallVec;

/// Every buffer begins at a multiple of this many bytes: a cache line, and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Steps and buffers; both are known by their index. The order of the steps is the program's own and can run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Graph {
    pub(crate) steps: Vec<StepNode>,
    pub(crate) buffers: Vec<BufferNode>,
}

/// What one kernel needs.
#[derive(Clone, Default, Debug)]
pub(crate) struct StepNode {
    /// The buffers that it reads, each once.
    pub(crate) reads: SmallVec<[usize; 4]>,
    /// The buffers that it writes: temporaries and outputs that no other step writes.
    pub(crate) writes: SmallVec<[usize; 2]>,
    /// Bytes that it needs while it runs.
    pub(crate) scratch: usize,
    /// What it reads and what it writes that may be one piece of memory, if nobody needs the former afterwards: the first of
    /// several pairs is preferred. Only temporaries and arguments of as many bytes as the result are ever taken. A
    /// temporary that an output takes lies in the output's memory from the beginning; an argument is taken where the caller
    /// gives it up, which is known only when the program runs.
    pub(crate) in_place: SmallVec<[(usize, usize); 2]>,
}

/// A piece of memory that a step writes once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferNode {
    pub(crate) bytes: usize,
    pub(crate) kind: BufferKind,
}

/// Who owns a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferKind {
    /// The arena: the buffer lives from the step that writes it to the last one that reads it.
    Temporary,
    /// The caller: it lives throughout, unless it is given up.
    Argument,
    /// The caller: it lives throughout and is free until something is written into it.
    Output,
    /// The executable: it lives throughout.
    Constant,
}

impl Graph {
    /// The bytes that a buffer takes.
    pub(crate) fn bytes(&self, buffer: usize) -> usize {
        aligned(self.buffers[buffer].bytes)
    }

    /// Whether a buffer is a temporary.
    pub(crate) fn is_temporary(&self, buffer: usize) -> bool {
        self.buffers[buffer].kind == BufferKind::Temporary
    }
}

/// The next multiple of the alignment. What no machine can hold counts as 64 TiB, so that sums do not overflow: to allocate
/// it fails all the same.
pub(crate) fn aligned(bytes: usize) -> usize {
    bytes.min(1 << 46).next_multiple_of(ALIGNMENT)
}
