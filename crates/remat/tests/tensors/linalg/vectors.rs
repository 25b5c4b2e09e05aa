//! Values and derivatives beside JAX's and SciPy's; `data/linalg/generate.py` wrote the numbers.

use remat::{DType, Tensor, TriangularConfig, grad, jvp, vjp};

/// Sizes of the cases: the batch, the size of the matrices, the systems of each.
const SYSTEMS: [(usize, usize, usize); 3] = [(2, 3, 2), (1, 4, 1), (1, 1, 1)];

/// Errors relative to the largest number of a result.
const PRECISIONS: [(DType, f64); 2] = [(DType::F64, 1e-12), (DType::F32, 1e-5)];

fn expected(name: &str) -> Vec<f64> {
    let lines = include_str!("../../data/linalg/vectors.txt").lines();
    let mut words = lines.map(|l| l.split(' ')).find(|w| w.clone().next() == Some(name)).unwrap();
    words.next();
    words.map(|w| w.parse().unwrap()).collect()
}

#[track_caller]
fn close(name: &str, x: &Tensor, tolerance: f64) {
    let (values, expected) = (x.to_dtype(DType::F64).to_vec::<f64>().unwrap(), expected(name));
    assert_eq!(values.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    for (i, (x, y)) in values.iter().zip(&expected).enumerate() {
        let is_close = (x - y).abs() <= tolerance * scale || (x.is_nan() && y.is_nan());
        assert!(is_close, "{name}, element {i}: {values:?}, not {expected:?}");
    }
}

/// Element i is sin(0.7 i + seed).
fn wave(shape: &[usize], seed: f64) -> Tensor {
    let elements: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (0.7 * i as f64 + seed).sin()).collect();
    Tensor::from_slice(&elements, shape)
}

fn matrices(batch: usize, n: usize) -> Tensor {
    wave(&[batch, n, n], 1.0) + Tensor::eye(n, DType::F64) * 2.0
}

fn definite(batch: usize, n: usize) -> Tensor {
    let m = matrices(batch, n);
    let above = wave(&[batch, n, n], 9.0).triu(1);
    m.matmul(&m.transpose([0, 2, 1])) + Tensor::eye(n, DType::F64) + above
}

/// The value, its derivative along waves, and the pullback of a wave.
fn check(name: &str, f: impl Fn(&Vec<Tensor>) -> Tensor, operands: &[Tensor]) {
    for (dtype, tolerance) in PRECISIONS {
        let waves = |seed: f64, x: &Tensor| wave(x.shape().unwrap(), seed).to_dtype(dtype);
        let operands: Vec<Tensor> = operands.iter().map(|x| x.to_dtype(dtype)).collect();
        let tangents = operands.iter().enumerate().map(|(i, x)| waves(5.0 + i as f64, x)).collect();
        let (value, tangent) = jvp(&f, &operands, &tangents).unwrap();
        close(name, &value, tolerance);
        close(&format!("{name}.tangent"), &tangent, tolerance);
        let (value, pullback) = vjp(&f, &operands).unwrap();
        close(name, &value, tolerance);
        for (i, cotangent) in pullback.call(&waves(8.0, &value)).unwrap().iter().enumerate() {
            close(&format!("{name}.cotangent{i}"), cotangent, tolerance);
        }
    }
}

/// Each configuration, with its digits in the names of the cases.
fn configurations() -> impl Iterator<Item = (String, TriangularConfig)> {
    (0..16).map(|bits| {
        let [left_side, lower, transpose_a, unit_diagonal] = [8, 4, 2, 1].map(|bit| bits & bit != 0);
        (format!("{bits:04b}"), TriangularConfig { left_side, lower, transpose_a, unit_diagonal })
    })
}

#[test]
fn triangular_systems_are_those_of_jax() {
    for (batch, n, k) in SYSTEMS {
        for (digits, config) in configurations() {
            let name = format!("solve.{batch}x{n}x{k}.{digits}");
            let b = wave(&if config.left_side { [batch, n, k] } else { [batch, k, n] }, 2.0);
            let operands = [matrices(batch, n), b];
            check(&name, |x| x[0].solve_triangular(&x[1], config), &operands);
            if k == 1 {
                // One vector for each matrix.
                let [a, b] = &operands;
                check(&name, |x| x[0].solve_triangular(&x[1], config), &[a.clone(), b.reshape([batch, n])]);
            }
            if batch == 2 {
                let [a, b] = operands.map(|x| x.to_dtype(DType::Bf16));
                let x = a.solve_triangular(&b, config);
                assert_eq!(x.dtype().unwrap(), DType::Bf16);
                close(&format!("{name}.bf16"), &x, 1.0 / 128.0);
            }
        }
    }
}

#[test]
fn empty_systems_stay_empty() {
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        for (_, config) in configurations() {
            for (batch, n, k) in [(2, 0, 3), (2, 3, 0), (0, 3, 2), (0, 0, 0)] {
                let b = Tensor::zeros(if config.left_side { [batch, n, k] } else { [batch, k, n] }, dtype);
                let operands = vec![Tensor::zeros([batch, n, n], dtype), b];
                let (x, pullback) = vjp(|x: &Vec<Tensor>| x[0].solve_triangular(&x[1], config), &operands).unwrap();
                assert_eq!(x.aval().unwrap(), operands[1].aval().unwrap());
                let cotangents = pullback.call(&x).unwrap();
                for (cotangent, operand) in cotangents.iter().zip(&operands) {
                    assert_eq!(cotangent.aval().unwrap(), operand.aval().unwrap());
                }
            }
        }
    }
}

#[test]
fn cholesky_factors_are_those_of_jax() {
    for (batch, n) in [(2, 3), (1, 4), (1, 1)] {
        let a = [definite(batch, n)];
        check(&format!("cholesky.{batch}x{n}"), |x| x[0].cholesky(), &a);
        check(&format!("cholesky_of_lower.{batch}x{n}"), |x| x[0].cholesky_of_lower(), &a);
    }
}

/// The factor is constant above the diagonal: a cotangent there, such as the NaN of a logarithm, changes nothing.
#[test]
fn cotangents_above_the_diagonal_are_not_used() {
    let of_lower = |l: Tensor| Tensor::ones([2, 2], DType::Bool).tril(0).select(l.log(), 0.0).sum(..);
    let gradient = grad(|a: &Tensor| of_lower(a.cholesky()))(&Tensor::new([[4.0, 2.0], [2.0, 10.0]])).unwrap();
    // As JAX has it.
    let expected = [1.0 / 72.0, 2.0 / 9.0, 2.0 / 9.0, 1.0 / 18.0];
    for (x, y) in gradient.to_vec::<f64>().unwrap().into_iter().zip(expected) {
        assert!((x - y).abs() < 1e-14, "{gradient}");
    }
}

/// One matrix of a batch has no factor: it and its derivatives are NaN, and the others are as they are alone.
#[test]
fn indefinite_matrices_are_nan_as_in_jax() {
    let a = Tensor::new([[[4.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]]]);
    check("cholesky.indefinite", |x| x[0].cholesky(), &[a]);
}
