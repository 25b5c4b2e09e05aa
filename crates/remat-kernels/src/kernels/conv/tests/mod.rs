//! Tests of convolutions against the evaluator.

mod depthwise;
mod im2col;
mod long_windows;

use remat_ir::{Array, Aval, ConvDims, ConvertElementType, DType, Literal, Op, Operation, Prim, Shape, eval_op};

use super::direct::{self, Direct};
use super::*;
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
