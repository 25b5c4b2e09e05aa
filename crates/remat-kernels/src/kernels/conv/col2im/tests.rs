//! Tests of convolutions with few output features, against the evaluator.

use remat_ir::{Array, ConvDims, Literal, Op, Operation, Shape};

use super::super::kernel;
use super::super::tests::{of_rank, order, random};
use super::*;
use crate::base::narrow::{Kind, Unit};
use crate::test_support::{Stream, assert_close, check_by, check_views, filled, plain};

/// A kernel of this method with these sizes, widened or on a matrix unit.
fn made(
    sizes: Sizes,
    unit: Option<Unit>,
    op: &Conv,
    ins: [(DType, &Layout); 2],
    out: &Aval,
) -> Option<Box<dyn Kernel>> {
    let dtypes = ins.map(|(dtype, _)| dtype);
    Some(match (unit, out.dtype) {
        (Some(unit), _) => Box::new(Col2im::new(sizes, Pairs::on(unit), op, ins, out)?),
        (None, DType::F64) => Box::new(Col2im::new(sizes, Numbers::<f64>::new(dtypes), op, ins, out)?),
        (None, _) => Box::new(Col2im::new(sizes, Numbers::<f32>::new(dtypes), op, ins, out)?),
    })
}

/// Compares a convolution with the evaluator, widened and, for bf16, on each matrix unit. Returns whether this method applies.
fn agree(op: &Conv, arrays: &[Array; 2], stream: &mut Stream) -> bool {
    let ins = [arrays[0].aval().clone(), arrays[1].aval().clone()];
    let Ok(outs) = op.infer(&ins) else { return false };
    let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
    let dtype = ins[0].dtype;
    let is_of_pairs = dtype == DType::Bf16 && matches!(outs[0].dtype, DType::Bf16 | DType::F32);
    let units = if is_of_pairs { Unit::all(Kind::Bf16) } else { Vec::new() };
    let mut is_taken = false;
    for unit in units.into_iter().map(Some).chain([None]) {
        let build = |ins: [(DType, &Layout); 2]| made(SMALL, unit, op, ins, &outs[0]);
        if build([(dtype, &layouts[0]), (dtype, &layouts[1])]).is_none() {
            continue;
        }
        is_taken = true;
        let prim = Op::from(op.clone());
        let row_major =
            |_: &[Aval], _: &[Aval]| build([(dtype, &layouts[0]), (dtype, &layouts[1])]).expect("as before");
        let of_views = |ins: &[(DType, &Layout)], _: &[Aval]| build([ins[0], ins[1]]).expect("whatever the layout is");
        check_by(&prim, row_major, arrays, |got, expected, what| {
            assert_close(got, expected, tolerance(outs[0].dtype), 1.0, what);
        });
        check_views(&prim, &ins, of_views, stream);
    }
    is_taken
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-4,
        DType::F16 => 2e-3,
        _ => 1e-2,
    }
}

const DTYPES: [(DType, DType); 5] = [
    (DType::F32, DType::F32),
    (DType::Bf16, DType::Bf16),
    (DType::F64, DType::F64),
    (DType::F16, DType::F16),
    (DType::Bf16, DType::F32),
];

/// Windows larger than images, results that no element reaches, groups, dilations, and negative padding, in any order of dimensions.
#[test]
fn convolutions_of_any_kind_agree_with_the_evaluator() {
    let mut stream = Stream::new(41);
    let mut taken = 0;
    for i in 0..600 {
        let (from, to) = DTYPES[i % DTYPES.len()];
        let (mut op, mut image, weights) = random(&mut stream, to);
        let rank = op.strides.len();
        op.strides = Shape::from_elem(1, rank);
        let groups = op.feature_group_count.max(op.batch_group_count);
        (op.feature_group_count, op.batch_group_count) = (groups, 1);
        image[op.lhs_dims.second] = groups * weights[op.rhs_dims.second];
        taken += usize::from(agree(&op, &[plain(from, &image, 1), plain(from, &weights, 2)], &mut stream));
    }
    assert!(taken > 100, "{taken}");
}

