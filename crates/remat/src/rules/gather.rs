//! Rules of gather and scatter.
//!
//! Batching uses the batching dimensions of both operations, so no index has to be computed. The two are transposes of each other: a gather
//! scatters its cotangent, adding where slices overlap, and a scatter gathers it.

use remat_ir::{
    Aval, Compare, DType, Error, ErrorKind, Gather, Iota, Literal, Operation, Result, Scatter, ScatterKind, Unary,
};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, shifted, sum_of, unbatched};

impl Rules for Gather {
    fn jvp<'w>(&self, ins: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        // An element out of range is constant, even if the fill value is a NaN.
        let fill_value = Literal::from_f64(t.dtype()?, 0.0);
        Ok(vec![Some(t.writer().apply(Gather { fill_value, ..self.clone() }, &[t, ins[1]]))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let aval = ins[0].linear(self)?;
        let indices = ins[1].known(self)?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 2]) };
        let scatter = Scatter {
            kind: ScatterKind::Add,
            update_window_dims: self.offset_dims.clone(),
            inserted_window_dims: self.collapsed_slice_dims.clone(),
            scatter_dims_to_operand_dims: self.start_index_map.clone(),
            operand_batching_dims: self.operand_batching_dims.clone(),
            scatter_indices_batching_dims: self.start_indices_batching_dims.clone(),
            mode: self.mode,
            unique_indices: false,
        };
        let w = ct.writer();
        Ok(vec![Some(w.apply(scatter, &[w.zeros(aval), indices, ct])), None])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, mut indices) = (ins[0], ins[1]);
        let mut op = self.clone();
        if let Some(axis) = x.axis {
            op.collapsed_slice_dims = shifted(&self.collapsed_slice_dims, axis);
            op.start_index_map = shifted(&self.start_index_map, axis);
            op.operand_batching_dims = shifted(&self.operand_batching_dims, axis);
        }
        let out = match (x.axis, indices.axis) {
            (None, None) => return unbatched(w, self, ins),
            (Some(axis), None) => {
                // The batch dimension becomes another dimension of every slice, taken whole.
                let kept =
                    |d: &usize| !self.collapsed_slice_dims.contains(d) && !self.operand_batching_dims.contains(d);
                let at = (0..axis).filter(kept).count();
                let out = if at == 0 { 0 } else { self.offset_dims[at - 1] + 1 };
                op.offset_dims = shifted(&self.offset_dims, out);
                op.offset_dims.insert(at, out);
                op.slice_sizes.insert(axis, size);
                out
            }
            (x_axis, Some(axis)) => {
                // The last dimension of the indices has to stay the index vector.
                let rank = indices.atom.shape()?.len();
                if axis == rank - 1 {
                    indices = Batched::front(indices.atom.move_axis(axis, 0));
                }
                let axis = if axis == rank - 1 { 0 } else { axis };
                let mut batch_dims = (0..).filter(|d| !self.offset_dims.contains(d));
                let out = if axis == 0 { 0 } else { batch_dims.nth(axis - 1).map_or(0, |d| d + 1) };
                op.offset_dims = shifted(&self.offset_dims, out);
                op.start_indices_batching_dims = shifted(&self.start_indices_batching_dims, axis);
                if let Some(x_axis) = x_axis {
                    let at = op.operand_batching_dims.iter().filter(|&&d| d < x_axis).count();
                    op.operand_batching_dims.insert(at, x_axis);
                    op.start_indices_batching_dims.insert(at, axis);
                    op.slice_sizes.insert(x_axis, size.min(1));
                }
                out
            }
        };
        Ok(vec![Batched::at(w.apply(op, &[x.atom, indices.atom]), out)])
    }
}

