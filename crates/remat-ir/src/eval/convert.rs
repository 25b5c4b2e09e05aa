//! Conversions.

use half::{bf16, f16};

use super::internal;
use crate::literal::round_to_odd;
use crate::{
    Array, BitcastConvertType, ConvertElementType, DType, Data, Element, Literal, ReducePrecision, Result, with_dtype,
};

/// Converts each element.
pub(super) fn convert_element_type(op: &ConvertElementType, ins: Vec<Array>) -> Result<Array> {
    let [x] = super::operands("convert_element_type", ins)?;
    if x.dtype() == op.dtype {
        return Ok(x);
    }
    let aval = x.aval().with_dtype(op.dtype);
    Array::new(aval, converted(x.data(), op.dtype))
}

/// Each element converted to a dtype.
pub(super) fn converted(data: &Data, dtype: DType) -> Data {
    with_dtype!(data.dtype(), S => {
        let from = S::slice(data).unwrap_or_default();
        written(dtype, from.len(), &|i| from[i].into_value())
    })
}

/// Converts values to elements of a dtype.
fn written(dtype: DType, len: usize, value: &dyn Fn(usize) -> Value) -> Data {
    with_dtype!(dtype, T => T::wrap((0..len).map(|i| T::from_value(value(i))).collect()))
}

/// Reads the same bytes as another dtype.
pub(super) fn bitcast_convert_type(op: &BitcastConvertType, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    if x.dtype() == op.dtype {
        return Ok(x.clone());
    }
    let mut shape = x.aval().shape.clone();
    if op.dtype.size() < x.dtype().size() {
        shape.push(x.dtype().size() / op.dtype.size());
    } else if op.dtype.size() > x.dtype().size() {
        shape.pop();
    }
    Array::new(x.aval().with_shape(shape).with_dtype(op.dtype), from_bytes(op.dtype, &to_bytes(x.data())))
}

/// Rounds each element to fewer bits: first the mantissa, half to even. Then values too large for the exponent become infinite, and values
/// that would be subnormal become zero. A format without a mantissa has no NaN, which becomes infinite. XLA computes the same.
pub(super) fn reduce_precision(op: &ReducePrecision, ins: &[Array]) -> Result<Array> {
    let x = &ins[0];
    let Some((exponent, mantissa)) = x.dtype().float_format() else { return internal("reduce_precision", x) };
    let round = |bits: u64| reduce_bits(bits, exponent, mantissa, op);
    let data = match x.data() {
        Data::F16(v) => Data::F16(v.iter().map(|x| f16::from_bits(round(x.to_bits().into()) as u16)).collect()),
        Data::Bf16(v) => Data::Bf16(v.iter().map(|x| bf16::from_bits(round(x.to_bits().into()) as u16)).collect()),
        Data::F32(v) => Data::F32(v.iter().map(|x| f32::from_bits(round(x.to_bits().into()) as u32)).collect()),
        Data::F64(v) => Data::F64(v.iter().map(|x| f64::from_bits(round(x.to_bits()))).collect()),
        Data::Bool(_) | Data::I8(_) | Data::I16(_) | Data::I32(_) | Data::I64(_) => {
            return internal("reduce_precision", x);
        }
        Data::U8(_) | Data::U16(_) | Data::U32(_) | Data::U64(_) => return internal("reduce_precision", x),
    };
    Array::new(x.aval().clone(), data)
}

fn reduce_bits(bits: u64, exponent: u32, mantissa: u32, to: &ReducePrecision) -> u64 {
    let sign = bits & (1 << (exponent + mantissa));
    let exponent_mask = ((1 << exponent) - 1) << mantissa;
    let infinity = sign | exponent_mask;
    let magnitude = bits ^ sign;
    if magnitude > exponent_mask {
        return if to.mantissa_bits == 0 { infinity } else { bits };
    }
    let mut rounded = magnitude;
    if to.mantissa_bits < mantissa && magnitude < exponent_mask {
        let unit = 1u64 << (mantissa - to.mantissa_bits);
        let odd = u64::from(magnitude & unit != 0);
        rounded = (magnitude + (unit / 2 - 1) + odd) & !(unit - 1);
    }
    if to.exponent_bits < exponent {
        let bias = (1u64 << (exponent - 1)) - 1;
        let to_bias = (1u64 << (to.exponent_bits - 1)) - 1;
        if rounded & exponent_mask > (bias + to_bias) << mantissa {
            return infinity;
        }
        if rounded & exponent_mask <= (bias - to_bias) << mantissa {
            return sign;
        }
    }
    sign | rounded
}

