//! Tests of matrix products against the evaluator.

use remat_ir::{Array, Aval, DType, DotGeneral, Op, eval_op};

use super::small::SmallKernel;
use super::*;
use crate::test_support::{
    Stream, assert_close, assert_same, check_by, check_views, elements, plain, rough, run, threads, wild,
};

fn numbers(contract: [&[usize]; 2], batch: [&[usize]; 2], to: DType) -> DotGeneral {
    DotGeneral {
        lhs_contract: contract[0].into(),
        rhs_contract: contract[1].into(),
        lhs_batch: batch[0].into(),
        rhs_batch: batch[1].into(),
        preferred_element_type: to,
    }
}

/// The largest difference from the evaluator's sums, which are added in another order.
fn tolerance(dtype: DType, depth: usize) -> f64 {
    let terms = depth.max(1) as f64;
    match dtype {
        DType::F64 => 1e-15 * terms,
        DType::F32 => 1e-6 * terms,
        DType::F16 => 2e-3,
        DType::Bf16 => 1e-2,
        _ => 0.0,
    }
}

fn agree(op: &DotGeneral, lhs: &Array, rhs: &Array) {
    let depth: usize = op.lhs_contract.iter().map(|&d| lhs.shape()[d]).product();
    let tolerance = tolerance(op.preferred_element_type, depth);
    let build = |ins: &[Aval], outs: &[Aval]| {
        let [l, r] = [Layout::from(&ins[0]), Layout::from(&ins[1])];
        kernel(op, [(ins[0].dtype, &l), (ins[1].dtype, &r)], &outs[0])
    };
    check_by(&Op::from(op.clone()), build, &[lhs.clone(), rhs.clone()], |got, expected, what| {
        assert_close(got, expected, tolerance, 1.0, what);
    });
}

/// Pairs of a dtype of operands and a dtype of the result that the operation takes.
fn dtypes() -> Vec<(DType, DType)> {
    let mut pairs = Vec::new();
    for from in DType::ALL {
        for to in DType::ALL {
            let op = numbers([&[0], &[0]], [&[], &[]], to);
            if remat_ir::Operation::infer(&op, &[Aval::new(from, [2]), Aval::new(from, [2])]).is_ok() {
                pairs.push((from, to));
            }
        }
    }
    pairs
}

#[test]
fn products_of_every_dtype_agree_with_the_evaluator() {
    for (from, to) in dtypes() {
        for (m, k, n) in [(5, 7, 3), (13, 30, 35), (1, 40, 6), (9, 33, 1), (1, 70, 1)] {
            agree(&numbers([&[1], &[0]], [&[], &[]], to), &plain(from, &[m, k], 1), &plain(from, &[k, n], 2));
            agree(&numbers([&[0], &[1]], [&[], &[]], to), &plain(from, &[k, m], 3), &plain(from, &[n, k], 4));
        }
        agree(&numbers([&[2], &[1]], [&[0], &[2]], to), &plain(from, &[3, 4, 5], 5), &plain(from, &[2, 5, 3], 6));
    }
}

#[test]
fn products_of_any_size_agree_with_the_evaluator() {
    let sizes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 25, 31, 32, 33, 47, 48, 49, 65];
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::I32] {
        for (i, &m) in sizes.iter().enumerate() {
            for (j, &n) in sizes.iter().enumerate() {
                let k = sizes[(i * 7 + j * 5) % sizes.len()];
                agree(&numbers([&[1], &[0]], [&[], &[]], dtype), &plain(dtype, &[m, k], 1), &plain(dtype, &[k, n], 2));
                agree(&numbers([&[0], &[1]], [&[], &[]], dtype), &plain(dtype, &[k, m], 3), &plain(dtype, &[n, k], 4));
            }
        }
    }
}

#[test]
fn products_that_are_cut_agree_with_the_evaluator() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I64] {
        // Several parts of the contracted axis, several blocks, several strips.
        for (m, k, n) in [(50, 900, 40), (200, 385, 150), (210, 70, 1100), (20, 1700, 700)] {
            agree(&numbers([&[1], &[0]], [&[], &[]], dtype), &plain(dtype, &[m, k], 1), &plain(dtype, &[k, n], 2));
            agree(&numbers([&[0], &[1]], [&[], &[]], dtype), &plain(dtype, &[k, m], 3), &plain(dtype, &[n, k], 4));
        }
        for (m, k) in [(1, 200_000), (3, 50_000), (2500, 60), (60, 2500)] {
            for (left, right) in [([m, k], 1), ([k, m], 0)] {
                let (matrix, vector) = (plain(dtype, &left, 5), plain(dtype, &[k], 6));
                agree(&numbers([&[right], &[0]], [&[], &[]], dtype), &matrix, &vector);
                agree(&numbers([&[0], &[right]], [&[], &[]], dtype), &vector, &matrix);
            }
        }
    }
}

