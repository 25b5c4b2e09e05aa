//! Derivatives where central differences mean nothing: at ties, at bounds, at zero and at infinity. They are those of JAX
//! 0.10.2 but for `cummax` and `cummin`, whose test says why. `derivatives.rs` goes through all elementwise operations.

use remat::transform::jvp;
use remat_ir::{
    Array, Binary, Builder, Clamp, Cumulative, CumulativeKind, IntegerPow, Op, Reduce, ReduceKind, Unary, eval,
};

/// The tangent of the result of `op` in the direction `tangents`; `None` is a zero tangent.
fn tangent(op: impl Into<Op>, primals: &[&[f64]], tangents: &[Option<&[f64]>]) -> Vec<f64> {
    let array = |x: &[f64]| Array::from_vec(x.to_vec(), [x.len()]).unwrap();
    let mut b = Builder::new();
    let ins = b.inputs(primals.iter().map(|x| array(x).aval().clone()));
    let out = b.emit1(op.into(), &ins).unwrap();
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let derivative = jvp(&b.finish(vec![out]), &nonzero, &[true]).unwrap();
    let args = primals.iter().copied().chain(tangents.iter().copied().flatten()).map(array);
    eval(&derivative.jaxpr, args.collect()).unwrap()[1].as_slice::<f64>().unwrap().to_vec()
}

#[test]
fn equal_operands_of_max_and_min_share() {
    let (x, y) = (&[1.0, 2.0, 3.0][..], &[2.0, 2.0, 2.0][..]);
    let (dx, dy) = (&[10.0, 20.0, 30.0][..], &[1.0, 2.0, 4.0][..]);
    assert_eq!(tangent(Binary::Max, &[x, y], &[Some(dx), Some(dy)]), [1.0, 11.0, 30.0]);
    assert_eq!(tangent(Binary::Min, &[x, y], &[Some(dx), Some(dy)]), [10.0, 11.0, 4.0]);
    assert_eq!(tangent(Binary::Max, &[x, y], &[Some(dx), None]), [0.0, 10.0, 30.0]);
    assert_eq!(tangent(Binary::Max, &[x, y], &[None, Some(dy)]), [1.0, 1.0, 0.0]);
    assert_eq!(tangent(Binary::Min, &[x, y], &[None, Some(dy)]), [0.0, 1.0, 4.0]);
}

#[test]
fn max_and_min_with_nan_have_no_slope() {
    let (x, y) = (&[f64::NAN, 1.0, f64::NAN][..], &[1.0, f64::NAN, f64::NAN][..]);
    let (none, t) = (&[0.0; 3][..], &[1.0; 3][..]);
    for op in [Binary::Max, Binary::Min] {
        for tangents in
            [[Some(t), Some(none)], [Some(none), Some(t)], [Some(t), Some(t)], [Some(t), None], [None, Some(t)]]
        {
            assert_eq!(tangent(op, &[x, y], &tangents), [0.0; 3], "{op:?} {tangents:?}");
        }
    }
}

#[test]
fn equal_elements_of_a_reduction_share() {
    let (x, t) = (&[3.0, 1.0, 3.0, 3.0, 1.0][..], &[1.0, 10.0, 4.0, 7.0, 20.0][..]);
    let reduce = |kind| Reduce { kind, axes: [0].into_iter().collect() };
    assert_eq!(tangent(reduce(ReduceKind::Max), &[x], &[Some(t)]), [4.0]);
    assert_eq!(tangent(reduce(ReduceKind::Min), &[x], &[Some(t)]), [15.0]);
    assert_eq!(tangent(reduce(ReduceKind::Max), &[&[]], &[Some(&[])]), [0.0]);
}

#[test]
fn products_with_zeros_have_derivatives() {
    let t = &[1.0, 1.0, 1.0, 1.0][..];
    let product = Reduce { kind: ReduceKind::Prod, axes: [0].into_iter().collect() };
    assert_eq!(tangent(product.clone(), &[&[2.0, 0.0, 3.0, 5.0]], &[Some(t)]), [30.0]);
    assert_eq!(tangent(product, &[&[2.0, 0.0, 0.0, 5.0]], &[Some(t)]), [0.0]);
    let cumulative = Cumulative { kind: CumulativeKind::Prod, axis: 0, reverse: false };
    assert_eq!(tangent(cumulative, &[&[2.0, 0.0, 3.0, 5.0]], &[Some(t)]), [1.0, 2.0, 6.0, 30.0]);
}

