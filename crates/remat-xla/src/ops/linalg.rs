//! Linear systems and factorisations. For f16 and bf16 everything is computed in f32 and rounded once.

use remat_ir::{DType, Result, TriangularSolve};

use super::operands;
use crate::value::Value;
use crate::writer::Writer;

pub(super) fn triangular_solve(w: &mut Writer, op: &TriangularSolve, [a, b]: &[Value; 2]) -> Result<Value> {
    let (wide_a, wide_b) = (w.widen(a), w.widen(b));
    let properties = format!(
        "left_side = {}, lower = {}, transpose_a = #stablehlo<transpose {}>, unit_diagonal = {}",
        op.left_side,
        op.lower,
        if op.transpose_a { "TRANSPOSE" } else { "NO_TRANSPOSE" },
        op.unit_diagonal
    );
    let out = wide_b.aval.clone();
    let results = w.generic("triangular_solve", &[wide_a, wide_b], &properties, vec![], &[out])?;
    let [x] = operands(op, &results)?;
    Ok(w.convert(x, b.dtype()))
}

/// StableHLO leaves the elements above the diagonal open: they become zero.
pub(super) fn cholesky(w: &mut Writer, a: &Value) -> Value {
    w.widened(a, |w, a| {
        let factor = w.unary_with("cholesky", a, "lower = true");
        let rank = a.rank();
        let matrix = [a.shape()[rank - 2], a.shape()[rank - 1]];
        let (rows, columns) = (w.iota(DType::I32, 0, &matrix), w.iota(DType::I32, 1, &matrix));
        let is_lower = w.compare("GE", &rows, &columns);
        let is_lower = w.broadcast(&is_lower, &[rank - 2, rank - 1], a.shape());
        let zero = w.splat(&factor, 0.0);
        w.select(&is_lower, &factor, &zero)
    })
}
