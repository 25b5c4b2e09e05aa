//! Runs the tiles of a program.

// Tiles are addressed by pointers, as the functions of tiles are.
#![allow(unsafe_code)]

use remat_ir::Literal;

use super::{ConstantValue, Extent, Instruction, Number, Program, Storage, first_bytes};
use crate::kernels::loops::memory::Memory;
use crate::simd::{CACHE_LINE, prefetch};
use crate::tile;

/// In tiles with fewer elements per instruction than this, each part of a stream would be less than a cache line of f32.
const SHORT: usize = 16;

/// The position of a tile: elements from `start`, rows from `row`.
#[derive(Clone, Copy)]
pub(in super::super) struct Tile {
    pub(in super::super) start: usize,
    pub(in super::super) len: usize,
    pub(in super::super) row: usize,
    pub(in super::super) rows: usize,
}

/// The memory of one task: the current address of every slot.
pub(in super::super) struct Frame<'a> {
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
    /// `scratch` has [`Program::scratch`] bytes, aligned to 64. The memory is that for which the program was compiled: every element of its
    /// layouts can be read, every element of the outputs in its tiles can be written, and no other task does so while the frame lives.
    pub(in super::super) unsafe fn new(program: &'a Program, scratch: &mut [u8], memory: &Memory<'_>) -> Self {
        assert!(scratch.len() >= program.scratch() && scratch.as_ptr().cast::<usize>().is_aligned());
        // All pointers derive from this one; another borrow of the memory would invalidate them.
        let start = scratch.as_mut_ptr();
        let slots = start.cast::<*mut u8>();
        // SAFETY: all of this is in the scratch memory, whose size was checked.
        unsafe {
            let args = slots.add(program.slots.len()).cast::<*const u8>();
            let bases = args.add(program.args.len());
            let out_pointers = bases.add(program.operands.len()).cast::<*mut u8>();
            let registers = start.add(program.pointers().next_multiple_of(64));
            for (i, operand) in program.operands.iter().enumerate() {
                bases.add(i).write(memory.input(operand.input, operand.width).wrapping_add(operand.offset));
            }
            for &(slot, offset) in &program.in_registers {
                slots.add(slot).write(registers.add(offset));
            }
            for &(slot, number) in &program.in_program {
                slots.add(slot).write(match number {
                    Number::Immediate(k) => (&raw const program.immediates[k]).cast_mut().cast(),
                    Number::Literal(k) => (&raw const program.literals[k]).cast_mut().cast(),
                });
            }
            let frame = Frame { program, slots, args, bases, outs: out_pointers, registers };
            frame.set_outs(memory, 0);
            frame.fill_constants();
            frame
        }
    }

    /// Moves the outputs to this piece of a block.
    ///
    /// # Safety
    /// As for [`Frame::new`]; the tiles that follow are in this piece.
    pub(in super::super) unsafe fn set_outs(&self, memory: &Memory<'_>, piece: usize) {
        for (k, out) in self.program.outs.iter().enumerate() {
            // SAFETY: there is a pointer for each output.
            unsafe { self.outs.add(k).write(memory.output(k, out.dtype.size(), piece)) }
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
                let element = first_bytes(bits, register.size());
                (constant.fill)(len, out, (&raw const element).cast(), 0);
            }
        }
    }

    /// Moves an operand: sets the address of its first element in the section of the following tiles.
    ///
    /// # Safety
    /// The tiles that follow must read elements of the operands only.
    pub(in super::super) unsafe fn set_base(&self, operand: usize, base: *const u8) {
        // SAFETY: there is a pointer for each operand.
        unsafe { self.bases.add(operand).write(base) }
    }

    /// The address of a value of the last tile.
    pub(in super::super) fn value(&self, slot: usize) -> *const u8 {
        // SAFETY: there is a pointer for each slot.
        unsafe { *self.slots.add(slot) }
    }

    /// Prefetches part `i` of `count` of the next tile's elements, beginning at `next`, into the first-level cache: a part of each stream,
    /// or some of the streams if the parts would be less than a cache line.
    #[inline(always)]
    fn fetch(&self, tile: Tile, next: usize, i: usize, count: usize) {
        let piece = |len: usize| len * i / count..len * (i + 1) / count;
        let streams = &self.program.streams[..];
        let (streams, part) = match tile.len <= SHORT * count {
            true => (&streams[piece(streams.len())], 0..tile.len),
            false => (streams, piece(tile.len)),
        };
        let part = next + part.start..next + part.end;
        for &stream in streams {
            let width = self.program.slots[stream].width;
            let distance = |element: usize| (element * width).wrapping_sub(tile.start * width);
            let from = self.value(stream).wrapping_add(distance(part.start));
            for line in 0..(part.len() * width).div_ceil(CACHE_LINE) {
                prefetch(from.wrapping_add(line * CACHE_LINE));
            }
        }
    }

    /// Computes one tile and meanwhile prefetches the tile that begins with element `next`. The hardware prefetches what one loop reads
    /// next, but not what many short loops read in turn.
    ///
    /// # Safety
    /// As for [`Frame::new`]; the tile is within the program's capacity and within the elements of operands and outputs,
    /// and no other task computes it.
    pub(in super::super) unsafe fn run(&self, tile: Tile, next: Option<usize>) {
        let program = self.program;
        // A division takes as long as a short tile.
        let columns = || tile.len.checked_div(tile.rows).unwrap_or(0);
        let at = |extent: Extent| match extent {
            Extent::Full => (tile.start, tile.len),
            Extent::Row => (tile.row, tile.rows),
        };
        // Operands with the same dimensions share the position of the tile.
        let (mut dims, mut position) = (usize::MAX, 0);
        // SAFETY: every pointer is that of a register, which is as long as the tile at most, or is moved to the tile's
        // first element within an operand or an output, as the caller promises.
        unsafe {
            for &i in &program.moving {
                let slot = &program.slots[i];
                match slot.storage {
                    Storage::Operand(o) => {
                        let from = at(slot.extent).0 * program.operands[o].width;
                        self.slots.add(i).write((*self.bases.add(o)).wrapping_add(from).cast_mut());
                    }
                    Storage::Element(o) => {
                        let operand = &program.operands[o];
                        if dims != operand.same_dims {
                            (dims, position) = (operand.same_dims, operand.dims.at(tile.start));
                        }
                        let element = (*self.bases.add(o)).wrapping_offset(position * operand.width as isize);
                        self.slots.add(i).write(element.cast_mut());
                    }
                    Storage::Output(k) => {
                        let from = at(slot.extent).0 * program.outs[k].dtype.size();
                        self.slots.add(i).write((*self.outs.add(k)).wrapping_add(from));
                    }
                    Storage::Register(_) | Storage::Immediate(_) | Storage::Literal(_) => {}
                }
            }
            for (i, instruction) in program.code.iter().enumerate() {
                if let Some(next) = next {
                    self.fetch(tile, next, i, program.code.len());
                }
                match instruction {
                    Instruction::Gather { operand, out: slot } => {
                        let (o, base) = (&program.operands[*operand], *self.bases.add(*operand));
                        let (start, len) = at(o.extent);
                        let elements = match (o.dims.side_by_side(start, len), program.slots[*slot].storage) {
                            (None, Storage::Register(offset)) => {
                                let register = self.registers.add(offset);
                                o.dims.copy(o.copy, o.width, base, start, len, register);
                                register
                            }
                            (position, _) => base.wrapping_offset(position.unwrap_or(0) * o.width as isize).cast_mut(),
                        };
                        self.slots.add(*slot).write(elements);
                    }
                    Instruction::Chain { steps, extent } => {
                        if let Some(chain) = program.chain {
                            chain(at(*extent).1, &program.steps[steps.clone()], self.slots);
                        }
                    }
                    Instruction::Call { function, out, args, extent } => {
                        let out = *self.slots.add(*out);
                        for i in args.clone() {
                            self.args.add(i).write(*self.slots.add(program.args[i]));
                        }
                        let ins = std::slice::from_raw_parts(self.args.add(args.start), args.len());
                        function(at(*extent).1, out, ins);
                    }
                    Instruction::Reduce { function, out, input } => {
                        function(tile.rows, columns(), *self.slots.add(*out), *self.slots.add(*input))
                    }
                    Instruction::Spread { function, out, input } => {
                        function(tile.rows, columns(), *self.slots.add(*out), *self.slots.add(*input))
                    }
                }
            }
        }
    }
}