/// In JAX equal elements share by halves, as the tree of its parallel scan pairs them: of three equal ones a quarter, a quarter
/// and a half. Here the latest element that equals the result has the whole tangent, whatever the length.
#[test]
fn cumulative_max_and_min_follow_the_latest() {
    let (x, t) = (&[1.0, 3.0, 2.0, 3.0, 5.0][..], &[1.0, 2.0, 4.0, 8.0, 16.0][..]);
    let op = |kind, reverse| Cumulative { kind, axis: 0, reverse };
    assert_eq!(tangent(op(CumulativeKind::Max, false), &[x], &[Some(t)]), [1.0, 2.0, 2.0, 8.0, 16.0]);
    assert_eq!(tangent(op(CumulativeKind::Min, false), &[x], &[Some(t)]), [1.0; 5]);
    assert_eq!(tangent(op(CumulativeKind::Max, true), &[x], &[Some(t)]), [16.0; 5]);
    assert_eq!(tangent(op(CumulativeKind::Min, true), &[x], &[Some(t)]), [1.0, 4.0, 4.0, 8.0, 16.0]);
    // A NaN equals nothing: the latest is the one before it.
    let x = &[1.0, f64::NAN, 2.0][..];
    assert_eq!(tangent(op(CumulativeKind::Max, false), &[x], &[Some(&[1.0, 2.0, 4.0])]), [1.0; 3]);
}

#[test]
fn infinite_and_large_logarithms_of_sums() {
    let op = Cumulative { kind: CumulativeKind::LogSumExp, axis: 0, reverse: false };
    let none = f64::NEG_INFINITY;
    let got = tangent(op, &[&[none, 0.0, 0.0, none, 1000.0]], &[Some(&[0.0, 1.0, 3.0, 9.0, 5.0])]);
    assert_eq!(got, [0.0, 1.0, 2.0, 2.0, 5.0]);
}

#[test]
fn bounds_take_the_tangent_where_they_are_met() {
    let (low, x, high) = (&[0.0; 5][..], &[-1.0, 0.0, 0.5, 1.0, 2.0][..], &[1.0; 5][..]);
    let t = &[1.0; 5][..];
    assert_eq!(tangent(Clamp, &[low, x, high], &[None, Some(t), None]), [0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(tangent(Clamp, &[low, x, high], &[Some(t), None, None]), [1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(tangent(Clamp, &[low, x, high], &[None, None, Some(t)]), [0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn powers_and_moduli_at_zero() {
    let x = &[-2.0, -0.0, 0.0, 2.0, f64::NAN][..];
    assert_eq!(tangent(Unary::Abs, &[x], &[Some(&[1.0; 5])]), [-1.0, 1.0, 1.0, 1.0, -1.0]);
    assert_eq!(tangent(IntegerPow { y: 2 }, &[&[0.0]], &[Some(&[1.0])]), [0.0]);
    assert_eq!(tangent(IntegerPow { y: 0 }, &[&[0.0]], &[Some(&[1.0])]), [0.0]);
    assert_eq!(tangent(Binary::Pow, &[&[0.0], &[2.0]], &[Some(&[1.0]), Some(&[1.0])]), [0.0]);
    assert_eq!(tangent(Unary::Sign, &[&[0.0]], &[Some(&[1.0])]), [0.0]);
}

#[test]
fn saturated_functions_have_no_slope() {
    for op in [Unary::Tanh, Unary::Logistic, Unary::Erf] {
        assert_eq!(tangent(op, &[&[800.0, f64::INFINITY]], &[Some(&[1.0; 2])]), [0.0; 2], "{op:?}");
    }
    assert_eq!(tangent(Unary::Exp, &[&[f64::NEG_INFINITY]], &[Some(&[1.0])]), [0.0]);
}

/// `2 x erfcx(x) - 2 / sqrt(pi)` has no digits left at large arguments; these are exact.
#[test]
fn derivative_of_erfcx() {
    let x = [f64::NEG_INFINITY, -3.0, 0.0, 0.5, 3.0, 30.0, 1e3, 1e6, f64::INFINITY];
    let expected = [
        f64::NEG_INFINITY,
        -97237.06150316462,
        -std::f64::consts::FRAC_2_SQRT_PI,
        -0.5126888229025867,
        -0.05437226000717287,
    ];
    let far = [-0.0006258354105074841, -5.641887372654967e-7, -5.6418958354691e-13, 0.0];
    let got = tangent(Unary::Erfcx, &[&x], &[Some(&[1.0; 9])]);
    for (got, expected) in got.iter().zip(expected.into_iter().chain(far)) {
        assert!(*got == expected || (got - expected).abs() <= 3e-15 * expected.abs(), "{got} and not {expected}");
    }
}

/// Trigamma by its known values: pi^2/6 at 1, pi^2/2 at 1/2, by recurrence and reflection elsewhere.
#[test]
fn derivative_of_digamma() {
    let pi2 = std::f64::consts::PI.powi(2);
    let x = &[1.0, 0.5, 2.0, 1.5, -0.5, 30.0, 1e-3][..];
    let expected = [pi2 / 6.0, pi2 / 2.0, pi2 / 6.0 - 1.0, pi2 / 2.0 - 4.0, pi2 / 2.0 + 4.0];
    let got = tangent(Unary::Digamma, &[x], &[Some(&[1.0; 7])]);
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= 1e-14 * expected.abs() * 10.0, "{got} and not {expected}");
    }
    assert!((got[5] - 0.033_895_060_357_739_94).abs() < 1e-15, "{}", got[5]);
    assert!((got[6] - 1_000_001.642_533_195_9).abs() < 1e-8, "{}", got[6]);
}
