//! Rules of cumulative operations.

use remat_ir::{Concatenate, Cumulative, CumulativeKind, DType, Iota, Literal, Result, Rev, Shape, Slice};

use super::batch::{in_place, past};
use super::reduce::pad;
use super::sort::{index_vectors, take_along};
use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear};

impl Rules for Cumulative {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        Ok(vec![Some(match self.kind {
            CumulativeKind::Sum => t.apply(*self),
            // out[i] = x[i] out[i-1], so its tangent is x[i] tangent[i-1] + out[i-1] t[i].
            CumulativeKind::Prod => recurrence(self, x, t * previous(self, out, 1.0)?)?,
            CumulativeKind::LogSumExp => {
                // Each weight is the exponential of a difference that is at most zero.
                let carried = exp_of_difference(previous(self, out, f64::NEG_INFINITY)?, out);
                recurrence(self, carried, t * exp_of_difference(x, out))?
            }
            CumulativeKind::Max | CumulativeKind::Min => latest_tangent(self, x, out, t)?,
        })])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], _ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if self.kind != CumulativeKind::Sum {
            return Err(not_linear(self));
        }
        let back = Cumulative { reverse: !self.reverse, ..*self };
        Ok(vec![cotangents[0].map(|ct| ct.apply(back))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, batch) = in_place(size, ins);
        Ok(vec![Batched::at(x.apply(Cumulative { axis: past(batch, self.axis), ..*self }), batch)])
    }
}

/// The previous element in the order of accumulation, or `first` for the first one.
fn previous<'w>(op: &Cumulative, x: Expr<'w>, first: f64) -> Result<Expr<'w>> {
    pad(x, first, op.axis, if op.reverse { (-1, 1, 0) } else { (1, -1, 0) })
}

/// `y` with `y[i] = factor[i] y[i-1] + term[i]` in the order of accumulation.
fn recurrence<'w>(op: &Cumulative, factor: Expr<'w>, term: Expr<'w>) -> Result<Expr<'w>> {
    if term.aval()?.size() == 0 {
        return Ok(term);
    }
    if !op.reverse {
        return linear_recurrence(factor, term, op.axis);
    }
    let rev = Rev { axes: [op.axis].into_iter().collect() };
    let (factor, term) = (factor.apply(rev.clone()), term.apply(rev.clone()));
    Ok(linear_recurrence(factor, term, op.axis)?.apply(rev))
}

/// The tangent at the latest element that equals the largest or smallest so far.
fn latest_tangent<'w>(op: &Cumulative, x: Expr<'w>, out: Expr<'w>, t: Expr<'w>) -> Result<Expr<'w>> {
    let (w, shape) = (x.writer(), x.shape()?);
    let (kind, start) = match op.reverse {
        false => (CumulativeKind::Max, 0),
        true => (CumulativeKind::Min, shape[op.axis].saturating_sub(1)),
    };
    let iota = w.apply(Iota { dtype: DType::I32, shape, axis: op.axis }, &[]);
    let candidates = x.eq(out).select(iota, w.literal(Literal::from_i128(DType::I32, start as i128)));
    take_along(t, index_vectors(candidates.apply(Cumulative { kind, ..*op }))?, op.axis)
}

/// `exp(x - y)`, or 1 where the two are equal, even if infinite. The difference is replaced before the exponential, so that no infinite
/// derivative meets a zero.
fn exp_of_difference<'w>(x: Expr<'w>, y: Expr<'w>) -> Expr<'w> {
    x.eq(y).select(0.0, x - y).exp()
}

/// `y[i] = factor[i] y[i-1] + term[i]` from zero along an axis that is not empty, in logarithmic depth and linear work, linear in `term`.
/// The first factor is not used. Pairs of steps are again such steps and give every second result; one more step gives the others. Source:
/// Blelloch, "Prefix sums and their applications", 1990.
fn linear_recurrence<'w>(factor: Expr<'w>, term: Expr<'w>, axis: usize) -> Result<Expr<'w>> {
    let n = term.shape()?[axis];
    if n <= 1 {
        return Ok(term);
    }
    let half = n / 2;
    let even_factor = slice(factor, axis, 0, n, 2)?;
    let odd_factor = slice(factor, axis, 1, n, 2)?;
    let even_term = slice(term, axis, 0, n, 2)?;
    let odd_term = slice(term, axis, 1, n, 2)?;
    let odd = {
        let factor = slice(even_factor, axis, 0, half, 1)?;
        let carried = slice(even_term, axis, 0, half, 1)? * odd_factor;
        linear_recurrence(factor * odd_factor, carried + odd_term, axis)?
    };
    let first = slice(even_term, axis, 0, 1, 1)?;
    let evens = n - half;
    let even = if evens == 1 {
        first
    } else {
        let factor = slice(even_factor, axis, 1, evens, 1)?;
        let term = slice(even_term, axis, 1, evens, 1)?;
        let rest = slice(odd, axis, 0, evens - 1, 1)? * factor + term;
        first.writer().apply(Concatenate { axis }, &[first, rest])
    };
    let is_even = i64::from(n.is_multiple_of(2));
    Ok(pad(even, 0.0, axis, (0, is_even, 1))? + pad(odd, 0.0, axis, (1, 1 - is_even, 1))?)
}

/// Elements `start, start + stride, .. < limit` along one axis; `x` itself if these are all elements.
fn slice(x: Expr<'_>, axis: usize, start: usize, limit: usize, stride: usize) -> Result<Expr<'_>> {
    let mut op = Slice { start: Shape::new(), limit: x.shape()?, strides: Shape::new() };
    if start == 0 && limit == op.limit[axis] && stride == 1 {
        return Ok(x);
    }
    op.start.resize(op.limit.len(), 0);
    op.strides.resize(op.limit.len(), 1);
    (op.start[axis], op.limit[axis], op.strides[axis]) = (start, limit, stride);
    Ok(x.apply(op))
}
