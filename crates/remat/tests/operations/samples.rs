//! Every operation's samples, put through every transformation.
//!
//! A new operation adds its tests with its samples: nothing here names one.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat::testing::batch;
use remat::transform::{self, ResidualSource, Saving, partial_eval};
use remat_ir::{
    Array, Atom, Aval, Builder, DType, Element, ErrorKind, Jaxpr, Literal, check, eval, eval_op, with_dtype,
};
use remat_testkit::{Sample, all_samples};

/// How many of the failures of one property are printed.
const PRINTED: usize = 40;

#[test]
fn shape_rules_agree_with_evaluation() {
    for_each_sample(|sample| {
        let avals: Vec<Aval> = sample.inputs.iter().map(|x| x.aval().clone()).collect();
        let inferred = sample.op.infer(&avals).map_err(text)?;
        let evaluated: Vec<Aval> = evaluate(sample)?.iter().map(|x| x.aval().clone()).collect();
        ensure(inferred == evaluated, || format!("inferred {inferred:?} and evaluated {evaluated:?}"))
    });
}

#[test]
fn programs_print_and_parse() {
    for_each_sample(|sample| {
        let plain = program(sample)?;
        let floats = float_inputs(sample);
        let (derivative, _) = jvp(&plain, &floats).map_err(text)?;
        for jaxpr in [plain, derivative] {
            check(&jaxpr).map_err(text)?;
            let printed = jaxpr.to_string();
            let parsed = Jaxpr::parse(&printed).map_err(|e| format!("{e}\n{printed}"))?;
            ensure(parsed.to_string() == printed, || format!("{printed}\nprints again as\n{parsed}"))?;
            ensure(parsed.eqns.len() == jaxpr.eqns.len(), || format!("equations are lost in\n{printed}"))?;
        }
        Ok(())
    });
}

#[test]
fn jvp_agrees_with_central_differences() {
    for_each_sample(|sample| {
        if !is_smooth(sample) {
            return Ok(());
        }
        let jaxpr = program(sample)?;
        for nonzero in subsets(&float_inputs(sample)) {
            compare_with_differences(&jaxpr, &sample.inputs, &nonzero, sample.tolerance)?;
        }
        Ok(())
    });
}

#[test]
fn missing_derivatives_are_errors() {
    for_each_sample(|sample| {
        for &i in &sample.without_derivative {
            let nonzero: Vec<bool> = (0..sample.inputs.len()).map(|k| k == i).collect();
            match jvp(&program(sample)?, &nonzero) {
                Ok((jaxpr, _)) => return Err(format!("operand {i} has a derivative\n{jaxpr}")),
                Err(error) => ensure(error.kind() == ErrorKind::Differentiation, || error.to_string())?,
            }
        }
        Ok(())
    });
}

/// The derivative is itself a program that has a derivative.
#[test]
fn second_derivatives_agree_with_central_differences() {
    for_each_sample(|sample| {
        if !is_smooth(sample) {
            return Ok(());
        }
        let nonzero = float_inputs(sample);
        let (jaxpr, _) = jvp(&program(sample)?, &nonzero).map_err(text)?;
        let mut inputs = sample.inputs.clone();
        inputs.extend(tangents(&sample.inputs, &nonzero, 5));
        let all: Vec<bool> = (0..inputs.len()).map(|i| nonzero.get(i).copied().unwrap_or(true)).collect();
        compare_with_differences(&jaxpr, &inputs, &all, sample.tolerance.max(1e-5))
    });
}

#[test]
fn jvp_leaves_the_results_alone() {
    for_each_sample(|sample| {
        let (jaxpr, has) = jvp(&program(sample)?, &float_inputs(sample)).map_err(text)?;
        let mut inputs = sample.inputs.clone();
        inputs.extend(tangents(&sample.inputs, &float_inputs(sample), 1));
        let outs = eval(&jaxpr, inputs).map_err(|e| format!("{e}\n{jaxpr}"))?;
        let plain = evaluate(sample)?;
        for (out, plain) in outs.iter().zip(&plain) {
            ensure(bits(out) == bits(plain), || format!("a result changed from {plain:?} to {out:?}"))?;
        }
        let expected: Vec<&Aval> = plain.iter().zip(&has).filter(|(_, h)| **h).map(|(x, _)| x.aval()).collect();
        let got: Vec<&Aval> = outs[plain.len()..].iter().map(Array::aval).collect();
        ensure(expected == got, || format!("tangents are {got:?} and not {expected:?}\n{jaxpr}"))?;
        for (out, has) in plain.iter().zip(&has) {
            ensure(out.dtype().is_float() || !has, || format!("{} has a tangent", out.aval()))?;
        }
        Ok(())
    });
}

