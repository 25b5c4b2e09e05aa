//! A training step as one program: loss, gradient and update.
//!
//! Several batches of one step are a scan whose carry is the sum of gradients, so all of them are held. The trained part of a model is the
//! model with empty tensors in place of the other parameters, so optimizer, clipping and accumulation see nothing else, and gradients of
//! frozen weights are dead code.

mod optimizer;

use anyhow::Result;
use remat::nn::Lora;
use remat::optim::{LossScale, Mask, Optimizer, clip_by_global_norm, clip_by_value};
use remat::{DType, Policy, Tensor, Tree, memory, scan, tree, value_and_grad_aux};
use remat_command::arguments;

use crate::config::Config;
use crate::data::Batch;
use crate::model::Model;
use optimizer::AnyOptimizer;
pub(crate) use optimizer::OptimizerState;

/// The options of a step.
pub(crate) struct Step {
    policy: Option<Policy>,
    compute: DType,
    optimizer: AnyOptimizer,
    /// The limits of the gradients' norm and values.
    clip: (Option<f64>, Option<f64>),
    /// The number of batches in a step.
    accumulate: usize,
    /// The trained parameters, if these are not all.
    trained: Option<Mask>,
}

/// The state that a step changes, and its batch.
pub(crate) type Arguments = (Model, OptimizerState<Model>, Option<LossScale>, Batch);

/// The results of a step: the changed state, and its numbers.
pub(crate) type Results = (Model, OptimizerState<Model>, Option<LossScale>, Numbers<Tensor>);

/// What is measured at a step: tensors in its program, and numbers behind it.
#[derive(Clone, Copy, Tree)]
pub(crate) struct Numbers<T> {
    /// The mean loss of its batch, f32.
    pub(crate) loss: T,
    /// The norm of the gradient before it is clipped. `None` if it is not clipped by its norm: to measure it alone would keep all of the gradient.
    pub(crate) gradient_norm: Option<T>,
}

impl Step {
    /// # Errors
    /// If the policy does not exist, or weight decay is requested for an optimizer without it.
    pub(crate) fn of(config: &Config) -> Result<Step> {
        let some = |limit: f64| (limit > 0.0).then_some(limit);
        Ok(Step {
            policy: arguments::policy(&config.policy)?,
            compute: config.dtype.dtype(),
            optimizer: AnyOptimizer::of(config)?,
            clip: (some(config.clip_norm), some(config.clip_value)),
            accumulate: config.accumulate,
            trained: config.lora.map(|_| Lora::mask()),
        })
    }

    /// The learning rate of the step after this many. Steps that were skipped do not count for the schedule.
    ///
    /// # Errors
    /// If the schedule is wrong.
    pub(crate) fn learning_rate(&self, done: u32, scale: Option<&LossScale>) -> remat::Result<f64> {
        let skipped = scale.map_or(Ok(0), |scale| scale.skipped.item::<i32>())?;
        let counted = i64::from(done) - i64::from(skipped);
        self.optimizer.learning_rate().at(&Tensor::from(counted), DType::F64).item::<f64>()
    }

    /// The state before the first step.
    ///
    /// # Errors
    /// If the model has no trained parameters.
    pub(crate) fn init(&self, model: &Model) -> remat::Result<(OptimizerState<Model>, Option<LossScale>)> {
        let scale = (self.compute == DType::F16).then(LossScale::default);
        Ok((self.optimizer.init(&chosen(model, &self.takes(model)?)), scale))
    }

    /// The mean loss of a batch, f32.
    pub(crate) fn loss(&self, model: &Model, batch: &Batch, policy: Option<&Policy>) -> Tensor {
        model.computed_in(self.compute).loss(batch, policy)
    }

