//! What cannot be differentiated, and tangents and cotangents that do not fit.

use remat::{
    DType, LoopScheme, ScanOptions, Tensor, custom_vjp, grad, hessian, jacfwd, jacrev, jvp, linear_transpose,
    linearize, scan_checkpointed_with, value_and_grad, vjp, while_loop, while_loop_checkpointed,
};

fn vector(n: usize) -> Tensor {
    Tensor::zeros([n], DType::F32)
}

#[test]
fn gradients_to_integers() {
    // The result is reduced already: what is wrong is the argument.
    mistake!(
        grad(|x: &Tensor| x.square().sum(..))(&Tensor::new([1, 2, 3])),
        "grad: the argument is i32[3], and only floats can be differentiated; capture it in the closure instead of passing it",
        1,
        9
    );
}

#[test]
fn gradients_of_what_is_no_scalar() {
    mistake!(
        grad(|x: &Tensor| x * 2)(&vector(3)),
        "grad: the function must return a float scalar and returned f32[3]; reduce it first, for example with \
         .sum(..) or .mean(..)",
        1,
        9
    );
    mistake!(
        value_and_grad(|x: &Tensor| x.sum(..).to_dtype(DType::I32))(&vector(3)),
        "grad: the function must return a float scalar and returned i32[]; reduce it first, for example with \
         .sum(..) or .mean(..)",
        1,
        9
    );
    mistake!(
        hessian(|x: &Tensor| x * 2)(&vector(3)),
        "grad: the function must return a float scalar and returned f32[3]; reduce it first, for example with \
         .sum(..) or .mean(..)",
        1,
        9
    );
}

#[test]
fn gradients_with_respect_to_integers() {
    let ids = Tensor::new([0, 1]);
    mistake!(
        grad(|x: &Tensor| x.to_dtype(DType::F32).sum(..))(&ids),
        "grad: the argument is i32[2], and only floats can be differentiated; capture it in the closure instead of \
         passing it",
        1,
        9
    );
    let pair = (vector(2), ids.clone());
    mistake!(
        grad(|(x, ids): &(Tensor, Tensor)| x.take(ids, 0).sum(..))(&pair),
        "grad: the argument at `1` is i32[2], and only floats can be differentiated; capture it in the closure \
         instead of passing it",
        1,
        9
    );
    mistake!(
        jacrev(|x: &Tensor| x * 2)(&ids),
        "jacrev: a leaf of the argument is i32[2], and only floats can be differentiated",
        1,
        9
    );
    mistake!(
        jacfwd(|x: &Tensor| x.gt(0))(&vector(2)),
        "jacfwd: a leaf of the result is bool[2], and only floats can be differentiated",
        1,
        9
    );
}

#[test]
fn tangents() {
    mistake!(jvp(|x: &Tensor| x.sin(), &vector(3), &vector(4)), "jvp: the tangent is f32[4] and must be f32[3]", 0, 14);
    mistake!(
        jvp(|x: &Tensor| x.sin(), &vector(3), &vector(3).to_dtype(DType::F64)),
        "jvp: the tangent is f64[3] and must be f32[3]",
        1,
        9
    );
    let sum = |x: &Vec<Tensor>| x[0].sum(..);
    mistake!(
        jvp(sum, &vec![vector(3)], &vec![vector(3), vector(3)]),
        "jvp: the tangent has another structure than the argument: 2 elements against 1 element",
        1,
        9
    );
    mistake!(
        jvp(sum, &vec![vector(3)], &vec![vector(2)]),
        "jvp: the tangent at `0` is f32[2] and must be f32[3]",
        1,
        9
    );
    let (_, derivative) = linearize(|x: &Tensor| x.sin(), &vector(3)).unwrap();
    mistake!(derivative.call(&vector(4)), "linearize: the tangent is f32[4] and must be f32[3]", 0, 25);
}

