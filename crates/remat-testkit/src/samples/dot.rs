//! Samples of the general matrix product.

use remat_ir::{DType, DotGeneral};

use super::sample::{any, floats};
use super::{Sample, Samples};

impl Samples for DotGeneral {
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
