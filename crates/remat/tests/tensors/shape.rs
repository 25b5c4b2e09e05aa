//! Moving elements and making tensors, against NumPy.

use crate::numpy::{close, equal};
use remat::{DType, Tensor};

#[test]
fn shapes_change_as_numpys() {
    let x = Tensor::arange(0..24).reshape([2, 3, 4]);
    equal(
        x.reshape([4, -1]),
        &[4, 6],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(
        x.reshape([-1]),
        &[24],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(
        x.reshape(24),
        &[24],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(
        x.reshape([2, 1, 12]),
        &[2, 1, 12],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(Tensor::new([5]).reshape([0; 0]), &[], &[5]);
    equal(x.flatten(), &[24], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
    equal(
        x.transpose([2, 0, 1]),
        &[4, 2, 3],
        &[0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23],
    );
    equal(x.t(), &[2, 4, 3], &[0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23]);
    equal(
        x.swap_axes(0, -1),
        &[4, 3, 2],
        &[0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11, 23],
    );
    equal(
        x.move_axis(0, -1),
        &[3, 4, 2],
        &[0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20, 9, 21, 10, 22, 11, 23],
    );
    equal(
        x.move_axis([0, 1], [-1, 0]),
        &[3, 4, 2],
        &[0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20, 9, 21, 10, 22, 11, 23],
    );
    equal(
        x.expand_dims([0, -1]),
        &[1, 2, 3, 4, 1],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(
        x.expand_dims(1).squeeze(1),
        &[2, 3, 4],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(
        x.expand_dims([0, 2]).squeeze(..),
        &[2, 3, 4],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(Tensor::new([[1], [2]]).broadcast_to([2, 2, 3]), &[2, 2, 3], &[1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
    equal(Tensor::new(1).broadcast_to([2, 0]), &[2, 0], &[] as &[i32]);
    equal(
        x.flip([0, -1]),
        &[2, 3, 4],
        &[15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8],
    );
    equal(
        x.flip(..),
        &[2, 3, 4],
        &[23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    );
    equal(
        x.roll(1, 0),
        &[2, 3, 4],
        &[12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    );
    equal(
        x.roll(-6, [1, 2]),
        &[2, 3, 4],
        &[2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 18, 19, 16, 17, 22, 23, 20, 21],
    );
    equal(
        x.roll(3, 2),
        &[2, 3, 4],
        &[1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 17, 18, 19, 16, 21, 22, 23, 20],
    );
    equal(
        Tensor::concatenate(&[&x, &x], -1),
        &[2, 3, 8],
        &[
            0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12, 13, 14, 15,
            16, 17, 18, 19, 16, 17, 18, 19, 20, 21, 22, 23, 20, 21, 22, 23,
        ],
    );
    equal(
        Tensor::stack(&[&x, &x], 1),
        &[2, 2, 3, 4],
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
            20, 21, 22, 23, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
        ],
    );
    equal(
        Tensor::stack(&[&x], -1),
        &[2, 3, 4, 1],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(x.split(2, 2)[1].clone(), &[2, 3, 2], &[2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23]);
    equal(x.split_at(&[1, 1, 3], 2)[1].clone(), &[2, 3, 0], &[] as &[i32]);
    equal(x.split_at(&[1, 1, 3], 2)[2].clone(), &[2, 3, 2], &[1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22]);
    equal(x.chunk(3, 2)[1].clone(), &[2, 3, 2], &[2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23]);
    equal(
        x.pad([(0, 0), (1, 0), (0, 1)], 9),
        &[2, 4, 5],
        &[
            9, 9, 9, 9, 9, 0, 1, 2, 3, 9, 4, 5, 6, 7, 9, 8, 9, 10, 11, 9, 9, 9, 9, 9, 9, 12, 13, 14, 15, 9, 16, 17, 18,
            19, 9, 20, 21, 22, 23, 9,
        ],
    );
    equal(x.pad([(0, 0), (-1, -1), (1, -2)], -1), &[2, 1, 3], &[-1, 4, 5, -1, 16, 17]);
    equal(
        x.tile(2),
        &[2, 3, 8],
        &[
            0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12, 13, 14, 15,
            16, 17, 18, 19, 16, 17, 18, 19, 20, 21, 22, 23, 20, 21, 22, 23,
        ],
    );
    equal(
        x.tile([2, 1, 1, 2]),
        &[2, 2, 3, 8],
        &[
            0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12, 13, 14, 15,
            16, 17, 18, 19, 16, 17, 18, 19, 20, 21, 22, 23, 20, 21, 22, 23, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5,
            6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12, 13, 14, 15, 16, 17, 18, 19, 16, 17, 18, 19, 20, 21,
            22, 23, 20, 21, 22, 23,
        ],
    );
    equal(x.tile([0, 1, 1]), &[0, 3, 4], &[] as &[i32]);
    equal(Tensor::new(3).tile([2, 2]), &[2, 2], &[3, 3, 3, 3]);
    equal(
        x.repeat(2, 1),
        &[2, 6, 4],
        &[
            0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 12, 13, 14, 15,
            16, 17, 18, 19, 16, 17, 18, 19, 20, 21, 22, 23, 20, 21, 22, 23,
        ],
    );
    equal(x.repeat(0, 1), &[2, 0, 4], &[] as &[i32]);
    equal(x.diagonal(0, 0, 1), &[4, 2], &[0, 16, 1, 17, 2, 18, 3, 19]);
    equal(x.diagonal(1, 2, 1), &[2, 2], &[4, 9, 16, 21]);
    equal(x.diagonal(-1, 1, 2), &[2, 2], &[4, 9, 16, 21]);
    equal(x.diagonal(2, 1, 2), &[2, 2], &[2, 7, 14, 19]);
    equal(x.diagonal(9, 1, 2), &[2, 0], &[] as &[i32]);
    equal(x.diagonal(-9, 1, 2), &[2, 0], &[] as &[i32]);
    equal(x.tril(0), &[2, 3, 4], &[0, 0, 0, 0, 4, 5, 0, 0, 8, 9, 10, 0, 12, 0, 0, 0, 16, 17, 0, 0, 20, 21, 22, 0]);
    equal(x.tril(-1), &[2, 3, 4], &[0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 20, 21, 0, 0]);
    equal(x.triu(1), &[2, 3, 4], &[0, 1, 2, 3, 0, 0, 6, 7, 0, 0, 0, 11, 0, 13, 14, 15, 0, 0, 18, 19, 0, 0, 0, 23]);
    equal(
        x.triu(-9),
        &[2, 3, 4],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    );
    equal(x.triu(i64::MAX), &[2, 3, 4], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    equal(Tensor::new([1, 2]).diag(1), &[3, 3], &[0, 1, 0, 0, 0, 2, 0, 0, 0]);
    equal(Tensor::new([1, 2]).diag(-2), &[4, 4], &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0]);
    equal(Tensor::new([0i32; 0]).diag(0), &[0, 0], &[] as &[i32]);
    equal(x.index(0).diag(-1), &[2], &[4, 9]);
}

#[test]
fn constructors_are_numpys() {
    equal(Tensor::eye(3, DType::I32), &[3, 3], &[1, 0, 0, 0, 1, 0, 0, 0, 1]);
    equal(Tensor::eye_offset(2, 4, 1, DType::I32), &[2, 4], &[0, 1, 0, 0, 0, 0, 1, 0]);
    equal(Tensor::eye_offset(3, 2, -1, DType::I32), &[3, 2], &[0, 0, 1, 0, 0, 1]);
    equal(Tensor::eye(0, DType::I32), &[0, 0], &[] as &[i32]);
    equal(Tensor::arange(0..0), &[0], &[] as &[i32]);
    equal(Tensor::arange_step(3, 1, 1), &[0], &[] as &[i32]);
    equal(Tensor::arange_step(10, 0, -3), &[4], &[10, 7, 4, 1]);
    equal(Tensor::arange_step(-5, 6, 4), &[3], &[-5, -1, 3]);
    close(Tensor::arange(0.0..2.5f64), &[3], &[0.0, 1.0, 2.0]);
    close(Tensor::arange_step(1.0, 2.0f64, 0.25), &[4], &[1.0, 1.25, 1.5, 1.75]);
    close(Tensor::arange_step(1.0, -1.0f64, -0.75), &[3], &[1.0, 0.25, -0.5]);
    close(Tensor::linspace(-1.0, 2.0, 7, DType::F64), &[7], &[-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
    close(Tensor::linspace(3.0, 5.0, 1, DType::F64), &[1], &[3.0]);
    close(Tensor::linspace(3.0, 5.0, 0, DType::F64), &[0], &[] as &[f64]);
    equal(Tensor::full([2, 2], 7, DType::I32), &[2, 2], &[7, 7, 7, 7]);
    equal(Tensor::full([2, 2], Tensor::new([1, 2]), DType::I32), &[2, 2], &[1, 2, 1, 2]);
    equal(Tensor::ones([2], DType::Bool), &[2], &[true, true]);
    equal(Tensor::iota([2, 2, 2], -2, DType::I32), &[2, 2, 2], &[0, 0, 1, 1, 0, 0, 1, 1]);
}

#[test]
fn constructors_take_every_dtype() {
    for dtype in DType::ALL {
        for tensor in [Tensor::zeros([2, 0, 3], dtype), Tensor::ones([4], dtype), Tensor::eye(2, dtype)] {
            assert_eq!(tensor.dtype().unwrap(), dtype);
        }
        assert_eq!(Tensor::ones((), dtype).to_dtype(DType::F64).item::<f64>().unwrap(), 1.0);
        let x = Tensor::ones([2, 2], dtype);
        assert_eq!(x.tril(0).to_dtype(DType::F64).to_vec::<f64>().unwrap(), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(x.zeros_like().aval().unwrap(), x.aval().unwrap());
        assert!(x.full_like(1.5).error().is_some() != dtype.is_float());
    }
}

#[test]
fn nested_values_have_the_shape_of_their_nesting() {
    equal(Tensor::new(5), &[], &[5]);
    equal(Tensor::new(vec![vec![1, 2], vec![3, 4], vec![5, 6]]), &[3, 2], &[1, 2, 3, 4, 5, 6]);
    equal(Tensor::new([vec![1u8], vec![2]]), &[2, 1], &[1u8, 2]);
    equal(Tensor::new([[true], [false]]), &[2, 1], &[true, false]);
    equal(Tensor::new([[0.5f64; 3]; 0]), &[0, 3], &[] as &[f64]);
    equal(Tensor::new(Vec::<[i32; 2]>::new()), &[0, 2], &[] as &[i32]);
    equal(Tensor::from(vec![1i64, 2]), &[2], &[1i64, 2]);
    equal(Tensor::from([1i8, 2]), &[2], &[1i8, 2]);
    equal(Tensor::from(&[1i16, 2][..]), &[2], &[1i16, 2]);
}

#[test]
fn parts_join_to_the_whole() {
    let x = Tensor::arange(0..24).reshape([2, 3, 4]);
    for axis in [0, 1, 2, -1] {
        let size = x.dim(axis).unwrap();
        let whole = x.to_vec::<i32>().unwrap();
        equal(Tensor::concatenate(&x.split(size, axis), axis), &[2, 3, 4], &whole);
        equal(Tensor::concatenate(&x.chunk(3, axis), axis), &[2, 3, 4], &whole);
        equal(Tensor::concatenate(&x.split_at(&[0, 1], axis), axis), &[2, 3, 4], &whole);
    }
    assert_eq!(Tensor::zeros([0, 2], DType::F32).chunk(3, 0).len(), 1);
}

#[test]
fn conversions_keep_the_value_or_the_bits() {
    let x = Tensor::new([-1.5f32, 300.7, f32::NAN]);
    equal(x.to_dtype(DType::I8), &[3], &[-1i8, 127, 0]);
    equal(x.to_dtype(DType::Bool), &[3], &[true, true, true]);
    equal(Tensor::new([1.0f32]).bitcast(DType::U8), &[1, 4], &[0u8, 0, 0x80, 0x3f]);
    equal(Tensor::new([[0u8, 0, 0x80, 0x3f]]).bitcast(DType::F32), &[1], &[1.0f32]);
    equal(Tensor::new([1.01f32]).reduce_precision(8, 7), &[1], &[1.0078125f32]);
    // Without mantissa bits there is no NaN.
    let nan = Tensor::new([f32::NAN]);
    assert!(nan.reduce_precision(8, 1).to_vec::<f32>().unwrap()[0].is_nan());
    equal(nan.reduce_precision(8, 0).abs(), &[1], &[f32::INFINITY]);
}

#[test]
fn shape_questions_answer() {
    let x = Tensor::zeros([2, 3], DType::F32);
    assert_eq!(x.shape().unwrap(), [2, 3]);
    let [rows, columns] = x.dims().unwrap();
    assert_eq!((rows, columns), (2, 3));
    assert_eq!(Tensor::from(1.0f32).dims().unwrap(), [0usize; 0]);
    assert_eq!((x.rank().unwrap(), x.size().unwrap(), x.dim(-2).unwrap()), (2, 6, 2));
    let failed = &x + Tensor::zeros([4], DType::F32);
    assert!(failed.dim(0).is_err() && failed.shape().is_err() && failed.dims::<1>().is_err());
}
