//! Rules of reductions over windows.

use remat_ir::{
    ArgKind, ArgReduceWindow, Atom, Binary, Builder, DType, Gather, IndexMode, Iota, Literal, ReduceWindow, Result,
    Shape, Window, WindowKind,
};

use super::sample::{any, floats};
use super::shape::{linear_aval, linear_jvp, unbatched};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear};

impl Rules for ReduceWindow {
    /// The tangent of an extremum is the tangent at its position: only the positions have to be kept.
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let kind = match self.kind {
            WindowKind::Sum => return linear_jvp(b, self, tangents),
            WindowKind::Max => ArgKind::Max,
            WindowKind::Min => ArgKind::Min,
        };
        let size = b.aval(ins[0]).size();
        let (Some(t), false) = (tangents[0], size == 0 || b.aval(outs[0]).size() == 0) else { return Ok(vec![None]) };
        let index_dtype = index_dtype(size);
        let positions = b.apply(ArgReduceWindow { kind, window: self.window.clone(), index_dtype }, &[ins[0]])?;
        let rank = self.window.dimensions.len();
        let positions = b.expand_dims(positions, &[rank])?;
        let t = b.reshape(t, &[size])?;
        let at_positions = Gather {
            offset_dims: Shape::new(),
            collapsed_slice_dims: Shape::from_elem(0, 1),
            start_index_map: Shape::from_elem(0, 1),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: Shape::from_elem(1, 1),
            // The position of a window of padding is -1, which is out of range.
            mode: IndexMode::FillOrDrop,
            fill_value: Literal::from_f64(b.dtype(t), 0.0),
        };
        Ok(vec![Some(b.apply(at_positions, &[t, positions])?)])
    }

    /// Each element gets the sum of the cotangents of the windows that it is in: a window sum over the cotangent, dilated
    /// by the strides.
    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        if self.kind != WindowKind::Sum {
            return Err(not_linear(self));
        }
        let aval = linear_aval(self, &ins[0])?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let counts = b.shape(ct);
        if aval.size() == 0 || counts.contains(&0) {
            return Ok(vec![None]);
        }
        let window = &self.window;
        let dilated = |size: usize, by: usize| ((size - 1) * by + 1) as i64;
        let padding = (0..aval.rank())
            .map(|d| {
                let extent = dilated(window.dimensions[d], window.window_dilation[d]);
                let low = extent - 1 - window.padding[d].0;
                let x = dilated(aval.shape[d], window.base_dilation[d]);
                (low, x + extent - 1 - dilated(counts[d], window.strides[d]) - low)
            })
            .collect();
        let window = Window {
            dimensions: window.dimensions.clone(),
            strides: window.base_dilation.clone(),
            padding,
            base_dilation: window.strides.clone(),
            window_dilation: window.window_dilation.clone(),
        };
        Ok(vec![Some(b.apply(ReduceWindow { kind: WindowKind::Sum, window }, &[ct])?)])
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let Some(axis) = ins[0].axis else { return unbatched(b, self, ins) };
        let op = ReduceWindow { kind: self.kind, window: with_batch(&self.window, axis) };
        Ok(vec![Batched { atom: b.apply(op, &[ins[0].atom])?, axis: Some(axis) }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [WindowKind::Sum, WindowKind::Max, WindowKind::Min] {
            for (label, shape, window) in geometries() {
                let sample = Sample::new(label, ReduceWindow { kind, window }, vec![floats(shape)]);
                samples.push(if kind == WindowKind::Sum { sample.linear_in(&[0]) } else { sample });
            }
            for (label, shape, window) in padded_geometries() {
                let sample = Sample::new(label, ReduceWindow { kind, window }, vec![floats(shape)]);
                // The extremum of a window of padding is infinite, and infinities have no differences.
                samples.push(if kind == WindowKind::Sum { sample.linear_in(&[0]) } else { sample.not_smooth() });
            }
            let (_, shape, window) = geometries().remove(0);
            let dtypes = DType::ALL.into_iter().filter(|&d| kind != WindowKind::Sum || d != DType::Bool);
            samples.extend(dtypes.map(|d| {
                let sample = Sample::new(d.name(), ReduceWindow { kind, window: window.clone() }, vec![any(d, shape)]);
                if kind == WindowKind::Sum { sample.linear_in(&[0]) } else { sample }
            }));
        }
        samples
    }
}

