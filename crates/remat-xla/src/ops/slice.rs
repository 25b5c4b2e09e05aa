//! Slices with dynamic starts. StableHLO clamps them as remat does.

use remat_ir::{DType, Error, ErrorKind, Literal, Result};

use crate::value::{Value, comma_separated};
use crate::writer::Writer;

pub(crate) fn dynamic_slice(w: &mut Writer, ins: &[Value], sizes: &[usize]) -> Result<Value> {
    let (x, starts) = ins.split_first().ok_or_else(no_operand)?;
    let starts = indices(w, starts, x.shape());
    let operands: Vec<&Value> = std::iter::once(x).chain(&starts).collect();
    let text = format!("stablehlo.dynamic_slice {}, sizes = {sizes:?}", comma_separated(&operands));
    Ok(w.apply(text, &operands, x.aval.with_shape(sizes.iter().copied())))
}

pub(crate) fn dynamic_update_slice(w: &mut Writer, ins: &[Value]) -> Result<Value> {
    let [x, update, starts @ ..] = ins else { return Err(no_operand()) };
    if update.aval.size() == 0 {
        return Ok(x.clone());
    }
    let starts = indices(w, starts, x.shape());
    let operands: Vec<&Value> = [x, update].into_iter().chain(&starts).collect();
    let text = format!("stablehlo.dynamic_update_slice {}", comma_separated(&operands));
    Ok(w.apply(text, &operands, x.aval.clone()))
}

fn indices(w: &mut Writer, starts: &[Value], shape: &[usize]) -> Vec<Value> {
    starts.iter().map(|start| index(w, start, shape)).collect()
}

/// An index into an array of this shape as an i32 or i64 of the same value, wide enough for every bound of a dimension. A `u64` beyond the
/// range of i64 is beyond every size, and so is its bound.
pub(super) fn index(w: &mut Writer, x: &Value, shape: &[usize]) -> Value {
    let fits_i32 = shape.iter().all(|&size| i32::try_from(size).is_ok());
    match x.dtype() {
        DType::U64 => {
            let most = w.constant(Literal::from_i128(DType::U64, i64::MAX.into()), x.shape());
            let x = w.binary("minimum", x, &most);
            w.convert(&x, DType::I64)
        }
        DType::U32 | DType::I64 => w.convert(x, DType::I64),
        _ => w.convert(x, if fits_i32 { DType::I32 } else { DType::I64 }),
    }
}

fn no_operand() -> Error {
    Error::new(ErrorKind::Internal, "dynamic_slice", "operands were not checked")
}
