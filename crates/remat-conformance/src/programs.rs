//! Whole programs: the set that is closed under the transformations, and random ones; with their gradients, batches and second derivatives,
//! with and without checkpoints.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use remat::{DType, Policy, Result, Tensor, checkpoint, grad, jvp, make_jaxpr, value_and_grad, vmap};
use remat_ir::ClosedJaxpr;

use crate::cases::Cases;
use crate::closed::{PROGRAMS, Program};
use crate::closeness::Closeness;
use crate::conform::Check;
use crate::engine::Engine;
use crate::random_programs::{Regions, SHAPES, arguments, config, exact_function, function, steps};

type Args = Vec<Tensor>;

/// Whole programs round often.
const CLOSENESS: Closeness = Closeness::Sums(1024);

/// Random programs take sines of sums of hundreds, whose rounding errors are larger by that factor.
fn closeness_of_random(dtype: DType) -> Closeness {
    Closeness::Sums(if dtype == DType::F64 { 1 << 22 } else { 1 << 14 })
}

/// Runs a property over every program of the closed set in every float dtype.
fn for_each_program(
    cases: &mut Cases<'_>,
    property: impl Fn(&Program, &Args, &mut dyn FnMut(&str, Result<ClosedJaxpr>, &Args)),
) {
    for program in PROGRAMS {
        for dtype in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
            let args = program.arguments(dtype, 0);
            property(program, &args, &mut |what, jaxpr, args| {
                cases.programs(format!("{what} of {} in {dtype}", program.name), || {
                    Ok(vec![Check::traced(jaxpr, args, CLOSENESS)?])
                });
            });
        }
    }
}

pub(crate) fn programs_agree(cases: &mut Cases<'_>) {
    for_each_program(cases, |program, args, case| {
        case("value", make_jaxpr(program.f)(args), args);
        if program.has_forward_mode {
            let both: Args = args.iter().chain(args).cloned().collect();
            let tangent = |both: &Args| jvp(program.f, &both[..args.len()].to_vec(), &both[args.len()..].to_vec());
            case("tangent", make_jaxpr(tangent)(&both), &both);
        }
    });
}

pub(crate) fn gradients_agree_under_policies(cases: &mut Cases<'_>) {
    for_each_program(cases, |program, args, case| {
        if !program.has_reverse_mode {
            return;
        }
        case("gradient", make_jaxpr(value_and_grad(program.f))(args), args);
        for policy in [Policy::Nothing, Policy::Dots, Policy::names(["a"]), Policy::budget(100)] {
            let g = checkpoint(policy.clone(), program.f);
            case(&format!("gradient under {policy}"), make_jaxpr(grad(&g))(args), args);
        }
    });
}

pub(crate) fn batches_of_gradients_agree(cases: &mut Cases<'_>) {
    for_each_program(cases, |program, args, case| {
        let batch: Args = args.iter().map(|x| Tensor::stack(&[x.clone(), x * 0.5, x * -0.75], 0)).collect();
        case("batch", make_jaxpr(vmap(program.f))(&batch), &batch);
        if program.has_reverse_mode {
            case("batch of gradients", make_jaxpr(vmap(grad(program.f)))(&batch), &batch);
            let total = |x: &Args| Ok::<_, remat::Error>(vmap(program.f)(x)?.sum(..));
            case("gradient of a batch", make_jaxpr(grad(total))(&batch), &batch);
        }
    });
}

pub(crate) fn second_derivatives_agree(cases: &mut Cases<'_>) {
    for_each_program(cases, |program, args, case| {
        if program.has_reverse_mode {
            let f = checkpoint(Policy::Dots, program.f);
            let slope = |x: &Args| {
                let products = grad(&f)(x)?.iter().map(|g| g.sum(..)).reduce(|a, b| a + b);
                Ok::<_, remat::Error>(products.unwrap_or(Tensor::from(0.0f64)))
            };
            case("second derivative", make_jaxpr(grad(slope))(args), args);
        }
    });
}

/// The arguments of random programs in a dtype.
fn arguments_in(dtype: DType, seed: usize) -> Args {
    arguments(seed).iter().map(|x| x.to_dtype(dtype)).collect()
}

/// A batch of two examples.
fn batch_in(dtype: DType) -> Args {
    let (x, y) = (arguments_in(dtype, 0), arguments_in(dtype, 2));
    (0..SHAPES.len()).map(|k| Tensor::stack(&[x[k].clone(), y[k].clone()], 0)).collect()
}

/// Runs a property over random values, as one case.
fn for_random<S: Strategy<Value: fmt::Debug>>(
    cases: &mut Cases<'_>,
    strategy: &S,
    property: impl Fn(&Engine, S::Value) -> std::result::Result<(), String>,
) {
    cases.case("random programs".to_string(), |engine| {
        let check = |value| property(engine, value).map_err(TestCaseError::fail);
        TestRunner::new(config(150)).run(strategy, check).map_err(|e| e.to_string())
    });
}

pub(crate) fn random_programs_agree(cases: &mut Cases<'_>) {
    let strategy = (steps(), select(vec![DType::F64, DType::F32]));
    for_random(cases, &strategy, |engine, (steps, dtype)| {
        let x = arguments_in(dtype, 0);
        let f = function(&steps, Regions::AsGiven);
        let check = |program: Result<ClosedJaxpr>, args: &Args| {
            Check::traced(program, args, closeness_of_random(dtype))?.conform(engine)
        };
        check(make_jaxpr(&f)(&x), &x)?;
        check(make_jaxpr(value_and_grad(&f))(&x), &x)?;
        check(make_jaxpr(grad(function(&steps, Regions::All(0))))(&x), &x)?;
        let batch = batch_in(dtype);
        check(make_jaxpr(vmap(grad(&f)))(&batch), &batch)
    });
}

pub(crate) fn random_programs_of_exact_operations_agree_in_every_bit(cases: &mut Cases<'_>) {
    let strategy = (steps(), select(vec![DType::Bf16, DType::F16, DType::F32, DType::F64]));
    for_random(cases, &strategy, |engine, (steps, dtype)| {
        let x = arguments_in(dtype, 0);
        let f = exact_function(&steps);
        Check::traced(make_jaxpr(&f)(&x), &x, Closeness::Exact)?.conform(engine)?;
        let batch = batch_in(dtype);
        Check::traced(make_jaxpr(vmap(&f))(&batch), &batch, Closeness::Exact)?.conform(engine)
    });
}
