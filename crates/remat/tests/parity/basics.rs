//! Single regions: values, counts, what policies see.

use remat::ir::{Call, Candidate, Decision, Op};
use remat::{DType, Policy, Tensor, Tree, checkpoint, custom_jvp, custom_vjp, einsum, grad, linearize, make_jaxpr};
use serde_json::Value;

use super::support::{COUNTED, Case, Counts, assert_close, assert_residuals, run};
use super::tutorial::recursive_checkpoint;

pub(crate) const CASES: &[&str] = &[
    "recursive_checkpoint_eval_counts",
    "nested_checkpoint_eval_counts",
    "remat_basic",
    "remat_freevars",
    "remat_higher_order",
    "policy_matrix_everything_saveable",
    "policy_matrix_save_only_these_names",
    "policy_callable_save_cos",
    "dots_saveable_3",
    "dots_no_batch_dims_on_batched",
    "constants_not_hoisted",
    "inputs_dedup_and_unused",
    "custom_vjp_names_in_fwd",
];

/// An operation whose derivative needs its result, so that each application is computed again or kept. JAX's is `x + 1`,
/// which here is so cheap that it is not kept but computed wherever it is needed.
fn op(x: &Tensor) -> Tensor {
    let op = custom_jvp(
        |x: &Tensor| x.tanh(),
        |x: &Tensor, t: &Tensor| {
            let y = x.tanh();
            (y.clone(), y * t)
        },
    );
    op(x)
}

/// How often `op` is evaluated.
#[track_caller]
fn assert_evaluations(f: impl Fn(&Tensor) -> Tensor, recorded: &Value) {
    let run = run(f, &Tensor::from(1.0f32));
    assert_eq!(Some(run.forward.get("tanh")), recorded["fwd_evals"].as_u64());
    assert_eq!(Some(run.backward.get("tanh")), recorded["bwd_evals"].as_u64());
}

#[test]
fn recursive_checkpoint_eval_counts() {
    let case = Case::of("recursive_checkpoint_eval_counts");
    for n in [4, 8, 16] {
        assert_evaluations(recursive_checkpoint(n, &op), &case.expected()[format!("n={n}")]);
    }
}

#[test]
fn nested_checkpoint_eval_counts() {
    let case = Case::of("nested_checkpoint_eval_counts");
    let inner = checkpoint(Policy::Nothing, op);
    let g = checkpoint(Policy::Nothing, |x: &Tensor| op(&inner(x)));
    assert_evaluations(g, case.expected());
}

/// The counts of the linear function.
#[track_caller]
fn assert_linear_counts(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, case: Case) {
    let (_, linear) = linearize(f, x).unwrap();
    Counts::of(linear.jaxpr()).assert_equal(&case.expected()["linear_fn_counts"], COUNTED);
}

#[test]
fn remat_basic() {
    let case = Case::of("remat_basic");
    let f = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().sin());
    let x = case.input("x");
    run(&f, &x).assert_as_in_jax(case.expected());
    assert_linear_counts(&f, &x, case);
    let (_, linear) = linearize(&f, &x).unwrap();
    assert_close(&linear.call(&Tensor::from(3.0f32)).unwrap(), &case.expected()["linearize_of_3"]);
}

#[test]
fn remat_freevars() {
    let case = Case::of("remat_freevars");
    let f = |x: &Tensor| {
        let y = x.sin() * 2.0;
        let region = checkpoint(Policy::Nothing, |x: &Tensor| x.cos() * y.sin());
        region(x)
    };
    run(f, &case.input("x")).assert_as_in_jax(case.expected());
}

#[test]
fn remat_higher_order() {
    let case = Case::of("remat_higher_order");
    let f = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().cos());
    let x = case.input("x");
    let second = grad(grad(&f));
    assert_close(&second(&x).unwrap(), &case.expected()["value"]);
    assert_close(&grad(grad(|x: &Tensor| x.sin().cos()))(&x).unwrap(), &case.expected()["reference"]);
    assert_close(&grad(&second)(&x).unwrap(), &case.expected()["third"]);
    let counts = Counts::of(&make_jaxpr(&second)(&x).unwrap().jaxpr);
    assert!(counts.get("checkpoint") >= 1, "{counts:?}");
}

fn named_sin(x: &Tensor) -> Tensor {
    x.sin().named("sin")
}

fn of_policy(case: Case, policy: Policy) {
    let f = checkpoint(policy, |x: &Tensor| {
        let y = named_sin(x);
        named_sin(&(&y * &y))
    });
    run(&f, &case.input("x")).assert_as_in_jax(case.expected());
    assert_linear_counts(&f, &case.input("x"), case);
}

