//! Tests of convolutions against the evaluator.

use remat_ir::{Array, Aval, ConvDims, ConvertElementType, DType, Literal, Op, Operation, Prim, Shape, eval_op};

use super::depthwise::{self, Depthwise};
use super::direct::{self, Direct};
use super::im2col::{Axis, Im2col};
use super::long_windows::{self, LongWindows};
use super::row_segments::{RowSegments, copy_segments};
use super::*;
use crate::kernels::matmul::{Elements, Right};
use crate::test_support::{Stream, assert_close, assert_same, check_by, check_views, filled, plain, run, threads};

pub(super) fn order(dims: &[usize]) -> ConvDims {
    ConvDims { first: dims[0], second: dims[1], spatial: dims[2..].into() }
}

/// A convolution of `rank` spatial dimensions, which come last.
pub(super) fn of_rank(rank: usize, to: DType) -> Conv {
    let dims: Vec<usize> = (0..rank + 2).collect();
    Conv {
        strides: Shape::from_elem(1, rank),
        padding: vec![(0, 0); rank],
        lhs_dilation: Shape::from_elem(1, rank),
        rhs_dilation: Shape::from_elem(1, rank),
        lhs_dims: order(&dims),
        rhs_dims: order(&dims),
        out_dims: order(&dims),
        feature_group_count: 1,
        batch_group_count: 1,
        preferred_element_type: to,
    }
}

pub(super) fn agree(op: &Conv, image: &Array, weights: &Array) {
    agree_within(1.0, op, image, weights);
}

/// Compares with the evaluator. Results below `scale` may differ as much as a result of that size.
fn agree_within(scale: f64, op: &Conv, image: &Array, weights: &Array) {
    let tolerance = match op.preferred_element_type {
        DType::F64 => 1e-12,
        DType::F32 => 1e-4,
        DType::F16 => 2e-3,
        DType::Bf16 => 1e-2,
        _ => 0.0,
    };
    let build = |ins: &[Aval], outs: &[Aval]| {
        let [l, r] = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        kernel(op, [(ins[0].dtype, &l), (ins[1].dtype, &r)], &outs[0])
    };
    check_by(&Op::from(op.clone()), build, &[image.clone(), weights.clone()], |got, expected, what| {
        assert_close(got, expected, tolerance, scale, what);
    });
}

/// A convolution with parameters of every kind, and the shapes of its operands.
pub(super) fn random(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let rank = stream.below(4);
    let mut op = of_rank(rank, to);
    let mut permuted = |n: usize| {
        let mut dims: Vec<usize> = (0..n).collect();
        for i in 0..n {
            dims.swap(i, i + stream.below(n - i));
        }
        order(&dims)
    };
    [op.lhs_dims, op.rhs_dims, op.out_dims] = [permuted(rank + 2), permuted(rank + 2), permuted(rank + 2)];
    let groups = 1 + stream.below(3);
    let [features, batch] = if stream.below(2) == 0 { [groups, 1] } else { [1, groups] };
    (op.feature_group_count, op.batch_group_count) = (features, batch);
    let (mut image, mut weights) = (vec![0; rank + 2], vec![0; rank + 2]);
    weights[op.rhs_dims.first] = groups * (1 + stream.below(9));
    weights[op.rhs_dims.second] = 1 + stream.below(5);
    image[op.lhs_dims.first] = batch * (1 + stream.below(3));
    image[op.lhs_dims.second] = features * weights[op.rhs_dims.second];
    for d in 0..rank {
        image[op.lhs_dims.spatial[d]] = stream.below(9);
        weights[op.rhs_dims.spatial[d]] = stream.below(5);
        op.strides[d] = 1 + stream.below(3);
        op.lhs_dilation[d] = 1 + stream.below(4);
        op.rhs_dilation[d] = 1 + stream.below(3);
        op.padding[d] = (stream.below(9) as i64 - 3, stream.below(9) as i64 - 3);
    }
    (op, image, weights)
}

#[test]
fn convolutions_of_any_kind_agree_with_the_evaluator() {
    let mut stream = Stream::new(1);
    for i in 0..1500 {
        let dtype = [DType::F32, DType::F64, DType::Bf16, DType::I32][i % 4];
        let (op, image, weights) = random(&mut stream, dtype);
        agree(&op, &plain(dtype, &image, 1), &plain(dtype, &weights, 2));
    }
}

