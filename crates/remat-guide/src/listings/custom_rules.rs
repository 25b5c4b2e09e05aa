//! Custom derivatives, and checks of them.

use remat::{DType, Result, Tensor, custom_jvp, custom_vjp, grad, hessian, jvp, random, vjp};

// ANCHOR: length
/// The norm, with a gradient of zeros at zero.
fn length(x: &Tensor) -> Tensor {
    let norm = |x: &Tensor| x.square().sum(..).sqrt();
    let rule = |x: &Tensor, t: &Tensor| {
        let y = length(x); // by the rule again, so that its derivative follows it too
        (y.clone(), (x * t).sum(..) / y.gt(0.0).select(&y, 1.0))
    };
    custom_jvp(norm, rule)(x)
}
// ANCHOR_END: length

// ANCHOR: check
/// The relative error of the derivative of `f`, measured by central differences: that of a random weighted sum of its results, in a random
/// direction. `x` has to be f64.
fn error_of(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Result<f64> {
    let [direction, weights] = random::key(0).split();
    let v = random::normal(direction, x.shape()?, DType::F64);
    let eps = 1e-5;
    let moved = |by: f64| f(&(x + &v * by));
    let differences = (moved(eps) - moved(-eps)) / (2.0 * eps);

    // The rule, in reverse mode.
    let ct = random::normal(weights, differences.shape()?, DType::F64);
    let (_, pullback) = vjp(&f, x)?;
    let (by_rule, expected) = ((pullback.call(&ct)? * &v).sum(..), (&ct * &differences).sum(..));
    ((&by_rule - &expected).abs() / expected.abs()).item()
}
// ANCHOR_END: check

pub(crate) fn main() -> Result<()> {
    println!("== unstable");
    // ANCHOR: unstable
    let norm = |x: &Tensor| x.square().sum(..).sqrt();
    let zero = Tensor::new([0.0f64, 0.0]);
    println!("norm {}, gradient {}", norm(&zero), grad(norm)(&zero)?);
    // ANCHOR_END: unstable

    println!("== jvp");
    // ANCHOR: jvp
    println!("gradient {}", grad(length)(&zero)?);
    // Forward mode and higher derivatives follow from the same rule.
    let x = Tensor::new([3.0f64, 4.0]);
    let (_, forward) = jvp(length, &x, &Tensor::new([1.0f64, 0.0]))?;
    println!("forward {forward}, Hessian\n{}", hessian(length)(&x)?);
    // ANCHOR_END: jvp

    println!("== through");
    // ANCHOR: through
    // Rounds to a grid of 1/4. Its derivative is zero nearly everywhere, so nothing would be learned through it.
    let rounded = |x: &Tensor| (x * 4.0).round() / 4.0;
    let quantize = custom_vjp(
        rounded,
        |x: &Tensor| (rounded(x), x.abs().le(1.0)), // the result, and what the backward pass needs
        |inside: &Tensor, ct: &Tensor| inside.select(ct, 0.0),
    );
    let x = Tensor::new([0.3f32, -0.9, 1.3]);
    let loss = |x: &Tensor| (quantize(x) - 1.0).square().sum(..);
    println!("{} has the gradient {}", quantize(&x), grad(loss)(&x)?);
    // ANCHOR_END: through

    println!("== stop");
    // ANCHOR: stop
    let short = |x: &Tensor| x + (rounded(x) - x).stop_gradient();
    println!("{}", grad(|x: &Tensor| (short(x) - 1.0).square().sum(..))(&x)?);
    // ANCHOR_END: stop

    println!("== checked");
    // ANCHOR: checked
    let x = random::normal(random::key(1), [16], DType::F64);
    let wrong = custom_jvp(norm, |x: &Tensor, t: &Tensor| (norm(x), (x * t).sum(..)));
    for (name, error) in [("length", error_of(length, &x)?), ("wrong", error_of(wrong, &x)?)] {
        println!("{name}: {}", if error < 1e-6 { "right" } else { "the rule is wrong" });
    }
    // ANCHOR_END: checked

    println!("== forward");
    // ANCHOR: forward
    let x = Tensor::from(0.5f32);
    let error = jvp(&quantize, &x, &x).expect_err("it has a reverse rule alone");
    println!("{}", error.message());
    // ANCHOR_END: forward
    Ok(())
}