/// `<ct, jvp t> = <vjp ct, t>`, for each set of operands that have a tangent.
#[test]
fn vjp_is_the_transpose_of_jvp() {
    for_each_sample(|sample| {
        for nonzero in subsets(&float_inputs(sample)) {
            let (jaxpr, has) = jvp(&program(sample)?, &nonzero).map_err(text)?;
            let (primals, ts) = (sample.inputs.clone(), tangents(&sample.inputs, &nonzero, 2));
            let outs = eval(&jaxpr, [primals.clone(), ts.clone()].concat()).map_err(|e| format!("{e}\n{jaxpr}"))?;
            let out_ts = &outs[has.len()..];
            let cts: Vec<Array> = out_ts.iter().enumerate().map(|(i, t)| vector(t.aval(), 11 + i)).collect();
            let linear: Vec<bool> = jaxpr.ins.iter().enumerate().map(|(i, _)| i >= primals.len()).collect();
            let with_ct: Vec<bool> = jaxpr.outs.iter().enumerate().map(|(i, _)| i >= has.len()).collect();
            let backward = transpose(&jaxpr, &linear, &with_ct).map_err(|e| format!("{e}\n{jaxpr}"))?;
            check(&backward).map_err(text)?;
            let grads = eval(&backward, [primals, cts.clone()].concat()).map_err(|e| format!("{e}\n{backward}"))?;
            same_avals(&grads, &ts)?;
            compare_products(&cts, out_ts, &grads, &ts, sample.tolerance).map_err(|e| format!("{e}\n{backward}"))?;
        }
        Ok(())
    });
}

/// `<ct, f x - f 0> = <transpose(f) ct, x>`
#[test]
fn linear_operations_transpose() {
    for_each_sample(|sample| {
        for set in &sample.linear {
            let jaxpr = program(sample)?;
            let linear: Vec<bool> = (0..sample.inputs.len()).map(|i| set.contains(&i)).collect();
            let outs = eval(&jaxpr, sample.inputs.clone()).map_err(text)?;
            let cts: Vec<Array> = outs.iter().enumerate().map(|(i, x)| vector(x.aval(), 3 + i)).collect();
            let backward = transpose(&jaxpr, &linear, &vec![true; outs.len()]).map_err(text)?;
            check(&backward).map_err(text)?;
            let (mut args, mut xs) = (Vec::new(), Vec::new());
            for (x, &linear) in sample.inputs.iter().zip(&linear) {
                if linear { &mut xs } else { &mut args }.push(x.clone());
            }
            args.extend(cts.iter().cloned());
            let grads = eval(&backward, args).map_err(|e| format!("{e}\n{backward}"))?;
            same_avals(&grads, &xs)?;
            let zero = |(x, &linear): (&Array, &bool)| {
                if linear {
                    Array::full(Literal::from_f64(x.dtype(), 0.0), x.shape().to_vec()).in_memory(x.aval().memory)
                } else {
                    x.clone()
                }
            };
            let at_zero = eval(&jaxpr, sample.inputs.iter().zip(&linear).map(zero).collect()).map_err(text)?;
            let changes: Vec<Array> = outs.iter().zip(&at_zero).map(|(x, zero)| difference(x, zero)).collect();
            compare_products(&cts, &changes, &grads, &xs, sample.tolerance).map_err(|e| format!("{e}\n{backward}"))?;
        }
        Ok(())
    });
}

