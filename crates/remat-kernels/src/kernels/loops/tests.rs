//! Loops over operands in all layouts, compared with the evaluator.

use remat_ir::{Array, Aval, Binary, Compare, ConvertElementType, DType, Prim, Reduce, ReduceKind, Unary, eval_op};

use crate::interface::{Extent, Kernel, Layout, LoopEquation, LoopInput, LoopOperand, LoopSource, LoopSpec};
use crate::test_support::{Stream, assert_same, elements, plain, run, threads, view, wild};

/// The layout of an operand in its buffer.
#[derive(Clone, Copy, Debug)]
enum BufferLayout {
    /// Row-major.
    Contiguous,
    /// Repeated along all axes but this one.
    BroadcastFrom(usize),
    /// With these two axes exchanged.
    Transposed(usize, usize),
    /// A part of wider rows.
    Sliced,
    /// Every second element of each row.
    Strided,
    /// Backwards.
    Reversed,
    /// One element for each row.
    Broadcast,
}

impl BufferLayout {
    /// The shape of the buffer, and the layout of `shape` in it.
    fn layout(self, shape: &[usize]) -> (Vec<usize>, Layout) {
        let rank = shape.len();
        let mut buffer = shape.to_vec();
        let ones = vec![1; rank];
        match self {
            BufferLayout::Contiguous => (buffer, Layout::contiguous(shape)),
            BufferLayout::BroadcastFrom(d) => (vec![shape[d]], Layout::contiguous(&[shape[d]]).broadcast(shape, &[d])),
            BufferLayout::Transposed(a, b) => {
                buffer.swap(a, b);
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.swap(a, b);
                (buffer.clone(), Layout::contiguous(&buffer).permuted(&permutation))
            }
            BufferLayout::Sliced => {
                buffer[rank - 1] += 3;
                let mut start = vec![0; rank];
                start[rank - 1] = 2;
                let limit: Vec<usize> = start.iter().zip(shape).map(|(start, size)| start + size).collect();
                (buffer.clone(), Layout::contiguous(&buffer).sliced(&start, &limit, &ones))
            }
            BufferLayout::Strided => {
                buffer[rank - 1] *= 2;
                let mut steps = ones;
                steps[rank - 1] = 2;
                (buffer.clone(), Layout::contiguous(&buffer).sliced(&vec![0; rank], &buffer, &steps))
            }
            BufferLayout::Broadcast => {
                buffer.pop();
                let dims: Vec<usize> = (0..rank - 1).collect();
                (buffer.clone(), Layout::contiguous(&buffer).broadcast(shape, &dims))
            }
            BufferLayout::Reversed => (buffer, Layout::contiguous(shape).reversed(&(0..rank).collect::<Vec<_>>())),
        }
    }
}

/// Shapes with runs of all lengths: within a tile, of several tiles, and not a whole number of blocks or tiles.
const SHAPES: [[usize; 4]; 7] =
    [[2, 3, 70, 70], [3, 5, 7, 7], [2, 3, 1, 1300], [2, 2, 100, 41], [2, 3, 0, 5], [1, 2, 3, 2], [3, 2, 700, 2]];

const ALL: [BufferLayout; 7] = [
    BufferLayout::Contiguous,
    BufferLayout::BroadcastFrom(1),
    BufferLayout::Transposed(0, 1),
    BufferLayout::Sliced,
    BufferLayout::Strided,
    BufferLayout::Reversed,
    BufferLayout::Broadcast,
];

