//! Loops that keep a bounded number of states: the values and gradients of plain loops, and what they keep.

use remat::ir::{Call, Jaxpr, Op};
use remat::{
    AssociativeScanOptions, DType, ErrorKind, LoopScheme, ScanOptions, Tensor, associative_scan, associative_scan_with,
    binomial_steps, grad, jit, make_jaxpr, scan_checkpointed, scan_checkpointed_with, scan_with, value_and_grad, vjp,
    vmap, while_loop, while_loop_checkpointed,
};

fn f64s(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| ((i as f64 + 1.0) * seed).sin()).collect()
}

fn vector(n: usize, seed: f64) -> Tensor {
    Tensor::from(f64s(n, seed))
}

type Operands = (Tensor, Tensor, Tensor);

/// A recurrent layer with a counter in its carry, over stacked inputs: (weight, initial state, inputs).
fn operands(length: usize) -> Operands {
    (vector(9, 0.7).reshape([3, 3]), vector(3, 1.3), vector(3 * length, 0.37).reshape([length, 3]))
}

/// The sum of all that the loop gives, by a plain scan if there is no scheme.
fn loss(scheme: Option<&LoopScheme>, reverse: bool, (w, h, xs): &Operands) -> remat::Result<Tensor> {
    let step = |(h, n): &(Tensor, Tensor), x: &Tensor| {
        let next = (w.matmul(h) + x * n.to_dtype(DType::F64)).tanh();
        ((next.clone(), n + 1), (next * 2.0, n.clone()))
    };
    let options = ScanOptions { reverse, ..ScanOptions::default() };
    let init = (h.clone(), Tensor::from(1i32));
    let ((h, n), (ys, ns)) = match scheme {
        Some(scheme) => scan_checkpointed_with(&options, scheme.clone(), step, &init, xs)?,
        None => scan_with(&options, step, &init, xs)?,
    };
    let weights = vector(ys.size()?, 0.11).reshape(ys.shape()?);
    let counts = (ns.sum(..) + n).to_dtype(DType::F64);
    Ok((h * vector(3, 0.9)).sum(..) + (ys * weights).sum(..) + counts)
}

fn compare(length: usize, scheme: &LoopScheme, reverse: bool) {
    let x = operands(length);
    let (expected, expected_grad) = value_and_grad(|x: &Operands| loss(None, reverse, x))(&x).unwrap();
    let (value, grad) = value_and_grad(|x: &Operands| loss(Some(scheme), reverse, x))(&x).unwrap();
    let plain = loss(Some(scheme), reverse, &x).unwrap();
    let case = format!("{length} iterations, {scheme:?}, reverse {reverse}");
    let read = |t: &Tensor| t.to_vec::<f64>().unwrap();
    assert_eq!(read(&value), read(&expected), "{case}");
    assert_eq!(read(&plain), read(&expected), "{case}");
    assert_eq!(read(&grad.1), read(&expected_grad.1), "{case}");
    assert_eq!(read(&grad.2), read(&expected_grad.2), "{case}");
    match scheme {
        // The blocks sum the gradients of captured tensors one by one.
        LoopScheme::Levels(_) | LoopScheme::Blocks(_) => {
            assert!(grad.0.allclose(&expected_grad.0, 1e-12, 1e-13).unwrap(), "{case}");
        }
        LoopScheme::Binomial { .. } => assert_eq!(read(&grad.0), read(&expected_grad.0), "{case}"),
    }
}

#[test]
fn levels_give_the_values_and_gradients_of_a_plain_scan() {
    for length in [0, 1, 2, 3, 7, 9, 13, 24] {
        for levels in [1, 2, 3, 5] {
            compare(length, &LoopScheme::Levels(levels), length % 2 == 1);
        }
        for blocks in [vec![], vec![1], vec![4], vec![5, 2], vec![2, 5], vec![100, 3]] {
            compare(length, &LoopScheme::Blocks(blocks.clone()), false);
            compare(length, &LoopScheme::Blocks(blocks), true);
        }
    }
}

