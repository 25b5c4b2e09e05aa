//! Functions with custom rematerialization: values, what they keep, and how they nest.

use remat::argument::keep;
use remat::ir::{Decision, Jaxpr};
use remat::report::{fwd_bwd, policy_decisions, saved_residuals};
use remat::{
    DType, Device, Error, Mesh, Policy, Result, Tensor, checkpoint, checkpoint_layers, cond, custom_remat, grad,
    hessian, jacfwd, jit, jvp, named_scope, plan, scan, shard_map, spec, vjp, vmap,
};
use remat_testkit::installed;

/// Numbers from -0.5 to 0.5.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 1009.0 - 0.5;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

type Pair = (Tensor, Tensor);

/// A norm with a scale, which is never zero, that passes its result and the deviations, one number for each row. From these it computes the
/// normalised values again, so that its input is not kept.
fn norm(args: &Pair) -> Tensor {
    norm_with(|_| true)(args)
}

fn norm_with(passes: impl Fn(Option<&Policy>) -> bool) -> impl Fn(&Pair) -> Tensor {
    let normalise = |x: &Tensor| {
        let centered = x - x.mean(keep(-1));
        let deviation = (centered.square().mean(keep(-1)) + 1e-3).sqrt();
        (&centered / &deviation, deviation)
    };
    custom_remat(
        move |(x, scale): &Pair, policy: Option<&Policy>| {
            let (z, deviation) = normalise(x);
            let y = z * scale;
            let passed = passes(policy).then(|| (y.clone(), deviation));
            (y, passed)
        },
        move |(x, scale): &Pair, passed: &Option<Pair>| match passed {
            Some((y, deviation)) => (y / scale, deviation.clone(), scale.clone()),
            None => {
                let (z, deviation) = normalise(x);
                (z, deviation, scale.clone())
            }
        },
        |_, (z, deviation, scale): &(Tensor, Tensor, Tensor), ct: &Tensor| {
            let d = ct * scale;
            let dx = (&d - d.mean(keep(-1)) - z * (&d * z).mean(keep(-1))) / deviation;
            let of_scale = (ct * z).sum(0);
            (dx, of_scale)
        },
    )
}

fn plain_norm((x, scale): &Pair) -> Tensor {
    let centered = x - x.mean(keep(-1));
    &centered / (centered.square().mean(keep(-1)) + 1e-3).sqrt() * scale
}

fn args() -> Pair {
    (data(DType::F64, &[4, 6], 1), data(DType::F64, &[6], 2) + 2.0)
}

fn expect_close(found: &Pair, expected: &Pair, what: &str) {
    for (found, expected) in [(&found.0, &expected.0), (&found.1, &expected.1)] {
        assert!(found.allclose(expected, 1e-9, 1e-9).unwrap(), "{what}: {found:?}, not {expected:?}");
    }
}

fn loss(norm: impl Fn(&Pair) -> Tensor) -> impl Fn(&Pair) -> Tensor {
    move |(x, scale): &Pair| {
        let first = norm(&(x.sin(), scale.clone())).tanh();
        (norm(&(first.exp(), scale * 0.5 + 1.0)) * x).square().sum(..)
    }
}

fn policies() -> Vec<Policy> {
    vec![
        Policy::Nothing,
        Policy::Everything,
        Policy::Dots,
        Policy::Nothing.not(),
        Policy::must(Policy::Dots),
        Policy::budget(1200),
        Policy::budget(1 << 20),
        Policy::prefer(Policy::Dots).or(Policy::budget(1200)),
    ]
}