/// The gradient of the image of a convolution, and the shapes of its operands.
fn gradient(to: DType, features_last: bool, [n, c, k, size, window, stride]: [usize; 6]) -> (Conv, [[usize; 4]; 2]) {
    let [image, weights] = if features_last { [[0, 3, 1, 2], [3, 2, 0, 1]] } else { [[0, 1, 2, 3]; 2] };
    let placed = |dims: [usize; 4], sizes: [usize; 4]| {
        let mut shape = [0; 4];
        dims.iter().zip(sizes).for_each(|(&d, size)| shape[d] = size);
        shape
    };
    let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
    let out = size.div_ceil(stride);
    let low = (window - 1 - window / 2) as i64;
    let high = (size + window - 1) as i64 - ((out - 1) * stride + 1) as i64 - low;
    let op = Conv {
        lhs_dilation: Shape::from_elem(stride, 2),
        padding: vec![(low, high); 2],
        lhs_dims: order(&image),
        rhs_dims: swapped(&order(&weights)),
        out_dims: order(&image),
        ..of_rank(2, to)
    };
    (op, [placed(image, [n, k, out, out]), placed(weights, [k, c, window, window])])
}

/// Several rows in a step and parts of rows, long windows, several panels of products and of the features that are summed.
#[test]
fn gradients_of_images_of_few_channels_agree_with_the_evaluator() {
    let mut stream = Stream::new(42);
    for (sizes, (from, to)) in [
        ([2, 3, 40, 21, 7, 2], DTYPES[0]),
        ([2, 3, 40, 21, 7, 2], DTYPES[1]),
        ([1, 5, 33, 17, 3, 1], DTYPES[1]),
        ([1, 1, 20, 20, 18, 1], DTYPES[0]),
        ([1, 4, 300, 8, 4, 4], DTYPES[0]),
        ([1, 4, 600, 8, 4, 4], DTYPES[1]),
        ([1, 2, 20, 19, 2, 3], DTYPES[2]),
        ([1, 2, 20, 19, 3, 2], DTYPES[3]),
        ([3, 2, 9, 1, 1, 1], DTYPES[0]),
        ([3, 2, 9, 1, 3, 1], DTYPES[1]),
    ] {
        for features_last in [false, true] {
            let (op, shapes) = gradient(to, features_last, sizes);
            let arrays = [plain(from, &shapes[0], 1), plain(from, &shapes[1], 2)];
            let is_taken = agree(&op, &arrays, &mut stream);
            assert_eq!(is_taken, sizes[4] > 1, "{sizes:?}");
        }
    }
}

/// Through the choice of kernels, with the default sizes.
#[test]
fn large_convolutions_of_few_features_are_computed_so() {
    let mut stream = Stream::new(43);
    for (sizes, dtype) in
        [([2, 3, 64, 48, 5, 2], DType::F32), ([2, 3, 96, 24, 3, 1], DType::Bf16), ([1, 2, 128, 64, 8, 8], DType::F32)]
    {
        for features_last in [false, true] {
            let (op, shapes) = gradient(dtype, features_last, sizes);
            let ins = [0, 1].map(|i| Aval::new(dtype, shapes[i]));
            let (out, layouts) = (&op.infer(&ins).expect("they fit")[0], ins.each_ref().map(Layout::from));
            let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
            let is_of_pairs = of_pairs(&op, operands, out).is_some();
            let has_unit = dtype == DType::Bf16 && Unit::best(Kind::Bf16).is_some();
            assert_eq!(is_of_pairs, has_unit);
            assert!(has_unit || of_numbers::<f32>(true, &op, operands, out).is_some());
            let build = |ins: &[(DType, &Layout)], outs: &[Aval]| kernel(&op, [ins[0], ins[1]], &outs[0]);
            let row_major = |_: &[Aval], outs: &[Aval]| build(&operands, outs);
            let arrays = [plain(dtype, &shapes[0], 1), plain(dtype, &shapes[1], 2)];
            check_by(&Op::from(op.clone()), row_major, &arrays, |got, expected, what| {
                assert_close(got, expected, tolerance(dtype), 100.0, what);
            });
            check_views(&Op::from(op.clone()), &ins, build, &mut stream);
            // By the operation, a weight that is not finite meets the zeros of padding too.
            let at = std::cell::Cell::new(0);
            let corner = filled(dtype, &shapes[1], 1, |_| {
                let is_first = at.replace(1) == 0;
                Literal::from_f64(dtype, if is_first { f64::INFINITY } else { 1.0 })
            });
            let without_zeros = Conv { lhs_dilation: Shape::from_elem(1, 2), ..op.clone() };
            let ins = [Aval::new(dtype, shapes[0]), Aval::new(dtype, shapes[1])];
            let (out, layouts) = (&without_zeros.infer(&ins).expect("they fit")[0], ins.each_ref().map(Layout::from));
            let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
            let build = |_: &[Aval], _: &[Aval]| kernel(&without_zeros, operands, out);
            check_by(&Op::from(without_zeros.clone()), build, &[arrays[0].clone(), corner], |got, expected, what| {
                assert_close(got, expected, tolerance(dtype), 1000.0, what);
            });
        }
    }
}

