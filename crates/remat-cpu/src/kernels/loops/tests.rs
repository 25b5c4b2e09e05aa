//! Loops over operands in all layouts, beside the evaluator.

use remat_ir::{Array, Aval, Binary, Reduce, ReduceKind, eval_op, with_dtype};

use super::*;
use crate::kernels::test_support::{assert_same, plain, run, threads, wild};

/// How an operand lies in its buffer.
#[derive(Clone, Copy, Debug)]
enum Lies {
    /// Row-major.
    InOrder,
    /// Repeated along all dimensions but this one.
    Along(usize),
    /// With these two dimensions exchanged.
    Exchanged(usize, usize),
    /// With a wider row, of which this is a part.
    PartOfRows,
    /// Each second one of each row.
    Spaced,
    /// Backwards.
    Reversed,
}

impl Lies {
    /// The shape of the buffer, and the layout of `shape` in it.
    fn layout(self, shape: &[usize]) -> (Vec<usize>, Layout) {
        let rank = shape.len();
        let mut buffer = shape.to_vec();
        let ones = vec![1; rank];
        match self {
            Lies::InOrder => (buffer, Layout::contiguous(shape)),
            Lies::Along(d) => (vec![shape[d]], Layout::contiguous(&[shape[d]]).broadcast(shape, &[d])),
            Lies::Exchanged(a, b) => {
                buffer.swap(a, b);
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.swap(a, b);
                (buffer.clone(), Layout::contiguous(&buffer).permuted(&permutation))
            }
            Lies::PartOfRows => {
                buffer[rank - 1] += 3;
                let mut start = vec![0; rank];
                start[rank - 1] = 2;
                let limit: Vec<usize> = start.iter().zip(shape).map(|(start, size)| start + size).collect();
                (buffer.clone(), Layout::contiguous(&buffer).sliced(&start, &limit, &ones))
            }
            Lies::Spaced => {
                buffer[rank - 1] *= 2;
                let mut steps = ones;
                steps[rank - 1] = 2;
                (buffer.clone(), Layout::contiguous(&buffer).sliced(&vec![0; rank], &buffer, &steps))
            }
            Lies::Reversed => (buffer, Layout::contiguous(shape).reversed(&(0..rank).collect::<Vec<_>>())),
        }
    }
}

/// Shapes with runs of all lengths: within a tile, of several tiles, and of no whole number of blocks or tiles.
const SHAPES: [[usize; 4]; 6] =
    [[2, 3, 70, 70], [3, 5, 7, 7], [2, 3, 1, 1300], [2, 2, 100, 41], [2, 3, 0, 5], [1, 2, 3, 2]];

const ALL: [Lies; 6] =
    [Lies::InOrder, Lies::Along(1), Lies::Exchanged(0, 1), Lies::PartOfRows, Lies::Spaced, Lies::Reversed];

/// The elements of a layout in row-major order.
fn elements(buffer: &Array, layout: &Layout) -> Array {
    let mut positions = vec![layout.offset as isize];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        positions = positions.iter().flat_map(|&p| (0..size as isize).map(move |i| p + i * stride)).collect();
    }
    with_dtype!(buffer.dtype(), T => {
        let all = buffer.as_slice::<T>().expect("the dtype");
        let elements: Vec<T> = positions.iter().map(|&p| all[p as usize]).collect();
        Array::from_vec(elements, layout.shape.iter().copied()).expect("as many elements as the shape has")
    })
}

/// A loop that takes the largest of operands that lie like these, and what the evaluator says of each place.
fn largest(buffers: &[Array], layouts: Vec<Layout>) -> (LoopSpec, Array) {
    let dtype = buffers[0].dtype();
    let op = Op::from(Binary::Max);
    let all: Vec<Array> = buffers.iter().zip(&layouts).map(|(buffer, layout)| elements(buffer, layout)).collect();
    let expected = all.iter().skip(1).fold(all[0].clone(), |largest, x| {
        eval_op(&op, &[largest, x.clone()]).expect("operands of one shape").remove(0)
    });
    let equations = (1..layouts.len()).map(|i| {
        let first = if i == 1 { LoopInput::Operand(0) } else { LoopInput::Equation(i - 2) };
        LoopEquation { op: op.clone(), ins: vec![first, LoopInput::Operand(i)], dtype, extent: Extent::Full }
    });
    let operands = layouts.into_iter().enumerate().map(|(input, layout)| LoopOperand {
        dtype,
        extent: Extent::Full,
        source: LoopSource::Input { input, layout },
    });
    let equations: Vec<LoopEquation> = equations.collect();
    let (rows, outs) = (expected.aval().size(), vec![equations.len() - 1]);
    (LoopSpec { operands: operands.collect(), equations, outs, rows, columns: None, reduction: None }, expected)
}

