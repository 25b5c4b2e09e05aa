//! Tests of convolutions on each unit, against the evaluator.

use remat_ir::{Array, ConvDims, Op, Operation};

use super::super::ConvKernel;
use super::super::tests::{of_rank, order, random};
use super::*;
use crate::kernels::matmul::narrow::SMALL;
use crate::test_support::{Stream, assert_close, check_by, check_views, plain, wild};

/// Compares a convolution on each unit, with small blocks, with the evaluator.
fn agree(op: &Conv, dtype: DType, shapes: [&[usize]; 2], stream: &mut Stream) {
    agree_in(|_| SMALL, op, dtype, shapes, stream);
}

/// The same, cut into blocks of these sizes.
fn agree_in(sizes: impl Fn(Kind) -> Sizes, op: &Conv, dtype: DType, shapes: [&[usize]; 2], stream: &mut Stream) {
    let ins = [0, 1].map(|i| Aval::new(dtype, shapes[i].iter().copied()));
    let Ok(outs) = op.infer(&ins) else { return };
    let kinds = kinds([dtype; 2], outs[0].dtype);
    assert!(!kinds.is_empty(), "narrow elements");
    let array = |i: usize| {
        if dtype.is_float() { plain(dtype, shapes[i], 1 + i as u64) } else { wild(dtype, shapes[i], 1 + i as u64) }
    };
    let (arrays, prim): ([Array; 2], _) = ([array(0), array(1)], Op::from(op.clone()));
    let tolerance = match outs[0].dtype {
        DType::Bf16 => 1e-2,
        DType::F16 => 2e-3,
        DType::F32 => 1e-4,
        _ => 0.0,
    };
    for (kind, unit) in kinds.iter().flat_map(|&kind| Unit::all(kind).into_iter().map(move |unit| (kind, unit))) {
        let build = |ins: [(DType, &Layout); 2]| -> Box<dyn crate::interface::Kernel> {
            let narrow = Narrow::on(unit, sizes(kind), kind, outs[0].dtype);
            Box::new(ConvKernel::new(narrow, op, ins, &outs[0]))
        };
        let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        let row_major = |_: &[Aval], _: &[Aval]| build([(dtype, &layouts[0]), (dtype, &layouts[1])]);
        check_by(&prim, row_major, &arrays, |got, expected, what| assert_close(got, expected, tolerance, 1.0, what));
        check_views(&prim, &ins, |ins: &[(DType, &Layout)], _: &[Aval]| build([ins[0], ins[1]]), stream);
    }
}

/// The dtypes of operands and results.
const DTYPES: [(DType, DType); 7] = [
    (DType::Bf16, DType::Bf16),
    (DType::Bf16, DType::F32),
    (DType::I8, DType::I32),
    (DType::U8, DType::U8),
    (DType::I8, DType::I16),
    (DType::F16, DType::F16),
    (DType::F16, DType::F32),
];

#[test]
fn convolutions_of_any_kind_agree_with_the_evaluator() {
    let mut stream = Stream::new(21);
    for i in 0..150 {
        let (from, to) = DTYPES[i % DTYPES.len()];
        let (op, image, weights) = random(&mut stream, to);
        agree(&op, from, [&image, &weights], &mut stream);
    }
}

#[test]
fn convolutions_that_are_cut_agree_with_the_evaluator() {
    let mut stream = Stream::new(22);
    for (from, to) in [DTYPES[0], DTYPES[2], DTYPES[6]] {
        // Features or space first, forward, and as the gradients of the image and of the weights.
        for [image, weights] in [[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 3, 1, 2], [3, 2, 0, 1]]] {
            let placed = |dims: [usize; 4], sizes: [usize; 4]| {
                let mut shape = [0; 4];
                dims.iter().zip(sizes).for_each(|(&d, size)| shape[d] = size);
                shape
            };
            let [x, w] = [placed(image, [2, 20, 9, 10]), placed(weights, [40, 20, 3, 3])];
            let [y, large] = [placed(image, [2, 40, 9, 10]), placed(image, [2, 20, 17, 18])];
            let (lhs_dims, rhs_dims, out_dims) = (order(&image), order(&weights), order(&image));
            let forward = Conv { padding: vec![(1, 1); 2], lhs_dims, rhs_dims, out_dims, ..of_rank(2, to) };
            agree(&forward, from, [&x, &w], &mut stream);
            agree(&Conv { strides: [2, 2].as_slice().into(), ..forward.clone() }, from, [&large, &w], &mut stream);
            agree(&Conv { lhs_dilation: [2, 2].as_slice().into(), ..forward.clone() }, from, [&x, &w], &mut stream);
            let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
            let of_image = Conv { rhs_dims: swapped(&forward.rhs_dims), ..forward.clone() };
            agree(&of_image, from, [&y, &w], &mut stream);
            let of_weights = Conv {
                lhs_dims: swapped(&forward.lhs_dims),
                rhs_dims: swapped(&forward.out_dims),
                out_dims: swapped(&forward.rhs_dims),
                ..forward
            };
            agree(&of_weights, from, [&x, &y], &mut stream);
        }
    }
}

