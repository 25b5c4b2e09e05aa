//! Functions of one operand. Those of f16 and bf16 are computed in f32 and rounded once.

use remat_ir::{DType, Unary};

use crate::value::{Type, Value};
use crate::writer::Writer;

pub(super) fn unary(w: &mut Writer, op: Unary, x: &Value) -> Value {
    match op {
        Unary::Neg => w.unary("negate", x),
        Unary::Sign => sign(w, x),
        Unary::Abs if x.dtype().is_signed() => w.unary("abs", x),
        Unary::Abs => x.clone(),
        Unary::Floor => w.unary("floor", x),
        Unary::Ceil => w.unary("ceil", x),
        Unary::Round => w.unary("round_nearest_even", x),
        Unary::IsFinite => w.apply(format!("stablehlo.is_finite {x}"), &[x], x.aval.with_dtype(DType::Bool)),
        Unary::Not => w.unary("not", x),
        Unary::PopulationCount => w.unary("popcnt", x),
        Unary::Exp => wide(w, "exponential", x),
        Unary::Exp2 => w.widened(x, |w, x| {
            let two = w.splat(x, 2.0);
            w.binary("power", &two, x)
        }),
        Unary::Expm1 => wide(w, "exponential_minus_one", x),
        Unary::Log => wide(w, "log", x),
        Unary::Log1p => wide(w, "log_plus_one", x),
        Unary::Sqrt => wide(w, "sqrt", x),
        // The quotient is rounded as in the evaluator; `stablehlo.rsqrt` is an estimate on some chips.
        Unary::Rsqrt => w.widened(x, |w, x| {
            let (one, root) = (w.splat(x, 1.0), w.unary("sqrt", x));
            w.binary("divide", &one, &root)
        }),
        Unary::Cbrt => wide(w, "cbrt", x),
        Unary::Logistic => wide(w, "logistic", x),
        Unary::Sin => wide(w, "sine", x),
        Unary::Cos => wide(w, "cosine", x),
        Unary::Tan => wide(w, "tan", x),
        Unary::Asin => wide(w, "chlo.asin", x),
        Unary::Acos => wide(w, "chlo.acos", x),
        Unary::Atan => w.widened(x, |w, x| {
            let one = w.splat(x, 1.0);
            w.binary("atan2", x, &one)
        }),
        Unary::Sinh => wide(w, "chlo.sinh", x),
        Unary::Cosh => wide(w, "chlo.cosh", x),
        Unary::Tanh => wide(w, "tanh", x),
        Unary::Asinh => wide(w, "chlo.asinh", x),
        Unary::Acosh => wide(w, "chlo.acosh", x),
        Unary::Atanh => wide(w, "chlo.atanh", x),
        Unary::Erf => wide(w, "chlo.erf", x),
        Unary::Erfc => wide(w, "chlo.erfc", x),
        Unary::Erfcx => erfcx(w, x),
        Unary::ErfInv => wide(w, "chlo.erf_inv", x),
        Unary::Lgamma => wide(w, "chlo.lgamma", x),
        // At zero, which is a pole, XLA has minus infinity on GPUs, and NaN at the other poles.
        Unary::Digamma => w.widened(x, |w, x| {
            let (zero, nan) = (w.splat(x, 0.0), w.splat(x, f64::NAN));
            let (is_zero, value) = (w.compare("EQ", x, &zero), chlo(w, "chlo.digamma", x));
            w.select(&is_zero, &nan, &value)
        }),
    }
}

fn wide(w: &mut Writer, operation: &str, x: &Value) -> Value {
    w.widened(x, |w, x| if operation.contains('.') { chlo(w, operation, x) } else { w.unary(operation, x) })
}

/// Operations of CHLO, the dialect of functions composed from those of StableHLO, have the type of the operand and that of the result.
fn chlo(w: &mut Writer, operation: &str, x: &Value) -> Value {
    let kind = Type(&x.aval);
    w.define(format!("{operation} {x} : {kind} -> {kind}"), x.aval.clone())
}