#[test]
fn convolutions_of_every_dtype_agree_with_the_evaluator() {
    for from in DType::ALL {
        for to in DType::ALL {
            let mut op = of_rank(2, to);
            (op.padding, op.lhs_dilation) = (vec![(1, 2), (2, 0)], [1, 2].as_slice().into());
            if op.infer(&[Aval::new(from, [1, 1, 1, 1]), Aval::new(from, [1, 1, 1, 1])]).is_ok() {
                agree(&op, &plain(from, &[2, 3, 9, 7], 1), &plain(from, &[5, 3, 3, 2], 2));
            }
        }
    }
}

#[test]
fn what_is_empty_or_outside_agrees_with_the_evaluator() {
    for dtype in [DType::F32, DType::Bf16, DType::I8] {
        for (image, weights) in [
            ([0, 3, 5, 5], [4, 3, 2, 2]),
            ([2, 0, 5, 5], [4, 0, 2, 2]),
            ([2, 3, 5, 5], [0, 3, 2, 2]),
            ([2, 3, 0, 5], [4, 3, 2, 2]),
            ([2, 3, 5, 5], [4, 3, 0, 2]),
            ([2, 3, 5, 5], [4, 3, 7, 2]),
        ] {
            for padding in [(0, 0), (3, 4), (40, 50), (-2, -1), (-9, 20), (20, -9)] {
                let op = Conv { padding: vec![padding; 2], ..of_rank(2, dtype) };
                agree(&op, &plain(dtype, &image, 1), &plain(dtype, &weights, 2));
                let op = Conv { lhs_dilation: [3, 1].as_slice().into(), ..op };
                agree(&op, &plain(dtype, &image, 1), &plain(dtype, &weights, 2));
            }
        }
        let huge = Conv {
            strides: [usize::MAX >> 1].as_slice().into(),
            padding: vec![(0, i64::MAX - 9)],
            ..of_rank(1, dtype)
        };
        agree(&huge, &plain(dtype, &[1, 2, 5], 1), &plain(dtype, &[3, 2, 2], 2));
        // Elements of a window that are farther apart than any offset.
        let far = Conv {
            rhs_dilation: [(1 << 61) + 1].as_slice().into(),
            padding: vec![(i64::MAX, i64::MAX)],
            ..of_rank(1, dtype)
        };
        agree(&far, &plain(dtype, &[1, 2, 64], 1), &plain(dtype, &[3, 2, 9], 2));
        let rank = of_rank(10, dtype);
        agree(
            &rank,
            &plain(dtype, &[2, 2, 3, 1, 2, 1, 1, 2, 1, 1, 1, 2], 1),
            &plain(dtype, &[3, 2, 2, 1, 2, 1, 1, 1, 1, 1, 1, 1], 2),
        );
    }
}

#[test]
fn convolutions_that_are_cut_agree_with_the_evaluator() {
    for dtype in [DType::F32, DType::F16] {
        // Batch, features or space first, with the results in the order of the image.
        for [image, weights] in [[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 3, 1, 2], [3, 2, 0, 1]]] {
            let placed = |dims: [usize; 4], sizes: [usize; 4]| {
                let mut shape = [0; 4];
                dims.iter().zip(sizes).for_each(|(&d, size)| shape[d] = size);
                shape
            };
            let (x, y) =
                (plain(dtype, &placed(image, [3, 40, 19, 23]), 1), plain(dtype, &placed(weights, [70, 40, 3, 3]), 2));
            let (lhs_dims, rhs_dims, out_dims) = (order(&image), order(&weights), order(&image));
            let forward = Conv { padding: vec![(1, 1); 2], lhs_dims, rhs_dims, out_dims, ..of_rank(2, dtype) };
            agree(&forward, &x, &y);
            agree(&Conv { strides: [2, 2].as_slice().into(), ..forward.clone() }, &x, &y);
            let small = plain(dtype, &placed(image, [3, 40, 14, 16]), 5);
            agree(&Conv { lhs_dilation: [2, 2].as_slice().into(), ..forward.clone() }, &small, &y);
            let of_groups = plain(dtype, &placed(weights, [70, 20, 3, 3]), 4);
            agree(&Conv { feature_group_count: 2, ..forward.clone() }, &x, &of_groups);
            // The gradient of the weights: batch and features change places.
            let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
            let gradient = Conv {
                lhs_dims: swapped(&forward.lhs_dims),
                rhs_dims: swapped(&forward.out_dims),
                out_dims: swapped(&forward.rhs_dims),
                ..forward
            };
            agree(&gradient, &x, &plain(dtype, &placed(image, [3, 70, 19, 23]), 3));
        }
    }
}