#[test]
fn values_and_gradients_are_those_of_the_plain_function() -> Result<()> {
    let args = args();
    assert!(loss(norm)(&args).allclose(&loss(plain_norm)(&args), 1e-12, 1e-12)?);
    let expected = grad(loss(plain_norm))(&args)?;
    expect_close(&grad(loss(norm))(&args)?, &expected, "op by op");
    expect_close(&jit(grad(loss(norm))).call(args.clone())?, &expected, "in one program");
    let (_, pullback) = vjp(loss(norm), &args)?;
    expect_close(&pullback.call(&Tensor::from(1.0f64))?, &expected, "apart");
    let inner = jit(|args: &Pair| norm(args));
    let jitted = |args: &Pair| inner.call(args.clone()).unwrap();
    expect_close(&grad(loss(jitted))(&args)?, &expected, "of a program");
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let small = (args.0.to_dtype(dtype), args.1.to_dtype(dtype));
        let found = grad(|args: &Pair| norm(args).sin().sum(..))(&small)?;
        let expected = grad(|args: &Pair| plain_norm(args).sin().sum(..))(&small)?;
        let tolerance = if dtype == DType::F32 { 1e-4 } else { 0.15 };
        assert!(found.0.allclose(&expected.0, tolerance, tolerance)?, "{dtype}");
    }
    // Arrays without elements.
    let empty = (Tensor::zeros([0, 6], DType::F32), Tensor::ones([6], DType::F32));
    assert_eq!(grad(|args: &Pair| norm(args).sum(..))(&empty)?.1.to_vec::<f32>()?, [0.0; 6]);
    Ok(())
}

#[test]
fn regions_do_not_change_the_gradient() -> Result<()> {
    let args = args();
    let expected = grad(loss(plain_norm))(&args)?;
    for policy in policies() {
        let around = checkpoint(policy.clone(), loss(norm));
        expect_close(&grad(|args: &Pair| around(args))(&args)?, &expected, &format!("{policy} around"));
        expect_close(&jit(grad(|args: &Pair| around(args))).call(args.clone())?, &expected, &format!("{policy}, jit"));
        let inside = loss(checkpoint(policy.clone(), norm));
        expect_close(&grad(|args: &Pair| inside(args))(&args)?, &expected, &format!("{policy} inside"));
    }
    Ok(())
}

fn kinds(f: impl Fn(&Pair) -> Tensor, args: &Pair) -> Result<Vec<String>> {
    let residuals = saved_residuals(f, args)?;
    Ok(residuals.intermediates().map(|r| format!("{} {}", r.aval, r.kind)).collect())
}

/// The norm of an intermediate value.
fn of_sine(norm: impl Fn(&Pair) -> Tensor) -> impl Fn(&Pair) -> Tensor {
    move |(x, scale): &Pair| (norm(&(x.exp().named("e"), scale.clone())) * 1.0).named("end").sum(..)
}

#[test]
fn what_is_passed_is_kept_and_nothing_else() -> Result<()> {
    let args = args();
    let passed = ["f64[4,6] output of mul", "f64[4,1] output of sqrt"];
    // The derivative of `exp` needs its value.
    let plain = kinds(of_sine(norm), &args)?;
    assert_eq!(plain, [&["f64[4,6] named 'e'"], &passed[..]].concat());
    for policy in policies() {
        let f = checkpoint(policy.clone(), of_sine(norm));
        let found = kinds(&f, &args)?;
        assert!(passed.iter().all(|p| found.iter().any(|f| f == p)), "{policy}: {found:?}");
        if policy == Policy::Nothing {
            assert_eq!(found, passed);
        }
    }
    // Without passed values all of it is computed again, from its argument.
    let whole = || norm_with(|_| false);
    assert_eq!(kinds(of_sine(whole()), &args)?, ["f64[4,6] named 'e'"]);
    let region = checkpoint(Policy::Nothing, of_sine(whole()));
    assert_eq!(kinds(&region, &args)?, [""; 0]);
    // An argument that is passed is there anyway.
    let sine = custom_remat(
        |x: &Tensor, _: Option<&Policy>| (x.sin(), x.clone()),
        |_: &Tensor, x: &Tensor| x.cos(),
        |_: &Tensor, cos: &Tensor, ct: &Tensor| ct * cos,
    );
    for policy in [None, Some(Policy::Everything), Some(Policy::Nothing), Some(Policy::budget(0))] {
        let f = checkpoint(policy.clone(), |x: &Tensor| sine(x).sum(..));
        let residuals = saved_residuals(|x: &Tensor| f(x), &args.0)?;
        assert_eq!((residuals.iter().len(), residuals.intermediate_bytes()), (1, 0), "{policy:?}: {residuals}");
    }
    Ok(())
}