#[test]
fn the_binomial_scheme_gives_the_values_and_gradients_of_a_plain_scan_bit_for_bit() {
    for length in [0, 1, 2, 3, 5, 11, 16] {
        for states in [1, 2, 3, 7, 16, 40] {
            compare(length, &LoopScheme::Binomial { states }, (length + states) % 2 == 1);
        }
    }
}

/// The bytes of the residuals beside the weight, the inputs, the weights of the loss and, being vectors of integers as long
/// as the loop or longer, which are none.
fn kept(length: usize, scheme: &LoopScheme) -> usize {
    let x = operands(length);
    let (_, pullback) = vjp(|x: &Operands| loss(Some(scheme), false, x), &x).unwrap();
    let is_state = |t: &&Tensor| t.dtype().unwrap().is_float() || t.shape().unwrap().iter().all(|&n| n < length);
    let bytes = |t: &Tensor| t.size().unwrap() * t.dtype().unwrap().size();
    let all: usize = pullback.residuals().iter().filter(is_state).map(bytes).sum();
    all - bytes(&x.0) - 2 * bytes(&x.2) - 3 * 8
}

#[test]
fn residuals_are_as_few_as_the_scheme_says() {
    let state = 3 * 8 + 4;
    let length = 64;
    for states in [1, 2, 5, 20] {
        // The states, the one that the loop works on, the first one as an operand. The schedule has a few numbers for each of them.
        let bytes = kept(length, &LoopScheme::Binomial { states });
        assert!(bytes <= (states + 2) * state + (states + 1) * 16 * 4, "{states} states: {bytes} bytes");
    }
    let plain = kept(length, &LoopScheme::Levels(1));
    let root = kept(length, &LoopScheme::Levels(2));
    let cube = kept(length, &LoopScheme::Levels(3));
    assert!(plain >= length * 3 * 8, "{plain}");
    assert!(root <= (8 + 2) * state, "{root}");
    assert!(cube <= (4 + 2) * state, "{cube}");
}

/// The schedule is found by the loop: whatever its length, the program holds a few numbers for each state.
#[test]
fn a_long_loop_has_no_table_of_its_schedule() {
    for (length, states, most) in [(1_000_000, 20, 1500), (1_000_000, 2, 30_000), (10_000, 10_000, 400_000)] {
        let options = ScanOptions { length: Some(length), ..ScanOptions::default() };
        let run = |x: &Tensor| {
            let scheme = LoopScheme::Binomial { states };
            Ok(scan_checkpointed_with(&options, scheme, |x: &Tensor, (): &()| (x.sin(), ()), x, &())?.0)
        };
        let program = make_jaxpr(grad(run))(&Tensor::from(0.5f32)).unwrap();
        let bytes: usize = program.consts.iter().map(|array| array.aval().bytes()).sum();
        assert!(bytes < most, "{length} iterations, {states} states: {bytes} bytes");
    }
    let options = ScanOptions { length: Some(3_000_000_000), ..ScanOptions::default() };
    let scheme = LoopScheme::Binomial { states: 2 };
    let step = |x: &Tensor, (): &()| (x.sin(), ());
    let error = scan_checkpointed_with(&options, scheme, step, &Tensor::from(0.5f32), &()).unwrap_err();
    assert_eq!(error.message(), "3000000000 iterations are too many for 2 states");
}

/// The longest loop in a program.
fn longest(jaxpr: &Jaxpr) -> usize {
    let of = |op: &Op| match op {
        Op::Call(Call::Scan(scan)) => scan.length,
        _ => 0,
    };
    let nested = |op: &Op| op.bodies().into_iter().map(|b| longest(b)).max().unwrap_or(0);
    jaxpr.eqns.iter().map(|e| of(&e.op).max(nested(&e.op))).max().unwrap_or(0)
}