fn check(spec: &LoopSpec, buffers: &[Array], expected: &Array, what: &str) {
    let kernel = spec.kernel().expect("functions of all dtypes");
    for place in std::iter::once(None).chain(kernel.in_place().iter().copied().map(Some)) {
        for count in 1..=3 {
            let outs = run(&*kernel, buffers, &[expected.aval().clone()], place, &threads(count));
            assert_same(&outs[0], expected, &format!("{what}, in place of {place:?}, {count} threads"));
        }
    }
}

/// Operands of values of all kinds that lie like these in buffers of their own.
fn buffers(dtype: DType, shape: &[usize], lies: &[Lies]) -> (Vec<Array>, Vec<Layout>) {
    let lies = lies.iter().enumerate().map(|(seed, lies)| {
        let (buffer, layout) = lies.layout(shape);
        (wild(dtype, &buffer, seed as u64), layout)
    });
    lies.unzip()
}

#[test]
fn operands_are_read_however_they_lie() {
    for shape in SHAPES {
        for dtype in [DType::F32, DType::Bf16, DType::F64, DType::I32, DType::U8] {
            for a in ALL {
                for b in ALL {
                    let (buffers, layouts) = buffers(dtype, &shape, &[a, b]);
                    let (spec, expected) = largest(&buffers, layouts);
                    check(&spec, &buffers, &expected, &format!("{dtype}{shape:?} {a:?} {b:?}"));
                }
            }
            let (buffers, layouts) = buffers(dtype, &shape, &ALL);
            let (spec, expected) = largest(&buffers, layouts);
            check(&spec, &buffers, &expected, &format!("{dtype}{shape:?}"));
        }
    }
}

#[test]
fn reductions_over_any_axes_read_operands_however_they_lie() {
    for shape in SHAPES {
        for dtype in [DType::F32, DType::Bf16, DType::F64, DType::I32, DType::U8] {
            for axes in [&[0, 2, 3][..], &[0, 1, 2], &[1], &[0, 1, 2, 3], &[1, 3], &[0]] {
                for lies in [&ALL[..2], &ALL[2..4], &ALL] {
                    let (buffers, layouts) = buffers(dtype, &shape, lies);
                    let (mut spec, all) = largest(&buffers, layouts);
                    let op = Op::from(Reduce { kind: ReduceKind::Max, axes: axes.into() });
                    let expected = eval_op(&op, &[all]).expect("axes of the shape").remove(0);
                    let input = LoopInput::Equation(spec.equations.len() - 1);
                    spec.outs = vec![spec.equations.len()];
                    spec.equations.push(LoopEquation { op, ins: vec![input], dtype, extent: Extent::Row });
                    spec.reduction = Some((shape.into(), axes.into()));
                    check(&spec, &buffers, &expected, &format!("{dtype}{shape:?} over {axes:?}, {lies:?}"));
                }
            }
        }
    }
}

#[test]
fn sums_of_all_lengths_begin_with_zero() {
    // Multiples of 2^-10 up to 2, of which the sums are exact.
    for shape in SHAPES {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            for axes in [&[0, 2, 3][..], &[0, 1, 2], &[0, 1, 2, 3]] {
                let x = plain(dtype, &shape, 7);
                let op = Op::from(Reduce { kind: ReduceKind::Sum, axes: axes.into() });
                let expected = eval_op(&op, std::slice::from_ref(&x)).expect("axes of the shape").remove(0);
                let source = LoopSource::Input { input: 0, layout: Layout::contiguous(&shape) };
                let spec = LoopSpec {
                    operands: vec![LoopOperand { dtype, extent: Extent::Full, source }],
                    equations: vec![LoopEquation { op, ins: vec![LoopInput::Operand(0)], dtype, extent: Extent::Row }],
                    outs: vec![0],
                    rows: Aval::new(dtype, shape).size(),
                    columns: None,
                    reduction: Some((shape.into(), axes.into())),
                };
                check(&spec, &[x], &expected, &format!("{dtype}{shape:?} over {axes:?}"));
            }
        }
    }
}
