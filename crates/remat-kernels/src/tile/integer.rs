//! Functions of integers and bools.

use remat_ir::{Binary, DType, Unary};

use super::TileFn;
use super::loops;
use crate::number::rounding::Exact;
use crate::number::{Integer, with_bits, with_integer};
use crate::simd::Level;

/// The function of a unary operation on integers or bools of this dtype.
pub(super) fn unary(level: Level, op: Unary, dtype: DType) -> Option<TileFn> {
    if dtype == DType::Bool {
        return (op == Unary::Not).then(|| loops::unary(level, |x: u8| x ^ 1, Exact));
    }
    match op {
        Unary::Neg | Unary::Not | Unary::PopulationCount => with_bits!(dtype, T => unary_of_bits::<T>(level, op)),
        Unary::Sign => with_integer!(dtype, T => Some(loops::unary(level, <T as Integer>::sign, Exact)), else None),
        Unary::Abs => with_integer!(dtype, T => Some(loops::unary(level, <T as Integer>::abs, Exact)), else None),
        _ => None,
    }
}

/// The function of a binary operation on integers or bools of this dtype.
pub(super) fn binary(level: Level, op: Binary, dtype: DType) -> Option<TileFn> {
    if dtype == DType::Bool {
        return match op {
            Binary::Max | Binary::Or => binary_of_bits::<u8>(level, Binary::Or),
            Binary::Min | Binary::And => binary_of_bits::<u8>(level, Binary::And),
            Binary::Xor => binary_of_bits::<u8>(level, Binary::Xor),
            _ => None,
        };
    }
    with_bits!(dtype, T => binary_of_bits::<T>(level, op))
        .or_else(|| with_integer!(dtype, T => binary_of_numbers::<T>(level, op), else None))
}

/// Operations that are the same for signed and unsigned integers.
fn unary_of_bits<T: Integer>(level: Level, op: Unary) -> Option<TileFn> {
    Some(match op {
        Unary::Neg => loops::unary(level, T::neg, Exact),
        Unary::Not => loops::unary(level, T::not, Exact),
        Unary::PopulationCount => loops::unary(level, T::count_ones, Exact),
        _ => return None,
    })
}

/// Operations that are the same for signed and unsigned integers.
fn binary_of_bits<T: Integer>(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Add | Binary::AddAny => loops::binary(level, T::plus, Exact),
        Binary::Sub => loops::binary(level, T::sub, Exact),
        Binary::Mul => loops::binary(level, T::times, Exact),
        Binary::And => loops::binary(level, T::and, Exact),
        Binary::Or => loops::binary(level, T::or, Exact),
        Binary::Xor => loops::binary(level, T::xor, Exact),
        Binary::ShiftLeft => loops::binary(level, T::shift_left, Exact),
        Binary::ShiftRightLogical => loops::binary(level, T::shift_right_logical, Exact),
        Binary::ShiftRightArithmetic => loops::binary(level, T::shift_right_arithmetic, Exact),
        _ => return None,
    })
}

/// Operations that depend on the sign.
fn binary_of_numbers<T: Integer>(level: Level, op: Binary) -> Option<TileFn> {
    Some(match op {
        Binary::Div if T::DIVIDES_IN_FLOATS => loops::binary(level, T::div, Exact),
        Binary::Rem if T::DIVIDES_IN_FLOATS => loops::binary(level, T::rem, Exact),
        Binary::Div => loops::binary_scalar(T::div, Exact),
        Binary::Rem => loops::binary_scalar(T::rem, Exact),
        Binary::Max => loops::binary(level, T::maximum, Exact),
        Binary::Min => loops::binary(level, T::minimum, Exact),
        _ => return None,
    })
}
