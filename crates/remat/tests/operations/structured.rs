//! Derivatives of operations over rows, windows and matrices at infinities, NaN, zeros, equal elements, large and tiny elements and
//! saturated rows, forward and in reverse, against JAX's. `data/derivatives/structured.py` wrote the expected ones.
//! `derivatives.rs` has the elementwise operations.

use std::collections::{BTreeMap, BTreeSet};

use remat::nn::{self, AttentionConfig};
use remat::{DType, Padding, PoolConfig, Tensor, TriangularConfig, jvp, vjp};
use remat_ir::{CumulativeKind, Prim, ReduceKind, ScatterKind, WindowKind};
use remat_testkit::all_samples;

const DIRECTION: [f64; 4] = [1.0, -2.0, 0.5, 3.0];

type Function = Box<dyn Fn(&Vec<Tensor>) -> Tensor>;

/// The function that the fixtures call by this name.
fn function(name: &str) -> Function {
    match name {
        "reduce_prod" => Box::new(|x| x[0].prod(..)),
        "reduce_max" => Box::new(|x| x[0].max(..)),
        "reduce_min" => Box::new(|x| x[0].min(..)),
        "reduce_sum" => Box::new(|x| x[0].sum(..)),
        "cumsum" => Box::new(|x| x[0].cumsum(0)),
        "cumprod" => Box::new(|x| x[0].cumprod(0)),
        "cumprod.reverse" => Box::new(|x| x[0].cumulative(CumulativeKind::Prod, 0, true)),
        "cumlogsumexp" => Box::new(|x| x[0].cumlogsumexp(0)),
        "cumlogsumexp.reverse" => Box::new(|x| x[0].cumulative(CumulativeKind::LogSumExp, 0, true)),
        "cummax" => Box::new(|x| x[0].cummax(0)),
        "cummin" => Box::new(|x| x[0].cummin(0)),
        "logsumexp" => Box::new(|x| x[0].logsumexp(..)),
        "softmax" => Box::new(|x| x[0].softmax(0)),
        "log_softmax" => Box::new(|x| x[0].log_softmax(0)),
        "cross_entropy" => Box::new(|x| cross_entropy(&x[0])),
        "cross_entropy.tangent" => Box::new(|x| jvp(cross_entropy, &x[0], &direction(&x[0], 0)).unwrap().1),
        "sum_window" => Box::new(|x| x[0].sum_pool(&windows())),
        "max_window" => Box::new(|x| x[0].max_pool(&windows())),
        "min_window" => Box::new(|x| x[0].min_pool(&windows())),
        "sort" => Box::new(|x| x[0].sort(0)),
        "top_k" => Box::new(|x| x[0].top_k(2).0),
        "clamp" => Box::new(|x| x[1].clamp(&x[0], &x[2])),
        "select_n" => Box::new(|x| Tensor::new([true, false, true, false]).select(&x[1], &x[0])),
        "scatter_mul" => Box::new(|x| x[0].at(Tensor::new([2, 0, 3])).unique().mul(&x[1])),
        "scatter_max" => Box::new(|x| x[0].at(Tensor::new([0, 2, 0])).max(&x[1])),
        "scatter_min" => Box::new(|x| x[0].at(Tensor::new([0, 2, 0])).min(&x[1])),
        "attention" => Box::new(attention),
        "attention.pullback" => Box::new(|x| {
            let (out, pullback) = vjp(attention, x).unwrap();
            pullback.call(&direction(&out, 0)).unwrap().swap_remove(0)
        }),
        "triangular_solve" => Box::new(|x| {
            let config = TriangularConfig { left_side: true, lower: true, ..TriangularConfig::default() };
            x[0].solve_triangular(&x[1], config)
        }),
        "cholesky" => Box::new(|x| x[0].cholesky()),
        _ => panic!("{name} is no function of this test"),
    }
}

fn cross_entropy(logits: &Tensor) -> Tensor {
    nn::cross_entropy(logits, &Tensor::new(1))
}