impl Rules for Scatter {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let (x, indices, updates) = (ins[0], ins[1], ins[2]);
        let (tx, tu) = (tangents[0], tangents[2]);
        let (x_aval, u_aval) = (x.aval()?, updates.aval()?);
        let out = match self.kind {
            ScatterKind::Add if tu.is_none() => tx,
            ScatterKind::Add | ScatterKind::Set => {
                let tx = w.instantiate(tx, &x_aval);
                let tu = w.instantiate(tu, &u_aval);
                Some(w.apply(self.clone(), &[tx, indices, tu]))
            }
            ScatterKind::Mul => {
                let from_x = tx.map(|t| w.apply(self.clone(), &[t, indices, updates]));
                let from_updates = match tu {
                    None => None,
                    Some(_) if !self.unique_indices => {
                        let message = "has no derivative with respect to its updates if an index may occur twice; if none does, say so with .at(..).unique()";
                        return Err(Error::new(ErrorKind::Differentiation, self.name(), message));
                    }
                    Some(t) => {
                        let add = self.with_kind(ScatterKind::Add);
                        Some(w.apply(add, &[w.zeros(&x_aval), indices, t]) * x)
                    }
                };
                sum_of(from_x, from_updates)
            }
            ScatterKind::Min | ScatterKind::Max => {
                if x_aval.size() == 0 {
                    return Ok(vec![None]);
                }
                // The tangent is the mean over all elements that equal the result, including the original one. As in reductions it is NaN
                // where an update is NaN; an element without updates keeps its tangent.
                let results = self.inverse_gather(outs[0], indices, &u_aval)?;
                let loses = if self.kind == ScatterKind::Max { Compare::Lt } else { Compare::Gt };
                let wins = |x: Expr<'w>, out| x.compare(loses, out).apply(Unary::Not);
                let (x_wins, u_wins) = (wins(x, outs[0]), wins(updates, results));
                let (x_count, u_count) = (x_wins.convert(x_aval.dtype), u_wins.convert(x_aval.dtype));
                let u_count = results.eq(results).select(u_count, f64::NAN);
                let add = self.with_kind(ScatterKind::Add);
                let count = w.apply(add.clone(), &[x_count, indices, u_count]);
                let tx = match tx {
                    Some(tx) => x_wins.select(tx, 0.0),
                    None => w.zeros(&x_aval),
                };
                let sum = match tu {
                    Some(tu) => w.apply(add, &[tx, indices, u_wins.select(tu, 0.0)]),
                    None => tx,
                };
                Some(sum / count)
            }
        };
        Ok(vec![out])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let indices = ins[1].known(self)?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 3]) };
        let u_aval = ins[2].aval()?;
        let (ct_x, ct_updates) = match self.kind {
            ScatterKind::Add => {
                let ct_updates =
                    if ins[2].is_linear() { Some(self.inverse_gather(ct, indices, &u_aval)?) } else { None };
                (ins[0].is_linear().then_some(ct), ct_updates)
            }
            ScatterKind::Set => {
                let ct_x = if ins[0].is_linear() {
                    Some(ct.writer().apply(self.clone(), &[ct, indices, ct.writer().zeros(&u_aval)]))
                } else {
                    None
                };
                let ct_updates =
                    if ins[2].is_linear() { Some(self.gather_from_winners(ct, indices, &u_aval)?) } else { None };
                (ct_x, ct_updates)
            }
            ScatterKind::Mul => match (&ins[0], &ins[2]) {
                (Operand::Linear(_), &Operand::Known(updates)) => {
                    (Some(ct.writer().apply(self.clone(), &[ct, indices, updates])), None)
                }
                // Elements without updates are constant, and contribute nothing to a cotangent.
                (&Operand::Known(x), Operand::Linear(_)) if self.unique_indices => {
                    (None, Some(self.inverse_gather(ct * x, indices, &u_aval)?))
                }
                (Operand::Known(_), _) | (Operand::Linear(_), Operand::Linear(_)) => return Err(not_linear(self)),
            },
            ScatterKind::Min | ScatterKind::Max => return Err(not_linear(self)),
        };
        Ok(vec![ct_x, None, ct_updates])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        if ins.iter().all(|x| x.axis.is_none()) {
            return unbatched(w, self, ins);
        }
        let (x, updates) = (ins[0].to_front(size), ins[2].to_front(size));
        let mut op = Scatter {
            update_window_dims: shifted(&self.update_window_dims, 0),
            inserted_window_dims: shifted(&self.inserted_window_dims, 0),
            scatter_dims_to_operand_dims: shifted(&self.scatter_dims_to_operand_dims, 0),
            operand_batching_dims: shifted(&self.operand_batching_dims, 0),
            ..self.clone()
        };
        let indices = if ins[1].axis.is_none() {
            // All examples are updated at the same positions: the batch dimension becomes another dimension of every slice.
            op.update_window_dims.insert(0, 0);
            ins[1].atom
        } else {
            op.operand_batching_dims.insert(0, 0);
            op.scatter_indices_batching_dims = shifted(&self.scatter_indices_batching_dims, 0);
            op.scatter_indices_batching_dims.insert(0, 0);
            ins[1].to_front(size)
        };
        Ok(vec![Batched::front(w.apply(op, &[x, indices, updates]))])
    }
}

