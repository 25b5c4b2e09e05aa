//! Linear systems and factorisations of matrices, which are the last two dimensions of their operands.

use super::geometry::{alike, operands};
use super::op::op;
use super::rules::Accepts;
use super::{Operation, shape_error};
use crate::{Aval, Result};

/// `triangular_solve a b`: the `x` with `op(a) x = b`, or `x op(a) = b` unless `left_side`, where `op(a)` is `a` or its
/// transpose. Both operands have the same batch dimensions in front.
///
/// Only the lower triangle of `a` is read, or the upper one; with a unit diagonal, the diagonal is not read either. A diagonal
/// element that is zero gives infinities and NaN. Each element is `b` less products that are subtracted in the order of the
/// solution, divided by the diagonal element; for f16 and bf16 everything is computed in f32 and rounded once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct TriangularSolve {
    pub left_side: bool,
    pub lower: bool,
    pub transpose_a: bool,
    pub unit_diagonal: bool,
}

/// `cholesky a`: the lower triangular `l` with `l lᵀ = a` for symmetric positive definite matrices, with zeros above the diagonal.
///
/// Only the lower triangle of `a` is read. Where `a` is not positive definite, the whole lower triangle of the result is NaN.
/// For f16 and bf16 everything is computed in f32 and rounded once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cholesky;

/// Fails unless the operand is a square matrix of floats, or a batch of such.
fn check_square(name: &str, a: &Aval) -> Result<()> {
    Accepts::Floats.check(name, a)?;
    match a.shape[..] {
        [.., m, n] if m == n => Ok(()),
        [.., m, n] => shape_error(name, format!("takes square matrices, and those of {a} are {m} by {n}")),
        _ => shape_error(name, format!("takes square matrices, not {a}")),
    }
}

impl Operation for TriangularSolve {
    op! { "triangular_solve" class Contraction { left_side, lower, transpose_a, unit_diagonal } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [a, b] = operands(name, ins)?;
        alike(name, a, b)?;
        check_square(name, a)?;
        let batch = a.rank() - 2;
        if a.rank() != b.rank() || a.shape[..batch] != b.shape[..batch] {
            return shape_error(name, format!("{a} and {b} have different batch dimensions"));
        }
        let (n, (what, size)) =
            (a.shape[batch], if self.left_side { ("rows", b.shape[batch]) } else { ("columns", b.shape[batch + 1]) });
        if size != n {
            return shape_error(
                name,
                format!("the matrices of {a} have size {n}, and those of {b} have {size} {what}"),
            );
        }
        Ok(vec![b.clone()])
    }
}

impl Operation for Cholesky {
    op! { "cholesky" class Contraction }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [a] = operands(self.name(), ins)?;
        check_square(self.name(), a)?;
        Ok(vec![a.clone()])
    }
}
