//! Compiled programs: their kernels, the memory of the operands, and how they run.

// Operands lie at offsets of one arena and of outputs. The memory plan keeps them apart, and its checker has verified that.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use oxc_index::{IndexSlice, IndexVec};
use remat_ir::{Aval, DType, LiveRange, LiveValue, Loc, PeakOperation};
use remat_kernels::{Kernel, Source, Target, Threads};
use remat_plan::aligned;

use crate::ids::{ArgId, ConstId, OutId, ResultId};
use crate::profile;

/// A program whose steps have kernels, a schedule and memory.
pub(crate) struct CompiledProgram {
    pub(crate) ins: IndexVec<ArgId, Aval>,
    pub(crate) results: IndexVec<ResultId, ProgramResult>,
    pub(crate) result_avals: IndexVec<ResultId, Aval>,
    /// The avals of the outputs that results are made of.
    pub(crate) outputs: IndexVec<OutId, Aval>,
    pub(crate) steps: Vec<ProgramStep>,
    /// The bytes of each constant.
    pub(crate) constants: IndexVec<ConstId, u64>,
    /// Bytes of temporaries, scratch memory, and tables of operands.
    pub(crate) arena: usize,
    /// The offset in the arena of the table of a step's operands, where some step has many.
    pub(crate) table_offset: Option<usize>,
    /// The argument whose memory each output may take if the caller has no other reference to it.
    pub(crate) donated: IndexVec<OutId, Option<ArgId>>,
    /// The bytes of the lists of arguments and results.
    pub(crate) list_bytes: usize,
    /// The bytes of the arena that are live while each step runs.
    pub(crate) timeline: Vec<usize>,
    /// The operation that runs at the peak.
    pub(crate) at: Option<PeakOperation>,
    /// The live values at the peak where all arguments are kept: arguments, outputs, and those in the arena.
    pub(crate) live: Vec<LiveValue>,
    /// What each step computes.
    pub(crate) sources: Vec<StepSource>,
    /// When each value is live, as if no argument were donated: arguments, outputs, then those of the arena. Empty for programs that are not a
    /// user's.
    pub(crate) ranges: Vec<LiveRange>,
}

/// What a step computes, for profiles.
pub(crate) struct StepSource {
    /// The equation; of several, the last. Copies have none.
    pub(crate) operation: Option<&'static str>,
    /// The algorithm of its kernel, if there are several for the operation.
    pub(crate) algorithm: Option<&'static str>,
    pub(crate) loc: Loc,
    /// The largest result.
    pub(crate) aval: Aval,
    /// By the cost model, in picoseconds.
    pub(crate) time: u64,
}

impl StepSource {
    /// The operation for people: a step that computes none copies a result.
    pub(crate) fn name(&self) -> &'static str {
        self.operation.unwrap_or("copy")
    }

    /// How long it runs by the cost model.
    pub(crate) fn modelled(&self) -> Duration {
        Duration::from_nanos(self.time / 1000)
    }
}

/// A result of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgramResult {
    /// An argument, unchanged or reshaped.
    Argument(ArgId),
    /// An output.
    Output(OutId),
    /// A result that comes before it, reshaped or not.
    Same(ResultId),
}

/// A kernel and the memory of its operands.
pub(crate) struct ProgramStep {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) ins: Vec<Span>,
    pub(crate) outs: Vec<Span>,
    pub(crate) scratch: Range<usize>,
    /// The pairs of an operand and a result that are computed in place in a run in which they have the same address.
    pub(crate) in_place: Vec<(usize, usize)>,
    /// Whether it has results with elements, or an effect.
    pub(crate) runs: bool,
}

/// The bytes of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) dtype: DType,
    pub(crate) bytes: usize,
    pub(crate) memory: Memory,
    /// Bytes from the start of that memory.
    pub(crate) offset: usize,
}

/// The memory that has the elements of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    Arena,
    Constant(ConstId),
    Argument(ArgId),
    Output(OutId),
}

/// Up to this many operands are listed on the stack: more than most steps have, in half a KiB.
pub(crate) const FEW_INS: usize = 12;
pub(crate) const FEW_OUTS: usize = 4;

/// Addresses of arguments or outputs.
type Addresses<'a, I, P> = &'a mut IndexSlice<I, [P]>;

/// The memory and the threads of a run.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// Where the elements of each argument begin.
    pub(crate) ins: &'a IndexSlice<ArgId, [*const u8]>,
    /// Where the elements of each output begin.
    pub(crate) outs: &'a IndexSlice<OutId, [*mut u8]>,
    pub(crate) arena: *mut u8,
    pub(crate) threads: &'a Threads,
}

