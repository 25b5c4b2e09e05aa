//! From equations to instructions.

use remat_ir::{DType, Literal, Prim};

use super::chain::Open;
use super::{Constant, ConstantValue, Instruction, Operand, Out, Program, Slot, Storage, first_bytes};
use crate::interface::Layout;
use crate::interface::{Extent, LoopEquation, LoopInput, LoopSource, LoopSpec};
use crate::kernels::loops::dims::Dims;
use crate::tile::{self, Immediate, TileFn};

/// A program under construction.
pub(super) struct Builder<'a> {
    pub(super) spec: &'a LoopSpec,
    pub(super) outs: &'a [usize],
    pub(super) program: Program,
    /// The slot of each operand and of each equation's result.
    operands: Vec<Option<usize>>,
    pub(super) results: Vec<Option<usize>>,
    /// The slot of each operand in its memory format.
    in_memory: Vec<Option<usize>>,
    /// The slot of each operand that is one element throughout a tile.
    ones: Vec<Option<usize>>,
    /// The step that computes each equation's result, and the slot of a result that exists only in memory, as bf16.
    pub(super) made: Vec<Option<usize>>,
    pub(super) narrow: Vec<Option<usize>>,
    pub(super) open: Option<Open>,
    /// Row values that were repeated along the rows: (row slot, full slot).
    spread: Vec<(usize, usize)>,
    pub(super) section: &'a dyn Fn(&Layout) -> Option<Layout>,
}

