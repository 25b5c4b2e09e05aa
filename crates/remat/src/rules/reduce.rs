//! Rules of reductions.

use remat_ir::{ArgReduce, Aval, Compare, Cumulative, CumulativeKind, Pad, Reduce, ReduceKind, Result, Unary};

use super::batch::{in_place, past};
use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, shifted};

impl Rules for Reduce {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        let aval = x.aval()?;
        if self.axes.is_empty() {
            return Ok(vec![Some(t)]);
        }
        Ok(vec![Some(match self.kind {
            ReduceKind::Sum => t.sum(&self.axes),
            // The identity of the monoid does not depend on the operand.
            _ if aval.size() == 0 => return Ok(vec![None]),
            ReduceKind::Prod => (t * product_of_others(x, &self.axes)?).sum(&self.axes),
            // As in JAX, equal elements share the tangent equally, and the derivative of a NaN is NaN: every element then has a share, so
            // the gradient is NaN as well.
            ReduceKind::Max | ReduceKind::Min => {
                let loses = if self.kind == ReduceKind::Max { Compare::Lt } else { Compare::Gt };
                let loses = x.compare(loses, out.broadcast(&aval.shape, &kept(&aval, &self.axes)));
                let mask = loses.apply(Unary::Not);
                let count = mask.convert(aval.dtype).sum(&self.axes);
                mask.select(t, 0.0).sum(&self.axes) / out.eq(out).select(count, f64::NAN)
            }
            ReduceKind::And | ReduceKind::Or => return Ok(vec![None]),
        })])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if self.kind != ReduceKind::Sum {
            return Err(not_linear(self));
        }
        let aval = ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.broadcast(&aval.shape, &kept(aval, &self.axes)))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, axis) = in_place(size, ins);
        let axes = shifted(&self.axes, axis);
        let before = axes.iter().filter(|&&a| a < axis).count();
        Ok(vec![Batched::at(x.apply(Reduce { kind: self.kind, axes }), axis - before)])
    }
}

impl Rules for ArgReduce {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, batch) = in_place(size, ins);
        let axis = past(batch, self.axis);
        Ok(vec![Batched::at(x.apply(ArgReduce { axis, ..*self }), batch - usize::from(axis < batch))])
    }
}

/// The dimensions that are not reduced.
pub(super) fn kept(aval: &Aval, axes: &[usize]) -> Vec<usize> {
    (0..aval.rank()).filter(|d| !axes.contains(d)).collect()
}

/// The product of the other elements that are reduced together with each element: the product of those before it times the product of those
/// after it. Unlike a quotient, this is correct if elements are zero.
fn product_of_others<'w>(x: Expr<'w>, axes: &[usize]) -> Result<Expr<'w>> {
    let aval = x.aval()?;
    let mut order = kept(&aval, axes);
    let mut shape: Vec<usize> = order.iter().map(|&d| aval.shape[d]).collect();
    let axis = shape.len();
    order.extend(axes);
    let moved: Vec<usize> = order.iter().map(|&d| aval.shape[d]).collect();
    shape.push(axes.iter().map(|&d| aval.shape[d]).product());
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        back[from] = to;
    }
    let rows = x.transpose(&order).reshape(&shape);
    let product = |reverse, config| -> Result<Expr<'w>> {
        Ok(pad(rows, 1.0, axis, config)?.apply(Cumulative { kind: CumulativeKind::Prod, axis, reverse }))
    };
    let others = product(false, (1, -1, 0))? * product(true, (-1, 1, 0))?;
    Ok(others.reshape(&moved).transpose(&back))
}

/// Padding along one axis: low, high, interior.
pub(super) fn pad(x: Expr<'_>, value: f64, axis: usize, config: (i64, i64, usize)) -> Result<Expr<'_>> {
    let mut all = vec![(0, 0, 0); x.shape()?.len()];
    all[axis] = config;
    Ok(x.writer().apply(Pad { config: all }, &[x, x.literal(value)]))
}
