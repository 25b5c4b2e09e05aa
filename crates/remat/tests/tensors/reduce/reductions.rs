//! Reductions.

use remat::argument::keep;
use remat::ir::CumulativeKind;
use remat::{DType, Tensor, grad, jit, vmap};

use crate::numpy::{close, equal};

#[test]
fn reductions_are_numpys() {
    let y = Tensor::new([
        [[-0.5, 0.0, 2.5, 4.5], [-4.75, -3.75, 3.0, 4.25], [-2.75, -2.0, 3.5, -1.0]],
        [[-2.5, 3.25, -2.5, -1.0], [1.25, 0.25, -4.25, -4.75], [3.5, 2.5, 3.25, 0.25]],
    ]);
    let x = Tensor::arange(0..24).reshape([2, 3, 4]);
    close(y.sum(..), &[], &[2.25]);
    close(y.sum(0), &[3, 4], &[-3.0, 3.25, 0.0, 3.5, -3.5, -3.5, -1.25, -0.5, 0.75, 0.5, 6.75, -0.75]);
    close(y.sum([0, -1]), &[3], &[3.75, -8.75, 7.25]);
    close(y.sum([2, 0]), &[3], &[3.75, -8.75, 7.25]);
    close(
        y.sum(()),
        &[2, 3, 4],
        &[
            -0.5, 0.0, 2.5, 4.5, -4.75, -3.75, 3.0, 4.25, -2.75, -2.0, 3.5, -1.0, -2.5, 3.25, -2.5, -1.0, 1.25, 0.25,
            -4.25, -4.75, 3.5, 2.5, 3.25, 0.25,
        ],
    );
    close(y.sum(keep(..)), &[1, 1, 1], &[2.25]);
    close(y.sum(keep(1)), &[2, 1, 4], &[-8.0, -5.75, 9.0, 7.75, 2.25, 6.0, -3.5, -5.5]);
    close(y.sum(keep([2, 0])), &[1, 3, 1], &[3.75, -8.75, 7.25]);
    close(
        y.mean(1),
        &[2, 4],
        &[
            -2.6666666666666665,
            -1.9166666666666667,
            3.0,
            2.5833333333333335,
            0.75,
            2.0,
            -1.1666666666666667,
            -1.8333333333333333,
        ],
    );
    close(y.mean(keep([0, 2])), &[1, 3, 1], &[0.46875, -1.09375, 0.90625]);
    close(y.prod(1), &[2, 4], &[-6.53125, 0.0, 26.25, -19.125, -10.9375, 2.03125, 34.53125, 1.1875]);
    close(y.max(..), &[], &[4.5]);
    close(y.max(-1), &[2, 3], &[4.5, 4.25, 3.5, 3.25, 1.25, 3.5]);
    close(y.min([0, 1]), &[4], &[-4.75, -3.75, -4.25, -4.75]);
    equal(x.all(2), &[2, 3], &[false, true, true, true, true, true]);
    equal(x.any(2), &[2, 3], &[true, true, true, true, true, true]);
    equal(y.gt(0).all(..), &[], &[false]);
    equal(y.gt(0).any(keep(1)), &[2, 1, 4], &[false, false, true, true, true, true, true, true]);
    equal(y.argmax(1), &[2, 4], &[0, 0, 2, 0, 2, 0, 2, 2]);
    equal(y.argmin(-1), &[2, 3], &[0, 0, 0, 0, 3, 3]);
    equal(y.argmax(..), &[], &[3]);
    equal(y.argmin(keep(0)), &[1, 3, 4], &[1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0]);
    equal(y.argmax(keep(..)), &[1, 1, 1], &[3]);
    close(
        y.variance(1),
        &[2, 4],
        &[
            3.013888888888889,
            2.3472222222222223,
            0.16666666666666666,
            6.4305555555555545,
            6.125,
            1.625,
            10.26388888888889,
            4.513888888888889,
        ],
    );
    close(y.variance_ddof(.., 1), &[], &[9.151154891304348]);
    close(y.std([0, 2]), &[3], &[2.4762544169571914, 3.4707201612201466, 2.4332896328838456]);
    close(
        y.std_ddof(keep(0), 1),
        &[1, 3, 4],
        &[
            std::f64::consts::SQRT_2,
            2.2980970388562794,
            3.5355339059327378,
            3.8890872965260113,
            4.242640687119285,
            2.8284271247461903,
            5.126524163602469,
            6.363961030678928,
            4.419417382415922,
            3.181980515339464,
            0.1767766952966369,
            0.8838834764831844,
        ],
    );
    close(
        y.norm(-1),
        &[2, 3],
        &[5.172040216394301, 7.980444849756184, 4.981214711292819, 4.905354217587146, 6.5, 5.3967582862307255],
    );
    close(y.norm_l1(0), &[3, 4], &[3.0, 3.25, 5.0, 5.5, 6.0, 4.0, 7.25, 9.0, 6.25, 4.5, 6.75, 1.25]);
    close(y.norm_max([1, 2]), &[2], &[4.75, 4.75]);
    close(
        y.logsumexp(1),
        &[2, 4],
        &[
            -0.3869718433553694,
            0.14743074794110292,
            4.180269670641734,
            5.078234271558521,
            3.602446452963061,
            3.670126188057514,
            3.253728904153936,
            0.5071528191061416,
        ],
    );
    close(y.logsumexp(keep([2, 0])), &[1, 3, 1], &[4.868522771724799, 4.554091637111561, 4.6639569392296245]);
    close(y.logsumexp(..), &[], &[5.802734059183526]);
    close(
        y.cumsum(1),
        &[2, 3, 4],
        &[
            -0.5, 0.0, 2.5, 4.5, -5.25, -3.75, 5.5, 8.75, -8.0, -5.75, 9.0, 7.75, -2.5, 3.25, -2.5, -1.0, -1.25, 3.5,
            -6.75, -5.75, 2.25, 6.0, -3.5, -5.5,
        ],
    );
    close(
        y.cumprod(-1),
        &[2, 3, 4],
        &[
            -0.5, -0.0, -0.0, -0.0, -4.75, 17.8125, 53.4375, 227.109375, -2.75, 5.5, 19.25, -19.25, -2.5, -8.125,
            20.3125, -20.3125, 1.25, 0.3125, -1.328125, 6.30859375, 3.5, 8.75, 28.4375, 7.109375,
        ],
    );
    close(
        y.cummax(2),
        &[2, 3, 4],
        &[
            -0.5, 0.0, 2.5, 4.5, -4.75, -3.75, 3.0, 4.25, -2.75, -2.0, 3.5, 3.5, -2.5, 3.25, 3.25, 3.25, 1.25, 1.25,
            1.25, 1.25, 3.5, 3.5, 3.5, 3.5,
        ],
    );
    close(
        y.cummin(0),
        &[2, 3, 4],
        &[
            -0.5, 0.0, 2.5, 4.5, -4.75, -3.75, 3.0, 4.25, -2.75, -2.0, 3.5, -1.0, -2.5, 0.0, -2.5, -1.0, -4.75, -3.75,
            -4.25, -4.75, -2.75, -2.0, 3.25, -1.0,
        ],
    );
    close(
        y.cumlogsumexp(1),
        &[2, 3, 4],
        &[
            -0.5,
            0.0,
            2.5,
            4.5,
            -0.485836543068495,
            0.02324546437242503,
            3.4740769841801065,
            5.075939419878844,
            -0.38697184335536927,
            0.14743074794110292,
            4.180269670641734,
            5.078234271558521,
            -2.5,
            3.25,
            -2.5,
            -1.0,
            1.2732454643724251,
            3.298587351573742,
            -2.3397758495619128,
            -0.976754535627575,
            3.602446452963061,
            3.670126188057514,
            3.253728904153936,
            0.5071528191061417,
        ],
    );
    close(
        y.cumulative(CumulativeKind::Sum, 2, true),
        &[2, 3, 4],
        &[
            6.5, 7.0, 7.0, 4.5, -1.25, 3.5, 7.25, 4.25, -2.25, 0.5, 2.5, -1.0, -2.75, -0.25, -3.5, -1.0, -7.5, -8.75,
            -9.0, -4.75, 9.5, 6.0, 3.5, 0.25,
        ],
    );
    close(
        y.sort(1),
        &[2, 3, 4],
        &[
            -4.75, -3.75, 2.5, -1.0, -2.75, -2.0, 3.0, 4.25, -0.5, 0.0, 3.5, 4.5, -2.5, 0.25, -4.25, -4.75, 1.25, 2.5,
            -2.5, -1.0, 3.5, 3.25, 3.25, 0.25,
        ],
    );
    equal(y.argsort(-1), &[2, 3, 4], &[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 3, 2, 0, 2, 3, 1, 3, 2, 1, 0, 3, 1, 2, 0]);
    close(y.top_k(2).0, &[2, 3, 2], &[4.5, 2.5, 4.25, 3.0, 3.5, -1.0, 3.25, -1.0, 1.25, 0.25, 3.5, 3.25]);
    equal(y.top_k(2).1, &[2, 3, 2], &[3, 2, 3, 2, 2, 3, 1, 3, 0, 1, 0, 2]);
    // Zeros of both signs are equal, and the first of equals comes first.
    equal(Tensor::new([-0.0f32, 0.0, -1.0, -0.0, f32::NAN]).top_k(4).1, &[4], &[4, 0, 1, 3]);
}

