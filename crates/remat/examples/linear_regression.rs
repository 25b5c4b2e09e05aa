//! Linear regression: gradient descent finds what the normal equations say.
//!
//! Run it with `cargo run -p remat --example linear_regression`.

use remat::{DType, Result, Tensor, Tree, TriangularConfig, jit, random, value_and_grad};

#[derive(Clone, Tree)]
struct Line {
    weights: Tensor,
    bias: Tensor,
}

impl Line {
    fn apply(&self, x: &Tensor) -> Tensor {
        x.matmul(&self.weights) + &self.bias
    }
}

/// The least squares solution: `(x' x)^-1 x' y`, by a Cholesky factorisation.
fn solved(x: &Tensor, y: &Tensor) -> Tensor {
    let factor = x.t().matmul(x).cholesky();
    let half = factor.solve_triangular(&x.t().matmul(&y.expand_dims(1)), TriangularConfig::default());
    factor.solve_triangular(&half, TriangularConfig { transpose_a: true, ..TriangularConfig::default() }).squeeze(1)
}

fn main() -> Result<()> {
    let [points, noise] = random::key(0).split();
    let x = random::normal(points, [200, 3], DType::F32);
    let y = x.matmul(&Tensor::new([2.0f32, -1.0, 0.5])) + 3.0 + random::normal(noise, [200], DType::F32) * 0.1;

    // `x` and `y` are captured, so they are constant. The gradient has the type of the model.
    let step = jit(|line: &Line| -> Result<(Line, Tensor)> {
        let (loss, gradient) = value_and_grad(|line: &Line| (line.apply(&x) - &y).square().mean(..))(line)?;
        let line = Line { weights: &line.weights - gradient.weights * 0.1, bias: &line.bias - gradient.bias * 0.1 };
        Ok((line, loss))
    });
    let mut line = Line { weights: Tensor::zeros([3], DType::F32), bias: Tensor::from(0.0f32) };
    for i in 0..100 {
        let loss;
        (line, loss) = step.call(line)?;
        if i % 20 == 0 {
            println!("step {i:>2}: loss {loss}");
        }
    }

    // The bias is the weight of a column of ones.
    let best = solved(&Tensor::concatenate(&[&x, &Tensor::ones([200, 1], DType::F32)], 1), &y);
    println!("found  {} and {}", line.weights, line.bias);
    println!("solved {best}");
    let found = Tensor::concatenate(&[&line.weights, &line.bias.reshape([1])], 0);
    assert!(found.allclose(&best, 1e-3, 1e-3)?);
    Ok(())
}
