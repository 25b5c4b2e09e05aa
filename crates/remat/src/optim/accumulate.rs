//! Gradient accumulation: gradients of several batches for one step.

use remat_ir::{Aval, Error, ErrorKind, Result};

use super::Optimizer;
use super::leaves::{self, Slot, no_steps, scoped};
use crate::trace::{cloned, pinned};
use crate::{Tensor, Tree, cond, tree};

/// Gradient accumulation: every `steps` calls of `update` make one step of an optimizer with the mean of their gradients, as if their
/// batches were one large batch: `optax.MultiSteps`.
///
/// The other calls leave the model unchanged. The mean is kept in f32 (f64 for parameters in f64), and the optimizer runs in a branch, so
/// its work is done only in every `steps`-th call.
///
/// ```
/// use remat::optim::{Accumulate, Optimizer, Sgd};
/// use remat::Tensor;
/// let sgd = Accumulate::new(Sgd::new(1.0), 2);
/// let model = Tensor::from(10.0f32);
/// let (model, state) = sgd.update(&model, &Tensor::from(1.0f32), &sgd.init(&model))?;
/// assert_eq!(model.item::<f32>()?, 10.0);
/// let (model, _) = sgd.update(&model, &Tensor::from(3.0f32), &state)?;
/// assert_eq!(model.item::<f32>()?, 8.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Accumulate<O> {
    /// The optimizer that updates the model.
    pub optimizer: O,
    /// The number of calls that make a step; at least 1.
    pub steps: u64,
}

impl<O> Accumulate<O> {
    /// One step of an optimizer for this many calls, which is at least 1.
    #[must_use]
    pub fn new(optimizer: O, steps: u64) -> Accumulate<O> {
        Accumulate { optimizer, steps }
    }
}

/// The state of [`Accumulate`].
#[derive(Clone, Debug, Tree)]
pub struct Accumulated<M, S> {
    /// The number of gradients in the mean, i32.
    pub count: Tensor,
    /// The mean of the gradients since the last step, in f32 (f64 for parameters in f64).
    pub mean: M,
    /// The state of the optimizer. Its learning rate schedule counts steps of the optimizer, not calls.
    pub inner: S,
}

impl<O: Optimizer> Optimizer for Accumulate<O> {
    type State<M: Tree> = Accumulated<M, O::State<M>>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Self::State<M> {
        pinned(|| {
            let [mean] = leaves::init(model, slots);
            Accumulated { count: no_steps(), mean, inner: self.optimizer.init(model) }
        })
    }

    /// # Errors
    /// As [`Optimizer::update`]; if `steps` is 0 or more than `i32::MAX`.
    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Self::State<M>) -> Result<(M, Self::State<M>)> {
        const NAME: &str = "optim::Accumulate::update";
        scoped("accumulate", || {
            let Some(last) = self.steps.checked_sub(1).and_then(|last| i32::try_from(last).ok()) else {
                let message = format!("`steps` is {} and must be from 1 to {}", self.steps, i32::MAX);
                return Err(Error::new(ErrorKind::Argument, NAME, message));
            };
            let (_, [mean]) = leaves::update(NAME, (model, gradients, [&state.mean]), slots, |leaf| {
                let [mean] = leaf.state;
                let n = state.count.to_dtype(leaf.work) + 1;
                let mean = &mean + (leaf.gradient - &mean) / n;
                Ok((leaf.parameter, [mean]))
            })?;
            let step = |(model, mean, inner): &(M, M, O::State<M>)| -> Result<_> {
                let (model, inner) = self.optimizer.update(model, mean, inner)?;
                Ok((model, zeros(mean), inner))
            };
            let wait = |(model, mean, inner): &(M, M, O::State<M>)| Ok((cloned(model), cloned(mean), cloned(inner)));
            let is_last = state.count.ge(last);
            let operand = (cloned(model), mean, cloned(&state.inner));
            let (model, mean, inner) = cond(&is_last, step, wait, &operand)?;
            let count = is_last.select(0, &state.count + 1);
            Ok((model, Accumulated { count, mean, inner }))
        })
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 1] {
    [Slot::like(parameter)]
}

fn zeros<T: Tree>(tree: &T) -> T {
    tree::map(tree, |leaf| leaf.zeros_like())
}
