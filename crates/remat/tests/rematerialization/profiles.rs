//! Profiles: the time of each step of a run, with its line and what it is for.

use std::time::Duration;

use remat::ir::Role;
use remat::report::{Profile, ProfiledGroup, ProfiledStep};
use remat::{
    DType, Device, ErrorKind, JitOptions, Policy, ScanOptions, Tensor, checkpoint, cond, fori_loop, grad, jit,
    jit_with, named_scope, scan_with, value_and_grad,
};
use remat_testkit::installed;

fn sum(groups: &[ProfiledGroup]) -> Duration {
    groups.iter().map(|group| group.time).sum()
}

/// A loss with two products, the second in a scope.
fn loss(w: &Tensor, policy: Policy) -> impl Fn(&Tensor) -> Tensor + '_ {
    move |x| {
        let block = checkpoint(policy.clone(), |x: &Tensor| x.matmul(w).tanh());
        named_scope("head", || block(x).matmul(w).sum(..))
    }
}

#[test]
fn steps_follow_each_other_and_add_up() {
    let w = Tensor::eye(64, DType::F32);
    let step = jit(value_and_grad(loss(&w, Policy::Everything)));
    let x = Tensor::ones([512, 64], DType::F32);
    let (results, Profile { steps, total }) = step.profile(x.clone()).unwrap();
    let called = step.call(x).unwrap();
    assert_eq!(results.0.item::<f32>().unwrap(), called.0.item::<f32>().unwrap());
    assert_eq!(results.1.to_vec::<f32>().unwrap(), called.1.to_vec::<f32>().unwrap());
    assert!(!steps.is_empty());
    for pair in steps.windows(2) {
        assert!(pair[0].start + pair[0].time <= pair[1].start);
    }
    let last = steps.last().unwrap();
    assert!(last.start + last.time <= total);
    let profile = Profile { steps, total };
    for groups in [profile.by_operation(), profile.by_line(), profile.by_scope(), profile.by_role()] {
        assert_eq!(sum(&groups), profile.steps.iter().map(|step| step.time).sum());
    }
    assert!(profile.by_scope().iter().any(|group| group.name == "head"), "{profile}");
    assert!(profile.by_line().iter().any(|group| group.name.contains("profiles.rs:")), "{profile}");
    assert!(profile.to_string().contains("steps: "));
    let report = step.memory_report(&Tensor::ones([512, 64], DType::F32)).unwrap();
    let most = profile.steps.iter().map(|step| step.live).max().unwrap();
    assert!(most <= report.stats.temporaries && most > 0, "{most} and {}", report.stats.temporaries);
}

/// The price of a policy is in the role of what it computes again.
#[test]
fn what_a_policy_computes_again_has_its_own_role() {
    let w = Tensor::eye(64, DType::F32);
    let products = |policy| {
        let (_, profile) = jit(value_and_grad(loss(&w, policy))).profile(Tensor::ones([512, 64], DType::F32)).unwrap();
        let of = |role| {
            let is_product = |step: &&ProfiledStep| step.operation == "dot_general";
            profile.steps.iter().filter(is_product).filter(|step| step.loc.role == role).count()
        };
        [Role::Written, Role::Recomputed, Role::Derivative].map(of)
    };
    assert_eq!(products(Policy::Everything)[1], 0);
    let [written, recomputed, derivative] = products(Policy::Nothing);
    assert!(written >= 1 && recomputed == 1 && derivative >= 1, "{written} {recomputed} {derivative}");
}

