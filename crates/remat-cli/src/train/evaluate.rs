//! The loss of text that is not trained on.

use remat::{JitOptions, Tensor, jit_with};

use crate::data::Batch;
use crate::machine;
use crate::model::Model;

/// The mean loss over batches.
///
/// # Errors
/// The first error of a batch or of the model.
pub(crate) fn mean_loss(model: &Model, tests: impl IntoIterator<Item = remat::Result<Batch>>) -> remat::Result<f64> {
    mean_loss_of(&machine::options(model)?, |model, batch| model.loss(batch, None), model, tests)
}

/// As [`mean_loss`], of a loss that is given.
///
/// # Errors
/// The first error of a batch or of the loss.
pub(super) fn mean_loss_of(
    options: &JitOptions,
    loss: impl Fn(&Model, &Batch) -> Tensor,
    model: &Model,
    tests: impl IntoIterator<Item = remat::Result<Batch>>,
) -> remat::Result<f64> {
    let loss = jit_with(options, |(model, batch): &(Model, Batch)| loss(model, batch));
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let batch = batch?;
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}
