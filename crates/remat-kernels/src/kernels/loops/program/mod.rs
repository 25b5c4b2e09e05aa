//! The program of a tile: the functions that compute it, and the storage of their operands.
//!
//! Instructions refer to *slots*. A slot is a register in scratch memory, or memory of an operand or an output that is used directly. An
//! operand is not copied if it is contiguous, or if the tile's part of it is contiguous or a single element. A result is written directly
//! to its output.
//!
//! [`builder`] turns equations into instructions, or into steps of a [`chain`] where it can; [`registers`] allocates registers, and a
//! [`frame`] runs tiles.

mod builder;
mod chain;
mod frame;
mod registers;

use std::ops::Range;

use remat_ir::{DType, Literal};
use smallvec::{SmallVec, smallvec};

use super::dims::Dims;
use crate::interface::Layout;
use crate::interface::{Extent, LoopInput, LoopSource, LoopSpec};
use crate::tile::chain::{ChainFn, ChainOp, ChainStep, Fetch, Store};
use crate::tile::{Immediate, ReduceFn, RepeatFn, SpreadFn, StridedFn, TileFn};

use builder::Builder;
pub(super) use frame::{Frame, Tile};
use registers::run;

/// A compiled tile.
pub(super) struct Program {
    operands: Vec<Operand>,
    slots: Vec<Slot>,
    code: Vec<Instruction>,
    /// The operands of all instructions, one after the other.
    args: Vec<usize>,
    /// The steps of all chains, one after the other.
    steps: Vec<ChainStep>,
    /// The function that computes chains, if this CPU has one.
    chain: Option<ChainFn>,
    immediates: Vec<Immediate>,
    constants: Vec<Constant>,
    /// The literals. Each word begins with an element in register format.
    literals: Vec<u64>,
    /// The most elements of a tile, and the most rows.
    pub(super) capacity: usize,
    pub(super) row_capacity: usize,
    /// Tiles do not cross multiples of this.
    pub(super) run: Option<usize>,
    /// Bytes of the registers.
    registers: usize,
    /// The slots of memory that tiles stream, element by element.
    streams: Vec<usize>,
    /// The slots whose address changes with each tile.
    moving: Vec<usize>,
    /// The slots that are registers, each with its offset in scratch memory, and those of numbers in this program. A frame sets their addresses
    /// once, kind by kind: of a small program this is a large part of its time.
    in_registers: Vec<(usize, usize)>,
    in_program: Vec<(usize, Number)>,
    pub(super) outs: Vec<Out>,
    /// The inputs whose memory an output may take: (input, output).
    pub(super) in_place: Vec<(usize, usize)>,
}

/// An operand in memory.
struct Operand {
    /// Its number in the specification.
    number: usize,
    input: usize,
    /// The offset of its first element, in bytes.
    offset: usize,
    dims: Dims,
    /// The first operand with these dimensions, which shares its position in a tile.
    same_dims: usize,
    width: usize,
    extent: Extent,
    copy: (StridedFn, RepeatFn),
}

/// An output.
pub(super) struct Out {
    pub(super) dtype: DType,
    pub(super) extent: Extent,
}

/// An operand or the result of an instruction.
#[derive(Clone, Copy)]
struct Slot {
    storage: Storage,
    extent: Extent,
    /// Bytes of an element.
    width: usize,
}

/// The storage of a slot's elements.
#[derive(Clone, Copy, PartialEq)]
enum Storage {
    /// A register, by its number or, once allocated, by its offset in scratch memory.
    Register(usize),
    /// Memory of an operand, used directly.
    Operand(usize),
    /// The single element of an operand that the tile reads.
    Element(usize),
    Output(usize),
    Immediate(usize),
    /// A number in the program.
    Literal(usize),
}

#[derive(Clone)]
enum Instruction {
    /// Copies the elements of a strided operand, unless they are contiguous: then the slot is the operand's memory.
    Gather {
        operand: usize,
        out: usize,
    },
    Call {
        function: TileFn,
        out: usize,
        args: Range<usize>,
        extent: Extent,
    },
    /// Computes some of the steps.
    Chain {
        steps: Range<usize>,
        extent: Extent,
    },
    Reduce {
        function: ReduceFn,
        out: usize,
        input: usize,
    },
    Spread {
        function: SpreadFn,
        out: usize,
        input: usize,
    },
}

/// What a program itself has in memory.
#[derive(Clone, Copy)]
enum Number {
    Immediate(usize),
    Literal(usize),
}

