//! Tests of minimal filtering against the evaluator, and of its error.

use remat_ir::{Array, Aval, DType, Literal, Operation};

use super::super::tests::{agree, agree_where_taken, check_views_of, of_rank, order};
use super::*;
use crate::test_support::{Stream, filled, plain, rough, run};

/// A convolution of a window of 3x3, and the shapes of its operands.
fn of_small_windows(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let dims = |stream: &mut Stream| order(&[[0, 1, 2, 3], [0, 3, 1, 2], [3, 2, 0, 1]][stream.below(3)]);
    let op = Conv {
        padding: (0..2).map(|_| (stream.below(7) as i64 - 2, stream.below(7) as i64 - 2)).collect(),
        lhs_dims: dims(stream),
        rhs_dims: dims(stream),
        out_dims: dims(stream),
        ..of_rank(2, to)
    };
    let (mut image, mut weights) = (vec![0; 4], vec![3; 4]);
    image[op.lhs_dims.first] = stream.below(4);
    weights[op.rhs_dims.second] = 1 + stream.below(70);
    image[op.lhs_dims.second] = weights[op.rhs_dims.second];
    weights[op.rhs_dims.first] = 1 + stream.below(40);
    for &d in &op.lhs_dims.spatial {
        image[d] = stream.below(24);
    }
    (op, image, weights)
}

#[test]
fn minimal_filtering_agrees_with_the_evaluator() {
    let taken = agree_where_taken(240, &mut Stream::new(21), of_small_windows, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(Winograd::new(SMALL, op, ins, out)?)),
        _ => |_, _, _| None,
    });
    assert!(taken > 40, "{taken}");
}

/// A convolution that is large enough, and its operands.
fn large() -> (Conv, [Aval; 2]) {
    let op = Conv { padding: vec![(1, 1), (1, 2)], ..of_rank(2, DType::F32) };
    (op, [Aval::new(DType::F32, [2, 32, 17, 19]), Aval::new(DType::F32, [40, 32, 3, 3])])
}

/// Whether the kernel of a convolution is of this kind.
fn is_taken(op: &Conv, ins: &[Aval; 2]) -> bool {
    let out = &op.infer(ins).expect("they fit")[0];
    let layouts = ins.each_ref().map(Layout::from);
    Winograd::new(SIZES, op, [(ins[0].dtype, &layouts[0]), (ins[1].dtype, &layouts[1])], out).is_some()
}

#[test]
fn large_convolutions_of_small_windows_are_filtered() {
    let (op, ins) = large();
    for op in [op.clone(), Conv { out_dims: order(&[0, 3, 1, 2]), ..op.clone() }] {
        assert!(is_taken(&op, &ins));
        check_views_of(&op, ins.clone(), &mut Stream::new(22));
    }
    let [image, weights] = &ins;
    for other in [
        Conv { strides: [1, 2].as_slice().into(), ..op.clone() },
        Conv { lhs_dilation: [2, 1].as_slice().into(), ..op.clone() },
        Conv { rhs_dilation: [1, 2].as_slice().into(), ..op.clone() },
    ] {
        assert!(!is_taken(&other, &ins), "{other:?}");
    }
    let few = [Aval::new(DType::F32, [2, 16, 17, 19]), Aval::new(DType::F32, [40, 16, 3, 3])];
    let groups = [image.clone(), Aval::new(DType::F32, [40, 16, 3, 3])];
    assert!(!is_taken(&op, &few) && !is_taken(&Conv { feature_group_count: 2, ..op.clone() }, &groups));
    let long = [image.clone(), Aval::new(DType::F32, [40, 32, 3, 4])];
    let double = [Aval::new(DType::F64, image.shape.clone()), Aval::new(DType::F64, weights.shape.clone())];
    assert!(!is_taken(&op, &long) && !is_taken(&Conv { preferred_element_type: DType::F64, ..op }, &double));
}

