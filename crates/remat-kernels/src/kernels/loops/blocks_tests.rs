//! Tests of loops that are computed together, against the same loops computed one after the other.

use remat_ir::{Array, Aval, Binary, Compare, DType, Prim, Reduce, ReduceKind, Unary};

use super::blocks::{BLOCKS, block_len};
use super::tests::{equation, input};
use crate::interface::Extent::{Full, Row};
use crate::interface::LoopInput::{Equation, Operand};
use crate::interface::{BlockedLoops, Kernel, Layout, LoopEquation, LoopOperand, LoopPhase, LoopSpec, PhaseMemory};
use crate::test_support::{assert_same, plain, run, threads};
use PhaseMemory::{Block, Input, Inside, Output};

/// A loop over the arrays with these indices, whose last equations are its results.
fn spec(operands: Vec<LoopOperand>, equations: Vec<LoopEquation>, rows: usize, outs: usize) -> LoopSpec {
    let outs = (equations.len() - outs..equations.len()).collect();
    LoopSpec { operands, equations, outs, rows, columns: None, reduction: None }
}

/// Four loops: `a = x * y`; for each channel `s`, the sum of `a`, and `t`, the maximum of `x`; `m = s - t`; `a + sin m`, in place of `a`.
/// For integers the last is `a - m`. For bools `a = x and y`, `s` is whether all of `a` are true, `m = s or t`, and the last is `a != m`.
fn loops(dtype: DType, space: [usize; 3]) -> [LoopSpec; 4] {
    let [before, kept, after] = space;
    let all = |number| input(number, dtype, Full, Layout::contiguous(&space));
    let of_channel = |number| input(number, dtype, Full, Layout::contiguous(&[kept]).broadcast(&space, &[1]));
    let channels = |number| input(number, dtype, Full, Layout::contiguous(&[kept]));
    let size = before * kept * after;
    let reduce = |kind| Prim::from(Reduce { kind, axes: [0, 2].into_iter().collect() });
    let is_bool = dtype == DType::Bool;
    let op = |of_numbers: Binary, of_bools: Binary| if is_bool { of_bools } else { of_numbers };
    let product = equation(op(Binary::Mul, Binary::And), &[Operand(0), Operand(1)], dtype, Full);
    let reductions = vec![
        equation(reduce(if is_bool { ReduceKind::And } else { ReduceKind::Sum }), &[Operand(0)], dtype, Row),
        equation(reduce(ReduceKind::Max), &[Operand(1)], dtype, Row),
    ];
    let difference = equation(op(Binary::Sub, Binary::Or), &[Operand(0), Operand(1)], dtype, Full);
    let result = match is_bool {
        true => vec![equation(Compare::Ne, &[Operand(0), Operand(1)], dtype, Full)],
        false => vec![
            equation(if dtype.is_float() { Unary::Sin } else { Unary::Neg }, &[Operand(1)], dtype, Full),
            equation(Binary::Add, &[Operand(0), Equation(0)], dtype, Full),
        ],
    };
    let mut reduction = spec(vec![all(0), all(1)], reductions, size, 2);
    reduction.reduction = Some((space.into_iter().collect(), [0, 2].into_iter().collect()));
    [
        spec(vec![all(0), all(1)], vec![product], size, 1),
        reduction,
        spec(vec![channels(0), channels(1)], vec![difference], kept, 1),
        spec(vec![all(0), of_channel(1)], result, size, 1),
    ]
}

/// The loops together. The inputs are `x` and `y`; the outputs are the last result and `t`. `a` is in this memory.
fn together(dtype: DType, space: [usize; 3], a: PhaseMemory) -> Option<Box<dyn Kernel>> {
    let places = [
        (vec![Input(0), Input(1)], vec![a]),
        (vec![a, Input(0)], vec![Inside(0), Output(1)]),
        (vec![Inside(0), Output(1)], vec![Inside(1)]),
        (vec![a, Inside(1)], vec![Output(0)]),
    ];
    let phases = loops(dtype, space).into_iter().zip(places).map(|(spec, (ins, outs))| LoopPhase { spec, ins, outs });
    BlockedLoops { phases: phases.collect(), space }.kernel()
}

