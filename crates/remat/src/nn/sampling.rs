//! Sampling: the choice of the next token.

use remat_ir::{Error, ErrorKind, Result};

use crate::argument::keep;
use crate::layer::deferred;
use crate::random::{self, Key};
use crate::trace::setters;
use crate::{DType, Tensor, Tree};

/// How the next token is drawn from its logits. The default draws with the model's probabilities.
///
/// ```
/// use remat::{Tensor, nn::Sampling, random};
/// let logits = Tensor::new([[0.0f32, 3.0, 2.0, -1.0]]);
/// assert_eq!(Sampling::greedy().choose(random::key(0), &logits).to_vec::<i32>()?, [1]);
/// let sampling = Sampling { temperature: 0.7, top_k: Some(2), ..Sampling::default() };
/// assert!([1, 2].contains(&sampling.choose(random::key(0), &logits).index(0).item::<i32>()?));
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Tree)]
pub struct Sampling {
    /// The divisor of the logits; with 0 the most likely token is always taken.
    pub temperature: f64,
    /// Draws only among this many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Draws only among the fewest most likely tokens whose probabilities add up to at least this share, above 0 and at most 1. With
    /// `top_k`, only the tokens that it leaves are considered. Source: Holtzman et al., "The curious case of neural text degeneration",
    /// 2019.
    pub top_p: Option<f64>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 1.0, top_k: None, top_p: None }
    }
}

setters! { Sampling:
    temperature(f64) => temperature;
    top_k(impl Into<Option<usize>>) => top_k;
    top_p(impl Into<Option<f64>>) => top_p;
}

impl Sampling {
    /// Takes the most likely token each time, the first of equals.
    pub const fn greedy() -> Sampling {
        Sampling { temperature: 0.0, top_k: None, top_p: None }
    }

    /// Draws tokens from logits `float[.., vocabulary]`: `i32[..]`.
    ///
    /// # Errors
    /// If the temperature is negative or not finite, `top_k` is 0, `top_p` is not above 0 and at most 1, or the logits are not floats with
    /// a non-empty dimension.
    #[track_caller]
    pub fn choose(&self, key: Key, logits: &Tensor) -> Tensor {
        deferred(|| {
            self.check()?;
            let vocabulary = logits.dim(-1)?;
            let logits = logits.to_dtype(DType::F32);
            if self.temperature == 0.0 {
                return Ok(logits.argmax(-1));
            }
            // Relative to the largest, so that with a temperature near zero the others become -inf and none infinite.
            let logits = (&logits - logits.max(keep(-1))) / self.temperature.max(f64::from(f32::MIN_POSITIVE));
            if self.top_k.is_none() && self.top_p.is_none() {
                return Ok(random::categorical(key, (), &logits, -1));
            }
            let (mut likely, tokens) = logits.top_k(self.top_k.unwrap_or(vocabulary).min(vocabulary));
            if let Some(share) = self.top_p {
                likely = within_share(&likely, share);
            }
            let drawn = random::categorical(key, (), &likely, -1);
            Ok(tokens.take_along_axis(&drawn.expand_dims(-1), -1).squeeze(-1))
        })
    }

    /// Checks that the fields are in their ranges.
    ///
    /// # Errors
    /// If a field is out of range, as [`Sampling::choose`].
    pub fn check(&self) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::Argument, "nn::Sampling", message));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refused(format!("the temperature must be at least 0 and finite, not {}", self.temperature));
        }
        if self.top_k == Some(0) {
            return refused("`top_k` must be at least 1".into());
        }
        match self.top_p {
            Some(share) if !(share > 0.0 && share <= 1.0) => {
                refused(format!("`top_p` must be above 0 and at most 1, not {share}"))
            }
            _ => Ok(()),
        }
    }
}

/// The logits of the most likely tokens whose probabilities add up to a share, and minus infinity for the others. `logits` are ordered, the
/// largest first.
fn within_share(logits: &Tensor, share: f64) -> Tensor {
    // A token is included if those before it do not reach the share, so the first one always is.
    let probabilities = logits.softmax(-1);
    let before = probabilities.cumsum(-1) - &probabilities;
    before.lt(share).select(logits, f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cumulative sum with roundings of one sign would be some percent of the share away.
    #[test]
    fn a_share_of_many_equal_tokens_has_as_many_of_them() -> Result<()> {
        let (n, share) = (10_000_000, 0.9);
        let kept = within_share(&Tensor::zeros([n], DType::F32), share).is_finite().to_dtype(DType::I32).sum(..);
        let difference = f64::from(kept.item::<i32>()?) - share * n as f64;
        assert!(difference.abs() <= 2.0, "{difference} tokens too many");
        Ok(())
    }
}
