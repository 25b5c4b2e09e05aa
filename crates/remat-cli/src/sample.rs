//! Text out of a model.

use remat::argument::keep;
use remat::{Tensor, jit_with, random};
use remat_cli::arguments::{magnitude, up_to};
use serde::Serialize;

use crate::machine;
use crate::model::Model;

/// How the next byte is chosen.
#[derive(Clone, PartialEq, Debug, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Choice {
    /// Sampling temperature; 0 is greedy: the most likely byte each time
    #[arg(long, default_value_t = 0.7, value_parser = magnitude, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw among the K most likely bytes alone
    #[arg(long, value_name = "K", value_parser = up_to(256))]
    top_k: Option<usize>,
    /// Draw among the most likely bytes alone whose probabilities add up to P
    #[arg(long, value_name = "P", value_parser = share, allow_negative_numbers = true)]
    top_p: Option<f64>,
}

/// A parser of shares: numbers above 0, up to 1.
///
/// # Errors
/// What is wrong with the text, for the user.
fn share(text: &str) -> Result<f64, String> {
    let number = magnitude(text)?;
    if number > 0.0 && number <= 1.0 { Ok(number) } else { Err("must be a number above 0, up to 1".into()) }
}

impl Choice {
    /// The next byte by these logits, `f32[vocabulary]`, as an integer scalar.
    fn choose(&self, logits: &Tensor, key: random::Key) -> Tensor {
        if self.temperature == 0.0 {
            return logits.argmax(-1);
        }
        // Relative to the largest, so that a temperature near zero makes the others -inf, and none infinite.
        let logits = (logits - logits.max(keep(-1))) / self.temperature.max(f64::from(f32::MIN_POSITIVE));
        let mut least = Tensor::from(f32::NEG_INFINITY);
        let sorted = logits.sort(-1).flip(-1);
        if let Some(k) = self.top_k {
            least = least.maximum(sorted.index(k as i64 - 1));
        }
        if let Some(p) = self.top_p {
            // A byte is among them if those before it do not reach the share: the first one always is.
            let shares = sorted.softmax(-1);
            let before = shares.cumsum(-1) - &shares;
            let among = before.lt(p).select(&sorted, f32::INFINITY);
            least = least.maximum(among.min(-1));
        }
        let among = logits.ge(&least).select(&logits, f32::NEG_INFINITY);
        random::categorical(key, (), &among, -1)
    }
}

/// Draws `count` bytes that the model writes after a prompt, and gives each to `done` at once.
///
/// # Errors
/// The first error of the model or of `done`.
pub(crate) fn sample(
    model: &Model,
    prompt: &[u8],
    count: usize,
    context: usize,
    choice: &Choice,
    key: random::Key,
    mut done: impl FnMut(u8) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next =
        jit_with(&machine::options(model)?, |(model, window, last, key): &(Model, Tensor, Tensor, random::Key)| {
            let logits = model.logits(window).index(0).dynamic_index(last, 0);
            remat::Result::Ok(choice.choose(&logits, key.reuse()))
        });
    let mut text = prompt.to_vec();
    for i in 0..count {
        // Tokens after the last byte are padding: attention is causal.
        let start = text.len().saturating_sub(context);
        let mut window: Vec<i32> = text[start..].iter().map(|&byte| i32::from(byte)).collect();
        let last = Tensor::from(window.len() as i32 - 1);
        window.resize(context, 0);
        let window = Tensor::from_vec(window, [1, context]);
        let byte = next.call((model.clone(), window, last, key.fold_in(i as i64)))?.item::<i32>()? as u8;
        text.push(byte);
        done(byte)?;
    }
    Ok(())
}

/// Bytes as text for people, as they come: bytes that are not text are shown as replacement characters, and so are control characters.
#[derive(Default)]
pub(crate) struct Readable {
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl Readable {
    /// The text that is complete with this byte.
    pub(crate) fn push(&mut self, byte: u8) -> String {
        self.begun.push(byte);
        match std::str::from_utf8(&self.begun) {
            // More bytes may complete it.
            Err(error) if error.error_len().is_none() => String::new(),
            Err(_) if self.begun.len() > 1 => {
                // The byte that ends a broken character may begin another.
                self.begun.clear();
                format!("{}{}", char::REPLACEMENT_CHARACTER, self.push(byte))
            }
            Ok(_) | Err(_) => self.rest(),
        }
    }

    /// What is left, complete or not.
    pub(crate) fn rest(&mut self) -> String {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
        let shown = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        text.chars().map(shown).collect()
    }

    /// All of these bytes.
    pub(crate) fn all(bytes: &[u8]) -> String {
        let mut readable = Readable::default();
        let text: String = bytes.iter().map(|&byte| readable.push(byte)).collect();
        text + &readable.rest()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        choice: Choice,
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(Readable::all(b"a\tb\n\x1b\xff"), "a\tb\n\u{fffd}\u{fffd}");
        assert_eq!(Readable::all("a€😀".as_bytes()), "a€😀");
        assert_eq!(Readable::all(b"\xe2\x82a\xe2"), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn the_bytes_that_are_left_are_the_most_likely() {
        let logits = Tensor::new([0.4f32, 0.1, 0.3, 0.2]).log();
        let drawn = |flags: &str| {
            let choice = Cli::try_parse_from(format!("c --temperature 1 {flags}").split_whitespace()).unwrap().choice;
            let draw = |i| choice.choose(&logits, random::key(i)).item::<i32>().unwrap();
            let mut all: Vec<i32> = (0..60).map(draw).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(drawn(""), [0, 1, 2, 3]);
        assert_eq!(drawn("--top-k 2"), [0, 2]);
        assert_eq!(drawn("--top-k 1"), [0]);
        assert_eq!(drawn("--top-k 4"), [0, 1, 2, 3]);
        assert_eq!(drawn("--top-p 0.6"), [0, 2]);
        assert_eq!(drawn("--top-p 0.75"), [0, 2, 3]);
        assert_eq!(drawn("--top-p 0.01"), [0]);
        assert_eq!(drawn("--top-p 1 --top-k 3"), [0, 2, 3]);
        let error = |flags: &str| Cli::try_parse_from(flags.split_whitespace()).err().unwrap().to_string();
        assert!(error("c --top-p 0").contains("must be a number above 0, up to 1"));
    }
}