#[test]
fn many_images_agree_with_the_evaluator() {
    for dtype in [DType::F32, DType::F16, DType::I32] {
        for [image, weights] in [[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 3, 1, 2], [3, 2, 0, 1]]] {
            let placed = |dims: [usize; 4], sizes: [usize; 4]| {
                let mut shape = [0; 4];
                dims.iter().zip(sizes).for_each(|(&d, size)| shape[d] = size);
                shape
            };
            let array = |dims, sizes, seed| plain(dtype, &placed(dims, sizes), seed);
            // Each image is a task, which goes through all phases; with a window of one element most results are zero.
            let dims = (order(&image), order(&weights), order(&image));
            let forward = Conv { lhs_dims: dims.0, rhs_dims: dims.1, out_dims: dims.2, ..of_rank(2, dtype) };
            let dilated = Conv { lhs_dilation: [2, 3].as_slice().into(), ..forward.clone() };
            let x = array(image, [8, 3, 20, 17], 1);
            for window in [1, 3] {
                agree(&dilated, &x, &array(weights, [5, 3, window, window], 2));
                agree(
                    &Conv { padding: vec![(1, 2); 2], ..dilated.clone() },
                    &x,
                    &array(weights, [5, 3, window, window], 2),
                );
            }
            // The gradient of the weights, with sums so long that they are kept from strip to strip.
            let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
            let gradient = Conv {
                padding: vec![(1, 1); 2],
                lhs_dims: swapped(&forward.lhs_dims),
                rhs_dims: swapped(&forward.out_dims),
                out_dims: swapped(&forward.rhs_dims),
                ..forward
            };
            agree_within(100.0, &gradient, &array(image, [8, 6, 33, 35], 1), &array(image, [8, 70, 33, 35], 3));
        }
    }
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them() {
    let special = |shape: &[usize], seed| {
        filled(DType::F32, shape, seed, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(60)).copied();
            Literal::from_f64(DType::F32, x.unwrap_or(1.0))
        })
    };
    for dilation in [1, 2] {
        let op =
            Conv { lhs_dilation: [dilation, 1].as_slice().into(), padding: vec![(1, 1); 2], ..of_rank(2, DType::F32) };
        let weights = plain(DType::F32, &[20, 4, 2, 2], 2);
        agree(&op, &special(&[2, 4, 9, 9], 1), &weights);
    }
}

pub(super) fn check_views_of(op: &Conv, ins: [Aval; 2], stream: &mut Stream) {
    let build = |ins: &[(DType, &Layout)], outs: &[Aval]| kernel(op, [ins[0], ins[1]], &outs[0]);
    check_views(&Op::from(op.clone()), &ins, build, stream);
}

#[test]
fn the_order_of_sums_does_not_depend_on_layouts() {
    let mut stream = Stream::new(3);
    for i in 0..800 {
        let dtype = [DType::F32, DType::F64, DType::Bf16, DType::F16][i % 4];
        let (op, image, weights) = random(&mut stream, dtype);
        check_views_of(&op, [Aval::new(dtype, image), Aval::new(dtype, weights)], &mut stream);
    }
    // Large enough to be cut, in the layouts of frameworks, forward and as gradients.
    for i in 0..48 {
        let dtype = [DType::F32, DType::F64, DType::Bf16][i % 3];
        let [image, weights] = [[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 3, 1, 2], [3, 2, 0, 1]]][i / 3 % 2];
        let shaped = |dims: [usize; 4], sizes: [usize; 4]| {
            let mut shape = [0; 4];
            dims.iter().zip(sizes).for_each(|(&d, size)| shape[d] = size);
            Aval::new(dtype, shape)
        };
        let (lhs_dims, rhs_dims, out_dims) = (order(&image), order(&weights), order(&image));
        let forward = Conv { padding: vec![(1, 1); 2], lhs_dims, rhs_dims, out_dims, ..of_rank(2, dtype) };
        // The gradient of weights sums along all positions, which takes several parts.
        let [height, width] = if i / 6 % 4 == 3 { [19, 23] } else { [13, 11] };
        let [x, y] = [40, 70].map(|features| shaped(image, [3, features, height, width]));
        let w = shaped(weights, [70, 40, 3, 3]);
        let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
        let (op, ins) = match i / 6 % 4 {
            0 => (forward, [x, w]),
            1 => (Conv { lhs_dilation: [2, 2].as_slice().into(), ..forward }, [x, w]),
            2 => (Conv { rhs_dims: swapped(&forward.rhs_dims), ..forward }, [y, w]),
            _ => (
                Conv {
                    lhs_dims: swapped(&forward.lhs_dims),
                    rhs_dims: swapped(&forward.out_dims),
                    out_dims: swapped(&forward.rhs_dims),
                    ..forward
                },
                [x, y],
            ),
        };
        check_views_of(&op, ins, &mut stream);
    }
}

