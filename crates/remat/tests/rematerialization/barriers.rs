//! `optimization_barrier` under the transformations: results and derivatives have the bits of those without it, and the steps
//! keep its order.

use remat::{Policy, Result, Tensor, checkpoint, grad, jit, optimization_barrier, scan, vmap};

type Pair = (Tensor, Tensor);

/// A product and an exponential, and readers of each, with a barrier between them or without.
fn f((x, y): &Pair, is_barred: bool) -> Tensor {
    let (product, exp) = (x.matmul(x), y.exp());
    let [product, exp] = if is_barred {
        let held = optimization_barrier(&[&product, &exp]);
        [held[0].clone(), held[1].clone()]
    } else {
        [product, exp]
    };
    product.matmul(&product).sum(..) + (&exp * &exp).sum(..)
}

fn operands() -> Pair {
    let x = Tensor::new([[0.5f32, -0.25], [0.125, 1.0]]);
    let y = Tensor::new([0.1f32, -0.2, 0.3]);
    (x, y)
}

/// The positions at which the lines of the steps begin that have these words.
fn lines(steps: &str, words: &str) -> Vec<usize> {
    steps.lines().enumerate().filter(|(_, line)| line.contains(words)).map(|(i, _)| i).collect()
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn the_steps_of_a_function_keep_the_order() {
    let (barred, plain) = (jit(|p: &Pair| f(p, true)), jit(|p: &Pair| f(p, false)));
    assert_eq!(bits(&barred.call(operands()).unwrap()), bits(&plain.call(operands()).unwrap()));
    let steps = barred.steps(&operands()).unwrap();
    let (products, exp) = (lines(&steps, " = dot_general"), lines(&steps, " = exp"));
    let barrier = lines(&steps, " = optimization_barrier");
    assert_eq!((products.len(), exp.len(), barrier.len()), (2, 1, 1), "{steps}");
    assert!(products[0] < barrier[0] && exp[0] < barrier[0] && barrier[0] < products[1], "{steps}");
    assert!(!plain.steps(&operands()).unwrap().contains("optimization_barrier"));
}

#[test]
fn derivatives_have_a_barrier_of_their_own_and_the_same_bits() {
    let barred = jit(|p: &Pair| grad(|p: &Pair| f(p, true))(p));
    let plain = jit(|p: &Pair| grad(|p: &Pair| f(p, false))(p));
    let (found, expected) = (barred.call(operands()).unwrap(), plain.call(operands()).unwrap());
    assert_eq!((bits(&found.0), bits(&found.1)), (bits(&expected.0), bits(&expected.1)));
    let steps = barred.steps(&operands()).unwrap();
    assert_eq!(lines(&steps, " = optimization_barrier").len(), 2, "{steps}");
    // A region computes the values again behind their barrier.
    for policy in [Policy::Nothing, Policy::Everything, Policy::Dots] {
        let region = checkpoint(policy, |p: &Pair| Ok(f(p, true)));
        let region = |p: &Pair| -> Result<Tensor> { region(p) };
        let found = jit(move |p: &Pair| grad(&region)(p)).call(operands()).unwrap();
        assert_eq!((bits(&found.0), bits(&found.1)), (bits(&expected.0), bits(&expected.1)));
    }
}

#[test]
fn batches_and_loops_keep_the_barrier() {
    let (x, y) = operands();
    let stacked = (Tensor::stack(&[&x, &(&x * 2.0)], 0), Tensor::stack(&[&y, &(&y + 1.0)], 0));
    let results = [true, false].map(|is_barred| {
        let batched = jit(move |p: &Pair| vmap(move |p: &Pair| f(p, is_barred))(p));
        let looped = jit(move |p: &Pair| -> Result<Tensor> {
            let body = |total: &Tensor, p: &Pair| Ok((total + f(p, is_barred), f(p, is_barred)));
            let (total, each) = scan(body, &Tensor::from(0.0f32), p)?;
            Ok(each * total)
        });
        let count = lines(&batched.steps(&stacked).unwrap(), " = optimization_barrier").len();
        assert_eq!(count, usize::from(is_barred));
        assert_eq!(looped.steps(&stacked).unwrap().contains("optimization_barrier"), is_barred);
        [batched.call(stacked.clone()).unwrap(), looped.call(stacked.clone()).unwrap()].map(|x| bits(&x))
    });
    assert_eq!(results[0], results[1]);
}
