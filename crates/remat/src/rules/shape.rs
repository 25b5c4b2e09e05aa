//! Rules of operations that move elements.
//!
//! All of them are linear. Batching keeps the batch dimension in place if that needs no additional equation.

use remat_ir::{
    Aval, BroadcastInDim, Concatenate, DType, ExpandDims, Iota, Literal, Pad, Reshape, Result, Rev, Shape, Slice,
    Squeeze, Transpose,
};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, shifted, unbatched};

impl Rules for BroadcastInDim {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let aval = ins[0].linear(self)?;
        let repeated: Vec<usize> =
            (0..self.dims.len()).filter(|&i| aval.shape[i] != self.shape[self.dims[i]]).collect();
        let summed: Vec<usize> = (0..self.shape.len())
            .filter(|d| self.dims.iter().position(|e| e == d).is_none_or(|i| repeated.contains(&i)))
            .collect();
        Ok(vec![cotangents[0].map(|ct| ct.sum(&summed).expand_dims(&repeated))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        // The new dimension follows the result dimension of the operand dimension that it follows.
        let out = if axis == 0 { 0 } else { self.dims[axis - 1] + 1 };
        let mut shape = self.shape.clone();
        shape.insert(out, size);
        let mut dims = shifted(&self.dims, out);
        dims.insert(axis, out);
        Ok(vec![Batched::at(ins[0].atom.apply(BroadcastInDim { shape, dims }), out)])
    }
}

impl Rules for Reshape {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let aval = ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.reshape(&aval.shape))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let mut shape = self.shape.clone();
        shape.insert(0, size);
        Ok(vec![Batched::front(ins[0].to_front(size).apply(Reshape { shape }))])
    }
}

impl Rules for Transpose {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        let mut inverse = vec![0; self.permutation.len()];
        for (i, &p) in self.permutation.iter().enumerate() {
            inverse[p] = i;
        }
        Ok(vec![cotangents[0].map(|ct| ct.transpose(&inverse))])
    }

    /// Puts the batch dimension in front, since elements are moved in any case.
    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        let mut permutation = shifted(&self.permutation, axis);
        permutation.insert(0, axis);
        Ok(vec![Batched::front(ins[0].atom.apply(Transpose { permutation }))])
    }
}

impl Rules for Squeeze {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.expand_dims(&self.axes))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        let dropped = self.axes.iter().filter(|&&a| a < axis).count();
        let out = ins[0].atom.apply(Squeeze { axes: shifted(&self.axes, axis) });
        Ok(vec![Batched::at(out, axis - dropped)])
    }
}

impl Rules for ExpandDims {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.apply(Squeeze { axes: self.axes.clone() }))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        let rank = ins[0].atom.shape()?.len() - 1 + self.axes.len();
        let mut kept = (0..rank).filter(|d| !self.axes.contains(d));
        let out = if axis == 0 { 0 } else { kept.nth(axis - 1).map_or(rank, |d| d + 1) };
        Ok(vec![Batched::at(ins[0].atom.apply(ExpandDims { axes: shifted(&self.axes, out) }), out)])
    }
}

impl Rules for Rev {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.apply(self.clone()))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        Ok(vec![ins[0].map(|x| x.apply(Rev { axes: shifted(&self.axes, axis) }))])
    }
}

