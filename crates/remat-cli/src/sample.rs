//! Text out of a model.

use remat::argument::keep;
use remat::{Result, Tensor, jit_with, random};

use crate::machine;
use crate::model::Gpt;

/// `count` bytes that the model writes after a prompt, drawn at this temperature; at 0 the most likely byte each time.
///
/// # Errors
/// The first error of the model.
pub(crate) fn sample(
    model: &Gpt,
    prompt: &[u8],
    count: usize,
    context: usize,
    temperature: f64,
    key: random::Key,
) -> Result<Vec<u8>> {
    let next =
        jit_with(&machine::options(model)?, |(model, window, last, key): &(Gpt, Tensor, Tensor, random::Key)| {
            let logits = model.logits(window, None)?.index(0).dynamic_index(last, 0);
            if temperature == 0.0 {
                return Ok(logits.argmax(-1));
            }
            // Relative to the largest, so that a temperature near zero makes the others -inf, and none infinite.
            let logits = (&logits - logits.max(keep(-1))) / temperature.max(f64::from(f32::MIN_POSITIVE));
            Ok(random::categorical(key.reuse(), (), &logits, -1))
        });
    let mut text = prompt.to_vec();
    for i in 0..count {
        // Tokens after the last byte are padding: attention is causal.
        let start = text.len().saturating_sub(context);
        let mut window: Vec<i32> = text[start..].iter().map(|&byte| i32::from(byte)).collect();
        let last = Tensor::from(window.len() as i32 - 1);
        window.resize(context, 0);
        let window = Tensor::from_vec(window, [1, context]);
        let byte = next.call((model.clone(), window, last, key.fold_in(i as i64)))?.item::<i32>()?;
        text.push(byte as u8);
    }
    Ok(text.split_off(prompt.len()))
}
