//! Random programs.
//!
//! A program is a list of steps over a growing list of values. Each step selects its operands by numbers modulo the length of the list, so
//! that every list of steps is a program, and a failing one shrinks well.
//!
//! ```
//! use proptest::test_runner::{TestCaseError, TestRunner};
//! use remat::jit;
//! use remat_conformance::random_programs::{arguments, config, exact_function, steps};
//!
//! // A compiled program gives what its operations give one by one.
//! let check = |steps: Vec<_>| {
//!     let f = exact_function(&steps);
//!     let (compiled, plain) = (jit(&f).call(arguments(0))?, f(&arguments(0))?);
//!     for (x, y) in compiled.iter().zip(&plain) {
//!         let bits = |x: &remat::Tensor| Ok::<_, remat::Error>(x.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect());
//!         let (x, y): (Vec<u64>, Vec<u64>) = (bits(x)?, bits(y)?);
//!         proptest::prop_assert_eq!(x, y);
//!     }
//!     Ok::<(), TestCaseError>(())
//! };
//! TestRunner::new(config(3)).run(&steps(), check)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use remat::ir::{Decision, MemorySpace};
use remat::{Policy, Result, ScanOptions, Tensor, checkpoint, cond, jit, scan_with};

/// Arguments of a program.
pub type Args = Vec<Tensor>;

/// The shapes of the arguments.
pub const SHAPES: [&[usize]; 4] = [&[2, 3], &[3], &[3, 3], &[]];

/// A step of a program. Numbers select its operands, and the operation among those of its kind.
#[derive(Clone, Debug)]
pub enum Step {
    /// A function of one operand, applied to each element.
    Unary(u8, usize),
    /// A function of two operands, applied to each pair of elements.
    Binary(u8, usize, usize),
    /// The larger of two operands, in another form.
    Select(usize, usize),
    /// A matrix product.
    Dot(usize, usize),
    /// A reduction.
    Reduce(u8, usize),
    /// Another order or number of the same elements.
    Move(u8, usize),
    /// A name, for policies.
    Name(u8, usize),
    /// A region with a policy of this number.
    Checkpoint(u8, Vec<Step>),
    /// A call.
    Jit(Vec<Step>),
    /// A loop.
    Scan {
        /// One iteration.
        body: Vec<Step>,
        /// The first carry.
        carry: usize,
        /// The operand whose multiples are scanned.
        xs: usize,
        /// The number of iterations, which may be zero.
        length: usize,
        /// Whether the scan is reversed.
        reverse: bool,
    },
    /// A branch.
    Cond {
        /// The operand whose sum selects the branch.
        index: usize,
        /// The operand with the shape of the result.
        like: usize,
        /// The branches for a positive sum, and for others.
        branches: [Vec<Step>; 2],
    },
}

/// Programs of one to six steps, with further ones in their regions, loops and branches.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
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

/// How the regions of a program are treated.
#[derive(Clone, Copy, PartialEq)]
pub enum Regions {
    /// Each has its own policy.
    AsGiven,
    /// All have this policy.
    All(u8),
    /// There are none.
    Inlined,
}

/// How a program is run.
#[derive(Clone, Copy)]
struct How {
    regions: Regions,
    /// Whether all operations are rounded once and no sum depends on its order. Other operations are replaced.
    is_exact: bool,
}

/// The program as a function that returns its last values, of operations whose results have the same bits on every engine.
pub fn exact_function(steps: &[Step]) -> impl Fn(&Args) -> Result<Args> {
    move |args| {
        let mut values = args.clone();
        run(steps, How { regions: Regions::AsGiven, is_exact: true }, &mut values)?;
        Ok(values.split_off(values.len().saturating_sub(4)))
    }
}

/// The program as a function: the sum of the sines of the last values.
pub fn function(steps: &[Step], regions: Regions) -> impl Fn(&Args) -> Result<Tensor> {
    move |args| {
        let mut values = args.clone();
        run(steps, How { regions, is_exact: false }, &mut values)?;
        let last = values.iter().rev().take(4).map(|v| v.sin().sum(..));
        Ok(last.reduce(|a, b| a + b).unwrap_or(Tensor::from(0.0f64)))
    }
}

