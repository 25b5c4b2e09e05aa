//! Compositions of control flow with every transformation, against plain programs unrolled by hand.

use remat::{
    DType, Policy, ScanOptions, Tensor, Tree, checkpoint, cond, fori_loop, grad, grad_aux, hessian, jacfwd, jacrev,
    jit, jvp, linear_transpose, linearize, map, scan, scan_with, switch, value_and_grad, vjp, vmap, while_loop,
};

use crate::close::{close, f, vector};

type Result<T = Tensor> = remat::Result<T>;

/// Holds a function to its unrolled form: values, gradients in both modes, second derivatives, under jit, vmap and
/// checkpoint. The point is a vector.
#[track_caller]
fn compare(g: impl Fn(&Tensor) -> Result, unrolled: impl Fn(&Tensor) -> Tensor, x: &Tensor) {
    compare_forward(&g, &unrolled, x);
    let expected = grad(&unrolled)(x).unwrap();
    close(&grad(&g)(x).unwrap(), &expected);
    let compiled = jit(|x: &Tensor| g(x));
    close(&grad(|x: &Tensor| compiled.call(x.clone()))(x).unwrap(), &expected);
    close(&jit(|x: &Tensor| grad(&g)(x)).call(x.clone()).unwrap(), &expected);
    for policy in [Policy::Nothing, Policy::Everything, Policy::Dots] {
        let region = checkpoint(policy, |x: &Tensor| g(x));
        close(&grad(|x: &Tensor| region(x))(x).unwrap(), &expected);
    }
    let batch = Tensor::stack(&[x, &(x * 0.5), &(-x)], 0);
    close(&vmap(grad(&g))(&batch).unwrap(), &vmap(grad(&unrolled))(&batch).unwrap());
    let total = |x: &Tensor| Ok(vmap(|x: &Tensor| g(x))(x)?.sum(..));
    let unrolled_total = |x: &Tensor| Ok(vmap(|x: &Tensor| unrolled(x))(x)?.sum(..));
    close(&grad(total)(&batch).unwrap(), &grad(unrolled_total)(&batch).unwrap());
    let norm = |x: &Tensor| Ok(grad(&g)(x)?.square().sum(..));
    let unrolled_norm = |x: &Tensor| Ok(grad(&unrolled)(x)?.square().sum(..));
    close(&grad(norm)(x).unwrap(), &grad(unrolled_norm)(x).unwrap());
    close(&hessian(&g)(x).unwrap(), &hessian(&unrolled)(x).unwrap());
    close(&jacrev(&g)(x).unwrap(), &expected);
}

/// As [`compare`], without reverse mode.
#[track_caller]
fn compare_forward(g: impl Fn(&Tensor) -> Result, unrolled: impl Fn(&Tensor) -> Tensor, x: &Tensor) {
    close(&g(x).unwrap(), &unrolled(x));
    close(&jit(|x: &Tensor| g(x)).call(x.clone()).unwrap(), &unrolled(x));
    let t = vector(x.size().unwrap(), 0.77).reshape(x.shape().unwrap());
    let (y, dy) = jvp(&g, x, &t).unwrap();
    let (y2, dy2) = jvp(&unrolled, x, &t).unwrap();
    close(&y, &y2);
    close(&dy, &dy2);
    let (y, linear) = linearize(&g, x).unwrap();
    close(&y, &y2);
    close(&linear.call(&t).unwrap(), &dy2);
    for policy in [Policy::Nothing, Policy::Dots] {
        let region = checkpoint(policy, |x: &Tensor| g(x));
        let (y, linear) = linearize(|x: &Tensor| region(x), x).unwrap();
        close(&y, &y2);
        close(&linear.call(&t).unwrap(), &dy2);
    }
    let batch = Tensor::stack(&[x, &(x * 0.5), &(-x)], 0);
    close(&vmap(|x: &Tensor| g(x))(&batch).unwrap(), &vmap(|x: &Tensor| unrolled(x))(&batch).unwrap());
    close(&jacfwd(&g)(x).unwrap(), &jacfwd(&unrolled)(x).unwrap());
}

