//! Loss scaling, so that gradients in f16 do not vanish.

use remat_ir::Result;

use super::Optimizer;
use super::leaves::{scoped, working_dtype};
use crate::trace::{pinned, setters};
use crate::tree::leaves;
use crate::{DType, Tensor, Tree, tree};

/// Dynamic loss scaling: the loss is multiplied by a factor, so that small gradients do not vanish in f16, and the gradients are divided by
/// it. After `growth_interval` consecutive steps with finite gradients the factor is doubled. If a gradient is not finite, the factor is
/// halved and the step is skipped.
///
/// Source: Micikevicius et al., "Mixed precision training", 2018; the defaults are those of PyTorch's `GradScaler`. bf16 has the range of
/// f32 and does not need it.
///
/// ```
/// use remat::optim::{LossScale, Sgd};
/// use remat::{DType, Tensor, grad};
/// let optimizer = Sgd::new(0.5);
/// let mut scale = LossScale::new(1024.0).growth_interval(2);
/// let (mut x, mut state) = (Tensor::from(3.0f32), remat::optim::Optimizer::init(&optimizer, &Tensor::from(3.0f32)));
/// // A gradient of 1e-8 is 0 in f16, and 1024 times as much is not.
/// let loss = |x: &Tensor| x.to_dtype(DType::F16).to_dtype(DType::F32) * 1e-8;
/// for _ in 0..2 {
///     let scaled = grad(|x: &Tensor| scale.scale(&loss(x)))(&x)?;
///     (x, state, scale) = scale.update(&optimizer, &x, &scaled, &state)?;
/// }
/// assert_eq!(scale.factor.item::<f32>()?, 2048.0);
/// assert_eq!(scale.skipped.item::<i32>()?, 0);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct LossScale {
    /// The factor, an f32 scalar.
    pub factor: Tensor,
    /// The number of consecutive steps with finite gradients since the factor last changed, an i32 scalar.
    pub finite_steps: Tensor,
    /// The number of skipped steps so far, an i32 scalar.
    pub skipped: Tensor,
    /// The number of consecutive steps with finite gradients after which the factor grows; 2,000 by default.
    pub growth_interval: u64,
    /// The number by which the factor is multiplied when it grows; 2 by default.
    pub growth: f64,
    /// The number by which the factor is multiplied after a gradient that is not finite; 1/2 by default.
    pub backoff: f64,
}

/// An initial factor of 65,536.
impl Default for LossScale {
    fn default() -> LossScale {
        LossScale::new(65_536.0)
    }
}

setters! { LossScale:
    growth_interval(u64) => growth_interval;
    growth(f64) => growth;
    backoff(f64) => backoff;
}

impl LossScale {
    /// A scale with this initial factor.
    pub fn new(factor: f64) -> LossScale {
        LossScale {
            factor: Tensor::from(factor as f32),
            finite_steps: Tensor::from(0i32),
            skipped: Tensor::from(0i32),
            growth_interval: 2000,
            growth: 2.0,
            backoff: 0.5,
        }
    }

    /// The loss times the factor, in f32 (f64 for a loss in f64). Differentiate this scaled loss.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        crate::layer::deferred(|| {
            let work = working_dtype(loss.dtype()?);
            Ok(loss.to_dtype(work) * self.factor.to_dtype(work))
        })
    }

    /// The gradients of the loss, from those of the scaled loss: divided by the factor, in f32 (f64 for leaves in f64). Leaves that are not
    /// floats stay.
    #[track_caller]
    pub fn unscale<M: Tree>(&self, gradients: &M) -> M {
        pinned(|| {
            tree::map(gradients, |leaf| match leaf.dtype() {
                Ok(dtype) if dtype.is_float() => {
                    let work = working_dtype(dtype);
                    leaf.to_dtype(work) / self.factor.to_dtype(work)
                }
                _ => leaf.clone(),
            })
        })
    }

    /// Whether all elements of the float leaves are finite: a bool scalar.
    ///
    /// # Errors
    /// The error of a failed leaf.
    #[track_caller]
    pub fn all_finite<M: Tree>(gradients: &M) -> Result<Tensor> {
        scoped("all_finite", || {
            let mut finite = Tensor::from(true);
            for (_, leaf) in leaves(gradients) {
                if leaf.dtype()?.is_float() {
                    // A sum of zeros, or NaN if an element is not finite: one pass, and no array of the size of the leaf.
                    finite &= (&leaf * 0.0).to_dtype(DType::F32).sum(..).eq(0.0);
                }
            }
            Ok(finite)
        })
    }

    /// The step of an optimizer with the gradients of the scaled loss: returns the model, the state and the next scale. If a gradient is
    /// not finite, model and state stay as they are and the step counts as skipped. To clip or log the unscaled gradients, call
    /// [`LossScale::all_finite`], [`LossScale::unscale`], [`LossScale::keep_if_finite`] and [`LossScale::adjusted`] yourself instead.
    ///
    /// # Errors
    /// Those of the optimizer.
    #[track_caller]
    pub fn update<O: Optimizer, M: Tree>(
        &self,
        optimizer: &O,
        model: &M,
        gradients: &M,
        state: &O::State<M>,
    ) -> Result<(M, O::State<M>, LossScale)> {
        scoped("loss_scale", || {
            let finite = LossScale::all_finite(gradients)?;
            let (next, next_state) = optimizer.update(model, &self.unscale(gradients), state)?;
            let (next, next_state) = (keep(&finite, &next, model)?, keep(&finite, &next_state, state)?);
            Ok((next, next_state, self.adjusted(&finite)))
        })
    }

    /// `new` if `finite`, a bool scalar, is true, and otherwise `old`.
    ///
    /// # Errors
    /// If the structures differ.
    #[track_caller]
    pub fn keep_if_finite<T: Tree>(finite: &Tensor, new: &T, old: &T) -> Result<T> {
        scoped("loss_scale", || keep(finite, new, old))
    }

    /// The scale after a step; `finite` is a bool scalar that tells whether its gradients were finite.
    #[must_use]
    #[track_caller]
    pub fn adjusted(&self, finite: &Tensor) -> LossScale {
        pinned(|| {
            let steps = &self.finite_steps + 1;
            let interval = i32::try_from(self.growth_interval.max(1)).unwrap_or(i32::MAX);
            let is_full = steps.ge(interval);
            let grown = &self.factor * self.growth;
            // The factor does not become infinite.
            let grown = (&is_full & grown.lt(f64::from(f32::MAX))).select(grown, &self.factor);
            // The factor does not become zero.
            let shrunk = (&self.factor * self.backoff).maximum(f64::from(f32::MIN_POSITIVE));
            LossScale {
                factor: finite.select(grown, shrunk),
                finite_steps: (finite & steps.lt(interval)).select(&steps, 0),
                skipped: finite.select(&self.skipped, &self.skipped + 1),
                ..self.clone()
            }
        })
    }
}

fn keep<T: Tree>(finite: &Tensor, new: &T, old: &T) -> Result<T> {
    tree::map2(new, old, |new, old| finite.select(new, old))
}
