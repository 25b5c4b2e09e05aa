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
    pub(super) of_value: usize,
    /// The first position of the block.
    pub(super) first: usize,
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
    pub(super) fn input(&self, number: usize, width: usize) -> *const u8 {
        self.at(self.phase.map_or(PhaseMemory::Input(number), |phase| phase.ins[number]), width)
    }

    /// The address of the first element of an output, whose elements have `width` bytes.
    pub(super) fn output(&self, number: usize, width: usize) -> *mut u8 {
        self.at(self.phase.map_or(PhaseMemory::Output(number), |phase| phase.outs[number]), width)
    }

    fn at(&self, memory: PhaseMemory, width: usize) -> *mut u8 {
        match (memory, self.phase) {
            (PhaseMemory::Input(input), _) => self.ins[input].as_ptr().cast_mut(),
            (PhaseMemory::Output(out), _) => self.outs[out].as_ptr(),
            (PhaseMemory::Inside(value), Some(phase)) => {
                phase.end.wrapping_sub((value + 1) * phase.of_value).wrapping_sub(phase.first * width)
            }
            (PhaseMemory::Inside(_), None) => std::ptr::null_mut(),
        }
    }
}