#[test]
fn it_sees_the_policy() -> Result<()> {
    let args = args();
    let frugal = || norm_with(|policy| policy.is_none_or(|policy| *policy != Policy::Nothing));
    let count = |policy: Option<Policy>| -> Result<usize> {
        let f = checkpoint(policy, of_sine(frugal()));
        Ok(kinds(&f, &args)?.iter().filter(|kind| !kind.contains("'e'")).count())
    };
    assert_eq!((count(None)?, count(Some(Policy::Dots))?, count(Some(Policy::Nothing))?), (2, 2, 0));
    // The outermost region decides; one outside of the derivative does not.
    let nested = checkpoint(Policy::Nothing, checkpoint(Policy::Dots, of_sine(frugal())));
    assert_eq!(kinds(&nested, &args)?, [""; 0]);
    let seen = std::cell::RefCell::new(Vec::new());
    let f = || {
        norm_with(|policy| {
            seen.borrow_mut().push(policy.map(Policy::to_string));
            true
        })
    };
    let (f, g) = (checkpoint(Policy::Dots, of_sine(f())), of_sine(f()));
    let outer = checkpoint(Policy::Nothing, |args: &Pair| grad(|args: &Pair| f(args))(args).unwrap().0.sum(..));
    grad(|args: &Pair| outer(args))(&args)?;
    assert!(seen.borrow().iter().all(|policy| policy.as_deref() == Some("Dots")), "{:?}", seen.borrow());
    seen.borrow_mut().clear();
    // Selected layers are regions too, and a jitted function is traced for each policy.
    let layer = |args: &Pair| named_scope("layer", || g(args));
    grad(checkpoint_layers("layer", Policy::names(["e"]), layer))(&args)?;
    assert!(seen.borrow().iter().all(|policy| policy.as_deref() == Some("Names(e)")), "{:?}", seen.borrow());
    let jitted = jit(of_sine(frugal()));
    for (policy, expected) in [(Policy::Dots, 2), (Policy::Nothing, 0), (Policy::Dots, 2)] {
        let f = checkpoint(policy, |args: &Pair| jitted.call(args.clone()));
        assert_eq!(saved_residuals(|args: &Pair| f(args), &args)?.intermediates().count(), expected);
    }
    Ok(())
}

#[test]
fn a_budget_counts_what_is_passed() -> Result<()> {
    let args = args();
    let passed = 4 * 6 * 8 + 4 * 8;
    for more in [0, 192, 1000] {
        let f = checkpoint(Policy::budget(passed + more), of_sine(norm));
        let bytes = saved_residuals(|args: &Pair| f(args), &args)?.intermediate_bytes();
        assert!((passed..=passed + more).contains(&bytes), "{bytes}");
    }
    let f = checkpoint(Policy::budget(passed - 1), of_sine(norm));
    let error = grad(|args: &Pair| f(args))(&args).unwrap_err();
    assert_eq!(
        error.message(),
        "what functions with custom rematerialization pass takes 224 B, which is more than Budget(223) allows"
    );
    assert!(error.loc().and_then(|loc| loc.site).is_some_and(|site| site.file().ends_with("custom_remat.rs")));
    let f = checkpoint(Policy::must(Policy::names(["e"])).or(Policy::budget(300)), of_sine(norm));
    let message = grad(|args: &Pair| f(args))(&args).unwrap_err();
    assert_eq!(
        message.message(),
        "what Must(Names(e)) saves and what functions with custom rematerialization pass takes 416 B, which is more than \
         Budget(300) allows"
    );
    Ok(())
}

#[test]
fn decisions_and_programs_show_what_is_passed() -> Result<()> {
    let args = args();
    let f = checkpoint(Policy::Nothing, of_sine(norm));
    let decisions = policy_decisions(|args: &Pair| f(args), &args)?;
    let passed: Vec<_> = decisions.iter().filter(|d| d.decision == Decision::Save).collect();
    let lines: Vec<String> = passed.iter().map(|d| d.to_string().replace(&d.loc.to_string(), "HERE")).collect();
    let line = |shape: &str| {
        format!(
            "save f64{shape} output of custom_remat from HERE: kept, passed to the backward pass by its custom rematerialization"
        )
    };
    assert_eq!(lines, [line("[4,6]"), line("[4,1]")]);
    let programs = fwd_bwd(|args: &Pair| f(args), &args)?;
    assert_eq!(programs.forward.to_string().matches("name[keep=planner name=\"\"]").count(), 2);
    // It is computed again behind the barrier of a region, not before the cotangent is there.
    assert_eq!(programs.backward.to_string().matches("differentiated=True").count(), 2);
    let text = remat::make_jaxpr(|args: &Pair| grad(|args: &Pair| f(args))(args))(&args)?.to_string();
    assert_eq!(text.parse::<Jaxpr>()?.to_string(), text);
    Ok(())
}