#[test]
fn the_backward_pass_runs_as_many_actions_as_the_formula_says() {
    for (length, states) in [(10, 3), (17, 1), (17, 2), (31, 5), (8, 8), (8, 20)] {
        let x = operands(length);
        let scheme = LoopScheme::Binomial { states };
        let (_, pullback) = vjp(|x: &Operands| loss(Some(&scheme), false, x), &x).unwrap();
        // Of the advances the forward pass has done the first sweep.
        let steps = binomial_steps(length, states).unwrap();
        assert_eq!(longest(pullback.jaxpr()), steps - (length - 1) + length, "{length} iterations, {states} states");
    }
}

#[test]
fn checkpointed_scans_compose() {
    let x = operands(7);
    for scheme in [LoopScheme::Levels(2), LoopScheme::Blocks(vec![4, 2]), LoopScheme::Binomial { states: 3 }] {
        let f = |x: &Operands| loss(Some(&scheme), false, x);
        let plain = |x: &Operands| loss(None, false, x);
        let expected = grad(plain)(&x).unwrap();
        let jitted = jit(grad(f)).call(x.clone()).unwrap();
        assert!(jitted.0.allclose(&expected.0, 1e-12, 1e-13).unwrap());
        let compiled = jit(f);
        let inside = grad(|x: &Operands| compiled.call(x.clone()))(&x).unwrap();
        assert!(inside.0.allclose(&expected.0, 1e-12, 1e-13).unwrap());

        // Of a batch of initial states, with the weight shared.
        let hs = vector(12, 0.21).reshape([4, 3]);
        let batch = |f: &dyn Fn(&Operands) -> remat::Result<Tensor>| {
            let of_h = |h: &Tensor| grad(|h: &Tensor| f(&(x.0.clone(), h.clone(), x.2.clone())))(h);
            let per_example = vmap(of_h)(&hs).unwrap();
            let of_w = |w: &Tensor| {
                let total = vmap(|h: &Tensor| f(&(w.clone(), h.clone(), x.2.clone())))(&hs)?;
                Ok(total.sum(..))
            };
            (per_example, grad(of_w)(&x.0).unwrap())
        };
        let ((a, b), (c, d)) = (batch(&f), batch(&plain));
        assert!(a.allclose(&c, 1e-12, 1e-13).unwrap());
        assert!(b.allclose(&d, 1e-12, 1e-13).unwrap());

        // Second derivatives in reverse, with respect to the captured weight too.
        let twice = |f: &dyn Fn(&Operands) -> remat::Result<Tensor>| {
            let norm = |x: &Operands| {
                let g = grad(|x: &Operands| f(x))(x)?;
                Ok(g.0.square().sum(..) + g.1.square().sum(..) + g.2.square().sum(..))
            };
            grad(norm)(&x).unwrap()
        };
        let (a, b) = (twice(&f), twice(&plain));
        assert!(a.0.allclose(&b.0, 1e-10, 1e-12).unwrap());
        assert!(a.1.allclose(&b.1, 1e-10, 1e-12).unwrap());
        assert!(a.2.allclose(&b.2, 1e-10, 1e-12).unwrap());
    }
}

#[test]
fn checkpointed_scans_without_carry_or_inputs() {
    let xs = vector(5, 0.4);
    let scheme = LoopScheme::Binomial { states: 2 };
    let f = |xs: &Tensor| Ok(scan_checkpointed(scheme.clone(), |_: &(), x: &Tensor| ((), x.sin()), &(), xs)?.1.sum(..));
    assert_eq!(grad(f)(&xs).unwrap().to_vec::<f64>().unwrap(), xs.cos().to_vec::<f64>().unwrap());
    let options = ScanOptions { length: Some(6), ..ScanOptions::default() };
    for scheme in [LoopScheme::Levels(2), LoopScheme::Binomial { states: 2 }] {
        let f = |w: &Tensor| {
            let step = |x: &Tensor, _: &()| (x * w, ());
            Ok(scan_checkpointed_with(&options, scheme.clone(), step, &Tensor::from(1.0f64), &())?.0)
        };
        assert_eq!(grad(f)(&Tensor::from(2.0f64)).unwrap().item::<f64>().unwrap(), 192.0);
    }
}