/// `sin` where the element is positive, a multiple elsewhere, five times, with the state stacked.
fn scan_of_cond(x: &Tensor) -> Result {
    let weights = vector(5, 0.6);
    let step = |h: &Tensor, w: &Tensor| {
        let next = cond(&(h.sum(..) * w).gt(0.1), |h: &Tensor| (h * w).sin(), |h: &Tensor| h * x + w, h)?;
        Ok((next.clone(), next.square().sum(..)))
    };
    let (h, ys) = scan(step, x, &weights)?;
    Ok(h.sum(..) + (ys * vector(5, 0.2)).sum(..))
}

fn scan_of_cond_unrolled(x: &Tensor) -> Tensor {
    let (weights, of_ys) = (vector(5, 0.6), vector(5, 0.2));
    let mut h = x.clone();
    let mut total = f(0.0);
    for i in 0..5 {
        let w = weights.index(i);
        let (a, b) = ((&h * &w).sin(), &h * x + &w);
        h = (h.sum(..) * &w).gt(0.1).broadcast_to(h.shape().unwrap()).select(&a, &b);
        total += h.square().sum(..) * of_ys.index(i);
    }
    h.sum(..) + total
}

#[test]
fn a_scan_of_branches() {
    compare(scan_of_cond, scan_of_cond_unrolled, &vector(3, 1.1));
}

#[test]
fn a_scan_inside_a_loop_in_forward_mode() {
    let looped = |x: &Tensor| {
        let body = |(h, n): &(Tensor, Tensor)| {
            let inner = scan(|h: &Tensor, w: &Tensor| ((h * w).sin() + x, ()), h, &vector(2, 0.9))?.0;
            Ok((inner, n + 1))
        };
        let init = (x.clone(), Tensor::from(0i32));
        Ok(while_loop(|(_, n): &(Tensor, Tensor)| n.lt(3), body, &init)?.0)
    };
    let unrolled = |x: &Tensor| {
        let weights = vector(2, 0.9);
        let mut h = x.clone();
        for i in 0..6 {
            h = (&h * weights.index(i % 2)).sin() + x;
        }
        h
    };
    compare_forward(looped, unrolled, &vector(3, 0.4));
}

#[test]
fn a_batch_of_loops_that_end_at_different_times() {
    let double = |x: &Tensor| while_loop(|x: &Tensor| x.lt(100.0), |x: &Tensor| x * 2.0, x);
    let xs = Tensor::from(vec![1.0f64, 150.0, 60.0, 3.0]);
    let ys = vmap(double)(&xs).unwrap();
    assert_eq!(ys.to_vec::<f64>().unwrap(), [128.0, 150.0, 120.0, 192.0]);
    let derivative = |x: &Tensor| Ok(jvp(double, x, &f(1.0))?.1);
    assert_eq!(vmap(derivative)(&xs).unwrap().to_vec::<f64>().unwrap(), [128.0, 1.0, 2.0, 64.0]);
    // The limit is batched, the state is not.
    let up_to = |limit: &Tensor| while_loop(|x: &Tensor| x.lt(limit), |x: &Tensor| x * 3.0, &f(1.0));
    let ys = vmap(up_to)(&Tensor::from(vec![0.5f64, 10.0, 27.0])).unwrap();
    assert_eq!(ys.to_vec::<f64>().unwrap(), [1.0, 27.0, 27.0]);
}