/// An intermediate value of a conversion: an i128 holds every integer exactly, an f64 every float. So there is one loop for each dtype to
/// read and one for each to write, not one for each pair of them.
#[derive(Clone, Copy)]
enum Value {
    /// An integer; a bool as 0 or 1.
    Integer(i128),
    Float(f64),
}

/// An element type that converts to and from a [`Value`]. Rust's `as` truncates floats and saturates them, makes NaN zero, and
/// wraps integers.
trait Convert {
    fn into_value(self) -> Value;
    fn from_value(value: Value) -> Self;
}

macro_rules! convert {
    ($($type:ty, |$x:ident| $value:expr, |$integer:ident| $from_integer:expr, |$float:ident| $from_float:expr;)*) => { $(
        impl Convert for $type {
            fn into_value(self) -> Value {
                let $x = self;
                $value
            }
            fn from_value(value: Value) -> $type {
                match value {
                    Value::Integer($integer) => $from_integer,
                    Value::Float($float) => $from_float,
                }
            }
        }
    )* };
}

convert! {
    bool, |x| Value::Integer(x.into()), |i| i != 0, |x| x != 0.0;
    i8, |x| Value::Integer(x.into()), |i| i as i8, |x| x as i8;
    i16, |x| Value::Integer(x.into()), |i| i as i16, |x| x as i16;
    i32, |x| Value::Integer(x.into()), |i| i as i32, |x| x as i32;
    i64, |x| Value::Integer(x.into()), |i| i as i64, |x| x as i64;
    u8, |x| Value::Integer(x.into()), |i| i as u8, |x| x as u8;
    u16, |x| Value::Integer(x.into()), |i| i as u16, |x| x as u16;
    u32, |x| Value::Integer(x.into()), |i| i as u32, |x| x as u32;
    u64, |x| Value::Integer(x.into()), |i| i as u64, |x| x as u64;
    f16, |x| Value::Float(x.into()), |i| f16::from_f32(round_to_odd(sticky(i))), |x| f16::from_f32(round_to_odd(x));
    bf16, |x| Value::Float(x.into()), |i| bf16::from_f32(round_to_odd(sticky(i))), |x| bf16::from_f32(round_to_odd(x));
    f32, |x| Value::Float(x.into()), |i| i as f32, |x| x as f32;
    f64, |x| Value::Float(x), |i| i as f64, |x| x;
}

/// An f64 that rounds to every smaller format as this integer of at most 64 bits and a sign does: the bits that do not fit are combined in
/// the last bit.
fn sticky(x: i128) -> f64 {
    let magnitude = x.unsigned_abs();
    if magnitude < 1 << 53 {
        return x as f64;
    }
    let low = u128::from(magnitude & 0xFFF != 0) << 12;
    let rounded = ((magnitude & !0xFFF) | low) as f64;
    if x < 0 { -rounded } else { rounded }
}

fn to_bytes(data: &Data) -> Vec<u8> {
    let size = data.dtype().size();
    let mut bytes = Vec::with_capacity(data.len() * size);
    for literal in (0..data.len()).filter_map(|i| data.get(i)) {
        bytes.extend_from_slice(&literal.bits().to_le_bytes()[..size]);
    }
    bytes
}

fn from_bytes(dtype: DType, bytes: &[u8]) -> Data {
    with_dtype!(dtype, T => {
        let element = |bytes: &[u8]| {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            T::from_literal(Literal::from_bits(dtype, u64::from_le_bytes(bits))).unwrap_or_default()
        };
        T::wrap(bytes.chunks_exact(dtype.size()).map(element).collect())
    })
}