/// A register that holds one number throughout.
struct Constant {
    slot: usize,
    value: ConstantValue,
    dtype: DType,
    /// Fills the register.
    fill: StridedFn,
}

enum ConstantValue {
    Literal(Literal),
    Operand(usize),
}

/// Operands with at least this many elements do not stay in the cache of a core from one loop to the next.
const FAR: usize = 1 << 18;

/// From this many instructions per tile, the hardware prefetcher loses the streams, and tiles are prefetched explicitly.
/// (Measured in docs/EXPERIMENTS.md, "Prefetch in loops".)
const LONG_CODE: usize = 3;

impl Program {
    /// Compiles equations, in this order, and stores some of their results. `live_outs` are values that the caller reads after each tile;
    /// `section` selects the part of an operand's layout along which a tile runs. If `is_cut`, tiles are as long as [`Program::tile`] says.
    ///
    /// `None` if there is no tile function for an operation.
    pub(super) fn new(
        spec: &LoopSpec,
        equations: &[usize],
        live_outs: &[LoopInput],
        outs: &[usize],
        section: impl Fn(&Layout) -> Option<Layout>,
        is_cut: bool,
    ) -> Option<(Program, Vec<usize>)> {
        let run = if is_cut { run(spec, &section) } else { None };
        let mut builder = Builder::new(spec, outs, &section, run);
        for &equation in equations {
            builder.equation(equation)?;
        }
        let live_outs = live_outs.iter().map(|&x| builder.read(x, Extent::Full)).collect::<Option<Vec<usize>>>()?;
        let mut program = builder.finish();
        program.find_in_place(spec);
        program.allocate(spec, &live_outs);
        let is_stream = |slot: &Slot| {
            slot.extent == Extent::Full && matches!(slot.storage, Storage::Operand(_) | Storage::Output(_))
        };
        let moves =
            |slot: &Slot| matches!(slot.storage, Storage::Operand(_) | Storage::Element(_) | Storage::Output(_));
        program.moving = (0..program.slots.len()).filter(|&i| moves(&program.slots[i])).collect();
        for (i, slot) in program.slots.iter().enumerate() {
            match slot.storage {
                Storage::Register(offset) => program.in_registers.push((i, offset)),
                Storage::Immediate(k) => program.in_program.push((i, Number::Immediate(k))),
                Storage::Literal(k) => program.in_program.push((i, Number::Literal(k))),
                Storage::Operand(_) | Storage::Element(_) | Storage::Output(_) => {}
            }
        }
        program.streams = (0..program.slots.len()).filter(|&i| is_stream(&program.slots[i])).collect();
        program.fetch_in_chains(spec.rows * spec.columns.unwrap_or(1));
        Some((program, live_outs))
    }

    /// The number of elements in the tile that begins with this one, for a loop without rows.
    pub(super) fn tile(&self, start: usize) -> usize {
        self.run.map_or(self.capacity, |run| self.capacity.min(run - start % run))
    }

