//! Layers whose channels are the last axis: the same numbers as with the channels first, at other places.

use remat::nn::{BatchNorm, Channels, Conv, ConvTranspose, GroupNorm, RunningStatistics};
use remat::{DType, Padding, Tensor, Tree, grad, random, tree};

/// Batches with no to three spatial axes; an empty one, and one without positions.
const SHAPES: [&[usize]; 6] = [&[3, 4], &[2, 4, 6], &[2, 4, 5, 6], &[2, 4, 3, 5, 4], &[0, 4, 5, 6], &[2, 4, 0, 6]];

const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::Bf16, DType::F16];

/// The channels from axis 1 to the last one.
fn last(x: &Tensor) -> Tensor {
    x.move_axis(1, -1)
}

fn numbers(shape: &[usize], dtype: DType) -> Tensor {
    random::normal(random::key(7), shape, DType::F32).to_dtype(dtype)
}

fn close(a: &Tensor, b: &Tensor, dtype: DType) {
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        _ => 0.1,
    };
    assert_eq!(a.shape().unwrap(), b.shape().unwrap());
    let [a, b] = [a, b].map(|x| x.to_dtype(DType::F64).to_vec::<f64>().unwrap());
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}, {dtype}");
    }
}

/// Compares results and gradients of a layer with the channels first, and of the same layer with the channels last.
fn same<L: Tree + Clone>(first: &L, of_last: &L, x: &Tensor, apply: impl Fn(&L, &Tensor) -> Tensor) {
    let dtype = x.dtype().unwrap();
    close(&apply(of_last, &last(x)), &last(&apply(first, x)), dtype);
    let loss = |(layer, x): &(L, Tensor)| apply(layer, x).to_dtype(DType::F32).sin().sum(..);
    let (own, of_x) = grad(loss)(&(first.clone(), x.clone())).unwrap();
    let (own_last, of_x_last) = grad(loss)(&(of_last.clone(), last(x))).unwrap();
    close(&of_x_last, &last(&of_x), dtype);
    for ((_, a), (_, b)) in tree::leaves(&own_last).iter().zip(&tree::leaves(&own)) {
        if a.dtype().unwrap().is_float() && a.dtype().unwrap() == dtype {
            close(a, b, dtype);
        }
    }
}

#[test]
fn convolutions_are_the_same() {
    for dtype in DTYPES {
        for shape in SHAPES {
            let spatial = shape.len() - 2;
            for (groups, padding, stride) in [(1, Padding::Same, 1), (2, Padding::Valid, 2), (4, Padding::SameLower, 1)]
            {
                let conv = Conv::init(random::key(1), 4 / groups, 8, vec![3; spatial], dtype);
                let conv = conv.groups(groups).padding(padding).strides(vec![stride; spatial]);
                if shape.contains(&0) && conv.padding == Padding::Valid {
                    continue;
                }
                let conv = Conv { bias: Some(numbers(&[8], dtype)), ..conv };
                same(&conv, &conv.clone().channels(Channels::Last), &numbers(shape, dtype), Conv::apply);
            }
        }
    }
}

#[test]
fn transposed_convolutions_are_the_same() {
    for dtype in DTYPES {
        for shape in SHAPES {
            let spatial = shape.len() - 2;
            for groups in [1, 2] {
                let conv = ConvTranspose::init(random::key(1), 4, 6 / groups, vec![3; spatial], dtype);
                let conv = conv.groups(groups).strides(vec![2; spatial]);
                let conv = ConvTranspose { bias: Some(numbers(&[6], dtype)), ..conv };
                same(&conv, &conv.clone().channels(Channels::Last), &numbers(shape, dtype), ConvTranspose::apply);
            }
        }
    }
}

#[test]
fn norms_are_the_same() {
    for dtype in DTYPES {
        for shape in SHAPES.into_iter().filter(|shape| !shape.contains(&0)) {
            let x = numbers(shape, dtype);
            let init = BatchNorm::init(4, dtype);
            let norm = BatchNorm { scale: numbers(&[4], dtype), bias: init.scale.clone(), ..init };
            let of_last = norm.clone().channels(Channels::Last);
            same(&norm, &of_last, &x, BatchNorm::apply);
            let (mean, variance) = norm.statistics(&x);
            let (mean_last, variance_last) = of_last.statistics(&last(&x));
            close(&mean_last, &mean, dtype);
            close(&variance_last, &variance, dtype);
            same(&norm, &of_last, &x, |norm, x| norm.apply_given(x, &mean, &variance));
            let statistics = RunningStatistics::init(4, dtype);
            let (y, next) = norm.train(&x, &statistics).unwrap();
            let (y_last, next_last) = of_last.train(&last(&x), &statistics).unwrap();
            close(&y_last, &last(&y), dtype);
            close(&next_last.mean, &next.mean, DType::F32);
            close(&next_last.variance, &next.variance, DType::F32);

            let init = GroupNorm::init(4, 2, dtype);
            let norm = GroupNorm { scale: numbers(&[4], dtype), bias: init.scale.clone(), ..init };
            same(&norm, &norm.clone().channels(Channels::Last), &x, GroupNorm::apply);
        }
    }
}

#[test]
fn errors_name_the_axis() {
    let x = Tensor::zeros([2, 4, 5], DType::F32);
    let message = |y: Tensor| y.error().unwrap().message().to_string();
    let conv = Conv::new(random::key(0), 4, 8, [3]).channels(Channels::Last);
    let expected =
        "the channels are the last axis of a batch, and the kernel f32[8,4,3] takes 4 of them, not f32[2,4,5]";
    assert_eq!(message(conv.apply(&x)), expected);
    let conv = ConvTranspose::new(random::key(0), 4, 8, [3]).channels(Channels::Last);
    let expected =
        "the channels are the last axis of a batch, and the kernel f32[4,8,3] takes 4 of them, not f32[2,4,5]";
    assert_eq!(message(conv.apply(&x)), expected);
    let norm = BatchNorm::new(4).channels(Channels::Last);
    let expected = "takes a batch with the channels of the weights f32[4] as the last axis, not f32[2,4,5]";
    assert_eq!(message(norm.apply(&x)), expected);
    assert_eq!(
        message(norm.apply(&x.index((0, 0)))),
        "takes a batch with the channels of the weights f32[4] as the last axis, not f32[5]"
    );
    let scalar = Conv::new(random::key(0), 4, 8, [3]).channels(Channels::Last).apply(&Tensor::from(1.0f32));
    assert_eq!(message(scalar), "f32[] and the kernel f32[8,4,3] must have the same rank, at least 2");
}
