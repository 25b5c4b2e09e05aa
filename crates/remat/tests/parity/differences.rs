//! Cases about interfaces that only JAX has: what ours does instead.

use std::cell::Cell;

use remat::ir::{Call, Decision, Jaxpr, MemorySpace, Op};
use remat::report::{SavedKind, saved_residuals};
use remat::{Error, Policy, Tensor, Tree, checkpoint, grad, jvp, make_jaxpr, value_and_grad};

use super::basics::save_cos;
use super::support::{Case, run};

pub(crate) const CASES: &[&str] =
    &["prevent_cse_barriers", "debug_print_counts", "io_effect_error", "residual_logging", "errors"];

/// The operands of each differentiated region in a program.
fn barriers(jaxpr: &Jaxpr) -> Vec<usize> {
    let mut all = Vec::new();
    for eqn in &jaxpr.eqns {
        if matches!(&eqn.op, Op::Call(Call::Checkpoint(op)) if op.differentiated) {
            all.push(eqn.ins.len());
        }
        for body in eqn.op.bodies() {
            all.extend(barriers(body));
        }
    }
    all
}

/// JAX lowers a differentiated region to an optimization barrier and the body, unless `prevent_cse` is off. There is no
/// such option here: the differentiated equation itself is what engines must neither merge with the forward pass nor run
/// early, with the cotangents among its operands. So the numbers of JAX's default hold, and the other settings have no
/// counterpart.
#[test]
fn prevent_cse_barriers() {
    let case = Case::of("prevent_cse_barriers");
    let recorded = |key: &str| -> Vec<usize> {
        let operands = case.expected()[key]["operands_per_barrier"].as_array().unwrap();
        operands.iter().map(|n| n.as_u64().unwrap() as usize).collect()
    };
    let f = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().sin());
    let x = Tensor::from(1.0f32);
    assert_eq!(barriers(&make_jaxpr(&f)(&x).unwrap().jaxpr), recorded("primal"));
    let forward = make_jaxpr(|x: &Tensor| jvp(&f, x, x))(&x).unwrap();
    assert_eq!(barriers(&forward.jaxpr), recorded("jvp"));
    let backward = make_jaxpr(|x: &Tensor| grad(&f)(x))(&x).unwrap();
    // A cotangent that is the literal 1 still is an operand.
    assert_eq!(barriers(&backward.jaxpr), recorded("grad"));

    #[derive(Clone, Tree)]
    struct Layer {
        w: Tensor,
        b: Tensor,
    }
    let layer = checkpoint(Policy::Nothing, |(l, x): &(Layer, Tensor)| x.matmul(&l.w) + &l.b);
    let two = |(a, b, x): &(Layer, Layer, Tensor)| {
        let x = layer(&(a.clone(), x.clone()));
        layer(&(b.clone(), x))
    };
    let new = || Layer { w: Tensor::eye(3, remat::DType::F32), b: Tensor::new([0.1f32, 0.2, 0.3]) };
    let run = run(two, &(new(), new(), Tensor::new([1.0f32, 2.0, 3.0])));
    assert_eq!(barriers(&run.backward_jaxpr), recorded("bool_True"));
}

/// Operations have no effects, so there is nothing to be run again for its own sake: what the backward pass computes is
/// what it needs. JAX counts prints of `y` and `z`; we count how often `y` is computed.
#[test]
fn debug_print_counts() {
    let case = Case::of("debug_print_counts");
    let policies = [
        ("everything", Policy::Everything, 1),
        ("nothing", Policy::Nothing, 2),
        ("save_any_names_but_these('z')", Policy::any_names_but(["z"]), 1),
        ("everything but y", Policy::anything_but(["y"]), 1),
        ("everything but y,z", Policy::anything_but(["y", "z"]), 1),
    ];
    for (key, policy, evaluations) in policies {
        let f = checkpoint(policy, |x: &Tensor| ((x + 1.0).named("y") * 2.0).named("z").exp().named("e"));
        let run = run(f, &Tensor::from(1.0f32));
        assert_eq!(run.forward.get("add") + run.backward.get("add"), evaluations, "{key}");
        assert!(evaluations <= case.expected()[key].as_u64().unwrap(), "{key}");
    }
}