impl Rules for ArgReduceWindow {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    /// Positions are counted in the whole batch, with the batch dimension in front, and then corrected: example `i` starts
    /// `i` times the size of an example later.
    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        if ins[0].axis.is_none() {
            return unbatched(b, self, ins);
        }
        let x = b.batch_front(ins[0], size)?;
        let shape = b.shape(x);
        let example: usize = shape[1..].iter().product();
        let dtype = if self.index_dtype == DType::I64 { DType::I64 } else { index_dtype(b.aval(x).size()) };
        let op = ArgReduceWindow { kind: self.kind, window: with_batch(&self.window, 0), index_dtype: dtype };
        let positions = b.apply(op, &[x])?;
        let number = b.apply(Iota { dtype, shape: b.shape(positions), axis: 0 }, &[])?;
        let first = b.mul(number, Literal::from_i128(dtype, example as i128).into())?;
        let positions = b.sub(positions, first)?;
        // The -1 of a window of padding was not counted from anywhere.
        let positions = b.binary(Binary::Max, positions, Literal::from_i128(dtype, -1).into())?;
        Ok(vec![Batched::front(b.convert(positions, self.index_dtype)?)])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [ArgKind::Max, ArgKind::Min] {
            for index_dtype in [DType::I32, DType::I64] {
                for (label, shape, window) in geometries().into_iter().chain(padded_geometries()) {
                    let op = ArgReduceWindow { kind, window, index_dtype };
                    samples.push(Sample::new(label, op, vec![floats(shape)]));
                }
            }
            let (_, shape, window) = geometries().remove(0);
            samples.extend(DType::ALL.map(|d| {
                let op = ArgReduceWindow { kind, window: window.clone(), index_dtype: DType::I32 };
                Sample::new(d.name(), op, vec![any(d, shape)])
            }));
        }
        samples
    }
}

/// A dtype that holds positions in `size` elements.
fn index_dtype(size: usize) -> DType {
    if i32::try_from(size).is_ok() { DType::I32 } else { DType::I64 }
}

/// The same windows in each example of a batch whose batch dimension is at `axis`.
fn with_batch(window: &Window, axis: usize) -> Window {
    let mut window = window.clone();
    window.dimensions.insert(axis, 1);
    window.strides.insert(axis, 1);
    window.padding.insert(axis, (0, 0));
    window.base_dilation.insert(axis, 1);
    window.window_dilation.insert(axis, 1);
    window
}

/// Windows, each with an element of the operand in it.
fn geometries() -> Vec<(&'static str, &'static [usize], Window)> {
    vec![
        ("overlapping", &[5], Window { padding: vec![(1, 1)], ..plain(&[3]) }),
        ("pooling", &[4, 6], Window { strides: sizes(&[2, 3]), ..plain(&[2, 3]) }),
        ("strides that leave a rest", &[7], Window { strides: sizes(&[3]), ..plain(&[2]) }),
        ("one element per window", &[3, 2], plain(&[1, 1])),
        ("the whole array", &[3, 2], plain(&[3, 2])),
        ("negative padding", &[6], Window { padding: vec![(-2, -1)], ..plain(&[2]) }),
        ("dilated window", &[7], Window { window_dilation: sizes(&[2]), padding: vec![(0, 3)], ..plain(&[3]) }),
        ("scalar", &[], plain(&[])),
        ("window larger than the operand", &[2], plain(&[3])),
        ("rank 6", &[1, 2, 1, 3, 1, 2], Window { strides: sizes(&[1, 1, 1, 2, 1, 1]), ..plain(&[1, 2, 1, 1, 1, 2]) }),
    ]
}

/// Windows of which some hold nothing but padding.
fn padded_geometries() -> Vec<(&'static str, &'static [usize], Window)> {
    vec![
        ("windows of padding", &[2], Window { padding: vec![(3, 2)], ..plain(&[2]) }),
        ("negative and more than everything", &[2], Window { padding: vec![(-3, 6)], ..plain(&[2]) }),
        ("dilated operand", &[4], Window { base_dilation: sizes(&[3]), padding: vec![(1, 2)], ..plain(&[2]) }),
        (
            "everything at once",
            &[5, 4],
            Window {
                strides: sizes(&[2, 3]),
                padding: vec![(2, -1), (-1, 3)],
                base_dilation: sizes(&[1, 2]),
                window_dilation: sizes(&[2, 1]),
                ..plain(&[2, 3])
            },
        ),
        ("empty", &[0, 3], Window { padding: vec![(1, 1), (0, 0)], ..plain(&[2, 2]) }),
    ]
}

fn plain(dimensions: &[usize]) -> Window {
    Window {
        dimensions: dimensions.into(),
        strides: Shape::from_elem(1, dimensions.len()),
        padding: vec![(0, 0); dimensions.len()],
        base_dilation: Shape::from_elem(1, dimensions.len()),
        window_dilation: Shape::from_elem(1, dimensions.len()),
    }
}

fn sizes(sizes: &[usize]) -> Shape {
    sizes.into()
}
