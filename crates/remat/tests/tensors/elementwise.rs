//! Operators, scalars, and functions of elements over the dtypes.

use remat::{DType, Tensor, bf16, f16};

#[track_caller]
fn check(tensor: Tensor, dtype: DType, expected: &[f64]) {
    assert_eq!(tensor.dtype().unwrap(), dtype, "{tensor}");
    assert_eq!(tensor.to_dtype(DType::F64).to_vec::<f64>().unwrap(), expected);
}

#[test]
fn operators_take_every_mix() {
    let (x, y) = (Tensor::new([6.0f32, 8.0]), Tensor::new([2.0f32, 4.0]));
    for sum in [&x + &y, x.clone() + &y, &x + y.clone(), x.clone() + y.clone(), x.add(&y)] {
        check(sum, DType::F32, &[8.0, 12.0]);
    }
    check(&x - 1, DType::F32, &[5.0, 7.0]);
    check(1.0 - &x, DType::F32, &[-5.0, -7.0]);
    check((1 - x.clone()).abs(), DType::F32, &[5.0, 7.0]);
    check((2.0 * &x * &y + 1.0) / 5, DType::F32, &[5.0, 13.0]);
    check(&x / y.clone(), DType::F32, &[3.0, 2.0]);
    check(12 / &x % 2, DType::F32, &[0.0, 1.5]);
    check(-(&x), DType::F32, &[-6.0, -8.0]);
    let mut z = x.clone();
    z += &y;
    z *= 2;
    z -= 1.0;
    z /= y;
    z %= 4.0f32;
    check(z, DType::F32, &[3.5, 1.75]);
    check(x, DType::F32, &[6.0, 8.0]);
}

#[test]
fn operators_on_bits() {
    let x = Tensor::new([12, -5]);
    check(&x & 6, DType::I32, &[4.0, 2.0]);
    check(1 | &x, DType::I32, &[13.0, -5.0]);
    check(&x ^ &x, DType::I32, &[0.0, 0.0]);
    check(!&x, DType::I32, &[-13.0, 4.0]);
    check(&x << 2, DType::I32, &[48.0, -20.0]);
    check(&x >> 1, DType::I32, &[6.0, -3.0]);
    check(Tensor::new([0xF0u8]) >> 4, DType::U8, &[15.0]);
    let mut mask = x.gt(0);
    mask |= x.lt(-4);
    mask &= true;
    mask ^= false;
    check(!mask, DType::Bool, &[0.0, 0.0]);
    check(false | x.gt(0), DType::Bool, &[1.0, 0.0]);
}

#[test]
fn every_rust_number_can_be_a_scalar() {
    let x = Tensor::new([3.0f32]);
    let (half, brain) = (f16::from_f64(0.5), bf16::from_f64(0.5));
    let sums = [&x + 2i8, &x + 2i16, &x + 2i32, &x + 2i64, &x + 2isize, &x + 2u8, &x + 2u16, &x + 2u32, &x + 2u64];
    for sum in sums.into_iter().chain([&x + 2usize, &x + 2.0f32, &x + 2.0f64]) {
        check(sum, DType::F32, &[5.0]);
    }
    check(&x * half, DType::F32, &[1.5]);
    check(brain * &x, DType::F32, &[1.5]);
    check(half - x, DType::F32, &[-2.5]);
}

#[test]
fn scalars_take_the_dtype_of_the_tensor() {
    for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Bool) {
        let x = Tensor::new([1, 2]).to_dtype(dtype);
        check(&x + 3, dtype, &[4.0, 5.0]);
        check(3 - &x, dtype, &[2.0, 1.0]);
        check(x.gt(1), DType::Bool, &[0.0, 1.0]);
        check(x.square(), dtype, &[1.0, 4.0]);
        check(x.pow(3), dtype, &[1.0, 8.0]);
        check(x.clamp(0, 1), dtype, &[1.0, 1.0]);
        check(x.gt(1).select(&x, 7), dtype, &[7.0, 2.0]);
        check(x.gt(1).select(7, &x), dtype, &[1.0, 7.0]);
        if dtype.is_float() {
            check(&x * 0.5, dtype, &[0.5, 1.0]);
            check(x.maximum(f64::INFINITY), dtype, &[f64::INFINITY; 2]);
            check(x.reciprocal(), dtype, &[1.0, 0.5]);
            check(x.sqrt().square().round(), dtype, &[1.0, 2.0]);
        }
    }
    check(Tensor::new([1u64]) + u64::MAX, DType::U64, &[0.0]);
    check(Tensor::new([0i64]) + i64::MIN, DType::I64, &[-(2f64.powi(63))]);
    check(Tensor::new([0.0f32]) + 16_777_217, DType::F32, &[16_777_216.0]);
}