/// A convolution with results in rows of an image that is not dilated, and the shapes of its operands.
fn in_rows(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let (mut op, mut image, mut weights) = random(stream, to);
    let (rank, positions) = (op.strides.len(), 1 + stream.below(70));
    op.out_dims = order(&(0..rank + 2).collect::<Vec<_>>());
    op.lhs_dilation = Shape::from_elem(1, rank);
    // All groups are groups of features.
    let groups = op.feature_group_count.max(op.batch_group_count);
    (op.feature_group_count, op.batch_group_count) = (groups, 1);
    image[op.lhs_dims.second] = groups * weights[op.rhs_dims.second];
    if let Some(&last) = op.lhs_dims.spatial.last() {
        image[last] = positions;
    }
    weights[op.rhs_dims.first] = groups * (1 + stream.below(40));
    (op, image, weights)
}

/// Makes a kernel of the tested kind for operands of these dtypes and layouts, if the kind applies.
pub(super) type MadeBy = fn(&Conv, [(DType, &Layout); 2], &Aval) -> Option<Box<dyn Kernel>>;

/// Compares kernels of one kind, which compute in `to`, with the evaluator, for the random convolutions to which the kind applies. Returns
/// their number.
pub(super) fn agree_where_taken(
    count: usize,
    stream: &mut Stream,
    draw: fn(&mut Stream, DType) -> (Conv, Vec<usize>, Vec<usize>),
    made: fn(DType) -> MadeBy,
) -> usize {
    let mut taken = 0;
    for i in 0..count {
        let to = [DType::F32, DType::F64][i % 2];
        let from = [to, DType::Bf16, to][i % 3];
        let (op, image, weights) = draw(stream, to);
        let ins = [Aval::new(from, image.clone()), Aval::new(from, weights.clone())];
        let Ok(outs) = op.infer(&ins) else { continue };
        let kernel = |ins: [(DType, &Layout); 2]| made(to)(&op, ins, &outs[0]);
        let [l, r] = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        if kernel([(from, &l), (from, &r)]).is_none() {
            continue;
        }
        taken += 1;
        let prim = Op::from(op.clone());
        let arrays = [plain(from, &image, 1), plain(from, &weights, 2)];
        let of_views = |ins: &[(DType, &Layout)], _: &[Aval]| kernel([ins[0], ins[1]]).expect("whatever the layout is");
        let row_major = |_: &[Aval], _: &[Aval]| kernel([(from, &l), (from, &r)]).expect("it was one before");
        check_by(&prim, row_major, &arrays, |got, expected, what| assert_close(got, expected, 1e-4, 1.0, what));
        check_views(&prim, &ins, of_views, stream);
    }
    taken
}

#[test]
fn windows_that_are_read_where_they_lie_agree_with_the_evaluator() {
    let direct = agree_where_taken(480, &mut Stream::new(11), in_rows, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(Direct::<f32>::new(direct::SMALL, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(Direct::<f64>::new(direct::SMALL, op, ins, out)?)),
    });
    assert!(direct > 80, "{direct}");
}

