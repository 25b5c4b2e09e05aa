//! Tests of the kernels against the definitions, which the evaluator computes.

use remat_ir::{Array, Aval, DType, DotProductAttention, DotProductAttentionCotangent, Literal, Op, eval_op};

use super::backward::Backward;
use super::few::{self, PART};
use super::forward::Forward;
use super::kernel_on;
use super::parts::{PART as LONG_PART, TASKS};
use super::problem::Problem;
use super::thresholds::FEW_QUERIES;
use super::tile::{KEYS, QUERIES};
use crate::base::narrow::{Kind, Unit};
use crate::interface::{Kernel, Layout};
use crate::test_support::{Stream, assert_same, check_by, check_views, elements, filled, plain, run, threads};

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

/// An attention and its operands.
struct Case {
    op: DotProductAttention,
    ins: Vec<Array>,
    /// The largest difference between two orders of summation, in roundings of the largest result.
    roundings: f64,
}

impl Case {
    /// `[batch, positions, heads, features]` of queries and of keys, and the features of values.
    fn new(dtype: DType, query: [usize; 4], key: [usize; 4], value_features: usize) -> Case {
        let [batch, keys, heads, _] = key;
        let shapes = [query, key, [batch, keys, heads, value_features]];
        let ins = shapes.iter().enumerate().map(|(i, shape)| plain(dtype, shape, i as u64)).collect();
        let scale = Literal::from_f64(DType::F64, 0.4);
        Case { op: DotProductAttention { scale, causal: false, bias: false, mask: false }, ins, roundings: 64.0 }
    }

    fn causal(mut self) -> Case {
        self.op.causal = true;
        self
    }

    fn biased(mut self, shape: [usize; 4]) -> Case {
        self.op.bias = true;
        self.ins.insert(3, plain(self.ins[0].dtype(), &shape, 7));
        self
    }

    fn masked(mut self, shape: [usize; 4]) -> Case {
        self.op.mask = true;
        self.ins.push(plain(DType::Bool, &shape, 8));
        self
    }

    /// As [`masked`](Case::masked), with a mask that is false for all keys of some blocks of some heads and queries.
    fn masked_in_blocks(self, shape: [usize; 4]) -> Case {
        let mut case = self.masked(shape);
        let [_, _, queries, keys] = shape;
        let mask = (0..shape.iter().product()).map(|i: usize| {
            let (key, query, head) = (i % keys, i / keys % queries, i / keys / queries);
            // The tile of 64 queries and 64 keys is hidden, or else one element in five.
            let is_fully_masked = (key / KEYS + query / QUERIES + head).is_multiple_of(2);
            !is_fully_masked && !(key + 2 * query + head).is_multiple_of(5)
        });
        let mask = mask.collect();
        case.ins.pop();
        case.ins.push(Array::from_vec(mask, shape).unwrap());
        case
    }

    /// Operands of the cotangents: also the results, and cotangents of them.
    fn differentiated(&self, logsumexp: bool) -> Vec<Array> {
        let results = eval_op(&self.op.into(), &self.ins).unwrap();
        let cts = results.iter().take(1 + usize::from(logsumexp)).enumerate();
        let cts: Vec<Array> = cts.map(|(i, x)| plain(x.dtype(), x.shape(), 20 + i as u64)).collect();
        [&self.ins[..], &results, &cts].concat()
    }

    fn within(mut self, roundings: f64) -> Case {
        self.roundings = roundings;
        self
    }

    /// Checks the attention alone.
    fn check_forward(&self) {
        check(&self.op.into(), &self.ins, self.roundings);
    }

    fn check(&self) {
        self.check_forward();
        for logsumexp in [false, true] {
            let cotangents = [true, true, true, self.op.bias];
            let op = DotProductAttentionCotangent { attention: self.op, cotangents, logsumexp };
            check(&op.into(), &self.differentiated(logsumexp), self.roundings);
        }
    }
}

fn kernel(op: &Op, ins: &[(DType, &Layout)]) -> Box<dyn Kernel> {
    op.prim().and_then(|op| super::kernel(op, ins)).expect("the operation is an attention")
}

