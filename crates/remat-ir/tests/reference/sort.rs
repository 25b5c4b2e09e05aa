use remat_ir::{Array, DType, Sort, TopK, eval_op};

use super::{FLOATS, SIGNED, UNSIGNED, assert_same, cast, error, vec1};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn sort(axis: usize, num_keys: usize, ins: &[Array]) -> Vec<Array> {
    eval_op(&Sort { axis, num_keys, is_stable: true }.into(), ins).unwrap()
}

#[test]
fn every_dtype_is_sorted() {
    for dtype in FLOATS.into_iter().chain(SIGNED) {
        let out = sort(0, 1, &[cast(dtype, &[3.0, -1.0, 0.0, -100.0, 2.0])]);
        assert_same(&out[0], dtype, &[-100.0, -1.0, 0.0, 2.0, 3.0]);
    }
    for dtype in UNSIGNED {
        assert_same(&sort(0, 1, &[cast(dtype, &[3.0, 200.0, 0.0])])[0], dtype, &[0.0, 3.0, 200.0]);
    }
    assert_same(&sort(0, 1, &[cast(DType::Bool, &[1.0, 0.0, 1.0])])[0], DType::Bool, &[0.0, 1.0, 1.0]);
    let extremes = sort(0, 1, &[vec1(&[u64::MAX, 0, u64::MAX - 1])]);
    assert_eq!(extremes[0].as_slice::<u64>().unwrap(), [0, u64::MAX - 1, u64::MAX]);
    let extremes = sort(0, 1, &[vec1(&[i64::MAX, i64::MIN, i64::MAX - 1])]);
    assert_eq!(extremes[0].as_slice::<i64>().unwrap(), [i64::MIN, i64::MAX - 1, i64::MAX]);
}

#[test]
fn zeros_are_equal_and_nans_are_equal_and_last() {
    for dtype in FLOATS {
        let keys = cast(dtype, &[NAN, 0.0, INF, -0.0, -INF, -NAN, 0.0]);
        let out = sort(0, 1, &[keys, vec1(&[0, 1, 2, 3, 4, 5, 6])]);
        assert_same(&out[0], dtype, &[-INF, 0.0, -0.0, 0.0, INF, NAN, NAN]);
        assert_eq!(out[1].as_slice::<i32>().unwrap(), [4, 1, 3, 6, 2, 0, 5]);
    }
}

#[test]
fn several_keys_are_lexicographic() {
    let (a, b) = (vec1(&[1, 0, 1, 0]), vec1(&[2.0f32, 3.0, 1.0, 3.0]));
    let out = sort(0, 2, &[a.clone(), b.clone(), vec1(&[0u8, 1, 2, 3])]);
    assert_eq!(out[2].as_slice::<u8>().unwrap(), [1, 3, 2, 0]);
    let out = sort(0, 1, &[a, b, vec1(&[0u8, 1, 2, 3])]);
    assert_eq!(out[2].as_slice::<u8>().unwrap(), [1, 3, 0, 2]);
}

#[test]
fn along_any_dimension() {
    let x = Array::from_vec(vec![3, 1, 2, 0, 5, 4], [3, 2]).unwrap();
    assert_eq!(sort(0, 1, std::slice::from_ref(&x))[0].as_slice::<i32>().unwrap(), [2, 0, 3, 1, 5, 4]);
    assert_eq!(sort(1, 1, &[x])[0].as_slice::<i32>().unwrap(), [1, 3, 0, 2, 4, 5]);
    let empty = Array::from_vec(Vec::<f32>::new(), [3, 0]).unwrap();
    assert_eq!(sort(0, 1, std::slice::from_ref(&empty))[0].shape(), [3, 0]);
    assert_eq!(sort(1, 1, &[empty])[0].shape(), [3, 0]);
}

#[test]
fn the_largest() {
    let top = |k, x: Array| eval_op(&TopK { k }.into(), &[x]).unwrap();
    for dtype in FLOATS {
        let out = top(4, cast(dtype, &[1.0, NAN, 3.0, 3.0, -1.0, INF]));
        assert_same(&out[0], dtype, &[NAN, INF, 3.0, 3.0]);
        assert_eq!(out[1].as_slice::<i32>().unwrap(), [1, 5, 2, 3]);
    }
    for dtype in DType::ALL {
        let out = top(2, cast(dtype, &[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]).reshaped([2, 3]).unwrap());
        assert_same(&out[0], dtype, &[1.0, 1.0, 1.0, 0.0]);
        assert_eq!(out[1].as_slice::<i32>().unwrap(), [1, 2, 0, 1]);
        assert_eq!((out[0].shape(), out[1].shape()), (&[2, 2][..], &[2, 2][..]));
    }
    assert_eq!(top(0, vec1(&[1.0f32]))[1].shape(), [0]);
    assert_eq!(error(TopK { k: 3 }, &[vec1(&[1.0f32])]), "top_k: k is 3, and the last dimension of f32[1] has size 1");
    assert_eq!(
        error(TopK { k: 0 }, &[Array::scalar(1.0f32)]),
        "top_k: takes the largest along the last dimension, and f32[] has none"
    );
}
