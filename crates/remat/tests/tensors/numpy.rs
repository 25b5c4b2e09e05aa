//! Comparison with NumPy's results.

use remat::Tensor;

#[track_caller]
pub(crate) fn equal<T: remat::ir::Element>(tensor: Tensor, dims: &[usize], expected: &[T]) {
    assert_eq!(tensor.shape().unwrap(), dims);
    assert_eq!(tensor.to_vec::<T>().unwrap(), expected);
}

#[allow(dead_code, reason = "not every test has floats")]
#[track_caller]
pub(crate) fn close(tensor: Tensor, dims: &[usize], expected: &[f64]) {
    assert_eq!(tensor.shape().unwrap(), dims);
    let expected = Tensor::from_slice(expected, dims);
    assert!(tensor.allclose(&expected, 1e-12, 1e-12).unwrap(), "got\n{tensor}\nand expected\n{expected}");
}
