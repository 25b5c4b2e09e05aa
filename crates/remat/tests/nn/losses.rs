//! Losses against what optax computes; `data/losses/generate.py` wrote the numbers.

use remat::nn::{
    binary_cross_entropy, cross_entropy, huber_loss, kl_divergence, mean_absolute_error, mean_squared_error,
    smoothed_cross_entropy, smoothed_cross_entropy_where,
};
use remat::report::saved_residuals;
use remat::{DType, Policy, Tensor, checkpoint, grad, jit, value_and_grad};

type Loss = Box<dyn Fn(&Tensor, &Tensor) -> Tensor>;

fn case(name: &str) -> Vec<f64> {
    let text = include_str!("../data/losses/vectors.txt");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect()
}

/// The predictions of the script, `3 cos(0.9 i)`, and its targets, `sin(1.7 i)`.
fn operands() -> (Tensor, Tensor) {
    let numbers = |f: fn(f64) -> f64| Tensor::from_vec((0..12).map(|i| f(f64::from(i))).collect::<Vec<_>>(), [3, 4]);
    (numbers(|i| 3.0 * (0.9 * i).cos()), numbers(|i| (1.7 * i).sin()))
}

/// The losses of two floats, with the operands of the script.
fn pairs() -> Vec<(&'static str, Loss, (Tensor, Tensor))> {
    let (x, y) = operands();
    let plain = || (x.clone(), y.clone());
    vec![
        ("squared", Box::new(mean_squared_error), plain()),
        ("absolute", Box::new(mean_absolute_error), plain()),
        ("huber.1", Box::new(|x, y| huber_loss(x, y, 1.0)), plain()),
        ("huber.2.5", Box::new(|x, y| huber_loss(x, y, 2.5)), plain()),
        ("binary", Box::new(binary_cross_entropy), (&x * 20.0, &y * 0.5 + 0.5)),
        ("kl", Box::new(kl_divergence), (x.log_softmax(-1), y.softmax(-1))),
    ]
}

fn classes() -> Tensor {
    Tensor::new([0, 3, 2])
}

/// The classes, with one out of range at the position that does not count.
fn padded() -> Tensor {
    Tensor::new([0, -100, 2])
}

fn counted() -> Tensor {
    padded().ge(0)
}

#[track_caller]
fn expect(name: &str, actual: &[f64], tolerance: f64) {
    let expected = case(name);
    assert_eq!(actual.len(), expected.len(), "{name}");
    for (a, e) in actual.iter().zip(&expected) {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "{name}: {a} and {e}");
    }
}

fn numbers(tensors: &[&Tensor]) -> Vec<f64> {
    tensors.iter().flat_map(|x| x.to_dtype(DType::F64).to_vec::<f64>().unwrap()).collect()
}

#[test]
fn losses_and_gradients_are_those_of_optax() {
    for (name, loss, args) in pairs() {
        let (value, (one, other)) = value_and_grad(|(x, y): &(Tensor, Tensor)| loss(x, y))(&args).unwrap();
        expect(name, &numbers(&[&value, &one, &other]), 1e-13);
    }
    for smoothing in ["0.0", "0.1", "1.0"] {
        let loss = |x: &Tensor| smoothed_cross_entropy(x, &classes(), smoothing.parse().unwrap());
        let (value, gradient) = value_and_grad(loss)(&operands().0).unwrap();
        expect(&format!("smoothed.{smoothing}"), &numbers(&[&value, &gradient]), 1e-13);
        let loss = |x: &Tensor| smoothed_cross_entropy_where(x, &padded(), smoothing.parse().unwrap(), &counted());
        let (value, gradient) = value_and_grad(loss)(&operands().0).unwrap();
        expect(&format!("smoothed.where.{smoothing}"), &numbers(&[&value, &gradient]), 1e-13);
    }
}

