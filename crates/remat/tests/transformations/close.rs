//! Numbers of f64, and comparison of tensors up to roundings.

use remat::Tensor;

/// A scalar.
pub(crate) fn f(x: f64) -> Tensor {
    Tensor::from(x)
}

/// `n` different numbers between -1 and 1.
pub(crate) fn vector(n: usize, seed: f64) -> Tensor {
    Tensor::from((0..n).map(|i| ((i as f64 + 1.0) * seed).sin()).collect::<Vec<f64>>())
}

#[track_caller]
pub(crate) fn close(a: &Tensor, b: &Tensor) {
    let (x, y) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
    assert_eq!(a.shape().unwrap(), b.shape().unwrap());
    assert!(a.allclose(b, 1e-11, 1e-12).unwrap(), "{x:?}\n{y:?}");
}
