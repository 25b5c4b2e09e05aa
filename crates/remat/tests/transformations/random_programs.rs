//! Random programs: whatever is transformed, and whatever policies their regions have, they compute the same.

use proptest::prelude::*;
use remat::ir::{Atom, Jaxpr};
use remat::report::saved_residuals;
use remat::testing::call;
use remat::{DType, Policy, Tensor, checkpoint, grad, jit, jvp, make_jaxpr, transform, vmap};
use remat_conformance::random_programs::{
    Args, Regions, SHAPES, Step, arguments, config, exact_function, function, steps,
};

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn regions_change_nothing(steps in steps()) {
        let x = arguments(0);
        let plain = function(&steps, Regions::Inlined);
        let f = function(&steps, Regions::AsGiven);
        let (value, gradient) = (plain(&x)?, grad(&plain)(&x)?);
        expect_close("value", &[f(&x)?], std::slice::from_ref(&value), 1e-12)?;
        expect_close("jit", &[jit(&f).call(x.clone())?], &[value], 1e-12)?;
        let given = grad(&f)(&x)?;
        expect_close("grad", &given, &gradient, 1e-9)?;
        expect_bits("jit of grad", &jit(grad(&f)).call(x.clone())?, &given)?;
        for policy in [0, 1] {
            let other = grad(function(&steps, Regions::All(policy)))(&x)?;
            expect_bits("grad under another policy", &other, &given)?;
        }
        let inside = checkpoint(Policy::Nothing, &f);
        expect_close("grad of checkpoint", &grad(inside)(&x)?, &gradient, 1e-9)?;
    }

    /// To save everything is plain differentiation, however regions nest and whatever they name.
    #[test]
    fn to_save_everything_keeps_no_more_than_no_region(steps in steps()) {
        expect_no_more_kept(&steps)?;
    }

    /// What a region with a budget keeps fits it, and its gradients are the same in every bit.
    #[test]
    fn no_budget_is_exceeded(steps in steps(), sixteenths in 0usize..=16) {
        let x = arguments(0);
        let f = function(&steps, Regions::AsGiven);
        let kept = |policy| Ok::<_, remat::Error>(saved_residuals(checkpoint(policy, &f), &x)?.intermediate_bytes());
        let budget = kept(Policy::Everything)? * sixteenths / 16;
        let bytes = kept(Policy::budget(budget))?;
        prop_assert!(bytes <= budget, "{bytes} of {budget}");
        let expected = jit(grad(checkpoint(Policy::Nothing, &f))).call(x.clone())?;
        expect_bits("grad", &jit(grad(checkpoint(Policy::budget(budget), &f))).call(x.clone())?, &expected)?;
    }

    /// A compiled program gives what its operations give one by one.
    #[test]
    fn exact_programs_are_their_operations(steps in steps(), narrow in any::<bool>()) {
        let x: Args = arguments(0).iter().map(|x| if narrow { x.to_dtype(DType::Bf16) } else { x.clone() }).collect();
        let f = exact_function(&steps);
        expect_bits("jit", &jit(&f).call(x.clone())?, &f(&x)?)?;
    }

    #[test]
    fn modes_agree(steps in steps()) {
        let (x, t) = (arguments(0), arguments(5));
        let f = function(&steps, Regions::AsGiven);
        let (value, tangent) = jvp(&f, &x, &t)?;
        expect_close("value of jvp", &[value], &[f(&x)?], 1e-12)?;
        expect_close("jvp and grad", &[product(&grad(&f)(&x)?, &t)], &[tangent], 1e-9)?;
    }

    #[test]
    fn batches_agree_with_loops(steps in steps()) {
        let f = function(&steps, Regions::AsGiven);
        let examples = [arguments(0), arguments(2)];
        let stack = |examples: &[Args]| -> Args {
            (0..SHAPES.len()).map(|k| Tensor::stack(&examples.iter().map(|e| e[k].clone()).collect::<Args>(), 0)).collect()
        };
        let batch = stack(&examples);
        let values = Tensor::stack(&[f(&examples[0])?, f(&examples[1])?], 0);
        expect_close("vmap", &[vmap(&f)(&batch)?], &[values], 1e-9)?;
        let gradients = stack(&[grad(&f)(&examples[0])?, grad(&f)(&examples[1])?]);
        expect_close("vmap of grad", &vmap(grad(&f))(&batch)?, &gradients, 1e-9)?;
        let total = |x: &Args| Ok::<_, remat::Error>(vmap(&f)(x)?.sum(..));
        expect_close("grad of vmap", &grad(total)(&batch)?, &gradients, 1e-9)?;
    }

    #[test]
    fn simplification_and_text_keep_values(steps in steps()) {
        let x = arguments(0);
        let f = function(&steps, Regions::AsGiven);
        for program in [make_jaxpr(&f)(&x)?, make_jaxpr(grad(&f))(&x)?] {
            let jaxpr = &*program.jaxpr;
            let consts = program.consts.iter().cloned().map(Tensor::from_array);
            let args: Args = consts.chain(x.iter().cloned()).collect();
            let expected = call(jaxpr, &args)?;
            let (all, none) = (vec![true; jaxpr.outs.len()], vec![false; jaxpr.ins.len()]);
            let pruned = transform::dce(jaxpr, &all, &none)?;
            let used: Args = args.iter().zip(&pruned.used_ins).filter(|(_, u)| **u).map(|(a, _)| a.clone()).collect();
            expect_bits("dce", &call(&pruned.jaxpr, &used)?, &expected)?;
            expect_bits("cse", &call(&transform::cse(jaxpr)?, &args)?, &expected)?;
            expect_bits("fold", &call(&transform::fold_literals(jaxpr)?, &args)?, &expected)?;
            let text = jaxpr.to_string();
            let parsed = Jaxpr::parse(&text)?;
            prop_assert_eq!(parsed.to_string(), text);
            expect_bits("parse", &call(&parsed, &args)?, &expected)?;
            // Each output alone.
            for (i, out) in jaxpr.outs.iter().enumerate().filter(|(_, a)| matches!(a, Atom::Var(_))) {
                let only: Vec<bool> = (0..jaxpr.outs.len()).map(|k| k == i).collect();
                let pruned = transform::dce(jaxpr, &only, &vec![true; jaxpr.ins.len()])?;
                expect_bits(&format!("dce but {out:?}"), &call(&pruned.jaxpr, &args)?, &expected[i..=i])?;
            }
        }
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn second_derivatives_agree(steps in steps()) {
        let (x, t) = (arguments(0), arguments(5));
        let second = |regions| {
            let f = function(&steps, regions);
            grad(|x: &Args| Ok::<_, remat::Error>(product(&grad(&f)(x)?, &t)))(&x)
        };
        let (plain, given) = (second(Regions::Inlined)?, second(Regions::AsGiven)?);
        expect_close("grad of grad", &given, &plain, 1e-8)?;
        let f = function(&steps, Regions::AsGiven);
        expect_close("jvp of grad", &jvp(grad(&f), &x, &t)?.1, &plain, 1e-8)?;
    }
}