impl Rules for Concatenate {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let mut operands = Vec::with_capacity(ins.len());
        for (x, &t) in ins.iter().zip(tangents) {
            operands.push(w.instantiate(t, &x.aval()?));
        }
        Ok(vec![Some(w.apply(*self, &operands))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; ins.len()]) };
        let whole = ct.shape()?;
        let mut offset = 0;
        let mut out = Vec::with_capacity(ins.len());
        for operand in ins {
            let shape = operand.aval()?.shape;
            let mut slice =
                Slice { start: Shape::from_elem(0, whole.len()), limit: whole.clone(), strides: ones(whole.len()) };
            slice.start[self.axis] = offset;
            offset += shape[self.axis];
            slice.limit[self.axis] = offset;
            out.push(match operand {
                Operand::Known(_) => None,
                Operand::Linear(_) if shape == whole => Some(ct),
                Operand::Linear(_) => Some(ct.apply(slice)),
            });
        }
        Ok(out)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(batch) = ins.iter().find_map(|x| x.axis) else { return unbatched(w, self, ins) };
        let operands: Vec<_> = ins.iter().map(|x| x.to_axis(size, batch)).collect();
        let axis = self.axis + usize::from(self.axis >= batch);
        Ok(vec![Batched::at(w.apply(Concatenate { axis }, &operands), batch)])
    }
}

impl Rules for Pad {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let x = w.instantiate(tangents[0], &ins[0].aval()?);
        let value = w.instantiate(tangents[1], &ins[1].aval()?);
        Ok(vec![Some(w.apply(self.clone(), &[x, value]))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 2]) };
        let ct_x = if ins[0].is_linear() { Some(unpad(ct, &self.config)?) } else { None };
        let ct_value = if ins[1].is_linear() {
            let padding = padding_mask(ct.writer(), &ins[0].aval()?.shape, &self.config);
            let all: Vec<usize> = (0..self.config.len()).collect();
            Some(padding.select(ct, 0.0).sum(&all))
        } else {
            None
        };
        Ok(vec![ct_x, ct_value])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let [x, value] = [ins[0], ins[1]];
        if value.axis.is_none() {
            let Some(axis) = x.axis else { return unbatched(w, self, ins) };
            return Ok(vec![x.map(|x| w.apply(pad_with_batch(self, axis), &[x, value.atom]))]);
        }
        // Each example has its own padding value: pad with zeros, then insert the values.
        let x = x.to_front(size);
        let padding = padding_mask(w, &x.shape()?[1..], &self.config);
        let x = w.apply(pad_with_batch(self, 0), &[x, x.literal(0.0)]);
        let shape = x.shape()?;
        let padding = padding.broadcast(&shape, &(1..shape.len()).collect::<Vec<_>>());
        let value = value.atom.broadcast(&shape, &[0]);
        Ok(vec![Batched::front(padding.select(value, x))])
    }
}

impl Rules for Iota {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(Vec::new())
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        unbatched(w, self, ins)
    }
}

/// The inverse of padding: the elements of a padded array that came from the operand, and zeros for those that were cropped.
fn unpad<'w>(ct: Expr<'w>, config: &[(i64, i64, usize)]) -> Result<Expr<'w>> {
    let mut x = ct;
    if config.iter().any(|&(low, high, _)| (low, high) != (0, 0)) {
        let config = config.iter().map(|&(low, high, _)| (-low, -high, 0)).collect();
        x = ct.writer().apply(Pad { config }, &[ct, ct.literal(0.0)]);
    }
    if config.iter().all(|&(_, _, interior)| interior == 0) {
        return Ok(x);
    }
    let limit = x.shape()?;
    let start = Shape::from_elem(0, limit.len());
    let strides = config.iter().map(|&(_, _, interior)| interior + 1).collect();
    Ok(x.apply(Slice { start, limit, strides }))
}

/// True where the padded array of an operand with this shape has the padding value.
fn padding_mask<'w>(w: Writer<'w>, shape: &[usize], config: &[(i64, i64, usize)]) -> Expr<'w> {
    let inside = w.zeros(&Aval::new(DType::Bool, shape.iter().copied()));
    w.apply(Pad { config: config.to_vec() }, &[inside, w.literal(Literal::from_bool(true))])
}

/// The padding of a batch of operands whose batch dimension is at `axis`.
fn pad_with_batch(op: &Pad, axis: usize) -> Pad {
    let mut config = op.config.clone();
    config.insert(axis, (0, 0, 0));
    Pad { config }
}

fn ones(rank: usize) -> Shape {
    Shape::from_elem(1, rank)
}