#[test]
fn derivatives_of_derivatives() -> Result<()> {
    let args = args();
    let twice = |f: fn(&Pair) -> Tensor, policy: Option<Policy>| {
        move |args: &Pair| {
            let region = checkpoint(policy.clone(), |args: &Pair| f(args).square().sin().sum(..));
            let (x, scale) = grad(|args: &Pair| region(args))(args)?;
            Ok::<_, Error>(x.square().sum(..) + scale.sin().sum(..))
        }
    };
    let expected = grad(twice(plain_norm, None))(&args)?;
    for policy in [None].into_iter().chain(policies().into_iter().map(Some)) {
        expect_close(&grad(twice(norm, policy.clone()))(&args)?, &expected, &format!("{policy:?}"));
        let outer = checkpoint(policy.clone(), twice(norm, None));
        expect_close(&grad(|args: &Pair| outer(args))(&args)?, &expected, &format!("{policy:?} around"));
    }
    // Forward over reverse.
    let exp = custom_remat(
        |x: &Tensor, _: Option<&Policy>| (x.exp(), x.exp()),
        |_: &Tensor, _: &Tensor| (),
        |y: &Tensor, _: &(), ct: &Tensor| ct * y,
    );
    let x = data(DType::F64, &[3], 5);
    let found = hessian(|x: &Tensor| exp(x).sum(..))(&x)?;
    assert!(found.allclose(&hessian(|x: &Tensor| x.exp().sum(..))(&x)?, 1e-12, 1e-12)?);
    Ok(())
}

#[test]
fn loops_branches_and_batches() -> Result<()> {
    let args = args();
    let xs = data(DType::F64, &[5, 4, 6], 3);
    let looped = |norm: fn(&Pair) -> Tensor, policy: Option<Policy>| {
        let xs = xs.clone();
        move |(x, scale): &Pair| {
            let body = checkpoint(policy.clone(), |(c, x): &Pair| (norm(&(c + x, scale.clone())) + c).tanh());
            let (last, ()) = scan(|c: &Tensor, x: &Tensor| (body(&(c.clone(), x.clone())), ()), x, &xs)?;
            Ok::<_, Error>(last.square().sum(..))
        }
    };
    let expected = grad(looped(plain_norm, None))(&args)?;
    for policy in [None].into_iter().chain(policies().into_iter().map(Some)) {
        expect_close(&grad(looped(norm, policy.clone()))(&args)?, &expected, &format!("{policy:?} in a loop"));
        let around = checkpoint(policy.clone(), looped(norm, None));
        expect_close(
            &jit(grad(|args: &Pair| around(args))).call(args.clone())?,
            &expected,
            &format!("{policy:?} around"),
        );
    }
    let branch = |norm: fn(&Pair) -> Tensor| {
        move |args: &Pair| {
            let y = cond(&args.0.sum(..).lt(10.0), |args: &Pair| norm(args), |args: &Pair| args.0.sin(), args)?;
            Ok::<_, Error>(y.square().sin().sum(..))
        }
    };
    let expected = grad(branch(plain_norm))(&args)?;
    expect_close(&grad(branch(norm))(&args)?, &expected, "branch");
    let in_region = checkpoint(Policy::Nothing, branch(norm));
    expect_close(&grad(|args: &Pair| in_region(args))(&args)?, &expected, "branch in a region");

    let batch = |norm: fn(&Pair) -> Tensor| {
        let xs = xs.clone();
        move |(_, scale): &Pair| {
            let all = vmap(|x: &Tensor| checkpoint(Policy::Nothing, norm)(&(x.sin(), scale.clone())))(&xs)?;
            Ok::<_, Error>(all.square().sin().sum(..))
        }
    };
    expect_close(&grad(batch(norm))(&args)?, &grad(batch(plain_norm))(&args)?, "batch with one scale");
    let each = |norm: fn(&Pair) -> Tensor| {
        vmap(move |x: &Tensor| {
            grad(|args: &Pair| norm(args).sin().sum(..))(&(x.clone(), Tensor::ones([6], DType::F64) * 1.5))
        })(&xs)
    };
    expect_close(&each(norm)?, &each(plain_norm)?, "batch of gradients");
    Ok(())
}