#[test]
fn leaves_without_a_gradient_are_carried_stacked_and_captured() {
    // The carry picks from a captured table by an integer that the inputs move, and flips a switch.
    let table = Tensor::from(vec![3i32, -1, 2, 5]);
    let moves = Tensor::from(vec![1i32, 2, 3, 1, 1, 2, 3]);
    let step = |(h, index, is_on): &(Tensor, Tensor, Tensor), by: &Tensor| {
        let index = (index + by) % 4;
        let factor = table.dynamic_index(&index, 0);
        let h = h * is_on.select(factor.to_dtype(DType::F64), 1.5);
        ((h, index.clone(), !is_on), (factor, is_on.clone()))
    };
    let init = |h: &Tensor| (h.clone(), Tensor::from(0i32), Tensor::from(true));
    let h = Tensor::from(0.5f64);
    // The indices are 1, 3, 2, 3, 0, 2, 1, and every second one counts; the two factors -1 cancel.
    let slope = 1.5 * 2.0 * 1.5 * 3.0 * 1.5;
    let schemes = [
        LoopScheme::Levels(1),
        LoopScheme::Levels(2),
        LoopScheme::Blocks(vec![4, 3]),
        LoopScheme::Binomial { states: 1 },
        LoopScheme::Binomial { states: 3 },
    ];
    for scheme in schemes {
        let run = |h: &Tensor| scan_checkpointed(scheme.clone(), step, &init(h), &moves);
        let ((value, index, is_on), (factors, switches)) = run(&h).unwrap();
        assert_eq!(value.item::<f64>().unwrap(), 0.5 * slope, "{scheme:?}");
        assert_eq!((index.item::<i32>().unwrap(), is_on.item::<bool>().unwrap()), (1, false), "{scheme:?}");
        assert_eq!(factors.to_vec::<i32>().unwrap(), [-1, 5, 2, 5, 3, 2, -1], "{scheme:?}");
        assert_eq!(switches.to_vec::<bool>().unwrap(), [true, false, true, false, true, false, true], "{scheme:?}");
        assert_eq!(grad(|h: &Tensor| Ok(run(h)?.0.0))(&h).unwrap().item::<f64>().unwrap(), slope, "{scheme:?}");
    }
    let count = Tensor::from(7i32);
    for states in [1, 3, 9] {
        let f = |h: &Tensor| {
            let condition = |(_, n): &((Tensor, Tensor, Tensor), Tensor)| n.lt(&count);
            let body =
                |(carry, n): &((Tensor, Tensor, Tensor), Tensor)| (step(carry, &moves.dynamic_index(n, 0)).0, n + 1);
            Ok(while_loop_checkpointed(states, condition, body, &(init(h), Tensor::from(0i32)))?.0.0)
        };
        assert_eq!(grad(f)(&h).unwrap().item::<f64>().unwrap(), slope, "{states} states");
    }
    // Nothing has a gradient at all.
    let sums = |n: &Tensor| {
        scan_checkpointed(LoopScheme::Binomial { states: 2 }, |n: &Tensor, by: &Tensor| (n + by, ()), n, &moves)
    };
    let of_h = grad(|h: &Tensor| Ok(h * sums(&h.to_dtype(DType::I32))?.0.to_dtype(DType::F64)))(&h).unwrap();
    assert_eq!(of_h.item::<f64>().unwrap(), 13.0);
}

