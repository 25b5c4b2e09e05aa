//! Functions with derivatives of their own: in every composition, calling themselves, and nested deeply.

use std::cell::Cell;
use std::time::{Duration, Instant};

use remat::ir::{Call, Jaxpr, Op};
use remat::report::{fwd_bwd, saved_residuals};
use remat::{
    Policy, Tensor, checkpoint, checkpoint_layers, cond, custom_jvp, custom_vjp, eval_shape, grad, hessian, jacfwd,
    jacrev, jit, jvp, linearize, make_jaxpr, map, named_scope, scan, transform, value_and_grad, vjp, vmap,
    while_loop_checkpointed,
};

use crate::close::{close, f, vector};

/// The values of derivatives of orders 0, 1, 2 and 3 at a scalar.
#[track_caller]
fn derivatives(f: impl Fn(&Tensor) -> Tensor, x: f64, expected: [f64; 4]) {
    let x = Tensor::from(x);
    let second = |x: &Tensor| grad(grad(&f))(x);
    close(&f(&x), &Tensor::from(expected[0]));
    close(&grad(&f)(&x).unwrap(), &Tensor::from(expected[1]));
    close(&second(&x).unwrap(), &Tensor::from(expected[2]));
    close(&grad(second)(&x).unwrap(), &Tensor::from(expected[3]));
    close(&jit(grad(second)).call(x).unwrap(), &Tensor::from(expected[3]));
}

/// sin, whose derivative is said to be 2 cos: the rule calls the function, as JAX's documentation writes rules.
fn sin2(x: &Tensor) -> Tensor {
    custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (sin2(x), x.cos() * t * 2.0))(x)
}

/// exp, whose derivative is said to be twice the function.
fn exp2(x: &Tensor) -> Tensor {
    let rule = |x: &Tensor, t: &Tensor| {
        let y = exp2(x);
        (y.clone(), y * t * 2.0)
    };
    custom_jvp(|x: &Tensor| x.exp(), rule)(x)
}

/// The same with a reverse rule.
fn exp2_reverse(x: &Tensor) -> Tensor {
    let forward = |x: &Tensor| {
        let y = exp2_reverse(x);
        (y.clone(), y)
    };
    custom_vjp(|x: &Tensor| x.exp(), forward, |y: &Tensor, ct: &Tensor| y * ct * 2.0)(x)
}

#[test]
fn a_rule_may_call_its_own_function() {
    derivatives(sin2, 0.5, [0.5f64.sin(), 2.0 * 0.5f64.cos(), -2.0 * 0.5f64.sin(), -2.0 * 0.5f64.cos()]);
    // Every derivative is that of the rule, as in JAX, and not that of the function that was computed.
    derivatives(exp2, 0.0, [1.0, 2.0, 4.0, 8.0]);
    derivatives(exp2_reverse, 0.0, [1.0, 2.0, 4.0, 8.0]);
}

#[test]
fn a_rule_that_calls_its_function_composes() {
    let x = vector(3, 0.9);
    let first = x.exp() * 2.0;
    let second = x.exp() * 4.0;
    for exp2 in [exp2, exp2_reverse] {
        let sum = |x: &Tensor| exp2(x).sum(..);
        close(&grad(sum)(&x).unwrap(), &first);
        close(&jit(grad(sum)).call(x.clone()).unwrap(), &first);
        close(&vmap(grad(exp2))(&x).unwrap(), &first);
        close(&vmap(grad(grad(exp2)))(&x).unwrap(), &second);
        close(&grad(|x: &Tensor| Ok(vmap(exp2)(x)?.sum(..)))(&x).unwrap(), &first);
        close(&vmap(|x: &Tensor| grad(|x: &Tensor| grad(exp2)(x))(x))(&x).unwrap(), &second);
        close(&jacrev(exp2)(&x).unwrap().sum(0), &first);
        let in_scan = |x: &Tensor| Ok(scan(|(): &(), x: &Tensor| ((), exp2(x)), &(), x)?.1.sum(..));
        close(&grad(in_scan)(&x).unwrap(), &first);
        close(&grad(|x: &Tensor| Ok(grad(in_scan)(x)?.sum(..)))(&x).unwrap(), &second);
        let branch = |x: &Tensor| cond(&x.gt(-9.0), exp2, |x: &Tensor| x.clone(), x);
        close(&vmap(grad(branch))(&x).unwrap(), &first);
        for policy in [Policy::Nothing, Policy::Everything] {
            let region = checkpoint(policy, sum);
            close(&grad(|x: &Tensor| region(x))(&x).unwrap(), &first);
            close(&grad(|x: &Tensor| Ok(grad(|x: &Tensor| region(x))(x)?.sum(..)))(&x).unwrap(), &second);
        }
        let (_, pullback) = vjp(sum, &x).unwrap();
        close(&pullback.call(&f(1.0)).unwrap(), &first);
        assert_eq!(eval_shape(exp2)(&x).unwrap().aval().unwrap(), x.aval().unwrap());
        assert_eq!(saved_residuals(sum, &x).unwrap().iter().count(), 1);
        fwd_bwd(sum, &x).unwrap();
    }
    close(&jvp(exp2, &x, &x.ones_like()).unwrap().1, &first);
    close(&linearize(exp2, &x).unwrap().1.call(&x.ones_like()).unwrap(), &first);
    close(&jacfwd(exp2)(&x).unwrap().sum(0), &first);
    close(&hessian(|x: &Tensor| exp2(x).sum(..))(&x).unwrap().sum(0), &second);
    let tangent = |x: &Tensor| Ok(jvp(exp2, x, &x.ones_like())?.1);
    close(&jvp(tangent, &x, &x.ones_like()).unwrap().1, &second);
}

