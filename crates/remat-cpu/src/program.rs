//! Compiled programs: kernels, the places of their operands, and how they run.

// Operands lie at places of one arena, which the memory plan keeps apart.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use remat_ir::{Aval, DType, LiveValue};
use remat_kernels::{Kernel, Source, Target, Threads};

use crate::schedule::aligned;

/// A compiled program.
pub(crate) struct Program {
    pub(crate) ins: Vec<Aval>,
    pub(crate) outs: Vec<Out>,
    pub(crate) out_avals: Vec<Aval>,
    /// The avals of the buffers that outputs are made of.
    pub(crate) buffers: Vec<Aval>,
    pub(crate) steps: Vec<CompiledStep>,
    pub(crate) constants: Vec<u64>,
    /// Bytes of temporaries, scratch memory, and tables of operands.
    pub(crate) arena: usize,
    /// Where in the arena the operands of a step are listed, where there are many.
    pub(crate) tables: Option<usize>,
    /// For each output buffer the argument whose memory it may take, where nobody else holds that.
    pub(crate) donors: Vec<Option<usize>>,
    /// What is live at the peak: arguments, outputs, and what the arena holds then.
    pub(crate) live: Vec<LiveValue>,
}

/// An output of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Out {
    /// An argument, unchanged or reshaped.
    Argument(usize),
    /// An output buffer.
    Buffer(usize),
    /// The output of this number, which comes before it, reshaped or not.
    Output(usize),
}

/// A kernel and the places of its operands.
pub(crate) struct CompiledStep {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) ins: Vec<Place>,
    pub(crate) outs: Vec<Place>,
    pub(crate) scratch: Range<usize>,
}

/// Where the elements of an operand are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) dtype: DType,
    pub(crate) bytes: usize,
    pub(crate) memory: Memory,
    /// Bytes from the start of that memory.
    pub(crate) offset: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// At this byte of the arena.
    Arena(usize),
    /// At this byte of the constants.
    Constant(usize),
    Argument(usize),
    /// An output buffer.
    Output(usize),
}

/// Operands up to these numbers are listed on the stack.
pub(crate) const FEW_INS: usize = 12;
pub(crate) const FEW_OUTS: usize = 4;

/// What a run works on.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) ins: &'a [*const u8],
    /// The output buffers.
    pub(crate) outs: &'a [*mut u8],
    pub(crate) arena: *mut u8,
    pub(crate) threads: &'a Threads,
}

impl Program {
    /// The bytes of the memory that a run works in: the addresses of arguments and output buffers, then the arena.
    pub(crate) fn memory(&self) -> usize {
        self.addresses() + self.arena
    }

    fn addresses(&self) -> usize {
        aligned((self.ins.len() + self.buffers.len()) * size_of::<usize>())
    }

    /// The lists of addresses, and the arena, of the memory that begins here.
    ///
    /// # Safety
    /// There are [`Program::memory`] bytes, initialised and aligned to a cache line, which nobody else uses for as long as
    /// the lists live.
    pub(crate) unsafe fn parts<'a>(&self, memory: *mut u8) -> (&'a mut [*const u8], &'a mut [*mut u8], *mut u8) {
        // SAFETY: the memory begins with room for both lists, one after the other; any bits are an address.
        unsafe {
            let ins = memory.cast::<*const u8>();
            let outs = ins.add(self.ins.len()).cast::<*mut u8>();
            (
                std::slice::from_raw_parts_mut(ins, self.ins.len()),
                std::slice::from_raw_parts_mut(outs, self.buffers.len()),
                memory.add(self.addresses()),
            )
        }
    }

    /// The bytes of the table that steps with many operands need.
    pub(crate) fn table(ins: usize, outs: usize) -> usize {
        if ins <= FEW_INS && outs <= FEW_OUTS {
            return 0;
        }
        ins * size_of::<Source<'_>>() + outs * size_of::<Target<'_>>()
    }

    /// Runs all steps.
    ///
    /// # Safety
    /// `ins` and `outs` point to the elements of arguments and output buffers of the program's avals, `arena` to
    /// [`Program::arena`] bytes aligned to a cache line. Nobody else uses arena and outputs meanwhile, or writes to
    /// the arguments. An output may be an argument only where [`Program::donors`] says so.
    pub(crate) unsafe fn run(&self, run: Run<'_>) {
        let mut few_ins = [const { MaybeUninit::<Source<'_>>::uninit() }; FEW_INS];
        let mut few_outs = [const { MaybeUninit::<Target<'_>>::uninit() }; FEW_OUTS];
        let start = |memory: Memory| match memory {
            Memory::Arena(offset) => run.arena.wrapping_add(offset),
            Memory::Constant(offset) => self.constants.as_ptr().cast::<u8>().wrapping_add(offset).cast_mut(),
            Memory::Argument(i) => run.ins[i].cast_mut(),
            Memory::Output(k) => run.outs[k],
        };
        let address = |place: &Place| start(place.memory).wrapping_add(place.offset);
        for step in self.steps.iter().filter(|step| step.outs.iter().any(|out| out.bytes > 0)) {
            let (sources, targets) = match self.tables {
                Some(offset) if Program::table(step.ins.len(), step.outs.len()) > 0 => {
                    // SAFETY: the table has room for the operands of any step.
                    let sources = unsafe { run.arena.add(offset) }.cast::<Source<'_>>();
                    // SAFETY: as above. Sources and targets have the same alignment.
                    (sources, unsafe { sources.add(step.ins.len()) }.cast::<Target<'_>>())
                }
                _ => (few_ins.as_mut_ptr().cast(), few_outs.as_mut_ptr().cast()),
            };
            let pairs = step.kernel.in_place();
            for (i, place) in step.ins.iter().enumerate() {
                let start = address(place);
                let taken = |&&(input, output): &&(usize, usize)| input == i && address(&step.outs[output]) == start;
                let source = if place.bytes > 0 && pairs.iter().find(taken).is_some() {
                    Source::in_place(place.dtype, start)
                } else {
                    // SAFETY: these are the elements of an operand, which a kernel has written, or the caller gave. Nobody
                    // writes there while the step runs: where an output has the same memory, the operand is in place.
                    unsafe { Source::new(place.dtype, bytes(start, place.bytes)) }
                };
                // SAFETY: there is room for all operands.
                unsafe { sources.add(i).write(source) };
            }
            for (k, place) in step.outs.iter().enumerate() {
                let start = address(place);
                let is_in_place = pairs.iter().any(|&(i, output)| output == k && address(&step.ins[i]) == start);
                // SAFETY: the plan gives the bytes to this operand alone while the step runs, and there is room for all
                // operands. Whatever lay there before is a valid element, since bools are cleared.
                unsafe {
                    if place.dtype == DType::Bool && !is_in_place {
                        start.write_bytes(0, place.bytes);
                    }
                    targets.add(k).write(Target::new(place.dtype, bytes_mut(start, place.bytes)));
                }
            }
            // SAFETY: all operands were written just now; scratch memory is the step's alone while it runs.
            unsafe {
                let ins = std::slice::from_raw_parts(sources, step.ins.len());
                let outs = std::slice::from_raw_parts_mut(targets, step.outs.len());
                let scratch = bytes_mut(run.arena.wrapping_add(step.scratch.start), step.scratch.len());
                step.kernel.run(ins, outs, scratch, run.threads);
            }
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
