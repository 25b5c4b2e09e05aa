use remat_ir::{ArgKind, ArgReduce, Array, Cumulative, CumulativeKind, DType, Literal, Reduce, ReduceKind, bf16, f16};

use super::{FLOATS, SIGNED, UNSIGNED, assert_close, assert_same, cast, error, numbers, run, vec1};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn reduce(kind: ReduceKind, axes: &[usize], x: &Array) -> Array {
    run(Reduce { kind, axes: axes.iter().copied().collect() }, std::slice::from_ref(x))
}

fn scan(kind: CumulativeKind, axis: usize, reverse: bool, x: &Array) -> Array {
    run(Cumulative { kind, axis, reverse }, std::slice::from_ref(x))
}

#[test]
fn numbers_of_every_dtype() {
    for dtype in FLOATS.into_iter().chain(SIGNED).chain(UNSIGNED) {
        let x = cast(dtype, &[3.0, 1.0, 2.0, 4.0]);
        assert_same(&reduce(ReduceKind::Sum, &[0], &x), dtype, &[10.0]);
        assert_same(&reduce(ReduceKind::Prod, &[0], &x), dtype, &[24.0]);
        assert_same(&reduce(ReduceKind::Max, &[0], &x), dtype, &[4.0]);
        assert_same(&reduce(ReduceKind::Min, &[0], &x), dtype, &[1.0]);
        assert_same(&scan(CumulativeKind::Sum, 0, false, &x), dtype, &[3.0, 4.0, 6.0, 10.0]);
        assert_same(&scan(CumulativeKind::Sum, 0, true, &x), dtype, &[10.0, 7.0, 6.0, 4.0]);
        assert_same(&scan(CumulativeKind::Prod, 0, false, &x), dtype, &[3.0, 3.0, 6.0, 24.0]);
        assert_same(&scan(CumulativeKind::Prod, 0, true, &x), dtype, &[24.0, 8.0, 8.0, 4.0]);
        assert_same(&scan(CumulativeKind::Max, 0, false, &x), dtype, &[3.0, 3.0, 3.0, 4.0]);
        assert_same(&scan(CumulativeKind::Max, 0, true, &x), dtype, &[4.0, 4.0, 4.0, 4.0]);
        assert_same(&scan(CumulativeKind::Min, 0, false, &x), dtype, &[3.0, 1.0, 1.0, 1.0]);
        assert_same(&scan(CumulativeKind::Min, 0, true, &x), dtype, &[1.0, 1.0, 2.0, 4.0]);
    }
    for dtype in SIGNED.into_iter().chain(UNSIGNED) {
        let x = cast(dtype, &[12.0, 10.0]);
        assert_same(&reduce(ReduceKind::And, &[0], &x), dtype, &[8.0]);
        assert_same(&reduce(ReduceKind::Or, &[0], &x), dtype, &[14.0]);
    }
    let x = vec1(&[true, false]);
    for (kind, want) in [(ReduceKind::And, 0.0), (ReduceKind::Or, 1.0), (ReduceKind::Max, 1.0), (ReduceKind::Min, 0.0)]
    {
        assert_same(&reduce(kind, &[0], &x), DType::Bool, &[want]);
    }
}

#[test]
fn nothing_reduces_to_the_identity() {
    for dtype in DType::ALL {
        let x = Array::full(cast(dtype, &[0.0]).data().get(0).unwrap(), [2, 0]);
        let limits = match dtype {
            DType::Bool => [0.0, 1.0],
            d if d.is_float() => [-INF, INF],
            d if d.is_signed() => [-(2f64.powi(d.bits() as i32 - 1)), 2f64.powi(d.bits() as i32 - 1) - 1.0],
            d => [0.0, 2f64.powi(d.bits() as i32) - 1.0],
        };
        assert_same(&reduce(ReduceKind::Max, &[1], &x), dtype, &[limits[0]; 2]);
        assert_same(&reduce(ReduceKind::Min, &[0, 1], &x), dtype, &[limits[1]]);
        if dtype != DType::Bool {
            assert_same(&reduce(ReduceKind::Sum, &[1], &x), dtype, &[0.0; 2]);
            assert_same(&reduce(ReduceKind::Prod, &[1, 0], &x), dtype, &[1.0]);
            assert_same(&scan(CumulativeKind::Sum, 1, false, &x), dtype, &[]);
        }
        if !dtype.is_float() {
            let ones = if dtype.is_signed() { -1.0 } else { limits[1] };
            assert_same(&reduce(ReduceKind::And, &[1], &x), dtype, &[ones; 2]);
            assert_same(&reduce(ReduceKind::Or, &[1], &x), dtype, &[0.0; 2]);
        }
        assert_eq!(reduce(ReduceKind::Max, &[0], &x).shape(), [0]);
    }
}

