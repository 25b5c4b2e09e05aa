//! Names: which are saved, how they are reported, nested policies, offload.

use remat::ir::{Jaxpr, MemorySpace, Op, Prim};
use remat::report::{SavedKind, Through, fwd_bwd, saved_residuals};
use remat::{DType, JitOptions, Policy, Result, ScanOptions, Tensor, Tree, checkpoint, jit_with, scan_with};

use super::support::{COUNTED, Case, assert_not_longer, assert_residuals, run};

pub(crate) const CASES: &[&str] = &[
    "name_saveable_input",
    "name_allow_and_deny_lists",
    "saved_residuals_utility",
    "saved_residuals_utility_jit",
    "nested_policy_matrix",
    "offload_policies_trace",
];

#[test]
fn name_saveable_input() {
    let case = Case::of("name_saveable_input");
    let f = checkpoint(Policy::names(["foo"]), |x: &Tensor| {
        let x = x.matmul(x).named("foo");
        x.matmul(&x)
    });
    run(f, &case.input("x")).assert_as_in_jax(case.expected());
}

/// `x y z w u`, whose factors are computed inside of the region; all but `u` have names.
fn product(x: &Tensor) -> Tensor {
    let four = || Tensor::from(2.0f32).stop_gradient() * 2.0;
    x * four().named("y") * four().named("z") * four().named("w") * four()
}

#[test]
fn name_allow_and_deny_lists() {
    let case = Case::of("name_allow_and_deny_lists");
    let saved = |policy: Policy| {
        let f = checkpoint(policy, product);
        let residuals = saved_residuals(|x: &Tensor| f(x), &case.input("x"))?;
        Ok::<usize, remat::Error>(residuals.len())
    };
    let recorded = |key: &str| case.expected()[key].as_u64().unwrap() as usize;
    let none: [&str; 0] = [];
    let lists: [(&[&str], &str); 4] =
        [(&["y", "z", "w"], "('y', 'z', 'w')"), (&["z", "w"], "('z', 'w')"), (&["w"], "('w',)"), (&none, "()")];
    for (names, key) in lists {
        let only = Policy::names(names.iter().copied());
        assert_eq!(saved(only).unwrap(), recorded(&format!("save_only_these_names{key}")));
        let but = Policy::any_names_but(names.iter().copied());
        assert_eq!(saved(but).unwrap(), recorded(&format!("save_any_names_but_these{key}")));
    }
    // JAX saves nothing for a name that does not exist and says nothing. Ours is an error that proposes the right one.
    let typo = saved(Policy::names(["zz"])).unwrap_err().to_string();
    assert!(typo.contains("mentions the name `zz`, which no value in the region has; did you mean `z`?"), "{typo}");
    // JAX's `save_anything_except_these_names` saves all four values, the three excepted ones too. Ours does not.
    assert_eq!(recorded("save_anything_except_these_names(y,z,w)"), 4);
    let f = checkpoint(Policy::anything_but(["y", "z", "w"]), product);
    let residuals = saved_residuals(|x: &Tensor| f(x), &case.input("x")).unwrap();
    assert!(residuals.iter().all(|r| !matches!(r.kind, SavedKind::Named(_))), "{residuals}");
    // An excepted value is not kept without its name either, under any policy that says so.
    for policy in [Policy::anything_but(["y"]), Policy::names(["y"]).not()] {
        let f = checkpoint(policy, |x: &Tensor| {
            let y = x.sin().named("y");
            (&y * &y).exp()
        });
        let kinds: Vec<String> =
            saved_residuals(f, &Tensor::from(1.0f32)).unwrap().iter().map(|r| r.kind.to_string()).collect();
        assert_eq!(kinds, ["from the argument", "output of cos", "output of exp"]);
    }
    // What another part of the policy keeps stays kept.
    let either = Policy::Dots.or(Policy::any_names_but(["y"]));
    let f = checkpoint(either, |x: &Tensor| x.matmul(x).named("y").sin());
    assert_eq!(saved_residuals(f, &Tensor::eye(2, DType::F32)).unwrap().intermediates().count(), 1);
}

#[derive(Clone, Tree)]
struct Nested {
    x: (Tensor, Tensor),
    y: Tensor,
}

fn nested_args() -> Nested {
    let scalar = |value: f32| Tensor::from(value);
    Nested { x: (scalar(2.0), scalar(3.0)), y: scalar(4.0) }
}

fn fu(a: &Nested, constant: &Tensor) -> Tensor {
    let z = Tensor::from(3.0f32).sin().named("z");
    z.clone() * ((&a.x.0 * &a.x.1) * &a.y).broadcast_to([1]) * constant
}

