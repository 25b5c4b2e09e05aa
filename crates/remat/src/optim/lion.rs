//! Lion.

use remat_ir::Result;

use super::leaves::{aligned, next_step, no_steps, rate, working_dtype, zeros};
use super::{Mask, Schedule};
use crate::trace::{current_loc, pinned, rebuild};
use crate::{Tensor, Tree, named_scope};

/// The sign of an average gradient as the update: half of Adam's state, and wants a third to a tenth of its rate.
///
/// Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023.
///
/// ```
/// use remat::{Tensor, optim};
/// let lion = optim::Lion { learning_rate: 0.25.into(), weight_decay: 0.0, ..optim::Lion::default() };
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, _) = lion.update(&model, &Tensor::new([10.0f32, -0.01]), &lion.init(&model))?;
/// assert_eq!(model.to_vec::<f32>()?, [0.75, -0.75]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lion {
    /// The rate; 1e-4 by default.
    pub learning_rate: Schedule,
    /// How much of the average the update is made of; 0.9 by default.
    pub b1: f64,
    /// How much of the average stays; 0.99 by default.
    pub b2: f64,
    /// The decay of weights, times the rate; 1e-3 by default.
    pub weight_decay: f64,
    /// The parameters that decay; all by default.
    pub decay: Mask,
}

/// The state of [`Lion`].
#[derive(Clone, Debug, Tree)]
pub struct Momentum<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The average gradient.
    pub mu: M,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { learning_rate: Schedule::Constant(1e-4), b1: 0.9, b2: 0.99, weight_decay: 1e-3, decay: Mask::All }
    }
}

impl Lion {
    /// The state before the first step.
    #[track_caller]
    pub fn init<M: Tree>(&self, model: &M) -> Momentum<M> {
        pinned(|| Momentum { step: no_steps(), mu: zeros(model) })
    }

    /// The model and the state after a step.
    ///
    /// # Errors
    /// If the gradients or the state do not have the structure and the shapes of the model.
    #[track_caller]
    pub fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Momentum<M>) -> Result<(M, Momentum<M>)> {
        let loc = current_loc();
        pinned(|| named_scope("lion", || self.step(model, gradients, state))).map_err(|error| error.at(loc))
    }

    fn step<M: Tree>(&self, model: &M, gradients: &M, state: &Momentum<M>) -> Result<(M, Momentum<M>)> {
        let rows = aligned("optim::Lion::update", model, [("the gradients", gradients), ("the state", &state.mu)])?;
        let mut rate = rate(&self.learning_rate, &state.step);
        let (mut parameters, mut mus) = (Vec::new(), Vec::new());
        for (path, parameter, [gradient, mu]) in rows {
            let dtype = parameter.dtype()?;
            if !dtype.is_float() {
                parameters.push(parameter);
                mus.push(mu);
                continue;
            }
            let work = working_dtype(dtype);
            let (p, g) = (parameter.to_dtype(work), gradient.to_dtype(work));
            let mut update = (&g * (1.0 - self.b1) + &mu * self.b1).sign();
            if self.weight_decay != 0.0 && self.decay.takes(&path, &parameter) {
                update += &p * self.weight_decay;
            }
            parameters.push((p - update * rate.get(work)).to_dtype(dtype));
            mus.push(g * (1.0 - self.b2) + mu * self.b2);
        }
        let state = Momentum { step: next_step(&state.step), mu: rebuild(&state.mu, mus)? };
        Ok((rebuild(model, parameters)?, state))
    }
}