#[test]
fn rules_in_loops_that_keep_some_states() {
    let x = f(0.1);
    let halving = |x: &Tensor| while_loop_checkpointed(2, |x: &Tensor| x.lt(2.0), |x: &Tensor| exp2(&(x * 0.7)), x);
    let mut expected = (0.1, 1.0);
    while expected.0 < 2.0 {
        let y = (expected.0 * 0.7f64).exp();
        expected = (y, expected.1 * 0.7 * 2.0 * y);
    }
    let (y, dx) = value_and_grad(halving)(&x).unwrap();
    close(&y, &f(expected.0));
    close(&dx, &f(expected.1));
    assert_eq!(eval_shape(halving)(&x).unwrap().aval().unwrap(), y.aval().unwrap());
}

/// The pullback of a function whose backward rule calls a custom function is a function of the cotangent, and can be
/// differentiated in turn.
#[test]
fn pullbacks_are_differentiated() {
    let square =
        |ct: &Tensor| custom_jvp(|x: &Tensor| x.square(), |x: &Tensor, t: &Tensor| (x.square(), x * t * 6.0))(ct);
    let odd = custom_vjp(|x: &Tensor| x.clone(), |x: &Tensor| (x.clone(), ()), move |(): &(), ct: &Tensor| square(ct));
    let (_, pullback) = vjp(|x: &Tensor| odd(x), &f(1.0)).unwrap();
    close(&grad(|ct: &Tensor| pullback.call(ct))(&f(0.5)).unwrap(), &f(3.0));
}

#[test]
fn functions_are_cached_for_each_order_if_they_call_custom_ones() {
    let plain = jit(|x: &Tensor| x.exp());
    let custom = jit(exp2);
    for _ in 0..2 {
        let call = |x: &Tensor| custom.call(x.clone());
        close(&call(&f(0.0)).unwrap(), &f(1.0));
        close(&grad(call)(&f(0.0)).unwrap(), &f(2.0));
        close(&grad(grad(call))(&f(0.0)).unwrap(), &f(4.0));
        let call = |x: &Tensor| plain.call(x.clone());
        close(&grad(grad(call))(&f(0.0)).unwrap(), &call(&f(0.0)).unwrap());
    }
    assert_eq!((plain.cache_size(), custom.cache_size()), (1, 3));
}

/// The custom operations of a program and of the bodies of its functions, each with whether it has a rule.
fn rules(jaxpr: &Jaxpr) -> Vec<bool> {
    let rule = |op: &Op| match op {
        Op::Call(Call::CustomJvp(op)) => Some((op.jvp.is_some(), rules(&op.call))),
        Op::Call(Call::CustomVjp(op)) => Some((op.rule.is_some(), rules(&op.call))),
        _ => None,
    };
    jaxpr.eqns.iter().filter_map(|eqn| rule(&eqn.op)).flat_map(|(has, inner)| [vec![has], inner].concat()).collect()
}

#[test]
fn rules_are_in_programs_that_are_to_be_differentiated() {
    let x = f(0.5);
    let twice = |x: &Tensor| custom_jvp(exp2, |x: &Tensor, t: &Tensor| (exp2(x), exp2(x) * t))(x);
    assert_eq!(rules(&make_jaxpr(twice)(&x).unwrap().jaxpr), [true, false]);
    assert_eq!(rules(&make_jaxpr(grad(twice))(&x).unwrap().jaxpr), [true, true]);
    assert_eq!(rules(&jit(twice).jaxpr(&x).unwrap()), [false, false]);
    // A program without the rules is as good as any for everything but derivatives.
    let program = jit(exp2).jaxpr(&x).unwrap();
    assert_eq!(program.to_string().parse::<Jaxpr>().unwrap(), *program);
    assert_eq!(transform::vmap(&program, 3, &[true], &[true]).unwrap().jaxpr.out_avals()[0].shape[..], [3]);
    for (f, operation) in [(exp2 as fn(&Tensor) -> Tensor, "custom_jvp"), (exp2_reverse, "custom_vjp")] {
        let error = transform::jvp(&jit(f).jaxpr(&x).unwrap(), &[true], &[true]).unwrap_err();
        assert!(error.message().starts_with("the rule of `exp2"), "{error}");
        assert_eq!(error.operation(), operation);
    }
}

