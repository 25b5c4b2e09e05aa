//! The values and the shape rules of the reference evaluator.

mod control;
mod convert;
mod elementwise;
mod memory;
mod random;
mod reduce;
mod rules;
mod sort;

use remat_ir::{Array, DType, Data, Element, Op, bf16, eval_op, f16};

/// A vector.
fn vec1<T: Element>(values: &[T]) -> Array {
    Array::from_vec(values.to_vec(), [values.len()]).unwrap()
}

/// The values converted to a dtype; they are exact in it.
fn cast(dtype: DType, values: &[f64]) -> Array {
    let data = match dtype {
        DType::Bool => Data::Bool(values.iter().map(|&x| x != 0.0).collect()),
        DType::I8 => Data::I8(values.iter().map(|&x| x as i8).collect()),
        DType::I16 => Data::I16(values.iter().map(|&x| x as i16).collect()),
        DType::I32 => Data::I32(values.iter().map(|&x| x as i32).collect()),
        DType::I64 => Data::I64(values.iter().map(|&x| x as i64).collect()),
        DType::U8 => Data::U8(values.iter().map(|&x| x as u8).collect()),
        DType::U16 => Data::U16(values.iter().map(|&x| x as u16).collect()),
        DType::U32 => Data::U32(values.iter().map(|&x| x as u32).collect()),
        DType::U64 => Data::U64(values.iter().map(|&x| x as u64).collect()),
        DType::F16 => Data::F16(values.iter().map(|&x| f16::from_f32(x as f32)).collect()),
        DType::Bf16 => Data::Bf16(values.iter().map(|&x| bf16::from_f32(x as f32)).collect()),
        DType::F32 => Data::F32(values.iter().map(|&x| x as f32).collect()),
        DType::F64 => Data::F64(values.to_vec()),
    };
    Array::new(remat_ir::Aval::new(dtype, [values.len()]), data).unwrap()
}

/// The elements as f64.
fn numbers(array: &Array) -> Vec<f64> {
    (0..array.data().len()).map(|i| array.data().get(i).unwrap().as_f64()).collect()
}

/// The only result.
fn run(op: impl Into<Op>, ins: &[Array]) -> Array {
    let mut outs = eval_op(&op.into(), ins).unwrap();
    assert_eq!(outs.len(), 1);
    outs.remove(0)
}

/// The message of the error.
fn error(op: impl Into<Op>, ins: &[Array]) -> String {
    eval_op(&op.into(), ins).unwrap_err().to_string()
}

/// Asserts bit equality but for NaNs, which equal each other.
#[track_caller]
fn assert_same(got: &Array, dtype: DType, want: &[f64]) {
    assert_eq!(got.dtype(), dtype);
    let got = numbers(got);
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    assert!(got.len() == want.len() && got.iter().zip(want).all(|(&a, &b)| same(a, b)), "{got:?} is not {want:?}");
}

/// Asserts that values differ by a few units in the last place of their dtype at most.
#[track_caller]
fn assert_close(got: &Array, want: &[f64]) {
    let epsilon = match got.dtype() {
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        DType::F32 => 2f64.powi(-22),
        _ => 1e-14,
    };
    let values = numbers(got);
    assert_eq!(values.len(), want.len());
    for (&a, &b) in values.iter().zip(want) {
        let close = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= epsilon * b.abs().max(1e-3);
        assert!(close, "{:?}: {values:?} is not {want:?}", got.dtype());
    }
}

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];
const SIGNED: [DType; 4] = [DType::I8, DType::I16, DType::I32, DType::I64];
const UNSIGNED: [DType; 4] = [DType::U8, DType::U16, DType::U32, DType::U64];