/// The largest difference between results where the definition, or a kernel on a unit, rounds weights to their dtype: half a unit for each
/// term, and the terms add up to some of the largest results.
fn of_weights(dtype: DType) -> f64 {
    if dtype == dtype.wide() { 0.0 } else { epsilon(dtype) }
}

fn epsilon(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(_, mantissa)| 0.5f64.powi(mantissa as i32))
}

/// The units that multiply a dtype, and `None`.
fn units(dtype: DType) -> Vec<Option<Unit>> {
    let all = if dtype == DType::Bf16 { Unit::all(Kind::Bf16) } else { Vec::new() };
    std::iter::once(None).chain(all.into_iter().map(Some)).collect()
}

fn check(op: &Op, ins: &[Array], roundings: f64) {
    for unit in units(ins[0].dtype()) {
        let build = |ins: &[Aval], _: &[Aval]| {
            let layouts: Vec<Layout> = ins.iter().map(Layout::from).collect();
            let ins: Vec<(DType, &Layout)> = ins.iter().map(|x| x.dtype).zip(&layouts).collect();
            op.prim().and_then(|op| kernel_on(unit, op, &ins)).expect("the operation is an attention")
        };
        check_by(op, build, ins, |got, expected, what| {
            close(got, expected, roundings, &format!("{what} on {unit:?}"));
        });
    }
}

/// Sums in another order differ by some roundings of the largest terms, and results by one of their dtype.
#[track_caller]
fn close(got: &Array, expected: &Array, roundings: f64, what: &str) {
    assert_eq!(got.aval(), expected.aval(), "{what}");
    let (dtype, wide) = (expected.dtype(), expected.dtype().wide());
    let numbers = |x: &Array| (0..x.data().len()).map(|i| x.data().get(i).unwrap().as_f64()).collect::<Vec<f64>>();
    let (got, expected) = (numbers(got), numbers(expected));
    let largest = expected.iter().filter(|x| x.is_finite()).fold(1f64, |most, x| most.max(x.abs()));
    for (i, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
        let allowed = epsilon(dtype) * expected.abs() + (roundings * epsilon(wide) + of_weights(dtype)) * largest;
        let is_close = got == expected || (got.is_nan() && expected.is_nan()) || (got - expected).abs() <= allowed;
        assert!(is_close, "element {i} is {got} and should be {expected}: {what}");
    }
}

#[test]
fn every_dtype() {
    for dtype in FLOATS {
        Case::new(dtype, [2, 70, 2, 5], [2, 67, 2, 5], 7).check();
        Case::new(dtype, [1, 130, 4, 16], [1, 130, 2, 16], 16).causal().check();
        Case::new(dtype, [1, 9, 2, 3], [1, 70, 1, 3], 2).biased([1, 2, 9, 70]).masked([1, 1, 9, 70]).check();
    }
}

#[test]
fn every_size() {
    for n in [1, 2, 15, 16, 17, 63, 64, 65, 128, 129] {
        Case::new(DType::F32, [1, n, 1, 4], [1, n, 1, 4], 4).causal().check();
        Case::new(DType::F32, [1, n, 1, 4], [1, 3, 1, 4], 4).check();
        Case::new(DType::F32, [1, 3, 1, 4], [1, n, 1, 4], 4).check();
        Case::new(DType::F32, [1, 5, 2, n], [1, 4, 2, n], 3).check();
        Case::new(DType::F64, [1, 5, 2, 3], [1, 4, 1, 3], n).check();
    }
}

#[test]
fn causal_masks_of_queries_and_keys_of_different_numbers() {
    for (queries, keys) in [(1, 100), (100, 1), (70, 140), (140, 70), (64, 65), (65, 64)] {
        Case::new(DType::F32, [2, queries, 2, 6], [2, keys, 2, 6], 6).causal().check();
        Case::new(DType::F32, [1, queries, 6, 3], [1, keys, 2, 3], 4).causal().check();
    }
}

