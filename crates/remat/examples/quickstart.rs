//! Gradients and compiled functions in a minute: fit a line to points.
//!
//! Run it with `cargo run -p remat --example quickstart`.

use remat::{Result, Tensor, Tree, grad, jit, value_and_grad};

/// A model is a plain struct of tensors. Its gradient has the same type.
#[derive(Clone, Tree)]
struct Line {
    slope: Tensor,
    offset: Tensor,
}

fn main() -> Result<()> {
    // Without a transformation an operation runs at once.
    let x = Tensor::linspace(-1.0, 1.0, 5, remat::DType::F32);
    println!("x = {x}");
    println!("sin(x)^2 + cos(x)^2 = {}", x.sin().square() + x.cos().square());

    // `grad` takes a function and gives a function. So it can be applied again.
    let f = |x: &Tensor| x.sin();
    let third = grad(|x: &Tensor| grad(|x: &Tensor| grad(f)(x))(x))(&Tensor::from(0.5f64))?;
    println!("the third derivative of sin at 0.5 is {third}, and -cos(0.5) is {}", -0.5f64.cos());

    // What a closure captures is constant: here the points. The gradient is with respect to the argument, the line.
    let y = &x * 3.0 - 0.5;
    let loss = |line: &Line| (&x * &line.slope + &line.offset - &y).square().mean(..);

    // A step of gradient descent, traced and compiled on its first call. The line is moved in, and the new one comes out.
    let step = jit(|line: &Line| -> Result<(Line, Tensor)> {
        let (loss, gradient) = value_and_grad(loss)(line)?;
        let line = Line { slope: &line.slope - gradient.slope * 0.3, offset: &line.offset - gradient.offset * 0.3 };
        Ok((line, loss))
    });
    let mut line = Line { slope: Tensor::from(0.0f32), offset: Tensor::from(0.0f32) };
    let mut loss = Tensor::from(f32::INFINITY);
    for _ in 0..100 {
        (line, loss) = step.call(line)?;
    }
    println!("y = {} x + {}, with a loss of {loss}", line.slope, line.offset);
    println!("the step was traced {} time", step.cache_size());

    // A mistake is an error with the operation, both types and the line that made it, where a `Result` comes back.
    let error =
        (Tensor::ones([2, 3], remat::DType::F32).matmul(&Tensor::ones([2, 3], remat::DType::F32))).to_vec::<f32>();
    println!("{}", error.expect_err("the inner sizes are 3 and 2"));
    Ok(())
}
