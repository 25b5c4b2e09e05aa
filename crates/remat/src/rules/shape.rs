//! Rules of operations that move elements.
//!
//! All of them are linear. Batching keeps the batch dimension where it is wherever that needs no further equation.

use remat_ir::{
    Array, Atom, Aval, BroadcastInDim, Builder, Concatenate, DType, ExpandDims, Iota, Literal, Operation, Pad, Reshape,
    Result, Rev, Shape, Slice, Squeeze, Transpose,
};

use super::sample::{any, array, floats};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear};

impl Rules for BroadcastInDim {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let aval = linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let repeated: Vec<usize> =
            (0..self.dims.len()).filter(|&i| aval.shape[i] != self.shape[self.dims[i]]).collect();
        let summed: Vec<usize> = (0..self.shape.len())
            .filter(|d| self.dims.iter().position(|e| e == d).is_none_or(|i| repeated.contains(&i)))
            .collect();
        let ct = b.reduce_sum(ct, &summed)?;
        Ok(vec![Some(b.expand_dims(ct, &repeated)?)])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        // The new dimension goes right behind the result dimension of the operand dimension that it stands behind.
        let out = if axis == 0 { 0 } else { self.dims[axis - 1] + 1 };
        let mut shape = self.shape.clone();
        shape.insert(out, size);
        let mut dims: Shape = self.dims.iter().map(|&d| d + usize::from(d >= out)).collect();
        dims.insert(axis, out);
        let atom = b.apply(BroadcastInDim { shape, dims }, &[ins[0].atom])?;
        Ok(vec![Batched { atom, axis: Some(out) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |shape: &[usize], dims: &[usize]| BroadcastInDim { shape: shape.into(), dims: dims.into() };
        let mut samples: Vec<Sample> = [
            ("scalar", op(&[2, 3], &[]), &[][..]),
            ("scalar to scalar", op(&[], &[]), &[]),
            ("new dimension in front", op(&[4, 3], &[1]), &[3]),
            ("new dimension behind", op(&[3, 4], &[0]), &[3]),
            ("repeated dimension", op(&[2, 3, 4], &[0, 1, 2]), &[2, 1, 4]),
            ("dimension of size 1 kept", op(&[1, 3], &[0, 1]), &[1, 1]),
            ("new, kept and repeated", op(&[5, 2, 3, 1, 4], &[1, 2, 4]), &[2, 1, 4]),
            ("empty", op(&[2, 0, 3], &[1, 2]), &[0, 3]),
            ("repeated no times", op(&[0, 2], &[0, 1]), &[1, 2]),
            ("rank 7", op(&[2, 1, 2, 1, 3, 1, 2], &[0, 2, 3, 6]), &[2, 2, 1, 1]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples
            .extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[2, 3], &[1]), vec![any(d, &[3])]).linear_in(&[0])));
        samples
    }
}

impl Rules for Reshape {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let aval = linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(b.reshape(ct, &aval.shape)?)])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let x = b.batch_front(ins[0], size)?;
        let mut shape = self.shape.clone();
        shape.insert(0, size);
        Ok(vec![Batched::front(b.apply(Reshape { shape }, &[x])?)])
    }

    fn samples() -> Vec<Sample> {
        let op = |shape: &[usize]| Reshape { shape: shape.into() };
        let mut samples: Vec<Sample> = [
            ("flatten", op(&[6]), &[2, 3][..]),
            ("regroup", op(&[2, 6]), &[3, 4]),
            ("unchanged", op(&[2, 3]), &[2, 3]),
            ("to scalar", op(&[]), &[1, 1]),
            ("from scalar", op(&[1, 1, 1]), &[]),
            ("empty", op(&[5, 0]), &[0, 3]),
            ("rank 6", op(&[2, 1, 2, 1, 3, 1]), &[3, 4]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[4]), vec![any(d, &[2, 2])]).linear_in(&[0])));
        samples
    }
}

impl Rules for Transpose {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let mut inverse = vec![0; self.permutation.len()];
        for (i, &p) in self.permutation.iter().enumerate() {
            inverse[p] = i;
        }
        Ok(vec![Some(b.transpose(ct, &inverse)?)])
    }

    /// Puts the batch dimension in front: elements are moved in any case.
    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let mut permutation: Shape = shifted(&self.permutation, axis);
        permutation.insert(0, axis);
        Ok(vec![Batched::front(b.apply(Transpose { permutation }, &[ins[0].atom])?)])
    }

    fn samples() -> Vec<Sample> {
        let op = |permutation: &[usize]| Transpose { permutation: permutation.into() };
        let mut samples: Vec<Sample> = [
            ("matrix", op(&[1, 0]), &[2, 3][..]),
            ("cycle", op(&[2, 0, 1]), &[2, 3, 4]),
            ("identity", op(&[0, 1]), &[2, 3]),
            ("scalar", op(&[]), &[]),
            ("empty", op(&[1, 2, 0]), &[2, 0, 3]),
            ("rank 6", op(&[5, 3, 0, 4, 2, 1]), &[2, 1, 3, 2, 1, 2]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[1, 0]), vec![any(d, &[2, 3])]).linear_in(&[0])));
        samples
    }
}