#[test]
fn biases_of_every_shape() {
    let full = [2, 4, 66, 67];
    for i in 0..16 {
        let shape = [0, 1, 2, 3].map(|d| if i >> d & 1 == 1 { full[d] } else { 1 });
        Case::new(DType::F32, [2, 66, 4, 3], [2, 67, 2, 3], 3).biased(shape).causal().within(1000.0).check();
    }
}

#[test]
fn masks_of_every_shape() {
    let full = [2, 4, 66, 67];
    for i in 0..16 {
        let shape = [0, 1, 2, 3].map(|d| if i >> d & 1 == 1 { full[d] } else { 1 });
        Case::new(DType::F32, [2, 66, 4, 3], [2, 67, 2, 3], 3).masked(shape).check();
    }
}

#[test]
fn sizes_of_zero() {
    for dtype in FLOATS {
        Case::new(dtype, [0, 3, 2, 4], [0, 3, 2, 4], 4).check();
        Case::new(dtype, [2, 0, 2, 4], [2, 3, 2, 4], 4).causal().check();
        Case::new(dtype, [2, 3, 2, 4], [2, 0, 2, 4], 4).causal().check();
        Case::new(dtype, [2, 3, 0, 4], [2, 3, 0, 4], 4).check();
        Case::new(dtype, [2, 3, 0, 4], [2, 3, 2, 4], 4).check();
        Case::new(dtype, [2, 3, 2, 0], [2, 3, 2, 0], 4).check();
        Case::new(dtype, [2, 3, 2, 4], [2, 3, 2, 4], 0).check();
        Case::new(dtype, [2, 3, 2, 4], [2, 0, 2, 4], 4).biased([2, 1, 3, 0]).masked([1, 1, 1, 1]).check();
        Case::new(dtype, [0, 3, 2, 4], [0, 3, 2, 4], 4).biased([1, 2, 3, 3]).check();
    }
}

#[test]
fn queries_that_may_look_at_nothing() {
    let mut case = Case::new(DType::F32, [1, 70, 1, 4], [1, 70, 1, 4], 4).causal().masked([1, 1, 70, 70]);
    let none = |i: usize| !(i / 70).is_multiple_of(3);
    case.ins[3] = Array::from_vec((0..4900).map(none).collect(), [1, 1, 70, 70]).unwrap();
    case.check();
    let mut case = Case::new(DType::F32, [1, 70, 1, 4], [1, 70, 1, 4], 4).biased([1, 1, 70, 1]);
    let infinite = |i: usize| if i.is_multiple_of(3) { f32::NEG_INFINITY } else { 0.0 };
    case.ins[3] = Array::from_vec((0..70).map(infinite).collect(), [1, 1, 70, 1]).unwrap();
    case.check();
}

#[test]
fn blocks_of_keys_that_the_mask_hides() {
    for dtype in FLOATS {
        // More blocks of queries than one run has.
        Case::new(dtype, [1, 330, 1, 3], [1, 130, 1, 3], 2).masked_in_blocks([1, 1, 330, 130]).check_forward();
        Case::new(dtype, [1, 70, 2, 5], [1, 193, 1, 5], 3).causal().masked_in_blocks([1, 1, 70, 193]).check_forward();
        Case::new(dtype, [1, 66, 2, 4], [1, 130, 2, 4], 4).masked_in_blocks([1, 2, 1, 130]).check_forward();
        let case = Case::new(dtype, [1, 66, 1, 4], [1, 130, 1, 4], 4).biased([1, 1, 66, 130]);
        case.masked_in_blocks([1, 1, 66, 130]).check_forward();
    }
    Case::new(DType::F32, [1, 70, 2, 4], [1, 130, 2, 4], 4).masked_in_blocks([1, 2, 70, 130]).check();
    // All blocks are hidden from all queries.
    let mut case = Case::new(DType::F32, [1, 66, 1, 4], [1, 130, 1, 4], 4).masked([1, 1, 1, 1]);
    case.ins[3] = Array::from_vec(vec![false], [1, 1, 1, 1]).unwrap();
    case.check_forward();
}

