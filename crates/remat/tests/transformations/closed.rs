//! A set of programs that is closed under the transformations: whatever is applied to them, values and gradients agree.
//!
//! Values and first gradients are bit-identical under every policy; second derivatives and batches, where sums run in
//! another order, agree closely.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat::ir::{Call, ClosedJaxpr, Decision, Jaxpr, MemorySpace, Op, Prim};
use remat::report::saved_residuals;
use remat::{
    DType, Policy, Result, Tensor, checkpoint, grad, jit, jvp, linearize, make_jaxpr, value_and_grad, vjp, vmap,
};
use remat_conformance::closed::{PROGRAMS, Program};
use remat_testkit::sized;

type Args = Vec<Tensor>;

#[test]
fn values_are_equal() {
    for_each_program(|program, dtype| {
        let (f, x) = (program.f, program.arguments(dtype, 0));
        let plain = f(&x)?;
        expect_bits("jit", &[jit(f).call(x.clone())?], std::slice::from_ref(&plain));
        expect_bits(
            "jit of jit",
            &[jit(|x: &Args| jit(f).call(x.clone())).call(x.clone())?],
            std::slice::from_ref(&plain),
        );
        for policy in policies(program) {
            let g = checkpoint(policy.clone(), f);
            expect_bits(&format!("checkpoint {policy}"), &[g(&x)?], std::slice::from_ref(&plain));
            expect_bits(
                &format!("jit of checkpoint {policy}"),
                &[jit(&g).call(x.clone())?],
                std::slice::from_ref(&plain),
            );
            expect_text(&make_jaxpr(&g)(&x)?);
        }
        Ok(())
    });
}

#[test]
fn tangents_are_equal() {
    for_each_program(|program, dtype| {
        if !program.has_forward_mode {
            return Ok(());
        }
        let (f, x, t) = (program.f, program.arguments(dtype, 0), program.arguments(dtype, 3));
        let (y, dy) = jvp(f, &x, &t)?;
        let (y2, df) = linearize(f, &x)?;
        expect_bits("value of jvp", &[y], &[f(&x)?]);
        expect_bits("value of linearize", &[y2], &[f(&x)?]);
        expect_bits("linearize", &[df.call(&t)?], std::slice::from_ref(&dy));
        if dtype == DType::F64 && !["half_precision", "stopped"].contains(&program.name) {
            let step = 1e-6;
            let shifted = |s: f64| -> Args { x.iter().zip(&t).map(|(x, t)| x + t * s).collect() };
            let difference = (f(&shifted(step))? - f(&shifted(-step))?) / (2.0 * step);
            expect_close("central differences", std::slice::from_ref(&dy), &[difference], 1e-6);
        }
        for policy in policies(program) {
            let g = checkpoint(policy.clone(), f);
            let (y, d) = jvp(&g, &x, &t)?;
            expect_bits(&format!("jvp of checkpoint {policy}"), &[y, d], &[f(&x)?, dy.clone()]);
            let (_, linear) = linearize(&g, &x)?;
            expect_bits(&format!("linearize checkpoint {policy}"), &[linear.call(&t)?], std::slice::from_ref(&dy));
            expect_text(&ClosedJaxpr { jaxpr: linear.jaxpr().clone().into(), consts: vec![] });
        }
        Ok(())
    });
}

