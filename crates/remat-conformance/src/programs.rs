//! Whole programs: the set that is closed under the transformations, and random ones; they, their gradients, batches and
//! second derivatives, with and without checkpoints.

use proptest::prelude::*;
use remat::ir::{Array, ClosedJaxpr};
use remat::{DType, Policy, Result, Tensor, checkpoint, grad, jvp, make_jaxpr, value_and_grad, vmap};

use crate::arrays::array;
use crate::closeness::Closeness;
use crate::conform::{Failures, conform};

// Each is written for a test of its own, which uses more of it.
#[allow(dead_code)]
#[path = "../closed/programs.rs"]
mod closed;
#[allow(dead_code)]
#[path = "../random_programs/program.rs"]
mod random;

use closed::PROGRAMS;
use random::{Regions, SHAPES, arguments, config, exact_function, function, steps};

type Args = Vec<Tensor>;

/// Whole programs round often.
const CLOSENESS: Closeness = Closeness::Sums(1024);

/// Random programs take sines of sums of hundreds, of which each rounding counts as that many.
fn closeness_of_random(dtype: DType) -> Closeness {
    Closeness::Sums(if dtype == DType::F64 { 1 << 22 } else { 1 << 14 })
}

/// Runs a program on the tensors that it captured and on these.
fn conforms(program: Result<ClosedJaxpr>, args: &Args, closeness: Closeness) -> std::result::Result<(), String> {
    let ClosedJaxpr { jaxpr, consts } = program.map_err(|e| e.to_string())?;
    let args: Vec<Array> = consts.into_iter().chain(args.iter().map(array)).collect();
    conform(&jaxpr, &args, closeness)
}

/// Runs a property over every program of the closed set in every float dtype.
fn for_each_program(property: impl Fn(&closed::Program, &Args, &mut dyn FnMut(&str, Result<ClosedJaxpr>, &Args))) {
    let mut failures = Failures::default();
    for program in PROGRAMS {
        for dtype in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
            let args = program.arguments(dtype, 0);
            property(program, &args, &mut |what, jaxpr, args| {
                failures.case(|| format!("{what} of {} in {dtype}", program.name), || conforms(jaxpr, args, CLOSENESS));
            });
        }
    }
    failures.finish();
}

#[test]
fn programs_agree() {
    for_each_program(|program, args, case| {
        case("value", make_jaxpr(program.f)(args), args);
        if program.has_forward_mode {
            let both: Args = args.iter().chain(args).cloned().collect();
            let tangent = |both: &Args| jvp(program.f, &both[..args.len()].to_vec(), &both[args.len()..].to_vec());
            case("tangent", make_jaxpr(tangent)(&both), &both);
        }
    });
}

#[test]
fn gradients_agree_under_policies() {
    for_each_program(|program, args, case| {
        if !program.has_reverse_mode {
            return;
        }
        case("gradient", make_jaxpr(value_and_grad(program.f))(args), args);
        for policy in [Policy::Nothing, Policy::Dots, Policy::names(["a"])] {
            let g = checkpoint(policy.clone(), program.f);
            case(&format!("gradient under {policy}"), make_jaxpr(grad(&g))(args), args);
        }
    });
}

#[test]
fn batches_of_gradients_agree() {
    for_each_program(|program, args, case| {
        let batch: Args = args.iter().map(|x| Tensor::stack(&[x.clone(), x * 0.5, x * -0.75], 0)).collect();
        case("batch", make_jaxpr(vmap(program.f))(&batch), &batch);
        if program.has_reverse_mode {
            case("batch of gradients", make_jaxpr(vmap(grad(program.f)))(&batch), &batch);
            let total = |x: &Args| Ok::<_, remat::Error>(vmap(program.f)(x)?.sum(..));
            case("gradient of a batch", make_jaxpr(grad(total))(&batch), &batch);
        }
    });
}

#[test]
fn second_derivatives_agree() {
    for_each_program(|program, args, case| {
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

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn random_programs_agree(steps in steps(), dtype in prop_oneof![Just(DType::F64), Just(DType::F32)]) {
        let x = arguments_in(dtype, 0);
        let f = function(&steps, Regions::AsGiven);
        let check = |program: Result<ClosedJaxpr>, args: &Args| {
            conforms(program, args, closeness_of_random(dtype)).map_err(TestCaseError::fail)
        };
        check(make_jaxpr(&f)(&x), &x)?;
        check(make_jaxpr(value_and_grad(&f))(&x), &x)?;
        check(make_jaxpr(grad(function(&steps, Regions::All(0))))(&x), &x)?;
        let batch = batch_in(dtype);
        check(make_jaxpr(vmap(grad(&f)))(&batch), &batch)?;
    }

    /// Each of these operations is rounded once, so that no bit may differ: not by a rounding that is left out between two
    /// operations of a loop, nor by one too many.
    #[test]
    fn random_programs_of_exact_operations_agree_in_every_bit(
        steps in steps(),
        dtype in prop_oneof![Just(DType::Bf16), Just(DType::F16), Just(DType::F32), Just(DType::F64)],
    ) {
        let x = arguments_in(dtype, 0);
        let f = exact_function(&steps);
        conforms(make_jaxpr(&f)(&x), &x, Closeness::Exact).map_err(TestCaseError::fail)?;
        let batch = batch_in(dtype);
        conforms(make_jaxpr(vmap(&f))(&batch), &batch, Closeness::Exact).map_err(TestCaseError::fail)?;
    }
}