fn run(steps: &[Step], how: How, values: &mut Args) -> Result<()> {
    for step in steps {
        let pick = |i: &usize| values[i % values.len()].clone();
        let new = match step {
            Step::Unary(op, x) => how.unary(*op, &pick(x)),
            Step::Binary(op, x, y) => how.binary(*op, &pick(x), &pick(y))?,
            Step::Select(x, y) => {
                let x = pick(x);
                let y = how.fit(&pick(y), &x)?;
                x.gt(&y).select(&x, how.bend(&y))
            }
            Step::Dot(x, y) => how.dot(&pick(x), &pick(y))?,
            Step::Reduce(op, x) => how.reduce(*op, &pick(x))?,
            Step::Move(op, x) => how.rearrange(*op, &pick(x))?,
            Step::Name(name, x) => pick(x).named(["p", "q", "r"][usize::from(*name)]),
            Step::Checkpoint(number, body) => {
                let f = |args: &Args| {
                    let mut inner = args.clone();
                    // One value is captured and not passed.
                    inner.push(values[0].clone());
                    run(body, how, &mut inner)?;
                    Ok::<_, remat::Error>(last(&inner))
                };
                match how.regions {
                    Regions::AsGiven => checkpoint(policy(*number, body), f)(values)?,
                    Regions::All(number) => checkpoint(policy(number, body), f)(values)?,
                    Regions::Inlined => f(values)?,
                }
            }
            Step::Jit(body) => {
                let inner = jit(|args: &Args| {
                    let mut inner = args.clone();
                    run(body, how, &mut inner)?;
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
                    run(body, how, &mut inner)?;
                    let out = last(&inner);
                    Ok::<_, remat::Error>((how.bend(&how.fit(&out, carry)?), out))
                };
                let options = ScanOptions { reverse: *reverse, ..ScanOptions::default() };
                let (carry, ys) = scan_with(&options, step, &carry, &xs)?;
                how.binary(0, &carry, &how.total(&ys, 0))?
            }
            Step::Cond { index, like, branches } => {
                let like = pick(like);
                let branch = |body: &Vec<Step>, args: &Args| {
                    let mut inner = args.clone();
                    run(body, how, &mut inner)?;
                    how.fit(&last(&inner), &like)
                };
                let index = how.total(&pick(index).flatten(), 0);
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

impl How {
    fn unary(self, op: u8, x: &Tensor) -> Tensor {
        match op % 8 {
            4 => -x,
            5 => x.relu(),
            op if self.is_exact => x * 0.7 + f64::from(op) * 0.3,
            0 => x.sin(),
            1 => x.cos(),
            2 => x.tanh(),
            3 => x.sigmoid(),
            6 => (x.square() + 1.0).log(),
            _ => x.tanh().exp(),
        }
    }

    fn binary(self, op: u8, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let y = self.fit(y, x)?;
        Ok(match op % 5 {
            0 => x + y,
            1 => x * y,
            2 => x - y,
            3 => x / (y.square() + 1.0),
            _ => x.maximum(&y),
        })
    }

    /// Another value of the same size, which is bounded.
    fn bend(self, x: &Tensor) -> Tensor {
        if self.is_exact { x.clamp(-1.0, 1.0) * 0.9 } else { x.tanh() }
    }

    /// One value from all along an axis, which may be empty.
    fn total(self, x: &Tensor, axis: i64) -> Tensor {
        if !self.is_exact {
            return x.sum(axis);
        }
        let zero = x.sum(axis).zeros_like();
        if x.size().is_ok_and(|size| size == 0) { zero } else { x.max(axis) }
    }

    /// `x` in the shape of `like`: unchanged, or one value of all its elements, broadcast.
    fn fit(self, x: &Tensor, like: &Tensor) -> Result<Tensor> {
        Ok(if x.shape()? == like.shape()? {
            x.clone()
        } else {
            self.total(&x.flatten(), 0).broadcast_to(like.shape()?)
        })
    }

    fn dot(self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        if self.is_exact {
            return Ok(x.flatten().outer(&y.flatten()).max(0));
        }
        let (m, n) = (x.shape()?, y.shape()?);
        let fits = !m.is_empty() && !n.is_empty() && m[m.len() - 1] == n[n.len().saturating_sub(2)];
        Ok(if fits { x.matmul(y) } else { x.flatten().outer(&y.flatten()).mean(0) })
    }

    fn reduce(self, op: u8, x: &Tensor) -> Result<Tensor> {
        if x.rank()? == 0 {
            return Ok(x * 0.5);
        }
        Ok(match op % 4 {
            0 => self.total(x, 0),
            1 => self.total(x, -1),
            2 => x.max(-1),
            _ if self.is_exact => x.min(0),
            _ => x.cumsum(0),
        })
    }

    fn rearrange(self, op: u8, x: &Tensor) -> Result<Tensor> {
        let dims = x.shape()?;
        let size: usize = dims.iter().product();
        if dims.is_empty() || size == 0 || size > 64 {
            return Ok(self.total(&x.flatten(), 0).expand_dims([0]));
        }
        Ok(match op % 6 {
            0 => x.flatten(),
            1 => x.flip(0),
            2 => x.swap_axes(0, -1),
            3 => x.index(0..1),
            4 => Tensor::concatenate(&[x.clone(), self.bend(x)], 0),
            _ => self.total(&x.expand_dims([0]).broadcast_to([&[2], dims].concat()), 0),
        })
    }
}

/// A policy that mentions only names in the body.
fn policy(number: u8, body: &[Step]) -> Policy {
    let mut names = BTreeSet::new();
    collect_names(body, &mut names);
    let Some(&name) = names.iter().nth(usize::from(number / 13) % names.len().max(1)) else {
        return match number % 6 {
            0 => Policy::Nothing,
            1 => Policy::Everything,
            2 => Policy::Dots,
            3 => Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host),
            4 => Policy::budget(usize::from(number) * 4),
            _ => every_unary(),
        };
    };
    match number % 13 {
        0 => Policy::Nothing,
        1 => Policy::Everything,
        2 => Policy::names([name]),
        3 => Policy::any_names_but([name]),
        4 => Policy::anything_but([name]),
        5 => Policy::save_and_offload_names([] as [&str; 0], [name]),
        6 => Policy::Dots.or(Policy::names([name])),
        7 => Policy::names([name]).not(),
        8 => Policy::First(vec![Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host), Policy::names([name])]),
        9 => Policy::budget(usize::from(number) * 4),
        10 => Policy::prefer(Policy::names([name])).or(Policy::budget(usize::from(number) * 4)),
        11 => Policy::must(Policy::names([name]).or(Policy::Dots)),
        _ => every_unary(),
    }
}

fn every_unary() -> Policy {
    Policy::custom("unary", |c| {
        Some(if matches!(c.op, remat::ir::Op::Prim(remat::ir::Prim::Unary(_))) {
            Decision::Save
        } else {
            Decision::Recompute
        })
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

/// Arguments in f64: numbers between -0.8 and 0.8, different for each seed.
pub fn arguments(seed: usize) -> Args {
    let mut n = seed * 7;
    let mut next = || {
        n += 1;
        ((n as f64) * 0.618_033_988_75).fract() * 1.6 - 0.8
    };
    SHAPES.iter().map(|s| Tensor::from_vec((0..s.iter().product()).map(|_| next()).collect(), s.to_vec())).collect()
}

/// How random programs are tested: on this number of cases in a thorough run and an eighth of them otherwise, the same in each run, so that
/// a failure comes from the tested change. The environment variable `PROPTEST_CASES` sets another number, drawn anew in each run.
pub fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, max_shrink_iters: 500, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return default;
    }
    ProptestConfig { cases: remat_testkit::sized(cases.div_ceil(8), cases), rng_seed: RngSeed::Fixed(0), ..default }
}