#[test]
fn batches_agree_with_the_evaluator() {
    for dtype in [DType::F32, DType::Bf16, DType::U8, DType::Bool] {
        for (b, c, m, k, n) in [(2, 3, 4, 5, 6), (0, 2, 3, 4, 5), (3, 1, 1, 6, 5), (40, 2, 9, 20, 33), (4, 2, 3, 0, 2)]
        {
            // Batch dimensions in any place, on both sides in another order.
            let op = numbers([&[3], &[1]], [&[1, 0], &[2, 3]], dtype);
            agree(&op, &plain(dtype, &[b, c, m, k], 1), &plain(dtype, &[n, k, c, b], 2));
            let op = numbers([&[0, 3], &[2, 0]], [&[1], &[1]], dtype);
            agree(&op, &plain(dtype, &[b, c, m, k], 3), &plain(dtype, &[k, c, b, n], 4));
            // Free axes that are apart, and several contracted axes that do not merge.
            let op = numbers([&[1, 3], &[3, 1]], [&[], &[]], dtype);
            agree(&op, &plain(dtype, &[b, c, m, k], 5), &plain(dtype, &[n, k, b, c], 6));
        }
        let op = numbers([&[], &[]], [&[], &[]], dtype);
        agree(&op, &plain(dtype, &[3, 4], 7), &plain(dtype, &[5], 8));
        agree(&op, &plain(dtype, &[], 7), &plain(dtype, &[], 8));
        let rank: Vec<usize> = (0..12).map(|d| if d % 3 == 0 { 2 } else { 1 }).collect();
        let op = numbers([&[0, 9], &[9, 0]], [&[3], &[3]], dtype);
        agree(&op, &plain(dtype, &rank, 9), &plain(dtype, &rank, 10));
    }
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them() {
    for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
        for (m, k, n) in [(20, 40, 50), (1, 90, 20), (30, 10, 1)] {
            // Ones and zeros, so that sums are exact, beside NaN and infinity.
            let special = |shape: &[usize], seed| {
                crate::test_support::filled(dtype, shape, seed, |stream| {
                    let x = match stream.below(40) {
                        0 => f64::NAN,
                        1 => f64::INFINITY,
                        2 => f64::NEG_INFINITY,
                        n => (n % 2) as f64,
                    };
                    remat_ir::Literal::from_f64(dtype, x)
                })
            };
            agree(&numbers([&[1], &[0]], [&[], &[]], dtype), &special(&[m, k], 1), &special(&[k, n], 2));
        }
    }
    let op = numbers([&[1], &[0]], [&[], &[]], DType::I16);
    agree(&op, &wild(DType::I16, &[9, 50], 1), &wild(DType::I16, &[50, 40], 2));
}

/// Views of a buffer: the layout, and the array that it shows.
fn views(array: &Array) -> Vec<(Layout, Array)> {
    let x = Layout::from(array.aval());
    let [m, n] = [array.shape()[0], array.shape()[1]];
    let layouts = [
        x.permuted(&[1, 0]),
        x.reversed(&[0]),
        x.reversed(&[1]),
        x.reversed(&[0, 1]).permuted(&[1, 0]),
        x.sliced(&[1, 2], &[m, n - 1], &[1, 1]),
        x.sliced(&[0, 1], &[m, n], &[2, 3]),
        x.sliced(&[0, 3], &[m, 4], &[1, 1]).broadcast(&[m, n], &[0, 1]),
        x.sliced(&[2, 0], &[3, n], &[1, 1]).broadcast(&[m, n], &[0, 1]),
        x.sliced(&[2, 0], &[3, 1], &[1, 1]).broadcast(&[m, n], &[0, 1]),
        x.sliced(&[2, 0], &[3, n], &[1, 1]).permuted(&[1, 0]),
    ];
    layouts.into_iter().map(|layout| (layout.clone(), elements(array, &layout))).collect()
}