/// The elements of an operand: random numbers, and these special ones at some places.
fn special(aval: &Aval, seed: u64, one_in: usize, numbers: &[f64]) -> Array {
    filled(aval.dtype, &aval.shape, seed, |stream| {
        let x = numbers.get(stream.below(one_in)).copied();
        Literal::from_f64(DType::F32, x.unwrap_or(1.0))
    })
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them() {
    let (op, [x, w]) = large();
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for seed in 1..4 {
        agree(&op, &special(&x, seed, 9000, &numbers), &plain(DType::F32, &w.shape, 2));
        agree(&op, &plain(DType::F32, &x.shape, 1), &special(&w, seed, 4000, &numbers));
    }
}

/// Sums of two neighbours overflow, but no product with a weight, and no sum of products.
#[test]
fn large_numbers_whose_sums_overflow_agree_with_the_evaluator() {
    let (op, [x, w]) = large();
    let large = |aval: &Aval| special(aval, 1, 40, &[3e38, 3e38]);
    let small = |aval: &Aval| {
        filled(DType::F32, &aval.shape, 1, |stream| Literal::from_f64(DType::F32, stream.below(9) as f64 / 65536.0))
    };
    agree(&op, &large(&x), &small(&w));
    agree(&op, &small(&x), &large(&w));
}

/// In one dimension, rounding errors are amplified four times at most: by the transformations of windows and of pairs.
#[test]
fn transformations_amplify_four_times() {
    assert_eq!(transform::amplification(transform::of_window, transform::of_sums), 4.0);
    assert_eq!(transform::amplification(transform::of_pair, transform::of_pair_sums), 4.0);
}

/// Operands of random numbers, and the results of a kernel.
fn results_of_rough(
    op: &Conv,
    ins: &[Aval; 2],
    build: impl FnOnce([(DType, &Layout); 2], &Aval) -> Option<Box<dyn Kernel>>,
) -> [Vec<f64>; 3] {
    let mut stream = Stream::new(23);
    let [x, w] = ins.each_ref().map(|aval| rough(DType::F32, &aval.shape, &mut stream));
    let (out, layouts) = (op.infer(ins).expect("they fit"), ins.each_ref().map(Layout::from));
    let kernel = build([(DType::F32, &layouts[0]), (DType::F32, &layouts[1])], &out[0]).expect("it is large enough");
    let got = run(&*kernel, &[x.clone(), w.clone()], &out, None, &Threads::SERIAL).remove(0);
    [x, w, got].map(|x| x.as_slice::<f32>().expect("f32").iter().map(|&x| x.into()).collect())
}

/// Checks a result against the sum of products and the bound that a module derives.
fn check_bound(got: f64, expected: f64, roundings: usize, scale: f64) {
    assert!((got - expected).abs() <= 16.0 * roundings as f64 * 0.5f64.powi(24) * scale, "{got} {expected} {scale}");
}

/// The element of an image, with a border of zeros. `row` and `column` are those in the image with its border.
fn with_border(image: &[f64], [height, width]: [usize; 2], row: usize, column: usize) -> f64 {
    let is_inside = (1..=height).contains(&row) && (1..=width).contains(&column);
    if is_inside { image[(row - 1) * width + column - 1] } else { 0.0 }
}

/// Each result is within the bound that the module derives.
#[test]
fn errors_are_within_the_bound() {
    let op = Conv { padding: vec![(1, 1); 2], ..of_rank(2, DType::F32) };
    let ([height, width], features, outs) = ([17, 19], 32, 40);
    let ins = [Aval::new(DType::F32, [2, features, height, width]), Aval::new(DType::F32, [outs, features, 3, 3])];
    let [x, w, got] = results_of_rough(&op, &ins, |ins, out| Some(Box::new(Winograd::new(SIZES, &op, ins, out)?)));
    for (i, &got) in got.iter().enumerate() {
        let (image, o) = (i / (outs * height * width), i / (height * width) % outs);
        let (y, z) = (i / width % height, i % width);
        let (mut expected, mut scale) = (0.0, 0.0);
        for c in 0..features {
            let x = &x[(image * features + c) * height * width..][..height * width];
            let (mut largest, mut weights) = (0.0f64, 0.0);
            for (k, &w) in w[(o * features + c) * 9..][..9].iter().enumerate() {
                let d = with_border(x, [height, width], y + k / 3, z + k % 3);
                expected += d * w;
                largest = largest.max(d.abs());
                weights += w.abs();
            }
            scale += largest * weights;
        }
        check_bound(got, expected, features + 10, scale);
    }
}

/// Each gradient of a weight is within the bound that its module derives, also if it is cut into parts.
#[test]
fn errors_of_gradients_are_within_the_bound() {
    let dims = order(&[1, 0, 2, 3]);
    let op = Conv {
        padding: vec![(1, 1); 2],
        lhs_dims: dims.clone(),
        rhs_dims: dims.clone(),
        out_dims: dims,
        ..of_rank(2, DType::F32)
    };
    let (images, size @ [height, width], features, outs) = (5, [14, 15], 32, 32);
    let ins = [features, outs].map(|features| Aval::new(DType::F32, [images, features, height, width]));
    let [x, g, got] = results_of_rough(&op, &ins, |ins, out| {
        let kernel = Gradient::new(gradient::SIZES, &op, ins, out)?;
        assert!(kernel.parts() > 1);
        Some(Box::new(kernel))
    });
    let of = |all: &[f64], features: usize, image: usize, feature: usize| -> Vec<f64> {
        all[(image * features + feature) * height * width..][..height * width].to_vec()
    };
    let pairs: Vec<[usize; 3]> = (0..images)
        .flat_map(|i| (0..height).step_by(2).flat_map(move |y| (0..width).step_by(2).map(move |z| [i, y, z])))
        .collect();
    for (i, got) in got.chunks_exact(9).enumerate() {
        let (o, c) = (i / features, i % features);
        let (mut expected, mut scale) = ([0.0; 9], 0.0);
        for image in 0..images {
            let (x, g) = (of(&x, features, image, c), of(&g, outs, image, o));
            for &[_, y, z] in pairs.iter().filter(|pair| pair[0] == image) {
                let tile = |i: usize| with_border(&x, size, y + i / 4, z + i % 4);
                let pair = |i: usize| with_border(&g, size, y + i / 2 + 1, z + i % 2 + 1);
                scale +=
                    (0..16).map(|i| tile(i).abs()).fold(0.0, f64::max) * (0..4).map(|i| pair(i).abs()).sum::<f64>();
                for (k, expected) in expected.iter_mut().enumerate() {
                    *expected += (0..4).map(|i| pair(i) * tile((k / 3 + i / 2) * 4 + k % 3 + i % 2)).sum::<f64>();
                }
            }
        }
        for (&got, expected) in got.iter().zip(expected) {
            check_bound(got, expected, pairs.len() + 8, scale);
        }
    }
}

/// A gradient of weights of a window of 3x3, in any layouts, and the shapes of its operands.
fn of_gradients(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let dims = |stream: &mut Stream| order(&[[0, 1, 2, 3], [1, 0, 2, 3], [0, 3, 1, 2], [3, 0, 1, 2]][stream.below(4)]);
    let mut op = of_rank(2, to);
    [op.lhs_dims, op.rhs_dims, op.out_dims] = [dims(stream), dims(stream), dims(stream)];
    let (mut image, mut window) = (vec![0; 4], vec![0; 4]);
    image[op.lhs_dims.first] = 1 + stream.below(150);
    window[op.rhs_dims.first] = 1 + stream.below(150);
    image[op.lhs_dims.second] = stream.below(4);
    window[op.rhs_dims.second] = image[op.lhs_dims.second];
    for d in 0..2 {
        let (size, low) = (1 + stream.below(14), stream.below(4) as i64 - 1);
        window[op.rhs_dims.spatial[d]] = size;
        image[op.lhs_dims.spatial[d]] = size + stream.below(4);
        op.padding[d] = (low, (size + 2) as i64 - low - image[op.lhs_dims.spatial[d]] as i64);
    }
    (op, image, window)
}

#[test]
fn gradients_by_minimal_filtering_agree_with_the_evaluator() {
    let taken = agree_where_taken(120, &mut Stream::new(24), of_gradients, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(Gradient::new(gradient::SMALL, op, ins, out)?)),
        _ => |_, _, _| None,
    });
    assert!(taken > 20, "{taken}");
}