#[test]
fn saved_residuals_utility() {
    let case = Case::of("saved_residuals_utility");
    let constant = Tensor::new([3.0f32]);
    let residuals = saved_residuals(|a: &Nested| fu(a, &constant), &nested_args()).unwrap();
    assert_not_longer(&residuals, &case.expected()["residuals"]);
    let kinds: Vec<String> = residuals.iter().map(|r| format!("{} {}", r.aval, r.kind)).collect();
    // JAX keeps `x[0] x[1]` too, which is cheap to compute from the two.
    let expected = [
        "f32[1] from a constant",
        "f32[] from the argument x.0",
        "f32[] from the argument x.1",
        "f32[] from the argument y",
        "f32[] named 'z'",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn saved_residuals_utility_jit() {
    let case = Case::of("saved_residuals_utility_jit");
    let constant = Tensor::new([3.0f32]);
    let options = JitOptions { name: Some("fu".into()), ..JitOptions::default() };
    let jitted = jit_with(&options, |a: &Nested| fu(a, &constant));
    let residuals = saved_residuals(|a: &Nested| jitted.call(a.clone()), &nested_args()).unwrap();
    assert_not_longer(&residuals, &case.expected()["residuals"]);
    // JAX: "output of jitted function 'fu'". Ours says what it is, and that it comes out of `fu`.
    let z = residuals.intermediates().next().unwrap();
    assert_eq!((&z.kind, &z.through[..]), (&SavedKind::Named("z".into()), &[Through::Jit("fu".into())][..]));
    assert_eq!(residuals.intermediates().count(), 1);
}

#[derive(Clone, Tree)]
struct Layer {
    w: Tensor,
    x: Tensor,
}

#[test]
fn nested_policy_matrix() {
    let case = Case::of("nested_policy_matrix");
    let policies = [
        ("none", Policy::Nothing),
        ("everything", Policy::Everything),
        ("dots", Policy::Dots),
        ("names", Policy::names(["n"])),
    ];
    let layer = Layer { w: case.input("W"), x: case.input("x") };
    let plain = run(|l: &Layer| l.w.matmul(&l.x).sin().named("n").sin().cos(), &layer);
    for (outer_name, outer) in &policies {
        for (inner_name, inner) in &policies {
            let inner = checkpoint(inner.clone(), |l: &Layer| l.w.matmul(&l.x).sin().named("n").sin());
            let outer = checkpoint(outer.clone(), |l: &Layer| inner(l).cos());
            let run = run(|l: &Layer| outer(l), &layer);
            let key = format!("outer={outer_name},inner={inner_name}");
            println!("{key}\n{}", run.residuals);
            let recorded = &case.expected()[&key];
            let avals: Vec<String> = run.residuals.iter().map(|r| r.aval.to_string()).collect();
            let theirs: Vec<&str> = recorded["avals"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
            assert_eq!(avals, theirs, "{key}\n{}", run.residuals);
            // A region inside one that saves everything needs no call of its own in the forward pass. JAX keeps the call.
            let is_spliced = *outer_name == "everything";
            let forward = COUNTED.iter().copied().filter(|op| !(is_spliced && *op == "checkpoint"));
            run.forward.assert_equal(&recorded["fwd"], &forward.collect::<Vec<_>>());
            run.backward.assert_equal(&recorded["bwd"], COUNTED);
            for (grad, expected) in run.grads.iter().zip(&plain.grads) {
                assert_eq!(grad.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{key}");
            }
        }
    }
}

/// The transfers in a program and its bodies: to the host, to the device.
fn transfers(jaxpr: &Jaxpr) -> (u64, u64) {
    let (mut to_host, mut to_device) = (0, 0);
    for eqn in &jaxpr.eqns {
        match &eqn.op {
            Op::Prim(Prim::DevicePut(put)) if put.memory == MemorySpace::Host => to_host += 1,
            Op::Prim(Prim::DevicePut(_)) => to_device += 1,
            op => {
                for body in op.bodies() {
                    let (host, device) = transfers(body);
                    to_host += host;
                    to_device += device;
                }
            }
        }
    }
    (to_host, to_device)
}

#[track_caller]
fn assert_transfers<R: remat::tree::Output>(case: Case, key: &str, f: impl Fn(&Tensor) -> R, x: &Tensor) {
    let recorded = &case.expected()[key];
    let programs = fwd_bwd(&f, x).unwrap();
    assert_eq!(Some(transfers(&programs.forward).0), recorded["to_host"].as_u64());
    assert_eq!(Some(transfers(&programs.backward).1), recorded["to_device"].as_u64());
    let residuals = saved_residuals(&f, x).unwrap();
    let hosted: Vec<String> =
        residuals.iter().filter(|r| r.aval.memory == MemorySpace::Host).map(|r| r.aval.to_string()).collect();
    assert_eq!(Some(hosted.len() as u64), recorded["to_host"].as_u64());
    let theirs = recorded["host_avals"].as_array().unwrap();
    assert!(hosted.iter().all(|aval| theirs.iter().any(|t| t == aval)), "{hosted:?}");
}

#[test]
fn offload_policies_trace() {
    let case = Case::of("offload_policies_trace");
    let x = case.input("x");
    let policy = Policy::save_and_offload_names(["y"], ["z", "w"]);
    let chain = |x: &Tensor| x.sin().named("y").sin().named("z").sin().named("w").sin();
    let f = checkpoint(policy.clone(), move |x: &Tensor| chain(x).sum(..));
    assert_transfers(case, "names", &f, &x);
    assert_residuals(&run(&f, &x).residuals, &case.expected()["residuals_names"]);
    // JAX: "output of device_put from ", without a place.
    let residuals = saved_residuals(&f, &x).unwrap();
    let named: Vec<String> = residuals.iter().map(|r| r.kind.to_string()).collect();
    assert_eq!(named, ["from the argument", "named 'y'", "named 'z'", "named 'w'"]);

    let looped = checkpoint(policy, move |x: &Tensor| -> Result<Tensor> {
        let options = ScanOptions { length: Some(3), ..ScanOptions::default() };
        Ok(scan_with(&options, |c: &Tensor, _: &()| (chain(c), ()), x, &())?.0.sum(..))
    });
    assert_transfers(case, "names_in_scan", looped, &x);
    let dot = checkpoint(Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host), |x: &Tensor| x.matmul(x).sin().sum(..));
    assert_transfers(case, "dots", dot, &Tensor::full([4, 4], 0.5f32, DType::F32));

    // A name in both lists is an error, as in JAX.
    let both = checkpoint(Policy::save_and_offload_names(["y"], ["y"]), move |x: &Tensor| x.sin().named("y"));
    let error = saved_residuals(both, &x).unwrap_err().to_string();
    assert!(error.contains("both saves and offloads `y`"), "{error}");
}
