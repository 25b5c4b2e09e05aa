//! Samples of operations that move elements.

use remat_ir::{Array, BroadcastInDim, Concatenate, DType, ExpandDims, Iota, Pad, Reshape, Rev, Squeeze, Transpose};

use super::sample::{any, array, floats};
use super::{Sample, Samples};

impl Samples for BroadcastInDim {
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

impl Samples for Reshape {
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

impl Samples for Transpose {
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

impl Samples for Squeeze {
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

impl Samples for ExpandDims {
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

impl Samples for Rev {
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

impl Samples for Concatenate {
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

impl Samples for Pad {
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

impl Samples for Iota {
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