/// The sums of f16 and bf16 are those of f32, rounded once.
#[test]
fn results_of_windows_that_are_read_where_they_lie_are_rounded_once() {
    let (mut stream, mut taken) = (Stream::new(13), 0);
    for i in 0..240 {
        let to = [DType::Bf16, DType::F16][i % 2];
        let (op, image, weights) = in_rows(&mut stream, to);
        let ins = [Aval::new(to, image.clone()), Aval::new(to, weights.clone())];
        let Ok(outs) = op.infer(&ins) else { continue };
        let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        let operands = [(to, &layouts[0]), (to, &layouts[1])];
        let Some(narrow) = Direct::<f32>::new(direct::SMALL, &op, operands, &outs[0]) else { continue };
        taken += 1;
        let wide_op = Conv { preferred_element_type: DType::F32, ..op.clone() };
        let wide_outs = [outs[0].with_dtype(DType::F32)];
        let wide = Direct::<f32>::new(direct::SMALL, &wide_op, operands, &wide_outs[0]).expect("as of narrow results");
        let arrays = [plain(to, &image, 1), plain(to, &weights, 2)];
        let round = Op::from(Prim::from(ConvertElementType { dtype: to }));
        for count in 1..=3 {
            let got = run(&narrow, &arrays, &outs, None, &threads(count)).remove(0);
            let sums = run(&wide, &arrays, &wide_outs, None, &threads(count));
            let expected = eval_op(&round, &sums).expect("floats").remove(0);
            assert_same(&got, &expected, &format!("{op:?} of {image:?} and {weights:?} on {count} threads"));
        }
    }
    assert!(taken > 40, "{taken}");
}

#[test]
fn large_convolutions_in_rows_read_windows_where_they_lie() {
    let mut stream = Stream::new(12);
    for (image, weights, stride) in
        [([2, 24, 33, 64], [40, 24, 3, 3], 1), ([1, 3, 40, 128], [16, 3, 7, 7], 2), ([1, 6, 1, 900], [30, 6, 1, 5], 1)]
    {
        let pad = (weights[3] / 2) as i64;
        let padding = vec![(if weights[2] == 1 { 0 } else { pad }, pad), (pad, pad)];
        let op = Conv { strides: Shape::from_elem(stride, 2), padding, ..of_rank(2, DType::F32) };
        let ins = [Aval::new(DType::F32, image), Aval::new(DType::F32, weights)];
        let (outs, layouts) = (op.infer(&ins).expect("they fit"), [Layout::from(&ins[0]), Layout::from(&ins[1])]);
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        assert!(Direct::<f32>::new(direct::SIZES, &op, operands, &outs[0]).is_some(), "{image:?}");
        agree(&op, &plain(DType::F32, &image, 1), &plain(DType::F32, &weights, 2));
        check_views_of(&op, ins, &mut stream);
    }
}

/// A convolution with weights of its own for each channel, or the gradient of such weights. The channels are often the last dimension.
fn of_channels(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let (mut op, image, weights) = random(stream, to);
    let rank = op.strides.len();
    let (channels, images, is_gradient) = (2 + stream.below(40), 1 + stream.below(3), stream.below(2) == 0);
    let spatial = |dims: &ConvDims, shape: &[usize]| -> Vec<usize> { dims.spatial.iter().map(|&d| shape[d]).collect() };
    let (of_image, of_weights) = (spatial(&op.lhs_dims, &image), spatial(&op.rhs_dims, &weights));
    if stream.below(3) > 0 {
        let last = |first: usize| {
            let spatial = (0..rank).map(|d| (first + 1 + d) % (rank + 1)).collect();
            ConvDims { first, second: rank + 1, spatial }
        };
        [op.lhs_dims, op.out_dims] = [stream.below(rank + 1), stream.below(rank + 1)].map(last);
    }
    let place = |dims: &ConvDims, first: usize, second: usize, spatial: &[usize]| {
        let mut shape = vec![0; rank + 2];
        [shape[dims.first], shape[dims.second]] = [first, second];
        dims.spatial.iter().zip(spatial).for_each(|(&d, &size)| shape[d] = size);
        shape
    };
    let image = place(&op.lhs_dims, images, channels, &of_image);
    let weights = place(&op.rhs_dims, channels, if is_gradient { images } else { 1 }, &of_weights);
    (op.feature_group_count, op.batch_group_count) = if is_gradient { (1, channels) } else { (channels, 1) };
    if is_gradient {
        std::mem::swap(&mut op.lhs_dims.first, &mut op.lhs_dims.second);
    }
    (op, image, weights)
}

#[test]
fn depthwise_convolutions_agree_with_the_evaluator() {
    let depthwise = agree_where_taken(900, &mut Stream::new(17), of_channels, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(Depthwise::<f32>::new(depthwise::SMALL, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(Depthwise::<f64>::new(depthwise::SMALL, op, ins, out)?)),
    });
    assert!(depthwise > 200, "{depthwise}");
}