/// Helpers for the rules of a scatter.
trait Inverse {
    /// The same scatter with another combining operation.
    fn with_kind(&self, kind: ScatterKind) -> Scatter;

    /// For each element of the updates, the element of `x` that it updates; zero if the update is dropped.
    fn inverse_gather<'w>(&self, x: Expr<'w>, indices: Expr<'w>, updates: &Aval) -> Result<Expr<'w>>;

    /// As [`Inverse::inverse_gather`], but zero for the updates that a later one overwrites.
    fn gather_from_winners<'w>(&self, x: Expr<'w>, indices: Expr<'w>, updates: &Aval) -> Result<Expr<'w>>;
}

impl Inverse for Scatter {
    fn with_kind(&self, kind: ScatterKind) -> Scatter {
        Scatter { kind, ..self.clone() }
    }

    fn inverse_gather<'w>(&self, x: Expr<'w>, indices: Expr<'w>, updates: &Aval) -> Result<Expr<'w>> {
        let (w, aval) = (x.writer(), x.aval()?);
        if aval.size() == 0 {
            return Ok(w.zeros(&updates.with_dtype(aval.dtype)));
        }
        let mut window = self.update_window_dims.iter().map(|&d| updates.shape[d]);
        let dropped = |d: &usize| self.inserted_window_dims.contains(d) || self.operand_batching_dims.contains(d);
        let gather = Gather {
            offset_dims: self.update_window_dims.clone(),
            collapsed_slice_dims: self.inserted_window_dims.clone(),
            start_index_map: self.scatter_dims_to_operand_dims.clone(),
            operand_batching_dims: self.operand_batching_dims.clone(),
            start_indices_batching_dims: self.scatter_indices_batching_dims.clone(),
            slice_sizes: (0..aval.rank()).map(|d| if dropped(&d) { 1 } else { window.next().unwrap_or(1) }).collect(),
            mode: self.mode,
            fill_value: Literal::from_f64(aval.dtype, 0.0),
        };
        Ok(w.apply(gather, &[x, indices]))
    }

    fn gather_from_winners<'w>(&self, x: Expr<'w>, indices: Expr<'w>, updates: &Aval) -> Result<Expr<'w>> {
        let gathered = self.inverse_gather(x, indices, updates)?;
        let (w, aval) = (x.writer(), x.aval()?);
        if self.unique_indices || aval.size() == 0 {
            return Ok(gathered);
        }
        // Numbers the elements of the updates from 1, scatters the numbers, and finds those that read back their own number.
        let count = updates.size();
        let dtype = if i32::try_from(count).is_ok() { DType::I32 } else { DType::I64 };
        let numbers = w.apply(Iota { dtype, shape: [count].into_iter().collect(), axis: 0 }, &[]) + 1.0;
        let numbers = numbers.reshape(&updates.shape);
        let winners = w.apply(self.clone(), &[w.zeros(&aval.with_dtype(dtype)), indices, numbers]);
        let winners = self.inverse_gather(winners, indices, updates)?;
        Ok(winners.eq(numbers).select(gathered, 0.0))
    }
}
