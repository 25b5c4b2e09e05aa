//! The program of a tile: which functions compute it, and where their operands lie.
//!
//! Instructions name *slots*. A slot is a register in scratch memory, or memory of an operand or an output that is used
//! as it is: a contiguous operand is not copied, nor the part of another one that lies side by side or is one element
//! throughout, and a result is written where it belongs.

// Tiles are addressed by pointers, as the functions of tiles are.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{DType, Literal, Op};

use super::dims::Dims;
use super::{Extent, LoopEquation, LoopInput, LoopSource, LoopSpec};
use crate::kernels::{Layout, Source, Target};
use crate::tile::{self, Immediate, ReduceFn, SpreadFn, StridedFn, TileFn};

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
        let mut builder = Builder {
            spec,
            outs,
            program: Program {
                operands: Vec::new(),
                slots: Vec::new(),
                code: Vec::new(),
                args: Vec::new(),
                immediates: Vec::new(),
                constants: Vec::new(),
                literals: Vec::new(),
                capacity: 0,
                row_capacity: 0,
                run,
                registers: 0,
                outs: Vec::new(),
                in_place: Vec::new(),
            },
            operands: vec![None; spec.operands.len()],
            ones: vec![None; spec.operands.len()],
            results: vec![None; spec.equations.len()],
            spread: Vec::new(),
            section: &section,
        };
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

/// A word that begins with the bytes of an element of this size.
fn first_bytes(bits: u64, size: usize) -> u64 {
    if cfg!(target_endian = "big") { bits << (64 - 8 * size) } else { bits }
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

struct Builder<'a> {
    spec: &'a LoopSpec,
    outs: &'a [usize],
    program: Program,
    /// The slot of each operand and of each equation's result.
    operands: Vec<Option<usize>>,
    /// The slot of each operand that is one element throughout a tile.
    ones: Vec<Option<usize>>,
    results: Vec<Option<usize>>,
    /// Row values that were repeated along the rows: (row slot, full slot).
    spread: Vec<(usize, usize)>,
    section: &'a dyn Fn(&Layout) -> Option<Layout>,
}