#[test]
fn branches_chosen_per_example() {
    let g = |x: &Tensor| cond(&x.gt(0.0), |x: &Tensor| x.sin(), |x: &Tensor| x * x, x);
    let xs = Tensor::from(vec![1.0f64, -2.0, 0.5]);
    let ys = vmap(g)(&xs).unwrap();
    assert_eq!(ys.to_vec::<f64>().unwrap(), [1.0f64.sin(), 4.0, 0.5f64.sin()]);
    let dys = vmap(grad(g))(&xs).unwrap();
    assert_eq!(dys.to_vec::<f64>().unwrap(), [1.0f64.cos(), -4.0, 0.5f64.cos()]);
    let second = vmap(grad(grad(g)))(&xs).unwrap();
    assert_eq!(second.to_vec::<f64>().unwrap(), [-(1.0f64.sin()), 2.0, -(0.5f64.sin())]);
}

#[test]
fn a_switch_clamps_its_index() {
    let x = f(2.0);
    let pick = |i: &Tensor, x: &Tensor| {
        let branches: [&dyn Fn(&Tensor) -> Tensor; 3] = [&|x| x.clone(), &|x| x * x, &|x| x * x * x];
        switch(i, &branches, x)
    };
    for (i, derivative) in [(-4, 1.0), (0, 1.0), (1, 4.0), (2, 12.0), (9, 12.0)] {
        let i = Tensor::from(i);
        assert_eq!(grad(|x: &Tensor| pick(&i, x))(&x).unwrap().item::<f64>().unwrap(), derivative);
    }
    let all = vmap(|i: &Tensor| grad(|x: &Tensor| pick(i, x))(&x))(&Tensor::from(vec![-4i32, 1, 9])).unwrap();
    assert_eq!(all.to_vec::<f64>().unwrap(), [1.0, 4.0, 12.0]);
}

#[test]
fn loops_over_indices_and_maps() {
    let powers = |x: &Tensor| {
        let step = |i: &Tensor, h: &Tensor| h * x.sin() + i.to_dtype(DType::F64);
        Ok(fori_loop(2, 6, step, x)?.sum(..))
    };
    let unrolled = |x: &Tensor| {
        let mut h = x.clone();
        for i in 2..6 {
            h = &h * x.sin() + f64::from(i);
        }
        h.sum(..)
    };
    compare(powers, unrolled, &vector(3, 0.8));
    let mapped = |x: &Tensor| Ok(map(|e: &Tensor| e.sin() * x.sum(..), x)?.sum(..));
    compare(mapped, |x| (x.sin() * x.sum(..)).sum(..), &vector(4, 0.3));
    let none = fori_loop(5, 2, |_: &Tensor, x: &Tensor| x * 2.0, &f(3.0)).unwrap();
    assert_eq!(none.item::<f64>().unwrap(), 3.0);
}

#[test]
fn checkpoints_in_and_around_loops_and_branches() {
    let w = vector(9, 0.7).reshape([3, 3]);
    let layer = |h: &Tensor| w.matmul(h).tanh().named("hidden");
    let unrolled = |x: &Tensor| {
        let mut h = x.clone();
        for _ in 0..4 {
            h = layer(&h);
        }
        h.square().sum(..)
    };
    let options = ScanOptions { length: Some(4), ..ScanOptions::default() };
    for policy in [Policy::Nothing, Policy::Everything, Policy::Dots, Policy::names(["hidden"])] {
        let inside = checkpoint(policy.clone(), layer);
        let in_scan = |x: &Tensor| {
            let (h, _) = scan_with(&options, |h: &Tensor, _: &()| (inside(h), ()), x, &())?;
            Ok(h.square().sum(..))
        };
        compare(in_scan, unrolled, &vector(3, 1.9));
        let around = checkpoint(policy.clone(), |x: &Tensor| {
            Ok(scan_with(&options, |h: &Tensor, _: &()| (layer(h), ()), x, &())?.0.square().sum(..))
        });
        compare(|x| around(x), unrolled, &vector(3, 1.9));
        let in_branch = |x: &Tensor| {
            let deep = |x: &Tensor| inside(&inside(&inside(&inside(x)))).square().sum(..);
            cond(&x.sum(..).lt(1e9), deep, |x: &Tensor| x.sum(..), x)
        };
        compare(in_branch, unrolled, &vector(3, 1.9));
        let in_while = |x: &Tensor| {
            let body = |(h, n): &(Tensor, Tensor)| (inside(h), n + 1);
            let init = (x.clone(), Tensor::from(0i32));
            Ok(while_loop(|(_, n): &(Tensor, Tensor)| n.lt(4), body, &init)?.0.square().sum(..))
        };
        compare_forward(in_while, unrolled, &vector(3, 1.9));
    }
}

