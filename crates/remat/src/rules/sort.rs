//! Rules of sorting.

use remat_ir::{Atom, Builder, DType, Gather, IndexMode, Iota, Literal, Result, Shape, Sort, TopK};

use super::reduce::{kept, past};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Sort {
    /// Positions are sorted along with the operands, and the tangents are taken from those positions.
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        if tangents.iter().all(Option::is_none) {
            return Ok(vec![None; tangents.len()]);
        }
        let iota = Iota { dtype: DType::I32, shape: b.shape(ins[0]), axis: self.axis };
        let mut operands = ins.to_vec();
        operands.push(b.apply(iota, &[])?);
        let sorted = b.emit((*self).into(), &operands)?;
        let positions = index_vectors(b, sorted[ins.len()])?;
        tangents.iter().map(|t| t.map(|t| take_along(b, t, positions, self.axis)).transpose()).collect()
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (aligned, batch) = b.align(size, ins)?;
        let op = Sort { axis: past(batch, self.axis), ..*self };
        let outs = b.emit(op.into(), &aligned)?;
        Ok(outs.into_iter().map(|atom| Batched { atom, axis: Some(batch) }).collect())
    }

    fn samples() -> Vec<Sample> {
        let sort = |axis, num_keys| Sort { axis, num_keys, is_stable: true };
        let f64s = |shape: &[usize]| sample::any(DType::F64, shape);
        let mut samples = Vec::new();
        for dtype in DType::ALL {
            let sample = Sample::new("dtypes", sort(1, 1), vec![sample::any(dtype, &[2, 5])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        samples.push(Sample::new("first dimension", sort(0, 1), vec![f64s(&[4, 2])]));
        samples.push(Sample::new("inner dimension", sort(1, 1), vec![f64s(&[2, 3, 2])]));
        samples.push(Sample::new("empty", sort(0, 1), vec![f64s(&[0])]));
        samples.push(Sample::new("of nothing", sort(0, 1), vec![f64s(&[0, 3])]));
        samples.push(Sample::new("unstable", Sort { is_stable: false, ..sort(0, 1) }, vec![f64s(&[5])]));
        let payload = sample::spread(DType::F64, &[2, 4], 5.0, 6.0);
        let keys = sample::array(DType::F64, &[2, 4], &[3.0, 1.0, 1.0, -2.0]);
        samples.push(Sample::new("key and payload", sort(1, 1), vec![f64s(&[2, 4]), payload.clone()]));
        samples.push(Sample::new("equal keys", sort(1, 1), vec![keys.clone(), payload.clone()]).not_smooth());
        samples.push(Sample::new("two keys", sort(1, 2), vec![keys, payload.clone()]).not_smooth());
        let whole = sample::array(DType::I32, &[2, 4], &[2.0, 1.0, 1.0, 0.0]);
        let label = "payload by whole keys";
        samples.push(Sample::new(label, sort(0, 1), vec![whole.clone(), payload.clone()]).not_smooth());
        samples.push(Sample::new(label, sort(1, 1), vec![whole, payload.clone(), f64s(&[2, 4])]).not_smooth());
        let special = [f64::NAN, 1.0, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY, -f64::NAN, -1.0];
        let special = sample::array(DType::F64, &[2, 4], &special);
        samples.push(Sample::new("special values", sort(1, 1), vec![special, payload]).not_smooth());
        samples
    }
}

impl Rules for TopK {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None, None]) };
        let last = b.shape(t).len().saturating_sub(1);
        let positions = index_vectors(b, outs[1])?;
        Ok(vec![Some(take_along(b, t, positions, last)?), None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    /// The last dimension stays the last.
    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let x = b.batch_front(ins[0], size)?;
        let outs = b.emit((*self).into(), &[x])?;
        Ok(outs.into_iter().map(Batched::front).collect())
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let sample = Sample::new("dtypes", TopK { k: 2 }, vec![sample::any(dtype, &[2, 5])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        for (label, k, shape) in [
            ("one dimension", 3, &[7][..]),
            ("all", 4, &[4]),
            ("none", 0, &[4]),
            ("three dimensions", 1, &[2, 2, 3]),
            ("empty", 2, &[0, 3]),
        ] {
            samples.push(Sample::new(label, TopK { k }, vec![sample::any(DType::F64, shape)]));
        }
        let ties = sample::array(DType::F32, &[2, 4], &[1.0, 2.0, 2.0, 1.0, f64::NAN, 9.0, f64::INFINITY, f64::NAN]);
        samples.push(Sample::new("ties and NaN", TopK { k: 3 }, vec![ties]).not_smooth());
        samples
    }
}

/// Positions along a dimension in the form that [`take_along`] takes: vectors of one element.
pub(super) fn index_vectors(b: &mut Builder, positions: Atom) -> Result<Atom> {
    let rank = b.shape(positions).len();
    b.expand_dims(positions, &[rank])
}

/// The elements of `x` at these positions along a dimension. The positions have the shape of `x` but along that dimension,
/// and a last dimension more.
pub(super) fn take_along(b: &mut Builder, x: Atom, positions: Atom, axis: usize) -> Result<Atom> {
    let aval = b.aval_of(x);
    let vectors = b.shape(positions);
    let result = aval.with_shape(vectors[..aval.rank()].iter().copied());
    if result.size() == 0 {
        // A slice of one element does not fit into nothing.
        return b.zeros(&result);
    }
    let others: Shape = kept(&aval, &[axis]).into();
    let gather = Gather {
        offset_dims: Shape::new(),
        collapsed_slice_dims: [axis].into_iter().collect(),
        start_index_map: [axis].into_iter().collect(),
        operand_batching_dims: others.clone(),
        start_indices_batching_dims: others,
        slice_sizes: aval.shape.iter().map(|_| 1).collect(),
        mode: IndexMode::Clip,
        fill_value: Literal::from_f64(aval.dtype, 0.0),
    };
    b.apply(gather, &[x, positions])
}