impl Rules for Squeeze {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(b.expand_dims(ct, &self.axes)?)])
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let atom = b.apply(Squeeze { axes: shifted(&self.axes, axis) }, &[ins[0].atom])?;
        let dropped = self.axes.iter().filter(|&&a| a < axis).count();
        Ok(vec![Batched { atom, axis: Some(axis - dropped) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |axes: &[usize]| Squeeze { axes: axes.into() };
        let mut samples: Vec<Sample> = [
            ("front", op(&[0]), &[1, 3][..]),
            ("several", op(&[0, 2, 3]), &[1, 3, 1, 1, 2]),
            ("one of several", op(&[1]), &[1, 1, 2]),
            ("to scalar", op(&[0, 1]), &[1, 1]),
            ("none", op(&[]), &[1, 2]),
            ("empty", op(&[1]), &[0, 1, 2]),
            ("rank 6", op(&[1, 4]), &[2, 1, 2, 1, 1, 3]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[1]), vec![any(d, &[3, 1])]).linear_in(&[0])));
        samples
    }
}

impl Rules for ExpandDims {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(b.apply(Squeeze { axes: self.axes.clone() }, &[ct])?)])
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let rank = b.shape(ins[0].atom).len() - 1 + self.axes.len();
        let mut kept = (0..rank).filter(|d| !self.axes.contains(d));
        let out = if axis == 0 { 0 } else { kept.nth(axis - 1).map_or(rank, |d| d + 1) };
        let atom = b.apply(ExpandDims { axes: shifted(&self.axes, out) }, &[ins[0].atom])?;
        Ok(vec![Batched { atom, axis: Some(out) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |axes: &[usize]| ExpandDims { axes: axes.into() };
        let mut samples: Vec<Sample> = [
            ("front", op(&[0]), &[3][..]),
            ("behind", op(&[2]), &[3, 2]),
            ("several", op(&[0, 2, 3]), &[3, 2]),
            ("from scalar", op(&[0, 1]), &[]),
            ("none", op(&[]), &[2]),
            ("empty", op(&[1]), &[0, 2]),
            ("rank 7", op(&[1, 3, 5, 6]), &[2, 3, 2]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[1]), vec![any(d, &[3])]).linear_in(&[0])));
        samples
    }
}

impl Rules for Rev {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(b.apply(self.clone(), &[ct])?)])
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let atom = b.apply(Rev { axes: shifted(&self.axes, axis) }, &[ins[0].atom])?;
        Ok(vec![Batched { atom, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |axes: &[usize]| Rev { axes: axes.into() };
        let mut samples: Vec<Sample> = [
            ("vector", op(&[0]), &[4][..]),
            ("last", op(&[1]), &[2, 3]),
            ("both", op(&[0, 1]), &[2, 3]),
            ("none", op(&[]), &[2, 3]),
            ("scalar", op(&[]), &[]),
            ("empty", op(&[0]), &[0, 2]),
            ("rank 6", op(&[1, 3, 5]), &[1, 2, 2, 3, 1, 2]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), op(&[0]), vec![any(d, &[3, 2])]).linear_in(&[0])));
        samples
    }
}

