//! Tests of products of narrow elements on each unit, against the evaluator.

use remat_ir::{Array, Aval, DotGeneral, Op, eval_op};

use super::*;
use crate::interface::Layout;
use crate::test_support::{Stream, assert_close, assert_same, elements, plain, run, threads, wild};

fn op(contract: [&[usize]; 2], batch: [&[usize]; 2], to: DType) -> DotGeneral {
    DotGeneral {
        lhs_contract: contract[0].into(),
        rhs_contract: contract[1].into(),
        lhs_batch: batch[0].into(),
        rhs_batch: batch[1].into(),
        preferred_element_type: to,
    }
}

/// Compares the products of views of arrays with those of the evaluator, on each unit and on one to three threads. Products that read rows
/// in place are compared too. Returns how many units read rows in place.
fn agree(op: &DotGeneral, [l, r]: [(&Array, &Layout); 2]) -> usize {
    let dtype = l.0.dtype();
    let ins = [l.0.clone(), r.0.clone()];
    let expected = eval_op(&Op::from(op.clone()), &[elements(l.0, l.1), elements(r.0, r.1)]).expect("shapes that fit");
    let out = expected[0].aval().clone();
    let kinds = kinds([dtype; 2], out.dtype);
    assert!(!kinds.is_empty(), "no kind of {dtype:?}");
    let mut read_in_place = 0;
    for (kind, unit) in kinds.iter().flat_map(|&kind| Unit::all(kind).into_iter().map(move |unit| (kind, unit))) {
        let dot = || Dot::new(op, [(dtype, l.1), (dtype, r.1)], &out);
        let kernel = NarrowKernel::new(SMALL, unit, kind, dot());
        let run = |kernel: &dyn Kernel, n| run(kernel, &ins, std::slice::from_ref(&out), None, &threads(n)).remove(0);
        let results = [1, 2, 3].map(|n| run(&kernel, n));
        let what = format!("{op:?} of {:?} and {:?} on {unit:?}", l.1, r.1);
        let tolerance = match out.dtype {
            // Half a unit in the last place of the result, and the error of the sum.
            DType::Bf16 => 1e-2,
            DType::F16 => 1e-3,
            // The error of the evaluator's sums of 2500 terms.
            DType::F32 if dtype != DType::Bf16 => 1e-4,
            // Products of bf16 have few bits, and their sums hardly need rounding.
            DType::F32 => 1e-5,
            _ => 0.0,
        };
        assert_close(&results[0], &expected[0], tolerance, 1.0, &what);
        assert_same(&results[1], &results[0], &what);
        assert_same(&results[2], &results[0], &what);
        if SkinnyKernel::is_for(kind, unit, &dot()) {
            let in_place = SkinnyKernel::new(kind, unit, dot());
            [1, 3].into_iter().for_each(|n| assert_same(&run(&in_place, n), &results[0], &what));
            read_in_place += 1;
        }
    }
    read_in_place
}

fn whole(op: &DotGeneral, l: &Array, r: &Array) -> usize {
    let layouts = [l, r].map(|x| Layout::from(x.aval()));
    agree(op, [(l, &layouts[0]), (r, &layouts[1])])
}

/// The dtypes of operands and results.
const DTYPES: [(DType, DType); 13] = [
    (DType::Bf16, DType::Bf16),
    (DType::Bf16, DType::F32),
    (DType::I8, DType::I8),
    (DType::I8, DType::I16),
    (DType::I8, DType::I32),
    (DType::I8, DType::U32),
    (DType::U8, DType::U8),
    (DType::U8, DType::U16),
    (DType::U8, DType::U32),
    (DType::U8, DType::I32),
    (DType::F32, DType::F32),
    (DType::F16, DType::F16),
    (DType::F16, DType::F32),
];

/// Elements of any value where sums are exact, and small ones otherwise.
fn array(dtype: DType, shape: &[usize], seed: u64) -> Array {
    if dtype.is_float() { plain(dtype, shape, seed) } else { wild(dtype, shape, seed) }
}

