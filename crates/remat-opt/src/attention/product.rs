//! Products, with the axes of the scores that their dimensions follow.

use remat_ir::{Atom, DType, DotGeneral, Op, Prim, Shape};

use super::values::{Axes, Axis, FEATURES, Program, Value};

/// A matrix product of a program.
pub(super) struct Product<'a> {
    op: &'a DotGeneral,
    pub(super) ins: [Atom; 2],
    shapes: [Shape; 2],
}

impl<'a> Product<'a> {
    /// The product that this equation is, of operands of this dtype, in which it is summed.
    pub(super) fn new(program: &Program<'a>, at: usize, dtype: DType, sum: DType) -> Option<Product<'a>> {
        let eqn = program.eqn(at);
        let (Op::Prim(Prim::DotGeneral(op)), &[left, right]) = (&eqn.op, &eqn.ins[..]) else { return None };
        let ins = [left, right];
        let is_of = program.dtype(left) == dtype && op.preferred_element_type == sum;
        is_of.then(|| Product { op, ins, shapes: ins.map(|atom| program.shape(atom)) })
    }

    pub(super) fn batch(&self, side: usize) -> &'a [usize] {
        [&self.op.lhs_batch, &self.op.rhs_batch][side]
    }

    pub(super) fn contracted(&self, side: usize) -> &'a [usize] {
        [&self.op.lhs_contract, &self.op.rhs_contract][side]
    }

    /// The dimensions of an operand that are free.
    fn free(&self, side: usize) -> impl Iterator<Item = usize> {
        let (batch, contracted) = (self.batch(side), self.contracted(side));
        (0..self.shapes[side].len()).filter(move |d| !batch.contains(d) && !contracted.contains(d))
    }

    /// The axes of the result, if one operand follows these axes, and the free dimensions of the other one are features.
    pub(super) fn result(&self, side: usize, axes: &Axes) -> Axes {
        let batch = self.batch(side).iter().map(|&dimension| axes[dimension]);
        let of_side = |other: usize| {
            let shape = &self.shapes[other];
            self.free(other).map(move |d| if other == side { axes[d] } else { (shape[d] != 1).then_some(FEATURES) })
        };
        batch.chain(of_side(0)).chain(of_side(1)).collect()
    }

    /// The operands, from the axes of the result and the axis of the contracted dimensions.
    pub(super) fn operands(&self, result: &Axes, contracted: Axis) -> [Value; 2] {
        let mut free = result[self.op.lhs_batch.len()..].iter();
        [0, 1].map(|side| {
            let mut axes: Axes = self.shapes[side].iter().map(|&size| (size != 1).then_some(contracted)).collect();
            self.batch(side).iter().zip(result).for_each(|(&dimension, &axis)| axes[dimension] = axis);
            self.free(side).zip(&mut free).for_each(|(dimension, &axis)| axes[dimension] = axis);
            Value { atom: self.ins[side], axes }
        })
    }
}
