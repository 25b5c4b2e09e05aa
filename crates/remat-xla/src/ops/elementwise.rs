//! Elementwise operations with several operands. All operands have the shape of the result.

use remat_ir::{Binary, Clamp, Compare, DType, IntegerPow, Result, SelectN};

use super::operands;
use crate::value::Value;
use crate::writer::Writer;

/// A power by repeated squaring, in the order in which the evaluator multiplies.
pub(super) fn integer_pow(w: &mut Writer, op: &IntegerPow, x: &Value) -> Value {
    w.widened(x, |w, x| {
        let power = match op.y {
            2 => w.binary("multiply", x, x),
            3 => {
                let square = w.binary("multiply", x, x);
                w.binary("multiply", x, &square)
            }
            y => power(w, x, y.unsigned_abs()),
        };
        if op.y >= 0 {
            return power;
        }
        let one = w.splat(x, 1.0);
        w.binary("divide", &one, &power)
    })
}

/// `x` to the power of zero is one, also for NaN.
fn power(w: &mut Writer, x: &Value, exponent: u32) -> Value {
    let (mut result, mut square) = (None, x.clone());
    for bit in 0..u32::BITS - exponent.leading_zeros() {
        if bit > 0 {
            square = w.binary("multiply", &square, &square);
        }
        if exponent >> bit & 1 == 1 {
            result = Some(match result {
                Some(result) => w.binary("multiply", &result, &square),
                None => square.clone(),
            });
        }
    }
    result.unwrap_or_else(|| w.splat(x, 1.0))
}

pub(super) fn binary(w: &mut Writer, op: Binary, [a, b]: &[Value; 2]) -> Value {
    match op {
        Binary::Add | Binary::AddAny => w.binary("add", a, b),
        Binary::Sub => w.binary("subtract", a, b),
        Binary::Mul => w.binary("multiply", a, b),
        Binary::Div => w.binary("divide", a, b),
        Binary::Rem => wide(w, "remainder", a, b),
        Binary::Pow => wide(w, "power", a, b),
        Binary::Atan2 => wide(w, "atan2", a, b),
        Binary::Max => max(w, a, b),
        Binary::Min => min(w, a, b),
        Binary::And => w.binary("and", a, b),
        Binary::Or => w.binary("or", a, b),
        Binary::Xor => w.binary("xor", a, b),
        Binary::ShiftLeft => w.binary("shift_left", a, b),
        Binary::ShiftRightLogical => w.binary("shift_right_logical", a, b),
        Binary::ShiftRightArithmetic => w.binary("shift_right_arithmetic", a, b),
    }
}

/// An operation that is computed in f32 and rounded once, for f16 and bf16.
fn wide(w: &mut Writer, operation: &str, a: &Value, b: &Value) -> Value {
    let (wide_a, wide_b) = (w.widen(a), w.widen(b));
    let result = w.binary(operation, &wide_a, &wide_b);
    w.convert(&result, a.dtype())
}

/// The larger: NaN wins, and zero is larger than negative zero. On bools it is `or`.
pub(super) fn max(w: &mut Writer, a: &Value, b: &Value) -> Value {
    let operation = if a.dtype() == DType::Bool { "or" } else { "maximum" };
    w.binary(operation, a, b)
}

/// The smaller: NaN wins, and negative zero is smaller than zero. On bools it is `and`.
pub(super) fn min(w: &mut Writer, a: &Value, b: &Value) -> Value {
    let operation = if a.dtype() == DType::Bool { "and" } else { "minimum" };
    w.binary(operation, a, b)
}

pub(super) fn compare(w: &mut Writer, op: Compare, [a, b]: &[Value; 2]) -> Value {
    let direction = match op {
        Compare::Eq => "EQ",
        Compare::Ne => "NE",
        Compare::Lt => "LT",
        Compare::Le => "LE",
        Compare::Gt => "GT",
        Compare::Ge => "GE",
    };
    w.compare(direction, a, b)
}

/// A bool selects directly; an integer selects by a chain of comparisons, which clamps it.
pub(super) fn select_n(w: &mut Writer, op: &SelectN, ins: &[Value]) -> Result<Value> {
    let (which, cases) = match ins {
        [which, cases @ ..] if !cases.is_empty() => (which, cases),
        _ => return operands::<2>(op, ins).map(|[_, case]| case.clone()),
    };
    if let (DType::Bool, [no, yes]) = (which.dtype(), cases) {
        return Ok(w.select(which, yes, no));
    }
    let mut result = cases[0].clone();
    for (i, case) in cases.iter().enumerate().skip(1) {
        let number = w.splat_integer(which, i as i128);
        let reaches = w.compare("GE", which, &number);
        result = w.select(&reaches, case, &result);
    }
    Ok(result)
}

/// The lower bound is applied first, so that the upper one wins where they cross. `stablehlo.clamp` leaves NaN open.
pub(super) fn clamp(w: &mut Writer, op: &Clamp, ins: &[Value]) -> Result<Value> {
    let [low, x, high] = operands(op, ins)?;
    let x = max(w, x, low);
    Ok(min(w, &x, high))
}