#[test]
fn closures_capture_outer_traced_tensors_everywhere() {
    // Each kind of closure uses the tensor that is differentiated by the outermost grad.
    let everything = |w: &Tensor| {
        let body = |h: &Tensor, x: &Tensor| ((h * w + x).sin(), h * w);
        let (h, ys) = scan(body, &f(0.3), &vector(3, 0.5))?;
        let h = cond(&w.gt(0.0), |h: &Tensor| h * w, |h: &Tensor| h - w, &h)?;
        let region = checkpoint(Policy::Nothing, |h: &Tensor| (h * w).sin());
        let h = region(&h);
        let compiled = jit(|h: &Tensor| (h + w).square());
        let h = compiled.call(h)?;
        let inner = grad(|h: &Tensor| (h * h * w).sin())(&h)?;
        let many = vmap(|y: &Tensor| y * w)(&ys)?;
        Ok(inner + many.sum(..))
    };
    let unrolled = |w: &Tensor| {
        let xs = vector(3, 0.5);
        let (mut h, mut many) = (f(0.3), f(0.0));
        for i in 0..3 {
            many += &h * w * w;
            h = (&h * w + xs.index(i)).sin();
        }
        let h = w.gt(0.0).select(&h * w, &h - w);
        let h = ((&h * w).sin() + w).square();
        (&h * &h * w).cos() * &h * w * 2.0 + many
    };
    compare(everything, unrolled, &f(0.7));
    compare(everything, unrolled, &f(-0.4));
}

#[test]
fn derivatives_of_a_loop_whose_length_is_data() {
    // Newton's iteration for the square root, forward only; its derivative is that of the square root.
    let root = |a: &Tensor| {
        let far = |x: &Tensor| (x * x - a).abs().gt(1e-12);
        while_loop(far, |x: &Tensor| (x + a / x) * 0.5, a)
    };
    for a in [2.0f64, 9.0, 30.0] {
        let (y, dy) = jvp(root, &f(a), &f(1.0)).unwrap();
        assert!((y.item::<f64>().unwrap() - a.sqrt()).abs() < 1e-9);
        assert!((dy.item::<f64>().unwrap() - 0.5 / a.sqrt()).abs() < 1e-6);
    }
    let error = grad(root)(&f(2.0)).unwrap_err().to_string();
    assert!(error.contains("reverse-mode"), "{error}");
    // What does not depend on the argument may loop.
    let scaled = |x: &Tensor| Ok(x * while_loop(|n: &Tensor| n.lt(50.0), |n: &Tensor| n * 2.0, &f(1.0))?);
    assert_eq!(grad(scaled)(&f(2.0)).unwrap().item::<f64>().unwrap(), 64.0);
}

#[derive(Clone, Tree)]
struct Pair {
    a: Tensor,
    b: Vec<Tensor>,
}