#[test]
fn schemes_that_make_no_sense_are_errors() {
    let message = |scheme: LoopScheme| {
        let step = |x: &Tensor, _: &Tensor| (x.clone(), ());
        let x = Tensor::from(1.0f32);
        scan_checkpointed(scheme, step, &x, &Tensor::from(vec![1.0f32])).unwrap_err().message().to_string()
    };
    assert_eq!(message(LoopScheme::Levels(0)), "there must be at least one level");
    assert_eq!(message(LoopScheme::Blocks(vec![3, 0])), "a block must have at least one iteration");
    let states = "the number of states must be at least 1: the initial state is kept";
    assert_eq!(message(LoopScheme::Binomial { states: 0 }), states);
    let x = Tensor::from(1.0f32);
    let error = while_loop_checkpointed(0, |x: &Tensor| x.lt(9.0), |x: &Tensor| x * 2.0, &x).unwrap_err();
    assert_eq!(error.message(), states);
    let error = while_loop_checkpointed(1, |x: &Tensor| x.clone(), |x: &Tensor| x * 2.0, &x).unwrap_err();
    assert_eq!(error.message(), "the condition must give bool[] and gives f32[]; compare it, as in `x.gt(0)`");
}

/// Iterates a map while a counter is below a limit that depends on the data; the weight is captured.
fn iterate(states: Option<usize>, limit: &Tensor, (w, h): &(Tensor, Tensor)) -> remat::Result<Tensor> {
    let condition = |(_, n): &(Tensor, Tensor)| n.lt(limit);
    let body = |(h, n): &(Tensor, Tensor)| ((w.matmul(h)).sin(), n + 1);
    let init = (h.clone(), Tensor::from(0i32));
    let (h, n) = match states {
        Some(states) => while_loop_checkpointed(states, condition, body, &init)?,
        None => while_loop(condition, body, &init)?,
    };
    Ok((h * vector(3, 0.9)).sum(..) + n.to_dtype(DType::F64))
}

fn unrolled(count: usize, (w, h): &(Tensor, Tensor)) -> Tensor {
    let mut h = h.clone();
    for _ in 0..count {
        h = w.matmul(&h).sin();
    }
    (h * vector(3, 0.9)).sum(..) + count as f64
}

#[test]
fn a_checkpointed_while_loop_has_the_gradients_of_the_unrolled_one() {
    let x = (vector(9, 0.7).reshape([3, 3]), vector(3, 1.3));
    for count in [0, 1, 2, 5, 13] {
        let limit = Tensor::from(count as i32);
        let (value, expected) = value_and_grad(|x: &(Tensor, Tensor)| unrolled(count, x))(&x).unwrap();
        for states in [1, 2, 3, 20] {
            let f = |x: &(Tensor, Tensor)| iterate(Some(states), &limit, x);
            let (y, grads) = value_and_grad(f)(&x).unwrap();
            assert_eq!(y.item::<f64>().unwrap(), value.item::<f64>().unwrap());
            assert_eq!(f(&x).unwrap().item::<f64>().unwrap(), value.item::<f64>().unwrap());
            assert!(grads.0.allclose(&expected.0, 1e-12, 1e-14).unwrap(), "{count} iterations, {states} states");
            assert!(grads.1.allclose(&expected.1, 1e-12, 1e-14).unwrap(), "{count} iterations, {states} states");
        }
    }
}