/// Two queries and three keys with one feature each; the values are the keys.
#[expect(clippy::ptr_arg, reason = "it is differentiated in a tree, which a Vec is")]
fn attention(x: &Vec<Tensor>) -> Tensor {
    let [query, key] = [0, 1].map(|i| x[i].expand_dims(1));
    let config = AttentionConfig { scale: Some(1.0), bias: Some(x[2].clone()), ..AttentionConfig::default() };
    nn::dot_product_attention(&query, &key, &key, &config).squeeze(1)
}

fn windows() -> PoolConfig {
    PoolConfig { strides: vec![1], padding: Padding::Explicit(vec![(1, 1)]), ..PoolConfig::new([2]) }
}

/// The tangent of operand `k`; for `k = 0` the cotangent of a result, too.
fn direction(x: &Tensor, k: usize) -> Tensor {
    let elements = (0..x.size().unwrap()).map(|i| DIRECTION[(i + k) % 4]).collect::<Vec<_>>();
    Tensor::from_vec(elements, x.shape().unwrap()).to_dtype(x.dtype().unwrap())
}

struct Row<'a> {
    dtype: DType,
    name: &'a str,
    operands: Vec<&'a str>,
    /// All of the above, as the file has it.
    given: &'a str,
    /// The derivative, then the cotangent of each operand.
    expected: &'a str,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    include_str!("../data/derivatives/structured.txt").lines().map(|line| {
        let (given, expected) = line.split_once(" | ").unwrap();
        let mut words = given.split(' ');
        let dtype = if words.next() == Some("float32") { DType::F32 } else { DType::F64 };
        let name = words.next().unwrap();
        Row { dtype, name, operands: words.collect(), given, expected }
    })
}

fn numbers(text: &str) -> Vec<f64> {
    text.split([',', ';']).map(|x| x.parse().unwrap()).collect()
}

/// A vector, or a matrix if it has several rows or one element in each of them.
fn operand(row: &Row<'_>, text: &str) -> Tensor {
    let elements = numbers(text);
    let count = text.split(';').count();
    let shape = if count == 1 { vec![elements.len()] } else { vec![count, elements.len() / count] };
    Tensor::from_vec(elements, shape).to_dtype(row.dtype)
}

/// The derivative along the directions of all operands, then the pullback of a direction to each.
fn derivatives(row: &Row<'_>) -> Vec<Vec<f64>> {
    let f = function(row.name);
    let operands: Vec<Tensor> = row.operands.iter().map(|text| operand(row, text)).collect();
    let directions = operands.iter().enumerate().map(|(k, x)| direction(x, k)).collect();
    let (_, tangent) = jvp(&f, &operands, &directions).unwrap();
    let (value, pullback) = vjp(&f, &operands).unwrap();
    let cotangents = pullback.call(&direction(&value, 0)).unwrap();
    let results = std::iter::once(tangent).chain(cotangents);
    results.map(|x| x.to_dtype(DType::F64).to_vec::<f64>().unwrap()).collect()
}

/// Whether results are equal up to roundings. Derivatives of attention are sums whose terms cancel.
fn is_near(row: &Row<'_>, got: &[Vec<f64>], expected: &[Vec<f64>]) -> bool {
    let (relative, smallest) = match row.dtype {
        DType::F32 => (2e-5, f64::from(f32::MIN_POSITIVE)),
        _ => (1e-12, f64::MIN_POSITIVE),
    };
    let max = |x: &[f64]| x.iter().filter(|x| x.is_finite()).fold(1.0f64, |max, x| max.max(x.abs()));
    got.len() == expected.len()
        && got.iter().zip(expected).all(|(got, expected)| {
            let absolute = if row.name.starts_with("attention") { relative * max(expected) } else { smallest };
            let near = |(&x, &y): (&f64, &f64)| {
                x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= relative * y.abs() + absolute
            };
            got.len() == expected.len() && got.iter().zip(expected).all(near)
        })
}

