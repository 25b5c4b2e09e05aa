//! The layers of models, against what defines them, on every float dtype.

use remat::argument::keep;
use remat::nn::{BatchNorm, Channels, Conv, GroupNorm};
use remat::{ConvConfig, DType, Error, Padding, Tensor, grad, random};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

/// Random numbers around 1.
fn numbers(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    random::normal(random::key(seed), shape, dtype) + 1.0
}

/// The numbers of a tensor, of whatever dtype.
fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).to_vec().unwrap()
}

/// That numbers are what they should be up to some roundings of the dtype.
#[track_caller]
fn close(tensor: &Tensor, dtype: DType, expected: &[f64]) {
    assert_eq!(tensor.dtype().unwrap(), dtype);
    let unit = match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        DType::F32 => 2f64.powi(-22),
        _ => 2f64.powi(-50),
    };
    let actual = values(tensor);
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 8.0 * unit * e.abs().max(1.0), "{dtype}: {a} and {e}");
    }
}

/// Mean and variance.
fn moments(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    (mean, numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count)
}

#[test]
fn a_convolution_adds_its_bias_to_each_feature() {
    for dtype in FLOATS {
        for (window, shape) in [(vec![3], vec![2, 4, 5]), (vec![3, 2], vec![2, 4, 5, 6]), (vec![], vec![2, 4])] {
            let layer = Conv::init(random::key(1), 4, 6, &window, dtype);
            assert_eq!(layer.kernel.shape().unwrap()[..2], [6, 4]);
            assert_eq!(layer.bias.as_ref().map(values), Some(vec![0.0; 6]));
            let layer = Conv { bias: Some(Tensor::arange(0..6).to_dtype(dtype)), ..layer };
            let x = numbers(2, &shape, dtype);
            let plain = x.conv(&layer.kernel, &ConvConfig { padding: Padding::Same, ..ConvConfig::default() });
            let y = layer.apply(&x);
            let positions = y.size().unwrap() / 12;
            let expected = values(&plain).into_iter().enumerate().map(|(i, y)| y + (i / positions % 6) as f64);
            close(&y, dtype, &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_convolution_takes_strides_padding_dilation_and_groups() {
    let layer = Conv {
        bias: None,
        strides: vec![2, 1],
        padding: Padding::Explicit(vec![(1, 1), (0, 2)]),
        dilation: vec![1, 2],
        groups: 2,
        ..Conv::init(random::key(1), 2, 6, [3, 2], DType::F32)
    };
    let x = numbers(2, &[2, 4, 7, 6], DType::F32);
    let halves: Vec<Tensor> = (0..2)
        .map(|group| {
            let kernel = layer.kernel.index(3 * group..3 * group + 3);
            let half = Conv { kernel, groups: 1, ..layer.clone() };
            half.apply(&x.index((.., 2 * group..2 * group + 2)))
        })
        .collect();
    assert_eq!(layer.apply(&x).shape().unwrap(), [2, 6, 4, 6]);
    assert_eq!(values(&layer.apply(&x)), values(&Tensor::concatenate(&halves, 1)));
}

#[test]
fn batch_norm_takes_the_statistics_of_the_batch_or_given_ones() {
    for dtype in FLOATS {
        for shape in [vec![4, 3], vec![4, 3, 5], vec![2, 3, 4, 2]] {
            let norm = BatchNorm {
                scale: numbers(1, &[3], dtype),
                bias: numbers(2, &[3], dtype),
                ..BatchNorm::init(3, dtype)
            }
            .eps(0.5);
            let x = numbers(3, &shape, dtype);
            let (scale, bias, numbers) = (values(&norm.scale), values(&norm.bias), values(&x));
            let positions: usize = shape[2..].iter().product();
            let feature = |i: usize| i / positions % 3;
            let own: Vec<(f64, f64)> = (0..3)
                .map(|f| {
                    moments(&(0..numbers.len()).filter(|&i| feature(i) == f).map(|i| numbers[i]).collect::<Vec<_>>())
                })
                .collect();
            let expected = |statistics: &[(f64, f64)]| -> Vec<f64> {
                let normal = |i: usize| {
                    let (mean, variance) = statistics[feature(i)];
                    (numbers[i] - mean) / (variance + 0.5).sqrt() * scale[feature(i)] + bias[feature(i)]
                };
                (0..numbers.len()).map(normal).collect()
            };
            close(&norm.apply(&x), dtype, &expected(&own));
            let (mean, variance) = norm.statistics(&x);
            close(&mean, dtype, &own.iter().map(|own| own.0).collect::<Vec<_>>());
            close(&variance, dtype, &own.iter().map(|own| own.1).collect::<Vec<_>>());
            let given = [Tensor::new([1.0, 0.5, 0.0]).to_dtype(dtype), Tensor::new([1.0, 2.0, 4.0]).to_dtype(dtype)];
            close(&norm.apply_given(&x, &given[0], &given[1]), dtype, &expected(&[(1.0, 1.0), (0.5, 2.0), (0.0, 4.0)]));
        }
    }
}

#[test]
fn batch_norm_rounds_once() {
    for dtype in [DType::F16, DType::Bf16] {
        for channels in [Channels::First, Channels::Last] {
            let norm = |dtype| {
                let init = BatchNorm::init(4, dtype).channels(channels);
                BatchNorm { scale: numbers(1, &[4], dtype), bias: numbers(2, &[4], dtype), ..init }
            };
            let narrow = norm(dtype);
            let wide = BatchNorm {
                scale: narrow.scale.to_dtype(DType::F32),
                bias: narrow.bias.to_dtype(DType::F32),
                ..norm(DType::F32)
            };
            let x = numbers(3, &[5, 4, 3, 4], dtype);
            let of_wide = x.to_dtype(DType::F32);
            let same = |a: Tensor, b: Tensor| assert_eq!(values(&a), values(&b.to_dtype(dtype)), "{dtype}");
            same(narrow.apply(&x), wide.apply(&of_wide));
            let (mean, variance) = wide.statistics(&of_wide);
            same(narrow.apply_given(&x, &mean, &variance), wide.apply_given(&of_wide, &mean, &variance));
        }
    }
}

#[test]
fn batch_norm_has_the_gradients_of_its_definition() {
    let [x, weights] = [3, 4].map(|seed| numbers(seed, &[3, 2, 4], DType::F64));
    let norm = BatchNorm { scale: numbers(1, &[2], DType::F64), ..BatchNorm::init(2, DType::F64) };
    // Every operation differentiated on its own.
    let definition = |(norm, x): &(BatchNorm, Tensor)| {
        let mean = x.mean(keep([0, 2]));
        let variance = (x - &mean).square().mean(keep([0, 2]));
        let [scale, bias] = [&norm.scale, &norm.bias].map(|weights| weights.reshape([2, 1]));
        (x - mean) / (variance + norm.eps).sqrt() * scale + bias
    };
    let layer = |(norm, x): &(BatchNorm, Tensor)| norm.apply(x);
    let all = |gradients: (BatchNorm, Tensor)| {
        [gradients.0.scale, gradients.0.bias, gradients.1].map(|gradient| values(&gradient)).concat()
    };
    let first = |f: &dyn Fn(&(BatchNorm, Tensor)) -> Tensor| {
        all(grad(|ins: &(BatchNorm, Tensor)| (f(ins).powi(3) * &weights).sum(..))(&(norm.clone(), x.clone())).unwrap())
    };
    let second = |f: &dyn Fn(&(BatchNorm, Tensor)) -> Tensor| {
        let inner = |ins: &(BatchNorm, Tensor)| {
            let (_, of_x) = grad(|ins: &(BatchNorm, Tensor)| (f(ins).powi(3) * &weights).sum(..))(ins)?;
            Ok::<Tensor, Error>((of_x * &weights).sum(..))
        };
        all(grad(inner)(&(norm.clone(), x.clone())).unwrap())
    };
    for (actual, expected) in [(first(&layer), first(&definition)), (second(&layer), second(&definition))] {
        let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        assert!(largest > 0.1);
        for (a, e) in actual.iter().zip(&expected) {
            assert!((a - e).abs() <= 1e-12 * largest, "{a} and {e}");
        }
    }
}

#[test]
fn group_norm_takes_the_statistics_of_a_group() {
    for dtype in FLOATS {
        for (groups, shape) in [(1, vec![2, 4, 3]), (2, vec![2, 4, 3, 2]), (4, vec![3, 4, 5]), (2, vec![3, 4])] {
            let init = GroupNorm::init(4, groups, dtype);
            let norm = GroupNorm { scale: numbers(1, &[4], dtype), bias: numbers(2, &[4], dtype), eps: 0.5, ..init };
            let x = numbers(3, &shape, dtype);
            let (scale, bias, numbers) = (values(&norm.scale), values(&norm.bias), values(&x));
            let positions: usize = shape[2..].iter().product();
            let expected: Vec<f64> = numbers
                .chunks(4 / groups * positions)
                .flat_map(|group| {
                    let (mean, variance) = moments(group);
                    group.iter().map(move |x| (x - mean) / (variance + 0.5).sqrt())
                })
                .enumerate()
                .map(|(i, x)| x * scale[i / positions % 4] + bias[i / positions % 4])
                .collect();
            close(&norm.apply(&x), dtype, &expected);
            assert_eq!(norm.apply(&x).shape().unwrap(), shape);
        }
    }
}

#[test]
fn layers_have_gradients_of_their_own_type() {
    let (conv, norm) = (Conv::init(random::key(1), 2, 4, [3], DType::F32), BatchNorm::init(4, DType::F32));
    let groups = GroupNorm::init(4, 2, DType::F32);
    let x = numbers(2, &[2, 2, 5], DType::F32);
    let loss = |(conv, norm, groups): &(Conv, BatchNorm, GroupNorm)| {
        groups.apply(&norm.apply(&conv.apply(&x))).powi(3).sum(..)
    };
    let (conv, norm, groups) = grad(loss)(&(conv, norm, groups)).unwrap();
    assert_eq!(conv.kernel.shape().unwrap(), [4, 2, 3]);
    for gradient in [&conv.kernel, &norm.scale, &groups.scale, &groups.bias] {
        assert!(values(gradient).iter().any(|g| g.abs() > 1e-3));
    }
}

#[test]
fn an_empty_batch_stays_empty() {
    let x = Tensor::zeros([0, 4, 3], DType::F32);
    assert_eq!(Conv::init(random::key(1), 4, 2, [3], DType::F32).apply(&x).shape().unwrap(), [0, 2, 3]);
    let norm = BatchNorm::init(4, DType::F32);
    assert_eq!(norm.apply(&x).shape().unwrap(), [0, 4, 3]);
    let gradients = grad(|norm: &BatchNorm| norm.apply(&x).sum(..))(&norm).unwrap();
    assert_eq!((values(&gradients.scale), values(&gradients.bias)), (vec![0.0; 4], vec![0.0; 4]));
    assert_eq!(GroupNorm::init(4, 2, DType::F32).apply(&x).shape().unwrap(), [0, 4, 3]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |y: Tensor| y.error().unwrap().message().to_string();
    let batch = BatchNorm::init(3, DType::F32);
    let x = Tensor::zeros([2, 4, 5], DType::F32);
    assert_eq!(
        message(batch.apply(&x)),
        "takes a batch with the channels of the weights f32[3] as axis 1, not f32[2,4,5]"
    );
    assert_eq!(message(batch.statistics(&x).1), message(batch.apply(&x)));
    assert_eq!(
        message(batch.apply_given(&Tensor::zeros([3], DType::F32), &batch.scale, &batch.bias)),
        "takes a batch with the channels of the weights f32[3] as axis 1, not f32[3]"
    );
    let narrow = Tensor::zeros([2, 3], DType::Bf16);
    assert_eq!(message(batch.apply(&narrow)), "takes a batch of the dtype of the weights f32[3], not bf16[2,3]");
    assert_eq!(message(batch.apply_given(&narrow, &batch.bias, &batch.scale)), message(batch.apply(&narrow)));
    let [kept, whole] = [Tensor::zeros([1, 3], DType::F32), Tensor::zeros([3], DType::I32)];
    let fitting = Tensor::zeros([2, 3], DType::F32);
    assert_eq!(
        message(batch.apply_given(&fitting, &batch.bias, &kept)),
        "takes a variance of floats for each channel of the weights f32[3], not f32[1,3]"
    );
    assert_eq!(
        message(batch.apply_given(&fitting, &whole, &batch.scale)),
        "takes a mean of floats for each channel of the weights f32[3], not i32[3]"
    );
    let mixed = BatchNorm { bias: Tensor::zeros([3], DType::Bf16), ..batch };
    assert_eq!(
        message(mixed.apply(&Tensor::zeros([2, 3], DType::F32))),
        "takes a batch of the dtype of the weights bf16[3], not f32[2,3]"
    );
    let three = GroupNorm::init(4, 3, DType::F32);
    assert_eq!(message(three.bias.clone()), "3 groups do not divide 4 features");
    assert_eq!(three.apply(&x).error().unwrap().operation(), "nn::GroupNorm::init");
    let groups = GroupNorm { groups: 0, ..GroupNorm::init(4, 2, DType::F32) };
    assert_eq!(message(groups.apply(&x)), "0 groups do not divide 4 features");
    let conv = Conv::init(random::key(0), 4, 2, [3], DType::F32);
    assert_eq!(message(Conv { strides: vec![1, 2], ..conv }.apply(&x)), "strides is [1, 2] and not 1 positive number");
    assert!(Conv::init(random::key(0), 4, 2, [3], DType::I32).kernel.error().is_some());
}
