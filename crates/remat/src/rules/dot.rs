//! Rules of the general matrix product.

use remat_ir::{Atom, Aval, Builder, DType, DotGeneral, Result, Shape};

use super::sample::{any, floats};
use super::shape::{shifted, unbatched};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear};

impl Rules for DotGeneral {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let lhs = tangents[0].map(|t| b.apply(self.clone(), &[t, ins[1]])).transpose()?;
        let rhs = tangents[1].map(|t| b.apply(self.clone(), &[ins[0], t])).transpose()?;
        Ok(vec![b.add_any(lhs, rhs)?])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None, None]) };
        match (&ins[0], &ins[1]) {
            (Operand::Linear(x), &Operand::Known(y)) => Ok(vec![Some(transpose_lhs(b, self, ct, x, y, false)?), None]),
            (&Operand::Known(x), Operand::Linear(y)) => {
                let swapped = DotGeneral {
                    lhs_contract: self.rhs_contract.clone(),
                    rhs_contract: self.lhs_contract.clone(),
                    lhs_batch: self.rhs_batch.clone(),
                    rhs_batch: self.lhs_batch.clone(),
                    preferred_element_type: self.preferred_element_type,
                };
                Ok(vec![None, Some(transpose_lhs(b, &swapped, ct, y, x, true)?)])
            }
            (Operand::Known(_), Operand::Known(_)) | (Operand::Linear(_), Operand::Linear(_)) => Err(not_linear(self)),
        }
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let mut op = self.clone();
        if let Some(axis) = ins[0].axis {
            op.lhs_contract = shifted(&self.lhs_contract, axis);
            op.lhs_batch = shifted(&self.lhs_batch, axis);
        }
        if let Some(axis) = ins[1].axis {
            op.rhs_contract = shifted(&self.rhs_contract, axis);
            op.rhs_batch = shifted(&self.rhs_batch, axis);
        }
        // A batch dimension of one operand is one more free dimension, whose place in the result follows from its place
        // among the operand's free dimensions: nothing is moved.
        let out = match (ins[0].axis, ins[1].axis) {
            (Some(l), Some(r)) => {
                op.lhs_batch.insert(0, l);
                op.rhs_batch.insert(0, r);
                0
            }
            (Some(axis), None) => {
                let lhs = remaining(b.shape(ins[0].atom).len(), &op.lhs_contract, &op.lhs_batch);
                op.lhs_batch.len() + lhs.iter().filter(|&&d| d < axis).count()
            }
            (None, Some(axis)) => {
                let lhs = remaining(b.shape(ins[0].atom).len(), &op.lhs_contract, &op.lhs_batch);
                let rhs = remaining(b.shape(ins[1].atom).len(), &op.rhs_contract, &op.rhs_batch);
                op.lhs_batch.len() + lhs.len() + rhs.iter().filter(|&&d| d < axis).count()
            }
            (None, None) => return unbatched(b, self, ins),
        };
        let atom = b.apply(op, &[ins[0].atom, ins[1].atom])?;
        Ok(vec![Batched { atom, axis: Some(out) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |contract: (&[usize], &[usize]), batch: (&[usize], &[usize]), dtype| DotGeneral {
            lhs_contract: contract.0.into(),
            rhs_contract: contract.1.into(),
            lhs_batch: batch.0.into(),
            rhs_batch: batch.1.into(),
            preferred_element_type: dtype,
        };
        let sample =
            |label: &str, contract: (&[usize], &[usize]), batch: (&[usize], &[usize]), lhs: &[usize], rhs: &[usize]| {
                Sample::new(label, op(contract, batch, DType::F64), vec![floats(lhs), floats(rhs)])
                    .linear_in(&[0])
                    .linear_in(&[1])
            };
        let none: (&[usize], &[usize]) = (&[], &[]);
        let mut samples = vec![
            sample("matrix and matrix", (&[1], &[0]), none, &[2, 3], &[3, 4]),
            sample("matrix and vector", (&[1], &[0]), none, &[2, 3], &[3]),
            sample("vector and matrix", (&[0], &[0]), none, &[3], &[3, 2]),
            sample("inner product", (&[0], &[0]), none, &[3], &[3]),
            sample("outer product", none, none, &[2], &[3]),
            sample("scalars", none, none, &[], &[]),
            sample("transposed operands", (&[0], &[1]), none, &[3, 2], &[4, 3]),
            sample("batch", (&[2], &[1]), (&[0], &[0]), &[2, 3, 4], &[2, 4, 2]),
            sample("batch dimensions inside", (&[0], &[2]), (&[2, 1], &[0, 1]), &[3, 2, 4, 2], &[4, 2, 3]),
            sample("batch only", none, (&[0, 1], &[1, 0]), &[2, 3], &[3, 2]),
            sample("several contracted, crossed", (&[0, 2], &[2, 0]), none, &[2, 3, 4], &[4, 2, 2]),
            sample("everything contracted", (&[1, 0], &[0, 1]), none, &[2, 3], &[3, 2]),
            sample("nothing to sum", (&[1], &[0]), none, &[2, 0], &[0, 3]),
            sample("empty result", (&[1], &[0]), none, &[0, 2], &[2, 3]),
            sample("empty batch", (&[1], &[1]), (&[0], &[0]), &[0, 2], &[0, 2]),
            sample("rank 6", (&[5, 1], &[0, 3]), (&[2, 0], &[2, 1]), &[2, 2, 1, 2, 1, 3], &[3, 2, 1, 2, 2]),
        ];
        let pair = |d| vec![any(d, &[2, 3]), any(d, &[3, 2])];
        samples.extend(
            DType::ALL
                .map(|d| Sample::new(d.name(), op((&[1], &[0]), none, d), pair(d)).linear_in(&[0]).linear_in(&[1])),
        );
        for (from, to) in [
            (DType::Bf16, DType::F32),
            (DType::F16, DType::F32),
            (DType::F32, DType::F64),
            (DType::F32, DType::Bf16),
            (DType::I8, DType::I32),
        ] {
            let op = op((&[1], &[0]), none, to);
            let label = format!("{from} with a result in {to}");
            samples.push(Sample::new(label, op, pair(from)).linear_in(&[0]).linear_in(&[1]));
        }
        samples
    }
}

/// The cotangent of `x` in `dot_general x y`, or in `dot_general y x` if `swapped`: a product of `ct` and `y`, whose
/// dimensions are put in order at the end only where they are not in it already.
fn transpose_lhs(b: &mut Builder, op: &DotGeneral, ct: Atom, x: &Aval, y: Atom, swapped: bool) -> Result<Atom> {
    let x_kept = remaining(x.rank(), &op.lhs_contract, &op.lhs_batch);
    let y_kept = remaining(b.shape(y).len(), &op.rhs_contract, &op.rhs_batch);
    let batch = op.lhs_batch.len();
    let first = batch + if swapped { 0 } else { x_kept.len() };
    let (ct, y) = same_dtype(b, ct, y)?;
    let product = DotGeneral {
        lhs_contract: (first..first + y_kept.len()).collect(),
        rhs_contract: y_kept,
        lhs_batch: (0..batch).collect(),
        rhs_batch: op.rhs_batch.clone(),
        preferred_element_type: x.dtype,
    };
    let product = b.apply(product, &[ct, y])?;
    // The product has the batch dimensions, what is kept of `x`, and the contracted dimensions in the order of `y`.
    let mut contracted: Vec<(usize, usize)> =
        op.rhs_contract.iter().copied().zip(op.lhs_contract.iter().copied()).collect();
    contracted.sort_unstable();
    let dims = op.lhs_batch.iter().copied().chain(x_kept).chain(contracted.into_iter().map(|(_, x)| x));
    let mut permutation = vec![0; x.rank()];
    for (position, dim) in dims.enumerate() {
        permutation[dim] = position;
    }
    b.transpose(product, &permutation)
}

/// The dimensions that are neither contracted nor batch.
fn remaining(rank: usize, contract: &[usize], batch: &[usize]) -> Shape {
    (0..rank).filter(|d| !contract.contains(d) && !batch.contains(d)).collect()
}

/// Both in the wider of their dtypes; a product takes operands of one dtype, and its cotangent has the result's.
pub(super) fn same_dtype(b: &mut Builder, x: Atom, y: Atom) -> Result<(Atom, Atom)> {
    let dtype = match (b.dtype(x), b.dtype(y)) {
        (x, y) if x == y => x,
        (x, y) if x.size() > y.size() => x,
        (x, y) if x.size() < y.size() => y,
        // Neither of f16 and bf16 holds the other.
        _ => DType::F32,
    };
    Ok((b.convert(x, dtype)?, b.convert(y, dtype)?))
}