#[test]
fn operands_of_any_layout_agree_with_the_evaluator() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32] {
        for shape in [[5, 6], [17, 40], [60, 33]] {
            let (a, b) = (plain(dtype, &shape, 1), plain(dtype, &shape, 2));
            for (l_layout, l) in views(&a) {
                for (r_layout, r) in views(&b) {
                    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        if l.shape()[i] != r.shape()[j] {
                            continue;
                        }
                        let op = numbers([&[i], &[j]], [&[], &[]], dtype);
                        let expected =
                            eval_op(&Op::from(op.clone()), &[l.clone(), r.clone()]).expect("shapes that fit");
                        let out = expected[0].aval().clone();
                        let product = kernel(&op, [(dtype, &l_layout), (dtype, &r_layout)], &out);
                        let ins = [a.clone(), b.clone()];
                        let results = [1, 2, 3]
                            .map(|n| run(&*product, &ins, std::slice::from_ref(&out), None, &threads(n)).remove(0));
                        let what = format!("{op:?} of {l_layout:?} and {r_layout:?}");
                        assert_close(&results[0], &expected[0], tolerance(dtype, l.shape()[i]), 1.0, &what);
                        assert_same(&results[1], &results[0], &what);
                        assert_same(&results[2], &results[0], &what);
                    }
                }
            }
        }
    }
}

#[test]
fn the_order_of_sums_does_not_depend_on_layouts() {
    let mut stream = Stream::new(1);
    for (round, (m, k, n)) in [
        (1, 40, 1),
        (40, 40, 1),
        (1, 40, 40),
        (1, 1300, 9),
        (130, 33, 1),
        (200, 600, 1),
        (1, 70_000, 1),
        (3, 20_000, 1),
        (5, 6, 7),
        (33, 65, 18),
        (7, 1100, 9),
        (15, 17_000, 40),
        (70, 130, 200),
        (7, 600, 150),
    ]
    .into_iter()
    .cycle()
    .take(168)
    .enumerate()
    {
        let dtype = [DType::F32, DType::F64, DType::Bf16, DType::F16][round / 14 % 4];
        // The contracted axis as one axis, or as two in any order, and a batch.
        let (j, i) = if k % 5 == 0 { (5, k / 5) } else { (1, k) };
        let (op, shapes) = match stream.below(4) {
            0 => (numbers([&[1], &[0]], [&[], &[]], dtype), [vec![m, k], vec![k, n]]),
            1 => (numbers([&[0], &[1]], [&[], &[]], dtype), [vec![k, m], vec![n, k]]),
            2 => (numbers([&[0, 2], &[2, 1]], [&[], &[]], dtype), [vec![i, m, j], vec![n, j, i]]),
            _ => (numbers([&[2, 1], &[1, 3]], [&[3], &[0]], dtype), [vec![m, i, j, 2], vec![2, j, n, i]]),
        };
        let ins = shapes.map(|shape| Aval::new(dtype, shape));
        let build = |ins: &[(DType, &Layout)], outs: &[Aval]| kernel(&op, [ins[0], ins[1]], &outs[0]);
        check_views(&Op::from(op.clone()), &ins, build, &mut stream);
    }
}

/// Small products have the same bits as if they were cut.
#[test]
fn small_products_have_the_bits_of_large_ones() {
    let mut stream = Stream::new(4);
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for (b, m, k, n) in
            [(1, 2, 1, 2), (3, 7, 63, 5), (40, 16, 16, 16), (5, 13, 33, 50), (2, 17, 512, 4), (2, 90, 96, 90)]
        {
            for (l, r) in [(false, false), (false, true), (true, false), (true, true)] {
                let shapes = [if l { [b, k, m] } else { [b, m, k] }, if r { [b, n, k] } else { [b, k, n] }];
                let op = numbers([&[if l { 1 } else { 2 }], &[if r { 2 } else { 1 }]], [&[0], &[0]], dtype);
                let ins = shapes.map(|shape| rough(dtype, &shape, &mut stream));
                let layouts = [0, 1].map(|i| Layout::from(ins[i].aval()));
                let out = Aval::new(dtype, [b, m, n]);
                let sides = || [(dtype, &layouts[0]), (dtype, &layouts[1])];
                let results = match dtype {
                    DType::F64 => both::<f64>(Dot::new(&op, sides(), &out), Dot::new(&op, sides(), &out)),
                    _ => both::<f32>(Dot::new(&op, sides(), &out), Dot::new(&op, sides(), &out)),
                };
                let [small, large] =
                    results.map(|kernel| run(&*kernel, &ins, std::slice::from_ref(&out), None, &threads(2)).remove(0));
                assert_same(&small, &large, &format!("{dtype} {b} x [{m},{k}] [{k},{n}]"));
            }
        }
    }
}

