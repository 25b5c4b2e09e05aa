//! The program of a tile: which functions compute it, and where their operands lie.
//!
//! Instructions name *slots*. A slot is a register in scratch memory, or memory of an operand or an output that is used
//! as it is: a contiguous operand is not copied, nor the part of another one that lies side by side or is one element
//! throughout, and a result is written where it belongs.

mod builder;
mod frame;

use std::ops::Range;

use remat_ir::{DType, Literal};

use super::dims::Dims;
use super::{Extent, LoopInput, LoopSource, LoopSpec};
use crate::kernels::Layout;
use crate::tile::{Immediate, ReduceFn, SpreadFn, StridedFn, TileFn};
use builder::Builder;
pub(super) use frame::Frame;

/// A compiled tile.
pub(super) struct Program {
    operands: Vec<Operand>,
    slots: Vec<Slot>,
    code: Vec<Instruction>,
    /// The operands of all instructions, one after the other.
    args: Vec<usize>,
    immediates: Vec<Immediate>,
    constants: Vec<Constant>,
    /// Each begins with an element as registers hold it.
    literals: Vec<u64>,
    /// The most elements of a tile, and the most rows.
    pub(super) capacity: usize,
    pub(super) row_capacity: usize,
    /// Tiles do not cross multiples of this.
    pub(super) run: Option<usize>,
    /// Bytes of the registers.
    registers: usize,
    pub(super) outs: Vec<Out>,
    /// The inputs whose memory an output may take: (input, output).
    pub(super) in_place: Vec<(usize, usize)>,
}

/// An operand in memory.
struct Operand {
    /// Its number in the specification.
    number: usize,
    input: usize,
    /// The position of its first element, in bytes.
    offset: usize,
    dims: Dims,
    /// The first operand with these dimensions.
    walk: usize,
    width: usize,
    extent: Extent,
    copy: StridedFn,
}

/// An output.
pub(super) struct Out {
    pub(super) dtype: DType,
    pub(super) extent: Extent,
}

#[derive(Clone, Copy)]
struct Slot {
    place: Place,
    extent: Extent,
    /// Bytes of an element.
    width: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// A register, by its number; by its offset in scratch memory once it is allocated.
    Register(usize),
    /// Memory of an operand, used as it is.
    Operand(usize),
    /// The one element that the tile has of an operand.
    Element(usize),
    Output(usize),
    Immediate(usize),
    /// A number in the program.
    Literal(usize),
}

#[derive(Clone)]
enum Instruction {
    /// Copies elements of a strided operand, unless they lie side by side: then the slot is where they are.
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

/// A register that holds one number throughout.
struct Constant {
    slot: usize,
    value: ConstantValue,
    dtype: DType,
}

enum ConstantValue {
    Literal(Literal),
    Operand(usize),
}

/// The registers of a tile take at most this many bytes, so that they stay in the first-level cache of any CPU beside what
/// streams through it.
const REGISTER_BYTES: usize = 16 << 10;
/// The most elements of a tile of a loop without rows.
const LONGEST_TILE: usize = 2048;
const SHORTEST_TILE: usize = 128;
/// Tiles that are cut have multiples of this many elements where they can.
const BLOCK: usize = 64;

/// Where a tile is: elements from `start`, rows from `row`.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) row: usize,
    pub(super) rows: usize,
}

impl Program {
    /// Compiles equations, in this order, and stores the results of some. `wanted` are values that the caller reads
    /// after each tile; `section` gives the part of an operand's layout that a tile walks along. If `is_cut`, tiles are as
    /// long as [`Program::tile`] says.
    ///
    /// `None` if there is no tile function for an operation.
    pub(super) fn new(
        spec: &LoopSpec,
        equations: &[usize],
        wanted: &[LoopInput],
        outs: &[usize],
        section: impl Fn(&Layout) -> Option<Layout>,
        is_cut: bool,
    ) -> Option<(Program, Vec<usize>)> {
        let run = if is_cut { run(spec, &section) } else { None };
        let mut builder = Builder::new(spec, outs, run, &section);
        for &equation in equations {
            builder.equation(equation)?;
        }
        let wanted = wanted.iter().map(|&x| builder.read(x, Extent::Full)).collect::<Option<Vec<usize>>>()?;
        for &out in outs {
            let equation = &spec.equations[out];
            builder.program.outs.push(Out { dtype: equation.dtype, extent: equation.extent });
        }
        let mut program = builder.program;
        program.find_in_place(spec);
        program.allocate(spec.columns, &wanted);
        Some((program, wanted))
    }

