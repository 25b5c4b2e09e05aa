//! The functions of JAX's gradient-checkpointing tutorial.

use remat::report::SavedKind;
use remat::{Policy, Tensor, Tree, checkpoint};

use super::support::{Case, run};

pub(crate) const CASES: &[&str] = &[
    "tutorial_f_no_checkpoint",
    "tutorial_f2_checkpoint_each_g",
    "tutorial_f3_dots",
    "tutorial_f4_names",
    "tutorial_loss_plain",
    "tutorial_loss_dots",
    "tutorial_loss_save_any_names_but",
    "chain_sin_8",
    "recursive_checkpoint_sin_16",
];

#[derive(Clone, Tree)]
pub(crate) struct Args {
    pub(crate) w1: Tensor,
    pub(crate) w2: Tensor,
    pub(crate) w3: Tensor,
    pub(crate) x: Tensor,
}

fn args(case: Case) -> Args {
    Args { w1: case.input("W1"), w2: case.input("W2"), w3: case.input("W3"), x: case.input("x") }
}

pub(crate) fn g((w, x): &(Tensor, Tensor)) -> Tensor {
    w.matmul(x).sin()
}

pub(crate) fn f(a: &Args) -> Tensor {
    let x = g(&(a.w1.clone(), a.x.clone()));
    let x = g(&(a.w2.clone(), x));
    g(&(a.w3.clone(), x))
}

pub(crate) fn f4(a: &Args) -> Tensor {
    let x = g(&(a.w1.clone(), a.x.clone())).named("a");
    let x = g(&(a.w2.clone(), x)).named("b");
    g(&(a.w3.clone(), x)).named("c")
}

#[test]
fn tutorial_f_no_checkpoint() {
    let case = Case::of("tutorial_f_no_checkpoint");
    run(f, &args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn tutorial_f2_checkpoint_each_g() {
    let case = Case::of("tutorial_f2_checkpoint_each_g");
    let g = checkpoint(Policy::Nothing, g);
    let f2 = |a: &Args| {
        let x = g(&(a.w1.clone(), a.x.clone()));
        let x = g(&(a.w2.clone(), x));
        g(&(a.w3.clone(), x))
    };
    run(f2, &args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn tutorial_f3_dots() {
    let case = Case::of("tutorial_f3_dots");
    let f3 = checkpoint(Policy::DotsWithNoBatchDims, f);
    run(|a: &Args| f3(a), &args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn tutorial_f4_names() {
    let case = Case::of("tutorial_f4_names");
    let f4 = checkpoint(Policy::names(["a"]), f4);
    run(|a: &Args| f4(a), &args(case)).assert_as_in_jax(case.expected());
}

#[derive(Clone, Tree)]
pub(crate) struct LossArgs {
    pub(crate) params: Vec<Tensor>,
    pub(crate) x: Tensor,
    pub(crate) y: Tensor,
}

fn loss_args(case: Case) -> LossArgs {
    let params = ["params0", "params1", "params2"].map(|name| case.input(name)).to_vec();
    LossArgs { params, x: case.input("x"), y: case.input("y") }
}

fn predict(a: &LossArgs, label: impl Fn(usize, Tensor) -> Tensor) -> Tensor {
    let (last, layers) = a.params.split_last().unwrap();
    let hidden = layers.iter().enumerate().fold(a.x.clone(), |x, (i, w)| label(i, w.matmul(&x).sin()));
    last.matmul(&hidden)
}

pub(crate) fn loss(a: &LossArgs) -> Tensor {
    (predict(a, |_, x| x) - &a.y).powi(2).sum(..)
}

pub(crate) fn named_loss(a: &LossArgs) -> Tensor {
    (predict(a, |i, x| x.named(&format!("layer{i}_output"))) - &a.y).powi(2).sum(..)
}

#[test]
fn tutorial_loss_plain() {
    let case = Case::of("tutorial_loss_plain");
    run(loss, &loss_args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn tutorial_loss_dots() {
    let case = Case::of("tutorial_loss_dots");
    let loss = checkpoint(Policy::DotsWithNoBatchDims, loss);
    run(|a: &LossArgs| loss(a), &loss_args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn tutorial_loss_save_any_names_but() {
    let case = Case::of("tutorial_loss_save_any_names_but");
    let loss = checkpoint(Policy::any_names_but(["layer1_output"]), named_loss);
    run(|a: &LossArgs| loss(a), &loss_args(case)).assert_as_in_jax(case.expected());
}

#[test]
fn chain_sin_8() {
    let case = Case::of("chain_sin_8");
    let run = run(|x: &Tensor| (0..8).fold(x.clone(), |x, _| x.sin()), &case.input("x"));
    run.assert_as_in_jax(case.expected());
    assert!(run.residuals.iter().all(|r| r.kind == SavedKind::Output("cos")));
}

/// The tutorial's: the second half of the functions in a checkpointed region, both halves likewise.
pub(crate) fn recursive_checkpoint<'f>(
    n: usize,
    op: &'f dyn Fn(&Tensor) -> Tensor,
) -> Box<dyn Fn(&Tensor) -> Tensor + 'f> {
    match n {
        1 => Box::new(op),
        2 => Box::new(move |x| op(&op(x))),
        _ => {
            let first = recursive_checkpoint(n / 2, op);
            let second = checkpoint(Policy::Nothing, recursive_checkpoint(n - n / 2, op));
            Box::new(move |x| first(&second(x)))
        }
    }
}

#[test]
fn recursive_checkpoint_sin_16() {
    let case = Case::of("recursive_checkpoint_sin_16");
    let f = recursive_checkpoint(16, &|x: &Tensor| x.sin());
    run(|x: &Tensor| f(x), &case.input("x")).assert_as_in_jax(case.expected());
}
