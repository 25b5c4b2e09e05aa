//! Operations that move elements.

use remat_ir::{Aval, DType, Iota, Pad, Rev, Transpose};

use crate::value::Value;
use crate::writer::Writer;

pub(super) fn transpose(w: &mut Writer, op: &Transpose, x: &Value, out: &Aval) -> Value {
    w.apply(format!("stablehlo.transpose {x}, dims = {:?}", op.permutation), &[x], out.clone())
}

pub(super) fn rev(w: &mut Writer, op: &Rev, x: &Value) -> Value {
    w.unary_with("reverse", x, &format!("dims = {:?}", op.axes))
}

pub(super) fn pad(w: &mut Writer, op: &Pad, [x, value]: &[Value; 2], out: &Aval) -> Value {
    w.pad(x, value, &op.config, out.clone())
}

/// The indices. If the dtype cannot represent all of them, they are converted from i64: integers wrap, and floats are rounded once.
pub(super) fn iota(w: &mut Writer, op: &Iota) -> Value {
    let bits = match op.dtype.float_format() {
        Some((_, mantissa)) => mantissa as usize + 1,
        None => op.dtype.bits() - usize::from(op.dtype.is_signed()),
    };
    let fits = op.shape[op.axis].saturating_sub(1).checked_shr(bits as u32).unwrap_or(0) == 0;
    if fits {
        return w.iota(op.dtype, op.axis, &op.shape);
    }
    let indices = w.iota(DType::I64, op.axis, &op.shape);
    w.convert(&indices, op.dtype)
}