#[test]
fn convolutions_that_are_nearly_depthwise_are_not_taken() {
    let taken = |op: &Conv, image: [usize; 4], weights: [usize; 4]| {
        let ins = [Aval::new(DType::F32, image), Aval::new(DType::F32, weights)];
        let (out, layouts) =
            (op.infer(&ins).expect("they fit").remove(0), [Layout::from(&ins[0]), Layout::from(&ins[1])]);
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        agree(op, &plain(DType::F32, &image, 1), &plain(DType::F32, &weights, 2));
        Depthwise::<f32>::applies(depthwise::SMALL, op, operands, &out)
    };
    let forward = |groups: usize| Conv { feature_group_count: groups, ..of_rank(2, DType::F32) };
    assert!(taken(&forward(16), [2, 16, 5, 5], [16, 1, 3, 3]));
    // Two outputs of a group, and two inputs.
    assert!(!taken(&forward(16), [2, 16, 5, 5], [32, 1, 3, 3]));
    assert!(!taken(&forward(8), [2, 16, 5, 5], [8, 2, 3, 3]));
    let of_batches = |groups: usize| Conv { batch_group_count: groups, ..of_rank(2, DType::F32) };
    assert!(taken(&of_batches(16), [16, 3, 5, 5], [16, 3, 3, 3]));
    // Two images of a group, and two outputs.
    assert!(!taken(&of_batches(16), [32, 3, 5, 5], [16, 3, 3, 3]));
    assert!(!taken(&of_batches(16), [16, 3, 5, 5], [32, 3, 3, 3]));
    assert!(!taken(&forward(1), [2, 1, 5, 5], [1, 1, 3, 3]));
}

#[test]
fn depthwise_convolutions_of_sounds_and_wide_images_agree_with_the_evaluator() {
    let last = |rank: usize| {
        let dims: Vec<usize> = [0, rank + 1].into_iter().chain(1..=rank).collect();
        Conv { lhs_dims: order(&dims), out_dims: order(&dims), ..of_rank(rank, DType::F32) }
    };
    let check = |op: &Conv, image: &[usize], weights: &[usize]| {
        let ins = [Aval::new(DType::F32, image.to_vec()), Aval::new(DType::F32, weights.to_vec())];
        let (out, layouts) =
            (op.infer(&ins).expect("they fit").remove(0), [Layout::from(&ins[0]), Layout::from(&ins[1])]);
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        assert!(Depthwise::<f32>::applies(depthwise::SIZES, op, operands, &out), "{image:?}");
        agree(op, &plain(DType::F32, image, 1), &plain(DType::F32, weights, 2));
    };
    // Longer than the memory of a task.
    let sound = Conv { feature_group_count: 40, padding: vec![(3, 0)], ..last(1) };
    check(&sound, &[1, 9000, 40], &[40, 1, 4]);
    check(&Conv { strides: [2].as_slice().into(), ..sound.clone() }, &[2, 3000, 40], &[40, 1, 4]);
    check(&Conv { feature_group_count: 64, ..last(2) }, &[1, 5, 1300, 64], &[64, 1, 3, 3]);
    // An element of the image for each of so many positions that strides wrap.
    let huge =
        Conv { lhs_dilation: [1 << 62].as_slice().into(), padding: vec![(63, 63)], feature_group_count: 64, ..last(1) };
    agree(&huge, &plain(DType::F32, &[1, 1, 64], 1), &plain(DType::F32, &[64, 1, 64], 2));
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them_in_depthwise_convolutions() {
    let special = |shape: &[usize], seed| {
        filled(DType::F32, shape, seed, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(900)).copied();
            Literal::from_f64(DType::F32, x.unwrap_or(1.0))
        })
    };
    for (groups, batches, image, weights) in
        [(24, 1, [2, 24, 9, 9], [24, 1, 3, 3]), (1, 24, [24, 3, 9, 9], [24, 3, 7, 7])]
    {
        let padding = vec![(1, 1); 2];
        let op = Conv { feature_group_count: groups, batch_group_count: batches, padding, ..of_rank(2, DType::F32) };
        agree(&op, &special(&image, 1), &plain(DType::F32, &weights, 2));
        agree(&op, &plain(DType::F32, &image, 1), &special(&weights, 2));
    }
}