impl Rules for Concatenate {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let mut parts = Vec::with_capacity(ins.len());
        for (&x, &t) in ins.iter().zip(tangents) {
            let aval = b.aval(x);
            parts.push(b.instantiate(t, &aval)?);
        }
        Ok(vec![Some(b.apply(*self, &parts)?)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; ins.len()]) };
        let whole = b.shape(ct);
        let mut offset = 0;
        let mut out = Vec::with_capacity(ins.len());
        for operand in ins {
            let shape = match operand {
                Operand::Known(x) => b.shape(*x),
                Operand::Linear(aval) => aval.shape.clone(),
            };
            let mut start: Shape = whole.iter().map(|_| 0).collect();
            let mut limit = whole.clone();
            start[self.axis] = offset;
            offset += shape[self.axis];
            limit[self.axis] = offset;
            let strides = whole.iter().map(|_| 1).collect();
            let part = Slice { start, limit, strides };
            out.push(match operand {
                Operand::Known(_) => None,
                Operand::Linear(_) if shape == whole => Some(ct),
                Operand::Linear(_) => Some(b.apply(part, &[ct])?),
            });
        }
        Ok(out)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(batch) = ins.iter().find_map(|x| x.axis) else { return unbatched(b, self, ins) };
        let parts = ins.iter().map(|&x| b.batch_at(x, size, batch)).collect::<Result<Vec<_>>>()?;
        let axis = self.axis + usize::from(self.axis >= batch);
        Ok(vec![Batched { atom: b.apply(Concatenate { axis }, &parts)?, axis: Some(batch) }])
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, axis: usize, shapes: &[&[usize]]| {
            let all: Vec<usize> = (0..shapes.len()).collect();
            Sample::new(label, Concatenate { axis }, shapes.iter().map(|s| floats(s)).collect()).linear_in(&all)
        };
        let mut samples = vec![
            sample("vectors", 0, &[&[2], &[3]]),
            sample("rows", 0, &[&[1, 3], &[2, 3], &[1, 3]]),
            sample("columns", 1, &[&[2, 3], &[2, 1]]),
            sample("one operand", 1, &[&[2, 3]]),
            sample("an empty operand", 0, &[&[0, 2], &[2, 2], &[0, 2]]),
            sample("empty", 1, &[&[0, 2], &[0, 3]]),
            sample("rank 6", 4, &[&[1, 2, 1, 2, 1, 2], &[1, 2, 1, 2, 2, 2]]),
        ];
        let pair = |d| vec![any(d, &[2, 1]), any(d, &[2, 2])];
        samples.extend(DType::ALL.map(|d| Sample::new(d.name(), Concatenate { axis: 1 }, pair(d)).linear_in(&[0, 1])));
        let zeros = array(DType::F64, &[2, 1], &[0.0]);
        let beside_zeros = vec![zeros.clone(), floats(&[2, 2]), zeros];
        samples.push(Sample::new("beside zeros", Concatenate { axis: 1 }, beside_zeros).linear_in(&[1]));
        samples
    }
}

impl Rules for Pad {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (x, value) = (b.aval(ins[0]), b.aval(ins[1]));
        let x = b.instantiate(tangents[0], &x)?;
        let value = b.instantiate(tangents[1], &value)?;
        Ok(vec![Some(b.apply(self.clone(), &[x, value])?)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 2]) };
        let x = match &ins[0] {
            Operand::Known(x) => b.aval(*x),
            Operand::Linear(aval) => aval.clone(),
        };
        let ct_x = if ins[0].is_linear() { Some(unpad(b, ct, &self.config)?) } else { None };
        let ct_value = if ins[1].is_linear() {
            let padding = padding_mask(b, &x.shape, &self.config)?;
            let zero = b.literal(ct, 0.0);
            let ct = b.select(padding, ct, zero)?;
            let all: Vec<usize> = (0..self.config.len()).collect();
            Some(b.reduce_sum(ct, &all)?)
        } else {
            None
        };
        Ok(vec![ct_x, ct_value])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let [x, value] = [ins[0], ins[1]];
        if value.axis.is_none() {
            let Some(axis) = x.axis else { return unbatched(b, self, ins) };
            let atom = b.apply(pad_with_batch(self, axis), &[x.atom, value.atom])?;
            return Ok(vec![Batched { atom, axis: Some(axis) }]);
        }
        // Each example has a padding value of its own: pad with zeros, then put the values in.
        let x = b.batch_front(x, size)?;
        let example = b.shape(x);
        let padding = padding_mask(b, &example[1..], &self.config)?;
        let zero = b.literal(x, 0.0);
        let x = b.apply(pad_with_batch(self, 0), &[x, zero])?;
        let shape = b.shape(x);
        let padding = b.broadcast(padding, &shape, &(1..shape.len()).collect::<Vec<_>>())?;
        let value = b.broadcast(value.atom, &shape, &[0])?;
        Ok(vec![Batched::front(b.select(padding, value, x)?)])
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, shape: &[usize], config: &[(i64, i64, usize)]| {
            let inputs = vec![floats(shape), floats(&[])];
            Sample::new(label, Pad { config: config.to_vec() }, inputs).linear_in(&[0, 1])
        };
        let (config, zeros) = (vec![(1, -1, 1), (0, 2, 0)], |shape| array(DType::F64, shape, &[0.0]));
        let mut samples = vec![
            sample("low and high", &[3], &[(1, 2, 0)]),
            sample("nothing", &[2, 2], &[(0, 0, 0), (0, 0, 0)]),
            sample("interior", &[3, 2], &[(0, 0, 2), (1, 0, 1)]),
            sample("negative", &[4, 3], &[(-1, -2, 0), (-1, 1, 0)]),
            sample("negative and interior", &[4], &[(-2, -1, 2)]),
            sample("low beyond the end", &[2], &[(-3, 5, 0)]),
            sample("high beyond the start", &[2], &[(4, -3, 1)]),
            sample("cropped to nothing", &[3], &[(-1, -2, 0)]),
            sample("empty", &[0, 2], &[(1, 2, 1), (0, 1, 0)]),
            sample("one element, interior", &[1], &[(0, 0, 3)]),
            sample("scalar", &[], &[]),
            sample("rank 6", &[1, 2, 1, 2, 1, 2], &[(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (-1, 1, 1)]),
        ];
        let padded =
            |label: &str, x: Array, value: Array| Sample::new(label, Pad { config: config.clone() }, vec![x, value]);
        samples.push(padded("with zero", floats(&[3, 2]), zeros(&[])).linear_in(&[0]));
        samples.push(padded("of zeros", zeros(&[3, 2]), floats(&[])).linear_in(&[1]));
        samples.extend(DType::ALL.map(|d| padded(d.name(), any(d, &[2, 1]), any(d, &[])).linear_in(&[0, 1])));
        samples
    }
}

