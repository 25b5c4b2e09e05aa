//! Rules of gather and scatter.
//!
//! Batching uses the batching dimensions of both operations, so that no index has to be computed. Each is the transpose
//! of the other: a gather scatters its cotangent, adding where slices overlap, and a scatter gathers it.

use remat_ir::{
    Atom, Aval, Builder, Compare, DType, Error, ErrorKind, Gather, IndexMode, Iota, Literal, Operation, Result,
    Scatter, ScatterKind, Shape,
};

use super::sample::{any, array, floats, spread};
use super::shape::{linear_aval, shifted, unbatched};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear};

impl Rules for Gather {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        // What is out of range is constant, also where the fill value is a NaN.
        let fill_value = Literal::from_f64(b.dtype(t), 0.0);
        Ok(vec![Some(b.apply(Gather { fill_value, ..self.clone() }, &[t, ins[1]])?)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let aval = linear_aval(self, &ins[0])?;
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
        let zeros = b.zeros(aval)?;
        Ok(vec![Some(b.apply(scatter, &[zeros, indices, ct])?), None])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (x, mut indices) = (ins[0], ins[1]);
        let mut op = self.clone();
        if let Some(axis) = x.axis {
            op.collapsed_slice_dims = shifted(&self.collapsed_slice_dims, axis);
            op.start_index_map = shifted(&self.start_index_map, axis);
            op.operand_batching_dims = shifted(&self.operand_batching_dims, axis);
        }
        let out = match (x.axis, indices.axis) {
            (None, None) => return unbatched(b, self, ins),
            (Some(axis), None) => {
                // The batch dimension is one more dimension of every slice, taken whole.
                let kept =
                    |d: &usize| !self.collapsed_slice_dims.contains(d) && !self.operand_batching_dims.contains(d);
                let place = (0..axis).filter(kept).count();
                let out = if place == 0 { 0 } else { self.offset_dims[place - 1] + 1 };
                op.offset_dims = shifted(&self.offset_dims, out);
                op.offset_dims.insert(place, out);
                op.slice_sizes.insert(axis, size);
                out
            }
            (x_axis, Some(axis)) => {
                // The last dimension of the indices has to stay the index vector.
                let rank = b.shape(indices.atom).len();
                if axis == rank - 1 {
                    indices = Batched::front(b.move_axis(indices.atom, axis, 0)?);
                }
                let axis = if axis == rank - 1 { 0 } else { axis };
                let mut places = (0..).filter(|d| !self.offset_dims.contains(d));
                let out = if axis == 0 { 0 } else { places.nth(axis - 1).map_or(0, |d| d + 1) };
                op.offset_dims = shifted(&self.offset_dims, out);
                op.start_indices_batching_dims = shifted(&self.start_indices_batching_dims, axis);
                if let Some(x_axis) = x_axis {
                    let place = op.operand_batching_dims.iter().filter(|&&d| d < x_axis).count();
                    op.operand_batching_dims.insert(place, x_axis);
                    op.start_indices_batching_dims.insert(place, axis);
                    op.slice_sizes.insert(x_axis, size.min(1));
                }
                out
            }
        };
        Ok(vec![Batched { atom: b.apply(op, &[x.atom, indices.atom])?, axis: Some(out) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dims in geometries() {
            for (mode, fill) in
                [(IndexMode::Clip, 0.0), (IndexMode::FillOrDrop, 0.0), (IndexMode::FillOrDrop, f64::NAN)]
            {
                let op = dims.gather(mode, Literal::from_f64(DType::F64, fill));
                let label = format!("{}, {}, fill {fill}", dims.label, mode.name());
                let indices = array(DType::I32, dims.indices, dims.values);
                let sample = Sample::new(label, op, vec![floats(dims.operand), indices]);
                // A fill value that is not zero makes the function affine, and a NaN has no differences.
                samples.push(if fill == 0.0 { sample.linear_in(&[0]) } else { sample.not_smooth() });
            }
        }
        let rows = &geometries()[0];
        for d in DType::ALL {
            let op = rows.gather(IndexMode::FillOrDrop, Literal::from_f64(d, 1.0));
            let indices = array(DType::I32, rows.indices, rows.values);
            samples.push(Sample::new(d.name(), op, vec![any(d, rows.operand), indices]).linear_in(&[0]));
        }
        for d in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            let op = rows.gather(IndexMode::FillOrDrop, Literal::from_f64(DType::F64, 0.0));
            let indices = array(d, rows.indices, &[2.0, 0.0, 0.0, 9.0]);
            samples
                .push(Sample::new(format!("indices in {d}"), op, vec![floats(rows.operand), indices]).linear_in(&[0]));
        }
        samples
    }
}

impl Rules for Scatter {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (x, indices, updates) = (ins[0], ins[1], ins[2]);
        let (tx, tu) = (tangents[0], tangents[2]);
        let (x_aval, u_aval) = (b.aval(x), b.aval(updates));
        let out = match self.kind {
            ScatterKind::Add if tu.is_none() => tx,
            ScatterKind::Add | ScatterKind::Set => {
                let tx = b.instantiate(tx, &x_aval)?;
                let tu = b.instantiate(tu, &u_aval)?;
                Some(b.apply(self.clone(), &[tx, indices, tu])?)
            }
            ScatterKind::Mul => {
                let from_x = tx.map(|t| b.apply(self.clone(), &[t, indices, updates])).transpose()?;
                let from_updates = match tu {
                    None => None,
                    Some(_) if !self.unique_indices => {
                        let message = "has no derivative in its updates where an index may be named twice; if none is, say so with .at(..).unique()";
                        return Err(Error::new(ErrorKind::Differentiation, self.name(), message));
                    }
                    Some(t) => {
                        let zeros = b.zeros(&x_aval)?;
                        let t = b.apply(self.with_kind(ScatterKind::Add), &[zeros, indices, t])?;
                        Some(b.mul(t, x)?)
                    }
                };
                b.add_any(from_x, from_updates)?
            }
            ScatterKind::Min | ScatterKind::Max => {
                if x_aval.size() == 0 {
                    return Ok(vec![None]);
                }
                // The tangent is the mean over all that reach the extremum, the element that was there included.
                let extremum = self.inverse_gather(b, outs[0], indices, &u_aval)?;
                let x_wins = b.compare(Compare::Eq, x, outs[0])?;
                let u_wins = b.compare(Compare::Eq, updates, extremum)?;
                let (x_count, u_count) = (b.convert(x_wins, x_aval.dtype)?, b.convert(u_wins, x_aval.dtype)?);
                let add = self.with_kind(ScatterKind::Add);
                let count = b.apply(add.clone(), &[x_count, indices, u_count])?;
                let zero = b.literal(x, 0.0);
                let masked = |b: &mut Builder, mask: Atom, t: Option<Atom>, aval: &Aval| match t {
                    Some(t) => b.select(mask, t, zero),
                    None => b.zeros(aval),
                };
                let tx = masked(b, x_wins, tx, &x_aval)?;
                let sum = match tu {
                    None => tx,
                    Some(_) => {
                        let tu = masked(b, u_wins, tu, &u_aval)?;
                        b.apply(add, &[tx, indices, tu])?
                    }
                };
                Some(b.div(sum, count)?)
            }
        };
        Ok(vec![out])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let indices = ins[1].known(self)?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 3]) };
        let u_aval = match &ins[2] {
            Operand::Known(updates) => b.aval(*updates),
            Operand::Linear(aval) => aval.clone(),
        };
        let (ct_x, ct_updates) = match self.kind {
            ScatterKind::Add => {
                let ct_updates =
                    if ins[2].is_linear() { Some(self.inverse_gather(b, ct, indices, &u_aval)?) } else { None };
                (ins[0].is_linear().then_some(ct), ct_updates)
            }
            ScatterKind::Set => {
                let ct_x = if ins[0].is_linear() {
                    let zeros = b.zeros(&u_aval)?;
                    Some(b.apply(self.clone(), &[ct, indices, zeros])?)
                } else {
                    None
                };
                let ct_updates =
                    if ins[2].is_linear() { Some(self.gather_from_winners(b, ct, indices, &u_aval)?) } else { None };
                (ct_x, ct_updates)
            }
            ScatterKind::Mul => match (&ins[0], &ins[2]) {
                (Operand::Linear(_), &Operand::Known(updates)) => {
                    (Some(b.apply(self.clone(), &[ct, indices, updates])?), None)
                }
                // Elements that no update reaches stay what they are: a constant, which a cotangent does not see.
                (&Operand::Known(x), Operand::Linear(_)) if self.unique_indices => {
                    let ct = b.mul(ct, x)?;
                    (None, Some(self.inverse_gather(b, ct, indices, &u_aval)?))
                }
                (Operand::Known(_), _) | (Operand::Linear(_), Operand::Linear(_)) => return Err(not_linear(self)),
            },
            ScatterKind::Min | ScatterKind::Max => return Err(not_linear(self)),
        };
        Ok(vec![ct_x, None, ct_updates])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        if ins.iter().all(|x| x.axis.is_none()) {
            return unbatched(b, self, ins);
        }
        let x = b.batch_front(ins[0], size)?;
        let updates = b.batch_front(ins[2], size)?;
        let mut op = Scatter {
            update_window_dims: shifted(&self.update_window_dims, 0),
            inserted_window_dims: shifted(&self.inserted_window_dims, 0),
            scatter_dims_to_operand_dims: shifted(&self.scatter_dims_to_operand_dims, 0),
            operand_batching_dims: shifted(&self.operand_batching_dims, 0),
            ..self.clone()
        };
        let indices = if ins[1].axis.is_none() {
            // All examples are updated at the same places: the batch dimension is one more dimension of every slice.
            op.update_window_dims.insert(0, 0);
            ins[1].atom
        } else {
            op.operand_batching_dims.insert(0, 0);
            op.scatter_indices_batching_dims = shifted(&self.scatter_indices_batching_dims, 0);
            op.scatter_indices_batching_dims.insert(0, 0);
            b.batch_front(ins[1], size)?
        };
        Ok(vec![Batched::front(b.apply(op, &[x, indices, updates])?)])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let kinds = [ScatterKind::Set, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Min, ScatterKind::Max];
        for dims in geometries() {
            for (kind, mode) in kinds.into_iter().flat_map(|k| [(k, IndexMode::Clip), (k, IndexMode::FillOrDrop)]) {
                let op = dims.scatter(kind, mode);
                let label = format!("{}, {}", dims.label, mode.name());
                let updates = floats(&dims.updates());
                let indices = array(DType::I32, dims.indices, dims.values);
                // Other values than the updates have: equal extrema have no second derivative.
                let inputs = vec![spread(DType::F64, dims.operand, -1.9, 2.1), indices, updates];
                let sample = Sample::new(label, op, inputs);
                match kind {
                    ScatterKind::Set => samples.push(sample.linear_in(&[0, 2])),
                    ScatterKind::Add => samples.push(sample.linear_in(&[0, 2])),
                    ScatterKind::Mul if dims.unique => samples.push(sample.linear_in(&[0]).linear_in(&[2])),
                    ScatterKind::Mul => samples.push(sample.without_derivative_in(&[2]).linear_in(&[0])),
                    ScatterKind::Min | ScatterKind::Max => samples.push(sample),
                }
            }
        }
        let rows = &geometries()[0];
        for (kind, d) in kinds.into_iter().flat_map(|k| DType::ALL.map(|d| (k, d))) {
            if d == DType::Bool && matches!(kind, ScatterKind::Add | ScatterKind::Mul) {
                continue;
            }
            let updates = any(d, &rows.updates());
            let indices = array(DType::I32, rows.indices, rows.values);
            let op = rows.scatter(kind, IndexMode::FillOrDrop);
            let sample = Sample::new(d.name(), op, vec![any(d, rows.operand), indices, updates]).not_smooth();
            let is_refused = kind == ScatterKind::Mul && d.is_float() && !rows.unique;
            samples.push(if is_refused { sample.without_derivative_in(&[2]) } else { sample });
        }
        samples
    }
}