impl CompiledProgram {
    /// The bytes that a run needs: the addresses of arguments and outputs, then the arena.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.addresses() + self.arena
    }

    /// The bytes of the lists of addresses.
    pub(crate) fn addresses(&self) -> usize {
        aligned((self.ins.len() + self.outputs.len()) * size_of::<usize>())
    }

    /// The lists of addresses and the arena, within the memory that begins here.
    ///
    /// # Safety
    /// There are [`CompiledProgram::memory_bytes`] bytes, initialised and aligned to a cache line, and nothing else uses them as long as the
    /// lists exist.
    pub(crate) unsafe fn parts<'a>(
        &self,
        memory: *mut u8,
    ) -> (Addresses<'a, ArgId, *const u8>, Addresses<'a, OutId, *mut u8>, *mut u8) {
        // SAFETY: promised by the caller.
        unsafe {
            let (ins, outs) = self.lists(memory);
            (ins, outs, memory.add(self.addresses()))
        }
    }

    /// The lists of addresses in this memory.
    ///
    /// # Safety
    /// As for [`CompiledProgram::parts`], of [`CompiledProgram::addresses`] bytes.
    pub(crate) unsafe fn lists<'a>(
        &self,
        memory: *mut u8,
    ) -> (Addresses<'a, ArgId, *const u8>, Addresses<'a, OutId, *mut u8>) {
        // SAFETY: the memory has room for both lists, one after the other; any bits are an address.
        unsafe {
            let ins = memory.cast::<*const u8>();
            let outs = ins.add(self.ins.len()).cast::<*mut u8>();
            (
                IndexSlice::from_slice_mut(std::slice::from_raw_parts_mut(ins, self.ins.len())),
                IndexSlice::from_slice_mut(std::slice::from_raw_parts_mut(outs, self.outputs.len())),
            )
        }
    }

    /// The bytes of the operand table for a step with many operands.
    pub(crate) fn table_bytes(ins: usize, outs: usize) -> usize {
        if ins <= FEW_INS && outs <= FEW_OUTS {
            return 0;
        }
        ins * size_of::<Source<'_>>() + outs * size_of::<Target<'_>>()
    }

    /// Runs all steps. Within a run that is profiled, their times are added to its profile.
    ///
    /// # Safety
    /// `ins` and `outs` point to the elements of arguments and outputs with the program's avals, `arena` to [`CompiledProgram::arena`]
    /// bytes aligned to a cache line. Nothing else uses the arena or the outputs during the run, and nothing writes to the arguments. An
    /// output may be an argument only where [`CompiledProgram::donated`] says so.
    pub(crate) unsafe fn run(&self, run: Run<'_>) {
        // SAFETY: promised by the caller.
        unsafe { if profile::is_profiling() { profile::run_body(self, run) } else { self.run_watched(run, |_| {}) } }
    }

    /// As [`CompiledProgram::run`], and calls `ran` with the number of each step that has run. Those with neither results nor effects do not run.
    ///
    /// # Safety
    /// As [`CompiledProgram::run`].
    pub(crate) unsafe fn run_watched(&self, run: Run<'_>, mut ran: impl FnMut(usize)) {
        let mut few_ins = [const { MaybeUninit::<Source<'_>>::uninit() }; FEW_INS];
        let mut few_outs = [const { MaybeUninit::<Target<'_>>::uninit() }; FEW_OUTS];
        let start = |memory: Memory| match memory {
            Memory::Arena => run.arena,
            Memory::Constant(c) => (&raw const self.constants[c]).cast::<u8>().cast_mut(),
            Memory::Argument(i) => run.ins[i].cast_mut(),
            Memory::Output(k) => run.outs[k],
        };
        let address = |span: &Span| start(span.memory).wrapping_add(span.offset);
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.runs) {
            let (sources, targets) = match self.table_offset {
                Some(offset) if CompiledProgram::table_bytes(step.ins.len(), step.outs.len()) > 0 => {
                    // SAFETY: the table has room for the operands of any step.
                    let sources = unsafe { run.arena.add(offset) }.cast::<Source<'_>>();
                    // SAFETY: as above. Sources and targets have the same alignment.
                    (sources, unsafe { sources.add(step.ins.len()) }.cast::<Target<'_>>())
                }
                _ => (few_ins.as_mut_ptr().cast(), few_outs.as_mut_ptr().cast()),
            };
            let is_in_place = |&(i, k): &(usize, usize)| address(&step.ins[i]) == address(&step.outs[k]);
            for (i, span) in step.ins.iter().enumerate() {
                // SAFETY: these are the elements of an operand, which a kernel has written or the caller has provided. Nothing writes there
                // while the step runs: an operand in the memory of a result is replaced below. There is room for all operands.
                unsafe { sources.add(i).write(Source::new(span.dtype, bytes(address(span), span.bytes))) };
            }
            for pair in step.in_place.iter().filter(|pair| is_in_place(pair)) {
                let span = &step.ins[pair.0];
                if span.bytes > 0 {
                    // SAFETY: as above.
                    unsafe { sources.add(pair.0).write(Source::in_place(span.dtype, address(span))) };
                }
            }
            for (k, span) in step.outs.iter().enumerate() {
                let start = address(span);
                // SAFETY: the plan gives the bytes to this operand alone while the step runs, and there is room for all
                // operands. Whatever lay there before is a valid element: a bool is cleared, or computed in place of a bool.
                unsafe {
                    if span.dtype == DType::Bool && !step.in_place.iter().any(|pair| pair.1 == k && is_in_place(pair)) {
                        start.write_bytes(0, span.bytes);
                    }
                    targets.add(k).write(Target::new(span.dtype, bytes_mut(start, span.bytes)));
                }
            }
            // SAFETY: all operands were written just now; scratch memory is the step's alone while it runs.
            unsafe {
                let ins = std::slice::from_raw_parts(sources, step.ins.len());
                let outs = std::slice::from_raw_parts_mut(targets, step.outs.len());
                let scratch = bytes_mut(run.arena.wrapping_add(step.scratch.start), step.scratch.len());
                step.kernel.run(ins, outs, scratch, run.threads);
            }
            ran(number);
        }
    }
}

/// # Safety
/// As for a slice; nothing is asked for no bytes.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: promised by the caller.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}

/// # Safety
/// As for a slice; nothing is asked for no bytes.
unsafe fn bytes_mut<'a>(start: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: promised by the caller.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(start, len) } }
}