#[test]
fn reductions_of_nothing_are_the_identity() {
    let x = Tensor::zeros([2, 0], DType::F64);
    close(x.sum(1), &[2], &[0.0, 0.0]);
    close(x.prod(1), &[2], &[1.0, 1.0]);
    close(x.mean(1), &[2], &[f64::NAN, f64::NAN]);
    equal(x.all(1), &[2], &[true, true]);
    equal(x.any(1), &[2], &[false, false]);
    equal(x.max(0), &[0], &[] as &[f64]);
    close(Tensor::new(3.0f64).sum(..), &[], &[3.0]);
    close(Tensor::new(3.0f64).max(()), &[], &[3.0]);
}

#[test]
fn infinities_and_nans_go_through_reductions() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    close(Tensor::new([[-inf, -inf], [inf, 0.0], [nan, 0.0]]).logsumexp(1), &[3], &[-inf, inf, nan]);
    close(Tensor::new([1.0, nan]).max(0), &[], &[nan]);
    equal(Tensor::new([1.0, nan, 5.0]).argmax(0), &[], &[1]);
    close(Tensor::new([-inf, 0.0]).softmax(0), &[2], &[0.0, 1.0]);
    close(Tensor::new([inf, 0.0]).softplus(), &[2], &[inf, 2.0f64.ln()]);
    close(Tensor::new([-inf, -800.0]).softplus(), &[2], &[0.0, 0.0]);
}

