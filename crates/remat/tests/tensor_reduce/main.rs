//! Reductions, products and functions of elements, against NumPy.

mod activations;
mod products;
mod reductions;

use remat::Tensor;

#[track_caller]
fn equal<T: remat::Element>(tensor: Tensor, dims: &[usize], expected: &[T]) {
    assert_eq!(tensor.dims().unwrap(), dims);
    assert_eq!(tensor.to_vec::<T>().unwrap(), expected);
}

#[track_caller]
fn close(tensor: Tensor, dims: &[usize], expected: &[f64]) {
    assert_eq!(tensor.dims().unwrap(), dims);
    let expected = Tensor::from_slice(expected, dims);
    assert!(tensor.allclose(&expected, 1e-12, 1e-12).unwrap(), "got\n{tensor}\nand expected\n{expected}");
}
