//! Lion.

use remat_ir::{Aval, Result};

use super::leaves::{self, Slot, next_step, no_steps, rate, scoped};
use super::schedule::of_rate;
use super::{Mask, Optimizer, Schedule};
use crate::trace::{pinned, setters};
use crate::{Tensor, Tree};

/// Lion, whose update is the sign of an average gradient. It has half of Adam's state, and needs a third to a tenth of its learning rate.
///
/// The new parameter is `p - rate * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)`. Then `m = b2 * m + (1 - b2) * g`. Source: Chen et
/// al., "Symbolic discovery of optimization algorithms", 2023.
///
/// ```
/// use remat::{Tensor, optim::{self, Optimizer}};
/// let lion = optim::Lion::new(0.25).weight_decay(0.0);
/// let model = Tensor::new([1.0f32, -1.0]);
/// let (model, _) = lion.update(&model, &Tensor::new([10.0f32, -0.01]), &lion.init(&model))?;
/// assert_eq!(model.to_vec::<f32>()?, [0.75, -0.75]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lion {
    /// The learning rate; 1e-4 by default.
    pub learning_rate: Schedule,
    /// The weight of the moving average `m` in the update; 0.9 by default.
    pub b1: f64,
    /// The decay rate of the moving average `m`; 0.99 by default.
    pub b2: f64,
    /// The weight decay, multiplied by the rate; 1e-3 by default.
    pub weight_decay: f64,
    /// The parameters with weight decay; all by default.
    pub decay: Mask,
}

/// The state of [`Lion`], and of the matrices of [`Muon`](super::Muon).
#[derive(Clone, Debug, Tree)]
pub struct Momentum<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The moving average of the gradient, in f32 (f64 for parameters in f64).
    pub mu: M,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { learning_rate: Schedule::Constant(1e-4), b1: 0.9, b2: 0.99, weight_decay: 1e-3, decay: Mask::All }
    }
}

of_rate!(Lion: learning_rate);

setters! { Lion:
    b1(f64) => b1;
    b2(f64) => b2;
    weight_decay(f64) => weight_decay;
    decay(Mask) => decay;
}

impl Optimizer for Lion {
    type State<M: Tree> = Momentum<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Momentum<M> {
        pinned(|| {
            let [mu] = leaves::init(model, slots);
            Momentum { step: no_steps(), mu }
        })
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Momentum<M>) -> Result<(M, Momentum<M>)> {
        scoped("lion", || {
            let mut rate = rate(&self.learning_rate, &state.step);
            let decays = self.decay.of(model)?;
            let trees = (model, gradients, [&state.mu]);
            let (model, [mu]) = leaves::update("optim::Lion::update", trees, slots, |leaf| {
                let (p, g, [mu]) = (leaf.parameter, leaf.gradient, leaf.state);
                let mut update = (&g * (1.0 - self.b1) + &mu * self.b1).sign();
                if self.weight_decay != 0.0 && decays[leaf.index] {
                    update += &p * self.weight_decay;
                }
                Ok((p - update * rate.get(leaf.work), [g * (1.0 - self.b2) + mu * self.b2]))
            })?;
            Ok((model, Momentum { step: next_step(&state.step), mu }))
        })
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 1] {
    [Slot::like(parameter)]
}