#[test]
fn policy_matrix_everything_saveable() {
    of_policy(Case::of("policy_matrix_everything_saveable"), Policy::Everything);
}

#[test]
fn policy_matrix_save_only_these_names() {
    of_policy(Case::of("policy_matrix_save_only_these_names"), Policy::names(["sin"]));
}

/// Saves every `cos`, an operation that only derivatives bring.
pub(crate) fn save_cos() -> Policy {
    let is_cos = |candidate: &Candidate<'_>| candidate.op.name() == "cos";
    Policy::custom("save_cos", move |c| is_cos(c).then_some(Decision::Save))
}

#[test]
fn policy_callable_save_cos() {
    let case = Case::of("policy_callable_save_cos");
    let f = checkpoint(save_cos(), |x: &Tensor| x.sin().sin());
    run(&f, &case.input("x")).assert_as_in_jax(case.expected());
    assert_linear_counts(&f, &case.input("x"), case);
}

#[test]
fn dots_saveable_3() {
    let case = Case::of("dots_saveable_3");
    let f = checkpoint(Policy::Dots, |x: &Tensor| (0..3).fold(x.clone(), |x, _| x.matmul(&x).sin()));
    run(&f, &case.input("x")).assert_as_in_jax(case.expected());
    assert_linear_counts(&f, &case.input("x"), case);
}

#[test]
fn dots_no_batch_dims_on_batched() {
    let case = Case::of("dots_no_batch_dims_on_batched");
    let layer = |x: Tensor, _| einsum("nij,njk->nik", &[&x, &x]).sin();
    let f = checkpoint(Policy::DotsWithNoBatchDims, move |x: &Tensor| (0..3).fold(x.clone(), layer));
    run(&f, &case.input("x")).assert_as_in_jax(case.expected());
    assert_linear_counts(&f, &case.input("x"), case);
}

#[test]
fn constants_not_hoisted() {
    let case = Case::of("constants_not_hoisted");
    let x = case.input("x");
    let kept = |f: fn(&Tensor) -> Tensor, recorded: &str| {
        let f = checkpoint(Policy::Nothing, f);
        assert_residuals(&run(&f, &x).residuals, &case.expected()[recorded]);
    };
    kept(|x| einsum("ii->i", &[x]), "diag");
    kept(|x| x.zeros_like() * x, "zeros_times_x");
    kept(|x| x.zeros_like() * x.sin(), "zeros_times_sin_x");
}

#[derive(Clone, Tree)]
struct Several {
    x: Tensor,
    unused: Tensor,
    k: Pair,
}

#[derive(Clone, Tree)]
struct Pair {
    a: Tensor,
    b: Tensor,
}

#[test]
fn inputs_dedup_and_unused() {
    let case = Case::of("inputs_dedup_and_unused");
    let f = checkpoint(Policy::Nothing, |s: &Several| s.x.sin() * s.x.cos() + &s.k.b * &s.x);
    let grads = &case.expected()["grads_with_ones_cotangent"];
    let zeros = |i: usize| {
        let shape = grads[i]["shape"].as_array().unwrap();
        Tensor::zeros(shape.iter().map(|d| d.as_u64().unwrap() as usize).collect::<Vec<_>>(), DType::F32)
    };
    // The file has `x` only; the gradient of `x` tells `k['b']`, since that of `sin x cos x` is `cos 2x`.
    let x = case.input("x");
    let b = super::support::tensor(&grads[0]) - (&x * 2.0).cos();
    let several = Several { x, unused: zeros(1), k: Pair { a: zeros(2), b } };
    run(&f, &several).assert_as_in_jax(case.expected());
}

#[test]
fn custom_vjp_names_in_fwd() {
    let case = Case::of("custom_vjp_names_in_fwd");
    let sin = custom_vjp(
        |x: &Tensor| x.sin(),
        |x: &Tensor| (x.sin(), x.cos().named("cos")),
        |cos: &Tensor, ct: &Tensor| cos * ct,
    );
    for (policy, recorded) in [(Policy::names(["cos"]), "names"), (Policy::Nothing, "nothing")] {
        // A region whose only names are in the rule of a function.
        let f = checkpoint(policy, |x: &Tensor| sin(x));
        run(&f, &case.input("x")).assert_as_in_jax(&case.expected()[recorded]);
    }
    assert!(matches!(make_jaxpr(&sin)(&case.input("x")).unwrap().jaxpr.eqns[0].op, Op::Call(Call::CustomVjp(_))));
}