#[test]
fn every_set_of_axes_gives_the_sum_of_its_elements() {
    let shape = [2, 3, 1, 4, 5];
    let strides = [60, 20, 20, 5, 1];
    let values: Vec<i64> = (0..120).map(|i| (i * i) % 71 - 30).collect();
    let x = Array::from_vec(values.clone(), shape).unwrap();
    for set in 0..32usize {
        let axes: Vec<usize> = (0..5).filter(|d| set >> d & 1 == 1).collect();
        let kept: Vec<usize> = (0..5).filter(|d| set >> d & 1 == 0).collect();
        let mut want = vec![0; kept.iter().map(|&d| shape[d]).product()];
        for (i, value) in values.iter().enumerate() {
            let at = kept.iter().fold(0, |at, &d| at * shape[d] + i / strides[d] % shape[d]);
            want[at] += value;
        }
        let got = reduce(ReduceKind::Sum, &axes, &x);
        assert_eq!(got.as_slice::<i64>().unwrap(), want, "{axes:?}");
        assert_eq!(got.shape(), kept.iter().map(|&d| shape[d]).collect::<Vec<_>>());
        let reversed: Vec<usize> = axes.into_iter().rev().collect();
        assert_eq!(reduce(ReduceKind::Sum, &reversed, &x).as_slice::<i64>().unwrap(), want, "{reversed:?}");
    }
}

#[test]
fn half_floats_accumulate_in_f32_and_round_once() {
    let ones = Array::full(remat_ir::Literal::from_f64(DType::Bf16, 1.0), [3, 1000]);
    assert_eq!(numbers(&reduce(ReduceKind::Sum, &[1], &ones)), [1000.0; 3]);
    assert_eq!(numbers(&reduce(ReduceKind::Sum, &[0, 1], &ones)), [3008.0]);
    // Over two dimensions that are not adjacent as well: 3 * 2 * 333 = 1998, which bf16 holds as 2000.
    let ones = Array::full(remat_ir::Literal::from_f64(DType::Bf16, 1.0), [3, 2, 666]);
    assert_eq!(numbers(&reduce(ReduceKind::Sum, &[0, 2], &ones)), [2000.0; 2]);
    // A product that overflows f16 on its way.
    let x = vec1(&[f16::MAX, f16::MAX, f16::MIN_POSITIVE, f16::MIN_POSITIVE]);
    assert_eq!(numbers(&reduce(ReduceKind::Prod, &[0], &x)), [15.984375]);
    let x = Array::full(remat_ir::Literal::from_f64(DType::Bf16, 1.0), [300]);
    assert_eq!(numbers(&scan(CumulativeKind::Sum, 0, false, &x))[299], 300.0);
    assert_eq!(scan(CumulativeKind::Sum, 0, false, &x).as_slice::<bf16>().unwrap()[256], bf16::from_f32(256.0));
}

#[test]
fn long_sums_are_accurate_and_integers_wrap() {
    // Equal terms round the same way each time, which is the worst case; in a row they would err by more than 1e-3.
    let near = |got: &Array, want: f64| assert!(numbers(got).iter().all(|x| (x / want - 1.0).abs() < 1e-6), "{got:?}");
    for shape in [[1, 1_000_003], [1_000_003, 1]] {
        let x = Array::full(remat_ir::Literal::from_f64(DType::F32, 0.1), shape);
        let axis = usize::from(shape[0] == 1);
        near(&reduce(ReduceKind::Sum, &[axis], &x), 1_000_003.0 * 0.1f32 as f64);
    }
    let x = Array::full(remat_ir::Literal::from_f64(DType::F32, 0.1), [100_003, 3]);
    near(&reduce(ReduceKind::Sum, &[0], &x), 100_003.0 * 0.1f32 as f64);
    assert_same(&reduce(ReduceKind::Sum, &[0], &vec1(&[100i8, 100])), DType::I8, &[-56.0]);
    assert_same(&reduce(ReduceKind::Prod, &[0], &vec1(&[16u8, 17])), DType::U8, &[16.0]);
}

#[test]
fn nan_wins() {
    for dtype in FLOATS {
        let x = cast(dtype, &[1.0, NAN, INF, -INF]);
        assert_same(&reduce(ReduceKind::Max, &[0], &x), dtype, &[NAN]);
        assert_same(&reduce(ReduceKind::Min, &[0], &x), dtype, &[NAN]);
        assert_same(&reduce(ReduceKind::Sum, &[0], &x), dtype, &[NAN]);
        assert_same(&scan(CumulativeKind::Max, 0, false, &x), dtype, &[1.0, NAN, NAN, NAN]);
        assert_same(&scan(CumulativeKind::Min, 0, true, &x), dtype, &[NAN, NAN, -INF, -INF]);
        let x = cast(dtype, &[-INF, 3.0, INF]);
        assert_same(&reduce(ReduceKind::Max, &[0], &x), dtype, &[INF]);
        assert_same(&reduce(ReduceKind::Sum, &[], &x), dtype, &[-INF, 3.0, INF]);
    }
}

