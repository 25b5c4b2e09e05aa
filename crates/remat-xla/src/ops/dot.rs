//! The matrix product, and the dtypes in which products are computed.

use remat_ir::{Aval, DType, DotGeneral};

use super::convert::convert_element_type;
use crate::options::Platform;
use crate::value::Value;
use crate::writer::Writer;

/// The dtypes of operands and of the sum of their products, for operands of one dtype and a result of another.
///
/// f16 and bf16 are multiplied as they are and summed in f32. Integers wrap, so they can be truncated to the dtype of the result before
/// they are multiplied; integers that are summed in a float use f64, which represents all 32 bits. Bools are zeros and ones, whose sum is
/// not zero if one of their products is not.
pub(super) fn accumulator(from: DType, to: DType) -> (DType, DType) {
    if to == DType::Bool {
        (DType::F32, DType::F32)
    } else if !to.is_float() {
        (to, to)
    } else if !from.is_float() || from == DType::F64 || to == DType::F64 {
        (DType::F64, DType::F64)
    } else {
        (from, DType::F32)
    }
}

pub(super) fn dot_general(w: &mut Writer, op: &DotGeneral, [lhs, rhs]: &[Value; 2], out: &Aval) -> Value {
    let (operand, mut sum) = accumulator(lhs.dtype(), out.dtype);
    // The matrix units of TPUs sum in f32 whatever the dtype of the result. A product that is cut along its contracted axis is exchanged
    // between chips: in f32 it would be twice as large, and be whole on each chip for a while.
    if w.options.platform == Platform::Tpu && operand == out.dtype {
        sum = operand;
    }
    let (lhs, rhs) = (convert_element_type(w, lhs, operand), convert_element_type(w, rhs, operand));
    let batch = if op.lhs_batch.is_empty() {
        String::new()
    } else {
        format!("batching_dims = {:?} x {:?}, ", op.lhs_batch, op.rhs_batch)
    };
    let precision = w.options.precision.word();
    let text = format!(
        "stablehlo.dot_general {lhs}, {rhs}, {batch}contracting_dims = {:?} x {:?}, precision = [{precision}, {precision}]",
        op.lhs_contract, op.rhs_contract
    );
    let product = w.apply(text, &[&lhs, &rhs], out.with_dtype(sum));
    convert_element_type(w, &product, out.dtype)
}