#[test]
fn what_gains_nothing_is_computed_otherwise() {
    let taken = |sizes: [usize; 6], is_direct: bool| {
        let (op, shapes) = gradient(DType::F32, false, sizes);
        let ins = shapes.map(|shape| Aval::new(DType::F32, shape));
        let layouts = ins.each_ref().map(Layout::from);
        let out = &op.infer(&ins).expect("they fit")[0];
        of_numbers::<f32>(is_direct, &op, [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])], out).is_some()
    };
    assert!(taken([2, 8, 32, 64, 3, 2], false));
    // Non-overlapping windows share no rows, so an image has enough bands for several threads.
    assert!(taken([1, 3, 64, 128, 16, 16], false));
    // Few input features, many output features, windows of one element, few elements, little work; few tasks.
    assert!(!taken([2, 8, 32, 64, 3, 1], true));
    for sizes in [
        [2, 3, 8, 64, 3, 2],
        [2, 64, 256, 64, 3, 2],
        [2, 8, 64, 64, 1, 1],
        [64, 8, 64, 6, 3, 1],
        [1, 3, 32, 20, 3, 1],
        [1, 3, 64, 24, 3, 1],
    ] {
        assert!(!taken(sizes, false), "{sizes:?}");
    }
}

/// Numbers that are not finite are in the results that their element reaches, and products outside of the output are in none.
#[test]
fn special_elements_are_in_the_results_that_they_reach() {
    let mut stream = Stream::new(44);
    let special = |dtype: DType, shape: &[usize]| {
        filled(dtype, shape, 1, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(150)).copied();
            Literal::from_f64(dtype, x.unwrap_or(1.0))
        })
    };
    for (from, to) in DTYPES {
        for features_last in [false, true] {
            let (op, shapes) = gradient(to, features_last, [2, 2, 7, 14, 3, 1]);
            let weights = filled(from, &shapes[1], 2, |_| Literal::from_f64(from, 1.0));
            assert!(agree(&op, &[special(from, &shapes[0]), weights], &mut stream));
        }
    }
    // A weight in a corner of the window reaches no result from the elements of the opposite edges.
    let (op, shapes) = gradient(DType::F32, false, [1, 1, 1, 5, 3, 1]);
    let mut corner = vec![1.0f32; 9];
    corner[0] = f32::INFINITY;
    let weights = Array::from_vec(corner, shapes[1]).expect("nine elements");
    let image = plain(DType::F32, &shapes[0], 1);
    let ins = [image.aval().clone(), weights.aval().clone()];
    let layouts = ins.each_ref().map(Layout::from);
    let outs = op.infer(&ins).expect("they fit");
    let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
    let kernel = made(SMALL, None, &op, operands, &outs[0]).expect("it is computed so");
    let threads = crate::test_support::threads(1);
    let results = crate::test_support::run(&*kernel, &[image, weights], &outs, None, &threads);
    let results = results[0].as_slice::<f32>().expect("f32");
    // The first element of the window reaches the result behind, whose row and column are one further.
    for (i, x) in results.iter().enumerate() {
        assert_eq!(x.is_finite(), i / 5 == 0 || i % 5 == 0, "{i}: {x}");
    }
}

/// Bands of one image are computed by several threads, each with the rows that the next shares.
#[test]
fn bands_do_not_change_bits() {
    let mut stream = Stream::new(45);
    for sizes in [[1, 2, 7, 90, 3, 1], [1, 2, 7, 130, 5, 1], [1, 1, 5, 91, 4, 2]] {
        let (op, shapes) = gradient(DType::F32, false, sizes);
        let ins = shapes.map(|shape| Aval::new(DType::F32, shape));
        let layouts = ins.each_ref().map(Layout::from);
        let out = &op.infer(&ins).expect("they fit")[0];
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        let numbers = Numbers::<f32>::new([DType::F32; 2]);
        let kernel = Col2im::new(SMALL, numbers, &op, operands, out).expect("it is computed so");
        assert_ne!(kernel.band(1), kernel.band(3), "{sizes:?}");
        assert!(agree(&op, &[plain(DType::F32, &shapes[0], 1), plain(DType::F32, &shapes[1], 2)], &mut stream));
    }
}
