//! Rules of elementwise operations with several operands.
//!
//! A scalar operand may be broadcast. Its tangent is then repeated if nothing else has the result's shape, and its cotangent is a sum.

use remat_ir::{Binary, Clamp, Compare, Result, SelectN};

use super::batch::elementwise;
use super::{Batched, Expr, Linear, Operand, Rules, Writer, difference_of, not_linear, sum_of};

impl Rules for Binary {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let (x, y, out) = (ins[0], ins[1], outs[0]);
        let (dx, dy) = (tangents[0], tangents[1]);
        let tangent = match self {
            Binary::Add | Binary::AddAny => match (dx, dy) {
                (Some(dx), Some(dy)) => Some(x.writer().apply(*self, &[dx, dy])),
                (dx, dy) => dx.or(dy),
            },
            Binary::Sub => difference_of(dx, dy),
            Binary::Mul => sum_of(dx.map(|dx| dx * y), dy.map(|dy| x * dy)),
            Binary::Div => difference_of(dx, dy.map(|dy| dy * out)).map(|numerator| numerator / y),
            // x = n y + out with a whole n, which rounding recovers from the rounded quotient.
            Binary::Rem => difference_of(dx, dy.map(|dy| dy * ((x - out) / y).round())),
            Binary::Pow => {
                let left = dx.map(|dx| dx * (y * x.pow(y - 1.0)));
                // The logarithm of zero is infinite, and the power of zero that it multiplies is zero.
                let right = dy.map(|dy| dy * (x.eq(0.0).select(1.0, x).log() * out));
                sum_of(left, right)
            }
            Binary::Max => winner_tangent([[Compare::Gt, Compare::Ge], [Compare::Lt, Compare::Le]], x, y, dx, dy),
            Binary::Min => winner_tangent([[Compare::Lt, Compare::Le], [Compare::Gt, Compare::Ge]], x, y, dx, dy),
            Binary::Atan2 => {
                let sum = x.square() + y.square();
                difference_of(dx.map(|dx| dx * (y / sum)), dy.map(|dy| dy * (x / sum)))
            }
            Binary::And | Binary::Or | Binary::Xor => None,
            Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => None,
        };
        spread_tangent(out, tangent)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 2]) };
        match (self, &ins[0], &ins[1]) {
            (Binary::Add | Binary::AddAny, x, y) => Ok(vec![sum_to(ct, x), sum_to(ct, y)]),
            (Binary::Sub, x, y) => {
                let right = sum_to(ct, y);
                Ok(vec![sum_to(ct, x), right.map(|ct| -ct)])
            }
            (Binary::Mul, x @ Operand::Linear(_), &Operand::Known(y)) => Ok(vec![sum_to(ct * y, x), None]),
            (Binary::Mul, &Operand::Known(x), y @ Operand::Linear(_)) => Ok(vec![None, sum_to(x * ct, y)]),
            (Binary::Div, x @ Operand::Linear(_), &Operand::Known(y)) => Ok(vec![sum_to(ct / y, x), None]),
            _ => Err(not_linear(self)),
        }
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        elementwise(w, self, size, ins)
    }
}

impl Rules for Compare {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        elementwise(w, self, size, ins)
    }
}

impl Rules for SelectN {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let (which, out) = (ins[0], outs[0]);
        if tangents.iter().all(Option::is_none) {
            return Ok(vec![None]);
        }
        let zero = out.literal(0.0);
        let cases = tangents[1..].iter().map(|t| t.unwrap_or(zero));
        let operands: Vec<_> = std::iter::once(which).chain(cases).collect();
        spread_tangent(out, Some(which.writer().apply(*self, &operands)))
    }

    /// The known cases contribute nothing: if the equation is linear, they are zero.
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let which = ins[0].known(self)?;
        let mut results = vec![None; ins.len()];
        let Some(ct) = cotangents[0] else { return Ok(results) };
        let zero = ct.literal(0.0);
        for (case, operand) in ins.iter().enumerate().skip(1) {
            if operand.is_linear() {
                let mut operands = vec![zero; ins.len()];
                (operands[0], operands[case]) = (which, ct);
                results[case] = sum_to(which.writer().apply(*self, &operands), operand);
            }
        }
        Ok(results)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        elementwise(w, self, size, ins)
    }
}

impl Rules for Clamp {
    /// An operand has a tangent where it alone decides the result. As in JAX, a bound does so where it equals the result, unless it is an
    /// infinite literal.
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let (min, x, max) = (ins[0], ins[1], ins[2]);
        let shape = outs[0].shape()?;
        let mut sum = None;
        for (i, t) in tangents.iter().enumerate() {
            let Some(t) = *t else { continue };
            let decides = match i {
                0 => between(x, min, max),
                1 => between(min, x, max),
                _ => max.lt(x),
            };
            sum = sum_of(sum, Some(decides.spread(&shape).select(t, 0.0)));
        }
        Ok(vec![sum])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        elementwise(w, self, size, ins)
    }
}

/// The tangent of a result, repeated if it comes from a scalar operand.
fn spread_tangent<'w>(out: Expr<'w>, tangent: Option<Expr<'w>>) -> Result<Linear<Expr<'w>>> {
    let shape = out.shape()?;
    Ok(vec![tangent.map(|t| t.spread(&shape))])
}

/// The cotangent of an operand, which has the result's shape or is a scalar; `None` if it is known.
fn sum_to<'w>(ct: Expr<'w>, operand: &Operand<Expr<'w>>) -> Option<Expr<'w>> {
    match operand {
        Operand::Known(_) => None,
        Operand::Linear(aval) => Some(ct.sum_to(&aval.shape)),
    }
}

/// Whether `low < x < high`. An infinite literal is not a bound, and nothing is compared with it.
fn between<'w>(low: Expr<'w>, x: Expr<'w>, high: Expr<'w>) -> Expr<'w> {
    let is = |bound: Expr<'w>, value: f64| bound.atom().literal().is_some_and(|bound| bound.as_f64() == value);
    match (is(low, f64::NEG_INFINITY), is(high, f64::INFINITY)) {
        (_, true) => low.lt(x),
        (true, false) => x.lt(high),
        (false, false) => low.lt(x).and(x.lt(high)),
    }
}

/// The tangent of the larger or smaller of two operands: that of the chosen operand, or half the sum where they are equal. As in JAX, it is
/// zero where one of them is NaN. The backward pass keeps two masks. The operands are compared with each other, not with the result: an engine
/// that rounds them otherwise when it computes them again still finds a winner. Comparisons say whether the left operand wins, and whether
/// it wins or is equal; and the same of the right one.
fn winner_tangent<'w>(
    [[left_wins, left_is_chosen], [right_wins, right_is_chosen]]: [[Compare; 2]; 2],
    x: Expr<'w>,
    y: Expr<'w>,
    dx: Option<Expr<'w>>,
    dy: Option<Expr<'w>>,
) -> Option<Expr<'w>> {
    let alone = |wins: Compare, t: Expr<'w>| x.compare(wins, y).select(t, x.eq(y).select(t * 0.5, 0.0));
    match (dx, dy) {
        (Some(dx), Some(dy)) => {
            let (left, right) = (x.compare(left_is_chosen, y), x.compare(right_is_chosen, y));
            let half = (dx + dy) * 0.5;
            Some(left.select(right.select(half, dx), right.select(dy, 0.0)))
        }
        (Some(dx), None) => Some(alone(left_wins, dx)),
        (None, Some(dy)) => Some(alone(right_wins, dy)),
        (None, None) => None,
    }
}