#[test]
fn a_checkpointed_while_loop_composes() {
    let x = (vector(9, 0.7).reshape([3, 3]), vector(3, 1.3));
    let jitted =
        jit(|(x, limit): &((Tensor, Tensor), Tensor)| grad(|x: &(Tensor, Tensor)| iterate(Some(3), limit, x))(x));
    for count in [0, 4, 9] {
        let grads = jitted.call((x.clone(), Tensor::from(count as i32))).unwrap();
        let expected = grad(|x: &(Tensor, Tensor)| unrolled(count, x))(&x).unwrap();
        assert!(grads.0.allclose(&expected.0, 1e-12, 1e-14).unwrap());
    }
    // Each example has its own number of iterations.
    let limits = Tensor::from(vec![3i32, 0, 7]);
    let per_example = vmap(|limit: &Tensor| grad(|x: &(Tensor, Tensor)| iterate(Some(2), limit, x))(&x));
    let grads = per_example(&limits).unwrap();
    for (i, count) in [3, 0, 7].into_iter().enumerate() {
        let expected = grad(|x: &(Tensor, Tensor)| unrolled(count, x))(&x).unwrap();
        assert!(grads.0.index(i).allclose(&expected.0, 1e-12, 1e-14).unwrap(), "{count}");
        assert!(grads.1.index(i).allclose(&expected.1, 1e-12, 1e-14).unwrap(), "{count}");
    }
    // The state that decides how often the loop runs is differentiated too.
    let f = |x: &Tensor| while_loop_checkpointed(2, |x: &Tensor| x.lt(50.0), |x: &Tensor| x * x, x);
    assert_eq!(grad(f)(&Tensor::from(2.0f64)).unwrap().item::<f64>().unwrap(), 8.0 * 128.0);
    assert_eq!(grad(f)(&Tensor::from(60.0f64)).unwrap().item::<f64>().unwrap(), 1.0);
}

#[test]
fn a_checkpointed_while_loop_keeps_a_bounded_number_of_states() {
    let x = (vector(9, 0.7).reshape([3, 3]), vector(3, 1.3));
    let f = |x: &(Tensor, Tensor)| iterate(Some(4), &Tensor::from(200i32), x);
    let (_, pullback) = vjp(f, &x).unwrap();
    let bytes: usize = pullback.residuals().iter().map(|t| t.size().unwrap() * t.dtype().unwrap().size()).sum();
    // Five slots of a state of 28 bytes, a step and a level; the weight; a few scalars and the vector of the loss.
    assert!(bytes <= 5 * (28 + 8) + 72 + 24 + 16, "{bytes}");
}

#[test]
fn reverse_mode_of_a_plain_while_loop_names_the_checkpointed_one() {
    let f = |x: &Tensor| while_loop(|x: &Tensor| x.lt(9.0), |x: &Tensor| x * 2.0, x);
    let message = grad(f)(&Tensor::from(1.0f32)).unwrap_err().to_string();
    assert!(message.contains("`while_loop_checkpointed`"), "{message}");
    // What has a first derivative only names what has a second one.
    let f = |x: &Tensor| while_loop_checkpointed(2, |x: &Tensor| x.lt(9.0), |x: &Tensor| x * x, x);
    let message = grad(grad(f))(&Tensor::from(2.0f32)).unwrap_err().to_string();
    assert!(message.contains("for one of any order use `scan` or `fori_loop`"), "{message}");
}

#[test]
fn associative_scan_agrees_with_cumulative_sums_of_any_length() {
    for length in 0..20 {
        let x = Tensor::from((0..length * 2).map(|i| (i * i) % 7).collect::<Vec<i32>>()).reshape([2, length as usize]);
        let add = |a: &Tensor, b: &Tensor| a + b;
        let options = AssociativeScanOptions { axis: -1, reverse: false };
        let sums = associative_scan_with(&options, add, &x).unwrap();
        assert_eq!(sums.to_vec::<i32>().unwrap(), x.cumsum(1).to_vec::<i32>().unwrap());
        let back = associative_scan_with(&AssociativeScanOptions { reverse: true, ..options }, add, &x).unwrap();
        assert_eq!(back.to_vec::<i32>().unwrap(), x.flip(1).cumsum(1).flip(1).to_vec::<i32>().unwrap());
        let down = associative_scan(add, &x.t()).unwrap();
        assert_eq!(down.to_vec::<i32>().unwrap(), x.cumsum(1).t().to_vec::<i32>().unwrap());
    }
}

