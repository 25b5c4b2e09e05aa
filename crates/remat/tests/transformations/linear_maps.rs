//! The linear maps of `linearize`, `vjp` and `linear_transpose`, and their residuals.

use remat::report::SavedKind;
use remat::{DType, LinearMap, Policy, Tensor, checkpoint, grad, jit, linear_transpose, linearize, vjp};

fn vector(x: &[f64]) -> Tensor {
    Tensor::from(x.to_vec())
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

fn function(x: &Tensor) -> Tensor {
    x.sin().exp()
}

#[test]
fn derivatives_and_pullbacks_are_of_one_type() {
    let x = vector(&[0.5, -1.0]);
    let (_, derivative): (_, LinearMap<Tensor, Tensor>) = linearize(function, &x).unwrap();
    let (_, pullback): (_, LinearMap<Tensor, Tensor>) = vjp(function, &x).unwrap();
    let transposed: LinearMap<Tensor, Tensor> = linear_transpose(|t: &Tensor| derivative.call(t), &x).unwrap();
    let ct = vector(&[2.0, 3.0]);
    for map in [&derivative, &pullback, &transposed] {
        let image = values(&map.call(&ct).unwrap());
        for ((image, x), ct) in image.iter().zip(values(&x)).zip(values(&ct)) {
            assert!((image - ct * x.sin().exp() * x.cos()).abs() < 1e-14);
        }
    }
    let kinds: Vec<_> = transposed.saved_residuals().iter().map(|r| r.kind.clone()).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == SavedKind::Constant));
}

#[test]
fn residuals_are_taken_out_and_put_back() {
    let x = vector(&[0.5, -1.0]);
    let ct = vector(&[1.0, 1.0]);
    let (_, mut pullback) = vjp(function, &x).unwrap();
    let expected = values(&pullback.call(&ct).unwrap());
    let shared = pullback.clone();
    let residuals = pullback.take_residuals();
    assert_eq!(residuals.len(), 2);
    assert!(pullback.residuals().is_empty());
    assert_eq!(values(&shared.call(&ct).unwrap()), expected, "a copy keeps its own");
    let error = pullback.call(&ct).unwrap_err();
    assert_eq!(error.message(), "takes 2 residuals and got 0");
    assert_eq!(values(&pullback.with_residuals(residuals.clone()).unwrap().call(&ct).unwrap()), expected);

    let line = line!() + 1;
    let error = pullback.with_residuals(vec![residuals[0].clone(), Tensor::zeros([3], DType::F64)]).unwrap_err();
    assert_eq!(error.message(), "residual 1 is f64[3] and must be f64[2]");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    let failed = residuals[0].reshape([7]);
    let error = pullback.with_residuals(vec![residuals[0].clone(), failed]).unwrap_err();
    assert_eq!(error.message(), "f64[2] has 2 elements and f64[7] has 7");
}

#[test]
fn residuals_are_those_of_another_point_or_of_a_trace() {
    let (_, pullback) = vjp(function, &vector(&[0.5, -1.0])).unwrap();
    let other = vector(&[1.5, 0.25]);
    let (_, mut there) = vjp(function, &other).unwrap();
    let ct = vector(&[1.0, 2.0]);
    let expected = values(&there.call(&ct).unwrap());
    let residuals = there.take_residuals();
    assert_eq!(values(&pullback.with_residuals(residuals.clone()).unwrap().call(&ct).unwrap()), expected);
    let backward = jit(|(residuals, ct): &(Vec<Tensor>, Tensor)| pullback.with_residuals(residuals.clone())?.call(ct));
    assert_eq!(values(&backward.call((residuals, ct)).unwrap()), expected);
    // The residuals may be differentiated like any argument: the image is linear in the second one, the exponential.
    let (_, map) = vjp(|x: &Tensor| x.exp(), &Tensor::from(1.0f64)).unwrap();
    let image = |residual: &Tensor| map.with_residuals(vec![residual.clone()])?.call(&Tensor::from(3.0f64));
    assert_eq!(grad(image)(&Tensor::from(5.0f64)).unwrap().item::<f64>().unwrap(), 3.0);
}

#[test]
fn residuals_say_what_they_are() {
    let w = vector(&[2.0, 3.0]);
    let f = checkpoint(Policy::names(["hidden"]), |(x, y): &(Tensor, Tensor)| (x * &w).sin().named("hidden").sin() * y);
    let x = (vector(&[0.5, -1.0]), vector(&[1.0, 2.0]));
    let (_, pullback) = vjp(|x: &(Tensor, Tensor)| f(x), &x).unwrap();
    let kinds: Vec<String> = pullback.saved_residuals().iter().map(|r| r.kind.to_string()).collect();
    assert_eq!(kinds, ["from a constant", "from the argument 0", "from the argument 1", "named 'hidden'"]);
    assert_eq!(values(&pullback.residuals()[0]), [2.0, 3.0]);
    assert_eq!(values(&pullback.residuals()[2]), [1.0, 2.0]);
}

#[test]
fn offloaded_residuals_are_put_back_too() {
    let f = checkpoint(Policy::save_and_offload_names([""; 0], ["y"]), |x: &Tensor| x.sin().named("y").sin());
    let x = vector(&[0.5, -1.0]);
    let (_, mut pullback) = vjp(|x: &Tensor| f(x), &x).unwrap();
    let ct = vector(&[1.0, 1.0]);
    let expected = values(&pullback.call(&ct).unwrap());
    let residuals = pullback.take_residuals();
    assert_eq!(values(&pullback.with_residuals(residuals).unwrap().call(&ct).unwrap()), expected);
}
