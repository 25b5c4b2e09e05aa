//! Rules of slices.
//!
//! If the starts of a dynamic slice differ between the examples of a batch, it becomes a gather, and an update becomes a scatter. Both
//! clamp their starts as the slices do.

use remat_ir::{
    Concatenate, DType, DynamicSlice, DynamicUpdateSlice, Gather, IndexMode, Literal, Operation, Pad, Result, Scatter,
    ScatterKind, Shape, Slice,
};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, shifted, unbatched};

impl Rules for Slice {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let aval = ins[0].linear(self)?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let counts = ct.shape()?;
        let config = (0..counts.len())
            .map(|d| {
                let taken = if counts[d] == 0 { 0 } else { (counts[d] - 1) * self.strides[d] + 1 };
                let behind = aval.shape[d] - self.start[d] - taken;
                (self.start[d] as i64, behind as i64, self.strides[d] - 1)
            })
            .collect();
        Ok(vec![Some(ct.writer().apply(Pad { config }, &[ct, ct.literal(0.0)]))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        let mut op = self.clone();
        op.start.insert(axis, 0);
        op.limit.insert(axis, size);
        op.strides.insert(axis, 1);
        Ok(vec![ins[0].map(|x| x.apply(op))])
    }
}

impl Rules for DynamicSlice {
    fn jvp<'w>(&self, ins: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| at_starts(self, &[t], &ins[1..]))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let aval = ins[0].linear(self)?;
        let starts = known(self, &ins[1..])?;
        let mut out = vec![None; ins.len()];
        out[0] = cotangents[0].map(|ct| at_starts(&DynamicUpdateSlice, &[ct.writer().zeros(aval), ct], &starts));
        Ok(out)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, starts) = (ins[0], &ins[1..]);
        if starts.iter().all(|s| s.axis.is_none()) {
            let Some(axis) = x.axis else { return unbatched(w, self, ins) };
            let mut sizes = self.sizes.clone();
            sizes.insert(axis, size);
            let starts = starts_with_batch(w, starts, axis)?;
            return Ok(vec![x.map(|x| at_starts(&DynamicSlice { sizes }, &[x], &starts))]);
        }
        let rank = self.sizes.len();
        let dims: Shape = (0..rank).collect();
        let mut gather = Gather {
            offset_dims: (1..=rank).collect(),
            collapsed_slice_dims: Shape::new(),
            start_index_map: dims.clone(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: self.sizes.clone(),
            mode: IndexMode::Clip,
            fill_value: Literal::from_f64(x.atom.dtype()?, 0.0),
        };
        if let Some(axis) = x.axis {
            gather.start_index_map = shifted(&dims, axis);
            gather.operand_batching_dims.push(axis);
            gather.start_indices_batching_dims.push(0);
            gather.slice_sizes.insert(axis, size.min(1));
        }
        Ok(vec![Batched::front(w.apply(gather, &[x.atom, index_vectors(w, size, starts)]))])
    }
}

impl Rules for DynamicUpdateSlice {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let x = w.instantiate(tangents[0], &ins[0].aval()?);
        let update = w.instantiate(tangents[1], &ins[1].aval()?);
        Ok(vec![Some(at_starts(self, &[x, update], &ins[2..]))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let starts = known(self, &ins[2..])?;
        let mut out = vec![None; ins.len()];
        let Some(ct) = cotangents[0] else { return Ok(out) };
        let update = ins[1].aval()?;
        if ins[0].is_linear() {
            out[0] = Some(at_starts(self, &[ct, ct.writer().zeros(&update)], &starts));
        }
        if ins[1].is_linear() {
            out[1] = Some(at_starts(&DynamicSlice { sizes: update.shape }, &[ct], &starts));
        }
        Ok(out)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (x, update, starts) = (ins[0], ins[1], &ins[2..]);
        if starts.iter().all(|s| s.axis.is_none()) {
            let Some(axis) = x.axis.or(update.axis) else { return unbatched(w, self, ins) };
            let operands = [x.to_axis(size, axis), update.to_axis(size, axis)];
            let starts = starts_with_batch(w, starts, axis)?;
            return Ok(vec![Batched::at(at_starts(self, &operands, &starts), axis)]);
        }
        let axis = x.axis.unwrap_or(0);
        let x = x.to_axis(size, axis);
        let update = update.to_front(size);
        let indices = index_vectors(w, size, starts);
        let dims: Shape = (0..starts.len()).collect();
        let scatter = Scatter {
            kind: ScatterKind::Set,
            update_window_dims: (1..=starts.len()).collect(),
            inserted_window_dims: Shape::new(),
            scatter_dims_to_operand_dims: shifted(&dims, axis),
            operand_batching_dims: [axis].into_iter().collect(),
            scatter_indices_batching_dims: [0].into_iter().collect(),
            mode: IndexMode::Clip,
            unique_indices: true,
        };
        Ok(vec![Batched::at(w.apply(scatter, &[x, indices, update]), axis)])
    }
}

/// A dynamic slice or update of these operands at these starts.
fn at_starts<'w>(op: &impl Operation, operands: &[Expr<'w>], starts: &[Expr<'w>]) -> Expr<'w> {
    operands[0].writer().apply(op.clone(), &[operands, starts].concat())
}

/// The starts, in which the operation is not linear.
fn known<'w>(op: &impl Operation, starts: &[Operand<Expr<'w>>]) -> Result<Vec<Expr<'w>>> {
    starts.iter().map(|s| s.known(op)).collect()
}

/// The shared starts of a block that covers the whole batch dimension at `axis`.
fn starts_with_batch<'w>(w: Writer<'w>, starts: &[Batched<Expr<'w>>], axis: usize) -> Result<Vec<Expr<'w>>> {
    let dtype = starts.first().map_or(Ok(DType::I32), |s| s.atom.dtype())?;
    let mut starts: Vec<_> = starts.iter().map(|s| s.atom).collect();
    starts.insert(axis, w.literal(Literal::from_f64(dtype, 0.0)));
    Ok(starts)
}

/// Starts that differ between examples, as one index vector per example: `[size, starts.len()]`.
fn index_vectors<'w>(w: Writer<'w>, size: usize, starts: &[Batched<Expr<'w>>]) -> Expr<'w> {
    let columns: Vec<_> = starts.iter().map(|start| start.to_front(size).expand_dims(&[1])).collect();
    match columns[..] {
        [column] => column,
        _ => w.apply(Concatenate { axis: 1 }, &columns),
    }
}
