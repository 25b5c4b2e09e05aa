//! The held-out loss.

use remat::{JitOptions, Jitted, Result, Tensor, jit_with};

use crate::data::Batch;
use crate::machine;
use crate::model::Model;
use crate::step::Step;

/// The mean loss over batches.
///
/// # Errors
/// The first error of a batch or of the model.
pub(crate) fn mean_loss(model: &Model, tests: impl IntoIterator<Item = Result<Batch>>) -> Result<f64> {
    mean(&program(&machine::options_beside_process(model)?, |model, batch| model.loss(batch, None)), model, tests)
}

/// The held-out loss during training, computed by one program.
pub(super) struct HeldOut<'a> {
    loss: Loss<'a>,
    tests: Vec<Batch>,
}

/// A program of the loss of a batch.
type Loss<'a> = Jitted<(Model, Batch), Tensor, Box<dyn Fn(&(Model, Batch)) -> Tensor + 'a>>;

impl<'a> HeldOut<'a> {
    /// The held-out loss on these batches, in the dtype of the step.
    pub(super) fn new(options: &JitOptions, step: &'a Step, tests: Vec<Batch>) -> HeldOut<'a> {
        HeldOut { loss: program(options, move |model, batch| step.loss(model, batch, None)), tests }
    }

    /// The mean loss of a model.
    ///
    /// # Errors
    /// The first error of the model.
    pub(super) fn of(&self, model: &Model) -> Result<f64> {
        mean(&self.loss, model, self.tests.iter().cloned().map(Ok))
    }

    /// The most bytes that are live while the loss of a batch is computed, including model and batch.
    ///
    /// # Errors
    /// The first error of the model.
    pub(super) fn peak(&self, model: &Model, batch: &Batch) -> Result<usize> {
        Ok(self.loss.memory(&(model.clone(), batch.clone()))?.peak)
    }
}

fn program<'a>(options: &JitOptions, loss: impl Fn(&Model, &Batch) -> Tensor + 'a) -> Loss<'a> {
    let loss: Box<dyn Fn(&(Model, Batch)) -> Tensor + 'a> = Box::new(move |(model, batch)| loss(model, batch));
    jit_with(options, loss)
}

/// The mean of the loss per token.
///
/// # Errors
/// The first error of a batch or of the loss.
fn mean(loss: &Loss<'_>, model: &Model, tests: impl IntoIterator<Item = Result<Batch>>) -> Result<f64> {
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let batch = batch?;
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}