/// JAX refuses input and output inside of a region. What a closure does beside tensor operations happens once, while it
/// is traced, whatever is computed again later.
#[test]
fn io_effect_error() {
    assert!(Case::of("io_effect_error").expected()["error"].as_str().unwrap().contains("Effects not supported"));
    let calls = Cell::new(0);
    let f = checkpoint(Policy::Nothing, |x: &Tensor| {
        calls.set(calls.get() + 1);
        x.sin().sin()
    });
    value_and_grad(&f)(&Tensor::from(1.0f32)).unwrap();
    assert_eq!(calls.get(), 1);
}

/// JAX logs what each region keeps. Here one asks for the report, which has the same facts.
#[test]
fn residual_logging() {
    let case = Case::of("residual_logging");
    let policies = [("nothing", Policy::Nothing), ("everything", Policy::Everything), ("save_cos", save_cos())];
    for (key, policy) in policies {
        let f = checkpoint(policy, |x: &Tensor| x.sin().sum(..).cos());
        let residuals = saved_residuals(f, &case.input("x")).unwrap();
        let ours: Vec<String> = residuals
            .iter()
            .map(|r| match r.kind {
                SavedKind::Argument(_) => format!("float32{}", &r.aval.to_string()[3..]),
                _ => format!("float32{} from {}", &r.aval.to_string()[3..], r.kind),
            })
            .collect();
        let logged = case.expected()[key].as_str().unwrap();
        let theirs: Vec<&str> = logged.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert_eq!(ours.len(), theirs.len(), "{residuals}");
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours, theirs.split(" from <file>").next().unwrap(), "{residuals}");
        }
    }
}

/// Static arguments, `concrete` and `prevent_cse` do not exist, so their mistakes cannot be made: what a closure captures is
/// static. A policy's answer is one enum, so that it cannot be anything else.
#[test]
fn errors() {
    let recorded = Case::of("errors").expected().as_object().unwrap();
    assert_eq!(recorded.len(), 9);
    let x = Tensor::from(1.0f32);
    let message = |e: Error| e.to_string();

    // static_argnums_out_of_range, static_argnums_type, kwarg_static, static_argnames_kwarg: a flag is captured.
    for flag in [true, false] {
        let f = checkpoint(Policy::Nothing, move |x: &Tensor| if flag { x.sin() } else { x.cos() });
        assert_eq!(run(f, &x).forward.get("sin"), u64::from(flag));
    }
    // branch_on_tracer: a value is read that is not there yet.
    let f = checkpoint(Policy::Nothing, |x: &Tensor| -> remat::Result<Tensor> {
        Ok(if x.item::<f32>()? > 0.0 { x.sin() } else { x.cos() })
    });
    let error = message(grad(f)(&x).unwrap_err());
    assert!(error.contains("traced"), "{error}");
    // policy_bad_return: a callable may leave the decision open, which means to compute the value again.
    let f = checkpoint(Policy::custom("open", |_| None), |x: &Tensor| x.sin().sin());
    assert_eq!(saved_residuals(f, &x).unwrap().intermediates().count(), 0);
    // save_from_both_nonbool: policies that save and policies that offload combine.
    let both =
        Policy::custom("offload_sin", |c| (c.op.name() == "sin").then_some(Decision::Offload(MemorySpace::Host)))
            .or(save_cos());
    let f = checkpoint(both, |x: &Tensor| x.sin().exp().cos());
    let report: Vec<String> =
        saved_residuals(f, &x).unwrap().iter().map(|r| format!("{} {}", r.aval, r.kind)).collect();
    assert_eq!(report, ["f32<host>[] output of sin", "f32[] output of cos", "f32<host>[] output of sin"]);
}
