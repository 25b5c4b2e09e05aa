//! AdamW.

use remat_ir::Result;

use super::leaves::{PerDType, aligned, next_step, no_steps, rate, scalar, working_dtype, zeros};
use super::{Mask, Schedule};
use crate::trace::{current_loc, pinned, rebuild};
use crate::{DType, Tensor, Tree, named_scope};

/// Adam with decoupled decay of weights.
///
/// `p - rate * (m / (sqrt(v) + eps) + weight_decay * p)`, where `m` and `v` are averages of the gradient and of its square,
/// corrected for their start at zero. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
///
/// ```
/// use remat::{Tensor, optim};
/// let adam = optim::AdamW { learning_rate: 0.5.into(), weight_decay: 0.0, ..optim::AdamW::default() };
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, state) = adam.update(&model, &Tensor::new([10.0f32, -0.01]), &adam.init(&model))?;
/// assert!(model.allclose(&Tensor::new([0.5f32, -0.5]), 1e-5, 1e-5)?);
/// assert_eq!(state.step.item::<i32>()?, 1);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW {
    /// The rate; 1e-3 by default.
    pub learning_rate: Schedule,
    /// How much of the average gradient stays; 0.9 by default.
    pub b1: f64,
    /// How much of the average square stays; 0.999 by default.
    pub b2: f64,
    /// Added to the root; 1e-8 by default.
    pub eps: f64,
    /// The decay of weights, times the rate; 1e-4 by default.
    pub weight_decay: f64,
    /// The parameters that decay; all by default.
    pub decay: Mask,
}

/// The state of [`AdamW`].
#[derive(Clone, Debug, Tree)]
pub struct Moments<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The average gradient.
    pub mu: M,
    /// The average squared gradient.
    pub nu: M,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let learning_rate = Schedule::Constant(1e-3);
        AdamW { learning_rate, b1: 0.9, b2: 0.999, eps: 1e-8, weight_decay: 1e-4, decay: Mask::All }
    }
}

impl AdamW {
    /// The state before the first step.
    #[track_caller]
    pub fn init<M: Tree>(&self, model: &M) -> Moments<M> {
        pinned(|| Moments { step: no_steps(), mu: zeros(model), nu: zeros(model) })
    }

    /// The model and the state after a step.
    ///
    /// # Errors
    /// If the gradients or the state do not have the structure and the shapes of the model.
    #[track_caller]
    pub fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Moments<M>) -> Result<(M, Moments<M>)> {
        let loc = current_loc();
        pinned(|| named_scope("adamw", || self.step(model, gradients, state))).map_err(|error| error.at(loc))
    }

    fn step<M: Tree>(&self, model: &M, gradients: &M, state: &Moments<M>) -> Result<(M, Moments<M>)> {
        let others = [("the gradients", gradients), ("the state", &state.mu), ("the state", &state.nu)];
        let rows = aligned("optim::AdamW::update", model, others)?;
        let mut rate = rate(&self.learning_rate, &state.step);
        let step = next_step(&state.step);
        let mut corrections =
            PerDType::new(|dtype| (correction(&step, dtype, self.b1), correction(&step, dtype, self.b2)));
        let (mut parameters, mut mus, mut nus) = (Vec::new(), Vec::new(), Vec::new());
        for (path, parameter, [gradient, mu, nu]) in rows {
            let dtype = parameter.dtype()?;
            if !dtype.is_float() {
                parameters.push(parameter);
                mus.push(mu);
                nus.push(nu);
                continue;
            }
            let work = working_dtype(dtype);
            let (p, g) = (parameter.to_dtype(work), gradient.to_dtype(work));
            let mu = &g * (1.0 - self.b1) + mu * self.b1;
            let nu = g.square() * (1.0 - self.b2) + nu * self.b2;
            let (c1, c2) = corrections.get(work);
            let mut update = (&mu / c1) / ((&nu / c2).sqrt() + self.eps);
            if self.weight_decay != 0.0 && self.decay.takes(&path, &parameter) {
                update += &p * self.weight_decay;
            }
            parameters.push((p - update * rate.get(work)).to_dtype(dtype));
            mus.push(mu);
            nus.push(nu);
        }
        let state = Moments { step: step.clone(), mu: rebuild(&state.mu, mus)?, nu: rebuild(&state.nu, nus)? };
        Ok((rebuild(model, parameters)?, state))
    }
}

/// `1 - b^step`, by the logarithm of `b`: in f32 the power itself would leave four digits of the first steps.
fn correction(step: &Tensor, dtype: DType, b: f64) -> Tensor {
    if b == 0.0 { scalar(dtype, 1.0) } else { -(step.to_dtype(dtype) * b.ln()).expm1() }
}
