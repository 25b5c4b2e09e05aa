//! Samples of reductions over windows.

use remat_ir::{ArgKind, ArgReduceWindow, DType, ReduceWindow, Shape, Window, WindowKind};

use super::sample::{any, floats};
use super::{Sample, Samples};

impl Samples for ReduceWindow {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [WindowKind::Sum, WindowKind::Max, WindowKind::Min] {
            for (label, shape, window) in geometries() {
                let sample = Sample::new(label, ReduceWindow { kind, window }, vec![floats(shape)]);
                samples.push(if kind == WindowKind::Sum { sample.linear_in(&[0]) } else { sample });
            }
            for (label, shape, window) in padded_geometries() {
                let sample = Sample::new(label, ReduceWindow { kind, window }, vec![floats(shape)]);
                // The maximum or minimum of a window of padding is infinite, and infinities have no differences.
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

impl Samples for ArgReduceWindow {
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