#[test]
fn products_of_any_size_agree_with_the_evaluator() {
    let sizes = [0, 1, 2, 15, 16, 17, 31, 32, 33, 65];
    for (from, to) in DTYPES {
        if remat_ir::Operation::infer(&op([&[0], &[0]], [&[], &[]], to), &[Aval::new(from, [2]), Aval::new(from, [2])])
            .is_err()
        {
            continue;
        }
        for (i, &m) in sizes.iter().enumerate() {
            for (j, &n) in sizes.iter().enumerate().filter(|(j, _)| (i + j) % 3 == 0) {
                let k = [0, 1, 3, 30, 64, 129][(i * 5 + j) % 6];
                whole(&op([&[1], &[0]], [&[], &[]], to), &array(from, &[m, k], 1), &array(from, &[k, n], 2));
                whole(&op([&[0], &[1]], [&[], &[]], to), &array(from, &[k, m], 3), &array(from, &[n, k], 4));
                whole(&op([&[1], &[1]], [&[], &[]], to), &array(from, &[m, k], 5), &array(from, &[n, k], 6));
                whole(&op([&[0], &[0]], [&[], &[]], to), &array(from, &[k, m], 7), &array(from, &[k, n], 8));
            }
        }
    }
}

/// Rows that are read in place: the last block overlaps the one before, and the last group is not full.
#[test]
fn products_by_few_rows_agree_with_the_evaluator() {
    for (from, to) in [DTYPES[0], DTYPES[1], DTYPES[3], DTYPES[8], DTYPES[11]] {
        for (few, many, k) in [(2, 32, 64), (16, 33, 65), (5, 70, 150), (1, 100, 64), (16, 64, 300)] {
            let x = whole(&op([&[1], &[1]], [&[], &[]], to), &array(from, &[few, k], 1), &array(from, &[many, k], 2));
            let y = whole(&op([&[1], &[0]], [&[], &[]], to), &array(from, &[many, k], 3), &array(from, &[k, few], 4));
            assert!(x > 0 && y > 0, "there is a unit that reads the rows of the matrix in place");
            // A batch, and rows among others.
            whole(&op([&[2], &[2]], [&[0], &[0]], to), &array(from, &[3, few, k], 5), &array(from, &[3, many, k], 6));
            whole(&op([&[2], &[0]], [&[1], &[2]], to), &array(from, &[many, 3, k], 7), &array(from, &[k, few, 3], 8));
        }
    }
    // Several tasks that pack, several that multiply, several pieces of a batch; too long to pack at once.
    for ([batch, few, many, k], is_taken) in
        [([1, 3, 70, 1100], true), ([1, 2, 600, 600], true), ([3, 2, 33, 16_500], true), ([1, 2, 32, 33_000], false)]
    {
        let op = op([&[2], &[2]], [&[0], &[0]], DType::I32);
        let taken = whole(&op, &array(DType::I8, &[batch, few, k], 9), &array(DType::I8, &[batch, many, k], 10));
        assert_eq!(taken > 0, is_taken, "{batch} products by {few} rows of [{many},{k}]");
    }
}

#[test]
fn products_that_are_cut_agree_with_the_evaluator() {
    for (from, to) in [DTYPES[0], DTYPES[4], DTYPES[10], DTYPES[12]] {
        // Several parts, blocks, strips of columns and of the contracted axis.
        for (m, k, n) in [(40, 150, 70), (70, 40, 200), (33, 700, 40), (33, 1300, 70), (2, 2500, 36)] {
            whole(&op([&[1], &[0]], [&[], &[]], to), &array(from, &[m, k], 1), &array(from, &[k, n], 2));
        }
        whole(&op([&[2], &[1]], [&[0], &[0]], to), &array(from, &[20, 70, 33], 1), &array(from, &[20, 33, 40], 2));
        whole(&op([&[2], &[1]], [&[0], &[0]], to), &array(from, &[0, 70, 33], 1), &array(from, &[0, 33, 40], 2));
        // Axes that do not merge, contracted and free, and a batch in any order.
        whole(
            &op([&[1, 3], &[3, 1]], [&[], &[]], to),
            &array(from, &[9, 5, 7, 11], 3),
            &array(from, &[6, 11, 8, 5], 4),
        );
        whole(
            &op([&[3], &[1]], [&[1, 0], &[2, 3]], to),
            &array(from, &[3, 2, 40, 50], 5),
            &array(from, &[36, 50, 2, 3], 6),
        );
    }
}

