//! The derivative of cross entropy.

use super::geometry::operands;
use super::op::op;
use super::rules::{Accepts, same_memory};
use super::{Operation, dtype_error, shape_error};
use crate::{
    Atom, Aval, Binary, BroadcastInDim, Builder, Compare, ConvertElementType, DType, Iota, Jaxpr, Literal, Op, Reduce,
    ReduceKind, Result, SelectN, Unary,
};

/// `cross_entropy_tangent logits labels shift logarithm tangent`: the tangent of `logsumexp(logits) - logits[label]` along the last
/// dimension, which is linear in the tangent of the logits: the sum of that tangent, weighted by the probabilities minus one at the label.
///
/// It is one operation so that the probabilities, `exp(logits - shift - logarithm)`, are not residuals under any policy. `shift` is the
/// largest logit, and `logarithm` the logarithm of the sum of the exponentials of `logits - shift`. They are two operands because their
/// sum, the logsumexp, is rounded, and that error would spoil the probabilities of logits far from zero.
///
/// Logits and tangent are floats `[.., classes]`. Labels are i32 or i64, `[..]`; a label out of range belongs to no class. The shift, the
/// logarithm and the result are f32 `[..]`, or f64 for f64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropyTangent;

impl Operation for CrossEntropyTangent {
    op! { "cross_entropy_tangent" class Reduction }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [logits, labels, shift, logarithm, tangent] = operands(self.name(), ins)?;
        Accepts::Floats.check(self.name(), logits)?;
        same_memory(self.name(), ins)?;
        if !matches!(labels.dtype, DType::I32 | DType::I64) {
            return dtype_error(self.name(), format!("the labels are i32 or i64, not {labels}"));
        }
        let Some((_, positions)) = logits.shape.split_last() else {
            return shape_error(self.name(), format!("the logits {logits} have no dimension of classes"));
        };
        if labels.shape[..] != *positions {
            return shape_error(self.name(), format!("{labels} are not one label for each position of {logits}"));
        }
        let out = labels.with_dtype(logits.dtype.wide());
        for (expected, got) in [(&out, shift), (&out, logarithm), (logits, tangent)] {
            if expected != got {
                return shape_error(self.name(), format!("takes {expected} and got {got}"));
            }
        }
        Ok(vec![out])
    }

    fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
        Some(self.definition(ins))
    }
}

impl CrossEntropyTangent {
    /// A program of other operations that gives the same result for operands of these avals.
    ///
    /// # Errors
    /// If the operation does not take operands of these avals.
    pub fn definition(&self, ins: &[Aval]) -> Result<Jaxpr> {
        self.infer(ins)?;
        let mut b = Builder::new();
        let atoms = b.inputs(ins.iter().cloned());
        let weights = self.weights(&mut b, &atoms[..4])?;
        let tangent = convert(&mut b, atoms[4], ins[4].dtype.wide())?;
        let weighted = b.emit1(Binary::Mul.into(), &[weights, tangent])?;
        let axes = [ins[0].rank() - 1].into_iter().collect();
        let sum = b.emit1(Reduce { kind: ReduceKind::Sum, axes }.into(), &[weighted])?;
        Ok(b.finish(vec![sum]))
    }

    /// The factors of the elements of the tangent: the probabilities minus one at the label. `known` are the operands without the tangent.
    ///
    /// # Errors
    /// If the operation does not take these operands.
    pub fn weights(&self, b: &mut Builder, known: &[Atom]) -> Result<Atom> {
        let [logits, labels, shift, logarithm] = *known else {
            return shape_error(self.name(), format!("has weights of 4 operands and got {}", known.len()));
        };
        let shape = b.shape(logits);
        let dtype = b.dtype(logits).wide();
        let positions = 0..shape.len() - 1;
        let spread: Op = BroadcastInDim { shape: shape.clone(), dims: positions.clone().collect() }.into();
        let mut power = convert(b, logits, dtype)?;
        for subtrahend in [shift, logarithm] {
            let subtrahend = b.emit1(spread.clone(), &[subtrahend])?;
            power = b.emit1(Binary::Sub.into(), &[power, subtrahend])?;
        }
        let probabilities = b.emit1(Unary::Exp.into(), &[power])?;
        let classes = b.emit1(Iota { dtype: b.dtype(labels), shape, axis: positions.end }.into(), &[])?;
        let labels = b.emit1(spread, &[labels])?;
        let is_label = b.emit1(Compare::Eq.into(), &[classes, labels])?;
        let [zero, one] = [0.0, 1.0].map(|value| Atom::Lit(Literal::from_f64(dtype, value)));
        let taken = b.emit1(SelectN.into(), &[is_label, zero, one])?;
        b.emit1(Binary::Sub.into(), &[probabilities, taken])
    }
}

fn convert(b: &mut Builder, x: Atom, dtype: DType) -> Result<Atom> {
    if b.dtype(x) == dtype { Ok(x) } else { b.emit1(ConvertElementType { dtype }.into(), &[x]) }
}