impl Builder<'_> {
    fn slot(&mut self, place: Place, extent: Extent, width: usize) -> usize {
        self.program.slots.push(Slot { place, extent, width });
        self.program.slots.len() - 1
    }

    /// A register for elements as they are computed.
    fn register(&mut self, extent: Extent, dtype: DType) -> usize {
        self.slot(Place::Register(0), extent, tile::register_type(dtype).size())
    }

    fn call(&mut self, function: TileFn, out: usize, ins: &[usize], extent: Extent) {
        let from = self.program.args.len();
        self.program.args.extend_from_slice(ins);
        self.program.code.push(Instruction::Call { function, out, args: from..from + ins.len(), extent });
    }

    fn equation(&mut self, number: usize) -> Option<()> {
        let spec = self.spec;
        let equation = &spec.equations[number];
        let is_out = self.outs.iter().position(|&o| o == number);
        let is_direct = tile::register_type(equation.dtype) == equation.dtype;
        let dtypes: Vec<DType> = equation.ins.iter().map(|&x| spec.dtype(x)).collect();
        let in_extent = if matches!(equation.op, Op::Reduce(_)) { Extent::Full } else { equation.extent };
        let with_one = self.with_one(equation)?;
        let mut ins = match &with_one {
            Some((_, ins)) => ins.to_vec(),
            None => equation.ins.iter().map(|&x| self.read(x, in_extent)).collect::<Option<Vec<usize>>>()?,
        };
        let out = match is_out {
            Some(k) if is_direct => self.slot(Place::Output(k), equation.extent, equation.dtype.size()),
            _ => self.register(equation.extent, equation.dtype),
        };
        self.results[number] = Some(out);
        match &equation.op {
            Op::Reduce(op) => {
                let function = tile::reduce_rows(op.kind, equation.dtype)?;
                self.program.code.push(Instruction::Reduce { function, out, input: ins[0] });
            }
            op => {
                if let Some(immediate) = tile::immediate(op) {
                    self.program.immediates.push(immediate);
                    let slot = self.slot(
                        Place::Immediate(self.program.immediates.len() - 1),
                        equation.extent,
                        size_of::<Immediate>(),
                    );
                    ins.push(slot);
                }
                let function = with_one.map(|(function, _)| function);
                self.call(function.or_else(|| tile::elementwise(op, &dtypes))?, out, &ins, equation.extent);
            }
        }
        if let (Some(k), false) = (is_out, is_direct) {
            let stored = self.slot(Place::Output(k), equation.extent, equation.dtype.size());
            self.call(tile::store(equation.dtype)?, stored, &[out], equation.extent);
        }
        Some(())
    }

    /// The function of an operation of which one operand is one element throughout, and the slots of both, this one last.
    fn with_one(&mut self, equation: &LoopEquation) -> Option<Option<(TileFn, [usize; 2])>> {
        let &[a, b] = &equation.ins[..] else { return Some(None) };
        for (one, element, other) in [(1, b, a), (0, a, b)] {
            if let Some(function) = tile::with_one(&equation.op, equation.dtype, one)
                && equation.extent == Extent::Full
                && let Some(element) = self.one(element)
            {
                return Some(Some((function, [self.read(other, Extent::Full)?, element])));
            }
        }
        Some(None)
    }

    /// The slot of an operand that is one element throughout a tile, held as in a register.
    fn one(&mut self, input: LoopInput) -> Option<usize> {
        let LoopInput::Operand(number) = input else { return None };
        if self.ones[number].is_some() {
            return self.ones[number];
        }
        let operand = &self.spec.operands[number];
        let (dtype, extent) = (operand.dtype, operand.extent);
        let register = tile::register_type(dtype);
        let place = match &operand.source {
            LoopSource::Literal(literal) => {
                let element = if register == dtype { *literal } else { Literal::from_f64(register, literal.as_f64()) };
                self.program.literals.push(first_bytes(element.bits(), register.size()));
                Place::Literal(self.program.literals.len() - 1)
            }
            LoopSource::Input { input, layout } if register == dtype && extent == Extent::Full => {
                let dims = Dims::of(&(self.section)(layout)?);
                if !dims.is_one_along(self.program.run) {
                    return None;
                }
                Place::Element(self.in_memory(number, *input, layout.offset, dims))
            }
            LoopSource::Input { .. } => return None,
        };
        self.ones[number] = Some(self.slot(place, extent, register.size()));
        self.ones[number]
    }

    /// Adds an operand in memory, whose first element has this position.
    fn in_memory(&mut self, number: usize, input: usize, offset: usize, dims: Dims) -> usize {
        let (dtype, extent) = (self.spec.operands[number].dtype, self.spec.operands[number].extent);
        let operands = &mut self.program.operands;
        operands.push(Operand {
            number,
            input,
            offset: offset * dtype.size(),
            walk: operands.iter().position(|other| other.dims == dims).unwrap_or(operands.len()),
            dims,
            width: dtype.size(),
            extent,
            copy: tile::strided(dtype.size()),
        });
        operands.len() - 1
    }

    /// The slot of a value, with an element at each place or for each row.
    fn read(&mut self, input: LoopInput, extent: Extent) -> Option<usize> {
        let slot = match input {
            LoopInput::Equation(i) => self.results[i]?,
            LoopInput::Operand(i) => match self.operands[i] {
                Some(slot) => slot,
                None => {
                    let slot = self.operand(i)?;
                    self.operands[i] = Some(slot);
                    slot
                }
            },
        };
        if self.program.slots[slot].extent == extent {
            return Some(slot);
        }
        if let Some(&(_, full)) = self.spread.iter().find(|(row, _)| *row == slot) {
            return Some(full);
        }
        let full = self.register(Extent::Full, self.spec.dtype(input));
        let function = tile::spread(self.spec.dtype(input));
        self.program.code.push(Instruction::Spread { function, out: full, input: slot });
        self.spread.push((slot, full));
        Some(full)
    }

    fn operand(&mut self, number: usize) -> Option<usize> {
        let spec = self.spec;
        let operand = &spec.operands[number];
        let (dtype, extent) = (operand.dtype, operand.extent);
        let (input, layout) = match &operand.source {
            LoopSource::Literal(literal) => {
                let slot = self.register(extent, dtype);
                self.program.constants.push(Constant { slot, value: ConstantValue::Literal(*literal), dtype });
                return Some(slot);
            }
            LoopSource::Input { input, layout } => (*input, layout),
        };
        let is_constant = layout.merged().iter().all(|&(_, stride)| stride == 0);
        let dims = Dims::of(&(self.section)(layout)?);
        let place = self.in_memory(number, input, layout.offset, dims);
        if is_constant {
            let slot = self.register(extent, dtype);
            self.program.constants.push(Constant { slot, value: ConstantValue::Operand(place), dtype });
            return Some(slot);
        }
        let is_direct = tile::register_type(dtype) == dtype;
        let memory = if self.program.operands[place].dims.is_contiguous() {
            self.slot(Place::Operand(place), extent, dtype.size())
        } else {
            let gathered = self.slot(Place::Register(0), extent, dtype.size());
            self.program.code.push(Instruction::Gather { operand: place, out: gathered });
            gathered
        };
        if is_direct {
            return Some(memory);
        }
        let wide = self.register(extent, dtype);
        self.call(tile::load(dtype)?, wide, &[memory], extent);
        Some(wide)
    }
}