/// As many queries as the kernel of few queries takes, and fewer: one token of a decoder, with one key head for all heads or one for each.
#[test]
fn few_queries_of_many_keys() {
    for dtype in FLOATS {
        for (queries, heads, key_heads) in [(1, 1, 1), (1, 8, 1), (2, 6, 3), (8, 1, 1)] {
            assert!(queries * heads / key_heads <= FEW_QUERIES);
            let case = || Case::new(dtype, [2, queries, heads, 18], [2, 130, key_heads, 18], 17);
            let full = [2, heads, queries, 130];
            case().check_forward();
            case().biased(full).check_forward();
            case().biased([1, 1, 1, 130]).causal().check_forward();
            case().masked(full).check_forward();
            case().masked_in_blocks(full).check_forward();
            case().masked_in_blocks([2, 1, 1, 130]).biased([1, heads, queries, 1]).check_forward();
        }
    }
}

/// Caches of several parts, some of which the mask, or causality, hides from some queries.
#[test]
fn few_queries_of_long_caches() {
    let keys = 2 * PART + 70;
    for dtype in FLOATS {
        for (queries, heads, key_heads) in [(1, 2, 1), (3, 2, 2)] {
            let case = || Case::new(dtype, [2, queries, heads, 18], [2, keys, key_heads, 18], 17).within(256.0);
            case().check_forward();
            case().causal().check_forward();
            case().masked_in_blocks([2, heads, queries, keys]).check_forward();
            let mut hidden = case().masked([2, 1, 1, keys]);
            // The first element of the batch sees only the last part, the second nothing.
            let visible = (0..2 * keys).map(|i| i / keys == 0 && i >= 2 * PART);
            hidden.ins[3] = Array::from_vec(visible.collect(), [2, 1, 1, keys]).unwrap();
            hidden.check_forward();
        }
        Case::new(dtype, [2, 1, 2, 18], [2, keys, 2, 18], 0).check_forward();
        Case::new(dtype, [2, 0, 2, 18], [2, keys, 2, 18], 17).check_forward();
    }
}

/// The keys of long caches are cut into parts, so that there are tasks for several threads.
#[test]
fn some_queries_of_long_caches_are_several_tasks() {
    for (queries, heads, key_heads) in [(1, 16, 1), (1, 64, 1), (16, 8, 1), (64, 8, 1), (64, 8, 2)] {
        let case = Case::new(DType::F32, [1, queries, heads, 4], [1, TASKS * LONG_PART, key_heads, 4], 4);
        let layouts: Vec<Layout> = case.ins.iter().map(|x| Layout::from(x.aval())).collect();
        let problem = || Problem::new(&case.op, &layouts, None);
        let of = if few::applies(&problem()) { Forward::of_few } else { Forward::of_tiles };
        let forward = of(DType::F32, problem());
        assert!(forward.tasks() >= TASKS, "{queries} queries, {heads} heads: {} tasks", forward.tasks());
        let layouts: Vec<Layout> = case.differentiated(false).iter().map(|x| Layout::from(x.aval())).collect();
        let op = DotProductAttentionCotangent {
            attention: case.op,
            cotangents: [true, true, true, false],
            logsumexp: false,
        };
        let backward = Backward::new(&op, DType::F32, &layouts, problem());
        assert!(backward.tasks() >= TASKS, "{queries} queries, {heads} heads: {} tasks", backward.tasks());
    }
}

