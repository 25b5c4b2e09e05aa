//! Rules of elementwise operations of several operands.
//!
//! A scalar operand may stand for every element: its tangent is repeated where nothing else gives the result's shape,
//! its cotangent is a sum.

use remat_ir::{Atom, Aval, Binary, Builder, Clamp, Compare, DType, Result, SelectN, Unary};

use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Binary {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (x, y, out) = (ins[0], ins[1], outs[0]);
        let (dx, dy) = (tangents[0], tangents[1]);
        let tangent = match self {
            Binary::Add | Binary::AddAny => match (dx, dy) {
                (Some(dx), Some(dy)) => Some(b.binary(*self, dx, dy)?),
                (dx, dy) => dx.or(dy),
            },
            Binary::Sub => match (dx, dy) {
                (Some(dx), Some(dy)) => Some(b.sub(dx, dy)?),
                (None, Some(dy)) => Some(b.neg(dy)?),
                (dx, None) => dx,
            },
            Binary::Mul => {
                let left = dx.map(|dx| b.mul(dx, y)).transpose()?;
                let right = dy.map(|dy| b.mul(x, dy)).transpose()?;
                b.add_any(left, right)?
            }
            Binary::Div => {
                let right = dy.map(|dy| b.mul(dy, out)).transpose()?;
                let numerator = match (dx, right) {
                    (Some(dx), Some(right)) => Some(b.sub(dx, right)?),
                    (None, Some(right)) => Some(b.neg(right)?),
                    (dx, None) => dx,
                };
                numerator.map(|n| b.div(n, y)).transpose()?
            }
            Binary::Rem => {
                let Some(dy) = dy else { return spread_tangent(b, out, dx) };
                // x = n y + out with a whole n, which rounding recovers from the rounded quotient.
                let multiple = b.sub(x, out)?;
                let quotient = b.div(multiple, y)?;
                let n = b.unary(Unary::Round, quotient)?;
                let right = b.mul(dy, n)?;
                Some(match dx {
                    Some(dx) => b.sub(dx, right)?,
                    None => b.neg(right)?,
                })
            }
            Binary::Pow => {
                let one = b.literal(x, 1.0);
                let left = match dx {
                    Some(dx) => {
                        let less = b.sub(y, one)?;
                        let power = b.binary(Binary::Pow, x, less)?;
                        let factor = b.mul(y, power)?;
                        Some(b.mul(dx, factor)?)
                    }
                    None => None,
                };
                let right = match dy {
                    Some(dy) => {
                        // The logarithm of zero is infinite, and the power of zero that it multiplies is zero.
                        let zero = b.literal(x, 0.0);
                        let is_zero = b.compare(Compare::Eq, x, zero)?;
                        let safe = b.select(is_zero, one, x)?;
                        let log = b.unary(Unary::Log, safe)?;
                        let factor = b.mul(log, out)?;
                        Some(b.mul(dy, factor)?)
                    }
                    None => None,
                };
                b.add_any(left, right)?
            }
            Binary::Max => Some(extremum_tangent(b, Compare::Gt, Compare::Lt, x, y, dx, dy)?),
            Binary::Min => Some(extremum_tangent(b, Compare::Lt, Compare::Gt, x, y, dx, dy)?),
            Binary::Atan2 => {
                let (xx, yy) = (b.mul(x, x)?, b.mul(y, y)?);
                let sum = b.add(xx, yy)?;
                let left = match dx {
                    Some(dx) => {
                        let factor = b.div(y, sum)?;
                        Some(b.mul(dx, factor)?)
                    }
                    None => None,
                };
                match dy {
                    Some(dy) => {
                        let factor = b.div(x, sum)?;
                        let right = b.mul(dy, factor)?;
                        Some(match left {
                            Some(left) => b.sub(left, right)?,
                            None => b.neg(right)?,
                        })
                    }
                    None => left,
                }
            }
            Binary::And | Binary::Or | Binary::Xor => None,
            Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => None,
        };
        spread_tangent(b, out, tangent)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 2]) };
        match (self, &ins[0], &ins[1]) {
            (Binary::Add | Binary::AddAny, x, y) => Ok(vec![sum_to(b, ct, x)?, sum_to(b, ct, y)?]),
            (Binary::Sub, x, y) => {
                let right = sum_to(b, ct, y)?;
                Ok(vec![sum_to(b, ct, x)?, right.map(|ct| b.neg(ct)).transpose()?])
            }
            (Binary::Mul, x @ Operand::Linear(_), Operand::Known(y)) => {
                let product = b.mul(ct, *y)?;
                Ok(vec![sum_to(b, product, x)?, None])
            }
            (Binary::Mul, Operand::Known(x), y @ Operand::Linear(_)) => {
                let product = b.mul(*x, ct)?;
                Ok(vec![None, sum_to(b, product, y)?])
            }
            (Binary::Div, x @ Operand::Linear(_), Operand::Known(y)) => {
                let quotient = b.div(ct, *y)?;
                Ok(vec![sum_to(b, quotient, x)?, None])
            }
            _ => Err(not_linear(self)),
        }
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (aligned, axis) = b.align(size, ins)?;
        Ok(vec![Batched { atom: b.apply(*self, &aligned)?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in Binary::ALL {
            for dtype in DType::ALL {
                let takes = match op {
                    Binary::And | Binary::Or | Binary::Xor => !dtype.is_float(),
                    Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => dtype.is_integer(),
                    Binary::Pow | Binary::Atan2 => dtype.is_float(),
                    Binary::Max | Binary::Min => true,
                    _ => dtype != DType::Bool,
                };
                if takes {
                    let [x, y] = operands(op, dtype, &[2, 3], &[2, 3]);
                    let sample = linear(Sample::new("dtypes", op, vec![x, y]), op);
                    samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
                }
            }
            let float = !matches!(op, Binary::And | Binary::Or | Binary::Xor) && !shift(op);
            let dtype = if float { DType::F64 } else { DType::I32 };
            let shapes: [(&str, &[usize], &[usize]); 5] = [
                ("scalars", &[], &[]),
                ("scalar on the left", &[], &[2, 3]),
                ("scalar on the right", &[4], &[]),
                ("empty", &[2, 0], &[2, 0]),
                ("scalar and empty", &[], &[0]),
            ];
            for (label, left, right) in shapes {
                let sample = linear(Sample::new(label, op, operands(op, dtype, left, right).into()), op);
                samples.push(if float { sample } else { sample.not_smooth() });
            }
            if float {
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
                let x = sample::array(DType::F64, &[36], &special.map(|x| [x; 6]).concat());
                let y = sample::array(DType::F64, &[36], &special);
                samples.push(Sample::new("special values", op, vec![x, y]).not_smooth());
            }
        }
        for op in [Binary::Max, Binary::Min] {
            let x = sample::array(DType::F64, &[3], &[1.0, 0.0, -1.0]);
            let zero = sample::array(DType::F64, &[], &[0.0]);
            samples.push(Sample::new("tie with a scalar", op, vec![x.clone(), zero.clone()]).not_smooth());
            samples.push(Sample::new("tie with a scalar", op, vec![zero, x]).not_smooth());
        }
        let x = sample::array(DType::F64, &[4], &[7.5, -7.5, 7.5, -7.5]);
        let y = sample::array(DType::F64, &[4], &[2.0, 2.0, -2.0, -2.0]);
        samples.push(Sample::new("signs", Binary::Rem, vec![x, y]));
        let x = sample::array(DType::F64, &[3], &[0.0, -2.0, -2.0]);
        let y = sample::array(DType::F64, &[3], &[2.0, 2.0, 3.0]);
        samples.push(Sample::new("not positive", Binary::Pow, vec![x, y]).not_smooth());
        let x = sample::array(DType::I32, &[4], &[7.0, -7.0, 7.0, -2147483648.0]);
        let y = sample::array(DType::I32, &[4], &[2.0, 2.0, 0.0, -1.0]);
        for op in [Binary::Div, Binary::Rem] {
            samples.push(Sample::new("by zero and overflow", op, vec![x.clone(), y.clone()]).not_smooth());
        }
        samples
    }
}

impl Rules for Compare {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (aligned, axis) = b.align(size, ins)?;
        Ok(vec![Batched { atom: b.apply(*self, &aligned)?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge] {
            for dtype in DType::ALL {
                let x = sample::array(dtype, &[4], &[0.0, 1.0, 1.0, 3.0]);
                let y = sample::array(dtype, &[4], &[1.0, 0.0, 1.0, 3.0]);
                samples.push(Sample::new("dtypes", op, vec![x, y]).not_smooth());
            }
            let x = sample::array(DType::F32, &[5], &[f64::NAN, f64::INFINITY, -0.0, 0.0, 1.0]);
            let y = sample::array(DType::F32, &[5], &[f64::NAN, f64::NEG_INFINITY, 0.0, f64::NAN, 1.0]);
            let zero = sample::array(DType::F32, &[], &[0.0]);
            let none = sample::array(DType::F32, &[3, 0], &[]);
            for (label, x, y) in [
                ("special values", &x, &y),
                ("scalar on the left", &zero, &x),
                ("scalar on the right", &x, &zero),
                ("scalars", &zero, &zero),
                ("empty", &none, &none),
            ] {
                samples.push(Sample::new(label, op, vec![x.clone(), y.clone()]).not_smooth());
            }
        }
        samples
    }
}

impl Rules for SelectN {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        if tangents.iter().all(Option::is_none) {
            return Ok(vec![None]);
        }
        let zero = b.literal(outs[0], 0.0);
        let mut operands = vec![ins[0]];
        operands.extend(tangents[1..].iter().map(|t| t.unwrap_or(zero)));
        let tangent = b.apply(*self, &operands)?;
        spread_tangent(b, outs[0], Some(tangent))
    }

    /// The known cases contribute nothing: where the equation is linear, they are zero.
    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let which = ins[0].known(self)?;
        let mut results = vec![None; ins.len()];
        let Some(ct) = cotangents[0] else { return Ok(results) };
        let zero = b.literal(ct, 0.0);
        for (case, operand) in ins.iter().enumerate().skip(1) {
            if operand.is_linear() {
                let mut operands = vec![zero; ins.len()];
                operands[0] = which;
                operands[case] = ct;
                let selected = b.apply(*self, &operands)?;
                results[case] = sum_to(b, selected, operand)?;
            }
        }
        Ok(results)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (aligned, axis) = b.align(size, ins)?;
        Ok(vec![Batched { atom: b.apply(*self, &aligned)?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let mask = sample::any(DType::Bool, &[2, 3]);
        for dtype in DType::ALL {
            let cases = [sample::any(dtype, &[2, 3]), sample::array(dtype, &[2, 3], &[0.0, 1.0])];
            let sample = Sample::new("mask", SelectN, vec![mask.clone(), cases[0].clone(), cases[1].clone()]);
            samples.push(if dtype.is_float() { sample.linear_in(&[1, 2]) } else { sample.not_smooth() });
        }
        let f64s = |shape: &[usize], start: f64| sample::spread(DType::F64, shape, start, start + 1.0);
        let scalar = sample::array(DType::Bool, &[], &[1.0]);
        let whole = sample::array(DType::I32, &[4], &[0.0, 2.0, 1.0, 5.0]);
        let below = sample::array(DType::I32, &[], &[-3.0]);
        let none = sample::array(DType::Bool, &[0], &[]);
        let few = [f64s(&[4], 0.0), f64s(&[4], 1.0), f64s(&[4], 2.0)];
        for (label, operands) in [
            ("scalar mask", vec![scalar.clone(), f64s(&[2, 3], 0.0), f64s(&[2, 3], 1.0)]),
            ("scalar mask and case", vec![scalar.clone(), f64s(&[2, 3], 0.0), f64s(&[], 1.0)]),
            ("scalar cases", vec![mask.clone(), f64s(&[], 0.0), f64s(&[], 1.0)]),
            ("a scalar case", vec![mask, f64s(&[], 0.0), f64s(&[2, 3], 1.0)]),
            ("scalars", vec![scalar, f64s(&[], 0.0), f64s(&[], 1.0)]),
            ("empty", vec![none, f64s(&[0], 0.0), f64s(&[0], 1.0)]),
            ("numbered, out of range", vec![whole, few[0].clone(), few[1].clone(), few[2].clone()]),
            ("one number, out of range", vec![below.clone(), few[0].clone(), few[1].clone(), few[2].clone()]),
            ("one case", vec![below, few[0].clone()]),
        ] {
            let cases: Vec<usize> = (1..operands.len()).collect();
            samples.push(Sample::new(label, SelectN, operands).linear_in(&cases));
        }
        samples
    }
}

impl Rules for Clamp {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (min, x, max) = (ins[0], ins[1], ins[2]);
        let mut sum = None;
        // An operand has a tangent where it alone decides the result: as in JAX, the bounds do where they equal it.
        for (i, t) in tangents.iter().enumerate() {
            let Some(t) = *t else { continue };
            let mask = match i {
                0 => between(b, x, min, max)?,
                1 => between(b, min, x, max)?,
                _ => b.compare(Compare::Lt, max, x)?,
            };
            let mask = b.spread_scalar(mask, &b.shape(outs[0]))?;
            let zero = b.literal(t, 0.0);
            let selected = b.select(mask, t, zero)?;
            sum = b.add_any(sum, Some(selected))?;
        }
        Ok(vec![sum])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (aligned, axis) = b.align(size, ins)?;
        Ok(vec![Batched { atom: b.apply(*self, &aligned)?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let scalar = |value| sample::array(dtype, &[], &[value]);
            let x = sample::any(dtype, &[5]);
            let sample = Sample::new("scalar bounds", Clamp, vec![scalar(0.875), x, scalar(1.75)]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        let f64s = |shape: &[usize], values: &[f64]| sample::array(DType::F64, shape, values);
        let x = f64s(&[3], &[-1.0, 0.5, 3.0]);
        let low = f64s(&[3], &[0.0, 0.25, 5.0]);
        let high = f64s(&[3], &[1.0, 2.0, 2.0]);
        let scalar = f64s(&[], &[0.4]);
        let empty = f64s(&[0], &[]);
        for (label, operands) in [
            ("bounds of each element, crossing", [&low, &x, &high]),
            ("low of each element", [&low, &x, &scalar]),
            ("high of each element", [&scalar, &x, &high]),
            ("scalars", [&scalar, &f64s(&[], &[0.1]), &f64s(&[], &[0.9])]),
            ("empty", [&scalar, &empty, &scalar]),
        ] {
            samples.push(Sample::new(label, Clamp, operands.map(Clone::clone).into()));
        }
        let edges = f64s(&[4], &[0.0, 1.0, f64::NAN, f64::INFINITY]);
        samples
            .push(Sample::new("on the bounds", Clamp, vec![f64s(&[], &[0.0]), edges, f64s(&[], &[1.0])]).not_smooth());
        samples
    }
}

fn shift(op: Binary) -> bool {
    matches!(op, Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic)
}

/// Operands at which the operation is smooth, where it ever is.
fn operands(op: Binary, dtype: DType, left: &[usize], right: &[usize]) -> [remat_ir::Array; 2] {
    match op {
        Binary::Pow | Binary::Atan2 => [sample::spread(dtype, left, 0.5, 2.0), sample::spread(dtype, right, 0.6, 3.0)],
        Binary::Div => [sample::any(dtype, left), sample::spread(dtype, right, 1.0, 5.0)],
        // Quotients near 2.5, far from the steps at whole numbers.
        Binary::Rem => [sample::spread(dtype, left, 4.9, 5.1), sample::spread(dtype, right, 1.95, 2.05)],
        Binary::Max | Binary::Min => [sample::any(dtype, left), sample::spread(dtype, right, -1.5, 1.9)],
        _ if shift(op) => [sample::any(dtype, left), sample::array(dtype, right, &[0.0, 1.0, 5.0, 7.0, 64.0])],
        _ => [sample::any(dtype, left), sample::any(dtype, right)],
    }
}

/// Says in which operands a sample of `op` on floats is linear.
fn linear(sample: Sample, op: Binary) -> Sample {
    if !sample.inputs[0].dtype().is_float() {
        return sample;
    }
    match op {
        Binary::Add | Binary::AddAny | Binary::Sub => sample.linear_in(&[0, 1]).linear_in(&[0]).linear_in(&[1]),
        Binary::Mul => sample.linear_in(&[0]).linear_in(&[1]),
        Binary::Div => sample.linear_in(&[0]),
        _ => sample,
    }
}

/// The tangent of a result, repeated where it came from a scalar operand.
fn spread_tangent(b: &mut Builder, out: Atom, tangent: Option<Atom>) -> Result<Linear> {
    let shape = b.shape(out);
    Ok(vec![tangent.map(|t| b.spread_scalar(t, &shape)).transpose()?])
}

/// The cotangent of an operand of the result's shape or a scalar; none where it is known.
fn sum_to(b: &mut Builder, ct: Atom, operand: &Operand) -> Result<Option<Atom>> {
    match operand {
        Operand::Known(_) => Ok(None),
        Operand::Linear(Aval { shape, .. }) => Ok(Some(b.unbroadcast_scalar(ct, shape)?)),
    }
}

/// Whether `low < x < high`.
fn between(b: &mut Builder, low: Atom, x: Atom, high: Atom) -> Result<Atom> {
    let above = b.compare(Compare::Lt, low, x)?;
    let below = b.compare(Compare::Lt, x, high)?;
    b.binary(Binary::And, above, below)
}

/// The tangent of the larger or smaller of two: that of the operand that wins, half the sum where they are equal. What is
/// kept for the backward pass is two masks.
fn extremum_tangent(
    b: &mut Builder,
    left_wins: Compare,
    right_wins: Compare,
    x: Atom,
    y: Atom,
    dx: Option<Atom>,
    dy: Option<Atom>,
) -> Result<Atom> {
    let zero = b.literal(x, 0.0);
    let (wins, winner, other) = match (dx, dy) {
        (Some(dx), dy) => (left_wins, dx, dy),
        (None, Some(dy)) => (right_wins, dy, None),
        (None, None) => return Ok(zero),
    };
    let wins = b.compare(wins, x, y)?;
    let equal = b.compare(Compare::Eq, x, y)?;
    let both = b.add_any(Some(winner), other)?.unwrap_or(winner);
    let half = b.scale(both, 0.5)?;
    let tied = b.select(equal, half, other.unwrap_or(zero))?;
    b.select(wins, winner, tied)
}