#[test]
fn on_the_devices_of_a_mesh() -> Result<()> {
    let args = args();
    let mesh = Mesh::new([("x", 2)])?;
    let on = |norm: fn(&Pair) -> Tensor, policy: Policy| {
        let mapped = shard_map(&mesh, (spec!["x"], spec![]), spec![], move |args: &Pair| {
            checkpoint(policy.clone(), norm)(args).square().sin().sum(..).psum("x")
        });
        move |args: &Pair| mapped(args)
    };
    let expected = grad(on(plain_norm, Policy::Everything))(&args)?;
    for policy in [Policy::Everything, Policy::Nothing, Policy::budget(1 << 10)] {
        expect_close(&grad(on(norm, policy.clone()))(&args)?, &expected, &format!("{policy}"));
        let around = checkpoint(policy.clone(), on(norm, Policy::Everything));
        expect_close(&grad(|args: &Pair| around(args))(&args)?, &expected, &format!("{policy} around"));
    }
    Ok(())
}

#[test]
fn the_engine_needs_less_memory() -> Result<()> {
    // Of each layer the backward pass needs a product, of 64 KiB, which the engine does not compute again on its own.
    let again = custom_remat(
        |(x, w): &Pair, _: Option<&Policy>| (x.matmul(w).square().matmul(w), ()),
        |(x, w): &Pair, (): &()| (x.matmul(w), x.clone(), w.clone()),
        |(): &(), (h, x, w): &(Tensor, Tensor, Tensor), ct: &Tensor| {
            let dh = ct.matmul(&w.t()) * h * 2.0;
            (dh.matmul(&w.t()), x.t().matmul(&dh) + h.square().t().matmul(ct))
        },
    );
    let plain = |(x, w): &Pair| x.matmul(w).square().matmul(w);
    let args = || (Tensor::ones([256, 64], DType::F32), Tensor::eye(64, DType::F32));
    let layers = |f: &dyn Fn(&Pair) -> Tensor, (x, w): &Pair| {
        (0..12).fold(x.clone(), |x, _| f(&(x, w.clone()))).square().sum(..)
    };
    let peak = |f: &dyn Fn(&Pair) -> Tensor| Ok::<_, Error>(plan(grad(|args: &Pair| layers(f, args)), args())?.peak());
    let kept = |f: &dyn Fn(&Pair) -> Tensor| {
        Ok::<_, Error>(saved_residuals(|args: &Pair| layers(f, args), &args())?.intermediate_bytes())
    };
    let one = 256 * 64 * 4;
    assert_eq!((kept(&plain)?, kept(&again)?), (24 * one, 12 * one));
    let (of_plain, of_again) = (peak(&plain)?, peak(&again)?);
    assert!(of_again + 9 * one < of_plain, "{of_again} and {of_plain}");
    let found = jit(grad(|args: &Pair| layers(&again, args))).call(args())?;
    let expected = grad(|args: &Pair| layers(&plain, args))(&args())?;
    assert!(found.0.allclose(&expected.0, 1e-4, 1e-4)? && found.1.allclose(&expected.1, 1e-4, 1e-4)?);
    Ok(())
}

#[test]
fn on_xla() -> Result<()> {
    let Some(device) = installed("custom_remat on XLA", Device::xla_cpu(0)) else { return Ok(()) };
    let args = args();
    let expected = grad(loss(plain_norm))(&args)?;
    for policy in [Policy::Everything, Policy::Nothing] {
        let f = checkpoint(policy.clone(), loss(norm));
        let there = (args.0.to_device(&device), args.1.to_device(&device));
        let found = jit(grad(|args: &Pair| f(args))).call(there)?;
        assert!(found.0.allclose(&expected.0, 1e-6, 1e-6)?, "{policy}");
    }
    Ok(())
}

type Backward = fn(&Tensor, &Tensor, &Tensor) -> Vec<Tensor>;

