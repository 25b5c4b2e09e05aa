//! Samples of gather and scatter.

use remat_ir::{DType, Gather, IndexMode, Literal, Scatter, ScatterKind, Shape};

use super::sample::{any, array, floats, spread};
use super::{Sample, Samples};

impl Samples for Gather {
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

impl Samples for Scatter {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let kinds = [ScatterKind::Set, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Min, ScatterKind::Max];
        for dims in geometries() {
            for (kind, mode) in kinds.into_iter().flat_map(|k| [(k, IndexMode::Clip), (k, IndexMode::FillOrDrop)]) {
                let op = dims.scatter(kind, mode);
                let label = format!("{}, {}", dims.label, mode.name());
                let updates = floats(&dims.updates());
                let indices = array(DType::I32, dims.indices, dims.values);
                // Other values than the updates have: equal maxima have no second derivative.
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
            label: "overlapping slices in front",
            operand: &[3],
            indices: &[2, 1],
            values: &[0.0, 1.0],
            offset_dims: &[0],
            dropped: &[],
            slice_sizes: &[2],
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
