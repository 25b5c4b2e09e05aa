//! Resizing against what `jax.image.resize` computes; `data/resize/generate.py` wrote the numbers.

use remat::nn::Interpolation::{self, Cubic, Lanczos3, Lanczos5, Linear, Nearest};
use remat::nn::{ResizeConfig, resize};
use remat::{DType, Policy, Tensor, checkpoint, grad, jit, jvp, vmap};

const ALL: [Interpolation; 5] = [Nearest, Linear, Cubic, Lanczos3, Lanczos5];

struct Case {
    name: String,
    config: ResizeConfig,
    from: Vec<usize>,
    to: Vec<usize>,
    numbers: Vec<f64>,
}

fn cases() -> Vec<Case> {
    let sizes = |word: &str| word.split(',').map(|size| size.parse().unwrap()).collect::<Vec<usize>>();
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let interpolation = *ALL.iter().find(|i| format!("{i:?}").to_lowercase() == words[0]).unwrap();
        Case {
            name: words[..4].join(" "),
            config: ResizeConfig { interpolation, antialias: words[1] == "antialias" },
            from: sizes(words[2]),
            to: sizes(words[3]),
            numbers: words[4..].iter().map(|number| number.parse().unwrap()).collect(),
        }
    };
    let cases: Vec<Case> = include_str!("../data/resize/vectors.txt").lines().map(parse).collect();
    assert_eq!(cases.len(), 60);
    cases
}

/// An array of these sizes, with this function of an element's number.
fn filled(shape: &[usize], dtype: DType, f: fn(f64) -> f64) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| f(i as f64)).collect();
    Tensor::from_vec(values, shape).to_dtype(dtype)
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).to_vec::<f64>().unwrap()
}

/// The result, then the gradient of its sum times cosines.
fn computed(case: &Case, dtype: DType, policy: Option<Policy>) -> Vec<f64> {
    let x = filled(&case.from, dtype, |i| (1.7 * i).sin());
    let factors = filled(&case.to, dtype, |i| (0.9 * i).cos());
    let f = checkpoint(policy, |x: &Tensor| resize(x, &case.to[..], case.config));
    let y = jit(|x: &Tensor| f(x)).call(x.clone()).unwrap();
    assert_eq!((y.shape().unwrap(), y.dtype().unwrap()), (&case.to[..], dtype), "{}", case.name);
    let gradient = jit(grad(|x: &Tensor| (f(x) * &factors).sum(..))).call(x).unwrap();
    [numbers(&y), numbers(&gradient)].concat()
}

