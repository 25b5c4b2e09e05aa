//! Derivatives of all kinds, as in JAX's Autodiff Cookbook (<https://docs.jax.dev/en/latest/notebooks/autodiff_cookbook.html>):
//! gradients, Jacobians, Hessians and their products with vectors, gradients of each example.
//!
//! Run it with `cargo run -p remat --example autodiff`.

use remat::{
    DType, Result, Tensor, Tree, custom_jvp, grad, hessian, jacfwd, jacrev, jvp, random, value_and_grad, vjp, vmap,
};

/// Logistic regression.
#[derive(Clone, Tree)]
struct Model {
    w: Tensor,
    b: Tensor,
}

/// The probability that each of `x` is positive.
fn predict(model: &Model, x: &Tensor) -> Tensor {
    (x.matmul(&model.w) + &model.b).sigmoid()
}

fn loss(model: &Model, x: &Tensor, positive: &Tensor) -> Tensor {
    let p = predict(model, x);
    -positive.select(&p, -&p + 1.0).log().sum(..)
}

fn main() -> Result<()> {
    let x = Tensor::new([[0.52f64, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]]);
    let positive = Tensor::new([true, true, false, true]);
    let [w, b, v] = random::key(0).split();
    let model = Model { w: random::normal(w, [3], DType::F64), b: random::normal(b, (), DType::F64) };
    let loss_of = |model: &Model| loss(model, &x, &positive);

    // The gradient is a model; the value comes with it.
    let (value, gradient) = value_and_grad(loss_of)(&model)?;
    println!("loss {value}, gradient {} and {}", gradient.w, gradient.b);

    // Finite differences agree.
    let eps = 1e-6;
    let moved = |by: f64| loss_of(&Model { b: &model.b + by, ..model.clone() });
    let difference = (moved(eps / 2.0) - moved(-eps / 2.0)) / eps;
    println!("finite difference of b: {difference}");
    assert!(difference.allclose(&gradient.b, 1e-6, 0.0)?);

    // A Hessian times a vector without the Hessian: forward over reverse.
    let f = |w: &Tensor| loss(&Model { w: w.clone(), b: model.b.clone() }, &x, &positive);
    let v = random::normal(v, [3], DType::F64);
    let (_, product) = jvp(grad(f), &model.w, &v)?;
    // Reverse over reverse is the same, and so is the Hessian itself.
    let reverse = grad(|w: &Tensor| Ok(grad(f)(w)?.dot(&v)))(&model.w)?;
    let whole = hessian(f)(&model.w)?;
    println!("Hessian times v: {product}");
    assert!(product.allclose(&reverse, 1e-9, 1e-12)? && product.allclose(&whole.matmul(&v), 1e-9, 1e-12)?);

    // Jacobians, by columns and by rows.
    let p = |w: &Tensor| predict(&Model { w: w.clone(), b: model.b.clone() }, &x);
    let (forward, reverse) = (jacfwd(p)(&model.w)?, jacrev(p)(&model.w)?);
    println!("Jacobian {forward}");
    assert!(forward.allclose(&reverse, 1e-9, 1e-12)?);

    // A pullback maps cotangents of the result to cotangents of the argument; with `vmap`, many at once: the Jacobian.
    let (_, pullback) = vjp(p, &model.w)?;
    let rows = vmap(|cotangent: &Tensor| pullback.call(cotangent))(&Tensor::eye(4, DType::F64))?;
    assert!(rows.allclose(&reverse, 1e-9, 1e-12)?);

    // The gradient of each example.
    let of_one = |(x, positive): &(Tensor, Tensor)| grad(|model: &Model| loss(model, x, positive))(&model);
    let each = vmap(of_one)(&(x.clone(), positive.clone()))?;
    println!("gradients of each example {}", each.w);
    assert!(each.w.sum(0).allclose(&gradient.w, 1e-9, 1e-12)?);

    // A derivative of one's own: log(1 + exp(x)) without an overflow in its derivative.
    let log1pexp = custom_jvp(
        |x: &Tensor| (x.exp() + 1.0).log(),
        |x: &Tensor, t: &Tensor| ((x.exp() + 1.0).log(), t * x.sigmoid()),
    );
    println!("its derivative at 1000: {}", grad(log1pexp)(&Tensor::from(1000.0f64))?);
    let naive = grad(|x: &Tensor| (x.exp() + 1.0).log())(&Tensor::from(1000.0f64))?;
    println!("without the rule: {naive}");
    assert!(naive.item::<f64>()?.is_nan());

    // Derivatives of derivatives, to any order.
    let third = grad(grad(grad(|x: &Tensor| x.powi(4))))(&Tensor::from(2.0f64))?;
    assert_eq!(third.item::<f64>()?, 48.0);
    Ok(())
}
