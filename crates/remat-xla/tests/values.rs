//! Values of XLA on the CPU beside those of the reference evaluator: every sample of every first-order operation, wild operands, and
//! programs with loops and regions. Samples are compiled many at a time, since compiling takes most of the time.

mod support;

use std::cell::Cell;
use std::sync::Arc;

use remat_ir::{
    Array, Atom, Aval, Binary, Builder, Checkpoint, Class, Conv, CumulativeKind, DType, Device, DotGeneral, Jaxpr,
    Literal, Op, Operation, Policy, Prim, ReduceKind, Result, ScatterKind, Unary, WindowKind, eval,
};
use remat_testkit::{Sample, all_samples, arrays};
use remat_xla::{Platform, Plugin, Xla};

/// Samples in one program.
const TOGETHER: usize = 48;

/// How far results may be apart, in units of the last place of the larger of a result and the largest result of the sample.
fn bound(op: &Op) -> f64 {
    let Some(prim) = op.prim() else { return SUMS };
    match prim {
        // XLA computes the root of a f64 as a power.
        Prim::Unary(Unary::Cbrt) => 64.0,
        Prim::Unary(Unary::Digamma | Unary::Lgamma) => 16.0,
        Prim::Binary(Binary::Rem) | Prim::Unary(Unary::Sqrt) => 0.0,
        Prim::Unary(_) | Prim::Binary(_) if prim.class() == Class::Transcendental => 4.0,
        Prim::Reduce(op) if matches!(op.kind, ReduceKind::Sum | ReduceKind::Prod) => SUMS,
        Prim::ReduceWindow(op) if op.kind == WindowKind::Sum => SUMS,
        Prim::Cumulative(op) if !matches!(op.kind, CumulativeKind::Max | CumulativeKind::Min) => SUMS,
        Prim::Scatter(op) if matches!(op.kind, ScatterKind::Add | ScatterKind::Mul) => SUMS,
        Prim::DotGeneral(_) | Prim::Conv(_) | Prim::TriangularSolve(_) | Prim::Cholesky(_) => SUMS,
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) | Prim::DotProductAttentionCotangent(_) => {
            32.0
        }
        Prim::CrossEntropyTangent(_) => SUMS,
        _ => 0.0,
    }
}

/// Sums in another order.
const SUMS: f64 = 8.0;

/// Samples that XLA computes in another way, each with the reason.
const DIFFERENT: &[(&str, &str, &str)] = &[(
    "triangular_solve",
    "singular",
    "a block of the matrix is inverted, so that a zero on its diagonal makes more of the results NaN than substitution does",
)];

#[test]
fn samples_have_the_values_of_the_evaluator() {
    let Some(xla) = support::xla() else { return };
    let is_different = |s: &Sample| DIFFERENT.iter().any(|(op, label, _)| s.op.name() == *op && s.label == *label);
    let (different, samples): (Vec<_>, Vec<_>) = on_one_device().partition(is_different);
    assert_eq!(different.len(), DIFFERENT.len(), "there are samples of these names");
    agree(&xla, samples);
}

#[test]
fn wild_operands_have_the_values_of_the_evaluator() {
    let Some(xla) = support::xla() else { return };
    let wild = |(seed, mut sample): (usize, Sample)| {
        let redraw = |(i, x): (usize, &Array)| wild(x.aval(), (seed * 8 + i) as u64);
        sample.inputs = sample.inputs.iter().enumerate().map(redraw).collect();
        sample.label += ", wild";
        sample
    };
    let exact = on_one_device().filter(|sample| bound(&sample.op) == 0.0);
    agree(&xla, exact.enumerate().map(wild).collect());
}

/// The samples without meshes; those with some are in `sharded.rs`.
fn on_one_device() -> impl Iterator<Item = Sample> {
    all_samples().into_iter().filter(|sample| sample.op.call().is_none() && sample.op.name() != "sharding_constraint")
}