#[test]
fn results_and_gradients_are_those_of_jax() {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-6), (DType::F16, 4e-3), (DType::Bf16, 3e-2)] {
        for case in cases() {
            let actual = computed(&case, dtype, None);
            assert_eq!(actual.len(), case.numbers.len(), "{}", case.name);
            for (i, (a, e)) in actual.iter().zip(&case.numbers).enumerate() {
                assert!(
                    (a - e).abs() <= tolerance * e.abs().max(1.0),
                    "{}, {dtype}, number {i}: {a} and {e}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn bits_are_the_same_under_every_policy() {
    for case in cases() {
        let expected = computed(&case, DType::F32, None);
        for policy in [Policy::Everything, Policy::Nothing, Policy::Dots, Policy::DotsWithNoBatchDims] {
            assert_eq!(computed(&case, DType::F32, Some(policy)), expected, "{}", case.name);
        }
    }
}

#[test]
fn the_same_shape_is_the_same_array() {
    let x = filled(&[2, 3, 5], DType::F32, |i| (1.7 * i).sin());
    for interpolation in ALL {
        assert_eq!(numbers(&resize(&x, [2, 3, 5], interpolation)), numbers(&x), "{interpolation:?}");
    }
    let scalar = Tensor::from(2.5f32);
    assert_eq!(resize(&scalar, (), Cubic).item::<f32>().unwrap(), 2.5);
}

/// A constant stays one, also at the borders: the weights of each element of the result sum to 1.
#[test]
fn constants_stay_constant() {
    for interpolation in ALL {
        for antialias in [false, true] {
            for (from, to) in [(1, 9), (2, 31), (100, 7), (17, 16), (16, 17), (1000, 1)] {
                let x = Tensor::full([from], 3.0, DType::F64);
                let y = resize(&x, [to], ResizeConfig { interpolation, antialias });
                let close = y.allclose(&Tensor::full([to], 3.0, DType::F64), 1e-13, 0.0).unwrap();
                assert!(close, "{interpolation:?}, {antialias}, from {from} to {to}: {y}");
            }
        }
    }
}

/// Every element of a mean counts if aliasing is avoided, and few if it is not.
#[test]
fn every_element_counts_without_aliasing() {
    let gradient = |antialias| {
        let f = |x: &Tensor| resize(x, [4], ResizeConfig { interpolation: Linear, antialias }).sum(..);
        numbers(&grad(f)(&Tensor::zeros([40], DType::F64)).unwrap())
    };
    assert!(gradient(true).iter().all(|&g| g > 0.0));
    assert_eq!(gradient(false).iter().filter(|&&g| g != 0.0).count(), 8);
}

#[test]
fn the_nearest_element_is_exact_and_of_any_dtype() {
    let x = Tensor::arange(0..6);
    assert_eq!(resize(&x, [3], Nearest).to_vec::<i32>().unwrap(), [1, 3, 5]);
    assert_eq!(resize(&x, [4], Nearest).to_vec::<i32>().unwrap(), [0, 2, 3, 5]);
    assert_eq!(resize(&x.index(..2), [6], Nearest).to_vec::<i32>().unwrap(), [0, 0, 0, 1, 1, 1]);
    let bools = Tensor::new([true, false]);
    assert_eq!(resize(&bools, [3], Nearest).to_vec::<bool>().unwrap(), [true, false, false]);
    // The centre of each new element, beyond what f32 distinguishes: (j + 0.5) 30,000,000 / 29,999,999.
    let long = Tensor::arange(0..30_000_000);
    let y = resize(&long, [29_999_999], Nearest).to_vec::<i32>().unwrap();
    assert!(y.iter().enumerate().all(|(j, &i)| i as usize == if j < 14_999_999 { j } else { j + 1 }));
}

#[test]
fn batches_and_tangents() {
    let x = filled(&[3, 4, 5], DType::F64, |i| (1.7 * i).sin());
    for interpolation in ALL {
        let one = |x: &Tensor| resize(x, [6, 3], interpolation);
        let whole = resize(&x, [3, 6, 3], interpolation);
        assert!(vmap(one)(&x).unwrap().allclose(&whole, 1e-14, 1e-14).unwrap(), "{interpolation:?}");
        // A linear function is its own derivative.
        let (_, tangent) = jvp(|x: &Tensor| resize(x, [3, 6, 3], interpolation), &x, &x).unwrap();
        assert!(tangent.allclose(&whole, 1e-14, 1e-14).unwrap(), "{interpolation:?}");
    }
}

#[test]
fn empty_arrays() {
    for interpolation in ALL {
        let x = Tensor::zeros([2, 4], DType::F32);
        assert_eq!(resize(&x, [2, 0], interpolation).shape().unwrap(), [2, 0]);
        let none = Tensor::zeros([0, 4], DType::F32);
        assert_eq!(resize(&none, [0, 9], interpolation).shape().unwrap(), [0, 9]);
        assert_eq!(resize(&none, [0, 2], interpolation).shape().unwrap(), [0, 2]);
    }
}

#[test]
fn not_a_number_spreads_as_far_as_the_kernel() {
    let x = Tensor::new([1.0f32, 1.0, 1.0, f32::NAN]);
    let finite: Vec<bool> = numbers(&resize(&x, [8], Nearest)).iter().map(|x| x.is_nan()).collect();
    assert_eq!(finite, [false, false, false, false, false, false, true, true]);
    // A product with all weights, zeros among them.
    assert!(numbers(&resize(&x, [8], Linear)).iter().all(|x| x.is_nan()));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |x: Tensor| {
        let error = x.error().unwrap();
        assert!(error.to_string().contains("resize.rs"), "{error}");
        format!("{}: {}", error.operation(), error.message())
    };
    let x = Tensor::zeros([2, 3], DType::F32);
    assert_eq!(message(resize(&x, [3], Linear)), "nn::resize: takes 2 sizes for f32[2,3], not [3]");
    assert_eq!(message(resize(&x, [2, -1], Linear)), "nn::resize: the size -1 is negative");
    assert_eq!(
        message(resize(&x.to_dtype(DType::I32), [2, 6], Cubic)),
        "nn::resize: interpolates floats, not i32[2,3]; convert it with .to_dtype(DType::F32)"
    );
    for interpolation in ALL {
        assert_eq!(
            message(resize(&Tensor::zeros([2, 0], DType::F32), [2, 3], interpolation)),
            "nn::resize: axis 1 of f32[2,0] is empty and cannot have the size 3"
        );
        let huge = i64::MAX;
        assert_eq!(
            message(resize(&x, [huge, 3], interpolation)),
            format!("nn::resize: the shape [{huge}, 3] is too large")
        );
    }
    for (interpolation, numbers) in [(Linear, "weights"), (Nearest, "indices")] {
        assert_eq!(
            message(resize(&x, [2, 1i64 << 60], interpolation)),
            format!("nn::resize: there is no memory for the {numbers} of axis 1 from size 3 to {}", 1i64 << 60)
        );
    }
}
