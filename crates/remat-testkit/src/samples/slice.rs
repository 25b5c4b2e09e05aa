//! Samples of slices.

use remat_ir::{Array, DType, DynamicSlice, DynamicUpdateSlice, Slice};

use super::sample::{any, array, floats};
use super::{Sample, Samples};

impl Samples for Slice {
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

/// A label, the shape of the array, the sizes of the slice, and its starts.
type Slicing = (&'static str, &'static [usize], &'static [usize], &'static [i32]);

/// Slices that one operation reads and the other writes.
const SLICES: [Slicing; 9] = [
    ("vector", &[5], &[2], &[1]),
    ("matrix", &[3, 4], &[2, 3], &[1, 0]),
    ("everything", &[3], &[3], &[0]),
    ("start clamped from above", &[4, 3], &[2, 1], &[9, 2]),
    ("start clamped from below", &[4, 3], &[2, 1], &[-2, -1]),
    ("nothing", &[4, 3], &[0, 2], &[1, 1]),
    ("empty", &[0, 3], &[0, 2], &[0, 1]),
    ("scalar", &[], &[], &[]),
    ("rank 6", &[1, 2, 3, 1, 2, 2], &[1, 1, 2, 1, 2, 1], &[0, 1, 1, 0, 0, 1]),
];

/// Each start as an operand.
fn operands(starts: &[i32]) -> impl Iterator<Item = Array> {
    starts.iter().map(|&start| array(DType::I32, &[], &[f64::from(start)]))
}

impl Samples for DynamicSlice {
    fn samples() -> Vec<Sample> {
        let samples = SLICES.map(|(label, shape, sizes, starts)| {
            let inputs = std::iter::once(floats(shape)).chain(operands(starts)).collect();
            Sample::new(label, DynamicSlice { sizes: sizes.into() }, inputs).linear_in(&[0])
        });
        let mut samples = Vec::from(samples);
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

impl Samples for DynamicUpdateSlice {
    fn samples() -> Vec<Sample> {
        let samples = SLICES.map(|(label, shape, sizes, starts)| {
            let inputs = [floats(shape), floats(sizes)].into_iter().chain(operands(starts)).collect();
            Sample::new(label, DynamicUpdateSlice, inputs).linear_in(&[0, 1])
        });
        let mut samples = Vec::from(samples);
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
