//! Tests of convolutions of pairs on each unit, against the evaluator.

use remat_ir::{Array, ConvDims, Literal, Op, Operation};

use super::super::tests::{of_rank, order, random};
use super::*;
use crate::base::narrow::Kind;
use crate::test_support::{
    Stream, assert_close, assert_same, check_by, check_views, elements, filled, plain, rough, run, threads,
};

/// The kernel of row-major operands, if this method applies.
fn kernel(sizes: Sizes, unit: Unit, op: &Conv, ins: &[Aval; 2], out: &Aval) -> Option<PairsKernel> {
    let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
    PairsKernel::new(sizes, unit, op, [(DType::Bf16, &layouts[0]), (DType::Bf16, &layouts[1])], out)
}

/// Compares a convolution of these operands with the evaluator on each unit to which this method applies. Returns whether there is one.
fn agree(op: &Conv, arrays: &[Array; 2], stream: &mut Stream) -> bool {
    let ins = arrays.clone().map(|array| array.aval().clone());
    let Ok(outs) = op.infer(&ins) else { return false };
    let tolerance = if op.preferred_element_type == DType::Bf16 { 1e-2 } else { 1e-4 };
    let mut is_taken = false;
    for unit in Unit::all(Kind::Bf16) {
        if kernel(SMALL, unit, op, &ins, &outs[0]).is_none() {
            continue;
        }
        is_taken = true;
        let build = |ins: [(DType, &Layout); 2]| -> Box<dyn Kernel> {
            Box::new(PairsKernel::new(SMALL, unit, op, ins, &outs[0]).expect("whatever the layout is"))
        };
        let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        let row_major = |_: &[Aval], _: &[Aval]| build([(DType::Bf16, &layouts[0]), (DType::Bf16, &layouts[1])]);
        let prim = Op::from(op.clone());
        check_by(&prim, row_major, arrays, |got, expected, what| assert_close(got, expected, tolerance, 1.0, what));
        check_views(&prim, &ins, |ins: &[(DType, &Layout)], _: &[Aval]| build([ins[0], ins[1]]), stream);
    }
    is_taken
}

/// The operands, with small random numbers.
fn operands(image: &[usize], weights: &[usize]) -> [Array; 2] {
    [plain(DType::Bf16, image, 1), plain(DType::Bf16, weights, 2)]
}

#[test]
fn convolutions_of_any_kind_agree_with_the_evaluator() {
    let mut stream = Stream::new(41);
    let mut taken = 0;
    for i in 0..250 {
        let (mut op, mut image, mut weights) = random(&mut stream, [DType::Bf16, DType::F32][i % 2]);
        let rank = op.strides.len();
        if stream.below(2) == 0 {
            op.lhs_dilation = Shape::from_elem(1, rank);
        }
        // Positions are neighbours in the output, or features.
        let (first, [batch, feature]) =
            [(2, [0, 1]), (2, [1, 0]), (1, [0, rank + 1]), (0, [rank, rank + 1])][stream.below(4)];
        op.out_dims = ConvDims { first: batch, second: feature, spatial: (first..first + rank).collect() };
        // All groups are groups of features.
        let groups = op.feature_group_count.max(op.batch_group_count);
        (op.feature_group_count, op.batch_group_count) = (groups, 1);
        image[op.lhs_dims.second] = groups * weights[op.rhs_dims.second];
        if let Some(&last) = op.lhs_dims.spatial.last() {
            image[last] = 1 + stream.below(40);
        }
        weights[op.rhs_dims.first] = groups * (1 + stream.below(70));
        taken += usize::from(agree(&op, &operands(&image, &weights), &mut stream));
    }
    assert!(taken > 40, "{taken}");
}

fn swapped(dims: &ConvDims) -> ConvDims {
    ConvDims { first: dims.second, second: dims.first, spatial: dims.spatial.clone() }
}