/// Programs that random tests found.
#[test]
fn names_replace_the_same_values_under_everything_as_without_a_region() {
    let scan =
        |name, x, carry, xs, length| Step::Scan { body: vec![Step::Name(name, x)], carry, xs, length, reverse: true };
    // A name of a value that nothing reads.
    let unread = [
        Step::Binary(0, 0, 0),
        scan(0, 0, 31, 50, 2),
        Step::Name(2, 5),
        Step::Binary(21, 0, 0),
        Step::Dot(0, 0),
        Step::Name(1, 0),
        Step::Unary(54, 5),
    ];
    // A name inside a loop, of a value from outside.
    let inside = [Step::Select(0, 0), scan(2, 4, 63, 19, 0), Step::Dot(4, 1)];
    for steps in [&unread[..], &inside] {
        expect_no_more_kept(steps).unwrap();
    }
}

/// A region that hands on its argument, which a branch then reads.
#[test]
fn a_region_that_hands_on_an_argument_is_that_argument() {
    let branches = [vec![Step::Reduce(95, 0)], vec![Step::Dot(3, 5)]];
    let region = Step::Checkpoint(219, vec![Step::Move(150, 1)]);
    expect_no_more_kept(&[Step::Binary(69, 0, 0), region, Step::Cond { index: 55, like: 14, branches }]).unwrap();
}

/// To save everything keeps no more than no region.
fn expect_no_more_kept(steps: &[Step]) -> std::result::Result<(), TestCaseError> {
    let x = arguments(0);
    let plain = function(steps, Regions::Inlined);
    let kept = saved_residuals(&plain, &x)?.intermediate_bytes();
    let inside = saved_residuals(function(steps, Regions::All(1)), &x)?.intermediate_bytes();
    let around = saved_residuals(checkpoint(Policy::Everything, &plain), &x)?.intermediate_bytes();
    prop_assert!(inside <= kept && around <= kept, "{} and {} B instead of {}", inside, around, kept);
    Ok(())
}

fn product(x: &Args, y: &Args) -> Tensor {
    let products = x.iter().zip(y).map(|(x, y)| (x * y).sum(..));
    products.reduce(|a, b| a + b).unwrap_or(Tensor::from(0.0f64))
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).to_vec().unwrap_or_else(|e| panic!("{e}"))
}

fn expect_bits(what: &str, got: &[Tensor], expected: &[Tensor]) -> std::result::Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        // One NaN is as good as another.
        let bits = |x: &f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
        let bits = |t: &Tensor| (t.aval().cloned(), numbers(t).iter().map(bits).collect::<Vec<_>>());
        let (a, b) = (bits(got), bits(expected));
        prop_assert!(a.0.ok() == b.0.ok() && a.1 == b.1, "{} gives {:?} and not {:?}", what, got, expected);
    }
    Ok(())
}

fn expect_close(
    what: &str,
    got: &[Tensor],
    expected: &[Tensor],
    tolerance: f64,
) -> std::result::Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        let (x, y) = (numbers(got), numbers(expected));
        let scale = x.iter().chain(&y).fold(1f64, |m, v| m.max(v.abs()));
        let is_close = x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= tolerance * scale);
        prop_assert!(x.len() == y.len() && is_close, "{} gives {:?} and not {:?}", what, got, expected);
    }
    Ok(())
}