/// Forward, the gradient of the image and that of the weights, of the sizes of networks, in every layout and dtype.
#[test]
fn depthwise_convolutions_of_networks_agree_with_the_evaluator() {
    let mut stream = Stream::new(19);
    for (dtype, out) in [
        (DType::F32, DType::F32),
        (DType::Bf16, DType::Bf16),
        (DType::F16, DType::F16),
        (DType::Bf16, DType::F32),
        (DType::F64, DType::F64),
    ] {
        for ([images, size, channels], window, stride) in
            [([2, 23, 33], 3, 1), ([1, 24, 96], 3, 2), ([3, 7, 130], 7, 1), ([2, 14, 24], 5, 2)]
        {
            let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
            // Channels last, with the weights of frameworks, and first.
            for [dims, rhs_dims] in
                [[[0, 3, 1, 2], [3, 2, 0, 1]], [[0, 3, 1, 2], [0, 1, 2, 3]], [[0, 1, 2, 3], [0, 1, 2, 3]]]
            {
                let [dims, rhs_dims] = [order(&dims), order(&rhs_dims)];
                let pad = (window / 2) as i64;
                let forward = Conv {
                    strides: Shape::from_elem(stride, 2),
                    padding: vec![(pad, pad); 2],
                    lhs_dims: dims.clone(),
                    rhs_dims: rhs_dims.clone(),
                    out_dims: dims.clone(),
                    feature_group_count: channels,
                    ..of_rank(2, out)
                };
                let mut of_weights = [0; 4];
                (of_weights[rhs_dims.first], of_weights[rhs_dims.second]) = (channels, 1);
                rhs_dims.spatial.iter().for_each(|&d| of_weights[d] = window);
                let down = (size - 1) / stride + 1;
                // What the stride leaves over at the end.
                let over = (size - 1) as i64 - ((down - 1) * stride) as i64;
                let low = window as i64 - 1 - pad;
                let gradient = Conv {
                    strides: Shape::from_elem(1, 2),
                    padding: vec![(low, low + over); 2],
                    lhs_dilation: Shape::from_elem(stride, 2),
                    ..forward.clone()
                };
                let of_kernel = Conv {
                    strides: Shape::from_elem(1, 2),
                    padding: vec![(pad, pad - over); 2],
                    rhs_dilation: Shape::from_elem(stride, 2),
                    lhs_dims: swapped(&dims),
                    rhs_dims: swapped(&dims),
                    out_dims: swapped(&rhs_dims),
                    feature_group_count: 1,
                    batch_group_count: channels,
                    ..forward.clone()
                };
                let shape = |size: usize| {
                    let mut shape = [images; 4];
                    shape[dims.second] = channels;
                    dims.spatial.iter().for_each(|&d| shape[d] = size);
                    shape
                };
                let (image, small) = (shape(size), shape(down));
                for (op, ins) in
                    [(forward, [image, of_weights]), (gradient, [small, of_weights]), (of_kernel, [image, small])]
                {
                    let ins = ins.map(|shape| Aval::new(dtype, shape));
                    let outs = op.infer(&ins).expect("they fit");
                    let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
                    let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
                    let is_taken = match dtype {
                        DType::F64 => Depthwise::<f64>::applies(depthwise::SIZES, &op, operands, &outs[0]),
                        _ => Depthwise::<f32>::applies(depthwise::SIZES, &op, operands, &outs[0]),
                    };
                    assert!(is_taken, "{op:?} of {ins:?}");
                    agree_within(100.0, &op, &plain(dtype, &ins[0].shape, 1), &plain(dtype, &ins[1].shape, 2));
                    check_views_of(&op, ins, &mut stream);
                }
            }
        }
    }
}

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

/// Axes of a matrix, as sizes and strides.
type Axes = &'static [(usize, isize)];