/// sin, with a value of this name in its rule only.
fn named_in_rule(name: &'static str) -> impl Fn(&Tensor) -> Tensor {
    custom_jvp(|x: &Tensor| x.sin(), move |x: &Tensor, t: &Tensor| (x.sin(), x.cos().named(name) * t))
}

/// A policy may name what only the rule of a custom function has, wherever the function is called.
#[test]
fn names_in_rules_are_known_to_plain_calls() {
    let x = f(0.5);
    let forward = |x: &Tensor| (x.sin(), x.cos().named("slope"));
    let reverse = custom_vjp(|x: &Tensor| x.sin(), forward, |slope: &Tensor, ct: &Tensor| slope * ct);
    let scoped = |x: &Tensor| named_scope("layer", || named_in_rule("slope")(x));
    let policy = || Policy::names(["slope"]);
    let regions: [Box<dyn Fn(&Tensor) -> Tensor>; 5] = [
        Box::new(checkpoint(policy(), named_in_rule("slope"))),
        Box::new(checkpoint(policy(), reverse)),
        Box::new(checkpoint_layers("layer", policy(), scoped)),
        Box::new(checkpoint(policy(), jit_of(named_in_rule("slope")))),
        // A rule of a rule.
        Box::new(checkpoint(policy(), |x: &Tensor| {
            let slope = named_in_rule("slope");
            custom_jvp(|x: &Tensor| x.sin(), move |x: &Tensor, t: &Tensor| (slope(x), x.cos() * t))(x)
        })),
    ];
    for region in &regions {
        close(&region(&x), &x.sin());
        close(&jit(|x: &Tensor| region(x)).call(x.clone()).unwrap(), &x.sin());
        close(&grad(|x: &Tensor| region(x))(&x).unwrap(), &x.cos());
        close(&vmap(|x: &Tensor| region(x))(&vector(3, 0.9)).unwrap(), &vector(3, 0.9).sin());
    }
}

fn jit_of(f: impl Fn(&Tensor) -> Tensor) -> impl Fn(&Tensor) -> Tensor {
    let f = jit(f);
    move |x| f.call(x.clone()).unwrap()
}

/// Without a rule in the program a typo is found all the same, also if a function calls itself in its rule.
#[test]
fn typos_are_found_where_rules_are_not_traced() {
    let message = |f: &dyn Fn(&Tensor) -> Tensor| {
        let region = checkpoint(Policy::names(["slop"]), |x: &Tensor| f(x));
        region(&vector(2, 0.9)).aval().unwrap_err().to_string()
    };
    let error = message(&named_in_rule("slope"));
    assert!(error.contains("no value in the region has; did you mean `slope`?"), "{error}");
    for f in [sin2, exp2, exp2_reverse] {
        assert!(message(&f).contains("no value in it has a name"), "{}", message(&f));
    }
    assert!(message(&|x: &Tensor| tower(200, x)).contains("no value in it has a name"));
}

/// The names of an inner region are those of the outer one, and nothing is traced for them again.
#[test]
fn names_in_rules_of_nested_regions_take_linear_time() {
    fn nested(depth: usize, traced: &Cell<usize>, x: &Tensor) -> Tensor {
        traced.set(traced.get() + 1);
        let Some(below) = depth.checked_sub(1) else { return named_in_rule("slope")(x) };
        checkpoint(Policy::names(["slope"]), |x: &Tensor| nested(below, traced, x))(x)
    }
    let traced = Cell::new(0);
    close(&nested(100, &traced, &f(0.5)), &f(0.5f64.sin()));
    assert!(traced.get() < 110, "{} for 101 functions", traced.get());
}

/// A tower of functions, each with a rule that calls the function below.
fn tower(depth: usize, x: &Tensor) -> Tensor {
    let Some(below) = depth.checked_sub(1) else { return x.sin() };
    let forward = |x: &Tensor| (tower(below, x), x.clone());
    custom_vjp(|x: &Tensor| tower(below, x), forward, |x: &Tensor, ct: &Tensor| x.cos() * ct)(x)
}