/// Why our derivative is not JAX's at a row, where it is not. `structured_ours.txt` has ours.
fn reason_to_differ(row: &Row<'_>) -> Option<&'static str> {
    let operands: Vec<f64> = row.operands.iter().flat_map(|text| numbers(text)).collect();
    let has = |is: fn(&f64) -> bool| operands.iter().any(is);
    let (infinite, nan, large) = (has(|x| x.is_infinite()), has(|x| x.is_nan()), has(|x| x.abs() > 1e14));
    Some(match row.name {
        "reduce_prod" | "cumprod" | "cumprod.reverse" if large => {
            "products overflow to infinities of both signs: whether their sum is NaN depends on its order"
        }
        "cumlogsumexp" | "cumlogsumexp.reverse" if infinite => {
            "the weights in JAX are NaN or infinite here, or above 1; ours are between 0 and 1"
        }
        "cummax" | "cummin" => {
            "equal elements share by halves in JAX, as its parallel scan pairs them; here the latest has the whole tangent"
        }
        "max_window" | "min_window" if infinite || nan => {
            "JAX takes the padding for an equally infinite element, and passes over NaN; ours is of the element of the result"
        }
        "top_k" if operands == [0.0; 4] => "zeros of both signs are equal here, and ordered in JAX",
        "attention" | "attention.pullback" if row.operands[2].starts_with("-inf,-inf,-inf") => {
            "a query that attends to no key gives zeros"
        }
        // Equal weights are then 1 each and not 1 / n.
        "attention" | "attention.pullback" if large => {
            "only the log of the sum of exponentials is kept, and beside a score this large it loses the number of equal ones"
        }
        _ => return None,
    })
}

const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/derivatives/structured_ours.txt");

/// `BLESS=1` rewrites the rows that are not JAX's.
#[test]
fn derivatives_are_those_of_jax_or_differ_for_a_reason() {
    let is_blessing = std::env::var_os("BLESS").is_some();
    let written = std::fs::read_to_string(OURS).unwrap_or_default();
    let ours: BTreeMap<&str, &str> = written.lines().filter_map(|line| line.split_once(" | ")).collect();
    let parse = |results: &str| results.split(' ').map(numbers).collect::<Vec<_>>();
    let (mut failures, mut differing) = (Vec::new(), Vec::new());
    for row in rows() {
        let got = derivatives(&row);
        if is_near(&row, &got, &parse(row.expected)) {
            continue;
        }
        let texts = got.iter().map(|x| x.iter().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(","));
        let text = texts.collect::<Vec<_>>().join(" ");
        let is_ours = is_blessing || ours.get(row.given).is_some_and(|ours| is_near(&row, &got, &parse(ours)));
        if reason_to_differ(&row).is_none() || !is_ours {
            let ours = ours.get(row.given).unwrap_or(&"not listed");
            failures.push(format!("{}\n  got  {text}\n  JAX  {}\n  ours {ours}", row.given, row.expected));
        }
        differing.push(format!("{} | {text}\n", row.given));
    }
    assert!(failures.is_empty(), "{} rows\n{}", failures.len(), failures.join("\n"));
    if is_blessing {
        std::fs::write(OURS, differing.concat()).unwrap();
    } else {
        assert_eq!(differing.len(), ours.len(), "rows of {OURS} are JAX's now; BLESS=1 rewrites it");
    }
}

/// What holds the derivative of an operation.
enum Held {
    /// Rows of these functions.
    Rows(&'static [&'static str]),
    /// No rows, for this reason.
    Not(&'static str),
}

fn held(op: &Prim) -> Held {
    use Held::{Not, Rows};
    const MOVES: Held = Not("it moves elements: linear, without a factor");
    const NOT_FLOATS: Held = Not("its results are not floats, or constant");
    match op {
        Prim::Unary(_) | Prim::Binary(_) | Prim::IntegerPow(_) => Not("derivatives.rs has its rows"),
        Prim::Compare(_) | Prim::ArgReduce(_) | Prim::ArgReduceWindow(_) => NOT_FLOATS,
        Prim::Threefry2x32(_) | Prim::Iota(_) => NOT_FLOATS,
        Prim::SelectN(_) => Rows(&["select_n"]),
        Prim::Clamp(_) => Rows(&["clamp"]),
        Prim::ConvertElementType(_) | Prim::ReducePrecision(_) => Not("linear: the tangent is rounded as its primal"),
        Prim::BitcastConvertType(_) => Not("it has no derivative"),
        Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_) => MOVES,
        Prim::ExpandDims(_) | Prim::Rev(_) | Prim::Concatenate(_) | Prim::Pad(_) => MOVES,
        Prim::Slice(_) | Prim::DynamicSlice(_) | Prim::DynamicUpdateSlice(_) | Prim::Gather(_) => MOVES,
        Prim::Scatter(op) => match op.kind {
            ScatterKind::Set | ScatterKind::Add => MOVES,
            ScatterKind::Mul => Rows(&["scatter_mul"]),
            ScatterKind::Max => Rows(&["scatter_max"]),
            ScatterKind::Min => Rows(&["scatter_min"]),
        },
        Prim::Reduce(op) => match op.kind {
            ReduceKind::Sum => Rows(&["reduce_sum", "logsumexp", "softmax", "log_softmax"]),
            ReduceKind::Prod => Rows(&["reduce_prod"]),
            ReduceKind::Max => Rows(&["reduce_max"]),
            ReduceKind::Min => Rows(&["reduce_min"]),
            ReduceKind::And | ReduceKind::Or => NOT_FLOATS,
        },
        Prim::Cumulative(op) => match op.kind {
            CumulativeKind::Sum => Rows(&["cumsum"]),
            CumulativeKind::Prod => Rows(&["cumprod", "cumprod.reverse"]),
            CumulativeKind::Max => Rows(&["cummax"]),
            CumulativeKind::Min => Rows(&["cummin"]),
            CumulativeKind::LogSumExp => Rows(&["cumlogsumexp", "cumlogsumexp.reverse"]),
        },
        Prim::Sort(_) => Rows(&["sort"]),
        Prim::TopK(_) => Rows(&["top_k"]),
        Prim::DotGeneral(_) | Prim::Conv(_) => Not("bilinear: the factor of a tangent is the other operand itself"),
        Prim::ReduceWindow(op) => match op.kind {
            WindowKind::Sum => Rows(&["sum_window"]),
            WindowKind::Max => Rows(&["max_window"]),
            WindowKind::Min => Rows(&["min_window"]),
        },
        Prim::TriangularSolve(_) => Rows(&["triangular_solve"]),
        Prim::Cholesky(_) => Rows(&["cholesky"]),
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) => Rows(&["attention"]),
        Prim::DotProductAttentionCotangent(_) => Rows(&["attention.pullback"]),
        Prim::CrossEntropyTangent(_) => Rows(&["cross_entropy", "cross_entropy.tangent"]),
        Prim::Name(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_) => Not("it is the identity"),
        Prim::DebugPrint(_) => Not("it has no results"),
        Prim::ShardingConstraint(_) => Not("it is the identity"),
        Prim::AllGather(_) | Prim::AllToAll(_) | Prim::Ppermute(_) => MOVES,
        Prim::AllReduce(_) | Prim::ReduceScatter(_) => Not("one device computes it as a reduction, which has rows"),
        Prim::AxisIndex(_) => NOT_FLOATS,
        Prim::StopGradient(_) => Not("its derivative is zero everywhere"),
    }
}

/// A new operation needs rows, or a reason to have none.
#[test]
fn every_operation_has_rows_or_a_reason() {
    let named: BTreeSet<(DType, &str)> = rows().map(|row| (row.dtype, row.name)).collect();
    for sample in all_samples() {
        let Some(op) = sample.subject().prim() else { continue };
        match held(op) {
            Held::Rows(functions) => {
                for (function, dtype) in functions.iter().flat_map(|f| [(*f, DType::F32), (*f, DType::F64)]) {
                    assert!(named.contains(&(dtype, function)), "{op:?}: {function} has no row in {dtype}");
                }
            }
            Held::Not(reason) => assert!(!reason.is_empty()),
        }
    }
}