#[test]
fn narrow_floats_are_averaged_in_f32() {
    let big = Tensor::full([4], 60000.0, DType::F16);
    assert_eq!(big.mean(0).to_dtype(DType::F64).item::<f64>().unwrap(), 60000.0);
    assert_eq!(big.variance(0).to_dtype(DType::F64).item::<f64>().unwrap(), 0.0);
    assert_eq!(big.mean(0).dtype().unwrap(), DType::F16);
    for dtype in [DType::F16, DType::Bf16] {
        let norm = Tensor::full([4], 300.0, dtype).norm(0);
        assert_eq!((norm.dtype().unwrap(), norm.to_dtype(DType::F64).item::<f64>().unwrap()), (dtype, 600.0));
    }
}

/// As in JAX: nothing is the softmax of nothing, and negative infinity the logarithm of no powers.
#[test]
fn sums_of_no_powers() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for shape in [&[2, 0][..], &[2, 0, 3], &[0, 0], &[0]] {
            let axis = shape.len().min(2) - 1;
            let x = Tensor::zeros(shape, dtype);
            let mut reduced = shape.to_vec();
            reduced.remove(axis);
            let numbers = |t: Tensor| t.to_dtype(DType::F64).to_vec::<f64>().unwrap();
            let logarithm = |x: &Tensor| x.logsumexp(axis);
            for sum in [logarithm(&x), jit(logarithm).call(x.clone()).unwrap()] {
                assert_eq!((sum.shape().unwrap(), sum.dtype().unwrap()), (&reduced[..], dtype));
                assert!(numbers(sum).iter().all(|&sum| sum == f64::NEG_INFINITY));
            }
            assert_eq!(x.logsumexp(keep(axis)).rank().unwrap(), shape.len());
            for f in [|x: &Tensor, axis: usize| x.softmax(axis), |x: &Tensor, axis: usize| x.log_softmax(axis)] {
                let y = f(&x, axis);
                assert_eq!((y.shape().unwrap(), y.dtype().unwrap()), (shape, dtype));
                let gradient = grad(|x: &Tensor| f(x, axis).sum(..))(&x).unwrap();
                assert_eq!(gradient.shape().unwrap(), shape);
                assert_eq!(jit(|x: &Tensor| f(x, axis)).call(x.clone()).unwrap().shape().unwrap(), shape);
            }
            let gradient = grad(|x: &Tensor| logarithm(x).sum(..))(&x).unwrap();
            assert_eq!(gradient.shape().unwrap(), shape);
        }
    }
    let rows = vmap(|x: &Tensor| (x.softmax(0), x.logsumexp(0)))(&Tensor::zeros([3, 0], DType::F32)).unwrap();
    assert_eq!((rows.0.shape().unwrap(), rows.1.to_vec::<f32>().unwrap()), (&[3, 0][..], vec![f32::NEG_INFINITY; 3]));
    // All of no elements, and of none over no axis.
    let none = Tensor::zeros([0, 3], DType::F32);
    assert_eq!(none.logsumexp(..).item::<f32>().unwrap(), f32::NEG_INFINITY);
    assert_eq!(none.softmax(..).shape().unwrap(), [0, 3]);
    assert_eq!(none.softmax(()).shape().unwrap(), [0, 3]);
}