#[test]
fn gradients_are_bit_identical_under_every_policy() {
    for_each_program(|program, dtype| {
        if !program.has_reverse_mode {
            assert!(grad(program.f)(&program.arguments(dtype, 0)).is_err());
            return Ok(());
        }
        let (f, x) = (program.f, program.arguments(dtype, 0));
        let (y, plain) = value_and_grad(f)(&x)?;
        expect_bits("value", &[y], &[f(&x)?]);
        if program.has_forward_mode {
            let t = program.arguments(dtype, 3);
            let product = plain.iter().zip(&t).map(|(g, t)| (g * t).sum(..)).reduce(|a, b| a + b);
            let rounding = if program.name == "half_precision" { 5e-2 } else { tolerance(dtype) };
            expect_close("jvp", &[jvp(f, &x, &t)?.1], &product.into_iter().collect::<Args>(), rounding);
        }
        expect_bits("jit of grad", &jit(grad(f)).call(x.clone())?, &plain);
        expect_bits("grad of jit", &grad(|x: &Args| jit(f).call(x.clone()))(&x)?, &plain);
        expect_bits("vjp", &vjp(f, &x)?.1.call(&Tensor::ones((), dtype))?, &plain);
        expect_text(&make_jaxpr(grad(f))(&x)?);
        for policy in policies(program) {
            let g = checkpoint(policy.clone(), f);
            expect_bits(&format!("grad of checkpoint {policy}"), &grad(&g)(&x)?, &plain);
            expect_bits(&format!("jit of grad of checkpoint {policy}"), &jit(grad(&g)).call(x.clone())?, &plain);
            let nested = checkpoint(Policy::Nothing, &g);
            expect_bits(&format!("grad of checkpoint of checkpoint {policy}"), &grad(&nested)(&x)?, &plain);
            let inside = |x: &Args| jit(&g).call(x.clone());
            expect_bits(&format!("grad of jit of checkpoint {policy}"), &grad(inside)(&x)?, &plain);
            let around = checkpoint(policy.clone(), |x: &Args| jit(f).call(x.clone()));
            expect_bits(&format!("grad of checkpoint {policy} of jit"), &grad(around)(&x)?, &plain);
            expect_text(&make_jaxpr(grad(&g))(&x)?);
        }
        Ok(())
    });
}

#[test]
fn to_save_everything_keeps_no_more_than_no_region() {
    for_each_program(|program, dtype| {
        // A region inside that keeps less is overruled by one around it.
        if !program.has_reverse_mode || program.name == "scan_of_checkpoint" {
            return Ok(());
        }
        let x = program.arguments(dtype, 0);
        let plain = saved_residuals(program.f, &x)?;
        let everything = saved_residuals(checkpoint(Policy::Everything, program.f), &x)?;
        assert!(everything.total_bytes() <= plain.total_bytes(), "{everything}\nand without a region\n{plain}");
        Ok(())
    });
}

#[test]
fn second_derivatives_agree() {
    for_each_program(|program, dtype| {
        if !program.has_reverse_mode || program.name == "half_precision" {
            return Ok(());
        }
        let (f, x, t) = (program.f, program.arguments(dtype, 0), program.arguments(dtype, 3));
        let plain = grad(product_with(grad(f), &t))(&x)?;
        if program.has_forward_mode {
            let forward = jvp(grad(f), &x, &t)?.1;
            expect_close("jvp of grad", &forward, &plain, tolerance(dtype));
            let backward = grad(|x: &Args| Ok::<_, remat::Error>(jvp(f, x, &t)?.1))(&x)?;
            expect_close("grad of jvp", &backward, &plain, tolerance(dtype));
        }
        for policy in policies(program) {
            let g = checkpoint(policy.clone(), f);
            let second = grad(product_with(grad(&g), &t));
            expect_close(&format!("grad of grad of checkpoint {policy}"), &second(&x)?, &plain, tolerance(dtype));
            let around = grad(checkpoint(policy.clone(), product_with(grad(f), &t)));
            expect_close(&format!("grad of checkpoint {policy} of grad"), &around(&x)?, &plain, tolerance(dtype));
        }
        expect_text(&make_jaxpr(grad(product_with(grad(checkpoint(Policy::Dots, f)), &t)))(&x)?);
        Ok(())
    });
}

#[test]
fn batches_agree_with_loops() {
    for_each_program(|program, dtype| {
        let f = program.f;
        let examples: Vec<Args> = (0..3).map(|i| program.arguments(dtype, i)).collect();
        let batch: Args = (0..program.shapes.len())
            .map(|k| Tensor::stack(&examples.iter().map(|e| e[k].clone()).collect::<Args>(), 0))
            .collect();
        let rounding = if program.name == "half_precision" { 5e-2 } else { tolerance(dtype) };
        let values = Tensor::stack(&examples.iter().map(f).collect::<Result<Args>>()?, 0);
        expect_close("vmap", &[vmap(f)(&batch)?], std::slice::from_ref(&values), rounding);
        expect_text(&make_jaxpr(vmap(f))(&batch)?);
        if !program.has_reverse_mode {
            return Ok(());
        }
        let gradients = examples.iter().map(|x| grad(f)(x)).collect::<Result<Vec<Args>>>()?;
        let gradients: Args = (0..program.shapes.len())
            .map(|k| Tensor::stack(&gradients.iter().map(|g| g[k].clone()).collect::<Args>(), 0))
            .collect();
        expect_close("vmap of grad", &vmap(grad(f))(&batch)?, &gradients, rounding);
        let total = |x: &Args| Ok::<_, remat::Error>(vmap(f)(x)?.sum(..));
        expect_close("grad of vmap", &grad(total)(&batch)?, &gradients, rounding);
        expect_close("jit of vmap of grad", &jit(vmap(grad(f))).call(batch.clone())?, &gradients, rounding);
        for policy in policies(program) {
            let g = checkpoint(policy.clone(), f);
            expect_close(
                &format!("vmap of checkpoint {policy}"),
                &[vmap(&g)(&batch)?],
                std::slice::from_ref(&values),
                rounding,
            );
            let mapped = vmap(grad(&g))(&batch)?;
            expect_close(&format!("vmap of grad of checkpoint {policy}"), &mapped, &gradients, rounding);
            let total = checkpoint(policy.clone(), |x: &Args| Ok::<_, remat::Error>(vmap(&g)(x)?.sum(..)));
            let around = grad(total)(&batch)?;
            expect_close(&format!("grad of checkpoint {policy} of vmap"), &around, &gradients, rounding);
        }
        Ok(())
    });
}

