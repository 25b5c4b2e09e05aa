//! What regions keep in the odd cases: labels, inputs that are handed on, nested calls, auxiliary results.

use remat::report::saved_residuals;
use remat::{
    DType, Policy, ScanOptions, Tensor, checkpoint, cond, custom_vjp, grad, grad_aux, jit, jvp, make_jaxpr, scan_with,
    value_and_grad, vjp_aux, vmap, while_loop,
};

fn x() -> Tensor {
    Tensor::from(vec![0.5f64, -1.0, 2.0])
}

fn weights() -> Tensor {
    Tensor::arange(0.0f64..9.0).reshape([3, 3])
}

/// What is kept beside the arguments and constants, in words.
fn kept(f: impl Fn(&Tensor) -> Tensor) -> Vec<String> {
    let residuals = saved_residuals(f, &x()).unwrap();
    let lines: Vec<String> = residuals.iter().map(|r| format!("{} {}", r.aval, r.kind)).collect();
    lines.into_iter().filter(|line| !line.contains("argument") && !line.contains("constant")).collect()
}

#[test]
fn an_auxiliary_result_is_not_differentiated() {
    let (gradient, root) = grad_aux(|x: &Tensor| (x.sum(..), x.sqrt()))(&Tensor::from(vec![0.0f64, 4.0])).unwrap();
    assert_eq!(gradient.to_vec::<f64>().unwrap(), [1.0, 1.0]);
    assert_eq!(root.to_vec::<f64>().unwrap(), [0.0, 2.0]);

    let counted = |x: &Tensor| {
        let halved = while_loop(|y: &Tensor| y.gt(1.0), |y: &Tensor| y * 0.5, x)?;
        Ok((x * x, halved))
    };
    let (gradient, _) = grad_aux(counted)(&Tensor::from(8.0f64)).unwrap();
    assert_eq!(gradient.item::<f64>().unwrap(), 16.0);

    let (_, pullback, _) = vjp_aux(|x: &Tensor| (x * 2.0, x.exp()), &x()).unwrap();
    assert!(pullback.residuals().is_empty());
}

#[test]
fn a_policy_that_keeps_all_but_a_name_does_not_keep_what_has_it() {
    let w = weights();
    let f = |policy: Policy| {
        let w = w.clone();
        move |x: &Tensor| {
            let block = checkpoint(policy.clone(), |x: &Tensor| x.matmul(&w).named("b").sin().named("c").sin().sum(..));
            block(x)
        }
    };
    let without_b = ["f64[3] output of cos".to_string(), "f64[3] output of cos".to_string()];
    assert_eq!(kept(f(Policy::anything_but(["b"]))), without_b);
    assert_eq!(kept(f(Policy::names(["b", "c"]).not())).len(), 2);
    assert!(!kept(f(Policy::names(["b"]).not())).iter().any(|line| line.contains("dot_general")));
}

#[test]
fn an_input_that_a_region_returns_may_bear_a_name_later() {
    let f = |x: &Tensor| {
        let c = x.sin();
        let d = checkpoint(Policy::Nothing, |a: &Tensor| a.clone())(&c);
        let e = &d * &d;
        let n = c.named("foo");
        (e * n).sum(..)
    };
    let gradient = grad(f)(&x()).unwrap().to_vec::<f64>().unwrap();
    for (g, x) in gradient.iter().zip([0.5f64, -1.0, 2.0]) {
        assert!((g - 3.0 * x.sin().powi(2) * x.cos()).abs() < 1e-12);
    }
}

#[test]
fn a_name_on_the_input_of_a_nested_call_is_kept() {
    let inner = jit(|h: &Tensor| Ok(h.named("h").sin()));
    let f = checkpoint(Policy::names(["h"]), |x: &Tensor| {
        let y: remat::Result<Tensor> = inner.call(x.sin());
        y.map(|y| y.sum(..))
    });
    let residuals = saved_residuals(|x: &Tensor| f(x), &x()).unwrap();
    let names: Vec<String> = residuals.iter().map(|r| r.kind.to_string()).filter(|k| k.contains('h')).collect();
    assert!(names.iter().any(|k| k == "named 'h'"), "{residuals}");
}

