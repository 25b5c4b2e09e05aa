//! Rules of reductions.

use remat_ir::{
    ArgKind, ArgReduce, Atom, Aval, Builder, Compare, Cumulative, CumulativeKind, DType, Pad, Reduce, ReduceKind,
    Result, Shape,
};

use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Reduce {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        let aval = b.aval_of(x);
        if self.axes.is_empty() {
            return Ok(vec![Some(t)]);
        }
        let tangent = match self.kind {
            ReduceKind::Sum => b.reduce_sum(t, &self.axes)?,
            // The identity of the monoid does not depend on the operand.
            _ if aval.size() == 0 => return Ok(vec![None]),
            ReduceKind::Prod => {
                let others = product_of_others(b, x, &self.axes)?;
                let product = b.mul(t, others)?;
                b.reduce_sum(product, &self.axes)?
            }
            // As in JAX, equal extrema share equally.
            ReduceKind::Max | ReduceKind::Min => {
                let wide = b.broadcast(out, &aval.shape, &kept(&aval, &self.axes))?;
                let mask = b.compare(Compare::Eq, x, wide)?;
                let numbers = b.convert(mask, aval.dtype)?;
                let count = b.reduce_sum(numbers, &self.axes)?;
                let zero = b.literal(t, 0.0);
                let chosen = b.select(mask, t, zero)?;
                let sum = b.reduce_sum(chosen, &self.axes)?;
                b.div(sum, count)?
            }
            ReduceKind::And | ReduceKind::Or => return Ok(vec![None]),
        };
        Ok(vec![Some(tangent)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        match (self.kind, &ins[0], cotangents[0]) {
            (ReduceKind::Sum, Operand::Linear(aval), Some(ct)) => {
                Ok(vec![Some(b.broadcast(ct, &aval.shape, &kept(aval, &self.axes))?)])
            }
            (ReduceKind::Sum, _, _) => Ok(vec![None]),
            _ => Err(not_linear(self)),
        }
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, axis) = in_place(b, size, ins)?;
        let axes: Shape = self.axes.iter().map(|&a| past(axis, a)).collect();
        let before = axes.iter().filter(|&&a| a < axis).count();
        let atom = b.apply(Reduce { kind: self.kind, axes }, &[x])?;
        Ok(vec![Batched { atom, axis: Some(axis - before) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in
            [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::And, ReduceKind::Or]
        {
            let logical = matches!(kind, ReduceKind::And | ReduceKind::Or);
            let sample = |label: &str, axes: &[usize], operand| {
                let sample = Sample::new(label, Reduce { kind, axes: axes.into() }, vec![operand]);
                match kind {
                    ReduceKind::Sum if sample.inputs[0].dtype().is_float() => sample.linear_in(&[0]),
                    ReduceKind::And | ReduceKind::Or => sample.not_smooth(),
                    _ => sample,
                }
            };
            for dtype in DType::ALL.into_iter().filter(|d| if logical { !d.is_float() } else { *d != DType::Bool }) {
                let sample = sample("dtypes", &[1], sample::any(dtype, &[2, 3]));
                samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
            }
            let dtype = if logical { DType::Bool } else { DType::F64 };
            for (label, axes, shape) in [
                ("first dimension", &[0][..], &[3, 2][..]),
                ("inner dimension", &[1], &[2, 3, 2]),
                ("several dimensions", &[0, 2], &[2, 3, 2]),
                ("all dimensions", &[0, 1], &[2, 3]),
                ("no dimensions", &[], &[2, 3]),
                ("scalar", &[], &[]),
                ("one element", &[0], &[1]),
                ("of nothing", &[1], &[2, 0]),
                ("to nothing", &[1], &[0, 2]),
            ] {
                samples.push(sample(label, axes, sample::any(dtype, shape)));
            }
            if !logical {
                let special = [f64::NAN, 1.0, f64::INFINITY, 2.0, f64::NEG_INFINITY, 0.0, -0.0, 0.0];
                samples.push(sample("special values", &[1], sample::array(DType::F64, &[4, 2], &special)).not_smooth());
                let coarse = sample::spread(DType::Bf16, &[300], 0.9, 1.1);
                samples.push(sample("many of a coarse dtype", &[0], coarse));
            }
        }
        let zeros = sample::array(DType::F64, &[3, 3], &[2.0, 0.0, 3.0, 0.0, 0.0, 5.0, 1.0, 2.0, 3.0]);
        let prod = Reduce { kind: ReduceKind::Prod, axes: [1].into_iter().collect() };
        samples.push(Sample::new("zeros", prod, vec![zeros]));
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            let ties = sample::array(DType::F64, &[2, 3], &[2.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
            samples
                .push(Sample::new("ties", Reduce { kind, axes: [1].into_iter().collect() }, vec![ties]).not_smooth());
        }
        samples
    }
}

impl Rules for ArgReduce {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, batch) = in_place(b, size, ins)?;
        let axis = past(batch, self.axis);
        let atom = b.apply(ArgReduce { axis, ..*self }, &[x])?;
        Ok(vec![Batched { atom, axis: Some(batch - usize::from(axis < batch)) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [ArgKind::Max, ArgKind::Min] {
            for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
                let op = ArgReduce { kind, axis: 1, index_dtype: DType::I32 };
                samples.push(Sample::new("dtypes", op, vec![sample::any(dtype, &[2, 5])]));
            }
            for index_dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
                let op = ArgReduce { kind, axis: 0, index_dtype };
                samples.push(Sample::new("index dtypes", op, vec![sample::any(DType::F64, &[5])]));
            }
            let op = |axis| ArgReduce { kind, axis, index_dtype: DType::I32 };
            let ties = sample::array(DType::F32, &[3, 3], &[1.0, 2.0, 2.0, 1.0, 1.0, 3.0, f64::NAN, 9.0, f64::NAN]);
            samples.push(Sample::new("ties and NaN", op(1), vec![ties]));
            samples.push(Sample::new("inner dimension", op(1), vec![sample::any(DType::F32, &[2, 3, 2])]));
            samples.push(Sample::new("empty", op(1), vec![sample::any(DType::F32, &[0, 3])]));
        }
        samples.into_iter().map(Sample::not_smooth).collect()
    }
}

/// Position `axis` of an unbatched value, counted with a batch dimension at `batch`.
pub(super) fn past(batch: usize, axis: usize) -> usize {
    axis + usize::from(axis >= batch)
}

/// The only operand and the position of its batch dimension.
pub(super) fn in_place(b: &mut Builder, size: usize, ins: &[Batched]) -> Result<(Atom, usize)> {
    match ins[0].axis {
        Some(axis) => Ok((ins[0].atom, axis)),
        None => Ok((b.batch_front(ins[0], size)?, 0)),
    }
}

/// The dimensions that are not reduced.
pub(super) fn kept(aval: &Aval, axes: &[usize]) -> Vec<usize> {
    (0..aval.rank()).filter(|d| !axes.contains(d)).collect()
}

/// For each element, the product of the others that are reduced with it: what precedes it times what follows it. That is
/// right where elements are zero, and a quotient is not.
fn product_of_others(b: &mut Builder, x: Atom, axes: &[usize]) -> Result<Atom> {
    let aval = b.aval_of(x);
    let mut order = kept(&aval, axes);
    let mut shape: Vec<usize> = order.iter().map(|&d| aval.shape[d]).collect();
    let axis = shape.len();
    order.extend(axes);
    let moved: Vec<usize> = order.iter().map(|&d| aval.shape[d]).collect();
    shape.push(axes.iter().map(|&d| aval.shape[d]).product());
    let rows = b.transpose(x, &order)?;
    let rows = b.reshape(rows, &shape)?;
    let one = b.literal(x, 1.0);
    let mut product = None;
    for (reverse, config) in [(false, (1, -1, 0)), (true, (-1, 1, 0))] {
        let shifted = pad(b, rows, one, axis, config)?;
        let others = b.apply(Cumulative { kind: CumulativeKind::Prod, axis, reverse }, &[shifted])?;
        product = Some(match product {
            Some(before) => b.mul(before, others)?,
            None => others,
        });
    }
    let product = b.reshape(product.unwrap_or(rows), &moved)?;
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        back[from] = to;
    }
    b.transpose(product, &back)
}

/// Padding along one dimension: low, high, interior.
pub(super) fn pad(b: &mut Builder, x: Atom, value: Atom, axis: usize, config: (i64, i64, usize)) -> Result<Atom> {
    let mut all = vec![(0, 0, 0); b.shape(x).len()];
    all[axis] = config;
    b.apply(Pad { config: all }, &[x, value])
}