/// Convolutions of networks, forward and both gradients, with images of many sizes.
#[test]
fn layers_and_their_gradients_agree_with_the_evaluator() {
    let mut stream = Stream::new(42);
    for (images, features, size, window, stride) in [
        (2, [6, 40], [9, 28], 3, 1),
        (3, [5, 33], [7, 7], 3, 1),
        (1, [8, 16], [14, 14], 3, 2),
        (2, [3, 20], [20, 20], 7, 2),
    ] {
        let both = |x: usize| Shape::from_elem(x, 2);
        let pad = (window / 2) as i64;
        let out = size.map(|n: usize| n.div_ceil(stride));
        let dims = order(&[0, 1, 2, 3]);
        let forward = Conv { strides: both(stride), padding: vec![(pad, pad); 2], ..of_rank(2, DType::Bf16) };
        let [x, w] = [vec![images, features[0], size[0], size[1]], vec![features[1], features[0], window, window]];
        let y = vec![images, features[1], out[0], out[1]];
        assert!(agree(&forward, &operands(&x, &w), &mut stream));
        let dilated = out.map(|n| ((n - 1) * stride + 1) as i64);
        let low = window as i64 - 1 - pad;
        let of_image = Conv {
            strides: both(1),
            lhs_dilation: both(stride),
            padding: (0..2).map(|d| (low, size[d] as i64 + window as i64 - 1 - dilated[d] - low)).collect(),
            rhs_dims: swapped(&dims),
            ..forward.clone()
        };
        assert!(agree(&of_image, &operands(&y, &w), &mut stream));
        let padding = (0..2).map(|d| (pad, dilated[d] - size[d] as i64 + window as i64 - 1 - pad));
        let of_weights = Conv {
            strides: both(1),
            rhs_dilation: both(stride),
            padding: padding.collect(),
            lhs_dims: swapped(&dims),
            rhs_dims: swapped(&dims),
            out_dims: swapped(&dims),
            ..forward
        };
        assert!(agree(&of_weights, &operands(&x, &y), &mut stream));
    }
}

/// Weights that are a view with one address for several elements of the window, as the cotangent of a mean over positions is.
#[test]
fn broadcast_windows_agree_with_row_major_ones() {
    let mut stream = Stream::new(44);
    for (features, window) in [(16, [5, 5]), (17, [9, 20]), (40, [3, 7]), (17, [1, 30])] {
        let op = Conv { padding: vec![(4, 4), (14, 14)], ..of_rank(2, DType::Bf16) };
        let (x, w) = ([1, 3, 6, 12], [features, 3, window[0], window[1]]);
        let ins = [Aval::new(DType::Bf16, x), Aval::new(DType::Bf16, w)];
        let outs = op.infer(&ins).expect("they fit");
        let image = plain(DType::Bf16, &x, 1);
        let mut rough = |shape: &[usize]| rough(DType::Bf16, shape, &mut stream);
        let weights = [
            (rough(&[]), Layout::splat(&w)),
            (rough(&w[..2]), Layout::contiguous(&w[..2]).broadcast(&w, &[0, 1])),
            (rough(&[w[0], w[1], w[3]]), Layout::contiguous(&[w[0], w[1], w[3]]).broadcast(&w, &[0, 1, 3])),
            (rough(&w[..3]), Layout::contiguous(&w[..3]).broadcast(&w, &[0, 1, 2])),
        ];
        let row_major = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        for unit in Unit::all(Kind::Bf16).into_iter().filter(|unit| unit.reads_at_offsets()) {
            let made = |weights: &Layout| {
                let ins = [(DType::Bf16, &row_major[0]), (DType::Bf16, weights)];
                PairsKernel::new(SMALL, unit, &op, ins, &outs[0]).expect("it is taken")
            };
            for (buffer, layout) in &weights {
                let copy = elements(buffer, layout);
                let expected = run(&made(&row_major[1]), &[image.clone(), copy], &outs, None, &threads(1));
                let got = run(&made(layout), &[image.clone(), buffer.clone()], &outs, None, &threads(3));
                assert_same(&got[0], &expected[0], &format!("{features} features, {window:?}, {layout:?}"));
            }
        }
    }
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them() {
    let mut stream = Stream::new(43);
    let special = |shape: &[usize], seed| {
        filled(DType::Bf16, shape, seed, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(90)).copied();
            Literal::from_f64(DType::Bf16, x.unwrap_or(1.0))
        })
    };
    let padded = Conv { padding: vec![(1, 1); 2], ..of_rank(2, DType::F32) };
    let strided = Conv { strides: Shape::from_elem(2, 2), ..padded.clone() };
    for op in [padded, strided] {
        for (image, weights) in [([2, 3, 8, 7], [20, 3, 3, 3]), ([1, 4, 5, 17], [33, 4, 2, 3])] {
            assert!(agree(&op, &[special(&image, 1), plain(DType::Bf16, &weights, 2)], &mut stream));
            assert!(agree(&op, &[plain(DType::Bf16, &image, 1), special(&weights, 2)], &mut stream));
        }
    }
}