impl Rules for Iota {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Ok(Vec::new())
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        unbatched(b, self, ins)
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, dtype: DType, shape: &[usize], axis: usize| {
            Sample::new(label, Iota { dtype, shape: shape.into(), axis }, Vec::new())
        };
        let mut samples = vec![
            sample("first of two", DType::F64, &[3, 2], 0),
            sample("second of two", DType::F64, &[3, 2], 1),
            sample("empty", DType::I32, &[2, 0], 0),
            sample("empty axis", DType::F32, &[0], 0),
            sample("rank 6", DType::I64, &[1, 2, 1, 3, 1, 2], 3),
        ];
        let numeric = DType::ALL.into_iter().filter(|&d| d != DType::Bool);
        samples.extend(numeric.map(|d| sample(d.name(), d, &[4], 0)));
        samples
    }
}

/// The jvp of an operation that is linear in its only operand.
pub(super) fn linear_jvp(b: &mut Builder, op: &impl Operation, tangents: &[Option<Atom>]) -> Result<Linear> {
    Ok(vec![tangents[0].map(|t| b.apply(op.clone(), &[t])).transpose()?])
}

/// The aval of an operand for which a cotangent is wanted.
pub(super) fn linear_aval<'a>(op: &impl Operation, operand: &'a Operand) -> Result<&'a Aval> {
    match operand {
        Operand::Linear(aval) => Ok(aval),
        Operand::Known(_) => Err(not_linear(op)),
    }
}

/// Axes of an example, counted in a batch with the batch dimension at `batch`.
pub(super) fn shifted(axes: &[usize], batch: usize) -> Shape {
    axes.iter().map(|&a| a + usize::from(a >= batch)).collect()
}

/// The operation itself, where no operand is batched.
pub(super) fn unbatched(b: &mut Builder, op: &impl Operation, ins: &[Batched]) -> Result<Vec<Batched>> {
    let ins: Vec<Atom> = ins.iter().map(|x| x.atom).collect();
    Ok(vec![Batched::shared(b.apply(op.clone(), &ins)?)])
}

/// The inverse of padding where it is one: the elements of a padded array that came from the operand, and zeros for those
/// that were cropped away.
pub(super) fn unpad(b: &mut Builder, ct: Atom, config: &[(i64, i64, usize)]) -> Result<Atom> {
    let mut x = ct;
    if config.iter().any(|&(low, high, _)| (low, high) != (0, 0)) {
        let zero = b.literal(ct, 0.0);
        let config = config.iter().map(|&(low, high, _)| (-low, -high, 0)).collect();
        x = b.apply(Pad { config }, &[ct, zero])?;
    }
    if config.iter().all(|&(_, _, interior)| interior == 0) {
        return Ok(x);
    }
    let limit = b.shape(x);
    let start = limit.iter().map(|_| 0).collect();
    let strides = config.iter().map(|&(_, _, interior)| interior + 1).collect();
    b.apply(Slice { start, limit, strides }, &[x])
}

/// True where an operand of this shape, padded, holds the padding value.
fn padding_mask(b: &mut Builder, shape: &[usize], config: &[(i64, i64, usize)]) -> Result<Atom> {
    let inside = b.zeros(&Aval::new(DType::Bool, shape.iter().copied()))?;
    b.apply(Pad { config: config.to_vec() }, &[inside, Literal::from_bool(true).into()])
}

/// The padding of a batch of operands whose batch dimension is at `axis`.
fn pad_with_batch(op: &Pad, axis: usize) -> Pad {
    let mut config = op.config.clone();
    config.insert(axis, (0, 0, 0));
    Pad { config }
}
