//! Functions of floats.

use remat_ir::{Binary, DType, Unary};

use super::TileFn;
use super::loops;
use super::number::{Ordered, Real};
use super::rounding::{Exact, Round, ToBf16, ToF16};
use crate::simd::Level;

/// The function of a unary operation on this float dtype.
pub(super) fn unary(level: Level, op: Unary, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => exact_unary::<f32>(level, op).or_else(|| unary_f32(level, op, ToF16)),
        DType::Bf16 => exact_unary::<f32>(level, op).or_else(|| unary_f32(level, op, ToBf16)),
        DType::F32 => exact_unary::<f32>(level, op).or_else(|| unary_f32(level, op, Exact)),
        DType::F64 => exact_unary::<f64>(level, op).or_else(|| unary_f64(level, op)),
        _ => None,
    }
}

/// The function of a binary operation on this float dtype.
pub(super) fn binary(level: Level, op: Binary, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => exact_binary::<f32>(level, op).or_else(|| binary_f32(level, op, ToF16)),
        DType::Bf16 => exact_binary::<f32>(level, op).or_else(|| binary_f32(level, op, ToBf16)),
        DType::F32 => exact_binary::<f32>(level, op).or_else(|| binary_f32(level, op, Exact)),
        DType::F64 => exact_binary::<f64>(level, op).or_else(|| binary_f64(level, op)),
        _ => None,
    }
}

/// The operations whose result is always one of the dtype's numbers.
fn exact_unary<T: Real>(level: Level, op: Unary) -> Option<TileFn> {
    Some(match op {
        Unary::Neg => loops::unary(level, |x: T| -x, Exact),
        Unary::Sign => loops::unary(level, T::sign, Exact),
        Unary::Abs => loops::unary(level, T::abs, Exact),
        Unary::Floor => loops::unary(level, T::floor, Exact),
        Unary::Ceil => loops::unary(level, T::ceil, Exact),
        Unary::Round => loops::unary(level, T::round_half_even, Exact),
        Unary::IsFinite => loops::unary(level, |x: T| u8::from(x.is_finite()), Exact),
        _ => return None,
    })
}

fn exact_binary<T: Ordered>(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Max => loops::binary(level, T::largest, Exact),
        Binary::Min => loops::binary(level, T::smallest, Exact),
        _ => return None,
    })
}

fn arithmetic<T: Real, R: Round<T>>(level: Level, op: Binary, round: R) -> Option<TileFn> {
    Some(match op {
        Binary::Add | Binary::AddAny => loops::binary(level, |a: T, b: T| a + b, round),
        Binary::Sub => loops::binary(level, |a: T, b: T| a - b, round),
        Binary::Mul => loops::binary(level, |a: T, b: T| a * b, round),
        Binary::Div => loops::binary(level, |a: T, b: T| a / b, round),
        _ => return None,
    })
}

fn binary_f32<R: Round<f32>>(level: Level, op: Binary, round: R) -> Option<TileFn> {
    Some(match op {
        Binary::Rem => loops::binary_scalar(|a: f32, b: f32| a % b, round),
        Binary::Pow => loops::binary_scalar(f32::powf, round),
        Binary::Atan2 => loops::binary_scalar(f32::atan2, round),
        _ => return arithmetic::<f32, R>(level, op, round),
    })
}

fn binary_f64(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Rem => loops::binary_scalar(|a: f64, b: f64| a % b, Exact),
        Binary::Pow => loops::binary_scalar(f64::powf, Exact),
        Binary::Atan2 => loops::binary_scalar(f64::atan2, Exact),
        _ => return arithmetic::<f64, Exact>(level, op, Exact),
    })
}

fn unary_f32<R: Round<f32>>(level: Level, op: Unary, round: R) -> Option<TileFn> {
    Some(match op {
        Unary::Exp => loops::unary_scalar(f32::exp, round),
        Unary::Exp2 => loops::unary_scalar(f32::exp2, round),
        Unary::Expm1 => loops::unary_scalar(f32::exp_m1, round),
        Unary::Log => loops::unary_scalar(f32::ln, round),
        Unary::Log1p => loops::unary_scalar(f32::ln_1p, round),
        Unary::Sqrt => loops::unary(level, <f32 as Real>::sqrt, round),
        Unary::Rsqrt => loops::unary(level, |x: f32| 1.0 / Real::sqrt(x), round),
        Unary::Cbrt => loops::unary_scalar(f32::cbrt, round),
        Unary::Logistic => loops::unary_scalar(|x: f32| 1.0 / (1.0 + (-x).exp()), round),
        Unary::Sin => loops::unary_scalar(f32::sin, round),
        Unary::Cos => loops::unary_scalar(f32::cos, round),
        Unary::Tan => loops::unary_scalar(f32::tan, round),
        Unary::Asin => loops::unary_scalar(f32::asin, round),
        Unary::Acos => loops::unary_scalar(f32::acos, round),
        Unary::Atan => loops::unary_scalar(f32::atan, round),
        Unary::Sinh => loops::unary_scalar(f32::sinh, round),
        Unary::Cosh => loops::unary_scalar(f32::cosh, round),
        Unary::Tanh => loops::unary_scalar(f32::tanh, round),
        _ => return None,
    })
}

fn unary_f64(level: Level, op: Unary) -> Option<TileFn> {
    Some(match op {
        Unary::Exp => loops::unary_scalar(f64::exp, Exact),
        Unary::Exp2 => loops::unary_scalar(f64::exp2, Exact),
        Unary::Expm1 => loops::unary_scalar(f64::exp_m1, Exact),
        Unary::Log => loops::unary_scalar(f64::ln, Exact),
        Unary::Log1p => loops::unary_scalar(f64::ln_1p, Exact),
        Unary::Sqrt => loops::unary(level, <f64 as Real>::sqrt, Exact),
        Unary::Rsqrt => loops::unary(level, |x: f64| 1.0 / Real::sqrt(x), Exact),
        Unary::Cbrt => loops::unary_scalar(f64::cbrt, Exact),
        Unary::Logistic => loops::unary_scalar(|x: f64| 1.0 / (1.0 + (-x).exp()), Exact),
        Unary::Sin => loops::unary_scalar(f64::sin, Exact),
        Unary::Cos => loops::unary_scalar(f64::cos, Exact),
        Unary::Tan => loops::unary_scalar(f64::tan, Exact),
        Unary::Asin => loops::unary_scalar(f64::asin, Exact),
        Unary::Acos => loops::unary_scalar(f64::acos, Exact),
        Unary::Atan => loops::unary_scalar(f64::atan, Exact),
        Unary::Sinh => loops::unary_scalar(f64::sinh, Exact),
        Unary::Cosh => loops::unary_scalar(f64::cosh, Exact),
        Unary::Tanh => loops::unary_scalar(f64::tanh, Exact),
        _ => return None,
    })
}