/// What rules need of a scatter.
trait Inverse {
    /// The same scatter with another way to combine.
    fn with_kind(&self, kind: ScatterKind) -> Scatter;

    /// For each element of the updates the element of `x` that it goes to; zero where it is left out.
    fn inverse_gather(&self, b: &mut Builder, x: Atom, indices: Atom, updates: &Aval) -> Result<Atom>;

    /// As [`Inverse::inverse_gather`], but zero for the updates that a later one overwrites.
    fn gather_from_winners(&self, b: &mut Builder, x: Atom, indices: Atom, updates: &Aval) -> Result<Atom>;
}

impl Inverse for Scatter {
    fn with_kind(&self, kind: ScatterKind) -> Scatter {
        Scatter { kind, ..self.clone() }
    }

    fn inverse_gather(&self, b: &mut Builder, x: Atom, indices: Atom, updates: &Aval) -> Result<Atom> {
        let aval = b.aval(x);
        if aval.size() == 0 {
            return b.zeros(&updates.with_dtype(aval.dtype));
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
        b.apply(gather, &[x, indices])
    }

    fn gather_from_winners(&self, b: &mut Builder, x: Atom, indices: Atom, updates: &Aval) -> Result<Atom> {
        let gathered = self.inverse_gather(b, x, indices, updates)?;
        if self.unique_indices || b.aval(x).size() == 0 {
            return Ok(gathered);
        }
        // Number the elements of the updates from 1, scatter the numbers, and see who finds its own number again.
        let count = updates.size();
        let dtype = if i32::try_from(count).is_ok() { DType::I32 } else { DType::I64 };
        let numbers = b.apply(Iota { dtype, shape: [count].into_iter().collect(), axis: 0 }, &[])?;
        let one = b.literal(numbers, 1.0);
        let numbers = b.add(numbers, one)?;
        let numbers = b.reshape(numbers, &updates.shape)?;
        let nobody = b.aval(x).with_dtype(dtype);
        let nobody = b.zeros(&nobody)?;
        let winners = b.apply(self.clone(), &[nobody, indices, numbers])?;
        let winners = self.inverse_gather(b, winners, indices, updates)?;
        let wins = b.compare(Compare::Eq, winners, numbers)?;
        let zero = b.literal(gathered, 0.0);
        b.select(wins, gathered, zero)
    }
}

/// Shapes and dimension numbers that the samples of gather and scatter share.
struct Geometry {
    label: &'static str,
    operand: &'static [usize],
    indices: &'static [usize],
    values: &'static [f64],
    /// Whether no two slices overlap once those out of range are dropped or clamped.
    unique: bool,
    offset_dims: &'static [usize],
    dropped: &'static [usize],
    map: &'static [usize],
    operand_batching: &'static [usize],
    indices_batching: &'static [usize],
    slice_sizes: &'static [usize],
}

impl Geometry {
    fn gather(&self, mode: IndexMode, fill_value: Literal) -> Gather {
        Gather {
            offset_dims: self.offset_dims.into(),
            collapsed_slice_dims: self.dropped.into(),
            start_index_map: self.map.into(),
            operand_batching_dims: self.operand_batching.into(),
            start_indices_batching_dims: self.indices_batching.into(),
            slice_sizes: self.slice_sizes.into(),
            mode,
            fill_value,
        }
    }

