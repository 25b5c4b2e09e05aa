//! Loops and branches around regions and inside of them.

use remat::{Policy, Result, ScanOptions, Tensor, Tree, checkpoint, cond, linearize, scan_with};

use super::basics::save_cos;
use super::support::{COUNTED, Case, Counts, Run, assert_not_longer, assert_residuals, run};

pub(crate) const CASES: &[&str] = &[
    "scan_plain",
    "scan_dots_inside",
    "scan_nothing_inside",
    "remat_of_scan_save_cos",
    "remat_of_cond_1",
    "cond_dots",
];

fn iterations(length: usize) -> ScanOptions {
    ScanOptions { length: Some(length), ..ScanOptions::default() }
}

fn body(w: &Tensor, x: &Tensor) -> Tensor {
    (0..3).fold(x.clone(), |x, _| x.matmul(w).sin())
}

/// Two iterations of the body, with the weights as the argument.
fn scanned(case: Case, policy: Option<Policy>) -> Run {
    let x0 = case.input("x0");
    let f = |w: &Tensor| -> Result<Tensor> {
        let step = |x: &Tensor, _: &()| match &policy {
            None => (body(w, x), ()),
            Some(policy) => (checkpoint(policy.clone(), |x: &Tensor| body(w, x))(x), ()),
        };
        Ok(scan_with(&iterations(2), step, &x0, &())?.0)
    };
    run(f, &case.input("W"))
}

#[test]
fn scan_plain() {
    let case = Case::of("scan_plain");
    scanned(case, None).assert_as_in_jax(case.expected());
}

#[test]
fn scan_dots_inside() {
    let case = Case::of("scan_dots_inside");
    let run = scanned(case, Some(Policy::Dots));
    run.assert_as_in_jax(case.expected());
    // JAX says "output of scan" of each of them.
    let kinds: Vec<String> = run.residuals.intermediates().map(|r| r.kind.to_string()).collect();
    assert_eq!(kinds, ["output of sin", "output of dot_general", "output of dot_general", "output of dot_general"]);
}

#[test]
fn scan_nothing_inside() {
    let case = Case::of("scan_nothing_inside");
    scanned(case, Some(Policy::Nothing)).assert_as_in_jax(case.expected());
}

#[test]
fn remat_of_scan_save_cos() {
    let case = Case::of("remat_of_scan_save_cos");
    let f =
        checkpoint(save_cos(), |x: &Tensor| scan_with(&iterations(3), |c: &Tensor, _: &()| (c.sin(), c.sin()), x, &()));
    let run = run(|x: &Tensor| f(x), &case.input("x"));
    run.assert_as_in_jax(case.expected());
    let (_, linear) = linearize(&f, &case.input("x")).unwrap();
    Counts::of(linear.jaxpr()).assert_equal(&case.expected()["linear_fn_counts"], COUNTED);
    assert!(run.residuals.iter().all(|r| r.kind.to_string() == "output of cos"), "{}", run.residuals);
}

#[test]
fn remat_of_cond_1() {
    let case = Case::of("remat_of_cond_1");
    let both = |c: &Tensor| (c.sin(), c.sin());
    let f = checkpoint(Policy::Nothing, |x: &Tensor| cond(&x.gt(0.0), both, both, x));
    run(|x: &Tensor| f(x), &case.input("x")).assert_as_in_jax(case.expected());
    let (_, linear) = linearize(&f, &case.input("x")).unwrap();
    Counts::of(linear.jaxpr()).assert_equal(&case.expected()["linear_fn_counts"], COUNTED);
}

#[derive(Clone, Tree)]
struct Weights {
    w: Tensor,
}

#[test]
fn cond_dots() {
    let case = Case::of("cond_dots");
    let x0 = case.input("x0");
    let f = checkpoint(Policy::Dots, |a: &Weights| {
        cond(&x0.sum(..).gt(-1e6), |x: &Tensor| body(&a.w, x), |x: &Tensor| x.clone(), &x0)
    });
    let run = run(|a: &Weights| f(a), &Weights { w: case.input("W") });
    run.assert_values(case.expected());
    assert_residuals(&run.residuals, &case.expected()["residuals"]);
    assert_not_longer(&run.residuals, &case.expected()["residuals"]);
    run.backward.assert_equal(&case.expected()["bwd_counts"], &["sin", "cos", "dot_general"]);
}
