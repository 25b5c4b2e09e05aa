//! Long windows, as gradients of weights have them.

use super::*;
use crate::kernels::conv::long_windows::{self, LongWindows};

/// A convolution of a window that may be longer than the image, and the shapes of its operands.
fn of_long_windows(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let (mut op, mut image, mut weights) = random(stream, to);
    let rank = op.strides.len();
    op.lhs_dilation = Shape::from_elem(1, rank);
    (op.feature_group_count, op.batch_group_count) = (1, 1);
    // Batch and features may be exchanged, as in gradients of weights.
    for (dims, shape) in [(&mut op.lhs_dims, &mut image), (&mut op.rhs_dims, &mut weights)] {
        let first = stream.below(2);
        let before: Vec<usize> = [dims.first, dims.second].iter().chain(&dims.spatial).map(|&d| shape[d]).collect();
        *dims = ConvDims { first, second: 1 - first, spatial: (2..rank + 2).collect() };
        [shape[first], shape[1 - first]] = [before[0], before[1]];
        shape[2..].copy_from_slice(&before[2..]);
    }
    image[op.lhs_dims.first] = 1 + stream.below(30);
    image[op.lhs_dims.second] = weights[op.rhs_dims.second];
    weights[op.rhs_dims.first] = 1 + stream.below(40);
    for d in 0..rank {
        (image[2 + d], weights[2 + d]) = (1 + stream.below(20), 1 + stream.below(12));
    }
    (op, image, weights)
}

#[test]
fn long_windows_agree_with_the_evaluator() {
    let long = agree_where_taken(900, &mut Stream::new(13), of_long_windows, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(LongWindows::<f32>::new(long_windows::SMALL, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(LongWindows::<f64>::new(long_windows::SMALL, op, ins, out)?)),
    });
    assert!(long > 80, "{long}");
}

#[test]
fn long_windows_at_positions_side_by_side_agree_with_the_evaluator() {
    let long = agree_where_taken(900, &mut Stream::new(15), of_long_windows, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(LongWindows::<f32>::new(long_windows::SMALL_ACROSS, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(LongWindows::<f64>::new(long_windows::SMALL_ACROSS, op, ins, out)?)),
    });
    assert!(long > 80, "{long}");
}

/// The same with dimensions in any order, and without gaps between elements.
fn of_plain_long_windows(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let (mut op, mut image, mut weights) = of_long_windows(stream, to);
    let rank = op.strides.len();
    (op.strides, op.rhs_dilation) = (Shape::from_elem(1, rank), Shape::from_elem(1, rank));
    for (dims, shape) in [(&mut op.lhs_dims, &mut image), (&mut op.rhs_dims, &mut weights)] {
        let by = stream.below(rank + 2);
        shape.rotate_right(by);
        let moved = |d: usize| (d + by) % (rank + 2);
        *dims = ConvDims {
            first: moved(dims.first),
            second: moved(dims.second),
            spatial: dims.spatial.iter().map(|&d| moved(d)).collect(),
        };
    }
    (op, image, weights)
}

#[test]
fn long_windows_in_any_order_agree_with_the_evaluator() {
    let long = agree_where_taken(300, &mut Stream::new(16), of_plain_long_windows, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(LongWindows::<f32>::new(long_windows::SMALL_ACROSS, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(LongWindows::<f64>::new(long_windows::SMALL_ACROSS, op, ins, out)?)),
    });
    assert!(long > 40, "{long}");
}

/// The gradient of the weights of a convolution of `images`, with a window of three by three elements.
fn gradient_of_weights(
    dtype: DType,
    out: DType,
    images: [usize; 4],
    features: usize,
    stride: usize,
) -> (Conv, [Aval; 2]) {
    let [n, _, height, width] = images;
    let forward = of_rank(2, out);
    let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
    let [down, across] = [height, width].map(|size| size.div_ceil(stride));
    let high = |size: usize, out: usize| ((out - 1) * stride + 2) as i64 - size as i64;
    let op = Conv {
        padding: vec![(1, high(height, down)), (1, high(width, across))],
        rhs_dilation: Shape::from_elem(stride, 2),
        lhs_dims: swapped(&forward.lhs_dims),
        rhs_dims: swapped(&forward.out_dims),
        out_dims: swapped(&forward.rhs_dims),
        ..forward
    };
    (op, [Aval::new(dtype, images), Aval::new(dtype, [n, features, down, across])])
}