    fn scatter(&self, kind: ScatterKind, mode: IndexMode) -> Scatter {
        Scatter {
            kind,
            update_window_dims: self.offset_dims.into(),
            inserted_window_dims: self.dropped.into(),
            scatter_dims_to_operand_dims: self.map.into(),
            operand_batching_dims: self.operand_batching.into(),
            scatter_indices_batching_dims: self.indices_batching.into(),
            mode,
            unique_indices: self.unique,
        }
    }

    /// The shape of the gathered slices.
    fn updates(&self) -> Shape {
        let kept = |d: &usize| !self.dropped.contains(d) && !self.operand_batching.contains(d);
        let mut window = (0..self.operand.len()).filter(kept).map(|d| self.slice_sizes[d]);
        let mut batch = self.indices[..self.indices.len() - 1].iter().copied();
        (0..self.offset_dims.len() + self.indices.len() - 1)
            .filter_map(|d| if self.offset_dims.contains(&d) { window.next() } else { batch.next() })
            .collect()
    }
}

fn geometries() -> Vec<Geometry> {
    let rows = Geometry {
        label: "rows, one twice and one out of range",
        operand: &[4, 2],
        indices: &[4, 1],
        values: &[2.0, 0.0, 2.0, 7.0],
        unique: false,
        offset_dims: &[1],
        dropped: &[0],
        map: &[0],
        operand_batching: &[],
        indices_batching: &[],
        slice_sizes: &[1, 2],
    };
    vec![
        Geometry { ..rows },
        Geometry { label: "distinct rows", indices: &[3, 1], values: &[3.0, 0.0, 1.0], unique: true, ..rows },
        Geometry {
            label: "negative and too large indices",
            indices: &[2, 2, 1],
            values: &[-1.0, 4.0, 1.0, -9.0],
            offset_dims: &[2],
            ..rows
        },
        Geometry {
            label: "columns, slices in front",
            operand: &[2, 4],
            indices: &[3, 1],
            values: &[3.0, 1.0, 3.0],
            offset_dims: &[0],
            dropped: &[1],
            map: &[1],
            slice_sizes: &[2, 1],
            ..rows
        },
        Geometry {
            label: "single elements, crossed map",
            operand: &[3, 4],
            indices: &[3, 2],
            values: &[3.0, 0.0, 1.0, 2.0, 0.0, 5.0],
            offset_dims: &[],
            dropped: &[0, 1],
            map: &[1, 0],
            slice_sizes: &[1, 1],
            ..rows
        },
        Geometry {
            label: "overlapping blocks, nothing dropped",
            operand: &[4, 3],
            indices: &[3, 2],
            values: &[0.0, 0.0, 1.0, 1.0, 3.0, 1.0],
            offset_dims: &[1, 2],
            dropped: &[],
            map: &[0, 1],
            slice_sizes: &[2, 2],
            ..rows
        },
        Geometry {
            label: "one index vector",
            operand: &[3, 2, 2],
            indices: &[1],
            values: &[1.0],
            unique: true,
            offset_dims: &[0, 1],
            dropped: &[1],
            map: &[0],
            slice_sizes: &[2, 1, 2],
            ..rows
        },
        Geometry {
            label: "batching dimension",
            operand: &[2, 3, 2],
            indices: &[2, 2, 1],
            values: &[2.0, 0.0, 1.0, 1.0],
            offset_dims: &[2],
            dropped: &[1],
            map: &[1],
            operand_batching: &[0],
            indices_batching: &[0],
            slice_sizes: &[1, 1, 2],
            ..rows
        },
        Geometry {
            label: "two batching dimensions, crossed",
            operand: &[2, 4, 3],
            indices: &[3, 2, 1],
            values: &[0.0, 1.0, 3.0, 2.0, 8.0, 1.0],
            unique: true,
            offset_dims: &[1],
            dropped: &[],
            map: &[1],
            operand_batching: &[0, 2],
            indices_batching: &[1, 0],
            slice_sizes: &[1, 2, 1],
        },
        Geometry {
            label: "index vectors without components",
            operand: &[2, 2],
            indices: &[3, 0],
            values: &[],
            offset_dims: &[0, 2],
            dropped: &[],
            map: &[],
            slice_sizes: &[2, 1],
            ..rows
        },
        Geometry { label: "no index vector", indices: &[0, 1], values: &[], unique: true, ..rows },
        Geometry { label: "empty slices", operand: &[4, 0], slice_sizes: &[1, 0], unique: true, ..rows },
        Geometry {
            label: "rank 6",
            operand: &[1, 2, 1, 3, 1, 2],
            indices: &[2, 1, 3],
            values: &[0.0, 1.0, 0.0, 2.0, 0.0, 0.0],
            unique: true,
            offset_dims: &[0, 3, 4],
            dropped: &[0, 3, 4],
            map: &[3, 1, 4],
            slice_sizes: &[1, 1, 1, 1, 1, 2],
            ..rows
        },
    ]
}
