use remat_ir::{Array, DType, DotGeneral, MemorySpace, Param, bf16, f16};

use crate::support::{Stream, array, aval, fails, floats, indices, position, run, values};

fn dot(contract: (&[usize], &[usize]), batch: (&[usize], &[usize]), preferred: DType) -> DotGeneral {
    DotGeneral {
        lhs_contract: contract.0.into(),
        rhs_contract: contract.1.into(),
        lhs_batch: batch.0.into(),
        rhs_batch: batch.1.into(),
        preferred_element_type: preferred,
    }
}

fn matmul(preferred: DType) -> DotGeneral {
    dot((&[1], &[0]), (&[], &[]), preferred)
}

/// The definition, one element at a time, on integers.
fn defined(op: &DotGeneral, lhs: &Array, rhs: &Array) -> Vec<f64> {
    let (x, y) = (floats(lhs), floats(rhs));
    let free = |shape: &[usize], fixed: [&[usize]; 2]| -> Vec<usize> {
        (0..shape.len()).filter(|d| !fixed.concat().contains(d)).collect()
    };
    let lhs_free = free(lhs.shape(), [&op.lhs_batch, &op.lhs_contract]);
    let rhs_free = free(rhs.shape(), [&op.rhs_batch, &op.rhs_contract]);
    let sizes = |shape: &[usize], dims: &[usize]| dims.iter().map(|&d| shape[d]).collect::<Vec<_>>();
    let batch = indices(&sizes(lhs.shape(), &op.lhs_batch));
    let contract = indices(&sizes(lhs.shape(), &op.lhs_contract));
    let mut out = vec![];
    for b in &batch {
        for i in indices(&sizes(lhs.shape(), &lhs_free)) {
            for j in indices(&sizes(rhs.shape(), &rhs_free)) {
                let term = |k: &Vec<usize>| {
                    let (mut l, mut r) = (vec![0; lhs.shape().len()], vec![0; rhs.shape().len()]);
                    let set = |index: &mut Vec<usize>, dims: &[usize], values: &[usize]| {
                        dims.iter().zip(values).for_each(|(&d, &v)| index[d] = v);
                    };
                    set(&mut l, &op.lhs_batch, b);
                    set(&mut l, &lhs_free, &i);
                    set(&mut l, &op.lhs_contract, k);
                    set(&mut r, &op.rhs_batch, b);
                    set(&mut r, &rhs_free, &j);
                    set(&mut r, &op.rhs_contract, k);
                    x[position(lhs.shape(), &l)] * y[position(rhs.shape(), &r)]
                };
                out.push(contract.iter().map(term).sum());
            }
        }
    }
    out
}

#[test]
fn a_matrix_product_by_hand_in_every_dtype() {
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
        let x = crate::support::of_dtype(dtype, [1, 2, 3, 4, 5, 6], &[2, 3]);
        let y = crate::support::of_dtype(dtype, [1, 0, 2, 1, 0, 3], &[3, 2]);
        let z = run(matmul(dtype), &[x, y]);
        assert_eq!(z.dtype(), dtype);
        assert_eq!(floats(&z), [5., 11., 14., 23.], "{dtype}");
    }
    let x = array([true, false, true, false, false, true], &[2, 3]);
    let y = array([true, true, false], &[3, 1]);
    assert_eq!(values::<bool>(matmul(DType::Bool), &[x.clone(), y.clone()]), [true, false]);
    let two = array([true, true, true], &[3, 1]);
    assert_eq!(values::<i32>(matmul(DType::I32), &[x.clone(), two.clone()]), [2, 1]);
    assert_eq!(values::<f32>(matmul(DType::F32), &[x, two]), [2., 1.]);
}