/// Steps that cut the window and features, tasks that cut rows of positions and images, and panels that several tasks share.
#[test]
fn small_sizes_cut_everything() {
    let made = |image: [usize; 4], weights: [usize; 4], pad: i64| {
        let op = Conv { padding: vec![(pad, pad); 2], ..of_rank(2, DType::Bf16) };
        let ins = [Aval::new(DType::Bf16, image), Aval::new(DType::Bf16, weights)];
        let out = op.infer(&ins).expect("they fit").remove(0);
        let unit = *Unit::all(Kind::Bf16).last().expect("plain functions");
        kernel(SMALL, unit, &op, &ins, &out).expect("it is taken").phases.remove(0)
    };
    let steps = |phase: &Phase| phase.steps().map(|[features, rows]| [features.len(), rows.len()]).collect::<Vec<_>>();
    let rows = made([1, 5, 40, 30], [40, 5, 3, 3], 1);
    assert!(rows.positions < rows.rows.positions && rows.block == 1, "{} rows", rows.positions);
    assert_eq!(steps(&rows), [[2, 3], [2, 3], [1, 3]]);
    let long = made([40, 5, 9, 9], [40, 5, 8, 8], 1);
    assert_eq!(steps(&long), [[2, 1]; 8].into_iter().chain([[2, 1]; 8]).chain([[1, 1]; 8]).collect::<Vec<_>>());
    assert!(long.block > 1);
}

/// Layers of networks use this method where the unit has no tiles; convolutions with few features or short tiles do not.
#[test]
fn windows_of_several_elements_and_many_features_are_read_where_they_lie() {
    let taken_by = |op: Conv, image: [usize; 4], weights: [usize; 4]| {
        let ins = [Aval::new(DType::Bf16, image), Aval::new(DType::Bf16, weights)];
        let out = op.infer(&ins).expect("they fit").remove(0);
        let unit = *Unit::all(Kind::Bf16).last().expect("plain functions");
        kernel(SIZES, unit, &op, &ins, &out).is_some()
    };
    let padded = Conv { padding: vec![(1, 1); 2], ..of_rank(2, DType::Bf16) };
    let taken = |image, weights| taken_by(padded.clone(), image, weights);
    let taken_last = |image, weights, stride| {
        let strides = Shape::from_elem(stride, 2);
        taken_by(Conv { strides, out_dims: order(&[0, 3, 1, 2]), ..padded.clone() }, image, weights)
    };
    assert!(taken([8, 64, 56, 56], [64, 64, 3, 3]));
    assert!(taken([8, 512, 7, 7], [512, 512, 3, 3]));
    assert!(taken([64, 8, 56, 56], [64, 8, 56, 56]));
    // With channels last, only where elements are read often, for many positions.
    assert!(taken_last([8, 64, 56, 56], [64, 64, 3, 3], 1) && taken_last([8, 3, 224, 224], [64, 3, 7, 7], 2));
    assert!(!taken_last([8, 128, 56, 56], [128, 128, 3, 3], 2) && !taken_last([8, 512, 7, 7], [512, 512, 3, 3], 1));
    for (image, weights) in
        [([8, 64, 56, 56], [8, 64, 3, 3]), ([8, 64, 4, 4], [64, 64, 6, 6]), ([1, 4, 8, 8], [32, 4, 3, 3])]
    {
        assert!(!taken(image, weights), "{image:?} {weights:?}");
    }
}
