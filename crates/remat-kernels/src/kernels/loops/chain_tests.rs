//! Loops of operations that become chains, in all orders, compared with the evaluator.

use remat_ir::{
    Array, Binary, Clamp, Compare, ConvertElementType, DType, IntegerPow, Literal, Prim, Reduce, ReduceKind, SelectN,
    Unary,
};

use super::map::Map;
use super::tests::{check_all, check_kernel, equation, input};
use crate::interface::Extent::{Full, Row};
use crate::interface::LoopInput::{self, Equation, Operand};
use crate::interface::{Extent, Layout, LoopEquation, LoopOperand, LoopSource, LoopSpec};
use crate::simd::Level;
use crate::test_support::{Stream, wild};
use crate::tile::chain::function_at;

/// A loop under construction, with the arrays that it reads.
struct Loop {
    stream: Stream,
    operands: Vec<LoopOperand>,
    arrays: Vec<Array>,
    equations: Vec<LoopEquation>,
}

impl Loop {
    fn dtype(&self, x: LoopInput) -> DType {
        match x {
            Operand(i) => self.operands[i].dtype,
            Equation(i) => self.equations[i].dtype,
        }
    }

    fn extent(&self, x: LoopInput) -> Extent {
        match x {
            Operand(i) => self.operands[i].extent,
            Equation(i) => self.equations[i].extent,
        }
    }

    fn is_literal(&self, x: LoopInput) -> bool {
        matches!(x, Operand(i) if matches!(self.operands[i].source, LoopSource::Literal(_)))
    }

    /// Adds an array with this extent and layout.
    fn add(&mut self, dtype: DType, extent: Extent, buffer: &[usize], layout: Layout) {
        let number = self.arrays.len();
        self.arrays.push(wild(dtype, buffer, self.stream.bits()));
        self.operands.push(input(number, dtype, extent, layout));
    }

    fn literal(&mut self, dtype: DType) {
        let bounds = [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let literal = Literal::from_f64(dtype, bounds[self.stream.below(bounds.len())]);
        self.operands.push(LoopOperand { dtype, extent: Full, source: LoopSource::Literal(literal) });
    }

    /// A value of this dtype, often the last one, as in chains.
    fn value(&mut self, dtype: DType) -> Option<LoopInput> {
        let operands = (0..self.operands.len()).map(Operand);
        let all = operands.chain((0..self.equations.len()).map(Equation));
        let fits: Vec<LoopInput> = all.filter(|&x| self.dtype(x) == dtype).collect();
        match self.stream.below(2) {
            0 => fits.last().copied(),
            _ => (!fits.is_empty()).then(|| fits[self.stream.below(fits.len())]),
        }
    }

    /// Adds an equation of any kind.
    fn equation(&mut self) -> Option<()> {
        let dtype = [DType::F32, DType::Bf16][self.stream.below(2)];
        let other = if dtype == DType::F32 { DType::Bf16 } else { DType::F32 };
        let binary = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
        let (op, dtypes): (Prim, Vec<DType>) = match self.stream.below(10) {
            0..4 => (binary[self.stream.below(binary.len())].into(), vec![dtype; 2]),
            4 => ([Unary::Neg, Unary::Sqrt, Unary::Abs][self.stream.below(3)].into(), vec![dtype]),
            5 => (IntegerPow { y: 2 + self.stream.below(2) as i32 }.into(), vec![dtype]),
            6 => (Clamp.into(), vec![dtype; 3]),
            7 => (Compare::ALL[self.stream.below(6)].into(), vec![dtype; 2]),
            8 => (SelectN.into(), vec![DType::Bool, dtype, dtype]),
            _ => (ConvertElementType { dtype }.into(), vec![other]),
        };
        let ins = dtypes.iter().map(|&dtype| self.value(dtype)).collect::<Option<Vec<LoopInput>>>()?;
        // The evaluator folds equations of literals alone into one number.
        if ins.iter().all(|&x| self.is_literal(x)) {
            return None;
        }
        let dtype = if matches!(op, Prim::Compare(_)) { DType::Bool } else { dtype };
        let is_row = ins.iter().all(|&x| self.extent(x) == Row);
        self.equations.push(equation(op, &ins, dtype, if is_row { Row } else { Full }));
        Some(())
    }

    /// Checks the loop, with some of its results stored.
    fn check(mut self, rows: usize, columns: Option<usize>) {
        let count = self.equations.len();
        let mut outs: Vec<usize> = (0..count).filter(|_| self.stream.below(6) == 0).collect();
        outs.retain(|&out| out + 1 != count);
        outs.push(count - 1);
        let Loop { operands, arrays, equations, .. } = self;
        let spec = LoopSpec { operands, equations, outs, rows, columns, reduction: None };
        check_all(&spec, &arrays);
        // Shorter vectors: the number of elements that a step computes before the next step begins differs.
        for chain in Level::all().filter(|&level| level < Level::best()).filter_map(function_at) {
            let map = Map::new(&spec).expect("a function for each operation");
            check_kernel(&map.with_chain(chain), &spec, &arrays);
        }
    }
}

#[test]
fn chains_in_any_order_have_the_bits_of_their_equations() {
    for (seed, shape) in
        [[2, 3, 1300], [3, 2, 200], [2, 5, 49], [1, 1, 1], [4, 2, 128]].into_iter().cycle().take(120).enumerate()
    {
        let mut this = Loop { stream: Stream::new(seed as u64), operands: vec![], arrays: vec![], equations: vec![] };
        let size = shape.iter().product();
        for dtype in [DType::F32, DType::Bf16] {
            this.literal(dtype);
            this.literal(dtype);
            this.add(dtype, Full, &[shape[1]], Layout::contiguous(&[shape[1]]).broadcast(&shape, &[1]));
            this.add(dtype, Full, &[], Layout::contiguous(&[]).broadcast(&shape, &[]));
            this.add(dtype, Full, &shape, Layout::contiguous(&shape));
            this.add(dtype, Full, &shape, Layout::contiguous(&shape));
        }
        while this.equations.len() < 14 {
            this.equation();
        }
        this.check(size, None);
    }
}

#[test]
fn chains_of_rows_and_of_row_values_are_apart() {
    for (seed, [rows, columns]) in
        [[3, 7], [70, 130], [3, 3000], [1, 1], [40, 1]].into_iter().cycle().take(60).enumerate()
    {
        let mut this = Loop { stream: Stream::new(seed as u64), operands: vec![], arrays: vec![], equations: vec![] };
        let shape = [rows, columns];
        for dtype in [DType::F32, DType::Bf16] {
            this.literal(dtype);
            this.add(dtype, Full, &shape, Layout::contiguous(&shape));
            this.add(dtype, Row, &[rows], Layout::contiguous(&[rows]));
            this.add(dtype, Full, &[columns], Layout::contiguous(&[columns]).broadcast(&shape, &[1]));
        }
        while this.equations.len() < 14 {
            this.equation();
            if this.stream.below(5) == 0 {
                let op: Prim = Reduce { kind: ReduceKind::Max, axes: [1].into_iter().collect() }.into();
                if let Some(x) = this.value(DType::F32).filter(|&x| this.extent(x) == Full && !this.is_literal(x)) {
                    this.equations.push(equation(op, &[x], DType::F32, Row));
                }
            }
        }
        this.check(rows, Some(columns));
    }
}