#[test]
fn gradients_that_are_cut_agree_with_the_evaluator() {
    let dims = |first, second| order(&[first, second, 2, 3]);
    let op = Conv {
        padding: vec![(1, 1); 2],
        lhs_dims: dims(1, 0),
        rhs_dims: dims(1, 0),
        out_dims: dims(1, 0),
        ..of_rank(2, DType::F32)
    };
    let ins = [Aval::new(DType::F32, [5, 66, 17, 14]), Aval::new(DType::F32, [5, 33, 17, 14])];
    let out = &op.infer(&ins).expect("they fit")[0];
    let layouts = ins.each_ref().map(Layout::from);
    let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
    let gradient = Gradient::new(gradient::SIZES, &op, operands, out).expect("it is large enough");
    assert!(gradient.blocks() > 1 && gradient.parts() > 1);
    agree(&op, &plain(DType::F32, &ins[0].shape, 1), &plain(DType::F32, &ins[1].shape, 2));
    check_views_of(&op, ins.clone(), &mut Stream::new(25));
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    agree(&op, &special(&ins[0], 1, 20000, &numbers), &plain(DType::F32, &ins[1].shape, 2));
    agree(&op, &plain(DType::F32, &ins[0].shape, 1), &special(&ins[1], 1, 20000, &numbers));
    let few = [Aval::new(DType::F32, [5, 66, 17, 14]), Aval::new(DType::F32, [5, 24, 17, 14])];
    let out = &op.infer(&few).expect("they fit")[0];
    let layouts = few.each_ref().map(Layout::from);
    assert!(Gradient::new(gradient::SIZES, &op, [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])], out).is_none());
}