/// The steps of a loop are those of its body, added up over the iterations, with their lines and roles; the loop has the rest. All times are
/// the time of the run.
#[test]
fn loops_are_seen_into() {
    let w = Tensor::eye(64, DType::F32);
    let scanned = |x: &Tensor| {
        let layer = checkpoint(Policy::Nothing, |x: &Tensor| named_scope("layer", || x.matmul(&w).tanh()));
        let eight = ScanOptions { length: Some(8), ..ScanOptions::default() };
        Ok(scan_with(&eight, |x: &Tensor, (): &()| (layer(x), ()), x, &())?.0.sum(..))
    };
    let x = Tensor::ones([256, 64], DType::F32);
    let step = jit(grad(scanned));
    let (gradient, profile) = step.profile(x.clone()).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), step.call(x.clone()).unwrap().to_vec::<f32>().unwrap());
    let products = |role| {
        let is_product = |step: &&ProfiledStep| step.operation == "dot_general" && step.loc.role == role;
        profile.steps.iter().filter(is_product).map(|step| step.runs).sum::<usize>()
    };
    assert_eq!([Role::Written, Role::Recomputed, Role::Derivative].map(products), [8, 8, 8], "{profile}");
    assert!(profile.by_scope().iter().any(|group| group.name.contains("layer")), "{profile}");
    let report = step.memory_report(&x).unwrap();
    let most = profile.steps.iter().map(|step| step.live).max().unwrap();
    assert!(most <= report.stats.temporaries && most > 0, "{most} and {}", report.stats.temporaries);
    // By the cost model too a loop has what its body leaves.
    let modelled = |is_wanted: fn(&ProfiledStep) -> bool| -> Duration {
        profile.steps.iter().filter(|step| is_wanted(step)).map(|step| step.modelled).sum()
    };
    let (loops, all) = (modelled(|step| step.operation == "scan"), modelled(|_| true));
    assert!(loops < all / 2, "{loops:?} of {all:?}: {profile}");

    let nested = jit(|x: &Tensor| {
        let inner = |_: &Tensor, x: &Tensor| fori_loop(0, 3, |_: &Tensor, x: &Tensor| x.matmul(&w).sin(), x);
        let x = fori_loop(0, 2, inner, x)?;
        cond(&x.sum(..).gt(-1e9), |x: &Tensor| x.matmul(&w), |x: &Tensor| x.clone(), &x)
    });
    let (_, profile) = nested.profile(x).unwrap();
    let products: Vec<usize> =
        profile.steps.iter().filter(|step| step.operation == "dot_general").map(|step| step.runs).collect();
    assert_eq!(products, [6, 1], "{profile}");
    for pair in profile.steps.windows(2) {
        assert!(pair[0].start + pair[0].time <= pair[1].start, "{profile:?}");
    }
    let all: Duration = profile.steps.iter().map(|step| step.time).sum();
    assert!(all <= profile.total && all > profile.total / 2, "{all:?} of {:?}", profile.total);
}

/// The same for what a plan computes again to stay within a limit.
#[test]
fn what_a_plan_computes_again_has_its_own_role() {
    let w = Tensor::eye(64, DType::F32);
    let f = || grad(|x: &Tensor| (0..12).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..));
    let x = Tensor::ones([256, 64], DType::F32);
    let limit = jit(f()).memory(&x).unwrap().peak / 10 * 7;
    let limited = jit_with(&JitOptions { memory_limit: Some(limit), ..JitOptions::default() }, f());
    let again = |profile: Profile| profile.steps.iter().filter(|step| step.loc.role == Role::Recomputed).count();
    assert_eq!(again(jit(f()).profile(x.clone()).unwrap().1), 0);
    assert!(again(limited.profile(x).unwrap().1) > 0);
}

#[test]
fn empty_programs_and_empty_arrays_have_profiles() {
    let (_, profile) = jit(|x: &Tensor| x.clone()).profile(Tensor::from(1.0f32)).unwrap();
    assert!(profile.steps.is_empty() && profile.to_string().starts_with(&format!("{:.3} ms in 0 steps", 0.0)));
    let (out, profile) = jit(|x: &Tensor| x.sin()).profile(Tensor::zeros([0, 3], DType::F32)).unwrap();
    assert!(profile.steps.is_empty() && out.shape().unwrap() == [0, 3]);
}

#[test]
fn what_has_no_profile_is_an_error() {
    let inner = jit(|x: &Tensor| x.sin());
    let outer = jit(|x: &Tensor| Ok(inner.profile(x.clone())?.0));
    let error = outer.call(Tensor::from(1.0f32)).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Traced, "profile"));
    let Some(device) = installed("profiles on XLA", Device::xla_cpu(0)) else { return };
    let options = JitOptions { device: Some(device), ..JitOptions::default() };
    let error = jit_with(&options, |x: &Tensor| x.sin()).profile(Tensor::from(1.0f32)).unwrap_err();
    assert_eq!(error.message(), "the engine of the program has no profiles; the native engine has");
}