impl<'a> Builder<'a> {
    /// A program without equations. The results of `outs` are stored; `section` and `run` are those of the program.
    pub(super) fn new(
        spec: &'a LoopSpec,
        outs: &'a [usize],
        section: &'a dyn Fn(&Layout) -> Option<Layout>,
        run: Option<usize>,
    ) -> Builder<'a> {
        let stored = outs.iter().map(|&out| &spec.equations[out]);
        let program = Program {
            operands: Vec::new(),
            slots: Vec::new(),
            code: Vec::new(),
            args: Vec::new(),
            steps: Vec::new(),
            chain: tile::chain::function(),
            immediates: Vec::new(),
            constants: Vec::new(),
            literals: Vec::new(),
            capacity: 0,
            row_capacity: 0,
            run,
            registers: 0,
            streams: Vec::new(),
            moving: Vec::new(),
            in_registers: Vec::new(),
            in_program: Vec::new(),
            outs: stored.map(|equation| Out { dtype: equation.dtype, extent: equation.extent }).collect(),
            in_place: Vec::new(),
        };
        Builder {
            spec,
            outs,
            program,
            operands: vec![None; spec.operands.len()],
            results: vec![None; spec.equations.len()],
            in_memory: vec![None; spec.operands.len()],
            ones: vec![None; spec.operands.len()],
            made: vec![None; spec.equations.len()],
            narrow: vec![None; spec.equations.len()],
            open: None,
            spread: Vec::new(),
            section,
        }
    }

    /// The finished program; its registers are not yet allocated.
    pub(super) fn finish(mut self) -> Program {
        self.end_chain();
        self.program
    }

    pub(super) fn slot(&mut self, storage: Storage, extent: Extent, width: usize) -> usize {
        self.program.slots.push(Slot { storage, extent, width });
        self.program.slots.len() - 1
    }

    /// A register for elements in the type of computation.
    pub(super) fn register(&mut self, extent: Extent, dtype: DType) -> usize {
        self.slot(Storage::Register(0), extent, tile::register_type(dtype).size())
    }

    pub(super) fn call(&mut self, function: TileFn, out: usize, ins: &[usize], extent: Extent) {
        self.end_chain();
        let from = self.program.args.len();
        self.program.args.extend_from_slice(ins);
        self.program.code.push(Instruction::Call { function, out, args: from..from + ins.len(), extent });
    }

    /// Adds the instructions of an equation.
    pub(super) fn equation(&mut self, number: usize) -> Option<()> {
        let spec = self.spec;
        let equation = &spec.equations[number];
        if self.origin(LoopInput::Equation(number)) != LoopInput::Equation(number) {
            return Some(());
        }
        if self.in_chain(number).is_some() {
            return Some(());
        }
        let is_out = self.outs.iter().position(|&o| o == number);
        let is_direct = tile::register_type(equation.dtype) == equation.dtype;
        let dtypes: Vec<DType> = equation.ins.iter().map(|&x| spec.dtype(x)).collect();
        let in_extent = if matches!(equation.op, Prim::Reduce(_)) { Extent::Full } else { equation.extent };
        let with_one = self.with_one(equation)?;
        let mut ins = match &with_one {
            Some((_, ins)) => ins.to_vec(),
            None => equation.ins.iter().map(|&x| self.read(x, in_extent)).collect::<Option<Vec<usize>>>()?,
        };
        let out = match is_out {
            Some(k) if is_direct => self.slot(Storage::Output(k), equation.extent, equation.dtype.size()),
            _ => self.register(equation.extent, equation.dtype),
        };
        self.results[number] = Some(out);
        match &equation.op {
            Prim::Reduce(op) => {
                let function = tile::reduce_rows(op.kind, equation.dtype)?;
                self.end_chain();
                self.program.code.push(Instruction::Reduce { function, out, input: ins[0] });
            }
            op => {
                if let Some(immediate) = tile::immediate(op) {
                    self.program.immediates.push(immediate);
                    let slot = self.slot(
                        Storage::Immediate(self.program.immediates.len() - 1),
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
            let stored = self.slot(Storage::Output(k), equation.extent, equation.dtype.size());
            self.call(tile::store(equation.dtype)?, stored, &[out], equation.extent);
        }
        Some(())
    }

    /// The function of an operation with one operand that is a single element throughout, and the slots of both operands, the single
    /// element last.
    fn with_one(&mut self, equation: &LoopEquation) -> Option<Option<(TileFn, [usize; 2])>> {
        let &[a, b] = &equation.ins[..] else { return Some(None) };
        for (one, element, other) in [(1, b, a), (0, a, b)] {
            if let Some(function) = tile::with_one(&equation.op, equation.dtype, one)
                && equation.extent == Extent::Full
                && let Some((element, dtype)) = self.one(element)
                && tile::register_type(dtype) == dtype
            {
                return Some(Some((function, [self.read(other, Extent::Full)?, element])));
            }
        }
        Some(None)
    }

    /// The slot of an operand that is one element throughout a tile, in register or memory format, and the dtype of that format.
    pub(super) fn one(&mut self, input: LoopInput) -> Option<(usize, DType)> {
        let LoopInput::Operand(number) = self.origin(input) else { return None };
        let operand = &self.spec.operands[number];
        let (dtype, extent) = (operand.dtype, operand.extent);
        let register = tile::register_type(dtype);
        let held = if matches!(operand.source, LoopSource::Literal(_)) { register } else { dtype };
        if let Some(slot) = self.ones[number] {
            return Some((slot, held));
        }
        let storage = match &operand.source {
            LoopSource::Literal(literal) => {
                let element = if register == dtype { *literal } else { Literal::from_f64(register, literal.as_f64()) };
                self.program.literals.push(first_bytes(element.bits(), register.size()));
                Storage::Literal(self.program.literals.len() - 1)
            }
            LoopSource::Input { input, layout } if dtype != DType::F16 && extent == Extent::Full => {
                let dims = Dims::of(&(self.section)(layout)?);
                if !dims.is_one_along(self.program.run) {
                    return None;
                }
                Storage::Element(self.moved(number, *input, layout.offset, dims))
            }
            LoopSource::Input { .. } => return None,
        };
        let slot = self.slot(storage, extent, held.size());
        self.ones[number] = Some(slot);
        Some((slot, held))
    }

    /// Adds an operand in memory, whose first element has this position.
    fn moved(&mut self, number: usize, input: usize, offset: usize, dims: Dims) -> usize {
        let (dtype, extent) = (self.spec.operands[number].dtype, self.spec.operands[number].extent);
        let operands = &mut self.program.operands;
        operands.push(Operand {
            number,
            input,
            offset: offset * dtype.size(),
            same_dims: operands.iter().position(|other| other.dims == dims).unwrap_or(operands.len()),
            dims,
            width: dtype.size(),
            extent,
            copy: (tile::strided(dtype.size()), tile::repeats(dtype.size())),
        });
        operands.len() - 1
    }

    /// The slot of a value with one element per position or per row.
    pub(super) fn read(&mut self, input: LoopInput, extent: Extent) -> Option<usize> {
        let slot = match self.origin(input) {
            LoopInput::Equation(i) => match self.results[i] {
                Some(slot) => slot,
                None => self.stored(i)?,
            },
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
        self.end_chain();
        let full = self.register(Extent::Full, self.spec.dtype(input));
        let function = tile::spread(self.spec.dtype(input));
        self.program.code.push(Instruction::Spread { function, out: full, input: slot });
        self.spread.push((slot, full));
        Some(full)
    }

    fn operand(&mut self, number: usize) -> Option<usize> {
        let operand = &self.spec.operands[number];
        let (dtype, extent) = (operand.dtype, operand.extent);
        let value = match &operand.source {
            LoopSource::Literal(literal) => Some(ConstantValue::Literal(*literal)),
            LoopSource::Input { input, layout } if layout.merged().iter().all(|&(_, stride)| stride == 0) => {
                let dims = Dims::of(&(self.section)(layout)?);
                Some(ConstantValue::Operand(self.moved(number, *input, layout.offset, dims)))
            }
            LoopSource::Input { .. } => None,
        };
        if let Some(value) = value {
            let slot = self.register(extent, dtype);
            let fill = tile::strided(tile::register_type(dtype).size());
            self.program.constants.push(Constant { slot, value, dtype, fill });
            return Some(slot);
        }
        let memory = self.memory(number)?;
        if tile::register_type(dtype) == dtype {
            return Some(memory);
        }
        let wide = self.register(extent, dtype);
        self.call(tile::load(dtype)?, wide, &[memory], extent);
        Some(wide)
    }

    /// The slot of an operand in its memory format, with one element per position.
    pub(super) fn memory(&mut self, number: usize) -> Option<usize> {
        if self.in_memory[number].is_some() {
            return self.in_memory[number];
        }
        let operand = &self.spec.operands[number];
        let (dtype, extent) = (operand.dtype, operand.extent);
        let LoopSource::Input { input, layout } = &operand.source else { return None };
        let dims = Dims::of(&(self.section)(layout)?);
        let operand = self.moved(number, *input, layout.offset, dims);
        let slot = if self.program.operands[operand].dims.is_contiguous() {
            self.slot(Storage::Operand(operand), extent, dtype.size())
        } else {
            let gathered = self.slot(Storage::Register(0), extent, dtype.size());
            self.program.code.push(Instruction::Gather { operand, out: gathered });
            gathered
        };
        self.in_memory[number] = Some(slot);
        Some(slot)
    }
}
