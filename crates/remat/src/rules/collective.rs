//! Rules of collectives.
//!
//! A collective maps the operands of all shards to the results of all shards, and its derivative and transpose are those of this map. The
//! transpose of a sum that every shard gets is again such a sum, since each operand is a term of every result. So one rule holds in a named
//! `vmap` and in a `shard_map`, and values need no record of the axes along which they vary.
//!
//! A `vmap` over another axis batches the operand as for any operation. A `vmap` over the axis of the collective has the operands of all
//! shards in one value, and the collective becomes operations on that value ([`bind`]).
//!
//! A collective in a checkpointed region is computed again unless the policy saves it; it can have a name like any value.

use std::sync::Arc;

use remat_ir::{
    AllGather, AllReduce, AllReduceKind, AllToAll, Aval, AxisIndex, Builder, Compare, Concatenate, DType, Error,
    ErrorKind, Iota, Literal, Operation, Ppermute, Prim, Reduce, ReduceScatter, Result, Slice, Unary, axes_of,
};

use super::batch::{in_place, past, unbatched};
use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, write};

impl Rules for AllReduce {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let sum = |x: Expr<'w>| x.apply(AllReduce { kind: AllReduceKind::Sum, axes: self.axes.clone() });
        Ok(vec![Some(match self.kind {
            AllReduceKind::Sum => sum(t),
            // As in a reduction, equal elements share the tangent equally, and the derivative of a NaN is NaN.
            AllReduceKind::Max | AllReduceKind::Min => {
                let loses = if self.kind == AllReduceKind::Max { Compare::Lt } else { Compare::Gt };
                let mask = ins[0].compare(loses, outs[0]).apply(Unary::Not);
                let count = sum(mask.convert(t.dtype()?));
                sum(mask.select(t, 0.0)) / outs[0].eq(outs[0]).select(count, f64::NAN)
            }
        })])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if self.kind != AllReduceKind::Sum {
            return Err(not_linear(self));
        }
        ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.apply(self.clone()))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(self.clone()))])
    }
}

impl Rules for AllGather {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        linear(self, tangents)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let AllGather { axis_name, axis_size, dimension } = self.clone();
        ins[0].linear(self)?;
        linear(&ReduceScatter { axis_name, axis_size, dimension }, cotangents)
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, batch) = in_place(size, ins);
        let op = AllGather { dimension: past(batch, self.dimension), ..self.clone() };
        Ok(vec![Batched::at(x.apply(op), batch)])
    }
}

impl Rules for ReduceScatter {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        linear(self, tangents)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let ReduceScatter { axis_name, axis_size, dimension } = self.clone();
        ins[0].linear(self)?;
        linear(&AllGather { axis_name, axis_size, dimension }, cotangents)
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, batch) = in_place(size, ins);
        let op = ReduceScatter { dimension: past(batch, self.dimension), ..self.clone() };
        Ok(vec![Batched::at(x.apply(op), batch)])
    }
}

impl Rules for AllToAll {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        linear(self, tangents)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        linear(&AllToAll { split: self.concat, concat: self.split, ..self.clone() }, cotangents)
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, batch) = in_place(size, ins);
        let op = AllToAll { split: past(batch, self.split), concat: past(batch, self.concat), ..self.clone() };
        Ok(vec![Batched::at(x.apply(op), batch)])
    }
}

impl Rules for Ppermute {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        linear(self, tangents)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        let pairs = self.pairs.iter().map(|&(from, to)| (to, from)).collect();
        linear(&Ppermute { pairs, ..self.clone() }, cotangents)
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(self.clone()))])
    }
}

impl Rules for AxisIndex {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        unbatched(w, self, ins)
    }
}

/// The operation applied to the single tangent or cotangent.
fn linear<'w>(op: &impl Operation, values: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
    Ok(vec![values[0].map(|t| t.apply(op.clone()))])
}