#[test]
fn nested_rules_take_linear_time() {
    let start = Instant::now();
    let x = f(0.3);
    let high = |x: &Tensor| tower(100, x);
    close(&high(&x), &x.sin());
    close(&jit(high).call(x.clone()).unwrap(), &x.sin());
    close(&grad(high)(&x).unwrap(), &x.cos());
    close(&grad(grad(high))(&x).unwrap(), &-x.sin());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_function_with_a_forward_rule_composes() {
    // The rule is twice the derivative, so that it can be told from it.
    let double_sin = custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (x.sin(), t * x.cos() * 2.0));
    let x = vector(3, 0.9);
    let expected = x.cos() * 2.0;
    let sum = |x: &Tensor| double_sin(x).sum(..);
    close(&grad(sum)(&x).unwrap(), &expected);
    close(&vmap(grad(|x: &Tensor| double_sin(x)))(&x).unwrap(), &expected);
    close(&grad(|x: &Tensor| Ok(vmap(|x: &Tensor| double_sin(x))(x)?.sum(..)))(&x).unwrap(), &expected);
    close(&grad(|x: &Tensor| Ok(map(|x: &Tensor| double_sin(x), x)?.sum(..)))(&x).unwrap(), &expected);
    close(&jit(grad(sum)).call(x.clone()).unwrap(), &expected);
    for policy in [Policy::Nothing, Policy::Everything] {
        let region = checkpoint(policy, sum);
        close(&grad(|x: &Tensor| region(x))(&x).unwrap(), &expected);
    }
    close(&vmap(grad(grad(|x: &Tensor| double_sin(x))))(&x).unwrap(), &(x.sin() * -2.0));
    let thrice = vmap(grad(grad(grad(|x: &Tensor| double_sin(&double_sin(x))))))(&x).unwrap();
    let by_hand = |x: &Tensor| {
        // The first derivative has the results of the rule, which are plain.
        let first = |x: &Tensor| x.sin().cos() * x.cos() * 4.0;
        grad(grad(first))(x)
    };
    close(&thrice, &vmap(by_hand)(&x).unwrap());
}

#[test]
fn a_function_with_a_reverse_rule_composes() {
    let triple = custom_vjp(
        |x: &Tensor| x.sin(),
        |x: &Tensor| (x.sin(), x.clone()),
        |x: &Tensor, ct: &Tensor| ct * x.cos() * 3.0,
    );
    let x = vector(3, 0.9);
    let expected = x.cos() * 3.0;
    let sum = |x: &Tensor| triple(x).sum(..);
    close(&grad(sum)(&x).unwrap(), &expected);
    close(&vmap(grad(|x: &Tensor| triple(x)))(&x).unwrap(), &expected);
    close(&grad(|x: &Tensor| Ok(vmap(|x: &Tensor| triple(x))(x)?.sum(..)))(&x).unwrap(), &expected);
    close(&grad(|x: &Tensor| Ok(map(|x: &Tensor| triple(x), x)?.sum(..)))(&x).unwrap(), &expected);
    close(&jit(grad(sum)).call(x.clone()).unwrap(), &expected);
    for policy in [Policy::Nothing, Policy::Everything] {
        let region = checkpoint(policy, sum);
        close(&grad(|x: &Tensor| region(x))(&x).unwrap(), &expected);
    }
    close(&vmap(grad(grad(|x: &Tensor| triple(x))))(&x).unwrap(), &(x.sin() * -3.0));
    let branched = |x: &Tensor| cond(&x.gt(0.0), |x: &Tensor| triple(x), |x: &Tensor| x * 5.0, x);
    let by_sign = x.gt(0.0).select(&expected, x.full_like(5.0));
    close(&vmap(grad(branched))(&x).unwrap(), &by_sign);
    let error = jvp(|x: &Tensor| triple(x), &x, &x).unwrap_err().to_string();
    assert!(error.contains("has a reverse rule only (custom_vjp)"), "{error}");
}

#[test]
fn rules_that_capture_what_is_differentiated_are_errors() {
    let captured = |w: &Tensor| {
        let scaled = custom_jvp(|x: &Tensor| x * w, |x: &Tensor, t: &Tensor| (x * w, t * w));
        scaled(&f(2.0))
    };
    let error = grad(captured)(&f(3.0)).unwrap_err().to_string();
    assert!(error.contains("captures a tensor (f64[]) that is differentiated"), "{error}");
    let captured = |w: &Tensor| {
        let scaled = custom_vjp(|x: &Tensor| x * w, |x: &Tensor| (x * w, ()), |_: &(), ct: &Tensor| ct * w);
        scaled(&f(2.0))
    };
    let error = grad(captured)(&f(3.0)).unwrap_err().to_string();
    assert!(error.contains("captures a tensor (f64[]) that is differentiated"), "{error}");
    let stopped = |w: &Tensor| {
        let w = w.stop_gradient();
        let scaled = custom_jvp(|x: &Tensor| x * &w, |x: &Tensor, t: &Tensor| (x * &w, t * &w));
        scaled(&f(2.0))
    };
    assert_eq!(grad(stopped)(&f(3.0)).unwrap().item::<f64>().unwrap(), 0.0);
}