#[test]
fn every_dtype_has_the_loss_up_to_its_rounding() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 2e-2), (DType::Bf16, 1e-1)] {
        for (name, loss, (x, y)) in pairs() {
            let value = loss(&x.to_dtype(dtype), &y.to_dtype(dtype));
            assert_eq!(value.dtype().unwrap(), dtype);
            expect_first(name, &value, tolerance);
        }
        let value = smoothed_cross_entropy(&operands().0.to_dtype(dtype), &classes(), 0.1);
        assert_eq!(value.dtype().unwrap(), dtype);
        expect_first("smoothed.0.1", &value, tolerance);
        let value = smoothed_cross_entropy_where(&operands().0.to_dtype(dtype), &padded(), 0.1, &counted());
        assert_eq!(value.dtype().unwrap(), dtype);
        expect_first("smoothed.where.0.1", &value, tolerance);
    }
}

#[track_caller]
fn expect_first(name: &str, value: &Tensor, tolerance: f64) {
    let (value, expected) = (numbers(&[value])[0], case(name)[0]);
    assert!((value - expected).abs() <= tolerance * expected.abs().max(1.0), "{name}: {value} and {expected}");
}

#[test]
fn gradients_are_bit_identical_under_every_policy() {
    let mut losses: Vec<_> = pairs().into_iter().map(|(_, loss, args)| (loss, args)).collect();
    losses.push((Box::new(|x, _| smoothed_cross_entropy(x, &classes(), 0.1)), operands()));
    losses.push((Box::new(|x, _| smoothed_cross_entropy_where(x, &padded(), 0.1, &counted())), operands()));
    for (loss, (x, y)) in losses {
        // A product in front, so that there is something to keep.
        let under = |policy: Option<Policy>| {
            let (loss, y) = (&loss, &y);
            let f = checkpoint(policy, move |x: &Tensor| loss(&x.matmul(&Tensor::eye(4, DType::F64)), y));
            numbers(&[&jit(grad(f)).call(x.clone()).unwrap()])
        };
        let expected = under(None);
        for policy in [Policy::Everything, Policy::Nothing, Policy::Dots, Policy::DotsWithNoBatchDims] {
            assert_eq!(under(Some(policy)), expected);
        }
    }
}

#[test]
fn smoothing_keeps_no_probabilities() {
    let logits = Tensor::zeros([8, 1000], DType::F32);
    let targets = Tensor::zeros([8], DType::I32);
    let bytes = |f: &dyn Fn(&Tensor) -> Tensor| saved_residuals(f, &logits).unwrap().intermediate_bytes();
    let plain = bytes(&|x| cross_entropy(x, &targets));
    let smoothed = bytes(&|x| smoothed_cross_entropy(x, &targets, 0.1));
    // Per position, both keep the two parts of the logsumexp and the target; the probabilities would be 32000 bytes.
    assert!(plain <= 8 * 12 && smoothed <= 8 * 16, "{plain} and {smoothed} bytes");
    let mask = Tensor::arange(0..8).lt(5);
    let masked = bytes(&|x| smoothed_cross_entropy_where(x, &targets, 0.1, &mask));
    assert!(masked <= 8 * 24, "{masked} bytes");
}

#[test]
fn extreme_operands_have_finite_losses() {
    let item = |x: Tensor| x.item::<f64>().unwrap();
    let far = Tensor::new([1e300, -1e300]);
    assert_eq!(item(binary_cross_entropy(&far, &Tensor::new([1.0, 0.0]))), 0.0);
    // A sure and right prediction has its small loss.
    assert_eq!(item(binary_cross_entropy(&Tensor::new([50.0]), &Tensor::new([1.0]))), (-50f64).exp());
    let slopes = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| grad(f)(x).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(slopes(&|x| huber_loss(x, &Tensor::new([0.0, 0.0]), 2.0), &far), [1.0, -1.0]);
    let equal = Tensor::new([1.0, 2.0]);
    assert_eq!(slopes(&|x| mean_absolute_error(x, &equal), &equal), [0.5, 0.5]);
    // A target of 0 adds nothing, even to a prediction of probability 0.
    let (log_predictions, targets) = (Tensor::new([0.0, f64::NEG_INFINITY]), Tensor::new([1.0, 0.0]));
    assert_eq!(item(kl_divergence(&log_predictions, &targets)), 0.0);
    assert_eq!(slopes(&|x| kl_divergence(x, &targets), &log_predictions), [-1.0, 0.0]);
    assert_eq!(slopes(&|y| kl_divergence(&log_predictions, y), &targets), [1.0, 0.0]);
    let masked = Tensor::new([[0.0, f64::NEG_INFINITY]]);
    assert_eq!(item(smoothed_cross_entropy(&masked, &Tensor::new([0]), 0.0)), 0.0);
    assert_eq!(item(smoothed_cross_entropy(&masked, &Tensor::new([0]), 0.1)), f64::INFINITY);
    for target in [0, 1] {
        assert_eq!(item(smoothed_cross_entropy(&masked, &Tensor::new([target]), 1.0)), f64::INFINITY);
    }
}

