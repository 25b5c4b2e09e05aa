//! The loss of text that is not trained on.

use remat::jit_with;

use crate::data::Batch;
use crate::machine;
use crate::model::Model;

/// The mean loss over batches.
///
/// # Errors
/// The first error of the model.
pub(crate) fn mean_loss(model: &Model, tests: impl IntoIterator<Item = Batch>) -> remat::Result<f64> {
    let loss = jit_with(&machine::options(model)?, |(model, batch): &(Model, Batch)| model.loss(batch, None));
    let (mut sum, mut tokens) = (0.0, 0);
    for batch in tests {
        let size = batch.tokens.size()?;
        sum += f64::from(loss.call((model.clone(), batch))?.item::<f32>()?) * size as f64;
        tokens += size;
    }
    Ok(sum / tokens as f64)
}