/// A loop that takes the maximum of operands with these layouts, and the evaluator's results.
fn maximum(buffers: &[Array], layouts: Vec<Layout>) -> (LoopSpec, Array) {
    let dtype = buffers[0].dtype();
    let op = Prim::from(Binary::Max);
    let all: Vec<Array> = buffers.iter().zip(&layouts).map(|(buffer, layout)| elements(buffer, layout)).collect();
    let expected = all.iter().skip(1).fold(all[0].clone(), |maximum, x| {
        eval_op(&op.clone().into(), &[maximum, x.clone()]).expect("operands of one shape").remove(0)
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

/// Operands with values of all kinds, each in a buffer of its own with one of these layouts.
fn buffers(dtype: DType, shape: &[usize], layouts: &[BufferLayout]) -> (Vec<Array>, Vec<Layout>) {
    let operands = layouts.iter().enumerate().map(|(seed, layout)| {
        let (buffer, layout) = layout.layout(shape);
        (wild(dtype, &buffer, seed as u64), layout)
    });
    operands.unzip()
}

#[test]
fn operands_are_read_in_every_layout() {
    for shape in SHAPES {
        for dtype in [DType::F32, DType::Bf16, DType::F64, DType::I32, DType::U8] {
            for a in ALL {
                for b in ALL {
                    let (buffers, layouts) = buffers(dtype, &shape, &[a, b]);
                    let (spec, expected) = maximum(&buffers, layouts);
                    check(&spec, &buffers, &expected, &format!("{dtype}{shape:?} {a:?} {b:?}"));
                }
            }
            let (buffers, layouts) = buffers(dtype, &shape, &ALL);
            let (spec, expected) = maximum(&buffers, layouts);
            check(&spec, &buffers, &expected, &format!("{dtype}{shape:?}"));
        }
    }
}

/// A limit of memory of a small program is not exceeded by the registers of a tile that it does not fill.
#[test]
fn small_loops_need_little_scratch_memory() {
    for (dtype, shape) in [(DType::F32, [2, 6]), (DType::F64, [1, 3]), (DType::U8, [0, 4]), (DType::Bf16, [5, 5])] {
        let (buffers, layouts) = buffers(dtype, &shape, &[BufferLayout::Strided; 2]);
        let (spec, expected) = maximum(&buffers, layouts);
        let kernel = spec.kernel().expect("functions of all dtypes");
        assert!(kernel.scratch(1) <= 4096, "{dtype}{shape:?}: {} B", kernel.scratch(1));
        check(&spec, &buffers, &expected, &format!("{dtype}{shape:?}"));
    }
}

#[test]
fn reductions_over_any_axes_read_operands_in_every_layout() {
    for shape in SHAPES {
        for dtype in [DType::F32, DType::Bf16, DType::F64, DType::I32, DType::U8] {
            for axes in [&[0, 2, 3][..], &[0, 1, 2], &[1], &[0, 1, 2, 3], &[1, 3], &[0]] {
                for of_operands in [&ALL[..2], &ALL[2..4], &ALL] {
                    let (buffers, layouts) = buffers(dtype, &shape, of_operands);
                    let (mut spec, all) = maximum(&buffers, layouts);
                    let op = Prim::from(Reduce { kind: ReduceKind::Max, axes: axes.into() });
                    let expected = eval_op(&op.clone().into(), &[all]).expect("axes of the shape").remove(0);
                    let input = LoopInput::Equation(spec.equations.len() - 1);
                    spec.outs = vec![spec.equations.len()];
                    spec.equations.push(LoopEquation { op, ins: vec![input], dtype, extent: Extent::Row });
                    spec.reduction = Some((shape.into(), axes.into()));
                    check(&spec, &buffers, &expected, &format!("{dtype}{shape:?} over {axes:?}, {of_operands:?}"));
                }
            }
        }
    }
}

#[test]
fn sums_of_all_lengths_begin_with_zero() {
    // Multiples of 2^-10 up to 2, whose sums are exact.
    for shape in SHAPES {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            for axes in [&[0, 2, 3][..], &[0, 1, 2], &[0, 1, 2, 3]] {
                let x = plain(dtype, &shape, 7);
                let op = Prim::from(Reduce { kind: ReduceKind::Sum, axes: axes.into() });
                let expected =
                    eval_op(&op.clone().into(), std::slice::from_ref(&x)).expect("axes of the shape").remove(0);
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

/// The results of a loop by the evaluator: row values have one element per row, all others one per element of the space.
fn expected(spec: &LoopSpec, ins: &[Array]) -> Vec<Array> {
    let space = match (&spec.reduction, spec.columns) {
        (Some((shape, _)), _) => shape.to_vec(),
        (None, Some(columns)) => vec![spec.rows, columns],
        (None, None) => vec![spec.rows],
    };
    let shaped = |x: Array, extent: Extent| {
        let shape = if extent == Extent::Full { &space[..] } else { &space[..1] };
        x.viewed(x.aval().with_shape(shape.iter().copied())).expect("as many elements")
    };
    let operand = |operand: &LoopOperand| match &operand.source {
        LoopSource::Literal(literal) => Array::full(*literal, []),
        LoopSource::Input { input, layout } => shaped(elements(&ins[*input], layout), operand.extent),
    };
    let operands: Vec<Array> = spec.operands.iter().map(operand).collect();
    let mut results: Vec<Array> = Vec::new();
    for equation in &spec.equations {
        let is_full = matches!(equation.op, Prim::Reduce(_)) || equation.extent == Extent::Full;
        let read = |input: &LoopInput| {
            let (x, extent) = match *input {
                LoopInput::Operand(i) => (&operands[i], spec.operands[i].extent),
                LoopInput::Equation(i) => (&results[i], spec.equations[i].extent),
            };
            if !is_full || extent == Extent::Full {
                return x.clone();
            }
            // A row value is repeated for every element of its row.
            elements(x, &Layout::contiguous(x.shape()).broadcast(&space, &[0]))
        };
        let ins: Vec<Array> = equation.ins.iter().map(read).collect();
        results.push(eval_op(&equation.op.clone().into(), &ins).unwrap_or_else(|e| panic!("{e}")).remove(0));
    }
    spec.outs.iter().map(|&out| results[out].clone()).collect()
}

/// Runs a loop with several results on 1 to 3 threads, in place of every operand that it names with as many bytes as the result, and
/// compares. Returns the pairs of operand and result that it names, in order.
pub(super) fn check_all(spec: &LoopSpec, ins: &[Array]) -> Vec<(usize, usize)> {
    let kernel = spec.kernel().expect("a function for each operation");
    check_kernel(&*kernel, spec, ins);
    kernel.in_place().to_vec()
}

/// As [`check_all`], for a kernel of the loop.
pub(super) fn check_kernel(kernel: &dyn Kernel, spec: &LoopSpec, ins: &[Array]) {
    let expected = expected(spec, ins);
    let outs: Vec<Aval> = expected.iter().map(|x| x.aval().clone()).collect();
    let fits = |&(operand, out): &(usize, usize)| ins[operand].aval().bytes() == outs[out].bytes();
    for place in std::iter::once(None).chain(kernel.in_place().iter().copied().filter(fits).map(Some)) {
        for count in 1..=3 {
            let results = run(kernel, ins, &outs, place, &threads(count));
            for (got, expected) in results.iter().zip(&expected) {
                assert_same(got, expected, &format!("{count} threads, in place of {place:?}: {spec:?}"));
            }
        }
    }
}

pub(super) fn input(input: usize, dtype: DType, extent: Extent, layout: Layout) -> LoopOperand {
    LoopOperand { dtype, extent, source: LoopSource::Input { input, layout } }
}

pub(super) fn equation(op: impl Into<Prim>, ins: &[LoopInput], dtype: DType, extent: Extent) -> LoopEquation {
    LoopEquation { op: op.into(), ins: ins.to_vec(), dtype, extent }
}

fn reduce(kind: ReduceKind, axes: &[usize]) -> Prim {
    Reduce { kind, axes: axes.iter().copied().collect() }.into()
}

use crate::interface::Extent::{Full, Row};
use crate::interface::LoopInput::{Equation, Operand};

#[test]
fn results_take_the_place_of_operands() {
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::Bool] {
        for size in [0, 1, 129, 33_001] {
            let whole = || Layout::contiguous(&[size]);
            let op = |op, bits| if dtype == DType::Bool { bits } else { op };
            let equations = vec![
                equation(op(Binary::Mul, Binary::And), &[Operand(0), Operand(1)], dtype, Full),
                equation(op(Binary::Add, Binary::Xor), &[Equation(0), Operand(2)], dtype, Full),
            ];
            let operands = (0..3).map(|i| input(i, dtype, Full, whole())).collect();
            let spec = LoopSpec { operands, equations, outs: vec![1], rows: size, columns: None, reduction: None };
            let ins: Vec<Array> = (0..3).map(|i| wild(dtype, &[size], i)).collect();
            assert_eq!(check_all(&spec, &ins), [(0, 0), (1, 0), (2, 0)]);
        }
    }
}

#[test]
fn bools_take_the_place_of_bools_only() {
    let whole = |i, dtype| input(i, dtype, Full, Layout::contiguous(&[1000]));
    for dtype in [DType::U8, DType::I8] {
        let ins = [wild(dtype, &[1000], 1), wild(DType::Bool, &[1000], 2)];
        let equations = vec![
            equation(Compare::Lt, &[Operand(0), Operand(0)], DType::Bool, Full),
            equation(Binary::Or, &[Equation(0), Operand(1)], DType::Bool, Full),
        ];
        let operands = vec![whole(0, dtype), whole(1, DType::Bool)];
        let spec = LoopSpec { operands, equations, outs: vec![1], rows: 1000, columns: None, reduction: None };
        assert_eq!(check_all(&spec, &ins), [(1, 0)], "{dtype}");

        let equations = vec![equation(ConvertElementType { dtype }, &[Operand(0)], dtype, Full)];
        let operands = vec![whole(0, DType::Bool)];
        let spec = LoopSpec { operands, equations, outs: vec![0], rows: 1000, columns: None, reduction: None };
        assert_eq!(check_all(&spec, &ins[1..]), [], "{dtype}");
    }
}

#[test]
fn an_operand_that_is_read_later_keeps_its_place() {
    let dtype = DType::F32;
    // The first result is written before the second operand is read for the last time.
    let equations = vec![
        equation(Binary::Mul, &[Operand(0), Operand(1)], dtype, Full),
        equation(Binary::Add, &[Equation(0), Operand(1)], dtype, Full),
    ];
    let operands = (0..2).map(|i| input(i, dtype, Full, Layout::contiguous(&[1000]))).collect();
    let spec = LoopSpec { operands, equations, outs: vec![0, 1], rows: 1000, columns: None, reduction: None };
    let ins = [wild(dtype, &[1000], 1), wild(dtype, &[1000], 2)];
    assert_eq!(check_all(&spec, &ins), [(0, 0), (0, 1), (1, 1)]);
}

#[test]
fn rows_are_reduced_and_repeated() {
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
        for [rows, columns] in [[0, 4], [1, 1], [3, 7], [70, 130], [3, 5000], [17_000, 2]] {
            let operands = vec![
                input(0, dtype, Full, Layout::contiguous(&[rows, columns])),
                input(1, dtype, Row, Layout::contiguous(&[2 * rows]).sliced(&[0], &[2 * rows], &[2])),
                input(2, dtype, Full, Layout::contiguous(&[columns]).broadcast(&[rows, columns], &[1])),
            ];
            let equations = vec![
                equation(Binary::Max, &[Operand(0), Operand(2)], dtype, Full),
                equation(reduce(ReduceKind::Max, &[1]), &[Equation(0)], dtype, Row),
                equation(Binary::Sub, &[Equation(1), Operand(1)], dtype, Row),
                equation(Binary::Sub, &[Operand(0), Equation(2)], dtype, Full),
                equation(reduce(ReduceKind::Sum, &[1]), &[Operand(0)], dtype, Row),
            ];
            let outs = vec![2, 3, 4];
            let spec = LoopSpec { operands, equations, outs, rows, columns: Some(columns), reduction: None };
            let shapes: [&[usize]; 3] = [&[rows, columns], &[2 * rows], &[columns]];
            let ins: Vec<Array> = (0..3).map(|i| plain(dtype, shapes[i], i as u64)).collect();
            check_all(&spec, &ins);
        }
    }
}

#[test]
fn a_result_is_stored_in_another_dtype() {
    let [rows, columns] = [33, 65];
    let operands = vec![input(0, DType::Bf16, Full, Layout::contiguous(&[rows, columns]))];
    let to = |dtype| ConvertElementType { dtype };
    let equations = vec![
        equation(to(DType::F32), &[Operand(0)], DType::F32, Full),
        equation(Unary::Neg, &[Equation(0)], DType::F32, Full),
        equation(to(DType::F16), &[Equation(1)], DType::F16, Full),
        equation(reduce(ReduceKind::Min, &[1]), &[Equation(1)], DType::F32, Row),
        equation(to(DType::I16), &[Equation(3)], DType::I16, Row),
    ];
    let outs = vec![1, 2, 4];
    let spec = LoopSpec { operands, equations, outs, rows, columns: Some(columns), reduction: None };
    // A result of two bytes may take the operand's memory, one of four may not.
    assert_eq!(check_all(&spec, &[plain(DType::Bf16, &[rows, columns], 1)]), [(0, 1)]);
}

#[test]
fn one_loop_has_several_reductions() {
    // Kept last dimensions, reduced ones, both; results that are cut into segments, one, none.
    let cases: [(&[usize], &[usize]); 12] = [
        (&[3, 4, 5], &[0, 2]),
        (&[3, 1024], &[1]),
        (&[2, 1025], &[1]),
        (&[1, 8192], &[1]),
        (&[300, 17], &[0]),
        (&[2, 3000], &[0]),
        (&[1, 70_000], &[1]),
        (&[35_000, 2], &[0]),
        (&[1, 120_000], &[1]),
        (&[60_000, 3], &[0]),
        (&[1, 7, 1], &[0, 1, 2]),
        (&[5, 0], &[0]),
    ];
    for dtype in [DType::F32, DType::F64, DType::Bf16] {
        for (shape, axes) in cases {
            let transposed: Vec<usize> = shape.iter().rev().copied().collect();
            let back: Vec<usize> = (0..shape.len()).rev().collect();
            let operands = vec![
                input(0, dtype, Full, Layout::contiguous(shape)),
                input(1, dtype, Full, Layout::contiguous(&transposed).permuted(&back)),
            ];
            let equations = vec![
                equation(Binary::Max, &[Operand(0), Operand(1)], dtype, Full),
                equation(reduce(ReduceKind::Sum, axes), &[Equation(0)], dtype, Row),
                equation(reduce(ReduceKind::Max, axes), &[Equation(0)], dtype, Row),
            ];
            let reduction = Some((shape.iter().copied().collect(), axes.iter().copied().collect()));
            let rows = shape.iter().product();
            let spec = LoopSpec { operands, equations, outs: vec![1, 2], rows, columns: None, reduction };
            check_all(&spec, &[plain(dtype, shape, 3), plain(dtype, &transposed, 4)]);
        }
    }
}

/// A reduction has the same bits regardless of the rest of its loop and of the memory of its operands: one policy may store an operand that
/// another one computes in the loop, from views.
#[test]
fn sums_do_not_depend_on_what_is_fused_or_on_layouts() {
    let mut stream = Stream::new(5);
    let cases: [(&[usize], &[usize]); 12] = [
        (&[37, 153], &[0, 1]),
        (&[5, 20, 1300], &[0, 2]),
        (&[7, 11, 130], &[0, 1]),
        (&[2, 16_000], &[0, 1]),
        (&[3, 22_000], &[1]),
        (&[60, 70, 17], &[0, 1, 2]),
        (&[30, 2500], &[0]),
        // More positions than a block of accumulators.
        (&[450, 131], &[0]),
        (&[20_000, 3], &[0]),
        // Few elements are kept last, so several positions have accumulators of their own.
        (&[400, 50, 3], &[0, 1]),
        (&[4, 700, 100], &[1]),
        (&[3, 2, 2], &[0]),
    ];
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
        for (shape, axes) in cases {
            let size: usize = shape.iter().product();
            for operands in [2, 6] {
                let (buffers, layouts): (Vec<Array>, Vec<Layout>) =
                    (0..operands).map(|_| view(dtype, shape, &mut stream)).unzip();
                // Every operand is summed with all operands before it, so that many values are live at one time.
                let mut equations: Vec<LoopEquation> =
                    (0..operands).map(|i| equation(Unary::Neg, &[Operand(i)], dtype, Full)).collect();
                for i in (0..operands).rev() {
                    let last = Equation(equations.len() - 1);
                    equations.push(equation(Binary::Sub, &[last, Equation(i)], dtype, Full));
                }
                let source = layouts.iter().cloned().enumerate();
                let operands: Vec<LoopOperand> = source.map(|(i, layout)| input(i, dtype, Full, layout)).collect();
                let all = equations.len() - 1;
                let out = Aval::new(dtype, shape.iter().copied());
                let computed = {
                    let equations: Vec<LoopEquation> =
                        equations.iter().map(|e| equation(e.op.clone(), &e.ins, e.dtype, e.extent)).collect();
                    let operands = layouts.iter().cloned().enumerate().map(|(i, x)| input(i, dtype, Full, x)).collect();
                    let outs = vec![all];
                    let spec = LoopSpec { operands, equations, outs, rows: size, columns: None, reduction: None };
                    run(&*spec.kernel().expect("functions"), &buffers, &[out], None, &threads(1)).remove(0)
                };
                let reduction = || Some((shape.iter().copied().collect(), axes.iter().copied().collect()));
                let sum = |input| equation(reduce(ReduceKind::Sum, axes), &[input], dtype, Row);
                equations.push(sum(Equation(all)));
                let outs = vec![all + 1];
                let fused = LoopSpec { operands, equations, outs, rows: size, columns: None, reduction: reduction() };
                let kept = shape.iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, &size)| size);
                let outs = [Aval::new(dtype, kept.collect::<Vec<usize>>())];
                let got = run(&*fused.kernel().expect("functions"), &buffers, &outs, None, &threads(2));
                let stored = LoopSpec {
                    operands: vec![input(0, dtype, Full, Layout::contiguous(shape))],
                    equations: vec![sum(Operand(0))],
                    outs: vec![0],
                    rows: size,
                    columns: None,
                    reduction: reduction(),
                };
                let expected = run(&*stored.kernel().expect("functions"), &[computed], &outs, None, &threads(1));
                assert_same(&got[0], &expected[0], &format!("{dtype}{shape:?} over {axes:?} of views {layouts:?}"));
            }
        }
    }
}
