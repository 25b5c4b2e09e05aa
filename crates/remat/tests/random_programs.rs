//! Random programs: whatever is transformed, and whatever policies their regions have, they compute the same.
//!
//! A program is a list of steps over a growing list of values; each step picks its operands by numbers that are taken
//! modulo the length of the list, so that every list of steps is a program, and a failing one shrinks well.

use std::collections::BTreeSet;

use proptest::prelude::*;
use remat::testing::call;
use remat::{
    Atom, DType, Decision, Jaxpr, MemorySpace, Policy, Result, ScanOptions, Tensor, checkpoint, cond, grad, jit, jvp,
    make_jaxpr, scan_with, transform, vmap,
};

type Args = Vec<Tensor>;

/// The shapes of the arguments.
const SHAPES: [&[usize]; 4] = [&[2, 3], &[3], &[3, 3], &[]];

#[derive(Clone, Debug)]
enum Step {
    Unary(u8, usize),
    Binary(u8, usize, usize),
    Select(usize, usize),
    Dot(usize, usize),
    Reduce(u8, usize),
    Move(u8, usize),
    Name(u8, usize),
    Checkpoint(u8, Vec<Step>),
    Jit(Vec<Step>),
    Scan { body: Vec<Step>, carry: usize, xs: usize, length: usize, reverse: bool },
    Cond { index: usize, like: usize, branches: [Vec<Step>; 2] },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || 0..64usize;
    let leaf = prop_oneof![
        3 => (any::<u8>(), number()).prop_map(|(op, x)| Step::Unary(op, x)),
        4 => (any::<u8>(), number(), number()).prop_map(|(op, x, y)| Step::Binary(op, x, y)),
        1 => (number(), number()).prop_map(|(x, y)| Step::Select(x, y)),
        3 => (number(), number()).prop_map(|(x, y)| Step::Dot(x, y)),
        2 => (any::<u8>(), number()).prop_map(|(op, x)| Step::Reduce(op, x)),
        3 => (any::<u8>(), number()).prop_map(|(op, x)| Step::Move(op, x)),
        2 => (0..3u8, number()).prop_map(|(name, x)| Step::Name(name, x)),
    ];
    let step = leaf.prop_recursive(3, 24, 5, move |inner| {
        let body = || prop::collection::vec(inner.clone(), 1..5);
        prop_oneof![
            4 => (any::<u8>(), body()).prop_map(|(policy, body)| Step::Checkpoint(policy, body)),
            1 => body().prop_map(Step::Jit),
            2 => (body(), number(), number(), 0..4usize, any::<bool>()).prop_map(
                |(body, carry, xs, length, reverse)| Step::Scan { body, carry, xs, length, reverse }
            ),
            2 => (body(), body(), number(), number())
                .prop_map(|(f, g, index, like)| Step::Cond { index, like, branches: [f, g] }),
        ]
    });
    prop::collection::vec(step, 1..7)
}

/// What becomes of the regions of a program.
#[derive(Clone, Copy, PartialEq)]
enum Regions {
    /// Each has its own policy.
    AsGiven,
    /// All have this policy.
    All(u8),
    /// There are none.
    Inlined,
}

/// The program as a function: the sum of the sines of the last values.
fn function(steps: &[Step], regions: Regions) -> impl Fn(&Args) -> Result<Tensor> {
    move |args| {
        let mut values = args.clone();
        run(steps, regions, &mut values)?;
        let last = values.iter().rev().take(4).map(|v| v.sin().sum(..));
        Ok(last.reduce(|a, b| a + b).unwrap_or(Tensor::from(0.0f64)))
    }
}

fn run(steps: &[Step], regions: Regions, values: &mut Args) -> Result<()> {
    for step in steps {
        let pick = |i: &usize| values[i % values.len()].clone();
        let new = match step {
            Step::Unary(op, x) => unary(*op, &pick(x)),
            Step::Binary(op, x, y) => binary(*op, &pick(x), &pick(y))?,
            Step::Select(x, y) => {
                let x = pick(x);
                let y = fit(&pick(y), &x)?;
                x.gt(&y).select(&x, y.sin())
            }
            Step::Dot(x, y) => dot(&pick(x), &pick(y))?,
            Step::Reduce(op, x) => reduce(*op, &pick(x))?,
            Step::Move(op, x) => rearrange(*op, &pick(x))?,
            Step::Name(name, x) => pick(x).named(["p", "q", "r"][usize::from(*name)]),
            Step::Checkpoint(number, body) => {
                let f = |args: &Args| {
                    let mut inner = args.clone();
                    // One value is captured and not passed.
                    inner.push(values[0].clone());
                    run(body, regions, &mut inner)?;
                    Ok::<_, remat::Error>(last(&inner))
                };
                match regions {
                    Regions::AsGiven => checkpoint(policy(*number, body), f)(values)?,
                    Regions::All(number) => checkpoint(policy(number, body), f)(values)?,
                    Regions::Inlined => f(values)?,
                }
            }
            Step::Jit(body) => {
                let inner = jit(|args: &Args| {
                    let mut inner = args.clone();
                    run(body, regions, &mut inner)?;
                    Ok::<_, remat::Error>(last(&inner))
                });
                inner.call(values.clone())?
            }
            Step::Scan { body, carry, xs, length, reverse } => {
                let (carry, x) = (pick(carry), pick(xs));
                let slices: Args = (0..*length).map(|i| &x * (1.0 - 0.3 * i as f64)).collect();
                let xs = if slices.is_empty() { x.expand_dims([0]).index(0..0) } else { Tensor::stack(&slices, 0) };
                let step = |carry: &Tensor, x: &Tensor| {
                    let mut inner = values.clone();
                    inner.extend([carry.clone(), x.clone()]);
                    run(body, regions, &mut inner)?;
                    let out = last(&inner);
                    Ok::<_, remat::Error>((fit(&out, carry)?.tanh(), out))
                };
                let options = ScanOptions { reverse: *reverse, ..ScanOptions::default() };
                let (carry, ys) = scan_with(&options, step, &carry, &xs)?;
                binary(0, &carry, &ys.sum(0))?
            }
            Step::Cond { index, like, branches } => {
                let like = pick(like);
                let branch = |body: &Vec<Step>, args: &Args| {
                    let mut inner = args.clone();
                    run(body, regions, &mut inner)?;
                    fit(&last(&inner), &like)
                };
                let index = pick(index).sum(..);
                let [f, g] = branches;
                cond(&index.gt(index.zeros_like()), |a: &Args| branch(f, a), |a: &Args| branch(g, a), values)?
            }
        };
        values.push(new);
    }
    Ok(())
}

