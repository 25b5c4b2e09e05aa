//! Functions of floats.

use remat_ir::{Binary, DType, Unary, special};

use super::TileFn;
use super::loops::{self, Guarded};
use crate::number::math::{double, error, exp, log, trigonometric, wide};
use crate::number::rounding::{Exact, Round, ToBf16, ToF16};
use crate::number::{Number, Real, Scalar};
use crate::simd::Level;

/// The function of a unary operation on this float dtype.
pub(super) fn unary(level: Level, op: Unary, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => unary_f32(level, op, ToF16),
        DType::Bf16 => unary_f32(level, op, ToBf16),
        DType::F32 => unary_f32(level, op, Exact),
        DType::F64 => unary_f64(level, op),
        _ => None,
    }
}

/// The function of a binary operation on this float dtype.
pub(super) fn binary(level: Level, op: Binary, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => binary_f32(level, op, ToF16),
        DType::Bf16 => binary_f32(level, op, ToBf16),
        DType::F32 => binary_f32(level, op, Exact),
        DType::F64 => binary_f64(level, op),
        _ => None,
    }
}

/// The function of a binary operation on this float dtype with a single element as operand number `one`.
pub(super) fn with_one(level: Level, op: Binary, dtype: DType, one: usize) -> Option<TileFn> {
    match dtype {
        DType::F16 => max_or_min_with_one::<f32>(level, op).or_else(|| one_term(level, op, one, ToF16)),
        DType::Bf16 => max_or_min_with_one::<f32>(level, op).or_else(|| one_term(level, op, one, ToBf16)),
        DType::F32 => max_or_min_with_one::<f32>(level, op).or_else(|| one_term::<f32, _>(level, op, one, Exact)),
        DType::F64 => max_or_min_with_one::<f64>(level, op).or_else(|| one_term::<f64, _>(level, op, one, Exact)),
        _ => None,
    }
}

/// Arithmetic with a single element, which is the first operand if `one` is 0.
fn one_term<T: Real, R: Round<T>>(level: Level, op: Binary, one: usize, round: R) -> Option<TileFn> {
    Some(match (op, one) {
        (Binary::Add | Binary::AddAny, _) => loops::with_one(level, |a: T, b: T| a + b, round),
        (Binary::Sub, 0) => loops::with_one(level, |a: T, b: T| b - a, round),
        (Binary::Sub, _) => loops::with_one(level, |a: T, b: T| a - b, round),
        (Binary::Mul, _) => loops::with_one(level, |a: T, b: T| a * b, round),
        (Binary::Div, 0) => loops::with_one(level, |a: T, b: T| b / a, round),
        (Binary::Div, _) => loops::with_one(level, |a: T, b: T| a / b, round),
        _ => return None,
    })
}

/// The maximum or the minimum with a single element, which may be either operand.
fn max_or_min_with_one<T: Number + Scalar>(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Max => loops::with_one(level, T::maximum, Exact),
        Binary::Min => loops::with_one(level, T::minimum, Exact),
        _ => return None,
    })
}

/// Operations whose results need no rounding, since they are numbers of the operand's dtype.
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

fn exact_binary<T: Number + Scalar>(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Max => loops::binary(level, T::maximum, Exact),
        Binary::Min => loops::binary(level, T::minimum, Exact),
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
        Binary::Pow => loops::costly_binary(level, wide::pow, round),
        Binary::Atan2 => loops::costly_binary(level, wide::atan2, round),
        Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div => return arithmetic(level, op, round),
        Binary::Max | Binary::Min => return exact_binary::<f32>(level, op),
        // Not for floats.
        Binary::And | Binary::Or | Binary::Xor => return None,
        Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => return None,
    })
}

fn binary_f64(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Rem => loops::binary_scalar(|a: f64, b: f64| a % b, Exact),
        Binary::Pow => loops::binary_scalar(f64::powf, Exact),
        Binary::Atan2 => loops::binary_scalar(f64::atan2, Exact),
        Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div => {
            return arithmetic::<f64, Exact>(level, op, Exact);
        }
        Binary::Max | Binary::Min => return exact_binary::<f64>(level, op),
        // Not for floats.
        Binary::And | Binary::Or | Binary::Xor => return None,
        Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => return None,
    })
}