#[test]
fn what_a_nested_call_hands_on_is_recomputed() {
    let inner = jit(|(a, b): &(Tensor, Tensor)| (a.clone(), b.clone()));
    let f = checkpoint(Policy::Nothing, |x: &Tensor| {
        let h = x.sin();
        let (o, _) = inner.call((h.clone(), h))?;
        Ok(o.sin().sum(..))
    });
    let f = |x: &Tensor| -> remat::Result<Tensor> { f(x) };
    let residuals = saved_residuals(f, &x()).unwrap();
    assert_eq!(residuals.iter().filter(|r| !r.kind.to_string().contains("argument")).count(), 0, "{residuals}");
}

#[test]
fn what_is_cheap_stays_recomputed_after_common_subexpressions_are_merged() {
    // The backward pass keeps the tanh, and computes the mask of the relu and the slope of the tanh from it again.
    let f = |x: &Tensor| {
        let y = x.tanh();
        (y.relu() * &y).sum(..)
    };
    let step = jit(move |x: &Tensor| grad(f)(x));
    let lowered = step.lower(&x()).unwrap();
    let count = |name: &str| lowered.jaxpr().eqns.iter().filter(|e| e.op.name() == name).count();
    assert_eq!((count("tanh"), count("optimization_barrier")), (1, 1), "{}", lowered.jaxpr());
}

#[test]
fn a_label_does_not_make_the_list_longer() {
    let w = weights();
    let plain = kept(|x: &Tensor| x.tanh().matmul(&w).sum(..));
    let named = kept(|x: &Tensor| x.tanh().named("h").matmul(&w).sum(..));
    assert_eq!(plain.len(), named.len(), "{plain:?} {named:?}");
}

#[test]
fn branches_nest_deep_in_time() {
    fn nest(depth: usize, x: &Tensor) -> remat::Result<Tensor> {
        if depth == 0 {
            return Ok(x.sin());
        }
        cond(&x.sum(..).gt(depth as f64), |x: &Tensor| Ok(x.cos()), |x: &Tensor| nest(depth - 1, &(x * 2.0)), x)
    }
    let f = |x: &Tensor| nest(14, x).map(|y| y.sum(..));
    let (_, gradient) = value_and_grad(f)(&x()).unwrap();
    assert_eq!(gradient.shape().unwrap(), [3]);
}

#[test]
fn a_custom_rule_keeps_only_what_its_backward_pass_reads() {
    let table = weights();
    let f = custom_vjp(
        |x: &Tensor| x.matmul(&table),
        |x: &Tensor| (x.matmul(&table), (x.clone(), x.exp())),
        |(x, _): &(Tensor, Tensor), ct: &Tensor| x * ct.sum(..),
    );
    let residuals = saved_residuals(|x: &Tensor| f(x).sum(..), &x()).unwrap();
    let lines: Vec<String> = residuals.iter().map(|r| format!("{} {}", r.aval, r.kind)).collect();
    assert_eq!(lines, ["f64[3] from the argument"]);
}

#[test]
fn a_batch_of_a_custom_rule_does_not_repeat_what_is_shared() {
    let w = weights();
    let f = custom_vjp(
        |(x, w): &(Tensor, Tensor)| x.matmul(w),
        |(x, w): &(Tensor, Tensor)| (x.matmul(w), (x.clone(), w.clone())),
        |(x, w): &(Tensor, Tensor), ct: &Tensor| (ct.matmul(&w.t()), x.reshape([3, 1]) * ct),
    );
    let batch = Tensor::arange(0.0f64..12.0).reshape([4, 3]);
    let loss = |w: &Tensor| vmap(|x: &Tensor| f(&(x.clone(), w.clone())))(&batch).map(|y| y.square().sum(..));
    let plain = |w: &Tensor| batch.matmul(w).square().sum(..);
    let (a, b) = (grad(loss)(&w).unwrap(), grad(plain)(&w).unwrap());
    for (a, b) in a.to_vec::<f64>().unwrap().into_iter().zip(b.to_vec::<f64>().unwrap()) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1.0));
    }
    let program = make_jaxpr(|w: &Tensor| vmap(|x: &Tensor| f(&(x.clone(), w.clone())))(&batch))(&w).unwrap();
    let call = program.jaxpr.eqns.iter().find(|e| e.op.name() == "custom_vjp").unwrap();
    let operands: Vec<String> = call.ins.iter().map(|&a| program.jaxpr.atom_aval(a).to_string()).collect();
    assert_eq!(operands, ["f64[4,3]", "f64[3,3]"], "{program}");
}