/// What is written for GPUs alone: of several updates to an element the last wins, whatever the order, and integers are convolved by parts in
/// f64. The plugin for CPUs compiles it here.
#[test]
fn programs_for_gpus_have_the_values_of_the_evaluator() {
    if support::xla().is_none() {
        return;
    }
    let plugin = Plugin::find(Platform::Cpu).unwrap();
    let gpu = Xla::new(&Plugin::open(Platform::Gpu, plugin.path()).unwrap()).unwrap();
    // Of each number of parts one, with signs and without; to their own dtype, and to wider ones.
    let integers =
        [(DType::I8, DType::I32), (DType::U16, DType::U16), (DType::I32, DType::I32), (DType::U64, DType::U64)];
    let mut samples = Vec::new();
    for sample in on_one_device() {
        match sample.op.prim() {
            Some(Prim::Scatter(op)) if op.kind == ScatterKind::Set => samples.push(sample),
            Some(Prim::Conv(op)) => {
                for (i, (dtype, to)) in integers.into_iter().enumerate() {
                    let op = Conv { preferred_element_type: to, ..(**op).clone() };
                    let inputs = sample.inputs.iter().enumerate();
                    let inputs = inputs.map(|(k, x)| wild(&x.aval().with_dtype(dtype), (3 * i + k) as u64));
                    samples.push(Sample::new(format!("{} to {to}", sample.label), op, inputs.collect()));
                }
            }
            _ => {}
        }
    }
    let sets = samples.iter().filter(|sample| sample.op.name() == "scatter").count();
    assert!(sets > 10 && samples.len() > sets + 40, "{sets} of {}", samples.len());
    agree(&gpu, samples);
}

/// Values of every kind but subnormal numbers, which XLA computes with as zeros on CPUs.
fn wild(aval: &Aval, seed: u64) -> Array {
    let drawn = arrays::wild(aval.dtype, &aval.shape, seed);
    let next = Cell::new(0);
    let flushed = arrays::filled(aval.dtype, &aval.shape, seed, |_| {
        let literal = drawn.data().get(next.replace(next.get() + 1)).unwrap();
        if is_subnormal(literal) { Literal::from_f64(aval.dtype, 0.0) } else { literal }
    });
    flushed.in_memory(aval.memory)
}

fn is_subnormal(literal: Literal) -> bool {
    let value = literal.as_f64().abs();
    let exponent = literal.dtype().float_format().map_or(1, |(exponent, _)| exponent);
    value > 0.0 && value < 2f64.powi(2 - (1 << (exponent - 1)))
}

