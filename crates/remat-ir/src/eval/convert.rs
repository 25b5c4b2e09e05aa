//! Conversions.

use half::{bf16, f16};

use super::{elements, internal};
use crate::literal::round_to_odd;
use crate::{Array, BitcastConvertType, ConvertElementType, DType, Data, Element, ReducePrecision, Result, with_dtype};

/// Converts each element.
pub(super) fn convert_element_type(op: &ConvertElementType, ins: Vec<Array>) -> Result<Array> {
    let [x] = super::operands("convert_element_type", ins)?;
    if x.dtype() == op.dtype {
        return Ok(x);
    }
    let aval = x.aval().with_dtype(op.dtype);
    with_dtype!(x.dtype(), S => {
        let from = elements::<S>(&x)?;
        let data = match op.dtype {
            DType::Bool => Data::Bool(from.iter().map(|x| x.to_bool()).collect()),
            DType::I8 => Data::I8(from.iter().map(|x| x.to_i8()).collect()),
            DType::I16 => Data::I16(from.iter().map(|x| x.to_i16()).collect()),
            DType::I32 => Data::I32(from.iter().map(|x| x.to_i32()).collect()),
            DType::I64 => Data::I64(from.iter().map(|x| x.to_i64()).collect()),
            DType::U8 => Data::U8(from.iter().map(|x| x.to_u8()).collect()),
            DType::U16 => Data::U16(from.iter().map(|x| x.to_u16()).collect()),
            DType::U32 => Data::U32(from.iter().map(|x| x.to_u32()).collect()),
            DType::U64 => Data::U64(from.iter().map(|x| x.to_u64()).collect()),
            DType::F16 => Data::F16(from.iter().map(|x| f16::from_f32(x.to_odd_f32())).collect()),
            DType::Bf16 => Data::Bf16(from.iter().map(|x| bf16::from_f32(x.to_odd_f32())).collect()),
            DType::F32 => Data::F32(from.iter().map(|x| x.to_f32()).collect()),
            DType::F64 => Data::F64(from.iter().map(|x| x.to_f64()).collect()),
        };
        Array::new(aval, data)
    })
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

/// Rounds each element to fewer bits: first the mantissa, half to even; then what is too large for the exponent becomes
/// infinite, and what would be subnormal becomes zero. Without a mantissa there is no NaN, and it becomes infinite. This
/// is what XLA computes.
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

/// The conversions of one value. Rust's `as` truncates floats and saturates them, makes NaN zero, and wraps integers.
trait Convert: Copy {
    fn to_bool(self) -> bool;
    fn to_i8(self) -> i8;
    fn to_i16(self) -> i16;
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    fn to_u8(self) -> u8;
    fn to_u16(self) -> u16;
    fn to_u32(self) -> u32;
    fn to_u64(self) -> u64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// An f32 that rounds to the f16 and bf16 to which this value rounds.
    fn to_odd_f32(self) -> f32;
}

macro_rules! convert {
    ($($type:ty, |$x:ident| $value:expr, $not_zero:expr, $odd:expr;)*) => { $(
        impl Convert for $type {
            fn to_bool(self) -> bool {
                let $x = self;
                $not_zero
            }
            fn to_i8(self) -> i8 {
                let $x = self;
                $value as i8
            }
            fn to_i16(self) -> i16 {
                let $x = self;
                $value as i16
            }
            fn to_i32(self) -> i32 {
                let $x = self;
                $value as i32
            }
            fn to_i64(self) -> i64 {
                let $x = self;
                $value as i64
            }
            fn to_u8(self) -> u8 {
                let $x = self;
                $value as u8
            }
            fn to_u16(self) -> u16 {
                let $x = self;
                $value as u16
            }
            fn to_u32(self) -> u32 {
                let $x = self;
                $value as u32
            }
            fn to_u64(self) -> u64 {
                let $x = self;
                $value as u64
            }
            fn to_f32(self) -> f32 {
                let $x = self;
                $value as f32
            }
            fn to_f64(self) -> f64 {
                let $x = self;
                $value as f64
            }
            fn to_odd_f32(self) -> f32 {
                let $x = self;
                $odd
            }
        }
    )* };
}

convert! {
    bool, |x| x as u8, x, f32::from(u8::from(x));
    i8, |x| x, x != 0, x.into();
    i16, |x| x, x != 0, x.into();
    i32, |x| x, x != 0, round_to_odd(x.into());
    i64, |x| x, x != 0, round_to_odd(sticky(x.unsigned_abs()).copysign(if x < 0 { -1.0 } else { 1.0 }));
    u8, |x| x, x != 0, x.into();
    u16, |x| x, x != 0, x.into();
    u32, |x| x, x != 0, round_to_odd(x.into());
    u64, |x| x, x != 0, round_to_odd(sticky(x));
    f16, |x| f16::to_f32(x), f16::to_f32(x) != 0.0, f16::to_f32(x);
    bf16, |x| bf16::to_f32(x), bf16::to_f32(x) != 0.0, bf16::to_f32(x);
    f32, |x| x, x != 0.0, x;
    f64, |x| x, x != 0.0, round_to_odd(x);
}

/// An f64 that rounds to every smaller format as this integer does: the bits that do not fit are gathered in the last.
fn sticky(x: u64) -> f64 {
    if x < 1 << 53 {
        return x as f64;
    }
    let low = u64::from(x & 0xFFF != 0) << 12;
    ((x & !0xFFF) | low) as f64
}

fn to_bytes(data: &Data) -> Vec<u8> {
    match data {
        Data::Bool(v) => v.iter().map(|&x| u8::from(x)).collect(),
        Data::I8(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::I16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::I32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::I64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::U8(v) => v.clone(),
        Data::U16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::U32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::U64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::F16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::Bf16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::F64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn from_bytes(dtype: DType, bytes: &[u8]) -> Data {
    fn read<T: Element, const N: usize>(bytes: &[u8], f: fn([u8; N]) -> T) -> Data {
        T::wrap(bytes.as_chunks::<N>().0.iter().map(|&chunk| f(chunk)).collect())
    }
    match dtype {
        DType::Bool => read(bytes, |[byte]| byte != 0),
        DType::I8 => read(bytes, i8::from_le_bytes),
        DType::I16 => read(bytes, i16::from_le_bytes),
        DType::I32 => read(bytes, i32::from_le_bytes),
        DType::I64 => read(bytes, i64::from_le_bytes),
        DType::U8 => read(bytes, u8::from_le_bytes),
        DType::U16 => read(bytes, u16::from_le_bytes),
        DType::U32 => read(bytes, u32::from_le_bytes),
        DType::U64 => read(bytes, u64::from_le_bytes),
        DType::F16 => read(bytes, f16::from_le_bytes),
        DType::Bf16 => read(bytes, bf16::from_le_bytes),
        DType::F32 => read(bytes, f32::from_le_bytes),
        DType::F64 => read(bytes, f64::from_le_bytes),
    }
}