/// Policies of all kinds, which mention the names `a` and `b`. A quick run gives each program half of them, and the next program the other half.
fn policies(program: &Program) -> Vec<Policy> {
    let save_every_second = |candidate: &remat::ir::Candidate<'_>| {
        let is_saved = matches!(candidate.op, Op::Prim(Prim::Unary(_) | Prim::DotGeneral(_)) | Op::Call(Call::Scan(_)));
        Some(if is_saved { Decision::Save } else { Decision::Recompute })
    };
    let all = vec![
        Policy::Nothing,
        Policy::Everything,
        Policy::Dots,
        Policy::DotsWithNoBatchDims,
        Policy::budget(150),
        Policy::names(["a"]),
        Policy::any_names_but(["a"]),
        Policy::anything_but(["b"]),
        Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host),
        Policy::save_and_offload_names(["a"], ["b"]),
        Policy::custom("unary or dot", save_every_second),
        Policy::Dots.or(Policy::names(["a", "b"])),
        Policy::Everything.and(Policy::Dots.not()),
        Policy::First(vec![Policy::save_and_offload_names([] as [&str; 0], ["a"]), Policy::Dots]),
    ];
    let place = PROGRAMS.iter().position(|other| other.name == program.name).expect("one of them");
    sized(all.iter().skip(place % 2).step_by(2).cloned().collect(), all)
}

/// The inner product of what `f` gives with `t`.
fn product_with(f: impl Fn(&Args) -> Result<Args>, t: &Args) -> impl Fn(&Args) -> Result<Tensor> {
    move |x| {
        let products = f(x)?.iter().zip(t).map(|(g, t)| (g * t).sum(..)).reduce(|a, b| a + b);
        Ok(products.unwrap_or(Tensor::from(0.0f64)))
    }
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-11 } else { 1e-5 }
}

/// Runs a property over every program in both dtypes and reports all that fail.
fn for_each_program(property: impl Fn(&Program, DType) -> Result<()>) {
    let mut report = String::new();
    for program in PROGRAMS {
        for &dtype in sized(&[DType::F64][..], &[DType::F32, DType::F64]) {
            let outcome = catch_unwind(AssertUnwindSafe(|| property(program, dtype)));
            let message = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "panics".into()),
            };
            let _ = writeln!(report, "{} in {dtype}: {message}\n", program.name);
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[track_caller]
fn expect_bits(what: &str, got: &[Tensor], expected: &[Tensor]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        let bits = |t: &Tensor| (t.aval().unwrap().clone(), numbers(t).iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        assert_eq!(bits(got), bits(expected), "{what} gives {got:?} and not {expected:?}");
    }
}

#[track_caller]
fn expect_close(what: &str, got: &[Tensor], expected: &[Tensor], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert_eq!(got.aval().unwrap(), expected.aval().unwrap(), "{what}");
        let (x, y) = (numbers(got), numbers(expected));
        let scale = x.iter().chain(&y).fold(1f64, |m, v| m.max(v.abs()));
        let is_close = x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= tolerance * scale);
        assert!(is_close, "{what} gives {got:?} and not {expected:?}");
    }
}

/// The program reads back as it prints.
#[track_caller]
fn expect_text(program: &ClosedJaxpr) {
    let text = program.jaxpr.to_string();
    let again = Jaxpr::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string(), text);
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).to_vec().unwrap_or_else(|e| panic!("{e}"))
}