/// Fails unless the results are close.
fn agree(xla: &Xla, samples: Vec<Sample>) {
    let mut faults = Vec::new();
    for samples in samples.chunks(TOGETHER) {
        let expected: Vec<Vec<Array>> =
            samples.iter().map(|sample| eval(&program(&[sample]), sample.inputs.clone()).unwrap()).collect();
        let all: Vec<&Sample> = samples.iter().collect();
        match run(xla, &all) {
            Ok(got) => {
                faults.extend(samples.iter().zip(got).zip(&expected).filter_map(|((s, got), x)| fault(s, &got, x)))
            }
            // One of them does not compile: alone it says so.
            Err(_) => {
                for (sample, expected) in samples.iter().zip(&expected) {
                    match run(xla, &[sample]) {
                        Ok(got) => faults.extend(fault(sample, &got[0], expected)),
                        Err(error) => faults.push(format!("{}: {error}", name(sample))),
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The samples side by side.
fn program(samples: &[&Sample]) -> Jaxpr {
    let mut b = Builder::new();
    let ins: Vec<_> = samples.iter().map(|sample| b.inputs(sample.inputs.iter().map(|x| x.aval().clone()))).collect();
    let outs = samples.iter().zip(&ins).flat_map(|(sample, ins)| b.emit(sample.op.clone(), ins).unwrap()).collect();
    b.finish(outs)
}

/// The results of each sample.
fn run(xla: &Xla, samples: &[&Sample]) -> Result<Vec<Vec<Array>>> {
    let jaxpr = Arc::new(program(samples));
    let args = samples.iter().flat_map(|sample| sample.inputs.clone()).collect();
    let mut results = xla.compile(&jaxpr)?.run(args)?.into_iter();
    Ok(jaxpr.eqns.iter().map(|eqn| results.by_ref().take(eqn.outs.len()).collect()).collect())
}

fn name(sample: &Sample) -> String {
    let avals: Vec<String> = sample.inputs.iter().map(|x| x.aval().to_string()).collect();
    format!("{} ({}) of {}", sample.op.name(), sample.label, avals.join(" "))
}

/// What is wrong with the results of a sample.
fn fault(sample: &Sample, got: &[Array], expected: &[Array]) -> Option<String> {
    let numbers = sample.inputs.iter().chain(expected).flat_map(numbers).map(|x| x.as_f64().abs());
    let largest = numbers.filter(|x| x.is_finite()).fold(0.0, f64::max);
    let wrong = got.iter().zip(expected).find_map(|(got, expected)| difference(&sample.op, got, expected, largest))?;
    Some(format!("{}: {wrong}", name(sample)))
}

fn numbers(x: &Array) -> Vec<Literal> {
    (0..x.data().len()).filter_map(|i| x.data().get(i)).collect()
}

fn difference(op: &Op, got: &Array, expected: &Array, largest: f64) -> Option<String> {
    if got.aval() != expected.aval() {
        return Some(format!("it is {} and not {}", got.aval(), expected.aval()));
    }
    let (got, expected) = (numbers(got), numbers(expected));
    // Sums of terms that cancel are as far apart as their terms are large; other operations have a bound of their own result.
    let largest = if bound(op) >= SUMS { largest } else { 0.0 };
    let mut worst = (0.0, None);
    for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
        let (x, y) = (a.as_f64(), b.as_f64());
        if a == b || (x.is_nan() && y.is_nan()) || (x == 0.0 && is_subnormal(*b)) {
            continue;
        }
        let epsilon = b.dtype().float_format().map_or(0.0, |(_, mantissa)| 0.5f64.powi(mantissa as i32));
        let units = (x - y).abs() / (epsilon * y.abs().max(largest));
        let units = if units.is_finite() { units } else { f64::INFINITY };
        if units > worst.0 || worst.1.is_none() {
            worst = (units, Some((i, *a, *b)));
        }
    }
    let (i, a, b) = worst.1?;
    (worst.0 > bound(op)).then(|| format!("element {i} is {a} and not {b}: {:.1} units", worst.0))
}

/// Programs with loops, branches, calls and regions: those whose text is in the file tests.
#[test]
fn programs_have_the_values_of_the_evaluator() {
    let Some(xla) = support::xla() else { return };
    let mut count = 0;
    for text in [include_str!("filetests/calls.txt"), include_str!("filetests/loops.txt")] {
        for case in text.split("// run: ").skip(1) {
            let (program, expected) = case.split_once("// expect:").unwrap();
            let program: Vec<&str> = program.lines().skip(1).filter(|line| !line.starts_with("//")).collect();
            if expected.trim_start().starts_with("error") {
                continue;
            }
            let jaxpr: Arc<Jaxpr> = Arc::new(program.join("\n").parse().unwrap());
            let args: Vec<Array> = jaxpr.in_avals().iter().enumerate().map(|(i, aval)| plain(aval, i as u64)).collect();
            let expected = eval(&jaxpr, args.clone()).unwrap();
            let got =
                xla.compile(&jaxpr).and_then(|compiled| compiled.run(args)).unwrap_or_else(|e| panic!("{e}\n{jaxpr}"));
            for (got, expected) in got.iter().zip(&expected) {
                arrays::assert_close(got, expected, 1e-6, 1.0, &jaxpr.to_string());
            }
            count += 1;
        }
    }
    assert!(count > 10, "{count} programs");
}

/// Values without surprises; small positive integers, so that loops that count end.
fn plain(aval: &Aval, seed: u64) -> Array {
    if aval.dtype.is_integer() {
        return Array::full(Literal::from_i128(aval.dtype, 2), aval.shape.iter().copied());
    }
    arrays::plain(aval.dtype, &aval.shape, seed)
}

#[test]
fn arguments_are_checked_before_a_run() {
    let Some(xla) = support::xla() else { return };
    let jaxpr: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) }".parse().unwrap();
    let compiled = xla.compile(&jaxpr.into()).unwrap();
    let error = |args| compiled.run(args).unwrap_err().to_string();
    assert_eq!(error(vec![]), "xla: the program takes 1 argument and got 0");
    let integers = Array::from_vec(vec![1i32, 2], [2]).unwrap();
    assert_eq!(error(vec![integers]), "xla: argument 0 is i32[2] and the program takes f32[2]");
    let matrix = Array::from_vec(vec![1f32, 2.0], [1, 2]).unwrap();
    assert_eq!(error(vec![matrix]), "xla: argument 0 is f32[1,2] and the program takes f32[2]");
}

#[test]
fn memory_is_what_the_plugin_tells() {
    let Some(xla) = support::xla() else { return };
    let jaxpr: Jaxpr =
        "{ lambda ; a:f32[64]. let b:f32[64] = sin a; c:f32[] = reduce_sum[axes=(0,)] b in (b, c) }".parse().unwrap();
    let compiled = xla.compile(&jaxpr.into()).unwrap();
    let memory = compiled.memory();
    assert_eq!(memory.arguments, 256);
    assert!(memory.outputs >= 260 && memory.peak >= 516, "{memory}");
    let report = compiled.memory_report();
    assert_eq!(report.stats, memory);
    assert!(report.to_string().contains("f32[64]  argument 0"), "{report}");
}

/// A policy takes effect: what is computed again is not merged with the forward pass, and is not kept.
#[test]
fn barriers_keep_recomputation_apart() {
    let Some(xla) = support::xla() else { return };
    let run = |differentiated: bool| {
        let compiled = xla.compile(&segments(differentiated).into()).unwrap();
        let x = arrays::plain(DType::F32, &[SIDE, SIDE], 1);
        (compiled.memory().temporaries, compiled.run(vec![x.clone(), x]).unwrap())
    };
    let ((kept, expected), (recomputed, got)) = (run(false), run(true));
    arrays::assert_same(&got[0], &expected[0], "computed again");
    assert!(recomputed + 3 * 4 * SIDE * SIDE <= kept, "{recomputed} bytes of temporaries and {kept} without barriers");
}

/// Rows and columns of the matrices of [`segments`].
const SIDE: usize = 64;

/// A chain of sixteen layers in four segments, and a backward pass that computes each segment again.
fn segments(differentiated: bool) -> Jaxpr {
    let layer = |b: &mut Builder, h: Atom, w: Atom| {
        let [lhs_contract, rhs_contract] = [[1], [0]].map(|axis| axis.into_iter().collect());
        let (lhs_batch, rhs_batch) = Default::default();
        let product =
            DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch, preferred_element_type: DType::F32 };
        let product = b.emit1(product.into(), &[h, w]).unwrap();
        b.emit1(Unary::Sin.into(), &[product]).unwrap()
    };
    let aval = Aval::new(DType::F32, [SIDE, SIDE]);
    let mut region = Builder::new();
    let [h, w, ct] = region.inputs([aval.clone(), aval.clone(), aval.clone()])[..] else { unreachable!() };
    let (mut h, mut ct, mut layers) = (h, ct, Vec::new());
    for _ in 0..4 {
        h = layer(&mut region, h, w);
        layers.push(h);
    }
    // From the last to the first, so that all are needed at one time.
    for h in layers.into_iter().rev() {
        ct = layer(&mut region, ct, h);
    }
    let jaxpr = Arc::new(region.finish(vec![ct]));
    let region = Checkpoint { jaxpr, differentiated, policy: Arc::new(Policy::Nothing) };
    let mut b = Builder::new();
    let [x, w] = b.inputs([aval.clone(), aval])[..] else { unreachable!() };
    let (mut h, mut residuals) = (x, Vec::new());
    for _ in 0..4 {
        residuals.push(h);
        for _ in 0..4 {
            h = layer(&mut b, h, w);
        }
    }
    for residual in residuals.into_iter().rev() {
        h = b.emit1(region.clone().into(), &[residual, w, h]).unwrap();
    }
    b.finish(vec![h])
}
