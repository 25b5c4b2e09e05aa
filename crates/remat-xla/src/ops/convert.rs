//! Conversions between dtypes.

use remat_ir::{Aval, DType, Literal, ReducePrecision};

use crate::value::Value;
use crate::writer::Writer;

/// Float to integer truncates and saturates, NaN is 0; anything to bool is `!= 0`; integer to integer wraps.
pub(super) fn convert_element_type(w: &mut Writer, x: &Value, to: DType) -> Value {
    let from = x.dtype();
    if from == to {
        return x.clone();
    }
    if to == DType::Bool {
        let zero = w.splat(x, 0.0);
        return w.compare("NE", x, &zero);
    }
    if from.is_float() && to.is_integer() {
        return float_to_integer(w, x, to);
    }
    let is_wide = from.bits() >= 32 && from != DType::F32;
    if is_wide && matches!(to, DType::F16 | DType::Bf16) {
        let x = odd_f64(w, x);
        let x = odd_f32(w, &x);
        return w.convert(&x, to);
    }
    w.convert(x, to)
}

/// A wide number as f64. An integer that f64 cannot represent becomes the neighbour whose last bit is set, so that rounding it to fewer
/// bits equals rounding the integer. XLA rounds to f32 on the way to f16 and bf16, and would round twice.
fn odd_f64(w: &mut Writer, x: &Value) -> Value {
    if x.dtype().bits() < 64 || x.dtype().is_float() {
        return w.convert(x, DType::F64);
    }
    // The last 11 of 64 bits exceed the 53 bits of an f64.
    let (last, step) = ((1 << 11) - 1, 1 << 11);
    let (zero, last, kept) = (w.splat_integer(x, 0), w.splat_integer(x, last), w.splat_integer(x, !last));
    let (past, kept) = (w.binary("and", x, &last), w.binary("and", x, &kept));
    let step = w.splat_integer(x, step);
    let odd = w.binary("or", &kept, &step);
    let is_exact = w.compare("EQ", &past, &zero);
    let rounded = w.select(&is_exact, &kept, &odd);
    // Smaller ones are already exact.
    let bound = 1 << 53;
    let most = w.splat_integer(x, bound);
    let mut is_small = w.compare("LE", x, &most);
    if x.dtype().is_signed() {
        let least = w.splat_integer(x, -bound);
        let is_above = w.compare("GE", x, &least);
        is_small = w.binary("and", &is_small, &is_above);
    }
    let x = w.select(&is_small, x, &rounded);
    w.convert(&x, DType::F64)
}

/// An f64 as f32. If f32 cannot represent it, the result is the neighbour whose last bit is set.
fn odd_f32(w: &mut Writer, x: &Value) -> Value {
    let nearest = w.convert(x, DType::F32);
    let back = w.convert(&nearest, DType::F64);
    let (size, rounded) = (w.unary("abs", x), w.unary("abs", &back));
    let (is_larger, is_smaller) = (w.compare("GT", &rounded, &size), w.compare("LT", &rounded, &size));
    // The next float towards zero has the preceding bit pattern; for infinity this is the largest number.
    let pattern = bitcast_convert_type(w, &nearest, &x.aval.with_dtype(DType::U32));
    let one = w.splat_integer(&pattern, 1);
    let before = w.binary("subtract", &pattern, &one);
    let truncated = w.select(&is_larger, &before, &pattern);
    let odd = w.binary("or", &truncated, &one);
    let is_inexact = w.binary("or", &is_larger, &is_smaller);
    let pattern = w.select(&is_inexact, &odd, &pattern);
    bitcast_convert_type(w, &pattern, &nearest.aval)
}

/// Float to integer. The bounds of the integer are compared as floats, since StableHLO leaves floats out of range open.
fn float_to_integer(w: &mut Writer, x: &Value, to: DType) -> Value {
    // f16 cannot represent the bounds of wide integers, and f32 represents those of narrow ones exactly.
    let x = &w.widen(x);
    let bits = to.bits() as i32 - i32::from(to.is_signed());
    // Powers of two, which every float of at least f32 represents: the first integer that is too large, and the smallest that is not too
    // small.
    let (above, lowest) = (2f64.powi(bits), if to.is_signed() { -(2f64.powi(bits)) } else { 0.0 });
    let (above, lowest) = (w.splat(x, above), w.splat(x, lowest));
    let (is_above, is_below) = (w.compare("GE", x, &above), w.compare("LT", x, &lowest));
    let is_nan = w.is_nan(x);
    // The converted number is in range.
    let zero = w.splat(x, 0.0);
    let outside = w.binary("or", &is_above, &is_below);
    let outside = w.binary("or", &outside, &is_nan);
    let inside = w.select(&outside, &zero, x);
    let value = w.convert(&inside, to);
    let (max, min) = (2i128.pow(bits as u32) - 1, if to.is_signed() { -(2i128.pow(bits as u32)) } else { 0 });
    let (max, min) = (w.splat_integer(&value, max), w.splat_integer(&value, min));
    let value = w.select(&is_above, &max, &value);
    w.select(&is_below, &min, &value)
}

pub(super) fn bitcast_convert_type(w: &mut Writer, x: &Value, out: &Aval) -> Value {
    if x.dtype() == out.dtype {
        return x.clone();
    }
    w.apply(format!("stablehlo.bitcast_convert {x}"), &[x], out.clone())
}

/// A format that is wider than the dtype changes nothing; its bits are limited to those that StableHLO accepts.
pub(super) fn reduce_precision(w: &mut Writer, op: &ReducePrecision, x: &Value) -> Value {
    let (own_exponent, own_mantissa) = x.dtype().float_format().unwrap_or((11, 52));
    let (exponent, mantissa) = (op.exponent_bits.min(own_exponent), op.mantissa_bits.min(own_mantissa));
    let rounded = w.unary_with("reduce_precision", x, &format!("format = e{exponent}m{mantissa}"));
    if mantissa > 0 {
        return rounded;
    }
    // A format without mantissa bits has no NaN; it becomes an infinity of the same sign.
    let (integer, bits) = match x.dtype() {
        DType::F64 => (DType::U64, 64),
        DType::F32 => (DType::U32, 32),
        _ => (DType::U16, 16),
    };
    let sign_and_exponent = ((1 << (own_exponent + 1)) - 1) << (bits - own_exponent - 1);
    let pattern = bitcast_convert_type(w, x, &x.aval.with_dtype(integer));
    let mask = w.constant(Literal::from_bits(integer, sign_and_exponent), x.shape());
    let pattern = w.binary("and", &pattern, &mask);
    let infinity = bitcast_convert_type(w, &pattern, &x.aval);
    let is_nan = w.is_nan(x);
    w.select(&is_nan, &infinity, &rounded)
}