fn last(values: &Args) -> Tensor {
    values[values.len() - 1].clone()
}

fn unary(op: u8, x: &Tensor) -> Tensor {
    match op % 8 {
        0 => x.sin(),
        1 => x.cos(),
        2 => x.tanh(),
        3 => x.logistic(),
        4 => -x,
        5 => x.relu(),
        6 => (x.square() + 1.0).log(),
        _ => x.tanh().exp(),
    }
}

fn binary(op: u8, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let y = fit(y, x)?;
    Ok(match op % 5 {
        0 => x + y,
        1 => x * y,
        2 => x - y,
        3 => x / (y.square() + 1.0),
        _ => x.maximum(&y),
    })
}

/// `x` in the shape of `like`: the sum of its elements repeated, if it has another one.
fn fit(x: &Tensor, like: &Tensor) -> Result<Tensor> {
    Ok(if x.dims()? == like.dims()? { x.clone() } else { x.sum(..).broadcast_to(like.dims()?) })
}

fn dot(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (m, n) = (x.dims()?, y.dims()?);
    let fits = !m.is_empty() && !n.is_empty() && m[m.len() - 1] == n[n.len().saturating_sub(2)];
    Ok(if fits { x.matmul(y) } else { x.flatten().outer(&y.flatten()).mean(0) })
}

fn reduce(op: u8, x: &Tensor) -> Result<Tensor> {
    if x.rank()? == 0 {
        return Ok(x * 0.5);
    }
    Ok(match op % 4 {
        0 => x.sum(0),
        1 => x.sum(-1),
        2 => x.max(-1),
        _ => x.cumsum(0),
    })
}

fn rearrange(op: u8, x: &Tensor) -> Result<Tensor> {
    let dims = x.dims()?;
    let size: usize = dims.iter().product();
    if dims.is_empty() || size == 0 || size > 64 {
        return Ok(x.sum(..).expand_dims([0]));
    }
    Ok(match op % 6 {
        0 => x.flatten(),
        1 => x.flip(0),
        2 => x.swap_axes(0, -1),
        3 => x.index(0..1),
        4 => Tensor::concatenate(&[x.clone(), x.cos()], 0),
        _ => x.expand_dims([0]).broadcast_to([&[2], &dims[..]].concat()).sum(0),
    })
}

/// A policy, which mentions no names but those in the body.
fn policy(number: u8, body: &[Step]) -> Policy {
    let mut names = BTreeSet::new();
    collect_names(body, &mut names);
    let Some(&name) = names.iter().nth(usize::from(number / 13) % names.len().max(1)) else {
        return match number % 5 {
            0 => Policy::Nothing,
            1 => Policy::Everything,
            2 => Policy::Dots,
            3 => Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host),
            _ => every_unary(),
        };
    };
    match number % 10 {
        0 => Policy::Nothing,
        1 => Policy::Everything,
        2 => Policy::names([name]),
        3 => Policy::any_names_but([name]),
        4 => Policy::anything_but([name]),
        5 => Policy::save_and_offload_names([] as [&str; 0], [name]),
        6 => Policy::Dots.or(Policy::names([name])),
        7 => Policy::names([name]).not(),
        8 => Policy::First(vec![Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host), Policy::names([name])]),
        _ => every_unary(),
    }
}

fn every_unary() -> Policy {
    Policy::custom("unary", |c| {
        Some(if matches!(c.op, remat::Op::Unary(_)) { Decision::Save } else { Decision::Recompute })
    })
}

fn collect_names(steps: &[Step], names: &mut BTreeSet<&'static str>) {
    for step in steps {
        match step {
            Step::Name(name, _) => drop(names.insert(["p", "q", "r"][usize::from(*name)])),
            Step::Checkpoint(_, body) | Step::Jit(body) | Step::Scan { body, .. } => collect_names(body, names),
            Step::Cond { branches, .. } => branches.iter().for_each(|body| collect_names(body, names)),
            Step::Unary(..)
            | Step::Binary(..)
            | Step::Select(..)
            | Step::Dot(..)
            | Step::Reduce(..)
            | Step::Move(..) => {}
        }
    }
}

/// `PROPTEST_CASES` in the environment overrides the number of cases.
fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, max_shrink_iters: 500, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { default } else { ProptestConfig { cases, ..default } }
}

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

fn arguments(seed: usize) -> Args {
    let mut n = seed * 7;
    let mut next = || {
        n += 1;
        ((n as f64) * 0.618_033_988_75).fract() * 1.6 - 0.8
    };
    SHAPES.iter().map(|s| Tensor::from_vec((0..s.iter().product()).map(|_| next()).collect(), s.to_vec())).collect()
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
        let bits = |t: &Tensor| (t.aval().cloned(), numbers(t).iter().map(|x| x.to_bits()).collect::<Vec<_>>());
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
