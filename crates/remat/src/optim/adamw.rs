//! AdamW.

use remat_ir::{Aval, Result};

use super::leaves::{self, Leaf, PerDType, Slot, correction, next_step, no_steps, rate, scoped};
use super::schedule::of_rate;
use super::{Mask, Optimizer, Schedule};
use crate::trace::{pinned, setters};
use crate::{Tensor, Tree};

/// Adam with decoupled weight decay.
///
/// The new parameter is `p - rate * (m / (sqrt(v) + eps) + weight_decay * p)`, where `m` and `v` are exponential moving averages of the
/// gradient and of its square, with bias correction. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
///
/// ```
/// use remat::{Tensor, optim::{self, Optimizer}};
/// let adam = optim::AdamW::new(0.5).weight_decay(0.0);
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, state) = adam.update(&model, &Tensor::new([10.0f32, -0.01]), &adam.init(&model))?;
/// assert!(model.allclose(&Tensor::new([0.5f32, -0.5]), 1e-5, 1e-5)?);
/// assert_eq!(state.step.item::<i32>()?, 1);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW {
    /// The learning rate; 1e-3 by default.
    pub learning_rate: Schedule,
    /// The decay rate of the first moment, the moving average of the gradient; 0.9 by default.
    pub b1: f64,
    /// The decay rate of the second moment, the moving average of the squared gradient; 0.999 by default.
    pub b2: f64,
    /// The number added to the square root of the second moment; 1e-8 by default.
    pub eps: f64,
    /// The weight decay, multiplied by the rate; 1e-4 by default.
    pub weight_decay: f64,
    /// The parameters with weight decay; all by default.
    pub decay: Mask,
}

/// The state of [`AdamW`].
#[derive(Clone, Debug, Tree)]
pub struct Moments<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The moving average of the gradient before bias correction, in f32 (f64 for parameters in f64).
    pub mu: M,
    /// The moving average of the squared gradient before bias correction, in the same dtype.
    pub nu: M,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let learning_rate = Schedule::Constant(1e-3);
        AdamW { learning_rate, b1: 0.9, b2: 0.999, eps: 1e-8, weight_decay: 1e-4, decay: Mask::All }
    }
}

of_rate!(AdamW: learning_rate);

setters! { AdamW:
    b1(f64) => b1;
    b2(f64) => b2;
    eps(f64) => eps;
    weight_decay(f64) => weight_decay;
    decay(Mask) => decay;
}

impl Optimizer for AdamW {
    type State<M: Tree> = Moments<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Moments<M> {
        pinned(|| {
            let [mu, nu] = leaves::init(model, slots);
            Moments { step: no_steps(), mu, nu }
        })
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Moments<M>) -> Result<(M, Moments<M>)> {
        scoped("adamw", || {
            let step = next_step(&state.step);
            let mut rule = AdamStep::new(self, model, &state.step, &step)?;
            let trees = (model, gradients, [&state.mu, &state.nu]);
            let (model, [mu, nu]) = leaves::update("optim::AdamW::update", trees, slots, |leaf| {
                let (parameter, mu, nu) = rule.apply(&leaf, &leaf.state[0], &leaf.state[1]);
                Ok((parameter, [mu, nu]))
            })?;
            drop(rule);
            Ok((model, Moments { step, mu, nu }))
        })
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 2] {
    [Slot::like(parameter), Slot::like(parameter)]
}

/// One step of AdamW: the values that all parameters share.
pub(super) struct AdamStep<'a> {
    adam: &'a AdamW,
    decays: Vec<bool>,
    rate: PerDType<'a, Tensor>,
    corrections: PerDType<'a, (Tensor, Tensor)>,
}

impl<'a> AdamStep<'a> {
    /// The step after `before` steps, which is number `step`.
    pub(super) fn new<M: Tree>(
        adam: &'a AdamW,
        model: &M,
        before: &'a Tensor,
        step: &'a Tensor,
    ) -> Result<AdamStep<'a>> {
        let corrections = |dtype| (correction(step, dtype, adam.b1), correction(step, dtype, adam.b2));
        let rate = rate(&adam.learning_rate, before);
        Ok(AdamStep { adam, decays: adam.decay.of(model)?, rate, corrections: PerDType::new(corrections) })
    }

    /// The parameter and both moments after the step.
    pub(super) fn apply<const S: usize>(
        &mut self,
        leaf: &Leaf<S>,
        mu: &Tensor,
        nu: &Tensor,
    ) -> (Tensor, Tensor, Tensor) {
        let AdamW { b1, b2, eps, weight_decay, .. } = *self.adam;
        let (p, g) = (&leaf.parameter, &leaf.gradient);
        let mu = g * (1.0 - b1) + mu * b1;
        let nu = g.square() * (1.0 - b2) + nu * b2;
        let (c1, c2) = self.corrections.get(leaf.work);
        let mut update = (&mu / c1) / ((&nu / c2).sqrt() + eps);
        if weight_decay != 0.0 && self.decays[leaf.index] {
            update += p * weight_decay;
        }
        (p - update * self.rate.get(leaf.work), mu, nu)
    }
}
