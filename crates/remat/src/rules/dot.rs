//! Rules of the general matrix product.

use remat_ir::{Aval, DType, DotGeneral, Result, Shape};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, shifted, sum_of, unbatched};

impl Rules for DotGeneral {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let dot = |x, y| outs[0].writer().apply(self.clone(), &[x, y]);
        Ok(vec![sum_of(tangents[0].map(|t| dot(t, ins[1])), tangents[1].map(|t| dot(ins[0], t)))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None, None]) };
        match (&ins[0], &ins[1]) {
            (Operand::Linear(x), &Operand::Known(y)) => Ok(vec![Some(transpose_lhs(self, ct, x, y, false)?), None]),
            (&Operand::Known(x), Operand::Linear(y)) => {
                let swapped = DotGeneral {
                    lhs_contract: self.rhs_contract.clone(),
                    rhs_contract: self.lhs_contract.clone(),
                    lhs_batch: self.rhs_batch.clone(),
                    rhs_batch: self.lhs_batch.clone(),
                    preferred_element_type: self.preferred_element_type,
                };
                Ok(vec![None, Some(transpose_lhs(&swapped, ct, y, x, true)?)])
            }
            (Operand::Known(_), Operand::Known(_)) | (Operand::Linear(_), Operand::Linear(_)) => Err(not_linear(self)),
        }
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (lhs_rank, rhs_rank) = (ins[0].atom.shape()?.len(), ins[1].atom.shape()?.len());
        let mut op = self.clone();
        if let Some(axis) = ins[0].axis {
            op.lhs_contract = shifted(&self.lhs_contract, axis);
            op.lhs_batch = shifted(&self.lhs_batch, axis);
        }
        if let Some(axis) = ins[1].axis {
            op.rhs_contract = shifted(&self.rhs_contract, axis);
            op.rhs_batch = shifted(&self.rhs_batch, axis);
        }
        // A batch dimension of one operand is an additional free dimension. Its position in the result follows from its position among the
        // operand's free dimensions, so nothing is moved.
        let out = match (ins[0].axis, ins[1].axis) {
            (Some(l), Some(r)) => {
                op.lhs_batch.insert(0, l);
                op.rhs_batch.insert(0, r);
                0
            }
            (Some(axis), None) => {
                let lhs = remaining(lhs_rank, &op.lhs_contract, &op.lhs_batch);
                op.lhs_batch.len() + lhs.iter().filter(|&&d| d < axis).count()
            }
            (None, Some(axis)) => {
                let lhs = remaining(lhs_rank, &op.lhs_contract, &op.lhs_batch);
                let rhs = remaining(rhs_rank, &op.rhs_contract, &op.rhs_batch);
                op.lhs_batch.len() + lhs.len() + rhs.iter().filter(|&&d| d < axis).count()
            }
            (None, None) => return unbatched(w, self, ins),
        };
        Ok(vec![Batched::at(w.apply(op, &[ins[0].atom, ins[1].atom]), out)])
    }
}

/// The cotangent of `x` in `dot_general x y`, or in `dot_general y x` if `swapped`: a product of `ct` and `y`, whose dimensions are
/// permuted at the end only if they are out of order.
fn transpose_lhs<'w>(op: &DotGeneral, ct: Expr<'w>, x: &Aval, y: Expr<'w>, swapped: bool) -> Result<Expr<'w>> {
    let x_kept = remaining(x.rank(), &op.lhs_contract, &op.lhs_batch);
    let y_kept = remaining(y.shape()?.len(), &op.rhs_contract, &op.rhs_batch);
    let batch = op.lhs_batch.len();
    let first = batch + if swapped { 0 } else { x_kept.len() };
    let (ct, y) = same_dtype(ct, y)?;
    let product = DotGeneral {
        lhs_contract: (first..first + y_kept.len()).collect(),
        rhs_contract: y_kept,
        lhs_batch: (0..batch).collect(),
        rhs_batch: op.rhs_batch.clone(),
        preferred_element_type: x.dtype,
    };
    // The product has the batch dimensions, the free dimensions of `x`, and the contracted dimensions in the order of `y`.
    let mut contracted: Vec<(usize, usize)> =
        op.rhs_contract.iter().copied().zip(op.lhs_contract.iter().copied()).collect();
    contracted.sort_unstable();
    let dims = op.lhs_batch.iter().copied().chain(x_kept).chain(contracted.into_iter().map(|(_, x)| x));
    let mut permutation = vec![0; x.rank()];
    for (position, dim) in dims.enumerate() {
        permutation[dim] = position;
    }
    Ok(ct.writer().apply(product, &[ct, y]).transpose(&permutation))
}

/// The dimensions that are neither contracted nor batch.
fn remaining(rank: usize, contract: &[usize], batch: &[usize]) -> Shape {
    (0..rank).filter(|d| !contract.contains(d) && !batch.contains(d)).collect()
}

/// Both operands in the wider of their dtypes. A product takes operands of one dtype, and its cotangent has that of the result.
pub(super) fn same_dtype<'w>(x: Expr<'w>, y: Expr<'w>) -> Result<(Expr<'w>, Expr<'w>)> {
    let dtype = match (x.dtype()?, y.dtype()?) {
        (x, y) if x == y => x,
        (x, y) if x.size() > y.size() => x,
        (x, y) if x.size() < y.size() => y,
        // Neither of f16 and bf16 represents all of the other.
        _ => DType::F32,
    };
    Ok((x.convert(dtype), y.convert(dtype)))
}
