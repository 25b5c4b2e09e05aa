//! Samples of linear systems and factorisations.

use remat_ir::{Array, Cholesky, DType, TriangularSolve};

use super::{Sample, Samples, sample};

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

/// Matrices with a diagonal around 3 and small elements beside it, the last two of these dimensions: positive definite, and of a
/// condition that central differences can stand. They are not symmetric.
fn matrices(dtype: DType, shape: &[usize]) -> Array {
    let [.., rows, columns] = *shape else { return sample::any(dtype, shape) };
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let size: usize = shape.iter().product();
    let element = |at: usize| {
        let small = ((at + 1) as f64 * golden).fract() - 0.5;
        if at / columns % rows == at % columns { 3.0 + small } else { small }
    };
    sample::array(
        dtype,
        shape,
        &(0..size.max(1)).map(|at| if size > 0 { element(at) } else { 0.0 }).collect::<Vec<_>>(),
    )
}

impl Samples for TriangularSolve {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let mut add = |label: String, op: TriangularSolve, a: Array, b: Array| {
            samples.push(Sample::new(label, op, vec![a, b]).linear_in(&[1]));
        };
        for options in 0..16 {
            let [left_side, lower, transpose_a, unit_diagonal] = [1, 2, 4, 8].map(|bit| options & bit != 0);
            let op = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
            let b: &[usize] = if left_side { &[3, 2] } else { &[2, 3] };
            add("one matrix".into(), op, matrices(DType::F64, &[3, 3]), sample::floats(b));
        }
        let left = TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: false };
        let right = TriangularSolve { left_side: false, lower: false, ..left };
        for dtype in FLOATS {
            add(dtype.name().into(), left, matrices(dtype, &[3, 3]), sample::any(dtype, &[3, 2]));
            add(dtype.name().into(), right, matrices(dtype, &[3, 3]), sample::any(dtype, &[2, 3]));
        }
        for (label, batch, n, systems) in [
            ("batch", &[2][..], 3, 4),
            ("two batch dimensions", &[2, 1], 2, 1),
            ("no systems", &[2], 3, 0),
            ("empty matrices", &[2], 0, 3),
            ("empty batch", &[0], 2, 3),
            ("one element", &[], 1, 1),
            ("several tiles", &[], 7, 18),
        ] {
            let a = matrices(DType::F64, &[batch, &[n, n]].concat());
            add(label.into(), left, a.clone(), sample::floats(&[batch, &[n, systems]].concat()));
            add(label.into(), right, a, sample::floats(&[batch, &[systems, n]].concat()));
        }
        let singular = sample::array(DType::F64, &[2, 2], &[0.0, 1.0, 2.0, 0.0]);
        samples.push(Sample::new("singular", left, vec![singular, sample::floats(&[2, 2])]).not_smooth());
        samples
    }
}

impl Samples for Cholesky {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in FLOATS {
            samples.push(Sample::new(dtype.name(), Cholesky, vec![matrices(dtype, &[3, 3])]));
        }
        for (label, shape) in [
            ("batch", &[2, 3, 3][..]),
            ("two batch dimensions", &[2, 1, 2, 2]),
            ("one element", &[1, 1]),
            ("several tiles", &[7, 7]),
            ("empty matrices", &[2, 0, 0]),
            ("empty batch", &[0, 3, 3]),
        ] {
            samples.push(Sample::new(label, Cholesky, vec![matrices(DType::F64, shape)]));
        }
        let indefinite = sample::array(DType::F64, &[2, 2, 2], &[1.0, 2.0, 2.0, 1.0, 4.0, 2.0, 2.0, 10.0]);
        samples.push(Sample::new("not positive definite", Cholesky, vec![indefinite]).not_smooth());
        samples
    }
}