    /// Finds the inputs whose memory an output may take: those whose last read comes before the output is written.
    fn find_in_place(&mut self, spec: &LoopSpec) {
        let reads = |event: Event<'_>, input: usize| match event {
            Event::Instruction(Instruction::Gather { operand, .. }) => self.operands[*operand].input == input,
            other => other.ins(&self.args).iter().any(|&slot| match self.slots[slot].storage {
                Storage::Operand(operand) | Storage::Element(operand) => self.operands[operand].input == input,
                _ => false,
            }),
        };
        let writes = |event: Event<'_>, out: usize| {
            event.out().is_some_and(|slot| self.slots[slot].storage == Storage::Output(out))
        };
        let events: Vec<Event<'_>> = self.code.iter().flat_map(|instruction| self.events(instruction)).collect();
        let mut in_place = Vec::new();
        for operand in &self.operands {
            let uses = spec
                .operands
                .iter()
                .filter(|x| matches!(&x.source, LoopSource::Input { input, .. } if *input == operand.input));
            if uses.count() != 1 || operand.offset != 0 || !operand.dims.is_contiguous() {
                continue;
            }
            let is_bool = spec.operands[operand.number].dtype == DType::Bool;
            let last_read = events.iter().rposition(|&event| reads(event, operand.input));
            for (k, out) in self.outs.iter().enumerate() {
                let written = events.iter().position(|&event| writes(event, k));
                let pair = (operand.input, k);
                // Other bytes are not valid bools.
                let is_valid = is_bool == (out.dtype == DType::Bool);
                let fits = is_valid && out.extent == operand.extent && out.dtype.size() == operand.width;
                if fits && last_read <= written && !in_place.contains(&pair) {
                    in_place.push(pair);
                }
            }
        }
        // In the order of the specification, since memory planning prefers the first pair that fits.
        in_place.sort_unstable();
        self.in_place = in_place;
    }

    /// The events of an instruction, in order.
    fn events<'a>(&'a self, instruction: &'a Instruction) -> impl Iterator<Item = Event<'a>> {
        let (whole, steps) = match instruction {
            Instruction::Chain { steps, .. } => (None, &self.steps[steps.clone()]),
            other => (Some(Event::Instruction(other)), &[][..]),
        };
        whole.into_iter().chain(steps.iter().map(Event::Step))
    }

    /// The operands in memory, by their numbers in the specification.
    pub(super) fn operands(&self) -> impl Iterator<Item = usize> {
        self.operands.iter().map(|o| o.number)
    }

    /// Whether tiles of a loop over this many elements are prefetched: if they come from memory, and each takes so much computation that
    /// the hardware does not prefetch the next one.
    pub(super) fn fetches(&self, elements: usize) -> bool {
        let gathers = self.code.iter().filter(|instruction| matches!(instruction, Instruction::Gather { .. })).count();
        elements >= FAR && self.code.len() - gathers >= LONG_CODE
    }

    /// Makes chains prefetch their far operands, unless whole tiles are prefetched.
    fn fetch_in_chains(&mut self, elements: usize) {
        let gathered: Vec<usize> = self
            .code
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Gather { out, .. } => Some(*out),
                _ => None,
            })
            .collect();
        if elements < FAR || self.fetches(elements) {
            return;
        }
        for step in &mut self.steps {
            let slot = step.input as usize;
            let is_stream = gathered.contains(&slot) || matches!(self.slots[slot].storage, Storage::Operand(_));
            step.is_far = is_stream && matches!(step.fetch, Fetch::Tile | Fetch::Bf16);
        }
    }

    /// Replaces the chain function by another one for the same steps.
    #[cfg(test)]
    pub(super) fn set_chain(&mut self, chain: ChainFn) {
        self.chain = Some(chain);
    }

    /// Bytes of scratch memory of one thread.
    pub(super) fn scratch(&self) -> usize {
        self.pointers().next_multiple_of(64) + self.registers
    }

    fn pointers(&self) -> usize {
        (self.slots.len() + self.args.len() + self.operands.len() + self.outs.len()) * size_of::<usize>()
    }
}

/// One event that reads and writes slots: an instruction other than a chain, or a step of a chain.
#[derive(Clone, Copy)]
enum Event<'a> {
    Instruction(&'a Instruction),
    Step(&'a ChainStep),
}

impl<'a> Event<'a> {
    /// The slot that it writes.
    fn out(self) -> Option<usize> {
        match self {
            Event::Instruction(
                Instruction::Gather { out, .. }
                | Instruction::Call { out, .. }
                | Instruction::Reduce { out, .. }
                | Instruction::Spread { out, .. },
            ) => Some(*out),
            Event::Instruction(Instruction::Chain { .. }) => None,
            Event::Step(step) => match (step.op, step.store) {
                (ChainOp::Lt | ChainOp::Le | ChainOp::Gt | ChainOp::Ge | ChainOp::Eq | ChainOp::Ne, _) => {
                    Some(step.bools as usize)
                }
                (_, Store::Nothing) => None,
                _ => Some(step.out as usize),
            },
        }
    }

    /// The slots that it reads.
    fn ins(self, args: &'a [usize]) -> SmallVec<[usize; 4]> {
        match self {
            Event::Instruction(Instruction::Gather { .. } | Instruction::Chain { .. }) => SmallVec::new(),
            Event::Instruction(Instruction::Call { args: range, .. }) => args[range.clone()].into(),
            Event::Instruction(Instruction::Reduce { input, .. } | Instruction::Spread { input, .. }) => {
                smallvec![*input]
            }
            Event::Step(step) => {
                let reads = !matches!(step.fetch, Fetch::Nothing | Fetch::Itself);
                let selects = matches!(step.op, ChainOp::IfTrue | ChainOp::IfFalse);
                let ins = [(reads, step.input), (selects, step.bools)];
                ins.into_iter().filter_map(|(is_read, slot)| is_read.then_some(slot as usize)).collect()
            }
        }
    }
}

/// A word that begins with the bytes of an element of this size.
fn first_bytes(bits: u64, size: usize) -> u64 {
    if cfg!(target_endian = "big") { bits << (64 - 8 * size) } else { bits }
}