    /// The elements of the tile that begins with this one, of a loop without rows.
    pub(super) fn tile(&self, start: usize) -> usize {
        self.run.map_or(self.capacity, |run| self.capacity.min(run - start % run))
    }

    /// Finds the inputs whose memory an output may take: what is read for the last time before the output is written.
    fn find_in_place(&mut self, spec: &LoopSpec) {
        let reads = |instruction: &Instruction, input: usize| match instruction {
            Instruction::Gather { operand, .. } => self.operands[*operand].input == input,
            other => other.ins(&self.args).iter().any(|&slot| match self.slots[slot].place {
                Place::Operand(operand) | Place::Element(operand) => self.operands[operand].input == input,
                _ => false,
            }),
        };
        let writes = |instruction: &Instruction, out: usize| self.slots[instruction.out()].place == Place::Output(out);
        for operand in &self.operands {
            let uses = spec
                .operands
                .iter()
                .filter(|x| matches!(&x.source, LoopSource::Input { input, .. } if *input == operand.input));
            if uses.count() != 1 || operand.offset != 0 || !operand.dims.is_contiguous() {
                continue;
            }
            let last_read = self.code.iter().rposition(|i| reads(i, operand.input));
            for (k, out) in self.outs.iter().enumerate() {
                let written = self.code.iter().position(|i| writes(i, k));
                let pair = (operand.input, k);
                let fits = out.extent == operand.extent && out.dtype.size() == operand.width;
                if fits && last_read <= written && !self.in_place.contains(&pair) {
                    self.in_place.push(pair);
                }
            }
        }
    }

    /// Decides how long a tile is, and gives every register its place.
    fn allocate(&mut self, columns: Option<usize>, wanted: &[usize]) {
        // The instruction that writes each register, and the last that reads it.
        let mut last = vec![0; self.slots.len()];
        for (i, instruction) in self.code.iter().enumerate() {
            for &slot in instruction.ins(&self.args) {
                last[slot] = i;
            }
            last[instruction.out()] = last[instruction.out()].max(i);
        }
        for constant in &self.constants {
            last[constant.slot] = usize::MAX;
        }
        for &slot in wanted {
            last[slot] = usize::MAX;
        }
        let mut pools = [Pool::default(), Pool::default()];
        let pool = |extent: Extent| usize::from(extent == Extent::Row);
        let mut places: Vec<Option<usize>> = vec![None; self.slots.len()];
        let is_register = |slot: &Slot| matches!(slot.place, Place::Register(_));
        for constant in &self.constants {
            places[constant.slot] = Some(pools[pool(self.slots[constant.slot].extent)].take());
        }
        for (i, instruction) in self.code.iter().enumerate() {
            // The result may take the register of an operand that dies here, if the elements of both have one size: tile
            // functions work in place then. Reductions and broadcasts do not.
            let mut dies: Vec<usize> = instruction.ins(&self.args).to_vec();
            dies.sort_unstable();
            dies.dedup();
            dies.retain(|&s| last[s] == i && is_register(&self.slots[s]));
            let out = instruction.out();
            let works_in_place = matches!(instruction, Instruction::Call { .. });
            let is_free = |s: &usize| works_in_place && self.slots[*s].width == self.slots[out].width;
            let give_back = |pools: &mut [Pool; 2], slots: &mut dyn Iterator<Item = &usize>| {
                for &slot in slots {
                    if let Some(place) = places[slot] {
                        pools[pool(self.slots[slot].extent)].give(place);
                    }
                }
            };
            give_back(&mut pools, &mut dies.iter().filter(|s| is_free(s)));
            let place = (is_register(&self.slots[out]) && places[out].is_none())
                .then(|| pools[pool(self.slots[out].extent)].take());
            give_back(&mut pools, &mut dies.iter().filter(|s| !is_free(s)));
            places[out] = places[out].or(place);
            // A result that nobody reads.
            if last[out] == i
                && let (Some(place), true) = (places[out], is_register(&self.slots[out]))
            {
                pools[pool(self.slots[out].extent)].give(place);
            }
        }
        let [full, row] = pools.map(|pool| pool.count);
        (self.capacity, self.row_capacity) = match columns {
            Some(columns) => {
                let rows = (tile_length(full) / columns.max(1)).max(1);
                (rows * columns, rows)
            }
            None => (tile_length(full), 0),
        };
        if let Some(run) = self.run {
            let even = run.div_ceil(run.div_ceil(self.capacity));
            self.capacity = self.capacity.min(even.next_multiple_of(BLOCK));
        }
        let (full_bytes, row_bytes) = (register_bytes(self.capacity), register_bytes(self.row_capacity));
        for (slot, place) in self.slots.iter_mut().zip(places) {
            if let Some(place) = place {
                slot.place = Place::Register(match slot.extent {
                    Extent::Full => place * full_bytes,
                    Extent::Row => full * full_bytes + place * row_bytes,
                });
            }
        }
        self.registers = full * full_bytes + row * row_bytes;
    }