#[test]
fn more_levels_and_states_than_iterations() {
    let x = Tensor::from(0.5f64);
    let of = |scheme: LoopScheme| {
        let options = ScanOptions { length: Some(7), ..ScanOptions::default() };
        let f = |x: &Tensor| {
            let step = |x: &Tensor, _: &()| (x.sin(), ());
            Ok(scan_checkpointed_with(&options, scheme.clone(), step, x, &())?.0)
        };
        grad(f)(&x).unwrap().item::<f64>().unwrap()
    };
    let plain = of(LoopScheme::Levels(1));
    assert_eq!(of(LoopScheme::Levels(usize::MAX)), plain);
    assert_eq!(of(LoopScheme::Binomial { states: usize::MAX }), plain);
    let online = |x: &Tensor| {
        let body = |x: &Tensor| x.sin();
        remat::while_loop_checkpointed(usize::MAX, |x: &Tensor| x.gt(0.4), body, x)
    };
    assert!(grad(online)(&x).is_err());
}

#[test]
fn associative_scan_composes_maps_that_do_not_commute() {
    let length = 11;
    let ms = vector(length * 4, 0.83).reshape([length, 2, 2]);
    let product = |ms: &Tensor| associative_scan(|a: &Tensor, b: &Tensor| b.matmul(a), ms);
    let one_by_one = |ms: &Tensor| {
        let mut all = vec![ms.index(0)];
        for i in 1..length {
            all.push(ms.index(i).matmul(&all[i - 1]));
        }
        Tensor::stack(&all, 0)
    };
    assert!(product(&ms).unwrap().allclose(&one_by_one(&ms), 1e-12, 1e-13).unwrap());
    let weights = vector(length * 4, 0.3).reshape([length, 2, 2]);
    let a = grad(|ms: &Tensor| Ok((product(ms)? * &weights).sum(..)))(&ms).unwrap();
    let b = grad(|ms: &Tensor| (one_by_one(ms) * &weights).sum(..))(&ms).unwrap();
    assert!(a.allclose(&b, 1e-11, 1e-12).unwrap());
    let batch = Tensor::stack(&[&ms, &(&ms * 0.5)], 0);
    let c = vmap(product)(&batch).unwrap();
    assert!(c.index(1).allclose(&one_by_one(&(&ms * 0.5)), 1e-12, 1e-13).unwrap());
}

#[test]
fn associative_scan_has_logarithmic_depth() {
    let add = |x: &Tensor| associative_scan(|a: &Tensor, b: &Tensor| a + b, x);
    let jaxpr = make_jaxpr(add)(&Tensor::zeros(1024, DType::F32)).unwrap();
    let adds = jaxpr.jaxpr.eqns.iter().filter(|e| e.op.name() == "add").count();
    assert_eq!(adds, 2 * 10 - 1);
}

#[test]
fn associative_scan_reports_what_does_not_fit() {
    let options = AssociativeScanOptions { axis: 1, reverse: false };
    let add = |a: &Tensor, b: &Tensor| a + b;
    let error = associative_scan_with(&options, add, &Tensor::from(vec![1.0f32])).unwrap_err();
    assert_eq!(error.message(), "axis 1 is out of range for f32[1], which has 1 dimension");
    assert_eq!(error.kind(), ErrorKind::Axis);
    let pair = (Tensor::zeros(3, DType::F32), Tensor::zeros(4, DType::F32));
    let first = |a: &(Tensor, Tensor), _: &(Tensor, Tensor)| a.clone();
    let error = associative_scan(first, &pair).unwrap_err();
    assert_eq!(error.message(), "the lengths differ: 4 of f32[4] and 3 of the leaf before");
    let sum = |a: &Tensor, _: &Tensor| a.sum(..);
    let error = associative_scan(sum, &pair.1).unwrap_err();
    assert_eq!(error.message(), "the function takes f32[2] and gives f32[]; they must be equal");
    assert_eq!(error.kind(), ErrorKind::Shape);
    let narrow = |a: &Tensor, _: &Tensor| a.to_dtype(DType::F16);
    assert_eq!(associative_scan(narrow, &pair.1).unwrap_err().kind(), ErrorKind::DType);
}