/// Writes a collective along the axis `name` whose `size` shards are the examples of a batch.
///
/// # Errors
/// If the collective is for another number of shards.
pub(crate) fn bind(b: &mut Builder, op: &Prim, name: &Arc<str>, size: usize, ins: &[Batched]) -> Result<Batched> {
    if let Some((_, Some(made_for))) =
        axes_of(op).iter().find(|(axis, made_for)| axis == name && *made_for != Some(size))
    {
        let message = format!("it is for {made_for} shards, and the axis `{name}` has size {size}");
        return Err(Error::new(ErrorKind::Axis, op.name(), message));
    }
    write(b, |w| {
        let operands: Vec<Expr<'_>> =
            ins.iter().map(|x| Batched { atom: w.expr(x.atom), axis: x.axis }.to_front(size)).collect();
        let bound = match (op, &operands[..]) {
            (Prim::AllReduce(op), &[x]) => Batched::shared(reduced(op, name, x)?),
            (Prim::AllGather(op), &[x]) => Batched::shared(joined(x, op.dimension)?),
            (Prim::ReduceScatter(op), &[x]) => Batched::at(parted(x.sum(&[0]), op.dimension, size)?, op.dimension),
            (Prim::AllToAll(op), &[x]) => {
                // Source, parts by target, the rest: the target comes to the front, and the source before what it joins.
                let parts = parted(x, op.split + 1, size)?.move_axis(op.split + 1, 0);
                Batched::front(joined_at(parts, 1, op.concat + 1)?)
            }
            (Prim::Ppermute(op), &[x]) => Batched::front(permuted(op, x)?),
            (Prim::AxisIndex(_), []) => {
                Batched::front(w.apply(Iota { dtype: DType::I32, shape: [size].into_iter().collect(), axis: 0 }, &[]))
            }
            _ => return Err(Error::new(ErrorKind::Internal, op.name(), "is not a collective")),
        };
        Ok(Batched { atom: bound.atom.atom(), axis: bound.axis })
    })
}

/// The reduction over the examples, then along the remaining axes, with one rounding.
fn reduced<'w>(op: &AllReduce, name: &Arc<str>, x: Expr<'w>) -> Result<Expr<'w>> {
    let dtype = x.dtype()?;
    let reduce = Reduce { kind: op.kind.reduce(), axes: [0].into_iter().collect() };
    let axes: Arc<[Arc<str>]> = op.axes.iter().filter(|axis| *axis != name).cloned().collect();
    if axes.is_empty() {
        return Ok(x.apply(reduce));
    }
    let wide = if matches!(dtype, DType::F16 | DType::Bf16) { DType::F32 } else { dtype };
    Ok(x.convert(wide).apply(reduce).apply(AllReduce { kind: op.kind, axes }).convert(dtype))
}

/// The examples in front, joined along a dimension.
fn joined(x: Expr<'_>, dimension: usize) -> Result<Expr<'_>> {
    joined_at(x, 0, dimension)
}

/// The dimension `from` moved before what is then dimension `to + 1`, and joined with it.
fn joined_at(x: Expr<'_>, from: usize, to: usize) -> Result<Expr<'_>> {
    let x = x.move_axis(from, to);
    let mut shape = x.shape()?;
    let size = shape.remove(to);
    shape[to] *= size;
    Ok(x.reshape(&shape))
}

/// A dimension cut into parts, whose number becomes a dimension before it.
fn parted(x: Expr<'_>, dimension: usize, parts: usize) -> Result<Expr<'_>> {
    let mut shape = x.shape()?;
    shape[dimension] /= parts;
    shape.insert(dimension, parts);
    Ok(x.reshape(&shape))
}

/// Permutes the examples, in as few pieces as there are runs.
fn permuted<'w>(op: &Ppermute, x: Expr<'w>) -> Result<Expr<'w>> {
    let mut sources = vec![None; op.axis_size];
    for &(from, to) in &*op.pairs {
        sources[to] = Some(from);
    }
    let Aval { shape, dtype, .. } = x.aval()?;
    let mut pieces = Vec::new();
    let mut to = 0;
    while to < sources.len() {
        let continues = |n: usize| sources.get(to + n) == Some(&sources[to].map(|from| from + n));
        let len = 1 + (1..).take_while(|&n| continues(n)).count();
        let mut piece = shape.clone();
        piece[0] = len;
        pieces.push(match sources[to] {
            Some(from) => {
                let (mut start, mut limit) = (vec![0; shape.len()], shape.to_vec());
                (start[0], limit[0]) = (from, from + len);
                let strides = vec![1; shape.len()];
                x.apply(Slice { start: start.into(), limit: limit.into(), strides: strides.into() })
            }
            None => x.writer().literal(Literal::from_f64(dtype, 0.0)).broadcast(&piece, &[]),
        });
        to += len;
    }
    Ok(match pieces[..] {
        [piece] => piece,
        _ => x.writer().apply(Concatenate { axis: 0 }, &pieces),
    })
}