    /// The mean loss of a batch, and the gradient of the trained parameters, which is that of the scaled loss if there is a scale.
    ///
    /// # Errors
    /// The first error of the model.
    pub(crate) fn loss_and_gradient(
        &self,
        model: &Model,
        scale: Option<&LossScale>,
        batch: &Batch,
    ) -> remat::Result<(Tensor, Model)> {
        let takes = self.takes(model)?;
        let gradient_of = |batch: &Batch| -> remat::Result<(Tensor, Model)> {
            let loss = |model: &Model| {
                let loss = self.loss(model, batch, self.policy.as_ref());
                (scale.map_or(loss.clone(), |scale| scale.scale(&loss)), loss)
            };
            let ((_, loss), gradient) = value_and_grad_aux(loss)(model)?;
            Ok((loss, chosen(&gradient, &takes)))
        };
        match self.accumulate {
            1 => gradient_of(batch),
            count => accumulated(count, &chosen(model, &takes), batch, gradient_of),
        }
    }

    /// One step.
    ///
    /// # Errors
    /// The first error of the model or of the optimizer.
    pub(crate) fn run(&self, (model, state, scale, batch): &Arguments) -> remat::Result<Results> {
        let takes = self.takes(model)?;
        let trained = chosen(model, &takes);
        let (loss, gradient) = self.loss_and_gradient(model, scale.as_ref(), batch)?;
        let (gradient, finite) = match scale {
            None => (gradient, None),
            Some(scale) => {
                let finite = LossScale::all_finite(&gradient)?;
                (scale.unscale(&gradient), Some((scale, finite)))
            }
        };
        let gradient = memory::gradients(&gradient);
        let (norm, value) = self.clip;
        let (gradient, gradient_norm) = match norm {
            None => (gradient, None),
            Some(most) => {
                let (clipped, norm) = clip_by_global_norm(&gradient, most);
                (clipped, Some(norm.to_dtype(DType::F32)))
            }
        };
        let gradient = value.map_or_else(|| gradient.clone(), |value| clip_by_value(&gradient, value));
        let (next, next_state) = self.optimizer.update(&trained, &gradient, state)?;
        let (next, next_state, scale) = match finite {
            None => (next, next_state, None),
            Some((scale, finite)) => (
                LossScale::keep_if_finite(&finite, &next, &trained)?,
                LossScale::keep_if_finite(&finite, &next_state, state)?,
                Some(scale.adjusted(&finite)),
            ),
        };
        Ok((merged(model, &next, &takes)?, next_state, scale, Numbers { loss, gradient_norm }))
    }

    /// Whether each parameter is trained.
    pub(crate) fn takes(&self, model: &Model) -> remat::Result<Vec<bool>> {
        self.trained.as_ref().unwrap_or(&Mask::All).of(model)
    }
}

/// The mean loss and gradient of the parts of a batch, computed one after the other.
fn accumulated(
    count: usize,
    trained: &Model,
    batch: &Batch,
    gradient_of: impl Fn(&Batch) -> remat::Result<(Tensor, Model)>,
) -> remat::Result<(Tensor, Model)> {
    let [rows, context] = batch.tokens.dims()?;
    let parts = tree::map(batch, |leaf| leaf.reshape([count, rows / count, context]));
    let none = (Tensor::from(0.0f32), tree::map(trained, |leaf| leaf.zeros_like()));
    let add = |(loss, sum): &(Tensor, Model), part: &Batch| -> remat::Result<_> {
        let (more, gradient) = gradient_of(part)?;
        Ok(((loss + more, tree::map2(sum, &gradient, |sum, gradient| sum + gradient)?), ()))
    };
    let ((loss, sum), ()) = scan(add, &none, &parts)?;
    let mean = |leaf: &Tensor| if leaf.dtype().is_ok_and(DType::is_float) { leaf / count as f64 } else { leaf.clone() };
    Ok((loss / count as f64, tree::map(&sum, |leaf| mean(leaf))))
}

/// The tree with only the selected leaves; the others become empty integers, which no optimizer changes.
pub(crate) fn chosen<T: Tree>(tree: &T, takes: &[bool]) -> T {
    let mut takes = takes.iter();
    tree::map(tree, |leaf| match takes.next() {
        Some(false) => Tensor::zeros([0], DType::I32),
        _ => leaf.clone(),
    })
}

/// The model with the selected leaves replaced by those of another.
fn merged(model: &Model, other: &Model, takes: &[bool]) -> remat::Result<Model> {
    let mut takes = takes.iter();
    tree::map2(model, other, |own, other| if takes.next() == Some(&false) { own.clone() } else { other.clone() })
}
