//! Conversions from and to `ndarray` arrays.

use ndarray::{Array, Array0, Array2, ArrayD, Axis, IxDyn, Slice, array};
use remat::{DType, Tensor};

#[test]
fn arrays_of_any_layout_become_tensors() {
    let a: Array2<i32> = array![[1, 2, 3], [4, 5, 6]];
    let x = Tensor::from(&a);
    assert_eq!((x.shape().unwrap(), x.to_vec::<i32>().unwrap()), (&[2, 3][..], vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(Tensor::from(a.t()).to_vec::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    assert_eq!(Tensor::from(a.slice_axis(Axis(1), Slice::new(0, None, -2))).to_vec::<i32>().unwrap(), [3, 1, 6, 4]);
    assert_eq!(Tensor::from(a.index_axis(Axis(0), 1).to_owned()).to_vec::<i32>().unwrap(), [4, 5, 6]);
    assert_eq!(Tensor::from(Array0::from_elem((), 2.5f64)).item::<f64>().unwrap(), 2.5);
    assert_eq!(Tensor::from(Array::<bool, _>::default((2, 0, 3))).shape().unwrap(), [2, 0, 3]);
}

#[test]
fn tensors_become_arrays() {
    let x = Tensor::arange(0..6).reshape([3, 2]);
    let a: ArrayD<i32> = x.to_ndarray().unwrap();
    assert_eq!(a, array![[0, 1], [2, 3], [4, 5]].into_dyn());
    assert_eq!(Tensor::zeros([0, 2], DType::F32).to_ndarray::<f32>().unwrap().shape(), [0, 2]);
    assert_eq!(Tensor::from(1u8).to_ndarray::<u8>().unwrap()[IxDyn(&[])], 1);
    let error = x.to_ndarray::<f32>().unwrap_err().to_string();
    assert!(error.starts_with("to_vec: i32[3,2] cannot be read as f32"), "{error}");
    assert!(error.contains("tensors/ndarray.rs"), "{error}");
}