/// A product of a list of two with a wrong rule.
fn wrong(backward: Backward) -> impl Fn(&Vec<Tensor>) -> Tensor {
    custom_remat(
        |xs: &Vec<Tensor>, _: Option<&Policy>| (&xs[0] * &xs[1], xs[0].clone()),
        |xs: &Vec<Tensor>, _: &Tensor| xs[1].clone(),
        backward,
    )
}

#[test]
fn mistakes_are_errors_at_the_line_of_the_function() {
    let x = || vec![data(DType::F32, &[3], 1), data(DType::F32, &[3], 2)];
    let error = |backward: Backward| {
        let line = line!() + 1;
        let f = custom_remat(
            |xs: &Vec<Tensor>, _: Option<&Policy>| (&xs[0] * &xs[1], xs[0].clone()),
            |xs: &Vec<Tensor>, _: &Tensor| xs[1].clone(),
            backward,
        );
        let error = grad(|xs: &Vec<Tensor>| f(xs).sum(..))(&x()).unwrap_err();
        assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line), "{error}");
        error.to_string().lines().next().unwrap_or_default().to_string()
    };
    assert_eq!(
        error(|a, b, ct| vec![ct * b, ct * a, ct.clone()]),
        "custom_remat: the cotangent of the backward rule has 3 leaves and must have 2"
    );
    assert_eq!(
        error(|_, b, ct| vec![ct * b]),
        "custom_remat: the cotangent of the backward rule has 1 leaf and must have 2"
    );
    assert_eq!(
        error(|a, b, ct| vec![ct * b, (ct * a).sum(..)]),
        "custom_remat: the cotangent of the backward rule is f32[] and must be f32[3]"
    );
    assert_eq!(
        error(|a, b, ct| vec![ct * b, (ct * a).to_dtype(DType::F16)]),
        "custom_remat: the cotangent of the backward rule is f16[3] and must be f32[3]"
    );
    // A failed operation of a rule is the error itself.
    let failing = error_of(|a, b, ct| vec![ct.matmul(&b.reshape([7])), a.clone()], x());
    assert!(failing.contains("reshape"), "{failing}");
    // Forward mode.
    let f = wrong(|a, b, ct| vec![ct * b, ct * a]);
    let forward = jvp(|xs: &Vec<Tensor>| f(xs), &x(), &x()).unwrap_err().to_string();
    assert!(forward.contains("forward-mode differentiation of `wrong::{closure}` is not defined"), "{forward}");
    assert!(jacfwd(|x: &Tensor| f(&vec![x.clone(), x.clone()]))(&x()[0]).is_err());
    // A captured value that is differentiated has no derivative.
    let captures = |w: &Tensor| {
        let f = custom_remat(
            |x: &Tensor, _: Option<&Policy>| (x * w, ()),
            |_: &Tensor, _: &()| w.clone(),
            |_: &(), w: &Tensor, ct: &Tensor| ct * w,
        );
        f(w).sum(..)
    };
    let message = grad(captures)(&x()[0]).unwrap_err().to_string();
    assert!(message.contains("captures a tensor (f32[3]) that is differentiated"), "{message}");
}

fn error_of(backward: Backward, x: Vec<Tensor>) -> String {
    let f = wrong(backward);
    grad(|xs: &Vec<Tensor>| f(xs).sum(..))(&x).unwrap_err().to_string()
}

#[test]
fn results_may_be_fallible() -> Result<()> {
    let f = custom_remat(
        |x: &Tensor, _: Option<&Policy>| -> (Result<Tensor>, usize) {
            (x.dim(0).map(|n| x * n as f64), x.dim(0).unwrap_or(0))
        },
        |x: &Tensor, _: &usize| x.dim(0).map(|n| Tensor::from(n as f64)),
        |_: &usize, n: &Tensor, ct: &Tensor| Ok::<_, Error>(ct * n),
    );
    let x = data(DType::F64, &[3], 1);
    assert_eq!(grad(|x: &Tensor| Ok::<_, Error>(f(x)?.sum(..)))(&x)?.to_vec::<f64>()?, [3.0; 3]);
    let message = f(&Tensor::from(1.0f64)).unwrap_err().to_string();
    assert!(message.contains("dim"), "{message}");
    Ok(())
}
