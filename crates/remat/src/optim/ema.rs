//! Exponential moving averages of parameters.

use remat_ir::{Aval, Result};

use super::leaves::{self, Slot, correction, next_step, no_steps, scoped, working_dtype};
use crate::trace::{pinned, setters, structure};
use crate::{Tensor, Tree, tree};

/// An exponential moving average of the parameters, which is often the better model for evaluation.
///
/// The average is `a = decay * a + (1 - decay) * p` after each step. It starts at zero and is divided by `1 - decay^t` after `t` steps when
/// it is read; without `debias` it starts at the parameters and is not divided. Source: Polyak and Juditsky, "Acceleration of stochastic
/// approximation by averaging", 1992; the bias correction is that of Adam.
///
/// ```
/// use remat::{Tensor, optim::Ema};
/// let ema = Ema::new(0.5);
/// let mut model = Tensor::new([1.0f32]);
/// let mut state = ema.init(&model);
/// for value in [2.0f32, 5.0] {
///     model = Tensor::new([value]);
///     state = ema.update(&model, &state)?;
/// }
/// assert_eq!(ema.average(&model, &state)?.item::<f32>()?, (0.25 * 2.0 + 0.5 * 5.0) / 0.75);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ema {
    /// The decay rate of the average; 0.999 by default.
    pub decay: f64,
    /// Whether the average starts at zero and is bias-corrected; true by default.
    pub debias: bool,
}

/// The state of [`Ema`].
#[derive(Clone, Debug, Tree)]
pub struct Averaged<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// The average, in f32 (f64 for parameters in f64), before bias correction: [`Ema::average`] applies it.
    pub average: M,
}

impl Default for Ema {
    fn default() -> Ema {
        Ema { decay: 0.999, debias: true }
    }
}

impl Ema {
    /// The default with this decay rate.
    #[must_use]
    pub fn new(decay: f64) -> Ema {
        Ema { decay, ..Ema::default() }
    }
}

setters! { Ema:
    debias(bool) => debias;
}

impl Ema {
    /// The state before the first step.
    #[track_caller]
    pub fn init<M: Tree>(&self, model: &M) -> Averaged<M> {
        pinned(|| {
            let [zeros] = leaves::init(model, slots);
            let average = if self.debias {
                zeros
            } else {
                let mut zeros = structure(&zeros).0.into_iter();
                tree::map(model, |leaf| match (leaf.dtype(), zeros.next()) {
                    (Ok(dtype), _) if dtype.is_float() => leaf.to_dtype(working_dtype(dtype)),
                    (_, Some(none)) => none,
                    (_, None) => leaf.clone(),
                })
            };
            Averaged { step: no_steps(), average }
        })
    }

    /// The state after a step that resulted in this model.
    ///
    /// # Errors
    /// If the state does not have the structure and the shapes of the model.
    #[track_caller]
    pub fn update<M: Tree>(&self, model: &M, state: &Averaged<M>) -> Result<Averaged<M>> {
        scoped("ema", || {
            // The model takes the place of the gradients, since it is what is averaged.
            let trees = (model, model, [&state.average]);
            let (_, [average]) = leaves::update("optim::Ema::update", trees, slots, |leaf| {
                let [average] = leaf.state;
                let average = average * self.decay + leaf.gradient * (1.0 - self.decay);
                Ok((leaf.parameter, [average]))
            })?;
            Ok(Averaged { step: next_step(&state.step), average })
        })
    }

    /// The average as a model, in the dtypes of `model`. Leaves that are not floats are those of `model`. Before the first step the result
    /// is `model` itself.
    ///
    /// # Errors
    /// As [`Ema::update`].
    #[track_caller]
    pub fn average<M: Tree>(&self, model: &M, state: &Averaged<M>) -> Result<M> {
        scoped("ema", || {
            let trees = (model, model, [&state.average]);
            let (averages, _) = leaves::update("optim::Ema::average", trees, slots, |leaf| {
                let [average] = leaf.state;
                if !self.debias {
                    return Ok((average.clone(), [average]));
                }
                let started = state.step.gt(0);
                let correction =
                    started.select(correction(&state.step, leaf.work, self.decay), Tensor::scalar(leaf.work, 1.0));
                Ok((started.select(&average / correction, leaf.parameter), [average]))
            })?;
            Ok(averages)
        })
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 1] {
    [Slot::like(parameter)]
}