    /// The operands that lie in memory, by their numbers in the specification.
    pub(super) fn operands(&self) -> impl Iterator<Item = usize> {
        self.operands.iter().map(|o| o.number)
    }

    /// Bytes of scratch memory of one thread.
    pub(super) fn scratch(&self) -> usize {
        self.pointers().next_multiple_of(64) + self.registers
    }

    fn pointers(&self) -> usize {
        (self.slots.len() + self.args.len() + self.operands.len() + self.outs.len()) * size_of::<usize>()
    }
}

/// The runs of operands at whose ends tiles are cut, so that each operand is one element or read where it lies.
fn run(spec: &LoopSpec, section: impl Fn(&Layout) -> Option<Layout>) -> Option<usize> {
    let dims = spec.operands.iter().filter_map(|operand| match &operand.source {
        LoopSource::Input { layout, .. } => Some(Dims::of(&section(layout)?)),
        LoopSource::Literal(_) => None,
    });
    let dims: Vec<Dims> = dims.filter(|dims| dims.run().is_some()).collect();
    let shortest = if dims.iter().any(Dims::repeats) { SHORTEST_TILE } else { LONGEST_TILE / 2 };
    dims.iter().filter_map(Dims::run).reduce(common_divisor).filter(|&run| run >= shortest)
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The elements of a tile with so many registers.
fn tile_length(registers: usize) -> usize {
    let fits = REGISTER_BYTES / (4 * registers.max(1));
    (fits / SHORTEST_TILE * SHORTEST_TILE).clamp(SHORTEST_TILE, LONGEST_TILE)
}

/// The bytes of a register of so many elements of any dtype.
fn register_bytes(elements: usize) -> usize {
    (elements * 8).next_multiple_of(64)
}

/// Registers of one size.
#[derive(Default)]
struct Pool {
    free: Vec<usize>,
    count: usize,
}

impl Pool {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn give(&mut self, register: usize) {
        self.free.push(register);
    }
}

impl Instruction {
    fn out(&self) -> usize {
        match self {
            Instruction::Gather { out, .. }
            | Instruction::Call { out, .. }
            | Instruction::Reduce { out, .. }
            | Instruction::Spread { out, .. } => *out,
        }
    }

    fn ins<'a>(&'a self, args: &'a [usize]) -> &'a [usize] {
        match self {
            Instruction::Gather { .. } => &[],
            Instruction::Call { args: range, .. } => &args[range.clone()],
            Instruction::Reduce { input, .. } | Instruction::Spread { input, .. } => std::slice::from_ref(input),
        }
    }
}
