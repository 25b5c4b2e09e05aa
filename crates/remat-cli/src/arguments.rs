//! Values of arguments.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// A parser of numbers from 1 to `most`: sizes that no machine has are errors here, and not hangs or aborts later.
pub(crate) fn up_to(most: u64) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=most)
}

/// A parser of numbers from 0 up that `f32` can hold, which is what the model computes in.
pub(crate) fn magnitude(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_it = (0.0..=f64::from(f32::MAX)).contains(&number);
    is_it.then_some(number).ok_or_else(|| format!("must be a number from 0 to {:e}", f32::MAX))
}
