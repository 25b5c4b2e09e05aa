//! Derivatives of the elementwise operations at large and small operands, at infinities, NaN, zeros and the ends of domains,
//! against 40 digits and against JAX. `data/derivatives/generate.py` wrote the expected ones. `structured.rs` has the
//! other operations.

use std::collections::{BTreeMap, BTreeSet};

use remat::transform::jvp;
use remat_ir::{Array, Aval, Binary, Builder, DType, IntegerPow, Op, Operation, Prim, Unary, eval};

struct Row {
    operands: Vec<f64>,
    /// The derivative, where the function has one.
    exact: Option<f64>,
    jax: f64,
}

/// The rows of a function: dtype, operation and which operand is differentiated.
type Table = BTreeMap<(String, String, usize), Vec<Row>>;

fn table() -> Table {
    let mut table = Table::new();
    for line in include_str!("../data/derivatives/vectors.txt").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<f64>().unwrap();
        let (operands, expected) = fields[3..].split_at(fields.len() - 5);
        table.entry((fields[0].into(), fields[1].into(), number(fields[2]) as usize)).or_default().push(Row {
            operands: operands.iter().map(|x| number(x)).collect(),
            exact: (expected[0] != "-").then(|| number(expected[0])),
            jax: number(expected[1]),
        });
    }
    table
}

fn operation(name: &str) -> Op {
    if let Some(power) = name.strip_prefix("integer_pow[") {
        return IntegerPow { y: power.trim_end_matches(']').parse().unwrap() }.into();
    }
    let unary = Unary::ALL.into_iter().find(|op| op.name() == name).map(Op::from);
    unary.or(Binary::ALL.into_iter().find(|op| op.name() == name).map(Op::from)).expect("an operation has this name")
}

/// The tangents of `op` in the direction of one operand, where those in `nonzero` have a tangent and the others are constant.
fn derivatives(op: &Op, dtype: DType, rows: &[Row], nonzero: &[bool], direction: usize) -> Vec<f64> {
    let array = |values: Vec<f64>| match dtype {
        DType::F32 => Array::from_vec(values.iter().map(|&x| x as f32).collect(), [rows.len()]).unwrap(),
        _ => Array::from_vec(values, [rows.len()]).unwrap(),
    };
    let operands: Vec<Array> =
        (0..nonzero.len()).map(|i| array(rows.iter().map(|row| row.operands[i]).collect())).collect();
    let mut b = Builder::new();
    let ins = b.inputs(operands.iter().map(|x| x.aval().clone()));
    let out = b.emit1(op.clone(), &ins).unwrap();
    let derivative = jvp(&b.finish(vec![out]), nonzero, &[true]).unwrap();
    let mut args = operands;
    for (i, _) in nonzero.iter().enumerate().filter(|(_, n)| **n) {
        args.push(array(vec![f64::from(u8::from(i == direction)); rows.len()]));
    }
    let tangent = eval(&derivative.jaxpr, args).unwrap().remove(1);
    match dtype {
        DType::F32 => tangent.as_slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        _ => tangent.as_slice::<f64>().unwrap().to_vec(),
    }
}

/// Where the derivative is neither the true one nor JAX's, and why.
fn is_known_to_differ(name: &str, which: usize, row: &Row, got: f64) -> bool {
    let undefined = row.exact.is_none() && got.is_nan();
    match (name, which) {
        // There is no remainder by zero or of infinity. Nor is there a quotient whose rounding could be the derivative.
        ("rem", 1) => undefined && (row.operands[0].is_infinite() || row.operands[1] == 0.0),
        // Poles come closer and closer.
        ("digamma", 0) => undefined && row.operands[0] == f64::NEG_INFINITY,
        _ => false,
    }
}

#[test]
fn derivatives_are_those_of_forty_digits_or_of_jax() {
    let mut failures = Vec::new();
    for ((dtype, name, which), rows) in table() {
        let dtype = if dtype == "float32" { DType::F32 } else { DType::F64 };
        let op = operation(&name);
        let operands = rows[0].operands.len();
        let alone: Vec<bool> = (0..operands).map(|i| i == which).collect();
        // A zero tangent beside it has to change nothing, but that a zero times an infinite derivative is not a number.
        for nonzero in [alone, vec![true; operands]] {
            let beside = nonzero.iter().filter(|n| **n).count() > 1;
            for (row, got) in rows.iter().zip(derivatives(&op, dtype, &rows, &nonzero, which)) {
                let known = is_known_to_differ(&name, which, row, got) || (beside && got.is_nan() && !is_choice(&op));
                if !accepted(dtype, row, got) && !known {
                    let Row { operands, exact, jax } = row;
                    let with = if beside { " beside a zero tangent" } else { "" };
                    failures.push(format!(
                        "{name} {dtype} d{which} at {operands:?}{with}: {got:e}, exact {exact:?}, JAX {jax:e}"
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} derivatives\n{}", failures.len(), failures.join("\n"));
}

/// Whether the tangent is chosen, so that no factor meets it.
fn is_choice(op: &Op) -> bool {
    matches!(op, Op::Prim(Prim::Binary(Binary::Max | Binary::Min)))
}

/// Near the true derivative, or JAX's; and where JAX loses digits, as near as JAX.
fn accepted(dtype: DType, row: &Row, got: f64) -> bool {
    let (relative, smallest, largest) = match dtype {
        DType::F32 => (2e-5, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        _ => (1e-12, f64::MIN_POSITIVE, f64::MAX),
    };
    let near = |expected: f64| {
        let expected = if expected.abs() > largest { f64::INFINITY.copysign(expected) } else { expected };
        let allowed = relative * expected.abs() + smallest;
        got == expected || (got.is_nan() && expected.is_nan()) || (got - expected).abs() <= allowed
    };
    let as_near_as_jax =
        |exact: f64| (row.jax - exact).is_finite() && (got - exact).abs() <= 4.0 * (row.jax - exact).abs();
    near(row.jax) || row.exact.is_some_and(|exact| near(exact) || as_near_as_jax(exact))
}

/// A new operation needs rows.
#[test]
fn every_elementwise_operation_has_rows() {
    let table = table();
    let named: BTreeSet<(&str, &str, usize)> = table.keys().map(|(d, n, w)| (d.as_str(), n.as_str(), *w)).collect();
    let float = |op: Op, operands: usize| {
        let avals = vec![Aval::new(DType::F64, []); operands];
        op.infer(&avals).is_ok_and(|outs| outs[0].dtype.is_float())
    };
    let unary = Unary::ALL.iter().filter(|op| float((**op).into(), 1)).map(|op| (op.name(), 1));
    let binary = Binary::ALL.iter().filter(|op| float((**op).into(), 2)).map(|op| (op.name(), 2));
    for (name, operands) in unary.chain(binary) {
        for (dtype, which) in ["float32", "float64"].iter().flat_map(|d| (0..operands).map(move |w| (d, w))) {
            assert!(named.contains(&(*dtype, name, which)), "{name} has no row in {dtype} for operand {which}");
        }
    }
    for (dtype, power) in ["float32", "float64"].iter().flat_map(|d| [-3, -1, 0, 1, 2, 3, 8].map(|y| (d, y))) {
        let name = format!("integer_pow[{power}]");
        assert!(named.contains(&(*dtype, name.as_str(), 0)), "{name} has no row in {dtype}");
    }
}