#[test]
fn operands_of_any_layout_agree_with_the_evaluator() {
    let mut stream = Stream::new(1);
    for round in 0..30 {
        let (from, to) = DTYPES[[0, 4, 7, 10, 11][round % 5]];
        let [m, k, n] = [0; 3].map(|_| 2 + stream.below(70));
        // A view with any strides of a larger array.
        let mut view = |shape: [usize; 2], seed| {
            let steps = [0; 2].map(|_| 1 + stream.below(2));
            let whole = array(from, &[shape[0] * steps[0] + 1, shape[1] * steps[1] + 2], seed);
            let limit = [1 + (shape[0] - 1) * steps[0] + 1, 2 + (shape[1] - 1) * steps[1] + 1];
            let mut layout = Layout::from(whole.aval()).sliced(&[1, 2], &limit, &steps);
            let axes: Vec<usize> = [0, 1].into_iter().filter(|_| stream.below(3) == 0).collect();
            layout = layout.reversed(&axes);
            (whole, layout)
        };
        let (l, l_layout) = view([m, k], 1);
        let (r, r_layout) = view([n, k], 2);
        agree(&op([&[1], &[1]], [&[], &[]], to), [(&l, &l_layout), (&r, &r_layout)]);
        let broadcast = l_layout.sliced(&[0, 0], &[1, k], &[1, 1]).broadcast(&[m, k], &[0, 1]);
        agree(&op([&[1], &[1]], [&[], &[]], to), [(&l, &broadcast), (&r, &r_layout)]);
    }
}

#[test]
fn the_order_of_sums_depends_on_shapes_alone() {
    for (dtype, kind) in
        [(DType::Bf16, Kind::Bf16), (DType::F16, Kind::F16), (DType::F32, Kind::SplitF32), (DType::F16, Kind::SplitF16)]
    {
        the_order_of_sums_of(dtype, kind);
    }
}

fn the_order_of_sums_of(dtype: DType, kind: Kind) {
    let mut stream = Stream::new(2);
    for (m, k, n) in [(40, 70, 50), (33, 700, 70), (20, 5, 17)] {
        let rough = |shape: &[usize], stream: &mut Stream| crate::test_support::rough(dtype, shape, stream);
        let (l, r) = (rough(&[m, k], &mut stream), rough(&[n, k], &mut stream));
        let out = Aval::new(DType::F32, [m, n]);
        for unit in Unit::all(kind) {
            let product = |op: &DotGeneral, [l, r]: [&Array; 2], out: &Aval| {
                let layouts = [l, r].map(|x| Layout::from(x.aval()));
                let dot = Dot::new(op, [(dtype, &layouts[0]), (dtype, &layouts[1])], out);
                let kernel = NarrowKernel::new(SMALL, unit, kind, dot);
                run(&kernel, &[l.clone(), r.clone()], std::slice::from_ref(out), None, &threads(1)).remove(0)
            };
            let one = product(&op([&[1], &[1]], [&[], &[]], DType::F32), [&l, &r], &out);
            let [l_transposed, r_transposed] = [&l, &r].map(|x| elements(x, &Layout::from(x.aval()).permuted(&[1, 0])));
            let other = product(&op([&[0], &[0]], [&[], &[]], DType::F32), [&l_transposed, &r_transposed], &out);
            assert_same(&other, &one, "transposed operands");
            let exchanged =
                product(&op([&[1], &[1]], [&[], &[]], DType::F32), [&r, &l], &Aval::new(DType::F32, [n, m]));
            let exchanged = elements(&exchanged, &Layout::from(exchanged.aval()).permuted(&[1, 0]));
            assert_same(&exchanged, &one, "exchanged operands");
        }
    }
}

/// Whole products, of infinities, of what is not a number, and of numbers that are larger than every bf16.
#[test]
fn products_that_are_not_finite_are_those_of_f32() {
    let (m, k, n) = (70, 150, 40);
    let [mut x, mut y] = [vec![0.5f32; m * k], vec![0.25f32; k * n]];
    (x[3], x[k + 140], x[5 * k], y[7]) = (f32::INFINITY, f32::NAN, f32::MAX, f32::NEG_INFINITY);
    // Twice the largest number less its half does not overflow when summed in order.
    (x[6 * k], x[6 * k + 1], y[0], y[n]) = (f32::MAX, f32::MAX, 1.0, -1.0);
    let arrays = [([m, k], x), ([k, n], y)].map(|(shape, x)| Array::from_vec(x, shape).expect("as many elements"));
    let layouts = [0, 1].map(|i| Layout::from(arrays[i].aval()));
    let op = op([&[1], &[0]], [&[], &[]], DType::F32);
    let out = Aval::new(DType::F32, [m, n]);
    let expected = eval_op(&Op::from(op.clone()), &arrays).expect("shapes that fit");
    for unit in Unit::all(Kind::SplitF32) {
        let dot = Dot::new(&op, [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])], &out);
        let kernel = NarrowKernel::new(SMALL, unit, Kind::SplitF32, dot);
        let result = run(&kernel, &arrays, std::slice::from_ref(&out), None, &threads(2)).remove(0);
        assert_close(&result, &expected[0], 1e-5, 1.0, "special numbers");
    }
}