/// The memory of one task: where every slot is now.
pub(super) struct Frame<'a> {
    program: &'a Program,
    slots: *mut *mut u8,
    args: *mut *const u8,
    bases: *mut *const u8,
    outs: *mut *mut u8,
    registers: *mut u8,
}

impl<'a> Frame<'a> {
    /// Prepares scratch memory for tiles of a program.
    ///
    /// # Safety
    /// `scratch` has [`Program::scratch`] bytes, aligned to 64. The sources and the targets are those that the program was
    /// compiled for: every element that its layouts mention can be read, every element of the outputs that its tiles
    /// mention can be written, and nobody else does so while the frame lives.
    pub(super) unsafe fn new(
        program: &'a Program,
        scratch: &mut [u8],
        ins: &[Source<'_>],
        outs: &[Target<'_>],
    ) -> Self {
        assert!(scratch.len() >= program.scratch() && scratch.as_ptr().cast::<usize>().is_aligned());
        // All pointers are made of this one: another borrow of the memory would end them.
        let start = scratch.as_mut_ptr();
        let slots = start.cast::<*mut u8>();
        // SAFETY: all of this lies in the scratch memory, whose size was checked.
        unsafe {
            let args = slots.add(program.slots.len()).cast::<*const u8>();
            let bases = args.add(program.args.len());
            let out_pointers = bases.add(program.operands.len()).cast::<*mut u8>();
            let registers = start.add(program.pointers().next_multiple_of(64));
            for (i, operand) in program.operands.iter().enumerate() {
                bases.add(i).write(ins[operand.input].as_ptr().wrapping_add(operand.offset));
            }
            for (k, out) in outs.iter().enumerate().take(program.outs.len()) {
                out_pointers.add(k).write(out.as_ptr());
            }
            for (i, slot) in program.slots.iter().enumerate() {
                slots.add(i).write(match slot.place {
                    Place::Register(offset) => registers.add(offset),
                    Place::Immediate(k) => (&raw const program.immediates[k]).cast_mut().cast(),
                    Place::Literal(k) => (&raw const program.literals[k]).cast_mut().cast(),
                    Place::Operand(_) | Place::Element(_) | Place::Output(_) => std::ptr::null_mut(),
                });
            }
            let frame = Frame { program, slots, args, bases, outs: out_pointers, registers };
            frame.fill_constants();
            frame
        }
    }

    /// # Safety
    /// As for [`Frame::new`], which calls this.
    unsafe fn fill_constants(&self) {
        for constant in &self.program.constants {
            let len = match self.program.slots[constant.slot].extent {
                Extent::Full => self.program.capacity,
                Extent::Row => self.program.row_capacity,
            };
            let (width, dtype) = (constant.dtype.size(), constant.dtype);
            // SAFETY: the slot is a register, which holds `len` elements of any dtype; what is read is one element of an
            // operand that has at least one.
            unsafe {
                let out = *self.slots.add(constant.slot);
                let bits = match constant.value {
                    ConstantValue::Literal(literal) => literal.bits(),
                    ConstantValue::Operand(operand) => {
                        let mut bytes = [0u8; 8];
                        std::ptr::copy_nonoverlapping(*self.bases.add(operand), bytes.as_mut_ptr(), width);
                        if cfg!(target_endian = "big") {
                            bytes[..width].reverse();
                        }
                        u64::from_le_bytes(bytes)
                    }
                };
                let register = tile::register_type(dtype);
                let bits = if register == dtype {
                    bits
                } else {
                    (Literal::from_bits(dtype, bits).as_f64() as f32).to_bits().into()
                };
                match register.size() {
                    1 => fill(out, bits as u8, len),
                    2 => fill(out, bits as u16, len),
                    4 => fill(out, bits as u32, len),
                    _ => fill(out, bits, len),
                }
            }
        }
    }

    /// Moves an operand: says where its first element in the section of the tiles that follow is.
    ///
    /// # Safety
    /// The tiles that follow must read elements of the operands only.
    pub(super) unsafe fn place(&self, operand: usize, base: *const u8) {
        // SAFETY: there is a pointer for each operand.
        unsafe { self.bases.add(operand).write(base) }
    }

    /// Where a value of the last tile is.
    pub(super) fn value(&self, slot: usize) -> *const u8 {
        // SAFETY: there is a pointer for each slot.
        unsafe { *self.slots.add(slot) }
    }

    /// Computes one tile.
    ///
    /// # Safety
    /// As for [`Frame::new`]; the tile is within the program's capacity and within the elements of operands and outputs,
    /// and no other task computes it.
    pub(super) unsafe fn run(&self, tile: Tile) {
        let program = self.program;
        let columns = tile.len.checked_div(tile.rows).unwrap_or(0);
        let at = |extent: Extent| match extent {
            Extent::Full => (tile.start, tile.len),
            Extent::Row => (tile.row, tile.rows),
        };
        // Where the tile begins in operands that walk as this one does.
        let (mut walk, mut position) = (usize::MAX, 0);
        // SAFETY: every pointer is that of a register, which is as long as the tile at most, or is moved to the tile's
        // first element within an operand or an output, as the caller promises.
        unsafe {
            for (i, slot) in program.slots.iter().enumerate() {
                match slot.place {
                    Place::Operand(o) => {
                        let from = at(slot.extent).0 * program.operands[o].width;
                        self.slots.add(i).write((*self.bases.add(o)).wrapping_add(from).cast_mut());
                    }
                    Place::Element(o) => {
                        let operand = &program.operands[o];
                        if walk != operand.walk {
                            (walk, position) = (operand.walk, operand.dims.at(tile.start));
                        }
                        let element = (*self.bases.add(o)).wrapping_offset(position * operand.width as isize);
                        self.slots.add(i).write(element.cast_mut());
                    }
                    Place::Output(k) => {
                        let from = at(slot.extent).0 * program.outs[k].dtype.size();
                        self.slots.add(i).write((*self.outs.add(k)).wrapping_add(from));
                    }
                    Place::Register(_) | Place::Immediate(_) | Place::Literal(_) => {}
                }
            }
            for instruction in &program.code {
                let out = *self.slots.add(instruction.out());
                match instruction {
                    Instruction::Gather { operand, out: slot } => {
                        let (o, base) = (&program.operands[*operand], *self.bases.add(*operand));
                        let (start, len) = at(o.extent);
                        let elements = match (o.dims.side_by_side(start, len), program.slots[*slot].place) {
                            (None, Place::Register(offset)) => {
                                let register = self.registers.add(offset);
                                o.dims.copy(o.copy, o.width, base, start, len, register);
                                register
                            }
                            (position, _) => base.wrapping_offset(position.unwrap_or(0) * o.width as isize).cast_mut(),
                        };
                        self.slots.add(*slot).write(elements);
                    }
                    Instruction::Call { function, args, extent, .. } => {
                        for i in args.clone() {
                            self.args.add(i).write(*self.slots.add(program.args[i]));
                        }
                        let ins = std::slice::from_raw_parts(self.args.add(args.start), args.len());
                        function(at(*extent).1, out, ins);
                    }
                    Instruction::Reduce { function, input, .. } => {
                        function(tile.rows, columns, out, *self.slots.add(*input))
                    }
                    Instruction::Spread { function, input, .. } => {
                        function(tile.rows, columns, out, *self.slots.add(*input))
                    }
                }
            }
        }
    }
}

/// # Safety
/// There is room for `len` elements, aligned for them.
unsafe fn fill<T: Copy>(out: *mut u8, value: T, len: usize) {
    // SAFETY: promised by the caller; integers have no invalid bits.
    unsafe {
        for i in 0..len {
            out.cast::<T>().add(i).write(value);
        }
    }
}
