//! Rules of slices.
//!
//! A dynamic slice whose starts differ between the examples of a batch is a gather, and an update of one a scatter: both
//! clamp their starts as the slices do.

use remat_ir::{
    Array, Atom, Builder, Concatenate, DType, DynamicSlice, DynamicUpdateSlice, Gather, IndexMode, Literal, Operation,
    Pad, Result, Scatter, ScatterKind, Shape, Slice,
};

use super::sample::{any, array, floats};
use super::shape::{linear_aval, linear_jvp, shifted, unbatched};
use super::{Batched, Emit, Linear, Operand, Rules, Sample};

impl Rules for Slice {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        linear_jvp(b, self, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let aval = linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let counts = b.shape(ct);
        let config = (0..counts.len())
            .map(|d| {
                let taken = if counts[d] == 0 { 0 } else { (counts[d] - 1) * self.strides[d] + 1 };
                let behind = aval.shape[d] - self.start[d] - taken;
                (self.start[d] as i64, behind as i64, self.strides[d] - 1)
            })
            .collect();
        let zero = b.literal(ct, 0.0);
        Ok(vec![Some(b.apply(Pad { config }, &[ct, zero])?)])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let mut op = self.clone();
        op.start.insert(axis, 0);
        op.limit.insert(axis, size);
        op.strides.insert(axis, 1);
        Ok(vec![Batched { atom: b.apply(op, &[ins[0].atom])?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let op = |start: &[usize], limit: &[usize], strides: &[usize]| Slice {
            start: start.into(),
            limit: limit.into(),
            strides: strides.into(),
        };
        let mut samples: Vec<Sample> = [
            ("part", op(&[1], &[3], &[1]), &[5][..]),
            ("everything", op(&[0, 0], &[2, 3], &[1, 1]), &[2, 3]),
            ("strides that end at the limit", op(&[1, 0], &[6, 2], &[2, 1]), &[7, 2]),
            ("strides that end before the limit", op(&[0], &[6], &[4]), &[8]),
            ("stride beyond the end", op(&[1], &[3], &[9]), &[3]),
            ("nothing", op(&[2, 0], &[2, 3], &[1, 2]), &[4, 3]),
            ("nothing, at the end, strided", op(&[4], &[4], &[3]), &[4]),
            ("empty", op(&[0, 1], &[0, 2], &[1, 1]), &[0, 3]),
            ("scalar", op(&[], &[], &[]), &[]),
            ("rank 6", op(&[0, 1, 0, 0, 0, 1], &[1, 2, 2, 1, 3, 2], &[1, 1, 1, 1, 2, 1]), &[1, 2, 2, 1, 3, 2]),
        ]
        .into_iter()
        .map(|(label, op, shape)| Sample::new(label, op, vec![floats(shape)]).linear_in(&[0]))
        .collect();
        samples.extend(
            DType::ALL
                .map(|d| Sample::new(d.name(), op(&[1, 0], &[3, 2], &[1, 2]), vec![any(d, &[3, 2])]).linear_in(&[0])),
        );
        samples
    }
}

impl Rules for DynamicSlice {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(b.apply(self.clone(), &with_starts(&[t], &ins[1..]))?)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let aval = linear_aval(self, &ins[0])?;
        let starts = known(self, &ins[1..])?;
        let mut out = vec![None; ins.len()];
        if let Some(ct) = cotangents[0] {
            let zeros = b.zeros(aval)?;
            out[0] = Some(b.apply(DynamicUpdateSlice, &with_starts(&[zeros, ct], &starts))?);
        }
        Ok(out)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, starts) = (ins[0], &ins[1..]);
        if starts.iter().all(|s| s.axis.is_none()) {
            let Some(axis) = x.axis else { return unbatched(b, self, ins) };
            let mut sizes = self.sizes.clone();
            sizes.insert(axis, size);
            let starts = starts_with_batch(b, starts, axis);
            let atom = b.apply(DynamicSlice { sizes }, &with_starts(&[x.atom], &starts))?;
            return Ok(vec![Batched { atom, axis: Some(axis) }]);
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
            fill_value: Literal::from_f64(b.dtype(x.atom), 0.0),
        };
        if let Some(axis) = x.axis {
            gather.start_index_map = shifted(&dims, axis);
            gather.operand_batching_dims.push(axis);
            gather.start_indices_batching_dims.push(0);
            gather.slice_sizes.insert(axis, size.min(1));
        }
        let indices = index_vectors(b, size, starts)?;
        Ok(vec![Batched::front(b.apply(gather, &[x.atom, indices])?)])
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, shape: &[usize], sizes: &[usize], starts: &[i32]| {
            let starts = starts.iter().map(|&s| array(DType::I32, &[], &[s as f64]));
            let inputs = std::iter::once(floats(shape)).chain(starts).collect();
            Sample::new(label, DynamicSlice { sizes: sizes.into() }, inputs).linear_in(&[0])
        };
        let mut samples = vec![
            sample("vector", &[5], &[2], &[1]),
            sample("matrix", &[3, 4], &[2, 3], &[1, 0]),
            sample("everything", &[3], &[3], &[0]),
            sample("start clamped from above", &[4, 3], &[2, 1], &[9, 2]),
            sample("start clamped from below", &[4, 3], &[2, 1], &[-2, -1]),
            sample("nothing", &[4, 3], &[0, 2], &[1, 1]),
            sample("empty", &[0, 3], &[0, 2], &[0, 1]),
            sample("scalar", &[], &[], &[]),
            sample("rank 6", &[1, 2, 3, 1, 2, 2], &[1, 1, 2, 1, 2, 1], &[0, 1, 1, 0, 0, 1]),
        ];
        let starts = |d| [array(d, &[], &[1.0]), array(d, &[], &[0.0])];
        let op = DynamicSlice { sizes: [2, 1].into_iter().collect() };
        let inputs = |x, starts: [_; 2]| std::iter::once(x).chain(starts).collect();
        samples.extend(
            DType::ALL.map(|d| {
                Sample::new(d.name(), op.clone(), inputs(any(d, &[3, 2]), starts(DType::I32))).linear_in(&[0])
            }),
        );
        let integers = DType::ALL.into_iter().filter(|d| d.is_integer());
        samples.extend(integers.map(|d| {
            Sample::new(format!("starts in {d}"), op.clone(), inputs(floats(&[3, 2]), starts(d))).linear_in(&[0])
        }));
        samples
    }
}

impl Rules for DynamicUpdateSlice {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (x, update) = (b.aval(ins[0]), b.aval(ins[1]));
        let x = b.instantiate(tangents[0], &x)?;
        let update = b.instantiate(tangents[1], &update)?;
        Ok(vec![Some(b.apply(*self, &with_starts(&[x, update], &ins[2..]))?)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let starts = known(self, &ins[2..])?;
        let mut out = vec![None; ins.len()];
        let Some(ct) = cotangents[0] else { return Ok(out) };
        let update = match &ins[1] {
            Operand::Known(update) => b.aval(*update),
            Operand::Linear(aval) => aval.clone(),
        };
        if ins[0].is_linear() {
            let zeros = b.zeros(&update)?;
            out[0] = Some(b.apply(DynamicUpdateSlice, &with_starts(&[ct, zeros], &starts))?);
        }
        if ins[1].is_linear() {
            out[1] = Some(b.apply(DynamicSlice { sizes: update.shape }, &with_starts(&[ct], &starts))?);
        }
        Ok(out)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, update, starts) = (ins[0], ins[1], &ins[2..]);
        if starts.iter().all(|s| s.axis.is_none()) {
            let Some(axis) = x.axis.or(update.axis) else { return unbatched(b, self, ins) };
            let x = b.batch_at(x, size, axis)?;
            let update = b.batch_at(update, size, axis)?;
            let starts = starts_with_batch(b, starts, axis);
            let atom = b.apply(*self, &with_starts(&[x, update], &starts))?;
            return Ok(vec![Batched { atom, axis: Some(axis) }]);
        }
        let axis = x.axis.unwrap_or(0);
        let x = b.batch_at(x, size, axis)?;
        let update = b.batch_front(update, size)?;
        let indices = index_vectors(b, size, starts)?;
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
        Ok(vec![Batched { atom: b.apply(scatter, &[x, indices, update])?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, shape: &[usize], update: &[usize], starts: &[i32]| {
            let starts = starts.iter().map(|&s| array(DType::I32, &[], &[s as f64]));
            let inputs = [floats(shape), floats(update)].into_iter().chain(starts).collect();
            Sample::new(label, DynamicUpdateSlice, inputs).linear_in(&[0, 1])
        };
        let mut samples = vec![
            sample("vector", &[5], &[2], &[1]),
            sample("matrix", &[3, 4], &[2, 3], &[1, 0]),
            sample("everything", &[3], &[3], &[0]),
            sample("start clamped from above", &[4, 3], &[2, 1], &[9, 2]),
            sample("start clamped from below", &[4, 3], &[2, 1], &[-2, -1]),
            sample("nothing", &[4, 3], &[0, 2], &[1, 1]),
            sample("empty", &[0, 3], &[0, 2], &[0, 1]),
            sample("scalar", &[], &[], &[]),
            sample("rank 6", &[1, 2, 3, 1, 2, 2], &[1, 1, 2, 1, 2, 1], &[0, 1, 1, 0, 0, 1]),
        ];
        let starts = |d| [array(d, &[], &[1.0]), array(d, &[], &[0.0])];
        let inputs = |d, index| [any(d, &[3, 2]), any(d, &[1, 2])].into_iter().chain(starts(index)).collect();
        samples.extend(
            DType::ALL.map(|d| Sample::new(d.name(), DynamicUpdateSlice, inputs(d, DType::I32)).linear_in(&[0, 1])),
        );
        let integers = DType::ALL.into_iter().filter(|d| d.is_integer());
        let starts = [array(DType::I32, &[], &[1.0]), array(DType::I32, &[], &[1.0])];
        let with = |x: Array, update: Array| [x, update].into_iter().chain(starts.clone()).collect();
        let zeros = |shape| array(DType::F64, shape, &[0.0]);
        let (of_zeros, with_zeros) = (with(zeros(&[3, 2]), floats(&[2, 1])), with(floats(&[3, 2]), zeros(&[2, 1])));
        samples.push(Sample::new("of zeros", DynamicUpdateSlice, of_zeros).linear_in(&[1]));
        samples.push(Sample::new("with zeros", DynamicUpdateSlice, with_zeros).linear_in(&[0]));
        samples.extend(integers.map(|d| {
            Sample::new(format!("starts in {d}"), DynamicUpdateSlice, inputs(DType::F64, d)).linear_in(&[0, 1])
        }));
        samples
    }
}

fn with_starts(operands: &[Atom], starts: &[Atom]) -> Vec<Atom> {
    operands.iter().chain(starts).copied().collect()
}

/// The starts, in which nothing is linear.
fn known(op: &impl Operation, starts: &[Operand]) -> Result<Vec<Atom>> {
    starts.iter().map(|s| s.known(op)).collect()
}

/// The shared starts of a block that has the whole batch dimension at `axis`.
fn starts_with_batch(b: &Builder, starts: &[Batched], axis: usize) -> Vec<Atom> {
    let dtype = starts.first().map_or(DType::I32, |s| b.dtype(s.atom));
    let mut starts: Vec<Atom> = starts.iter().map(|s| s.atom).collect();
    starts.insert(axis, Literal::from_f64(dtype, 0.0).into());
    starts
}

/// Starts of which some differ between examples, as one index vector per example: `[size, starts.len()]`.
fn index_vectors(b: &mut Builder, size: usize, starts: &[Batched]) -> Result<Atom> {
    let mut columns = Vec::with_capacity(starts.len());
    for &start in starts {
        let start = b.batch_front(start, size)?;
        columns.push(b.expand_dims(start, &[1])?);
    }
    match columns[..] {
        [column] => Ok(column),
        _ => b.apply(Concatenate { axis: 1 }, &columns),
    }
}