#[test]
fn some_queries_of_long_caches_have_the_results_of_the_definition() {
    let keys = LONG_PART + 70;
    let case = |dtype: DType, [queries, heads]: [usize; 2]| {
        Case::new(dtype, [1, queries, heads, 18], [1, keys, 1, 18], 17).within(256.0)
    };
    for dtype in FLOATS {
        case(dtype, [1, 16]).check();
        // Some parts of the keys are later than all queries.
        case(dtype, [35, 2]).causal().check();
    }
    // Two runs of blocks.
    case(DType::F32, [300, 1]).causal().check();
    case(DType::F32, [10, 2]).masked_in_blocks([1, 2, 10, keys]).check();
    case(DType::F32, [10, 2]).biased([1, 2, 1, keys]).within(4000.0).check();
    for dtype in [DType::F32, DType::Bf16] {
        // One of two heads sees only the last keys, and the other nothing.
        let mut hidden = case(dtype, [10, 2]).masked([1, 2, 1, keys]);
        let visible = (0..2 * keys).map(|i| (LONG_PART..keys).contains(&i));
        hidden.ins[3] = Array::from_vec(visible.collect(), [1, 2, 1, keys]).unwrap();
        hidden.check();
    }
}

#[test]
fn few_queries_that_may_look_at_nothing() {
    for dtype in FLOATS {
        let mut case = Case::new(dtype, [3, 1, 2, 4], [3, 200, 1, 4], 4).masked([3, 1, 1, 200]);
        // The first query sees nothing, the second only the last block, the third only the first key.
        let visible = |i: usize| [false, i % 200 >= 192, i.is_multiple_of(200)][i / 200];
        case.ins[3] = Array::from_vec((0..600).map(visible).collect(), [3, 1, 1, 200]).unwrap();
        case.check_forward();
        assert_eq!(eval_op(&case.op.into(), &case.ins).unwrap()[0].data().get(0).unwrap().as_f64(), 0.0);
    }
}

#[test]
fn scores_of_every_size() {
    // Rounding a score changes its exponential in proportion to the size of the score.
    let mut case = Case::new(DType::F32, [1, 66, 2, 4], [1, 130, 2, 4], 4).within(2000.0);
    case.op.scale = Literal::from_f64(DType::F64, 30.0);
    case.check();
    case.op.scale = Literal::from_f64(DType::F64, -0.01);
    case.check();
    case.op.scale = Literal::from_f64(DType::F64, 0.0);
    case.check();
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, 2.0];
    let mut case = Case::new(DType::F32, [1, 66, 2, 1], [1, 70, 2, 1], 4);
    case.ins[0] =
        filled(DType::F32, &[1, 66, 2, 1], 3, |stream| Literal::from_f64(DType::F32, special[stream.below(5)]));
    check(&case.op.into(), &case.ins, 64.0);
}

#[test]
fn any_of_the_cotangents() {
    let case = Case::new(DType::F32, [2, 70, 2, 5], [2, 67, 2, 5], 7).biased([2, 1, 70, 67]);
    for i in 1..16 {
        let cotangents = [0, 1, 2, 3].map(|d| i >> d & 1 == 1);
        let op = DotProductAttentionCotangent { attention: case.op, cotangents, logsumexp: false };
        check(&op.into(), &case.differentiated(false), 64.0);
    }
}

/// With many heads each is a task; with few heads the queries of each are split.
#[test]
fn many_heads_and_few() {
    Case::new(DType::F32, [3, 70, 6, 4], [3, 70, 6, 4], 4).causal().check();
    Case::new(DType::F32, [1, 600, 1, 4], [1, 100, 1, 4], 4).causal().check();
    Case::new(DType::Bf16, [1, 600, 3, 4], [1, 100, 1, 4], 4).check();
}