/// The kernels of a product as a small one and as one that is cut into blocks.
fn both<A: Accumulator>(dot: Dot<A>, same: Dot<A>) -> [Box<dyn Kernel>; 2] {
    assert!(is_small(dot.rows, dot.columns, dot.depth));
    let (batch, shape, out) = (dot.batch.len(), [dot.rows, dot.columns, dot.depth], dot.out);
    let writer = Writer::new(out);
    let blocking = Blocking::new(A::micro_kernel(Level::best()), batch, shape, writer.is_direct());
    [Box::new(SmallKernel::new(dot, Writer::new(out))), Box::new(MatrixKernel { dot: same, writer, blocking })]
}

/// The transpose of a product is the product of its operands in the other order, bit for bit.
#[test]
fn the_order_of_sums_does_not_depend_on_the_order_of_operands() {
    let mut stream = Stream::new(2);
    for (m, i, j, n) in [(3, 70, 20, 1), (40, 9, 5, 30), (1, 300, 3, 1), (90, 600, 2, 70)] {
        let (x, y) = (rough(DType::F32, &[i, m, j], &mut stream), rough(DType::F32, &[n, j, i], &mut stream));
        let product = |op: &DotGeneral, ins: [&Array; 2], shape: [usize; 2]| {
            let layouts = ins.map(|x| Layout::from(x.aval()));
            let out = Aval::new(DType::F32, shape);
            let kernel = kernel(op, [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])], &out);
            run(&*kernel, &ins.map(Array::clone), &[out], None, &threads(1)).remove(0)
        };
        let one = product(&numbers([&[0, 2], &[2, 1]], [&[], &[]], DType::F32), [&x, &y], [m, n]);
        let other = product(&numbers([&[2, 1], &[0, 2]], [&[], &[]], DType::F32), [&y, &x], [n, m]);
        let transposed = Layout::from(other.aval()).permuted(&[1, 0]);
        assert_same(&elements(&other, &transposed), &one, "operands exchanged");
    }
}

/// A row has the same results among any few rows, in any layout of the matrix. It has them alone too, unless the contracted axis is short.
#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    let mut stream = Stream::new(3);
    for dtype in [DType::F32, DType::F64] {
        for (k, n) in [(1, 20), (40, 17), (63, 33), (64, 33), (1100, 70), (17_000, 3)] {
            for transposed in [false, true] {
                let matrix = rough(dtype, &if transposed { [n, k] } else { [k, n] }, &mut stream);
                let rows = rough(dtype, &[16, k], &mut stream);
                let op = numbers([&[1], &[usize::from(transposed)]], [&[], &[]], dtype);
                let product = |m: usize| {
                    let layouts =
                        [Layout::from(rows.aval()).sliced(&[0, 0], &[m, k], &[1, 1]), Layout::from(matrix.aval())];
                    let out = Aval::new(dtype, [m, n]);
                    let kernel = kernel(&op, [(dtype, &layouts[0]), (dtype, &layouts[1])], &out);
                    run(&*kernel, &[rows.clone(), matrix.clone()], &[out], None, &threads(2)).remove(0)
                };
                let all = product(16);
                for m in if k < 64 { 2..16 } else { 1..16 } {
                    let first = Layout::from(all.aval()).sliced(&[0, 0], &[m, n], &[1, 1]);
                    assert_same(&elements(&all, &first), &product(m), &format!("{m} rows of {dtype}[{k},{n}]"));
                }
            }
        }
    }
}

