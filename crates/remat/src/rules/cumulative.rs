//! Rules of cumulative operations.

use remat_ir::{
    Atom, Aval, Builder, Compare, Concatenate, Cumulative, CumulativeKind, DType, Iota, Literal, Result, Rev, Shape,
    Slice, Unary,
};

use super::reduce::{in_place, pad, past};
use super::sort::{index_vectors, take_along};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Cumulative {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        let tangent = match self.kind {
            CumulativeKind::Sum => b.apply(*self, &[t])?,
            CumulativeKind::Prod => {
                // out[i] = x[i] out[i-1], so its tangent is x[i] tangent[i-1] + out[i-1] t[i].
                let previous = previous(b, self, out, 1.0)?;
                let term = b.mul(t, previous)?;
                recurrence(b, self, x, term)?
            }
            CumulativeKind::LogSumExp => {
                // Each weight is the exponential of a difference that is at most zero.
                let previous = previous(b, self, out, f64::NEG_INFINITY)?;
                let carried = exp_of_difference(b, previous, out)?;
                let added = exp_of_difference(b, x, out)?;
                let term = b.mul(t, added)?;
                recurrence(b, self, carried, term)?
            }
            CumulativeKind::Max | CumulativeKind::Min => extremum_tangent(b, self, x, out, t)?,
        };
        Ok(vec![Some(tangent)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        if self.kind != CumulativeKind::Sum {
            return Err(not_linear(self));
        }
        let back = Cumulative { reverse: !self.reverse, ..*self };
        Ok(vec![cotangents[0].map(|ct| b.apply(back, &[ct])).transpose()?])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, batch) = in_place(b, size, ins)?;
        let atom = b.apply(Cumulative { axis: past(batch, self.axis), ..*self }, &[x])?;
        Ok(vec![Batched { atom, axis: Some(batch) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [
            CumulativeKind::Sum,
            CumulativeKind::Prod,
            CumulativeKind::Max,
            CumulativeKind::Min,
            CumulativeKind::LogSumExp,
        ] {
            for reverse in [false, true] {
                let sample = |label: &str, axis, operand: remat_ir::Array| {
                    let is_float = operand.dtype().is_float();
                    let sample = Sample::new(label, Cumulative { kind, axis, reverse }, vec![operand]);
                    match kind {
                        _ if !is_float => sample.not_smooth(),
                        CumulativeKind::Sum => sample.linear_in(&[0]),
                        _ => sample,
                    }
                };
                for dtype in DType::ALL {
                    let takes = if kind == CumulativeKind::LogSumExp { dtype.is_float() } else { dtype != DType::Bool };
                    if takes {
                        samples.push(sample("dtypes", 1, sample::any(dtype, &[2, 3])));
                    }
                }
                for (label, axis, shape) in [
                    ("first dimension", 0, &[4, 2][..]),
                    ("inner dimension", 1, &[2, 7, 2]),
                    ("one element", 0, &[1]),
                    ("long", 0, &[21]),
                    ("of nothing", 1, &[2, 0]),
                    ("to nothing", 1, &[0, 3]),
                ] {
                    samples.push(sample(label, axis, sample::any(DType::F64, shape)));
                }
                let zeros = [2.0, 0.0, 3.0, 0.0, 5.0, -1.0, 4.0];
                let zeros = sample("zeros", 0, sample::array(DType::F64, &[7], &zeros));
                samples.push(if kind == CumulativeKind::Prod { zeros } else { zeros.not_smooth() });
                let large = sample("large", 0, sample::array(DType::F64, &[5], &[900.0, -900.0, 905.0, 903.0, 899.5]));
                samples.push(if kind == CumulativeKind::Prod { large.not_smooth() } else { large });
                for special in [
                    [f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, 2.0],
                    [1.0, f64::NAN, 3.0, 4.0],
                    [1.0, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY],
                    [2.0, 2.0, -0.0, 0.0],
                ] {
                    let operand = sample::array(DType::F64, &[4], &special);
                    samples.push(sample("special values and ties", 0, operand).not_smooth());
                }
            }
        }
        samples
    }
}

/// The element before each one in the order of accumulation; `first` where there is none.
fn previous(b: &mut Builder, op: &Cumulative, x: Atom, first: f64) -> Result<Atom> {
    let value = b.literal(x, first);
    let config = if op.reverse { (-1, 1, 0) } else { (1, -1, 0) };
    pad(b, x, value, op.axis, config)
}

/// `y` with `y[i] = factor[i] y[i-1] + term[i]` in the order of accumulation.
fn recurrence(b: &mut Builder, op: &Cumulative, factor: Atom, term: Atom) -> Result<Atom> {
    if b.aval_of(term).size() == 0 {
        return Ok(term);
    }
    if !op.reverse {
        return linear_recurrence(b, factor, term, op.axis);
    }
    let rev = Rev { axes: [op.axis].into_iter().collect() };
    let factor = b.apply(rev.clone(), &[factor])?;
    let term = b.apply(rev.clone(), &[term])?;
    let result = linear_recurrence(b, factor, term, op.axis)?;
    b.apply(rev, &[result])
}

/// The tangent at the latest element that equals the extremum so far.
fn extremum_tangent(b: &mut Builder, op: &Cumulative, x: Atom, out: Atom, t: Atom) -> Result<Atom> {
    let Aval { shape, .. } = b.aval_of(x);
    let iota = b.apply(Iota { dtype: DType::I32, shape: shape.clone(), axis: op.axis }, &[])?;
    let extreme = b.compare(Compare::Eq, x, out)?;
    let (kind, start) = match op.reverse {
        false => (CumulativeKind::Max, 0),
        true => (CumulativeKind::Min, shape[op.axis].saturating_sub(1)),
    };
    let start = Literal::from_i128(DType::I32, start as i128).into();
    let candidates = b.select(extreme, iota, start)?;
    let latest = b.apply(Cumulative { kind, ..*op }, &[candidates])?;
    let positions = index_vectors(b, latest)?;
    take_along(b, t, positions, op.axis)
}

/// `exp(x - y)`, and 1 where the two are equal, infinite ones too. The difference is made harmless before the exponential
/// so that no infinite derivative meets a zero.
fn exp_of_difference(b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    let equal = b.compare(Compare::Eq, x, y)?;
    let difference = b.sub(x, y)?;
    let zero = b.literal(x, 0.0);
    let safe = b.select(equal, zero, difference)?;
    b.unary(Unary::Exp, safe)
}

/// `y[i] = factor[i] y[i-1] + term[i]` from zero along a dimension that is not empty, in logarithmic depth and linear work,
/// linear in `term`. The first factor plays no part. Pairs of steps are again such steps, for every second result; one
/// step more gives the others. Source: Blelloch, "Prefix sums and their applications", 1990.
fn linear_recurrence(b: &mut Builder, factor: Atom, term: Atom, axis: usize) -> Result<Atom> {
    let n = b.aval_of(term).shape[axis];
    if n <= 1 {
        return Ok(term);
    }
    let half = n / 2;
    let even_factor = slice(b, factor, axis, 0, n, 2)?;
    let odd_factor = slice(b, factor, axis, 1, n, 2)?;
    let even_term = slice(b, term, axis, 0, n, 2)?;
    let odd_term = slice(b, term, axis, 1, n, 2)?;
    let (paired_factor, paired_term) = {
        let factor = slice(b, even_factor, axis, 0, half, 1)?;
        let term = slice(b, even_term, axis, 0, half, 1)?;
        let carried = b.mul(term, odd_factor)?;
        (b.mul(factor, odd_factor)?, b.add(carried, odd_term)?)
    };
    let odd = linear_recurrence(b, paired_factor, paired_term, axis)?;
    let first = slice(b, even_term, axis, 0, 1, 1)?;
    let evens = n - half;
    let even = if evens == 1 {
        first
    } else {
        let factor = slice(b, even_factor, axis, 1, evens, 1)?;
        let term = slice(b, even_term, axis, 1, evens, 1)?;
        let before = slice(b, odd, axis, 0, evens - 1, 1)?;
        let carried = b.mul(before, factor)?;
        let rest = b.add(carried, term)?;
        b.apply(Concatenate { axis }, &[first, rest])?
    };
    let zero = b.literal(term, 0.0);
    let is_even = i64::from(n.is_multiple_of(2));
    let even = pad(b, even, zero, axis, (0, is_even, 1))?;
    let odd = pad(b, odd, zero, axis, (1, 1 - is_even, 1))?;
    b.add(even, odd)
}

/// Elements `start, start + stride, .. < limit` along one dimension; `x` itself for all of them.
fn slice(b: &mut Builder, x: Atom, axis: usize, start: usize, limit: usize, stride: usize) -> Result<Atom> {
    let mut op = Slice { start: Shape::new(), limit: b.shape(x), strides: Shape::new() };
    if start == 0 && limit == op.limit[axis] && stride == 1 {
        return Ok(x);
    }
    op.start.resize(op.limit.len(), 0);
    op.strides.resize(op.limit.len(), 1);
    (op.start[axis], op.limit[axis], op.strides[axis]) = (start, limit, stride);
    b.apply(op, &[x])
}