/// Queries, keys and values are parts of one projection, and cotangents are transposed.
#[test]
fn operands_of_any_strides() {
    for dtype in FLOATS {
        let (batch, positions, heads, features) = (2, 70, 3, 5);
        let all = plain(dtype, &[batch, positions, 3, heads, features], 1);
        let layout = Layout::from(all.aval());
        let part = |i: usize| {
            let sliced = layout.sliced(&[0, 0, i, 0, 0], &[batch, positions, i + 1, heads, features], &[1, 1, 1, 1, 1]);
            let mut shape = sliced.shape.clone();
            let mut strides = sliced.strides.clone();
            shape.remove(2);
            strides.remove(2);
            Layout { shape, strides, offset: sliced.offset }
        };
        let parts = [0, 1, 2].map(part);
        // The cotangent has its features first, and is stored backwards.
        let ct = plain(dtype, &[features, heads, positions, batch], 2);
        let ct_layout = Layout::from(ct.aval()).permuted(&[3, 2, 1, 0]).reversed(&[1, 3]);

        let scale = Literal::from_f64(DType::F64, 0.5);
        let attention = DotProductAttention { scale, causal: true, bias: false, mask: false };
        let own: Vec<Array> = parts.iter().map(|layout| elements(&all, layout)).collect();
        let results = eval_op(&attention.into(), &own).unwrap();
        let buffers = vec![all.clone(), all.clone(), all.clone()];
        compare(&attention.into(), &own, &buffers, &parts);

        let op = DotProductAttentionCotangent { attention, cotangents: [true, true, true, false], logsumexp: false };
        let ins = [&own[..], &results, &[elements(&ct, &ct_layout)]].concat();
        let layouts: Vec<Layout> =
            parts.iter().cloned().chain(results.iter().map(|x| x.aval().into())).chain([ct_layout]).collect();
        let buffers = [&buffers[..], &results, &[ct]].concat();
        compare(&op.into(), &ins, &buffers, &layouts);
    }
}

/// Compares a kernel on buffers with these layouts with the evaluator on the operands.
fn compare(op: &Op, ins: &[Array], buffers: &[Array], layouts: &[Layout]) {
    let avals: Vec<Aval> = ins.iter().map(|x| x.aval().clone()).collect();
    let outs = op.infer(&avals).unwrap();
    let operands: Vec<(DType, &Layout)> = avals.iter().map(|x| x.dtype).zip(layouts).collect();
    let kernel = kernel(op, &operands);
    let results = [1, 2].map(|count| run(&*kernel, buffers, &outs, None, &threads(count)));
    for (i, expected) in eval_op(op, ins).unwrap().iter().enumerate() {
        close(&results[0][i], expected, 64.0, op.name());
        assert_same(&results[1][i], &results[0][i], op.name());
    }
}

#[test]
fn the_order_of_sums_does_not_depend_on_layouts() {
    let mut stream = Stream::new(4);
    for i in 0..64 {
        let dtype = FLOATS[i % 4];
        let mut case = Case::new(dtype, [2, 70, 4, 5], [2, 67, 2, 5], 7);
        case.op.causal = i / 4 % 2 == 0;
        if i / 8 % 2 == 0 {
            let full = [2, 4, 70, 67];
            case = case.biased([0, 1, 2, 3].map(|d| if stream.below(2) == 0 { full[d] } else { 1 }));
        }
        if i / 16 % 2 == 0 {
            case = case.masked([2, 1, 70, 67]);
        }
        check_layouts(&case.op.into(), &case.ins, &mut stream);
        let logsumexp = i % 3 == 0;
        let cotangents = [true, true, true, case.op.bias];
        let op = DotProductAttentionCotangent { attention: case.op, cotangents, logsumexp };
        check_layouts(&op.into(), &case.differentiated(logsumexp), &mut stream);
    }
}

#[test]
fn the_order_of_sums_of_few_queries_does_not_depend_on_layouts() {
    let mut stream = Stream::new(5);
    for i in 0..32 {
        let mut case = Case::new(FLOATS[i % 4], [2, 2, 4, 19], [2, 130, 2, 19], 17);
        case.op.causal = i / 4 % 2 == 0;
        if i / 8 % 2 == 0 {
            case = case.biased([2, 4, 2, 130]);
        }
        if i / 16 % 2 == 0 {
            case = case.masked_in_blocks([2, 1, 2, 130]);
        }
        check_layouts(&case.op.into(), &case.ins, &mut stream);
    }
}

/// Compares the bits of an operation on operands of other layouts.
fn check_layouts(op: &Op, ins: &[Array], stream: &mut Stream) {
    let avals: Vec<Aval> = ins.iter().map(|x| x.aval().clone()).collect();
    check_views(op, &avals, |ins, _| kernel(op, ins), stream);
}