/// A row has the same results alone and in a batch of small products, in any layout, on any number of threads, whichever operand is skinny.
#[test]
fn batches_of_few_rows_have_the_bits_of_single_rows() {
    let mut stream = Stream::new(5);
    for (round, (m, k, n)) in
        [(16, 64, 16), (2, 64, 33), (3, 65, 5), (5, 127, 40), (8, 128, 130), (16, 256, 70), (7, 512, 17), (4, 100, 500)]
            .into_iter()
            .cycle()
            .take(32)
            .enumerate()
    {
        let dtype = [DType::F32, DType::F64, DType::F16, DType::I32][round / 8];
        let (x, y) = (rough(dtype, &[3, m, k], &mut stream), rough(dtype, &[3, k, n], &mut stream));
        for (left, right) in [(false, false), (false, true), (true, false), (true, true)] {
            let turned = |array: &Array, turn: bool| {
                let layout = Layout::from(array.aval());
                let layout = if turn { layout.permuted(&[0, 2, 1]) } else { layout };
                (elements(array, &layout), turn)
            };
            let ((x, x_turned), (y, y_turned)) = (turned(&x, left), turned(&y, right));
            let natural = |array: &Array, turn: bool| {
                let layout = Layout::from(array.aval());
                if turn { layout.permuted(&[0, 2, 1]) } else { layout }
            };
            let (lhs, rhs) = (natural(&x, x_turned), natural(&y, y_turned));
            let product = |exchanged: bool, row: Option<usize>, count: usize| {
                let lhs = match row {
                    Some(row) => lhs.sliced(&[0, row, 0], &[3, row + 1, k], &[1, 1, 1]),
                    None => lhs.clone(),
                };
                let rows = lhs.shape[1];
                let (op, sides, shape, ins) = if exchanged {
                    let op = numbers([&[1], &[2]], [&[0], &[0]], dtype);
                    (op, [&rhs, &lhs], [3, n, rows], [y.clone(), x.clone()])
                } else {
                    let op = numbers([&[2], &[1]], [&[0], &[0]], dtype);
                    (op, [&lhs, &rhs], [3, rows, n], [x.clone(), y.clone()])
                };
                let out = Aval::new(dtype, shape);
                let kernel = kernel(&op, [(dtype, sides[0]), (dtype, sides[1])], &out);
                let result = run(&*kernel, &ins, std::slice::from_ref(&out), None, &threads(count)).remove(0);
                let layout = Layout::from(&out);
                if exchanged { elements(&result, &layout.permuted(&[0, 2, 1])) } else { result }
            };
            let what = format!("3 x {dtype}[{m},{k}] [{k},{n}], {left} {right}");
            let all = product(false, None, 1);
            assert_same(&product(false, None, 2), &all, &what);
            assert_same(&product(true, None, 3), &all, &what);
            for row in 0..m {
                let one = Layout::from(all.aval()).sliced(&[0, row, 0], &[3, row + 1, n], &[1, 1, 1]);
                assert_same(&product(false, Some(row), 1), &elements(&all, &one), &what);
            }
        }
    }
}

/// Sums of products of 8-bit integers are exact, even if all have the largest value.
#[test]
fn sums_of_small_integers_are_exact() {
    for (dtype, value) in [(DType::I8, -128.0), (DType::U8, 255.0)] {
        for (m, k, n) in [
            (1, 3000, 20),
            (5, 20_000, 33),
            (16, 700, 2),
            (20, 700, 30),
            (1, 300, 100),
            (1, 257, 40),
            (1, 511, 64),
            (5, 400, 60),
        ] {
            let full = |shape: &[usize]| {
                crate::test_support::filled(dtype, shape, 1, |_| remat_ir::Literal::from_f64(dtype, value))
            };
            for to in [DType::I32, DType::I64, dtype] {
                agree(&numbers([&[1], &[0]], [&[], &[]], to), &full(&[m, k]), &full(&[k, n]));
                agree(&numbers([&[1], &[1]], [&[], &[]], to), &full(&[n, k]), &full(&[m, k]));
            }
        }
    }
}

/// Few rows by a matrix along the contracted axis, which CPUs may multiply as bytes, or along its columns, for several rests of a register
/// and of the rows, with bytes of the whole range, and with the sums that are largest.
#[test]
fn vectors_of_bytes_agree_with_the_evaluator() {
    for (dtype, least, most) in [(DType::I8, -128.0, 127.0), (DType::U8, 0.0, 255.0)] {
        let full = |shape: [usize; 3], value| {
            crate::test_support::filled(dtype, &shape, 1, |_| remat_ir::Literal::from_f64(dtype, value))
        };
        for (k, n) in [
            (256, 16),
            (257, 17),
            (270, 18),
            (319, 23),
            (320, 130),
            (1000, 40),
            (4097, 33),
            (303, 600),
            (511, 65),
            (516, 146),
        ] {
            let [one, all] = [[2, 1 + k % 9, k], [2, n, k]];
            let extremes = [(least, least), (least, most), (most, least), (most, most)];
            let pairs = extremes.map(|(x, y)| [full(one, x), full(all, y)]);
            for [x, y] in pairs.into_iter().chain([[wild(dtype, &one, 1), wild(dtype, &all, 2)]]) {
                for to in [DType::I32, DType::U32, dtype] {
                    agree(&numbers([&[2], &[2]], [&[0], &[0]], to), &x, &y);
                    agree(&numbers([&[2], &[2]], [&[0], &[0]], to), &y, &x);
                    let columns = y.reshaped([2, k, n]).expect("it has these elements");
                    agree(&numbers([&[2], &[1]], [&[0], &[0]], to), &x, &columns);
                    agree(&numbers([&[1], &[2]], [&[0], &[0]], to), &columns, &x);
                }
            }
        }
    }
}

