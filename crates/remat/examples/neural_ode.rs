//! A neural ODE: the derivative of a loop that runs until it is done, with a bounded number of states in memory.
//!
//! Run it with `cargo run -p remat --example neural_ode`. The solver chooses its own steps, so that the number of iterations
//! depends on the data; reverse mode through such a loop is `while_loop_checkpointed`.

use remat::optim::{AdamW, Optimizer};
use remat::report::saved_residuals;
use remat::{DType, Result, Tensor, Tree, jit, random, value_and_grad, while_loop_checkpointed};

/// A linear field on cubes: `dx/dt = x^3 field`, which a spiral follows.
fn slope(field: &Tensor, x: &Tensor) -> Tensor {
    x.powi(3).matmul(field)
}

/// Where the loop is: points, time, step, and how many steps were taken.
#[derive(Clone, Tree)]
struct Progress {
    x: Tensor,
    t: Tensor,
    step: Tensor,
    count: Tensor,
}

/// The points after `end` units of time, by Heun's method; the difference from Euler's says how long the next step is.
fn solve(field: &Tensor, x: &Tensor, end: f64) -> Result<Progress> {
    let begin = Progress { x: x.clone(), t: 0.0f32.into(), step: 0.05f32.into(), count: 0.into() };
    while_loop_checkpointed(
        8,
        |now: &Progress| now.t.lt(end),
        |now: &Progress| {
            let step = now.step.minimum(-&now.t + end);
            let euler = slope(field, &now.x);
            let heun = (&euler + slope(field, &(&now.x + &euler * &step))) * 0.5;
            let error = ((&heun - euler).square().mean(..) * &step * &step + 1e-12).sqrt();
            let longer = (Tensor::from(2e-2f32) / error).sqrt().clamp(0.5, 2.0).stop_gradient();
            Progress { x: &now.x + heun * &step, t: &now.t + &step, step: &step * longer, count: &now.count + 1 }
        },
        &begin,
    )
}

fn main() -> Result<()> {
    let field = Tensor::new([[-0.1f32, 2.0], [-2.0, -0.1]]);
    let starts = random::uniform(random::key(0), [16, 2], DType::F32, -1.5..1.5);
    let seen = solve(&field, &starts, 0.5)?;
    println!("the solver took {} steps", seen.count);

    let loss = |field: &Tensor| Ok((solve(field, &starts, 0.5)?.x - &seen.x).square().mean(..));
    let guess = Tensor::new([[0.0f32, 1.0], [-1.0, 0.0]]);
    println!("kept for the backward pass:\n{}", saved_residuals(loss, &guess)?);

    let adam = AdamW::new(0.05);
    let step = jit(|(field, state): &(Tensor, _)| -> Result<_> {
        let (loss, gradient) = value_and_grad(loss)(field)?;
        let (field, state) = adam.update(field, &gradient, state)?;
        Ok((field, state, loss))
    });
    let mut found = guess;
    let mut state = adam.init(&found);
    for i in 0..120 {
        let loss;
        (found, state, loss) = step.call((found, state))?;
        if i % 30 == 29 {
            println!("step {:>3}: loss {loss}", i + 1);
        }
    }
    println!("found {found}");
    assert!(found.allclose(&field, 0.1, 0.1)?);
    Ok(())
}