/// Windows of one element, whose matrix has strides; groups, whose weights are packed by each block or once before all; and windows of many
/// elements.
#[test]
fn windows_with_strides_and_long_ones_agree_with_the_evaluator() {
    let mut stream = Stream::new(23);
    for (from, to) in [DTYPES[0], DTYPES[3], DTYPES[5]] {
        let op = of_rank(2, to);
        agree(&op, from, [&[2, 40, 9, 16], &[33, 40, 1, 1]], &mut stream);
        let groups = Conv { feature_group_count: 3, ..op.clone() };
        for image in [[2, 30, 9, 12], [2, 30, 14, 16], [2, 30, 18, 20]] {
            agree(&groups, from, [&image, &[27, 10, 3, 1]], &mut stream);
        }
        let long = Conv { padding: vec![(2, 0), (0, 1)], ..op };
        agree(&long, from, [&[1, 70, 12, 12], &[10, 70, 3, 4]], &mut stream);
        // Few features, of an image and of its gradient.
        agree(&long, from, [&[2, 20, 12, 12], &[3, 20, 3, 4]], &mut stream);
        let dilated = Conv { lhs_dilation: [2, 2][..].into(), padding: vec![(2, 1), (1, 2)], ..of_rank(2, to) };
        agree(&dilated, from, [&[2, 20, 9, 9], &[1, 20, 3, 3]], &mut stream);
    }
}

/// Blocks of more rows and positions than are gathered at a time.
#[test]
fn windows_that_are_gathered_in_pieces_agree_with_the_evaluator() {
    let mut stream = Stream::new(29);
    for (from, to) in [DTYPES[0], DTYPES[3], DTYPES[5]] {
        let padded = Conv { padding: vec![(1, 1); 2], ..of_rank(2, to) };
        agree_in(Sizes::of, &padded, from, [&[1, 70, 12, 12], &[160, 70, 3, 3]], &mut stream);
        agree_in(Sizes::of, &padded, from, [&[1, 70, 18, 18], &[160, 70, 3, 3]], &mut stream);
    }
}

/// Convolutions of the tests above through the choice of kernels, and one with so few positions that blocks pack what they need.
#[test]
fn weights_of_many_positions_are_packed_before_all_blocks() {
    let op = of_rank(2, DType::Bf16);
    let padded = Conv { padding: vec![(1, 1); 2], ..op.clone() };
    let groups = Conv { feature_group_count: 3, ..op };
    for (op, image, weights, is_packed) in [
        (&groups, [2, 30, 9, 12], [27, 10, 3, 1], false),
        (&groups, [2, 30, 14, 16], [27, 10, 3, 1], true),
        (&groups, [2, 30, 18, 20], [27, 10, 3, 1], true),
        (&padded, [1, 70, 12, 12], [160, 70, 3, 3], false),
        (&padded, [1, 70, 18, 18], [160, 70, 3, 3], true),
    ] {
        let ins = [Aval::new(DType::Bf16, image), Aval::new(DType::Bf16, weights)];
        let out = &op.infer(&ins).expect("they fit")[0];
        let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        for unit in Unit::all(Kind::Bf16) {
            let narrow = Narrow::on(unit, Sizes::of(Kind::Bf16), Kind::Bf16, out.dtype);
            let operands = [(DType::Bf16, &layouts[0]), (DType::Bf16, &layouts[1])];
            let kernel = ConvKernel::new(narrow, op, operands, out);
            let before = kernel.phases[0].blocking.blocking.before();
            assert_eq!(before.is_some(), is_packed && !unit.is_matrix_unit(), "{image:?} {weights:?}");
        }
    }
}

#[test]
fn what_has_few_features_in_groups_or_few_positions_is_widened() {
    for unit in Unit::all(Kind::Bf16) {
        is_widened_with(unit);
    }
}

fn is_widened_with(unit: Unit) {
    let taken = |image: [usize; 4], weights: [usize; 4], groups: usize| {
        let op = Conv { feature_group_count: groups, ..of_rank(2, DType::Bf16) };
        let ins = [Aval::new(DType::Bf16, image), Aval::new(DType::Bf16, weights)];
        let out = &op.infer(&ins).expect("they fit")[0];
        let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        let ins = [(DType::Bf16, &layouts[0]), (DType::Bf16, &layouts[1])];
        assert!(Narrow::of(|_| None, &op, ins, out).is_none());
        Narrow::of(|_| Some((Kind::Bf16, unit)), &op, ins, out).is_some()
    };
    assert!(taken([2, 16, 20, 20], [16, 16, 3, 3], 1));
    assert!(taken([2, 32, 20, 20], [32, 16, 3, 3], 2));
    assert_eq!(taken([2, 16, 20, 20], [1, 16, 3, 3], 1), unit.is_matrix_unit());
    for (image, weights, groups) in [
        ([2, 16, 20, 20], [16, 1, 3, 3], 16),
        ([2, 64, 20, 20], [16, 16, 3, 3], 4),
        ([2, 8, 20, 20], [64, 8, 1, 1], 1),
        ([1, 512, 3, 4], [64, 512, 3, 3], 1),
        ([0, 16, 20, 20], [16, 16, 3, 3], 1),
        ([2, 16, 20, 20], [0, 16, 3, 3], 1),
        ([2, 16, 4, 4], [8, 16, 3, 3], 1),
    ] {
        assert!(!taken(image, weights, groups), "{image:?} {weights:?}");
    }
}