/// `stablehlo.sign` takes signed numbers only.
fn sign(w: &mut Writer, x: &Value) -> Value {
    if x.dtype().is_signed() {
        return w.unary("sign", x);
    }
    let one = w.splat_integer(x, 1);
    w.binary("minimum", x, &one)
}

/// `exp(x^2) erfc(x)`, which neither StableHLO nor CHLO has, by the formula of [`remat_ir::special::erfcx`] in f64.
fn erfcx(w: &mut Writer, x: &Value) -> Value {
    let wide = w.convert(x, DType::F64);
    let x64 = &wide;
    let distance = w.unary("abs", x64);
    let right = right_of_zero(w, &distance);
    let left = left_of_zero(w, x64, &right);
    let zero = w.splat(x64, 0.0);
    let is_left = w.compare("LT", x64, &zero);
    let value = w.select(&is_left, &left, &right);
    w.convert(&value, x.dtype())
}

/// The function for arguments that are not negative.
fn right_of_zero(w: &mut Writer, x: &Value) -> Value {
    let (four, one, two) = (w.splat(x, 4.0), w.splat(x, 1.0), w.splat(x, 2.0));
    let (below, above) = (w.binary("subtract", x, &four), w.binary("add", x, &four));
    let t = w.binary("divide", &below, &above);
    let mut sum = w.splat(x, 0.0);
    for &coefficient in remat_ir::special::ERFCX.iter().rev() {
        let (product, coefficient) = (w.binary("multiply", &t, &sum), w.splat(x, coefficient));
        sum = w.binary("add", &product, &coefficient);
    }
    let twice = w.binary("multiply", &two, x);
    let divisor = w.binary("add", &one, &twice);
    let near = w.binary("divide", &sum, &divisor);
    // The next term of the asymptotic series is smaller by a factor of `2 x^2`.
    let root = w.splat(x, std::f64::consts::PI.sqrt());
    let product = w.binary("multiply", x, &root);
    let far = w.binary("divide", &one, &product);
    let bound = w.splat(x, 1e8);
    let is_far = w.compare("GT", x, &bound);
    w.select(&is_far, &far, &near)
}

/// The function for negative arguments: `2 exp(x^2)` minus its mirror image.
fn left_of_zero(w: &mut Writer, x: &Value, mirrored: &Value) -> Value {
    let square = w.binary("multiply", x, x);
    // The rounding error of the square would be multiplied by the square. Without fused multiplication, the square is exact as a sum of
    // products of halves (Veltkamp and Dekker).
    let splitter = w.splat(x, 134_217_729.0);
    let shifted = w.binary("multiply", x, &splitter);
    let difference = w.binary("subtract", &shifted, x);
    let high = w.binary("subtract", &shifted, &difference);
    let low = w.binary("subtract", x, &high);
    let (high_square, low_square) = (w.binary("multiply", &high, &high), w.binary("multiply", &low, &low));
    let twice_high = w.binary("add", &high, &high);
    let mixed = w.binary("multiply", &twice_high, &low);
    let error = w.binary("subtract", &high_square, &square);
    let error = w.binary("add", &error, &mixed);
    let error = w.binary("add", &error, &low_square);
    let (one, two) = (w.splat(x, 1.0), w.splat(x, 2.0));
    let power = w.unary("exponential", &square);
    let twice = w.binary("multiply", &two, &power);
    let correction = w.binary("add", &one, &error);
    let product = w.binary("multiply", &twice, &correction);
    let value = w.binary("subtract", &product, mirrored);
    // If the square is infinite, there is no error to correct.
    let bound = w.splat(x, -26.7);
    let is_far = w.compare("LT", x, &bound);
    let infinity = w.splat(x, f64::INFINITY);
    w.select(&is_far, &infinity, &value)
}
