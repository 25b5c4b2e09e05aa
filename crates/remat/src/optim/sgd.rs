//! Stochastic gradient descent.

use remat_ir::{Aval, Error, ErrorKind, Result};

use super::leaves::{self, Slot, next_step, no_steps, rate, scoped};
use super::schedule::of_rate;
use super::{Optimizer, Schedule};
use crate::trace::{cloned, pinned, setters};
use crate::{Tensor, Tree};

/// Gradient descent, optionally with momentum or Nesterov momentum.
///
/// `v = g + momentum * v`, and the new parameter is `p - rate * v`, or `p - rate * (g + momentum * v)` with Nesterov momentum, as in
/// PyTorch. Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013. For weight decay, use
/// [`add_decayed_weights`](super::add_decayed_weights) on the gradients.
///
/// ```
/// use remat::{Tensor, optim::{self, Optimizer}};
/// let sgd = optim::Sgd::new(0.5);
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, _) = sgd.update(&model, &Tensor::new([1.0f32, 2.0]), &sgd.init(&model))?;
/// assert_eq!(model.to_vec::<f32>()?, [0.5, -2.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sgd {
    /// The learning rate; 1e-2 by default.
    pub learning_rate: Schedule,
    /// The decay rate of the velocity; 0 by default.
    pub momentum: f64,
    /// Whether momentum is Nesterov momentum; false by default.
    pub nesterov: bool,
}

/// The state of [`Sgd`].
#[derive(Clone, Debug, Tree)]
pub struct Velocity<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The velocity `v`, in f32 (f64 for parameters in f64); `None` without momentum.
    pub velocity: Option<M>,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd { learning_rate: Schedule::Constant(1e-2), momentum: 0.0, nesterov: false }
    }
}

of_rate!(Sgd: learning_rate);

setters! { Sgd:
    momentum(f64) => momentum;
    nesterov(bool) => nesterov;
}

impl Optimizer for Sgd {
    type State<M: Tree> = Velocity<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Velocity<M> {
        pinned(|| {
            let [velocity] = leaves::init(model, slots);
            Velocity { step: no_steps(), velocity: (self.momentum != 0.0).then_some(velocity) }
        })
    }

    /// # Errors
    /// As [`Optimizer::update`]; if there is momentum and the state has no velocity.
    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Velocity<M>) -> Result<(M, Velocity<M>)> {
        const NAME: &str = "optim::Sgd::update";
        scoped("sgd", || {
            let mut rate = rate(&self.learning_rate, &state.step);
            let step = next_step(&state.step);
            if self.momentum == 0.0 {
                let (model, []) = leaves::update(
                    NAME,
                    (model, gradients, []),
                    |_, _| [],
                    |leaf| Ok((leaf.parameter - leaf.gradient * rate.get(leaf.work), [])),
                )?;
                let velocity = state.velocity.as_ref().map(cloned);
                return Ok((model, Velocity { step, velocity }));
            }
            let Some(velocity) = &state.velocity else {
                let message = "the state has no velocity; make it with `init` of an optimizer with momentum";
                return Err(Error::new(ErrorKind::Structure, NAME, message));
            };
            let (model, [velocity]) = leaves::update(NAME, (model, gradients, [velocity]), slots, |leaf| {
                let (g, [velocity]) = (leaf.gradient, leaf.state);
                let velocity = &g + velocity * self.momentum;
                let update = if self.nesterov { g + &velocity * self.momentum } else { velocity.clone() };
                Ok((leaf.parameter - update * rate.get(leaf.work), [velocity]))
            })?;
            Ok((model, Velocity { step, velocity: Some(velocity) }))
        })
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 1] {
    [Slot::like(parameter)]
}
