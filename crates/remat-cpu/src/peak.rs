//! The memory of a run, depending on the arguments that the caller donates.
//!
//! A program whose outputs can replace arguments has two schedules and plans: for callers who keep the arguments, and for those who donate
//! them ([`Graph::for_donated_arguments`](remat_plan::Graph::for_donated_arguments)). A run takes the one that needs less for its
//! arguments, and a memory limit applies to that one. In the second one each gradient of a training step is in the arena from its product
//! to its update, one or two at a time; a norm of all gradients needs all of them first.

use std::sync::Arc;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Array, Aval, LiveKind, LiveRanges, LiveValue, MemoryStats, Place, RangeStep, Rematerialization};

use crate::arena::Arena;
use crate::ids::{ArgId, OutId};
use crate::program::{CompiledProgram, StepSource};

/// A program in its possible schedules. All give bitwise the same results.
pub(crate) struct Programs {
    /// For callers who keep the arguments.
    pub(crate) keeping: CompiledProgram,
    /// For callers who donate arguments, if that schedule then needs less memory.
    pub(crate) donating: Option<CompiledProgram>,
    /// How it was made to fit a limit, if steps run again.
    pub(crate) rematerialization: Option<Arc<Rematerialization>>,
}

impl Programs {
    /// A program in its schedule, and in that for callers who donate arguments.
    pub(crate) fn new(keeping: CompiledProgram, donating: Option<CompiledProgram>) -> Programs {
        let donating = donating.filter(|donating| donating.peak(|_| true) < keeping.peak(|_| true));
        Programs { keeping, donating, rematerialization: None }
    }

    /// The schedule that needs the least memory when these arguments are donated.
    pub(crate) fn for_donated(&self, is_donated: impl Fn(ArgId) -> bool) -> &CompiledProgram {
        match &self.donating {
            Some(donating) if donating.peak(&is_donated) < self.keeping.peak(&is_donated) => donating,
            _ => &self.keeping,
        }
    }

    /// The bytes that a run needs where these arguments are donated.
    pub(crate) fn memory(&self, is_donated: impl Fn(ArgId) -> bool) -> MemoryStats {
        let program = self.for_donated(&is_donated);
        let (arguments, outputs) = (program.arguments(), program.own_outputs(&is_donated));
        let (overhead, peak) = (program.overhead(&is_donated), program.peak(&is_donated));
        let donated_peak = self.for_donated(|_| true).peak(|_| true);
        MemoryStats { arguments, outputs, temporaries: program.arena, overhead, peak, donated_peak }
    }
}

impl CompiledProgram {
    /// The most live bytes of a run with these arguments donated: arguments, outputs that take no argument's memory, temporaries and
    /// overhead.
    pub(crate) fn peak(&self, is_donated: impl Fn(ArgId) -> bool) -> usize {
        let parts = [self.arguments(), self.own_outputs(&is_donated), self.arena, self.overhead(&is_donated)];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// The bytes of the arguments.
    pub(crate) fn arguments(&self) -> usize {
        bytes(self.ins.iter())
    }

    /// The bytes of the outputs that take the memory of no argument.
    pub(crate) fn own_outputs(&self, is_donated: impl Fn(ArgId) -> bool) -> usize {
        bytes(self.own(is_donated).map(|out| &self.outputs[out]))
    }

    /// The bytes that donating each argument saves: those of the output that takes its memory, and of the output's header.
    pub(crate) fn saved_bytes(&self) -> IndexVec<ArgId, usize> {
        let mut saved = index_vec![0; self.ins.len()];
        for (out, donated) in self.donated.iter_enumerated() {
            if let Some(arg) = *donated {
                saved[arg] = self.outputs[out].bytes() + Array::HEADER;
            }
        }
        saved
    }

    /// Bytes that are not elements: lists of arguments and results, the header of each output, and the gap before the arena.
    pub(crate) fn overhead(&self, is_donated: impl Fn(ArgId) -> bool) -> usize {
        self.list_bytes + self.own(is_donated).count() * Array::HEADER + Arena::allocated_bytes(self.memory_bytes())
            - self.arena
    }

    /// The live values at the peak where all arguments are donated.
    pub(crate) fn live_where_donated(&self) -> Vec<LiveValue> {
        let mut numbers = self.outputs.indices();
        let is_own = |value: &LiveValue| {
            value.kind != LiveKind::Output || {
                // Outputs are listed in their order; those without bytes are not.
                let out = numbers.find(|&out| self.outputs[out].bytes() > 0);
                out.is_none_or(|out| self.donated[out].is_none())
            }
        };
        let mut live = self.live.clone();
        live.retain(is_own);
        live
    }

    /// The steps, and when each value is live where these arguments are donated.
    pub(crate) fn live_ranges(&self, is_donated: impl Fn(ArgId) -> bool) -> LiveRanges {
        let step =
            |source: &StepSource| RangeStep { operation: source.name(), loc: source.loc, time: source.modelled() };
        let mut ranges = self.ranges.clone();
        for (range, taken) in ranges.iter_mut().skip(self.ins.len()).zip(&self.donated) {
            if taken.is_some_and(&is_donated) {
                (range.reserved, range.place) = (0, Place::Shared);
            }
        }
        ranges.retain(|range| range.value.bytes > 0);
        LiveRanges { steps: self.sources.iter().map(step).collect(), ranges }
    }

    /// The outputs that have memory of their own where these arguments are donated.
    fn own(&self, is_donated: impl Fn(ArgId) -> bool) -> impl Iterator<Item = OutId> {
        let donated = self.donated.iter_enumerated();
        donated.filter(move |(_, donated)| !donated.is_some_and(&is_donated)).map(|(out, _)| out)
    }
}

fn bytes<'a>(avals: impl Iterator<Item = &'a Aval>) -> usize {
    avals.map(Aval::bytes).fold(0, usize::saturating_add)
}

/// The bytes of a list of arrays. Computing them allocates if an array has many dimensions, so runs do not call this.
pub(crate) fn list_bytes(avals: &[Aval]) -> usize {
    let dimensions = |aval: &Aval| {
        let shape = aval.shape.clone();
        if shape.spilled() { shape.capacity() * size_of::<usize>() } else { 0 }
    };
    avals.iter().map(|aval| size_of::<Array>() + dimensions(aval)).sum()
}