#[test]
fn jacobians_of_trees() {
    let x = Pair { a: vector(2, 0.4), b: vec![vector(3, 0.9), f(0.5)] };
    let g = |x: &Pair| (x.a.sin() * x.b[0].sum(..) * &x.b[1], x.b[0].square() + &x.b[1]);
    let (forward, backward) = (jacfwd(g)(&x).unwrap(), jacrev(g)(&x).unwrap());
    for (f, r) in [(&forward.0, &backward.0), (&forward.1, &backward.1)] {
        close(&f.a, &r.a);
        close(&f.b[0], &r.b[0]);
        close(&f.b[1], &r.b[1]);
    }
    assert_eq!(forward.0.b[0].shape().unwrap(), [2, 3]);
    close(&forward.1.b[0], &(x.b[0].diag(0) * 2.0));
    close(&forward.1.b[1], &Tensor::ones(3, DType::F64));
    let scalar = |x: &(Tensor, Tensor)| (x.0.square().sum(..)) * x.1.sin();
    let y = (vector(2, 0.4), f(0.5));
    let h = hessian(scalar)(&y).unwrap();
    close(&h.0.0, &(Tensor::eye(2, DType::F64) * 2.0 * y.1.sin()));
    close(&h.0.1, &(&y.0 * 2.0 * y.1.cos()));
    close(&h.1.0, &(&y.0 * 2.0 * y.1.cos()));
    close(&h.1.1, &(y.0.square().sum(..) * -y.1.sin()));
}

#[test]
fn linear_functions_with_loops_are_transposed() {
    let w = vector(9, 0.7).reshape([3, 3]);
    let linear = |x: &Tensor| {
        let options = ScanOptions { length: Some(3), ..ScanOptions::default() };
        let (h, ys) = scan_with(&options, |h: &Tensor, _: &()| (w.matmul(h), h.sum(..)), x, &())?;
        Ok((h, ys))
    };
    let x = vector(3, 0.2);
    let transposed = linear_transpose(linear, &x).unwrap();
    let ct = (vector(3, 0.5), vector(3, 0.8));
    let (h, ys) = linear(&x).unwrap();
    close(&x.dot(&transposed.call(&ct).unwrap()), &(h.dot(&ct.0) + ys.dot(&ct.1)));
    let error = linear_transpose(|x: &Tensor| x * x, &x).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("linear"), "{error}");
}

#[test]
fn auxiliary_results_and_pullbacks_that_are_called_twice() {
    let g = |x: &Tensor| {
        let (h, ys) = scan(|h: &Tensor, x: &Tensor| ((h * x).sin(), h.clone()), &f(0.5), x)?;
        Ok((h, ys))
    };
    let x = vector(4, 0.6);
    let (dx, ys) = grad_aux(g)(&x).unwrap();
    let first = |x: &Tensor| Ok(g(x)?.0);
    close(&dx, &grad(first)(&x).unwrap());
    close(&ys, &g(&x).unwrap().1);
    let (_, pullback) = vjp(first, &x).unwrap();
    close(&pullback.call(&f(1.0)).unwrap(), &dx);
    close(&pullback.call(&f(-2.0)).unwrap(), &(&dx * -2.0));
    let (value, again) = value_and_grad(first)(&x).unwrap();
    close(&value, &first(&x).unwrap());
    close(&again, &dx);
}

#[test]
fn unrolled_loops_give_the_same_bits() {
    let run = |length: usize, reverse: bool, unroll: usize| {
        let loss = move |(h, xs): &(Tensor, Tensor)| {
            let options = ScanOptions { length: Some(length), reverse, unroll };
            let step = |h: &Tensor, x: &Tensor| ((h * x).tanh() + h, h.sum(..) * x.sum(..));
            let (h, ys) = scan_with(&options, step, h, xs)?;
            Ok::<Tensor, remat::Error>(h.sum(..) + ys.square().sum(..))
        };
        let (value, (h, xs)) =
            jit(value_and_grad(loss)).call((vector(3, 0.4), vector(3 * length, 0.7).reshape([length, 3])))?;
        Ok::<_, remat::Error>([value.to_vec::<f64>()?, h.to_vec()?, xs.to_vec()?])
    };
    for (length, reverse) in [(1, false), (5, false), (6, true), (7, true)] {
        let expected = run(length, reverse, 1).unwrap();
        for unroll in [2, 3, 5, 7, 100] {
            assert_eq!(run(length, reverse, unroll).unwrap(), expected, "{length} {reverse} {unroll}");
        }
    }
}