#[test]
fn a_custom_rule_without_float_results_has_no_tangent() {
    let f = custom_vjp(
        |x: &Tensor| x.gt(0.0),
        |x: &Tensor| (x.gt(0.0), ()),
        |_: &(), _: &Tensor| Tensor::zeros([3], remat::DType::F64),
    );
    let (sign, _) = jvp(|x: &Tensor| f(x), &x(), &x()).unwrap();
    assert_eq!(sign.to_vec::<bool>().unwrap(), [true, false, true]);
}

#[test]
fn a_callable_policy_read_from_text_is_an_error() {
    let custom = Policy::custom("mine", |_| None);
    let program = make_jaxpr(|x: &Tensor| checkpoint(custom.clone(), |x: &Tensor| x.sin().sin())(x))(&x()).unwrap();
    let read: remat::ir::Jaxpr = program.jaxpr.to_string().parse().unwrap();
    let error = grad(|x: &Tensor| Ok(remat::testing::call(&read, std::slice::from_ref(x))?[0].sum(..)))(&x());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("the policy `mine` is a callable"), "{message}");
}

#[test]
fn the_first_error_of_a_region_is_not_lost_behind_one_of_the_function() {
    let region = checkpoint(Policy::Nothing, |x: &Tensor| -> remat::Result<Tensor> {
        let _ = x.reshape([7]);
        Err(remat::Error::new(remat::ErrorKind::Argument, "mine", "I give up"))
    });
    let error = grad(|x: &Tensor| region(x).or_else(|_| Ok(x.sum(..))))(&x()).unwrap_err();
    assert_eq!(error.operation(), "reshape");

    let deliberate = checkpoint(Policy::Nothing, |_: &Tensor| -> remat::Result<Tensor> {
        Err(remat::Error::new(remat::ErrorKind::Argument, "mine", "I give up"))
    });
    let gradient = grad(|x: &Tensor| deliberate(x).or_else(|_| Ok(x.sum(..))))(&x()).unwrap();
    assert_eq!(gradient.to_vec::<f64>().unwrap(), [1.0, 1.0, 1.0]);
}

#[test]
fn a_mask_of_another_length_is_an_error() {
    use remat::transform::{Saving, dce, jvp, partial_eval, transpose, vmap};
    let program: remat::ir::Jaxpr = "{ lambda ; a:f32[] b:f32[]. let c:f32[] = mul a b in (c,) }".parse().unwrap();
    let ins = "the mask is for 1 input, and the program has 2 inputs";
    let outs = "the mask is for 2 outputs, and the program has 1 output";
    let (one, two) = ([true], [true; 2]);
    assert_eq!(jvp(&program, &one, &one).unwrap_err().message(), ins);
    assert_eq!(jvp(&program, &two, &two).unwrap_err().message(), outs);
    assert_eq!(dce(&program, &one, &one).unwrap_err().message(), ins);
    assert_eq!(transpose(&program, &one, &one, true).unwrap_err().message(), ins);
    assert_eq!(vmap(&program, 3, &one, &one).unwrap_err().message(), ins);
    assert_eq!(partial_eval(&program, &one, &one, Saving::Residuals).unwrap_err().message(), ins);
}

#[test]
fn to_save_everything_in_a_loop_keeps_what_no_region_keeps() {
    type Pair = (Tensor, Tensor);
    let step = |(x, y): &Pair| ((x + y).square(), y.sin());
    let options = ScanOptions { length: Some(10), ..Default::default() };
    let looped = |f: &dyn Fn(&Pair) -> Pair, init: &Pair| {
        let (last, ()) = scan_with(&options, |carry: &Pair, _: &()| (f(carry), ()), init, &())?;
        Ok::<_, remat::Error>(last)
    };
    let init = (Tensor::ones([1000], DType::F32), Tensor::ones([1000], DType::F32));
    let plain = saved_residuals(|x: &Pair| looped(&step, x), &init).unwrap();
    let region = checkpoint(Policy::Everything, step);
    let everything = saved_residuals(|x: &Pair| looped(&region, x), &init).unwrap();
    // The slope of the square and the cosine, stacked: what JAX 0.10.2 keeps, 78.12 KiB.
    assert_eq!(everything.total_bytes(), 2 * 10 * 4000, "{everything}");
    assert_eq!(everything.total_bytes(), plain.total_bytes(), "{plain}");
    let whole = checkpoint(Policy::Everything, |x: &Pair| looped(&step, x));
    let whole = saved_residuals(|x: &Pair| whole(x), &init).unwrap();
    assert_eq!(whole.total_bytes(), plain.total_bytes(), "{whole}");
}