#[test]
fn every_arrangement_of_dimensions() {
    let mut stream = Stream::new(3);
    for round in 0..300 {
        let (batch, contract) = (stream.below(3), stream.below(3));
        let (left, right) = (batch + contract + stream.below(3), batch + contract + stream.below(3));
        let (p, q) = (stream.permutation(left), stream.permutation(right));
        let mut size = || if round % 10 == 0 { stream.below(3) } else { 1 + stream.below(4) };
        let mut lhs_shape: Vec<usize> = (0..left).map(|_| size()).collect();
        let rhs_shape: Vec<usize> = (0..right).map(|_| size()).collect();
        for i in 0..batch + contract {
            lhs_shape[p[i]] = rhs_shape[q[i]];
        }
        let split = batch + contract;
        let op = |d| dot((&p[batch..split], &q[batch..split]), (&p[..batch], &q[..batch]), d);
        for dtype in [DType::F32, DType::F64, DType::Bf16, DType::I16, DType::I64] {
            let (x, y) = (stream.array(dtype, &lhs_shape), stream.array(dtype, &rhs_shape));
            let preferred = if dtype == DType::Bf16 { DType::F32 } else { dtype };
            let op = op(preferred);
            assert_eq!(floats(&run(op.clone(), &[x.clone(), y.clone()])), defined(&op, &x, &y), "{op:?} {x:?} {y:?}");
        }
    }
}

#[test]
fn a_product_that_is_large_enough_for_blocked_kernels() {
    let mut stream = Stream::new(4);
    let (x, y) = (stream.array(DType::F32, &[3, 70, 65]), stream.array(DType::F32, &[3, 75, 65]));
    let op = dot((&[2], &[2]), (&[0], &[0]), DType::F32);
    assert_eq!(floats(&run(op.clone(), &[x.clone(), y.clone()])), defined(&op, &x, &y));
}

#[test]
fn empty_products() {
    let none = [array::<f32>([], &[2, 0]), array::<f32>([], &[0, 3])];
    assert_eq!(values::<f32>(matmul(DType::F32), &none), [0.0; 6]);
    let none = [array::<i32>([], &[2, 0]), array::<i32>([], &[0, 3])];
    assert_eq!(values::<i32>(matmul(DType::I32), &none), [0; 6]);
    let rows = [array::<f32>([], &[0, 2]), array([1.0f32, 2.0], &[2, 1])];
    assert!(values::<f32>(matmul(DType::F32), &rows).is_empty());
    let batch = dot((&[1], &[1]), (&[0], &[0]), DType::F64);
    let ins = [array::<f64>([], &[0, 2]), array::<f64>([], &[0, 2])];
    assert!(values::<f64>(batch, &ins).is_empty());
    let scalars = [Array::scalar(3.0f32), Array::scalar(-2.0f32)];
    assert_eq!(values::<f32>(dot((&[], &[]), (&[], &[]), DType::F32), &scalars), [-6.0]);
}

#[test]
fn products_are_accumulated_wide_and_rounded_once() {
    // In bf16 each of these sums would stop at 256.
    let ones = array(vec![bf16::ONE; 1000], &[1000]);
    let op = |d| dot((&[0], &[0]), (&[], &[]), d);
    assert_eq!(values::<f32>(op(DType::F32), &[ones.clone(), ones.clone()]), [1000.0]);
    assert_eq!(values::<bf16>(op(DType::Bf16), &[ones.clone(), ones]), [bf16::from_f32(1000.0)]);
    let halves = array([f16::from_f32(60000.0), f16::from_f32(60000.0), f16::from_f32(-60000.0)], &[3]);
    let ones = array([f16::ONE; 3], &[3]);
    assert_eq!(values::<f16>(op(DType::F16), &[halves, ones]), [f16::from_f32(60000.0)]);
    // 2^24 + 1 is not an f32.
    let (x, y) = (array([16777216.0f32, 1.0], &[2]), array([1.0f32, 1.0], &[2]));
    assert_eq!(values::<f64>(op(DType::F64), &[x, y]), [16777217.0]);
    let (x, y) = (array([16777217i32, -16777216], &[2]), array([1i32, 1], &[2]));
    assert_eq!(values::<f32>(op(DType::F32), &[x, y]), [1.0]);
    // A little more than halfway between two numbers, which a rounding to f32 would hide.
    let one = array([1.0f64], &[1]);
    let above_tie = |bits: i32| array([1.0 + 2f64.powi(-bits) + 1e-15], &[1]);
    assert_eq!(values::<bf16>(op(DType::Bf16), &[above_tie(8), one.clone()]), [bf16::from_f32(1.0 + 2f32.powi(-7))]);
    assert_eq!(values::<f16>(op(DType::F16), &[above_tie(11), one]), [f16::from_f32(1.0 + 2f32.powi(-10))]);
}