#[test]
fn nan_scalars_and_empty_batches() {
    for (name, loss, (x, y)) in pairs() {
        let nan = Tensor::full([3, 4], f64::NAN, DType::F64);
        assert!(numbers(&[&loss(&nan, &y)])[0].is_nan(), "{name}");
        assert!(numbers(&[&loss(&x, &nan)])[0].is_nan(), "{name}");
        let none = Tensor::zeros([0, 4], DType::F32);
        assert!(numbers(&[&loss(&none, &none)])[0].is_nan(), "{name}");
        assert_eq!(grad(|x: &Tensor| loss(x, &none))(&none).unwrap().shape().unwrap(), [0, 4], "{name}");
    }
    let none = Tensor::zeros([3], DType::Bool);
    assert!(numbers(&[&smoothed_cross_entropy_where(&operands().0, &classes(), 0.1, &none)])[0].is_nan());
    let scalar = |x: f64| Tensor::from(x);
    assert_eq!(mean_squared_error(&scalar(3.0), &scalar(1.0)).item::<f64>().unwrap(), 4.0);
    assert_eq!(huber_loss(&scalar(3.0), &scalar(1.0), 1.0).item::<f64>().unwrap(), 1.5);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |x: Tensor| {
        let error = x.error().unwrap();
        assert!(error.to_string().contains("losses.rs"), "{error}");
        error.message().to_string()
    };
    let (x, column) = (Tensor::zeros([3], DType::F32), Tensor::zeros([3, 1], DType::F32));
    assert_eq!(
        message(mean_squared_error(&x, &column)),
        "the predictions f32[3] and the targets f32[3,1] have different shapes, and are not broadcast"
    );
    assert_eq!(
        message(mean_absolute_error(&x, &x.to_dtype(DType::Bf16))),
        "the predictions f32[3] and the targets bf16[3] have different dtypes"
    );
    assert_eq!(
        message(binary_cross_entropy(&x, &x.gt(0.0))),
        "the labels must be floats, not bool[3]; convert them with .to_dtype(DType::F32)"
    );
    for delta in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(message(huber_loss(&x, &x, delta)), format!("delta must be positive and finite, not {delta}"));
    }
    let scalar = Tensor::from(0.0f32);
    assert_eq!(message(kl_divergence(&scalar, &scalar)), "the targets f32[] have no axis of classes");
    for smoothing in [-0.1, 1.5, f64::NAN] {
        assert_eq!(
            message(smoothed_cross_entropy(&column, &Tensor::zeros([3], DType::I32), smoothing)),
            format!("the smoothing must be between 0 and 1, not {smoothing}")
        );
        assert_eq!(
            message(smoothed_cross_entropy_where(&operands().0, &padded(), smoothing, &counted())),
            format!("the smoothing must be between 0 and 1, not {smoothing}")
        );
    }
    assert_eq!(
        message(smoothed_cross_entropy_where(&operands().0, &padded(), 0.1, &padded())),
        "the mask must be bool, not i32[3]; compare it first, as in `x.ge(0)`"
    );
    assert_eq!(
        message(smoothed_cross_entropy_where(&operands().0, &padded(), 0.1, &Tensor::zeros([2], DType::Bool))),
        "the mask bool[2] does not broadcast to the targets i32[3]"
    );
    assert_eq!(
        message(smoothed_cross_entropy_where(&operands().0, &Tensor::zeros([4], DType::I32), 0.1, &counted())),
        "the targets i32[4] are not one for each position of the logits f64[3,4]"
    );
}