/// Panels are copied from row to row, transposed from where they lie, or gathered: they cross from image to image, begin inside of one, or
/// have columns of zeros at the end.
#[test]
fn panels_have_the_elements_of_their_columns() {
    let numbers: Vec<f32> = (0..40_000).map(|i| i as f32 + 1.0).collect();
    let offset = |axes: Axes, mut i: usize| {
        let along = axes.iter().rev().map(|&(size, stride)| {
            let at = (i % size) as isize * stride;
            i /= size;
            at
        });
        along.sum::<isize>()
    };
    let cases: [[Axes; 2]; 6] = [
        [&[(3, 4000), (37, 1)], &[(45, 60)]],
        [&[(3, 4000), (37, 1)], &[(5, 700), (9, 40)]],
        [&[(111, 1)], &[(9, -120)]],
        [&[(50, -90)], &[(4, 5000), (20, 1)]],
        [&[(3, 0)], &[(4, 5000), (20, 1)]],
        [&[(2, 9000), (25, 90)], &[(40, 1)]],
    ];
    for [free, contracted] in cases {
        let axes = [free, contracted].map(|axes| axes.iter().map(|&(size, stride)| Axis { size, stride, along: None }));
        let matrix = Im2col::new(20_000, &[], axes);
        let operand = matrix.of(Elements::Numbers(&numbers), 3);
        let [n, k] = [free, contracted].map(|axes| axes.iter().map(|axis| axis.0).product::<usize>());
        let parts = [(0..n, 0..k), (1..n, 7..k - 1), (n - 1..n, 0..k), (0..n, 5..6), (0..n, 3..3), (2..2, 0..k)];
        for ((columns, depth), width) in parts.iter().flat_map(|part| [4, 12, 16, 32, 48].map(|width| (part, width))) {
            let len = columns.len().div_ceil(width) * width * depth.len();
            let mut to = vec![-7.0; len + 5];
            operand.pack(depth.clone(), columns.clone(), width, &mut to);
            assert!(to[len..].iter().all(|&x| x == -7.0));
            for (at, &x) in to[..len].iter().enumerate() {
                let (panel, j, i) = (at / (width * depth.len()), at / width % depth.len(), at % width);
                let column = columns.start + panel * width + i;
                let expected = match columns.contains(&column) {
                    true => numbers[(20_003 + offset(free, column) + offset(contracted, depth.start + j)) as usize],
                    false => 0.0,
                };
                assert_eq!(x, expected, "{free:?} {contracted:?} {columns:?} {depth:?} {width}: {at}");
            }
        }
    }
}

#[test]
fn matrices_are_read_in_place_where_nothing_is_reversed() {
    let is_in_place = |strides: [isize; 2]| {
        let axes = strides.map(|stride| [Axis { size: 8, stride, along: None }]);
        Im2col::new(64, &[], axes).is_in_place()
    };
    for strides in [[8, 1], [0, 1], [8, 0], [1, 1]] {
        assert!(is_in_place(strides), "{strides:?}");
    }
    for strides in [[8, -1], [-8, 1], [-8, -1], [1, 8]] {
        assert!(!is_in_place(strides), "{strides:?}");
    }
}

/// Copies `count` segments of `len` neighbours, for every length, between slices with gaps, and compares each.
fn segments_are_copied<N: Copy + Default + PartialEq + std::fmt::Debug>(numbers: &[N]) {
    for (along, to_along) in [(1, 1), (-1, 1), (2, 1), (3, 1), (1, 2), (2, 3)] {
        for (count, len) in (1..70).flat_map(|len| [(1, len), (3, len)]) {
            let (from_stride, to_stride) = ([250, along], [230, to_along]);
            let inside = if len > 3 { 1..len - 2 } else { 0..len };
            let segments = RowSegments {
                at: 90,
                strides: from_stride,
                count,
                len,
                to: 7,
                to_strides: to_stride,
                segments: usize::from(count > 1)..count,
                inside: inside.clone(),
                shared: None,
            };
            let mut to = vec![numbers[1]; 800];
            copy_segments(&numbers, &segments, &mut to);
            let mut expected = vec![numbers[1]; 800];
            for (i, j) in (0..count).flat_map(|i| (0..len).map(move |j| (i, j))) {
                let at = 90 + i as isize * from_stride[0] + j as isize * from_stride[1];
                let is_inside = segments.segments.contains(&i) && inside.contains(&j);
                let x = if is_inside { numbers[at as usize] } else { N::default() };
                expected[7 + i * to_stride[0] + j * to_stride[1]] = x;
            }
            assert_eq!(to, expected, "{count} of {len}, {along} apart to {to_along}");
        }
    }
}

#[test]
fn segments_of_every_length_are_copied() {
    segments_are_copied(&(0..800).map(|i| i as f32 + 1.0).collect::<Vec<_>>());
    segments_are_copied(&(0..800).map(|i| f64::from(i) + 1.0).collect::<Vec<_>>());
    segments_are_copied(&(1..801).collect::<Vec<u16>>());
    segments_are_copied(&(0..800).map(|i| (i % 251) as u8 + 1).collect::<Vec<_>>());
}