#[test]
fn integers_wrap() {
    let op = |d| dot((&[0], &[0]), (&[], &[]), d);
    assert_eq!(values::<u8>(op(DType::U8), &[array([200u8, 3], &[2]), array([2u8, 1], &[2])]), [147]);
    assert_eq!(values::<i32>(op(DType::I32), &[array([200u8, 3], &[2]), array([2u8, 1], &[2])]), [403]);
    assert_eq!(values::<i8>(op(DType::I8), &[array([-128i8], &[1]), array([-1i8], &[1])]), [-128]);
    assert_eq!(values::<u64>(op(DType::U64), &[array([u64::MAX], &[1]), array([u64::MAX], &[1])]), [1]);
}

#[test]
fn nan_and_infinity_stay() {
    let x = array([f32::NAN, 1.0, f32::INFINITY, 0.0], &[2, 2]);
    let y = array([0.0f32, 1.0], &[2, 1]);
    let z = values::<f32>(matmul(DType::F32), &[x, y]);
    assert!(z[0].is_nan() && z[1].is_nan());
}

#[test]
fn dot_general_checks_its_operands() {
    let (x, y) = (aval("f32[3,4]"), aval("f32[5,6]"));
    assert_eq!(
        fails(matmul(DType::F32), &[x.clone(), y.clone()]),
        "dot_general: contracting dimensions differ: 4 of f32[3,4] and 5 of f32[5,6]"
    );
    let op = dot((&[1], &[1]), (&[0], &[0]), DType::F32);
    assert!(fails(op, &[x.clone(), y.clone()]).contains("4 of f32[3,4] and 6 of f32[5,6]"));
    let op = dot((&[], &[]), (&[0], &[0]), DType::F32);
    assert!(fails(op, &[x.clone(), y.clone()]).contains("batch dimensions differ: 3 of f32[3,4] and 5 of f32[5,6]"));
    let op = dot((&[1], &[]), (&[], &[]), DType::F32);
    assert!(fails(op, &[x.clone(), y.clone()]).contains("f32[3,4] has 1 contracting dimension and f32[5,6] has 0"));
    let op = dot((&[1], &[0]), (&[1], &[1]), DType::F32);
    assert!(fails(op, &[x.clone(), y.clone()]).contains("[1, 1] has axis 1 twice"));
    let op = dot((&[2], &[0]), (&[], &[]), DType::F32);
    assert!(fails(op, &[x.clone(), y.clone()]).contains("axis 2, which rank 2 does not have"));
    assert!(fails(matmul(DType::F32), &[x.clone(), aval("bf16[4,2]")]).contains("different dtypes"));
    assert!(fails(matmul(DType::I32), &[x.clone(), y]).contains("products of f32 cannot be summed in i32"));
    let host = aval("f32[4,2]").in_memory(MemorySpace::Host);
    assert!(fails(matmul(DType::F32), &[x, host]).contains("different memory spaces"));
    let (wide, tall) = (aval("i8[4294967296,0]"), aval("i8[0,4294967296]"));
    assert!(fails(matmul(DType::I8), &[wide, tall]).contains("has more than 2^63 elements"));
}

#[test]
fn dimension_numbers_print_contracting_dimensions_first() {
    let op = remat_ir::Op::from(dot((&[1], &[0]), (&[], &[]), DType::F32));
    let list = |dims: &[i64]| Param::List(dims.iter().map(|&d| Param::Int(d)).collect());
    let contract = Param::Tuple(vec![list(&[1]), list(&[0])]);
    let batch = Param::Tuple(vec![list(&[]), list(&[])]);
    let expected = [
        ("dimension_numbers", Param::Tuple(vec![contract, batch])),
        ("preferred_element_type", Param::DType(DType::F32)),
    ];
    assert_eq!(op.params(), expected);
}