#[test]
fn gradients_of_weights_are_of_long_windows() {
    let mut stream = Stream::new(14);
    // One step; several images a step; several rows a step; many panels and tiles, with a stride; images with few features.
    for (images, features, stride) in [
        ([2, 12, 13, 17], 26, 1),
        ([7, 12, 30, 31], 32, 1),
        ([1, 9, 150, 61], 24, 1),
        ([2, 50, 23, 20], 70, 2),
        ([3, 3, 70, 61], 64, 2),
        ([2, 1, 90, 150], 23, 1),
    ] {
        for (dtype, out) in [(DType::F32, DType::F32), (DType::Bf16, DType::Bf16), (DType::F64, DType::F64)] {
            let (op, ins) = gradient_of_weights(dtype, out, images, features, stride);
            let outs = op.infer(&ins).expect("they fit");
            assert_eq!(outs[0].shape[..], [features, images[1], 3, 3]);
            let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
            let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
            let is_long = match dtype {
                DType::F64 => LongWindows::<f64>::new(long_windows::SIZES, &op, operands, &outs[0]).is_some(),
                _ => LongWindows::<f32>::new(long_windows::SIZES, &op, operands, &outs[0]).is_some(),
            };
            assert!(is_long, "{images:?} {dtype}");
            agree_within(100.0, &op, &plain(dtype, &ins[0].shape, 1), &plain(dtype, &ins[1].shape, 2));
            check_views_of(&op, ins, &mut stream);
        }
    }
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them_in_long_windows() {
    let special = |shape: &[usize], seed| {
        filled(DType::F32, shape, seed, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(9000)).copied();
            Literal::from_f64(DType::F32, x.unwrap_or(1.0))
        })
    };
    for stride in [1, 2] {
        let (op, [x, y]) = gradient_of_weights(DType::F32, DType::F32, [3, 16, 18, 19], 32, stride);
        let out = &op.infer(&[x.clone(), y.clone()]).expect("they fit")[0];
        let layouts = [Layout::from(&x), Layout::from(&y)];
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        assert!(LongWindows::<f32>::new(long_windows::SIZES, &op, operands, out).is_some());
        agree(&op, &special(&x.shape, 1), &plain(DType::F32, &y.shape, 2));
        agree(&op, &plain(DType::F32, &x.shape, 1), &special(&y.shape, 2));
    }
}

/// Gradients of weights of convolutions with few features, forward or backward, in the layouts of frameworks. Some have numbers that are
/// not finite in elements that some position of the window does not meet.
#[test]
fn gradients_of_weights_of_few_features_agree_with_the_evaluator() {
    let mut stream = Stream::new(18);
    for (dtype, [channels, features]) in [(DType::F32, [48, 3]), (DType::Bf16, [48, 2]), (DType::F32, [3, 48])] {
        let (op, [x, y]) = gradient_of_weights(dtype, dtype, [2, channels, 25, 26], features, 1);
        for features_last in [false, true] {
            let (op, ins) = if features_last {
                let moved = |dims: &ConvDims| {
                    let to = |d: usize| [0, 3, 1, 2][d];
                    ConvDims {
                        first: to(dims.first),
                        second: to(dims.second),
                        spatial: dims.spatial.iter().map(|&d| to(d)).collect(),
                    }
                };
                let last = |aval: &Aval| {
                    let [n, c, h, w] = [0, 1, 2, 3].map(|d| aval.shape[d]);
                    Aval::new(aval.dtype, [n, h, w, c])
                };
                let op = Conv { lhs_dims: moved(&op.lhs_dims), rhs_dims: moved(&op.rhs_dims), ..op.clone() };
                (op, [last(&x), last(&y)])
            } else {
                (op.clone(), [x.clone(), y.clone()])
            };
            let out = &op.infer(&ins).expect("they fit")[0];
            let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
            let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
            let is_few = features < 8;
            assert_eq!(LongWindows::<f32>::new(long_windows::SIZES, &op, operands, out).is_none(), is_few);
            agree_within(100.0, &op, &plain(dtype, &ins[0].shape, 1), &plain(dtype, &ins[1].shape, 2));
            check_views_of(&op, ins.clone(), &mut stream);
            let ones = |aval: &Aval| filled(dtype, &aval.shape, 1, |_| Literal::from_f64(dtype, 1.0));
            let at = std::cell::Cell::new(0);
            let corner = filled(dtype, &ins[0].shape, 1, |_| {
                let is_first = at.replace(1) == 0;
                Literal::from_f64(dtype, if is_first { f64::INFINITY } else { 1.0 })
            });
            agree_within(1000.0, &op, &corner, &ones(&ins[1]));
        }
    }
    // A corner of the window that is in the padding at all positions counts, and one that is not counts where it meets the image.
    let image = Aval::new(DType::F32, [2, 48, 25, 26]);
    for pad in [3, 2] {
        let dims =
            |order: [usize; 2]| ConvDims { first: order[0], second: order[1], spatial: Shape::from_slice(&[2, 3]) };
        let window = [25, 26].map(|size| size + 2 * pad as usize - 2);
        let op = Conv {
            padding: vec![(pad, pad); 2],
            lhs_dims: dims([1, 0]),
            rhs_dims: dims([1, 0]),
            out_dims: dims([0, 1]),
            ..of_rank(2, DType::F32)
        };
        let ins = [image.clone(), Aval::new(DType::F32, [2, 3, window[0], window[1]])];
        let at = std::cell::Cell::new(0);
        let corner = filled(DType::F32, &ins[1].shape, 1, |_| {
            let is_first = at.replace(1) == 0;
            Literal::from_f64(DType::F32, if is_first { f64::INFINITY } else { 1.0 })
        });
        agree_within(1000.0, &op, &plain(DType::F32, &ins[0].shape, 1), &corner);
    }
}
