//! Tile functions: each computes one instruction of a fused loop for up to two thousand elements in the first-level cache.
//!
//! A tile is in a *register*: memory for its elements, each stored as its [`register_type`]. f16 and bf16 are stored as f32 that are
//! rounded to the dtype after each operation, so operations in a row convert only at loads and stores. The functions compute bitwise
//! what the evaluator computes, except for transcendental functions, whose accuracy [`math`](crate::number::math) lists, and the order in
//! which reductions add.
//!
//! Whether a function exists for an operation and its dtypes, and which version suits this CPU, is decided once, when a program is
//! compiled. A result does not depend on the position of its element in a tile or on other elements.
//!
//! All pointers need only the alignment of their elements.

// Tiles are addressed by pointers: an interpreter knows their number, types and addresses only at run time.
#![allow(unsafe_code)]

pub(crate) mod chain;
mod convert;
mod float;
mod integer;
mod loops;
mod monoid;
mod moves;
mod power;
mod precision;
mod reduce;
mod select;

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod tests;

pub(crate) use crate::number::register_type;
pub(crate) use loops::UNROLLED;
pub(crate) use moves::{RepeatFn, SpreadFn, StridedFn, load, repeat, repeats, spread, store, strided};
pub(crate) use reduce::{
    BLOCK, LANES, LanesFn, PART, RUN, ReduceFn, accumulate, accumulate_lanes, finish, identity, reduce_rows,
};

use remat_ir::{DType, Prim};

use crate::simd::Level;

/// Computes `n` elements of one instruction: reads `n` elements from each of `ins`, writes `n` at `out`.
///
/// `out` may be one of `ins` where the elements of both have the same size; otherwise they do not overlap.
///
/// # Safety
/// The pointers are aligned to their elements and valid for `n` of them, of the register types that the function was made for. Elements
/// that are read are valid (bools are 0 or 1). `ins` has one pointer per operand of the operation, and then one to an [`Immediate`] if the
/// operation has one.
pub(crate) type TileFn = unsafe fn(n: usize, out: *mut u8, ins: &[*const u8]);

/// The parameters of an operation that its function reads when it runs.
pub(crate) type Immediate = [i32; 2];

/// The immediate that the function of this operation reads through an additional pointer, after those to the operands.
pub(crate) fn immediate(op: &Prim) -> Option<Immediate> {
    match op {
        Prim::IntegerPow(op) => Some([op.y, 0]),
        Prim::ReducePrecision(op) => Some([op.exponent_bits as i32, op.mantissa_bits as i32]),
        _ => None,
    }
}

/// The function of an elementwise operation on operands of these dtypes, for this CPU; `None` for other operations, and
/// for dtypes that the operation does not take.
pub(crate) fn elementwise(op: &Prim, ins: &[DType]) -> Option<TileFn> {
    elementwise_at(Level::best(), op, ins)
}

/// As [`elementwise`], for a level of this CPU.
pub(crate) fn elementwise_at(level: Level, op: &Prim, ins: &[DType]) -> Option<TileFn> {
    match (op, ins) {
        (Prim::Unary(op), &[x]) if x.is_float() => float::unary(level, *op, x),
        (Prim::Unary(op), &[x]) => integer::unary(level, *op, x),
        (Prim::IntegerPow(op), &[x]) => power::integer_pow(level, op.y, x),
        (Prim::Binary(op), &[a, b]) if a == b && a.is_float() => float::binary(level, *op, a),
        (Prim::Binary(op), &[a, b]) if a == b => integer::binary(level, *op, a),
        (Prim::Compare(op), &[a, b]) if a == b => select::compare(level, *op, a),
        (Prim::Clamp(_), &[low, x, high]) if low == x && x == high => select::clamp(level, x),
        (Prim::SelectN(_), [which, cases @ ..]) if cases.windows(2).all(|pair| pair[0] == pair[1]) => {
            select::select_n(level, *which, *cases.first()?, cases.len())
        }
        (Prim::ConvertElementType(op), &[x]) => convert::convert(level, x, op.dtype),
        (Prim::BitcastConvertType(op), &[x]) => convert::bitcast(level, x, op.dtype),
        (Prim::ReducePrecision(_), &[x]) => precision::reduce_precision(level, x),
        _ => None,
    }
}

/// The function of a binary operation on floats with a single element as operand number `one`. It receives the other operand and a pointer
/// to the element. `None` for other operations and dtypes.
pub(crate) fn with_one(op: &Prim, dtype: DType, one: usize) -> Option<TileFn> {
    with_one_at(Level::best(), op, dtype, one)
}

/// As [`with_one`], for a level of this CPU.
fn with_one_at(level: Level, op: &Prim, dtype: DType, one: usize) -> Option<TileFn> {
    match op {
        Prim::Binary(op) => float::with_one(level, *op, dtype, one),
        _ => None,
    }
}
