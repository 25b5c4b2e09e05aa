//! Linear systems and factorisations: values, derivatives, batches, errors.

use remat::{DType, Result, Tensor, TriangularConfig, grad, hessian, jit, vmap};

const LEFT: TriangularConfig =
    TriangularConfig { left_side: true, lower: true, transpose_a: false, unit_diagonal: false };

#[track_caller]
fn close(x: &Tensor, shape: &[usize], expected: &[f64]) {
    assert_eq!(x.aval().unwrap().shape[..], *shape);
    let values = x.to_dtype(DType::F64).to_vec::<f64>().unwrap();
    assert_eq!(values.len(), expected.len());
    for (i, (x, y)) in values.iter().zip(expected).enumerate() {
        assert!(
            (x - y).abs() <= 1e-12 * y.abs().max(1.0) || (x.is_nan() && y.is_nan()),
            "{i}: {values:?}, not {expected:?}"
        );
    }
}

#[track_caller]
fn fails(x: Tensor, message: &str) {
    assert_eq!(x.to_vec::<f64>().unwrap_err().to_string().lines().next().unwrap(), message);
}

/// `[[2, 7], [1, 4]]`: what is above the diagonal belongs to the other triangle.
fn matrix() -> Tensor {
    Tensor::new([[2.0, 7.0], [1.0, 4.0]])
}

#[test]
fn triangular_systems() {
    let (a, b) = (matrix(), Tensor::new([[2.0, 4.0], [9.0, 10.0]]));
    let solve = |config| a.solve_triangular(&b, config);
    close(&solve(LEFT), &[2, 2], &[1.0, 2.0, 2.0, 2.0]);
    close(&solve(TriangularConfig { unit_diagonal: true, ..LEFT }), &[2, 2], &[2.0, 4.0, 7.0, 6.0]);
    close(&solve(TriangularConfig { lower: false, ..LEFT }), &[2, 2], &[-6.875, -6.75, 2.25, 2.5]);
    close(&solve(TriangularConfig { transpose_a: true, ..LEFT }), &[2, 2], &[-0.125, 0.75, 2.25, 2.5]);
    // x [[2, 0], [1, 4]] = b
    close(&solve(TriangularConfig { left_side: false, ..LEFT }), &[2, 2], &[0.5, 1.0, 3.25, 2.5]);
    // A vector for each matrix, on either side.
    let vector = Tensor::new([2.0, 9.0]);
    close(&a.solve_triangular(&vector, LEFT), &[2], &[1.0, 2.0]);
    close(&a.solve_triangular(&vector, TriangularConfig { left_side: false, ..LEFT }), &[2], &[-0.125, 2.25]);
    assert_eq!(TriangularConfig::default(), LEFT);
}