#[test]
fn blocks_have_the_bits_of_their_loops() {
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I32, DType::U8, DType::Bool] {
        for space in [[8, 32, 49], [2, 35, 1300], [1, 33, 5000], [3, 257, 2]] {
            let [full, of_channels] = [&space[..], &space[1..2]].map(|shape| Aval::new(dtype, shape.iter().copied()));
            let [x, y] = [1, 2].map(|seed| plain(dtype, &space, seed));
            let [product, reductions, difference, result] = loops(dtype, space);
            let one_by_one = |spec: &LoopSpec, ins: &[&Array], outs: &[&Aval]| {
                let ins: Vec<Array> = ins.iter().map(|&x| x.clone()).collect();
                let outs: Vec<Aval> = outs.iter().map(|&aval| aval.clone()).collect();
                run(&*spec.kernel().expect("functions of all dtypes"), &ins, &outs, None, &threads(1))
            };
            let a = one_by_one(&product, &[&x, &y], &[&full]);
            let reduced = one_by_one(&reductions, &[&a[0], &x], &[&of_channels; 2]);
            let m = one_by_one(&difference, &[&reduced[0], &reduced[1]], &[&of_channels]);
            let expected = one_by_one(&result, &[&a[0], &m[0]], &[&full]).remove(0);
            for a in [Output(0), Block(0)] {
                let kernel = together(dtype, space, a).expect("functions of all dtypes");
                // `x` is read by the second loop, after the result has memory.
                let in_place: &[(usize, usize)] = if a == Output(0) { &[(1, 0)] } else { &[] };
                assert_eq!(kernel.in_place(), in_place, "{dtype} {space:?}");
                for place in [None].into_iter().chain(in_place.iter().copied().map(Some)) {
                    for count in 1..=3 {
                        let outs = [full.clone(), of_channels.clone()];
                        let results = run(&*kernel, &[x.clone(), y.clone()], &outs, place, &threads(count));
                        let what = format!("{dtype} {space:?} on {count} threads, {a:?}, in place of {place:?}");
                        assert_same(&results[0], &expected, &what);
                        assert_same(&results[1], &reduced[1], &what);
                    }
                }
            }
        }
    }
}

#[test]
fn reductions_in_segments_are_not_computed_in_blocks() {
    assert!(together(DType::F32, [8, 32, 5000], Output(0)).is_some());
    assert!(together(DType::F32, [8, 4, 50_000], Output(0)).is_none());
}

#[test]
fn values_of_blocks_take_as_much_memory_as_their_part_of_an_array() {
    let space = [8, 64, 1000];
    let kernels = [Output(0), Block(0)].map(|a| together(DType::F32, space, a).expect("functions of f32"));
    let [in_array, in_block] = kernels.map(|kernel| kernel.scratch(1));
    // Three arrays of four bytes an element.
    assert_eq!(in_block - in_array, block_len(space, 12) * 8 * 1000 * 4);
}

#[test]
fn values_of_blocks_are_read_whole_and_in_order() {
    let (dtype, space) = (DType::F32, [2, 64, 900]);
    let loop_over = |layout: Layout| {
        let negative = equation(Unary::Neg, &[Operand(0)], dtype, Full);
        spec(vec![input(0, dtype, Full, layout)], vec![negative], space.iter().product(), 1)
    };
    let kernel = |layout: Layout| {
        let phases = vec![
            LoopPhase { spec: loop_over(Layout::contiguous(&space)), ins: vec![Input(0)], outs: vec![Block(0)] },
            LoopPhase { spec: loop_over(layout), ins: vec![Block(0)], outs: vec![Output(0)] },
        ];
        BlockedLoops { phases, space }.kernel()
    };
    assert!(kernel(Layout::contiguous(&space)).is_some());
    assert!(kernel(Layout::contiguous(&space).reversed(&[2])).is_none());
}

#[test]
fn an_operand_that_a_block_reads_elsewhere_is_not_overwritten() {
    // The second loop reads the first loop's operand backwards, and so the elements of other blocks.
    let (dtype, space) = (DType::F32, [2, 64, 9]);
    let first = |layout: Layout| {
        let negative = equation(Unary::Neg, &[Operand(0)], dtype, Full);
        spec(vec![input(0, dtype, Full, layout)], vec![negative], space.iter().product(), 1)
    };
    let kernel = |layout: Layout| {
        let phases = vec![
            LoopPhase { spec: first(layout), ins: vec![Input(0)], outs: vec![Output(0)] },
            LoopPhase { spec: first(Layout::contiguous(&space)), ins: vec![Input(0)], outs: vec![Output(1)] },
        ];
        BlockedLoops { phases, space }.kernel().expect("loops over all elements")
    };
    assert_eq!(kernel(Layout::contiguous(&space)).in_place(), [(0, 1)]);
    assert!(kernel(Layout::contiguous(&space).reversed(&[1])).in_place().is_empty());
}

#[test]
fn there_are_sixteen_blocks_where_there_are_as_many_positions() {
    for kept in [16, 31, 32, 33, 47, 100, 2048] {
        let block_len = block_len([1, kept, 2], 4);
        assert!(kept.div_ceil(block_len) >= BLOCKS, "{kept}: {block_len}");
    }
    assert_eq!(block_len([1, 3, 2], 4), 1);
}

#[test]
fn short_pieces_and_very_large_positions_are_not_worthwhile() {
    let are_worthwhile = |space| BlockedLoops::are_worthwhile(space, 8);
    assert!(are_worthwhile([32, 256, 196]) && are_worthwhile([32, 2048, 49]) && are_worthwhile([8, 64, 65536]));
    assert!(!are_worthwhile([4096, 64, 4]) && !are_worthwhile([2048, 32, 2]));
    // A block is one piece where no dimension comes before the dimension of blocks.
    assert!(are_worthwhile([1, 1 << 16, 4]));
    assert!(!are_worthwhile([1, 32, 10_000_000]) && !are_worthwhile([100, 32, 100_000]));
}
