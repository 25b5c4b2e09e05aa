//! The memory of a loop.

use crate::interface::{PhaseMemory, Source, Target};

/// The operands and outputs of a kernel, in the numbering of one of its loops.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    ins: &'a [Source<'a>],
    outs: &'a [Target<'a>],
    phase: Option<OfPhase<'a>>,
}

/// The memory of a phase: what its inputs and outputs refer to.
#[derive(Clone, Copy)]
pub(super) struct OfPhase<'a> {
    pub(super) ins: &'a [PhaseMemory],
    pub(super) outs: &'a [PhaseMemory],
    /// The end of the block's memory, and the bytes of each value there, the last value first.
    pub(super) end: *mut u8,
    pub(super) bytes_per_value: usize,
    /// The first position of the block.
    pub(super) first: usize,
    pub(super) full: FullValues<'a>,
}

/// The memory of a block's values that have one element per position of the space: pieces of `block_len` positions each, one for each
/// position before the dimension, one after the other.
#[derive(Clone, Copy)]
pub(super) struct FullValues<'a> {
    pub(super) start: *mut u8,
    /// Where each value begins, in bytes.
    pub(super) offsets: &'a [usize],
    /// The elements of one position along the dimension.
    pub(super) after: usize,
    /// The elements between the pieces of an array that are in no piece here.
    pub(super) gap: usize,
}

impl<'a> Memory<'a> {
    /// The memory of a loop that is a kernel by itself.
    pub(super) fn new(ins: &'a [Source<'a>], outs: &'a [Target<'a>]) -> Memory<'a> {
        Memory { ins, outs, phase: None }
    }

    /// The memory of one of several loops.
    pub(super) fn of_phase(self, phase: OfPhase<'a>) -> Memory<'a> {
        Memory { phase: Some(phase), ..self }
    }

    /// The address of the first element of an input, whose elements have `width` bytes.
    #[inline]
    pub(super) fn input(&self, number: usize, width: usize) -> *const u8 {
        self.at(self.phase.map_or(PhaseMemory::Input(number), |phase| phase.ins[number]), width)
    }

    /// The address of the first element of an output, whose elements have `width` bytes, by which elements of this piece of a block are
    /// addressed.
    #[inline]
    pub(super) fn output(&self, number: usize, width: usize, piece: usize) -> *mut u8 {
        let memory = self.phase.map_or(PhaseMemory::Output(number), |phase| phase.outs[number]);
        let gap = match (memory, self.phase) {
            (PhaseMemory::Block(_), Some(phase)) => piece * phase.full.gap,
            _ => 0,
        };
        self.at(memory, width).wrapping_sub(gap * width)
    }

    #[inline]
    fn at(&self, memory: PhaseMemory, width: usize) -> *mut u8 {
        match (memory, self.phase) {
            (PhaseMemory::Input(input), _) => self.ins[input].as_ptr().cast_mut(),
            (PhaseMemory::Output(out), _) => self.outs[out].as_ptr(),
            (PhaseMemory::Inside(value), Some(phase)) => {
                phase.end.wrapping_sub((value + 1) * phase.bytes_per_value).wrapping_sub(phase.first * width)
            }
            (PhaseMemory::Block(value), Some(phase)) => {
                let FullValues { start, offsets, after, .. } = phase.full;
                start.wrapping_add(offsets[value]).wrapping_sub(phase.first * after * width)
            }
            (PhaseMemory::Inside(_) | PhaseMemory::Block(_), None) => std::ptr::null_mut(),
        }
    }
}