#[test]
fn singular_systems_have_no_finite_solution() {
    let a = Tensor::new([[0.0, 0.0], [1.0, 4.0]]);
    close(&a.solve_triangular(&Tensor::new([0.0, 1.0]), LEFT), &[2], &[f64::NAN, f64::NAN]);
    let x = a.solve_triangular(&Tensor::new([1.0, 1.0]), LEFT).to_vec::<f64>().unwrap();
    assert_eq!(x, [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn cholesky_factors() {
    let a = Tensor::new([[4.0, 2.0, -2.0], [2.0, 10.0, 8.0], [-2.0, 8.0, 26.0]]);
    let l = [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 3.0, 4.0];
    close(&a.cholesky(), &[3, 3], &l);
    close(&a.cholesky_of_lower(), &[3, 3], &l);
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        close(&a.to_dtype(dtype).cholesky(), &[3, 3], &l);
    }
    // The mean of a matrix and its transpose, and one triangle alone.
    let uneven = Tensor::new([[4.0, 1.0], [3.0, 10.0]]);
    close(&uneven.cholesky(), &[2, 2], &[2.0, 0.0, 1.0, 3.0]);
    close(&uneven.cholesky_of_lower(), &[2, 2], &[2.0, 0.0, 1.5, 7.75f64.sqrt()]);
    close(&Tensor::zeros([0, 0], DType::F64).cholesky(), &[0, 0], &[]);
    close(&Tensor::zeros([0, 3, 3], DType::F64).cholesky(), &[0, 3, 3], &[]);
}

#[test]
fn matrices_that_are_not_positive_definite_have_no_factor() {
    let nan = f64::NAN;
    for pivot in [1.0, -3.0, nan] {
        let a = Tensor::new([[1.0, 1.0], [1.0, pivot]]);
        close(&a.cholesky(), &[2, 2], &[nan, 0.0, nan, nan]);
    }
    let batch = Tensor::new([[[0.0]], [[4.0]]]);
    close(&batch.cholesky(), &[2, 1, 1], &[nan, 2.0]);
}

/// The factors of a large matrix multiply to it, and solve by it.
#[test]
fn large_matrices() -> Result<()> {
    for n in [70, 300] {
        let noise = (Tensor::arange(0.0..(n * n) as f64).reshape([n, n]) * 12.9898).sin();
        let a = noise.matmul(&noise.t()) + Tensor::eye(n, DType::F64);
        let l = a.cholesky();
        let error = (l.matmul(&l.t()) - &a).abs().max(..).item::<f64>()?;
        assert!(error < 1e-11 * n as f64, "{error}");
        let y = l.solve_triangular(&noise, LEFT);
        let x = l.solve_triangular(&y, TriangularConfig { transpose_a: true, ..LEFT });
        let error = (a.matmul(&x) - &noise).abs().max(..).item::<f64>()?;
        assert!(error < 1e-8, "{error}");
    }
    Ok(())
}

/// The derivative of the logarithm of a determinant is the inverse: `[[10, -2], [-2, 4]] / 36`.
#[test]
fn derivatives_of_determinants() -> Result<()> {
    let log_det = |a: &Tensor| a.cholesky().diagonal(0, 0, 1).log().sum(..) * 2.0;
    let log_det_of_lower = |a: &Tensor| a.cholesky_of_lower().diagonal(0, 0, 1).log().sum(..) * 2.0;
    let a = Tensor::new([[4.0, 2.0], [2.0, 10.0]]);
    close(&grad(log_det)(&a)?, &[2, 2], &[10.0 / 36.0, -2.0 / 36.0, -2.0 / 36.0, 4.0 / 36.0]);
    // Only the triangle that is read has a derivative, for both of its elements.
    close(&grad(log_det_of_lower)(&a)?, &[2, 2], &[10.0 / 36.0, 0.0, -4.0 / 36.0, 4.0 / 36.0]);
    // -inv(a)[i,k] inv(a)[l,j] for the first element.
    let second = hessian(log_det_of_lower)(&a)?.reshape([4, 4]).index(0);
    close(&second, &[4], &[-100.0 / 1296.0, 0.0, 40.0 / 1296.0, -4.0 / 1296.0]);
    Ok(())
}

#[test]
fn derivatives_of_systems() -> Result<()> {
    let b = Tensor::new([2.0, 9.0]);
    let b = &b;
    let sum = |config| move |a: &Tensor| a.solve_triangular(b, config).sum(..);
    // x = [1, 2]; the gradient is -y xᵀ with aᵀ y = [1, 1], y = [0.375, 0.25].
    close(&grad(sum(LEFT))(&matrix())?, &[2, 2], &[-0.375, 0.0, -0.25, -0.5]);
    let unit = TriangularConfig { unit_diagonal: true, ..LEFT };
    close(&grad(sum(unit))(&matrix())?, &[2, 2], &[0.0, 0.0, -2.0, 0.0]);
    Ok(())
}

/// Systems with one matrix are solved as more systems of that matrix.
#[test]
fn batches() -> Result<()> {
    let bs = Tensor::new([[2.0, 9.0], [4.0, 10.0], [0.0, 4.0]]);
    let shared = vmap(|b: &Tensor| matrix().solve_triangular(b, LEFT))(&bs)?;
    close(&shared, &[3, 2], &[1.0, 2.0, 2.0, 2.0, 0.0, 1.0]);
    let stacked = Tensor::stack(&[matrix(), matrix(), matrix()], 0);
    close(&stacked.solve_triangular(&bs, LEFT), &[3, 2], &[1.0, 2.0, 2.0, 2.0, 0.0, 1.0]);
    let compiled = jit(|a: &Tensor| a.cholesky()).call(Tensor::new([[[4.0]], [[9.0]]]))?;
    close(&compiled, &[2, 1, 1], &[2.0, 3.0]);
    Ok(())
}

#[test]
fn errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape.to_vec(), DType::F64);
    fails(zeros(&[3]).cholesky(), "cholesky: takes square matrices, not f64[3]");
    fails(zeros(&[2, 3, 4]).cholesky(), "cholesky: takes square matrices, and those of f64[2,3,4] are 3 by 4");
    fails(
        Tensor::new([[1i32]]).cholesky(),
        "cholesky: takes floats, not i32[1,1]; convert it with .to_dtype(DType::F32)",
    );
    let solve = |a: &Tensor, b: &Tensor| a.solve_triangular(b, LEFT);
    fails(
        solve(&zeros(&[2, 3]), &zeros(&[2, 3])),
        "triangular_solve: takes square matrices, and those of f64[2,3] are 2 by 3",
    );
    fails(
        solve(&zeros(&[2, 2]), &zeros(&[3, 2])),
        "triangular_solve: the matrices of f64[2,2] have size 2, and those of f64[3,2] have 3 rows",
    );
    fails(
        zeros(&[2, 2]).solve_triangular(&zeros(&[2, 3]), TriangularConfig { left_side: false, ..LEFT }),
        "triangular_solve: the matrices of f64[2,2] have size 2, and those of f64[2,3] have 3 columns",
    );
    fails(
        solve(&zeros(&[4, 2, 2]), &zeros(&[3, 2, 2])),
        "triangular_solve: f64[4,2,2] and f64[3,2,2] have different batch dimensions",
    );
    fails(solve(&zeros(&[2, 2]), &zeros(&[])), "triangular_solve: f64[2,2] and f64[] have different batch dimensions");
    fails(
        solve(&zeros(&[2, 2]), &zeros(&[2, 2]).to_dtype(DType::F32)),
        "triangular_solve: f64[2,2] and f32[2,2] have different dtypes; convert one with .to_dtype(DType::F64)",
    );
}
