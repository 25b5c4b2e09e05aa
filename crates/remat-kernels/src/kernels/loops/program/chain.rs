//! Turns equations into steps of chains.

use remat_ir::{Binary, Compare, DType, Prim, Unary};

use super::builder::Builder;
use super::{Instruction, Storage};
use crate::interface::{Extent, LoopEquation, LoopInput, LoopSource};
use crate::kernels::loops::dims::Dims;
use crate::tile;
use crate::tile::chain::{ChainOp, ChainStep, Fetch, Rounding, Store};

/// The chain to which steps are added.
pub(super) struct Open {
    /// Its first step.
    first: usize,
    extent: Extent,
    /// The value in the registers.
    value: LoopInput,
}

/// The other operand of a step.
#[derive(Clone, Copy)]
struct Other {
    fetch: Fetch,
    slot: usize,
}

const NOTHING: Other = Other { fetch: Fetch::Nothing, slot: 0 };
const ITSELF: Other = Other { fetch: Fetch::Itself, slot: 0 };

impl Builder<'_> {
    /// Adds an equation to the chain, or begins one with it. `None` if no step computes it, or this CPU has no chains.
    pub(super) fn in_chain(&mut self, number: usize) -> Option<()> {
        self.program.chain?;
        let spec = self.spec;
        let equation = &spec.equations[number];
        let LoopEquation { ref ins, dtype, extent, .. } = *equation;
        let is_float = |dtype: DType| matches!(dtype, DType::F32 | DType::Bf16);
        let rounding = if dtype == DType::Bf16 { Rounding::Bf16 } else { Rounding::Exact };
        let operand = *ins.last()?;
        if !is_float(spec.dtype(operand)) || !(is_float(dtype) || matches!(equation.op, Prim::Compare(_))) {
            return None;
        }
        match &equation.op {
            Prim::Binary(op) => {
                let (op, reversed, rounding) = match op {
                    Binary::Add | Binary::AddAny => (ChainOp::Add, ChainOp::Add, rounding),
                    Binary::Sub => (ChainOp::Sub, ChainOp::SubFrom, rounding),
                    Binary::Mul => (ChainOp::Mul, ChainOp::Mul, rounding),
                    Binary::Div => (ChainOp::Div, ChainOp::DivInto, rounding),
                    Binary::Max => (ChainOp::Max, ChainOp::Max, Rounding::Exact),
                    Binary::Min => (ChainOp::Min, ChainOp::Min, Rounding::Exact),
                    _ => return None,
                };
                self.of_two([ins[0], ins[1]], extent, [op, reversed], rounding, None)?;
            }
            Prim::IntegerPow(op) if op.y == 2 => {
                self.of_two([operand, operand], extent, [ChainOp::Mul, ChainOp::Mul], rounding, None)?;
            }
            Prim::Unary(op) => {
                let (op, rounding) = match op {
                    Unary::Neg => (ChainOp::Neg, Rounding::Exact),
                    Unary::Sqrt => (ChainOp::Sqrt, rounding),
                    _ => return None,
                };
                self.begin(operand, extent)?;
                self.step(op, NOTHING, rounding);
            }
            Prim::ConvertElementType(_) => {
                self.begin(operand, extent)?;
                let rounds = dtype == DType::Bf16 && spec.dtype(operand) == DType::F32;
                self.step(ChainOp::Keep, NOTHING, if rounds { Rounding::AnyToBf16 } else { Rounding::Exact });
            }
            Prim::Clamp(_) => {
                let low = self.bound(ins[0], extent, f32::NEG_INFINITY, -0.0, [ChainOp::Max, ChainOp::MaxPlain])?;
                let high = self.bound(ins[2], extent, f32::INFINITY, 0.0, [ChainOp::Min, ChainOp::MinPlain])?;
                self.begin(ins[1], extent)?;
                if low.is_none() && high.is_none() {
                    self.step(ChainOp::Keep, NOTHING, Rounding::Exact);
                }
                for (op, other) in [low, high].into_iter().flatten() {
                    self.step(op, other, Rounding::Exact);
                }
            }
            Prim::Compare(op) => {
                let (op, reversed) = match op {
                    Compare::Eq => (ChainOp::Eq, ChainOp::Eq),
                    Compare::Ne => (ChainOp::Ne, ChainOp::Ne),
                    Compare::Lt => (ChainOp::Lt, ChainOp::Gt),
                    Compare::Le => (ChainOp::Le, ChainOp::Ge),
                    Compare::Gt => (ChainOp::Gt, ChainOp::Lt),
                    Compare::Ge => (ChainOp::Ge, ChainOp::Le),
                };
                let bools = self.result(number, tile::register_type(dtype));
                self.of_two([ins[0], ins[1]], extent, [op, reversed], Rounding::Exact, Some(bools))?;
                self.results[number] = Some(bools);
                // The value remains.
                return Some(());
            }
            Prim::SelectN(_) if spec.dtype(ins[0]) == DType::Bool && ins.len() == 3 => {
                let bools = self.read(ins[0], extent)?;
                self.of_two(
                    [ins[2], ins[1]],
                    extent,
                    [ChainOp::IfTrue, ChainOp::IfFalse],
                    Rounding::Exact,
                    Some(bools),
                )?;
            }
            _ => return None,
        }
        self.made(number);
        Some(())
    }

    /// Ends the chain. Later instructions read its results.
    pub(super) fn end_chain(&mut self) {
        if let Some(Open { first, extent, .. }) = self.open.take() {
            self.program.code.push(Instruction::Chain { steps: first..self.program.steps.len(), extent });
        }
    }

    /// Records that the value is the result of this equation, and stores it if the loop has to.
    fn made(&mut self, number: usize) {
        let dtype = self.spec.equations[number].dtype;
        self.made[number] = Some(self.program.steps.len() - 1);
        if let Some(open) = &mut self.open {
            open.value = LoopInput::Equation(number);
        }
        if self.outs.contains(&number) {
            let (slot, is_narrow) = (self.result(number, dtype), dtype == DType::Bf16);
            self.store(number, if is_narrow { Store::Bf16 } else { Store::Tile }, slot);
            let results = if is_narrow { &mut self.narrow } else { &mut self.results };
            results[number] = Some(slot);
        }
    }

    /// Stores the result of an equation that a chain has computed, unless it is stored already, and returns its slot.
    pub(super) fn stored(&mut self, number: usize) -> Option<usize> {
        self.made[number]?;
        if let Some(narrow) = self.narrow[number] {
            return self.widened(narrow, number);
        }
        let equation = &self.spec.equations[number];
        let slot = self.register(equation.extent, equation.dtype);
        self.store(number, Store::Register, slot);
        self.results[number] = Some(slot);
        Some(slot)
    }

    /// Reads a bf16 result that exists only in the memory of an output.
    fn widened(&mut self, narrow: usize, number: usize) -> Option<usize> {
        let equation = &self.spec.equations[number];
        let slot = self.register(equation.extent, equation.dtype);
        self.call(tile::load(equation.dtype)?, slot, &[narrow], equation.extent);
        self.results[number] = Some(slot);
        Some(slot)
    }

    fn store(&mut self, number: usize, store: Store, slot: usize) {
        if let Some(step) = self.made[number] {
            let step = &mut self.program.steps[step];
            (step.store, step.out) = (store, slot as u32);
        }
    }

    /// The slot of a result: an output or a register.
    fn result(&mut self, number: usize, dtype: DType) -> usize {
        let extent = self.spec.equations[number].extent;
        match self.outs.iter().position(|&out| out == number) {
            Some(k) => self.slot(Storage::Output(k), extent, dtype.size()),
            None => self.register(extent, dtype),
        }
    }

    fn step(&mut self, op: ChainOp, other: Other, round: Rounding) {
        self.program.steps.push(ChainStep {
            op,
            fetch: other.fetch,
            input: other.slot as u32,
            is_far: false,
            bools: 0,
            round,
            store: Store::Nothing,
            out: 0,
        });
    }

    /// A step of two operands, either of which may be the value. If it is the second one, the operation with exchanged operands is used.
    fn of_two(
        &mut self,
        ins: [LoopInput; 2],
        extent: Extent,
        [op, reversed]: [ChainOp; 2],
        rounding: Rounding,
        bools: Option<usize>,
    ) -> Option<()> {
        let [a, b] = ins.map(|x| self.origin(x));
        let is_second = self.is_value(b, extent) || !self.is_value(a, extent) && self.is_one(a);
        let (x, y, op) = if is_second { (b, a, reversed) } else { (a, b, op) };
        // The other operand is read first, since reading it may end the chain.
        let other = if x == y { ITSELF } else { self.other(y, extent)? };
        self.begin(x, extent)?;
        self.step(op, other, rounding);
        if let (Some(bools), Some(step)) = (bools, self.program.steps.last_mut()) {
            step.bools = bools as u32;
        }
        Some(())
    }

    /// The step that bounds the value from one side. There is none if the bound is `nothing`, which bounds nothing. The plain operation
    /// suffices for a bound that is a number other than `zero`.
    fn bound(
        &mut self,
        bound: LoopInput,
        extent: Extent,
        nothing: f32,
        zero: f32,
        [op, plain]: [ChainOp; 2],
    ) -> Option<Option<(ChainOp, Other)>> {
        let number = match bound {
            LoopInput::Operand(i) => match self.spec.operands[i].source {
                LoopSource::Literal(literal) => literal.as_f64() as f32,
                LoopSource::Input { .. } => f32::NAN,
            },
            LoopInput::Equation(_) => f32::NAN,
        };
        if number == nothing {
            return Some(None);
        }
        let is_plain = !number.is_nan() && number.to_bits() != zero.to_bits();
        let other = self.other(self.origin(bound), extent)?;
        Some(Some((if is_plain { plain } else { op }, other)))
    }

    fn is_value(&self, x: LoopInput, extent: Extent) -> bool {
        self.open.as_ref().is_some_and(|open| open.value == x && open.extent == extent)
    }

    /// Whether an operand is one element throughout.
    fn is_one(&self, x: LoopInput) -> bool {
        let LoopInput::Operand(number) = x else { return false };
        match &self.spec.operands[number].source {
            LoopSource::Literal(_) => true,
            LoopSource::Input { layout, .. } => {
                (self.section)(layout).is_some_and(|layout| Dims::of(&layout).is_one_along(self.program.run))
            }
        }
    }

    /// Makes `x` the value, and begins a chain if none of this extent is open.
    fn begin(&mut self, x: LoopInput, extent: Extent) -> Option<()> {
        let x = self.origin(x);
        if self.is_value(x, extent) {
            return Some(());
        }
        let other = self.other(x, extent)?;
        if self.open.as_ref().is_some_and(|open| open.extent != extent) {
            self.end_chain();
        }
        let first = self.program.steps.len();
        self.open.get_or_insert(Open { first, extent, value: x }).value = x;
        self.step(ChainOp::Load, other, Rounding::Exact);
        Some(())
    }

    /// How a step reads an operand. Reading it may end the chain.
    fn other(&mut self, x: LoopInput, extent: Extent) -> Option<Other> {
        let (dtype, from) = match x {
            LoopInput::Operand(i) => (self.spec.operands[i].dtype, self.spec.operands[i].extent),
            LoopInput::Equation(i) => (self.spec.equations[i].dtype, self.spec.equations[i].extent),
        };
        if let Some((slot, dtype)) = self.one(x) {
            let fetch = if dtype == DType::Bf16 { Fetch::OneBf16 } else { Fetch::One };
            return Some(Other { fetch, slot });
        }
        let narrow = match x {
            _ if dtype != DType::Bf16 || from != extent => None,
            LoopInput::Operand(i) => self.memory(i),
            LoopInput::Equation(i) => self.narrow[i],
        };
        Some(match narrow {
            Some(slot) => Other { fetch: Fetch::Bf16, slot },
            None => Other { fetch: Fetch::Tile, slot: self.read(x, extent)? },
        })
    }

    /// The source of an operand. A widened bf16 is the bf16 itself, since chains hold bf16 as f32.
    pub(super) fn origin(&self, x: LoopInput) -> LoopInput {
        let LoopInput::Equation(number) = x else { return x };
        let equation = &self.spec.equations[number];
        let widens = || match (self.spec.dtype(equation.ins[0]), equation.dtype) {
            (from, to) if from == to => true,
            (DType::Bf16 | DType::F16, to) => to == DType::F32,
            _ => false,
        };
        match equation.op {
            Prim::ConvertElementType(_) if widens() && !self.outs.contains(&number) => self.origin(equation.ins[0]),
            _ => x,
        }
    }
}