/// A batched operation against a loop, for each set of batched operands, with the batch dimension first and last.
#[test]
fn vmap_agrees_with_a_loop() {
    for_each_sample(|sample| {
        let size = 3;
        let jaxpr = program(sample)?;
        for batched in subsets(&vec![true; sample.inputs.len()]) {
            let examples: Vec<Vec<Array>> = (0..size)
                .map(|i| {
                    sample.inputs.iter().zip(&batched).map(|(x, &b)| if b { rotate(x, i) } else { x.clone() }).collect()
                })
                .collect();
            let expected: Vec<Vec<Array>> =
                examples.iter().map(|example| eval(&jaxpr, example.clone())).collect::<Result<_, _>>().map_err(text)?;
            for last in [false, true] {
                let axes: Vec<Option<usize>> = sample
                    .inputs
                    .iter()
                    .zip(&batched)
                    .map(|(x, &b)| b.then_some(if last { x.shape().len() } else { 0 }))
                    .collect();
                let avals: Vec<Aval> = sample.inputs.iter().map(|x| x.aval().clone()).collect();
                let (mapped, out_axes) = batch(&sample.op, &avals, size, &axes).map_err(text)?;
                check(&mapped).map_err(text)?;
                let args: Vec<Array> = axes
                    .iter()
                    .enumerate()
                    .map(|(k, axis)| match axis {
                        Some(axis) => stack(&examples.iter().map(|e| e[k].clone()).collect::<Vec<_>>(), *axis),
                        None => sample.inputs[k].clone(),
                    })
                    .collect();
                let outs = eval(&mapped, args).map_err(|e| format!("{e}\n{mapped}"))?;
                for (k, (out, axis)) in outs.iter().zip(&out_axes).enumerate() {
                    let column: Vec<Array> = expected.iter().map(|e| e[k].clone()).collect();
                    let expected = match axis {
                        Some(axis) => stack(&column, *axis),
                        None => column[0].clone(),
                    };
                    ensure(close(out, &expected), || {
                        format!(
                            "with axes {axes:?}, result {k} is\n{out:?}\nand the loop gives\n{expected:?}\n{mapped}"
                        )
                    })?;
                }
            }
        }
        Ok(())
    });
}

/// A batch of nothing has a shape too.
#[test]
fn vmap_of_no_examples() {
    for_each_sample(|sample| {
        let all = vec![true; sample.inputs.len()];
        let plain = evaluate(sample)?;
        let mapped = transform::vmap(&program(sample)?, 0, &all, &vec![true; plain.len()]).map_err(text)?.jaxpr;
        let args: Vec<Array> =
            sample.inputs.iter().map(|x| build(x, &[&[0], x.shape()].concat(), Vec::new())).collect();
        let outs = eval(&mapped, args).map_err(|e| format!("{e}\n{mapped}"))?;
        for (out, plain) in outs.iter().zip(plain) {
            let expected = plain.aval().with_shape([&[0], plain.shape()].concat());
            ensure(*out.aval() == expected, || format!("gives {} and not {expected}", out.aval()))?;
        }
        Ok(())
    });
}

