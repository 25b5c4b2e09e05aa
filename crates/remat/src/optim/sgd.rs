//! Stochastic gradient descent.

use remat_ir::{Error, ErrorKind, Result};

use super::Schedule;
use super::leaves::{aligned, next_step, no_steps, rate, working_dtype, zeros};
use crate::trace::{current_loc, pinned, rebuild};
use crate::{Tensor, Tree, named_scope};

/// Gradient descent, with momentum if it is not zero, and Nesterov's if that is said.
///
/// `v = g + momentum * v`, then `p - rate * v`, or with Nesterov `p - rate * (g + momentum * v)`.
///
/// ```
/// use remat::{Tensor, optim};
/// let sgd = optim::Sgd { learning_rate: 0.5.into(), ..optim::Sgd::default() };
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, _) = sgd.update(&model, &Tensor::new([1.0f32, 2.0]), &sgd.init(&model))?;
/// assert_eq!(model.to_vec::<f32>()?, [0.5, -2.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sgd {
    /// The rate; 1e-2 by default.
    pub learning_rate: Schedule,
    /// How much of the velocity stays; 0 by default.
    pub momentum: f64,
    /// Looks ahead; not by default.
    pub nesterov: bool,
}

/// The state of [`Sgd`].
#[derive(Clone, Debug, Tree)]
pub struct Velocity<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The velocity; `None` without momentum.
    pub velocity: Option<M>,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd { learning_rate: Schedule::Constant(1e-2), momentum: 0.0, nesterov: false }
    }
}

impl Sgd {
    /// The state before the first step.
    #[track_caller]
    pub fn init<M: Tree>(&self, model: &M) -> Velocity<M> {
        pinned(|| Velocity { step: no_steps(), velocity: (self.momentum != 0.0).then(|| zeros(model)) })
    }

    /// The model and the state after a step.
    ///
    /// # Errors
    /// If the gradients or the state do not have the structure and the shapes of the model; if the state has no velocity
    /// and there is momentum.
    #[track_caller]
    pub fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Velocity<M>) -> Result<(M, Velocity<M>)> {
        let loc = current_loc();
        pinned(|| named_scope("sgd", || self.step(model, gradients, state))).map_err(|error| error.at(loc))
    }

    fn step<M: Tree>(&self, model: &M, gradients: &M, state: &Velocity<M>) -> Result<(M, Velocity<M>)> {
        const NAME: &str = "optim::Sgd::update";
        if self.momentum != 0.0 && state.velocity.is_none() {
            let message = "the state has no velocity; make it with `init` of an optimizer with momentum";
            return Err(Error::new(ErrorKind::Structure, NAME, message));
        }
        // Without a velocity the gradients stand in its place, and are not used.
        let velocity = state.velocity.as_ref().unwrap_or(gradients);
        let rows = aligned(NAME, model, [("the gradients", gradients), ("the state", velocity)])?;
        let mut rate = rate(&self.learning_rate, &state.step);
        let (mut parameters, mut velocities) = (Vec::new(), Vec::new());
        for (_, parameter, [gradient, velocity]) in rows {
            let dtype = parameter.dtype()?;
            if !dtype.is_float() {
                parameters.push(parameter);
                velocities.push(velocity);
                continue;
            }
            let work = working_dtype(dtype);
            let g = gradient.to_dtype(work);
            let (update, velocity) = if self.momentum == 0.0 {
                (g, velocity)
            } else {
                let velocity = &g + velocity * self.momentum;
                (if self.nesterov { g + &velocity * self.momentum } else { velocity.clone() }, velocity)
            };
            parameters.push((parameter.to_dtype(work) - update * rate.get(work)).to_dtype(dtype));
            velocities.push(velocity);
        }
        let velocity = state.velocity.as_ref().map(|old| rebuild(old, velocities)).transpose()?;
        Ok((rebuild(model, parameters)?, Velocity { step: next_step(&state.step), velocity }))
    }
}