#[test]
fn cotangents() {
    let (_, pullback) = vjp(|x: &Tensor| x.sin(), &vector(3)).unwrap();
    mistake!(pullback.call(&vector(4)), "vjp: the cotangent is f32[4] and must be f32[3]", 0, 23);
    let (_, pullback) = vjp(|x: &Tensor| vec![x.sin(), x.cos()], &vector(3)).unwrap();
    let message = "vjp: the cotangent has another structure than the result: 1 element against 2 elements";
    mistake!(pullback.call(&vec![vector(3)]), message, 0, 23);
}

#[test]
fn loops_of_unknown_length_in_reverse() {
    let double = |x: &Tensor| while_loop(|x: &Tensor| x.lt(100), |x: &Tensor| x * 2, x);
    mistake!(
        grad(double)(&Tensor::from(1.0f32)),
        "while: reverse-mode differentiation needs the states of all iterations, and their number is not known; for \
         a first derivative use `while_loop_checkpointed`, which keeps a bounded number of states; for one of any \
         order use `scan` or `fori_loop`, with a known number of iterations",
        -1,
        31
    );
}

#[test]
fn forward_mode_of_a_reverse_rule() {
    let clip = custom_vjp(|x: &Tensor| x.clone(), |x: &Tensor| (x.clone(), ()), |_: &(), ct: &Tensor| ct.clamp(-1, 1));
    mistake!(
        jvp(|x: &Tensor| clip(x), &vector(3), &vector(3)),
        "custom_vjp: forward-mode differentiation of `forward_mode_of_a_reverse_rule::{closure}` is not defined: it \
         has a reverse rule only (custom_vjp); give it a custom_jvp instead",
        -1,
        16
    );
    mistake!(
        jacfwd(|x: &Tensor| clip(x))(&vector(3)),
        "custom_vjp: forward-mode differentiation of `forward_mode_of_a_reverse_rule::{closure}` is not defined: it \
         has a reverse rule only (custom_vjp); give it a custom_jvp instead",
        -8,
        16
    );
}

#[test]
fn forward_mode_of_loops_that_keep_some_states() {
    let until = |x: &Tensor| while_loop_checkpointed(3, |x: &Tensor| x.lt(2.0), |x: &Tensor| x * 1.5, x);
    let x = Tensor::from(0.5f32);
    let error = jvp(until, &x, &x).unwrap_err().to_string();
    assert!(
        error.contains(
            "forward-mode differentiation of `while_loop_checkpointed` is not defined: it has a reverse rule only; in forward mode \
             use `while_loop`, which has the same values"
        ),
        "{error}"
    );
    let few = |x: &Tensor| {
        let options = ScanOptions { length: Some(4), ..ScanOptions::default() };
        let scheme = LoopScheme::Binomial { states: 2 };
        Ok(scan_checkpointed_with(&options, scheme, |x: &Tensor, _: &()| (x * x, ()), x, &())?.0)
    };
    let error = jvp(few, &x, &x).unwrap_err().to_string();
    assert!(error.contains("in forward mode use `scan`, which has the same values"), "{error}");
}

#[test]
fn transposes_of_what_is_not_linear() {
    mistake!(
        linear_transpose(|x: &Tensor| x.sin(), &vector(3)),
        "sin: is not linear in the operands that are to be transposed; the function of `linear_transpose`, and the \
         rule of a `custom_jvp` in its tangent, must be linear",
        1,
        41
    );
    mistake!(
        linear_transpose(|x: &Tensor| x * x, &vector(3)),
        "mul: is not linear in the operands that are to be transposed; the function of `linear_transpose`, and the \
         rule of a `custom_jvp` in its tangent, must be linear",
        1,
        39
    );
    let double = linear_transpose(|x: &Tensor| x * 2, &vector(3)).unwrap();
    mistake!(double.call(&vector(4)), "linear_transpose: the cotangent is f32[4] and must be f32[3]", 0, 21);
}

#[test]
fn products_at_indices_that_may_repeat() {
    let ids = Tensor::new([0, 1]);
    mistake!(
        grad(|x: &Tensor| x.at(&ids).mul(x.index(..2)).sum(..))(&vector(3)),
        "scatter_mul: has no derivative with respect to its updates if an index may occur twice; if none does, say so with \
         .at(..).unique()",
        1,
        38
    );
}