#[test]
fn dead_code_elimination_keeps_values() {
    for_each_sample(|sample| {
        let mut b = Builder::new();
        let ins = b.inputs(sample.inputs.iter().map(|x| x.aval().clone()));
        let outs = b.emit(sample.op.clone(), &ins).map_err(text)?;
        b.emit(sample.op.clone(), &ins).map_err(text)?;
        let jaxpr = b.finish(outs.into_vec());
        let plain = evaluate(sample)?;
        for (k, plain) in plain.iter().enumerate() {
            let used: Vec<bool> = (0..jaxpr.outs.len()).map(|i| i == k).collect();
            let pruned = transform::dce(&jaxpr, &used, &vec![false; ins.len()]).map_err(text)?;
            // An effect is not dead.
            let alive = if sample.op.has_effect() { 2 } else { 1 };
            ensure(pruned.jaxpr.eqns.len() == alive, || format!("dead code stays in\n{}", pruned.jaxpr))?;
            let args = sample.inputs.iter().zip(&pruned.used_ins).filter(|(_, u)| **u).map(|(x, _)| x.clone());
            let outs = eval(&pruned.jaxpr, args.collect()).map_err(text)?;
            ensure(outs.len() == 1 && bits(&outs[0]) == bits(plain), || format!("gives {outs:?} and not {plain:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn simplification_keeps_values() {
    for_each_sample(|sample| {
        let nonzero = float_inputs(sample);
        let (jaxpr, _) = jvp(&program(sample)?, &nonzero).map_err(text)?;
        let args = [sample.inputs.clone(), tangents(&sample.inputs, &nonzero, 4)].concat();
        let expected: Vec<_> = eval(&jaxpr, args.clone()).map_err(text)?.iter().map(bits).collect();
        for simple in [transform::cse(&jaxpr), transform::fold_literals(&jaxpr)] {
            let simple = simple.map_err(text)?;
            let outs: Vec<_> = eval(&simple, args.clone()).map_err(text)?.iter().map(bits).collect();
            ensure(outs == expected, || format!("values differ between\n{jaxpr}\nand\n{simple}"))?;
        }
        Ok(())
    });
}

/// The known and the staged part together compute what the derivative computes.
#[test]
fn linearization_keeps_values() {
    for_each_sample(|sample| {
        let nonzero = float_inputs(sample);
        let (jaxpr, has) = jvp(&program(sample)?, &nonzero).map_err(text)?;
        let (primals, ts) = (sample.inputs.clone(), tangents(&sample.inputs, &nonzero, 4));
        let expected = eval(&jaxpr, [primals.clone(), ts.clone()].concat()).map_err(text)?;
        let unknown: Vec<bool> = (0..jaxpr.ins.len()).map(|i| i >= primals.len()).collect();
        let is_tangent: Vec<bool> = (0..jaxpr.outs.len()).map(|i| i >= has.len()).collect();
        let split = partial_eval(&jaxpr, &unknown, &is_tangent, Saving::Residuals).map_err(text)?;
        let outs = eval(&split.known, primals.clone()).map_err(text)?;
        let residual = |r: &ResidualSource| match *r {
            ResidualSource::Input(i) => primals[i].clone(),
            ResidualSource::Out(i) => outs[i].clone(),
        };
        let residuals: Vec<Array> = split.residuals.iter().map(residual).collect();
        let staged = eval(&split.staged, [residuals, ts].concat()).map_err(|e| format!("{e}\n{}", split.staged))?;
        let got: Vec<_> = outs[..has.len()].iter().chain(&staged).map(bits).collect();
        let expected: Vec<_> = expected.iter().map(bits).collect();
        ensure(got == expected, || format!("values differ between\n{jaxpr}\nand\n{}\n{}", split.known, split.staged))
    });
}

/// A program with its derivative, and which results have a tangent.
fn jvp(jaxpr: &Jaxpr, nonzero: &[bool]) -> remat::Result<(Jaxpr, Vec<bool>)> {
    let derivative = transform::jvp(jaxpr, nonzero, &vec![false; jaxpr.outs.len()])?;
    Ok((derivative.jaxpr, derivative.nonzero))
}

/// A transposed program that gives a cotangent for every linear input.
fn transpose(jaxpr: &Jaxpr, linear: &[bool], cotangents: &[bool]) -> remat::Result<Jaxpr> {
    Ok(transform::transpose(jaxpr, linear, cotangents, true)?.jaxpr)
}

/// Runs a property over every sample and reports all that fail, panics included.
fn for_each_sample(property: impl Fn(&Sample) -> Result<(), String>) {
    let samples = all_samples();
    assert!(!samples.is_empty(), "there is no sample");
    let mut report = String::new();
    let mut failures = 0;
    for sample in &samples {
        let outcome = catch_unwind(AssertUnwindSafe(|| property(sample)));
        let Err(message) = outcome.unwrap_or_else(|_| Err("panics".into())) else { continue };
        failures += 1;
        if failures <= PRINTED {
            let avals: Vec<String> = sample.inputs.iter().map(|x| x.aval().to_string()).collect();
            let _ = writeln!(report, "{:?} ({}) on {}: {message}\n", sample.op, sample.label, avals.join(" "));
        }
    }
    assert!(failures == 0, "{failures} of {} samples fail:\n{report}", samples.len());
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The operation of a sample as a program of one equation.
fn program(sample: &Sample) -> Result<Jaxpr, String> {
    let mut b = Builder::new();
    let ins = b.inputs(sample.inputs.iter().map(|x| x.aval().clone()));
    let outs: Vec<Atom> = b.emit(sample.op.clone(), &ins).map_err(text)?.into_vec();
    Ok(b.finish(outs))
}

fn evaluate(sample: &Sample) -> Result<Vec<Array>, String> {
    eval_op(&sample.op, &sample.inputs).map_err(text)
}

/// The operands that can have a tangent.
fn float_inputs(sample: &Sample) -> Vec<bool> {
    let has_tangent = |(i, x): (usize, &Array)| x.dtype().is_float() && !sample.without_derivative.contains(&i);
    sample.inputs.iter().enumerate().map(has_tangent).collect()
}

fn is_smooth(sample: &Sample) -> bool {
    let mut floats = sample.inputs.iter().map(Array::dtype).filter(|d| d.is_float()).peekable();
    sample.smooth && floats.peek().is_some() && floats.all(|d| d == DType::F64)
}

/// Every choice of at least one of those in `mask`; of many, each alone and all together.
fn subsets(mask: &[bool]) -> Vec<Vec<bool>> {
    let members: Vec<usize> = (0..mask.len()).filter(|&i| mask[i]).collect();
    let all = (1usize << members.len()) - 1;
    let choose = |bits: usize| {
        let mut subset = vec![false; mask.len()];
        members.iter().enumerate().for_each(|(k, &i)| subset[i] = bits >> k & 1 == 1);
        subset
    };
    (1..=all).filter(|bits| members.len() <= 4 || bits.count_ones() == 1 || *bits == all).map(choose).collect()
}

/// The difference as an f64 array: one of a narrower dtype would be rounded.
fn difference(x: &Array, y: &Array) -> Array {
    let values = numbers(x).into_iter().zip(numbers(y)).map(|(x, y)| x - y);
    Array::from_vec(values.collect(), x.shape().to_vec()).unwrap()
}

/// The elements as f64.
fn numbers(x: &Array) -> Vec<f64> {
    literals(x).into_iter().map(Literal::as_f64).collect()
}

fn literals(x: &Array) -> Vec<Literal> {
    (0..x.data().len()).filter_map(|i| x.data().get(i)).collect()
}

fn bits(x: &Array) -> (Aval, Vec<u64>) {
    (x.aval().clone(), literals(x).into_iter().map(Literal::bits).collect())
}

/// An array of the dtype and memory of `like`.
fn build(like: &Array, shape: &[usize], literals: Vec<Literal>) -> Array {
    let shape = shape.iter().copied();
    let array = with_dtype!(like.dtype(), T => {
        Array::from_vec(literals.into_iter().map(|l| T::from_literal(l).unwrap()).collect(), shape)
    });
    array.unwrap().in_memory(like.aval().memory)
}

/// An arbitrary array whose elements every float dtype represents exactly.
fn vector(aval: &Aval, seed: usize) -> Array {
    let like = Array::full(Literal::from_f64(aval.dtype, 0.0), []).in_memory(aval.memory);
    let value = |i: usize| ((i * 7 + seed * 5) % 17) as f64 / 8.0 - 0.9375;
    build(&like, &aval.shape, (0..aval.size()).map(|i| Literal::from_f64(aval.dtype, value(i))).collect())
}

fn tangents(inputs: &[Array], nonzero: &[bool], seed: usize) -> Vec<Array> {
    let chosen = inputs.iter().zip(nonzero).filter(|(_, n)| **n);
    chosen.enumerate().map(|(i, (x, _))| vector(x.aval(), seed + 3 * i)).collect()
}

/// Compares the tangents of a program with central differences in the direction of an arbitrary tangent.
fn compare_with_differences(jaxpr: &Jaxpr, inputs: &[Array], nonzero: &[bool], tolerance: f64) -> Result<(), String> {
    let step = 1e-5;
    let ts = tangents(inputs, nonzero, 7);
    let shifted = |step: f64| {
        let mut ts = ts.iter();
        let inputs = inputs.iter().zip(nonzero).map(|(x, &nonzero)| {
            let Some(t) = nonzero.then(|| ts.next()).flatten() else { return x.clone() };
            let values =
                numbers(x).into_iter().zip(numbers(t)).map(|(x, t)| Literal::from_f64(DType::F64, x + step * t));
            build(x, x.shape(), values.collect())
        });
        eval(jaxpr, inputs.collect()).map_err(text)
    };
    let (plus, minus) = (shifted(step)?, shifted(-step)?);
    let (derivative, has) = jvp(jaxpr, nonzero).map_err(text)?;
    check(&derivative).map_err(text)?;
    let outs = eval(&derivative, [inputs, &ts].concat()).map_err(|e| format!("{e}\n{derivative}"))?;
    let mut out_ts = outs[has.len()..].iter();
    for (k, has) in has.iter().enumerate() {
        let got = if *has { out_ts.next().map(numbers) } else { None };
        if plus[k].dtype() != DType::F64 {
            continue;
        }
        let (plus, minus) = (numbers(&plus[k]), numbers(&minus[k]));
        let got = got.unwrap_or_else(|| vec![0.0; plus.len()]);
        for (i, &got) in got.iter().enumerate() {
            // What does not change has no slope, be it infinite.
            let expected = if plus[i] == minus[i] { 0.0 } else { (plus[i] - minus[i]) / (2.0 * step) };
            let scale = 1f64.max(expected.abs()).max(plus[i].abs() * 1e-3);
            ensure((got - expected).abs() <= tolerance * scale, || {
                format!("tangent of result {k}[{i}] is {got}, by differences {expected}, for {nonzero:?}\n{derivative}")
            })?;
        }
    }
    Ok(())
}

/// Compares `<a, b>` with `<c, d>`, unless one is not finite.
fn compare_products(a: &[Array], b: &[Array], c: &[Array], d: &[Array], tolerance: f64) -> Result<(), String> {
    let mut coarsest: f64 = tolerance;
    let mut sums = [0.0, 0.0];
    let mut scale = 0.0;
    for (sum, (left, right)) in sums.iter_mut().zip([(a, b), (c, d)]) {
        for (x, y) in left.iter().zip(right) {
            coarsest = coarsest.max(epsilon(x.dtype()) * 8.0);
            for (x, y) in numbers(x).into_iter().zip(numbers(y)) {
                *sum += x * y;
                scale += (x * y).abs();
            }
        }
    }
    let is_close = (sums[0] - sums[1]).abs() <= coarsest * scale || !f64::is_finite(scale);
    ensure(is_close, || format!("products differ: {} forward and {} backward", sums[0], sums[1]))
}

fn same_avals(got: &[Array], expected: &[Array]) -> Result<(), String> {
    let avals = |xs: &[Array]| xs.iter().map(|x| x.aval().clone()).collect::<Vec<_>>();
    ensure(avals(got) == avals(expected), || format!("cotangents are {:?} of {:?}", avals(got), avals(expected)))
}

/// The distance between 1 and the next number.
fn epsilon(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(_, mantissa)| 0.5f64.powi(mantissa as i32))
}

/// Whether two arrays agree up to the rounding of sums in another order.
fn close(a: &Array, b: &Array) -> bool {
    let (x, y) = (numbers(a), numbers(b));
    let largest = x.iter().chain(&y).filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let allowed = largest * epsilon(a.dtype()) * 16.0;
    let is_equal = |(x, y): (&f64, &f64)| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= allowed;
    a.aval() == b.aval() && x.iter().zip(&y).all(is_equal)
}

/// Another example: the elements moved on by `by`, a single one changed.
fn rotate(x: &Array, by: usize) -> Array {
    let mut elements = literals(x);
    if let [one] = elements[..] {
        let dtype = one.dtype();
        elements[0] = match one.as_i128() {
            Some(value) if dtype == DType::Bool => Literal::from_bool((value != 0) ^ (by % 2 == 1)),
            Some(value) => Literal::from_i128(dtype, value + by as i128),
            None => Literal::from_f64(dtype, one.as_f64() * (1.0 - 0.25 * by as f64)),
        };
    } else if !elements.is_empty() {
        let by = by % elements.len();
        elements.rotate_left(by);
    }
    build(x, x.shape(), elements)
}

/// Joins at least one array along a new dimension.
fn stack(arrays: &[Array], axis: usize) -> Array {
    let first = &arrays[0];
    let inner: usize = first.shape()[axis..].iter().product();
    let outer: usize = first.shape()[..axis].iter().product();
    let parts: Vec<Vec<Literal>> = arrays.iter().map(literals).collect();
    let rows = (0..outer).flat_map(|o| parts.iter().flat_map(move |p| p[o * inner..(o + 1) * inner].iter().copied()));
    let mut shape = first.shape().to_vec();
    shape.insert(axis, arrays.len());
    build(first, &shape, rows.collect())
}
