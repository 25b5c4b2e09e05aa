//! The loss of text that is not trained on.

use remat::{Jitted, Tensor, jit_with};

use crate::data::Batch;
use crate::machine;
use crate::model::Model;

/// The mean loss over batches.
///
/// # Errors
/// The first error of a batch or of the model.
pub(crate) fn mean_loss(model: &Model, tests: impl IntoIterator<Item = remat::Result<Batch>>) -> remat::Result<f64> {
    let loss = jit_with(&machine::options(model)?, |(model, batch): &(Model, Batch)| model.loss(batch, None));
    mean_loss_of(&loss, model, tests)
}

/// As [`mean_loss`], of a loss that is compiled once for all calls.
///
/// # Errors
/// The first error of a batch or of the loss.
pub(super) fn mean_loss_of(
    loss: &Jitted<(Model, Batch), Tensor, impl Fn(&(Model, Batch)) -> Tensor>,
    model: &Model,
    tests: impl IntoIterator<Item = remat::Result<Batch>>,
) -> remat::Result<f64> {
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let batch = batch?;
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}
