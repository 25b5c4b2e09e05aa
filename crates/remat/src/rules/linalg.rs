//! Rules of linear systems and factorisations.

use remat_ir::{Cholesky, Compare, DType, DotGeneral, Iota, Result, TriangularSolve};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, difference_of, not_linear, unbatched};

impl Rules for TriangularSolve {
    /// `op(a) x = b` gives `op(a) dx = db - op(da) x`: one solution for both tangents.
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let product = match tangents[0] {
            Some(da) => Some(times(self, read_triangle(self, da)?, outs[0])?),
            None => None,
        };
        let rest = difference_of(tangents[1], product);
        Ok(vec![rest.map(|rest| rest.writer().apply(*self, &[ins[0], rest]))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let a = ins[0].known(self)?;
        ins[1].linear(self)?;
        let transposed = TriangularSolve { transpose_a: !self.transpose_a, ..*self };
        Ok(vec![None, cotangents[0].map(|ct| ct.writer().apply(transposed, &[a, ct]))])
    }

    /// A batch of systems with one matrix is more systems of that matrix.
    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        match (ins[0].axis, ins[1].axis) {
            (None, None) => unbatched(w, self, ins),
            (None, Some(_)) => {
                let rank = ins[0].atom.shape()?.len();
                let axis = if self.left_side { rank - 1 } else { rank - 2 };
                let b = ins[1].to_axis(size, axis);
                let whole = b.shape()?;
                let mut merged = whole.clone();
                merged[axis] *= merged.remove(axis + 1);
                let x = w.apply(*self, &[ins[0].atom, b.reshape(&merged)]).reshape(&whole);
                Ok(vec![Batched::at(x, axis)])
            }
            _ => Ok(vec![Batched::front(w.apply(*self, &[ins[0].to_front(size), ins[1].to_front(size)]))]),
        }
    }
}

impl Rules for Cholesky {
    /// `dl = l h(l⁻¹ da l⁻ᵀ)`, where `h` takes the lower triangle with half of the diagonal (Murray 2016, arXiv:1602.07527). Only
    /// the lower triangle of `a` is read, so that `da = h(da) + h(da)ᵀ`.
    fn jvp<'w>(&self, _: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(da) = tangents[0] else { return Ok(vec![None]) };
        let (l, w) = (outs[0], da.writer());
        let rank = da.shape()?.len();
        let half = half_lower(da)?;
        let da = half + half.move_axis(rank - 2, rank - 1);
        let left = TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: false };
        let right = TriangularSolve { left_side: false, transpose_a: true, ..left };
        let inner = w.apply(left, &[l, w.apply(right, &[l, da])]);
        // Above the diagonal `l` is constant: NaN there would come from a factor or a cotangent that is NaN.
        let (row, column) = positions(l)?;
        let product = matmul(l, half_lower(inner)?, [rank - 1, rank - 2])?;
        Ok(vec![Some(row.compare(Compare::Ge, column).select(product, 0.0))])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![Batched::front(ins[0].to_front(size).apply(*self))])
    }
}

/// The row and the column of each element of matrices.
fn positions(x: Expr<'_>) -> Result<(Expr<'_>, Expr<'_>)> {
    let shape = x.shape()?;
    let iota = |axis| x.writer().apply(Iota { dtype: DType::I32, shape: shape.clone(), axis }, &[]);
    Ok((iota(shape.len() - 2), iota(shape.len() - 1)))
}

/// The triangle that a system reads, and zeros elsewhere.
fn read_triangle<'w>(op: &TriangularSolve, a: Expr<'w>) -> Result<Expr<'w>> {
    let (row, column) = positions(a)?;
    let compare = match (op.lower, op.unit_diagonal) {
        (true, false) => Compare::Ge,
        (true, true) => Compare::Gt,
        (false, false) => Compare::Le,
        (false, true) => Compare::Lt,
    };
    Ok(row.compare(compare, column).select(a, 0.0))
}

/// The lower triangle with half of the diagonal, and zeros elsewhere.
fn half_lower(x: Expr<'_>) -> Result<Expr<'_>> {
    let (row, column) = positions(x)?;
    Ok(column.lt(row).select(x, column.eq(row).select(x * 0.5, 0.0)))
}

/// `op(a) x`, or `x op(a)` for systems with the matrix on the right.
fn times<'w>(op: &TriangularSolve, a: Expr<'w>, x: Expr<'w>) -> Result<Expr<'w>> {
    let last = a.shape()?.len() - 1;
    let summed = if op.transpose_a == op.left_side { last - 1 } else { last };
    if op.left_side { matmul(a, x, [summed, last - 1]) } else { matmul(x, a, [last, summed]) }
}

/// Matrix products over these axes among the operands' last two; the others are batch dimensions.
fn matmul<'w>(lhs: Expr<'w>, rhs: Expr<'w>, [left, right]: [usize; 2]) -> Result<Expr<'w>> {
    let aval = lhs.aval()?;
    let product = DotGeneral {
        lhs_contract: [left].into_iter().collect(),
        rhs_contract: [right].into_iter().collect(),
        lhs_batch: (0..aval.rank() - 2).collect(),
        rhs_batch: (0..aval.rank() - 2).collect(),
        preferred_element_type: aval.dtype,
    };
    Ok(lhs.writer().apply(product, &[lhs, rhs]))
}
