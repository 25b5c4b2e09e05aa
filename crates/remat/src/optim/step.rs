//! A training step.

use remat_ir::Result;

use super::Optimizer;
use crate::api::value_and_grad_at;
use crate::trace::{current_loc, pinned_at};
use crate::tree::ScalarOutput;
use crate::{Tensor, Tree};

/// The training step of a loss of the model and a batch: a function of `((model, state), batch)` that returns `((model, state), loss)`, the
/// loss before the step. With [`Jitted::update`](crate::Jitted::update) a training loop is:
///
/// ```
/// use remat::optim::{self, AdamW, Optimizer};
/// use remat::{DType, Tensor, jit, nn, random};
///
/// let [weights, data] = random::key(0).split();
/// let (model, adam) = (nn::Linear::new(weights, 4, 1), AdamW::new(0.1));
/// let mut state = adam.start(model);
/// let step = jit(optim::step(adam, |model: &nn::Linear, (x, y): &(Tensor, Tensor)| {
///     nn::mean_squared_error(&model.apply(x), y)
/// }));
///
/// let x = random::normal(data, [32, 4], DType::F32);
/// let batch = (x.clone(), x.sum(1).reshape([32, 1]));
/// let first = step.update(&mut state, &batch)?.item::<f32>()?;
/// for _ in 0..100 {
///     step.update(&mut state, &batch)?;
/// }
/// let (model, _) = &state;
/// assert!(nn::mean_squared_error(&model.apply(&batch.0), &batch.1).item::<f32>()? < 0.1 * first);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// Inside `jit` each gradient is freed as soon as the optimizer has consumed it. For a step that does more, such as clipping, write the
/// function: it calls [`value_and_grad`](crate::value_and_grad) and [`Optimizer::update`].
///
/// # Errors
/// The function fails with the first error of the loss, as [`value_and_grad`](crate::value_and_grad), and as [`Optimizer::update`]; their
/// line is that of this call.
#[track_caller]
pub fn step<O: Optimizer, M: Tree, B: Tree, R: ScalarOutput>(
    optimizer: O,
    loss: impl Fn(&M, &B) -> R,
) -> impl Fn(&((M, O::State<M>), B)) -> Result<((M, O::State<M>), Tensor)> {
    let loc = current_loc();
    move |((model, state), batch)| {
        let (loss, gradient) = value_and_grad_at(loc, |model: &M| loss(model, batch), model)?;
        let next = pinned_at(loc, || optimizer.update(model, &gradient, state))?;
        Ok((next, loss))
    }
}