/// Small products of bytes are exact as f32, along the longest axis for which they are computed so, and wrap to every dtype of integers.
#[test]
fn small_products_of_bytes_are_exact() {
    for (from, least, most) in [(DType::I8, -128.0, 127.0), (DType::U8, 0.0, 255.0)] {
        let full = |shape: [usize; 3], value| {
            crate::test_support::filled(from, &shape, 1, |_| remat_ir::Literal::from_f64(from, value))
        };
        for to in DType::ALL.into_iter().filter(|dtype| dtype.is_integer()) {
            for (m, k, n) in [(17, 256, 33), (2, 63, 70), (16, 16, 16), (3, 0, 4), (2, 5, 0)] {
                for (l, r) in [(1, 2), (2, 1)] {
                    let op = numbers([&[l], &[r]], [&[0], &[0]], to);
                    let [x, y] =
                        [if l == 1 { [3, k, m] } else { [3, m, k] }, if r == 1 { [3, k, n] } else { [3, n, k] }];
                    let build = |ins: &[Aval], outs: &[Aval]| -> Box<dyn Kernel> {
                        let [l, r] = [Layout::from(&ins[0]), Layout::from(&ins[1])];
                        let dot = Dot::<f32>::new(&op, [(from, &l), (from, &r)], &outs[0]);
                        assert!(dot.has_small_bytes() || m * k * n == 0);
                        Box::new(SmallKernel::new(dot, Writer::of_integers(to)))
                    };
                    let extremes = [(least, least), (least, most), (most, most)].map(|(a, b)| [full(x, a), full(y, b)]);
                    for ins in extremes.into_iter().chain([[wild(from, &x, 2), wild(from, &y, 3)]]) {
                        check_by(&Op::from(op.clone()), build, &ins, assert_same);
                    }
                }
            }
        }
    }
}

/// Many threads have smaller blocks: with one part and several, one strip and several, and sums that are kept from strip to strip.
#[test]
fn blocks_for_many_threads_have_the_bits_of_those_for_one() {
    smaller_blocks_have_the_same_bits::<f32>(DType::F32, [200, 300, 290]);
    smaller_blocks_have_the_same_bits::<f32>(DType::F32, [130, 4200, 70]);
    smaller_blocks_have_the_same_bits::<f32>(DType::F16, [130, 4200, 70]);
    smaller_blocks_have_the_same_bits::<f64>(DType::F64, [60, 100, 1500]);
}

fn smaller_blocks_have_the_same_bits<A: Accumulator>(dtype: DType, [m, k, n]: [usize; 3]) {
    let mut stream = Stream::new(6);
    let op = numbers([&[1], &[0]], [&[], &[]], dtype);
    let ins = [rough(dtype, &[m, k], &mut stream), rough(dtype, &[k, n], &mut stream)];
    let layouts = ins.each_ref().map(|x| Layout::from(x.aval()));
    let out = Aval::new(dtype, [m, n]);
    let dot = Dot::<A>::new(&op, [(dtype, &layouts[0]), (dtype, &layouts[1])], &out);
    let writer = Writer::new(dtype);
    let blocking = Blocking::new(A::micro_kernel(Level::best()), 1, [m, n, k], writer.is_direct());
    let what = format!("{dtype}[{m},{k}] [{k},{n}]");
    assert!(blocking.for_threads(16).blocks() > blocking.blocks(), "{what}");
    let kernel = MatrixKernel { dot, writer, blocking };
    let of = |count| run(&kernel, &ins, std::slice::from_ref(&out), None, &threads(count)).remove(0);
    let one = of(1);
    for count in [5, 7, 16] {
        assert_same(&of(count), &one, &format!("{count} threads, {what}"));
    }
}