#[test]
fn positions_of_extrema() {
    let arg = |kind, axis, index_dtype, x: &Array| run(ArgReduce { kind, axis, index_dtype }, std::slice::from_ref(x));
    for dtype in DType::ALL {
        let x = cast(dtype, &[0.0, 1.0, 1.0, 0.0, 1.0, 0.0]).reshaped([2, 3]).unwrap();
        for index in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            assert_same(&arg(ArgKind::Max, 1, index, &x), index, &[1.0, 1.0]);
            assert_same(&arg(ArgKind::Min, 1, index, &x), index, &[0.0, 0.0]);
            assert_same(&arg(ArgKind::Max, 0, index, &x), index, &[0.0, 0.0, 0.0]);
            assert_same(&arg(ArgKind::Min, 0, index, &x), index, &[0.0, 0.0, 1.0]);
        }
    }
    for dtype in FLOATS {
        let x = cast(dtype, &[1.0, NAN, INF, NAN]);
        assert_same(&arg(ArgKind::Max, 0, DType::I32, &x), DType::I32, &[1.0]);
        assert_same(&arg(ArgKind::Min, 0, DType::I32, &x), DType::I32, &[1.0]);
        let x = cast(dtype, &[-0.0, 0.0, -0.0]);
        assert_same(&arg(ArgKind::Max, 0, DType::I32, &x), DType::I32, &[0.0]);
    }
    let empty = Array::from_vec(Vec::<f32>::new(), [2, 0]).unwrap();
    assert_eq!(arg(ArgKind::Max, 0, DType::I64, &empty).shape(), [0]);
    let op = ArgReduce { kind: ArgKind::Max, axis: 1, index_dtype: DType::I32 };
    assert_eq!(error(op, &[empty]), "argmax: dimension 1 of f32[2,0] is empty");
    let op = ArgReduce { kind: ArgKind::Min, axis: 0, index_dtype: DType::I8 };
    assert!(remat_ir::eval_op(&op.into(), &[vec1(&[0u8; 128])]).is_ok());
    assert_eq!(error(op, &[vec1(&[0u8; 129])]), "argmin: the indices of dimension 0 of u8[129] do not fit i8");
}

#[test]
fn cumulative_along_any_dimension() {
    let x = Array::from_vec((1..=12).collect::<Vec<i32>>(), [2, 3, 2]).unwrap();
    let got = scan(CumulativeKind::Sum, 1, false, &x);
    assert_eq!(got.as_slice::<i32>().unwrap(), [1, 2, 4, 6, 9, 12, 7, 8, 16, 18, 27, 30]);
    let got = scan(CumulativeKind::Sum, 0, true, &x);
    assert_eq!(got.as_slice::<i32>().unwrap(), [8, 10, 12, 14, 16, 18, 7, 8, 9, 10, 11, 12]);
}

/// The roundings of equal terms have one sign, so that they add up unless the accumulator has more bits than the terms.
#[test]
fn cumulative_results_of_equal_numbers_are_rounded_once() {
    let check = |kind, dtype: DType, value: f64, n: usize, expected: fn(f64, f64) -> f64| {
        let one = numbers(&cast(dtype, &[value]))[0];
        let x = Array::full(Literal::from_f64(dtype, value), [n]);
        for reverse in [false, true] {
            let got = numbers(&scan(kind, 0, reverse, &x));
            for (i, got) in got.into_iter().enumerate() {
                let want = expected(one, if reverse { n - i } else { i + 1 } as f64);
                let error = (got / want - 1.0).abs();
                assert!(error <= 1.01 * epsilon(dtype), "{kind:?} of {dtype}: {got} and not {want}, error {error:e}");
            }
        }
    };
    for (dtype, n) in [(DType::F16, 10_000), (DType::Bf16, 100_000), (DType::F32, 100_000), (DType::F64, 100_000)] {
        check(CumulativeKind::Sum, dtype, 0.1, n, |one, n| n * one);
        check(CumulativeKind::LogSumExp, dtype, 5.0, if dtype == DType::F64 { 2 } else { n }, |one, n| one + n.ln());
    }
    check(CumulativeKind::Prod, DType::F32, 0.9999, 100_000, f64::powf);
    // The error of a product of f64 grows by a rounding of each factor.
    check(CumulativeKind::Prod, DType::F64, 0.9999, 2, f64::powf);
}

/// Half of the distance from 1 to the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::from(f16::EPSILON) / 2.0,
        DType::Bf16 => f64::from(bf16::EPSILON) / 2.0,
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        _ => f64::EPSILON / 2.0,
    }
}

#[test]
fn cumulative_logarithms_of_sums_of_exponentials() {
    for dtype in FLOATS {
        let x = cast(dtype, &[0.0, 0.0, 1.0]);
        let want = [0.0, std::f64::consts::LN_2, (2.0 + std::f64::consts::E).ln()];
        assert_close(&scan(CumulativeKind::LogSumExp, 0, false, &x), &want);
        let x = cast(dtype, &[-INF, -INF, 2.0, 1000.0, INF, 1.0, NAN]);
        let got = scan(CumulativeKind::LogSumExp, 0, false, &x);
        assert_same(&got, dtype, &[-INF, -INF, 2.0, 1000.0, INF, INF, NAN]);
    }
}
