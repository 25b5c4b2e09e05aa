//! Programs of a million equations (fewer in a quick run), and regions nested as deep as a recursive function makes them.

use std::thread;

use remat::ir::Jaxpr;
use remat::{Policy, Tensor, checkpoint, grad, make_jaxpr, vjp};
use remat_testkit::sized;

/// Applies `sin` `length` times.
fn chain(length: usize, x: &Tensor) -> Tensor {
    (0..length).fold(x.clone(), |y, _| y.sin())
}

/// Runs on a stack of 768 KiB, of which a trace asks for two thirds: no recursion over these equations would pass.
fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(768 << 10).spawn(f);
    thread.and_then(|t| t.join().map_err(|_| std::io::Error::other("the thread panicked"))).unwrap();
}

#[test]
fn a_million_equations_need_no_stack() {
    on_a_small_stack(|| {
        let length = sized(200_000, 1_000_000);
        let program = make_jaxpr(|x: &Tensor| chain(length, x))(&Tensor::from(1.0f32)).unwrap();
        assert_eq!(program.jaxpr.eqns.len(), length);
        assert!(program.to_string().len() > 20 * length);
        drop(program);
    });
}

#[test]
fn a_long_chain_is_differentiated_simplified_and_parsed_without_stack() {
    on_a_small_stack(|| {
        let length = sized(25_000, 100_000);
        let f = |x: &Tensor| checkpoint(Policy::Nothing, |x: &Tensor| chain(length, x))(x);
        let program = make_jaxpr(grad(f))(&Tensor::from(1.0f32)).unwrap();
        let text = program.jaxpr.to_string();
        let parsed = Jaxpr::parse(&text).unwrap();
        assert_eq!(parsed.eqns.len(), program.jaxpr.eqns.len());
        let simple = remat::transform::cse(&remat::transform::fold_literals(&parsed).unwrap()).unwrap();
        let pruned = remat::transform::dce(&simple, &[true], &[false]).unwrap();
        // The forward pass is not needed for the gradient: the region computes it again.
        assert_eq!(pruned.jaxpr.eqns.len(), 1);
        assert_eq!(pruned.jaxpr.eqns[0].op.bodies()[0].eqns.len(), 3 * length - 1);
    });
}

/// As the tutorial's `recursive_checkpoint`: the first half of each half is a region.
fn recursive(length: usize, x: &Tensor) -> Tensor {
    if length == 1 {
        return x.sin();
    }
    let first = move |x: &Tensor| recursive(length / 2, x);
    let first = if length > 2 { checkpoint(Policy::Nothing, first)(x) } else { first(x) };
    recursive(length - length / 2, &first)
}

#[test]
fn residuals_of_recursive_checkpoints_grow_with_the_logarithm() {
    let residuals = |length: usize| {
        let (_, pullback) = vjp(|x: &Tensor| recursive(length, x), &Tensor::from(1.0f64)).unwrap();
        pullback.residuals().len()
    };
    let counts: Vec<usize> = [8, 16, 64, 256, 1024, 4096].map(residuals).into();
    assert_eq!(counts, [4, 5, 7, 9, 11, 13]);
    let gradient = |f: &dyn Fn(&Tensor) -> Tensor| grad(|x: &Tensor| f(x))(&Tensor::from(1.0f64)).unwrap();
    let (plain, nested) = (gradient(&|x| chain(1024, x)), gradient(&|x| recursive(1024, x)));
    assert_eq!(plain.item::<f64>().unwrap(), nested.item::<f64>().unwrap());
}