fn unary_f32<R: Round<f32>>(level: Level, op: Unary, round: R) -> Option<TileFn> {
    Some(match op {
        Unary::Exp => loops::common_unary(level, exp::exp, round),
        Unary::Exp2 => loops::costly_unary(level, exp::exp2, round),
        Unary::Expm1 => loops::costly_unary(level, exp::expm1, round),
        Unary::Log => loops::common_unary(level, log::log, round),
        Unary::Log1p => loops::costly_unary(level, log::log1p, round),
        Unary::Sqrt => loops::unary(level, <f32 as Real>::sqrt, round),
        Unary::Rsqrt => loops::unary(level, |x: f32| 1.0 / Real::sqrt(x), round),
        Unary::Cbrt => loops::costly_unary(level, wide::cbrt, round),
        Unary::Logistic => loops::common_unary(level, exp::logistic, round),
        Unary::Sin => loops::guarded(level, Sine, round),
        Unary::Cos => loops::guarded(level, Cosine, round),
        Unary::Tan => loops::guarded(level, Tangent, round),
        Unary::Asin => loops::costly_unary(level, wide::asin, round),
        Unary::Acos => loops::costly_unary(level, wide::acos, round),
        Unary::Atan => loops::costly_unary(level, wide::atan, round),
        Unary::Sinh => loops::costly_unary(level, wide::sinh, round),
        Unary::Cosh => loops::costly_unary(level, wide::cosh, round),
        Unary::Tanh => loops::common_unary(level, exp::tanh, round),
        Unary::Asinh => loops::costly_unary(level, wide::asinh, round),
        Unary::Acosh => loops::costly_unary(level, wide::acosh, round),
        Unary::Atanh => loops::costly_unary(level, wide::atanh, round),
        Unary::Erf => loops::common_unary(level, error::erf, round),
        Unary::Erfc => loops::costly_unary(level, error::erfc, round),
        Unary::Erfcx => loops::costly_unary(level, error::erfcx, round),
        Unary::ErfInv => loops::costly_unary(level, error::erf_inv, round),
        Unary::Lgamma => loops::unary_scalar(|x: f32| libm::lgamma(x.into()) as f32, round),
        Unary::Digamma => loops::unary_scalar(|x: f32| special::digamma(x.into()) as f32, round),
        // The results are numbers of the operand's dtype.
        Unary::Neg | Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::IsFinite => {
            return exact_unary::<f32>(level, op);
        }
        // Not for floats.
        Unary::Not | Unary::PopulationCount => return None,
    })
}

fn unary_f64(level: Level, op: Unary) -> Option<TileFn> {
    Some(match op {
        Unary::Exp => loops::unary(level, double::exp, Exact),
        Unary::Exp2 => loops::unary(level, double::exp2, Exact),
        Unary::Expm1 => loops::unary(level, double::expm1, Exact),
        Unary::Log => loops::unary(level, double::log, Exact),
        Unary::Log1p => loops::unary(level, double::log1p, Exact),
        Unary::Sqrt => loops::unary(level, <f64 as Real>::sqrt, Exact),
        Unary::Rsqrt => loops::unary(level, |x: f64| 1.0 / Real::sqrt(x), Exact),
        Unary::Cbrt => loops::unary_scalar(f64::cbrt, Exact),
        Unary::Logistic => loops::unary(level, double::logistic, Exact),
        Unary::Sin => loops::guarded::<f64, _, _>(level, Sine, Exact),
        Unary::Cos => loops::guarded::<f64, _, _>(level, Cosine, Exact),
        Unary::Tan => loops::unary_scalar(f64::tan, Exact),
        Unary::Asin => loops::unary_scalar(f64::asin, Exact),
        Unary::Acos => loops::unary_scalar(f64::acos, Exact),
        Unary::Atan => loops::unary_scalar(f64::atan, Exact),
        Unary::Sinh => loops::unary_scalar(f64::sinh, Exact),
        Unary::Cosh => loops::unary_scalar(f64::cosh, Exact),
        Unary::Tanh => loops::unary(level, double::tanh, Exact),
        Unary::Asinh => loops::unary_scalar(libm::asinh, Exact),
        Unary::Acosh => loops::unary_scalar(special::acosh, Exact),
        Unary::Atanh => loops::unary_scalar(libm::atanh, Exact),
        Unary::Erf => loops::unary_scalar(libm::erf, Exact),
        Unary::Erfc => loops::unary_scalar(libm::erfc, Exact),
        Unary::Erfcx => loops::unary_scalar(special::erfcx, Exact),
        Unary::ErfInv => loops::unary_scalar(special::erf_inv, Exact),
        Unary::Lgamma => loops::unary_scalar(libm::lgamma, Exact),
        Unary::Digamma => loops::unary_scalar(special::digamma, Exact),
        // The results are numbers of the operand's dtype.
        Unary::Neg | Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::IsFinite => {
            return exact_unary::<f64>(level, op);
        }
        // Not for floats.
        Unary::Not | Unary::PopulationCount => return None,
    })
}

#[derive(Clone, Copy)]
struct Sine;
#[derive(Clone, Copy)]
struct Cosine;
#[derive(Clone, Copy)]
struct Tangent;

macro_rules! guarded {
    ($($name:ident $type:ident $limit:path, $within:path, $beyond:path;)*) => { $(
        impl Guarded<$type> for $name {
            #[inline(always)]
            fn is_within(x: $type) -> bool {
                // For an infinity and a NaN, any method gives NaN.
                let distance = x.abs();
                !((distance > $limit) & (distance < $type::INFINITY))
            }
            #[inline(always)]
            fn within(x: $type) -> $type {
                $within(x)
            }
            #[inline(always)]
            fn beyond(x: $type) -> $type {
                $beyond(x.into()) as $type
            }
        }
    )* };
}

guarded! {
    Sine f32 trigonometric::LIMIT, trigonometric::sin, libm::sin;
    Cosine f32 trigonometric::LIMIT, trigonometric::cos, libm::cos;
    Tangent f32 trigonometric::LIMIT, wide::tan, libm::tan;
    Sine f64 double::LIMIT, double::sin, libm::sin;
    Cosine f64 double::LIMIT, double::cos, libm::cos;
}
