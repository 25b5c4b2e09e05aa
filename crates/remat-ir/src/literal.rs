//! Scalar constants written into a program.

use std::fmt;

use half::{bf16, f16};

use crate::{Aval, DType};

/// A scalar constant, rounded to its dtype.
///
/// Equality is on the bits, so that NaN equals itself and zero differs from negative zero: a literal is program text.
///
/// ```
/// use remat_ir::{DType, Literal};
/// assert_eq!(Literal::from_f64(DType::F32, 3.0).to_string(), "3.0:f32[]");
/// assert_eq!(Literal::from_f64(DType::I32, -2.0).as_i128(), Some(-2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Literal {
    dtype: DType,
    /// The bits of the value in its own dtype, zero-extended.
    bits: u64,
}

impl Literal {
    /// `value` converted to `dtype`: rounded to nearest for floats, truncated and saturated for integers, `!= 0` for bools.
    pub fn from_f64(dtype: DType, value: f64) -> Literal {
        let bits = match dtype {
            DType::Bool => (value != 0.0) as u64,
            DType::I8 => value as i8 as u8 as u64,
            DType::I16 => value as i16 as u16 as u64,
            DType::I32 => value as i32 as u32 as u64,
            DType::I64 => value as i64 as u64,
            DType::U8 => value as u8 as u64,
            DType::U16 => value as u16 as u64,
            DType::U32 => value as u32 as u64,
            DType::U64 => value as u64,
            DType::F16 => f16::from_f32(round_to_odd(value)).to_bits() as u64,
            DType::Bf16 => bf16::from_f32(round_to_odd(value)).to_bits() as u64,
            DType::F32 => (value as f32).to_bits() as u64,
            DType::F64 => value.to_bits(),
        };
        Literal { dtype, bits }
    }

    /// `value` converted to `dtype`: wrapped for integers, rounded for floats, `!= 0` for bools.
    pub fn from_i128(dtype: DType, value: i128) -> Literal {
        if dtype.is_integer() {
            let mask = if dtype.bits() == 64 { u64::MAX } else { (1u64 << dtype.bits()) - 1 };
            return Literal { dtype, bits: value as u64 & mask };
        }
        Literal::from_f64(dtype, value as f64)
    }

    /// A bool.
    pub fn from_bool(value: bool) -> Literal {
        Literal { dtype: DType::Bool, bits: value as u64 }
    }

    /// The literal of `dtype` with these bits (the low `dtype.bits()` of them).
    pub fn from_bits(dtype: DType, bits: u64) -> Literal {
        let mask = if dtype.bits() == 64 { u64::MAX } else { (1u64 << dtype.bits()) - 1 };
        Literal { dtype, bits: bits & mask }
    }

    /// The bits, zero-extended.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// The dtype.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The aval: a scalar.
    pub fn aval(self) -> Aval {
        Aval::scalar(self.dtype)
    }

    /// The value as f64; 64-bit integers may be rounded.
    pub fn as_f64(self) -> f64 {
        match self.dtype {
            DType::F16 => f16::from_bits(self.bits as u16).to_f64(),
            DType::Bf16 => bf16::from_bits(self.bits as u16).to_f64(),
            DType::F32 => f32::from_bits(self.bits as u32) as f64,
            DType::F64 => f64::from_bits(self.bits),
            _ => self.as_i128().unwrap_or(0) as f64,
        }
    }

    /// The value of an integer or bool literal.
    pub fn as_i128(self) -> Option<i128> {
        Some(match self.dtype {
            DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => self.bits as i128,
            DType::I8 => self.bits as u8 as i8 as i128,
            DType::I16 => self.bits as u16 as i16 as i128,
            DType::I32 => self.bits as u32 as i32 as i128,
            DType::I64 => self.bits as i64 as i128,
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => return None,
        })
    }

    /// Whether the value is zero (of either sign).
    pub fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }

    /// Whether the value is one.
    pub fn is_one(self) -> bool {
        self.as_f64() == 1.0
    }
}

impl fmt::Display for Literal {
    /// The shortest digits that read back as the same bits, then the aval: `0.1:f32[]`, `True:bool[]`, `nan:f64[]`.
    /// A NaN with another payload than the default one prints its bits: `nan(0x7fc00001):f32[]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.as_f64();
        match self.dtype {
            DType::Bool => f.write_str(if self.bits != 0 { "True" } else { "False" })?,
            d if d.is_integer() => write!(f, "{}", self.as_i128().unwrap_or(0))?,
            _ if value.is_nan() && self.bits != Literal::from_f64(self.dtype, f64::NAN).bits => {
                write!(f, "nan({:#x})", self.bits)?
            }
            _ if value.is_nan() => f.write_str("nan")?,
            _ if value.is_infinite() => f.write_str(if value > 0.0 { "inf" } else { "-inf" })?,
            DType::F32 => write!(f, "{:?}", value as f32)?,
            DType::F16 => write!(f, "{:?}", f16::from_bits(self.bits as u16).to_f32())?,
            DType::Bf16 => write!(f, "{:?}", bf16::from_bits(self.bits as u16).to_f32())?,
            _ => write!(f, "{value:?}")?,
        }
        write!(f, ":{}[]", self.dtype)
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An f32 that rounds to the f16 and bf16 to which this f64 rounds: truncated, with the last bit set if it is inexact.
/// Rounding twice to nearest would err where the first rounding makes a tie.
pub(crate) fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let overshot = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(overshot)) | 1)
}
