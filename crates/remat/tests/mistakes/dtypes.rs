//! Dtypes that are mixed, numbers that a dtype does not have, and operations that do not take a dtype.

use remat::{ConvConfig, DType, Tensor, einsum};

#[test]
fn two_dtypes() {
    let (x, y) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1i32, 2]));
    mistake!(&x * &y, "mul: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)", 0, 14);
    mistake!(x.dot(&y), "dot: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)", 0, 16);
    mistake!(
        x.dot_general(&y, (0, 0), ((), ())),
        "dot_general: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        11
    );
    mistake!(
        Tensor::concatenate(&[&x, &y], 0),
        "concatenate: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        9
    );
    mistake!(
        einsum("i,i", &[&x, &y]),
        "einsum: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        9
    );
    mistake!(
        x.at(0).add(Tensor::from(1i32)),
        "at: f32[2] and i32[] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        17
    );
    mistake!(
        x.gt(0).select(&x, &y),
        "select: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        17
    );
    mistake!(
        x.clamp(&y, 1),
        "clamp: f32[2] and i32[2] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        11
    );
    mistake!(
        x.pad([(1, 1)], Tensor::from(0i32)),
        "pad: f32[2] and i32[] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        11
    );
    let (image, kernel) = (Tensor::zeros([1, 1, 3], DType::F32), Tensor::zeros([1, 1, 3], DType::F16));
    mistake!(
        image.conv(&kernel, &ConvConfig::default()),
        "conv: f32[1,1,3] and f16[1,1,3] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        15
    );
}

#[test]
fn numbers_that_the_dtype_does_not_have() {
    let (ints, bytes, halves) = (Tensor::new([1, 2]), Tensor::new([1u8]), Tensor::zeros([2], DType::F16));
    mistake!(
        &ints * 0.5,
        "mul: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
    mistake!(&bytes + 300, "add: the scalar 300 is out of range for u8", 0, 14);
    mistake!(&bytes - -1, "sub: the scalar -1 is out of range for u8", 0, 14);
    mistake!(&halves * 1e6, "mul: the scalar 1000000.0 is out of range for f16", 0, 14);
    mistake!(
        Tensor::new([true]) & 1,
        "and: the scalar 1 is a number and the tensor holds bool; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        Tensor::new([1.0f32]) + true,
        "add: the scalar true is a bool and the tensor holds f32; convert it with .to_dtype(DType::Bool)",
        1,
        9
    );
    mistake!(
        Tensor::full([2], 1.5, DType::I32),
        "full: the scalar 1.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
    mistake!(
        1.5 - &ints,
        "sub: the scalar 1.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
}

#[test]
fn operations_that_do_not_take_the_dtype() {
    let (ints, bools) = (Tensor::new([1, 2]), Tensor::new([true, false]));
    mistake!(ints.exp(), "exp: takes floats, not i32[2]; convert it with .to_dtype(DType::F32)", 0, 19);
    mistake!(ints.softmax(0), "softmax: takes floats, not i32[2]; convert it with .to_dtype(DType::F32)", 0, 19);
    mistake!(ints.mean(0), "mean: takes floats, not i32[2]; convert it with .to_dtype(DType::F32)", 0, 19);
    mistake!(
        bools.sum(0),
        "reduce_sum: takes integers and floats, not bool[2]; convert it with .to_dtype(DType::I32)",
        1,
        15
    );
    mistake!(
        bools.cumsum(0),
        "cumsum: takes integers and floats, not bool[2]; convert it with .to_dtype(DType::I32)",
        1,
        15
    );
    mistake!(
        -&bools,
        "neg: takes signed integers and floats, not bool[2]; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        !Tensor::new([1.0f32]),
        "not: takes bools and integers, not f32[1]; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        Tensor::new([1.0f32]) & Tensor::new([1.0f32]),
        "and: takes bools and integers, not f32[1]; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        Tensor::new([1.0f32]) >> 1,
        "shift_right_arithmetic: takes integers, not f32[1]; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(ints.powi(-1), "integer_pow: takes floats, not i32[2]; convert it with .to_dtype(DType::F32)", 0, 19);
    mistake!(
        ints.pow(0.5),
        "pow: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
        1,
        14
    );
    mistake!(
        ints.reduce_precision(8, 7),
        "reduce_precision: takes floats, not i32[2]; convert it with .to_dtype(DType::F32)",
        1,
        14
    );
    mistake!(
        bools.bitcast(DType::I32),
        "bitcast_convert_type: bool[2] and i32 do not have the same bits: a bool has no defined ones",
        1,
        15
    );
    mistake!(
        Tensor::new([1.0f32]).select(1.0, 2.0),
        "select: the mask must be bool, not f32[1]; compare it first, as in `x.ne(0)`",
        1,
        31
    );
    mistake!(bools.select(1.0, 2.0), "select: both cases are numbers: make one a tensor, which gives the dtype", 0, 20);
    mistake!(
        Tensor::new([0.5f32]).one_hot(3, DType::F32),
        "one_hot: takes integers, not f32[1]; convert it with .to_dtype(DType::I32)",
        1,
        31
    );
}

#[test]
fn reading_as_another_dtype() {
    let x = Tensor::new([1.0f32, 2.0]);
    mistake!(
        x.to_vec::<f64>(),
        "to_vec: f32[2] cannot be read as f64; convert it first with .to_dtype(DType::F64)",
        1,
        11
    );
    mistake!(
        x.sum(..).item::<i32>(),
        "item: f32[] cannot be read as i32; convert it first with .to_dtype(DType::I32)",
        1,
        19
    );
    mistake!(x.item::<f32>(), "item: takes a tensor of one element and got f32[2]; `to_vec` reads several", 0, 16);
}