#[test]
fn shapes_broadcast_as_numpys() {
    let dims = |a: &[usize], b: &[usize]| {
        let sum = Tensor::zeros(a, DType::F32) + Tensor::zeros(b, DType::F32);
        sum.shape().map(<[usize]>::to_vec).map_err(|e| e.message().to_string())
    };
    assert_eq!(dims(&[], &[]), Ok(vec![]));
    assert_eq!(dims(&[], &[2, 3]), Ok(vec![2, 3]));
    assert_eq!(dims(&[3], &[2, 3]), Ok(vec![2, 3]));
    assert_eq!(dims(&[2, 1], &[3]), Ok(vec![2, 3]));
    assert_eq!(dims(&[8, 1, 6, 1], &[7, 1, 5]), Ok(vec![8, 7, 6, 5]));
    assert_eq!(dims(&[1], &[0]), Ok(vec![0]));
    assert_eq!(dims(&[2, 0, 1], &[1, 4]), Ok(vec![2, 0, 4]));
    assert!(dims(&[0], &[2]).is_err());
    check(Tensor::new([[1], [2]]) * Tensor::new([10, 20]), DType::I32, &[10.0, 20.0, 20.0, 40.0]);
    let cases = [&Tensor::new([[1], [2]]), &Tensor::new([10, 20]), &Tensor::new(7)];
    check(Tensor::new([[0, 1], [2, 9]]).select_n(&cases), DType::I32, &[1.0, 20.0, 7.0, 7.0]);
}

#[test]
fn nans_and_infinities_are_recognised() {
    let x = Tensor::new([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
    check(x.is_nan(), DType::Bool, &[1.0, 0.0, 0.0, 0.0]);
    check(x.is_inf(), DType::Bool, &[0.0, 1.0, 1.0, 0.0]);
    check(x.is_finite(), DType::Bool, &[0.0, 0.0, 0.0, 1.0]);
    for x in [Tensor::new([0, i32::MAX]), Tensor::new([true, false]), Tensor::new([0u8, 255])] {
        check(x.is_nan(), DType::Bool, &[0.0, 0.0]);
        check(x.is_inf(), DType::Bool, &[0.0, 0.0]);
        check(x.is_finite(), DType::Bool, &[1.0, 1.0]);
    }
    check(Tensor::new([1]).is_nan(), DType::Bool, &[0.0]);
}

#[test]
fn closeness_is_within_the_tolerances() {
    let x = Tensor::new([100.0, f64::NAN, f64::INFINITY]);
    assert!(x.allclose(&x, 0.0, 0.0).unwrap());
    assert!(x.allclose(&(&x * 1.0001), 1e-3, 0.0).unwrap());
    assert!(!x.allclose(&(&x * 1.0001), 0.0, 1e-3).unwrap());
    assert!(!Tensor::new(1.0).allclose(&Tensor::new(f64::NAN), 1.0, 1.0).unwrap());
    assert!(!Tensor::new(1.0).allclose(&Tensor::new(f64::INFINITY), 1.0, 1.0).unwrap());
    assert!(!Tensor::new(f64::NEG_INFINITY).allclose(&Tensor::new(f64::INFINITY), 1.0, 1.0).unwrap());
    assert!(!Tensor::new(i64::MAX).allclose(&Tensor::new(i64::MAX - 1), 0.0, 0.5).unwrap());
}

#[test]
fn concrete_tensors_are_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Tensor>();
}
