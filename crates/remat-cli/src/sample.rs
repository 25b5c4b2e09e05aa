//! Text samples from a model.

use std::ops::ControlFlow;

use anyhow::Result;
use remat::nn::{Generator, Sampling};
use remat::{JitOptions, eval_shape, random};
use remat_command::arguments::{magnitude, up_to};
use remat_command::text::printable;
use remat_data::Tokenizer;
use serde::Serialize;

use crate::machine;
use crate::model::{Model, Narrowed};

/// How the next token is chosen.
#[derive(Clone, PartialEq, Debug, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Choice {
    /// Sampling temperature; 0 is greedy: the most likely token each time
    #[arg(long, default_value_t = 0.7, value_parser = magnitude, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw only among the K most likely tokens
    #[arg(long, value_name = "K", value_parser = up_to(1 << 24))]
    top_k: Option<usize>,
    /// Draw only among the fewest most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", value_parser = share, allow_negative_numbers = true)]
    top_p: Option<f64>,
}

/// A parser of shares: numbers above 0, up to 1.
///
/// # Errors
/// What is wrong with the text, for the user.
fn share(text: &str) -> std::result::Result<f64, String> {
    let number = magnitude(text)?;
    if number > 0.0 && number <= 1.0 { Ok(number) } else { Err("must be a number above 0, up to 1".into()) }
}

impl Choice {
    fn sampling(&self) -> Sampling {
        Sampling { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p }
    }
}

/// Draws up to `count` tokens that continue a prompt, and passes each to `done` at once, which may stop the text. The model reads at most
/// `context` positions, and writes only tokens of its tokenizer.
///
/// # Errors
/// The first error of the model or of `done`.
pub(crate) fn sample(
    model: &Narrowed,
    prompt: &[u32],
    count: usize,
    context: usize,
    choice: &Choice,
    key: random::Key,
    mut done: impl FnMut(u32) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut generator = Generator::new_with(&machine::options_beside_process(model)?, model.clone(), choice.sampling());
    generator.context = Some(context);
    for tokens in generator.tokens(key, &[prompt], count)? {
        for token in tokens? {
            if done(token)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Samples a model during training, with programs that are compiled once, since only the weights change. The programs get the model for
/// each sample, so that training owns it in between.
pub(crate) struct Samples {
    generator: Generator<Narrowed>,
}

impl Samples {
    /// Samples for models like this one, which may be abstract, with tokens below `vocabulary`; the model reads at most `context`
    /// positions.
    ///
    /// # Errors
    /// The error of a failed weight.
    pub(crate) fn new(
        options: &JitOptions,
        like: &Model,
        vocabulary: usize,
        context: usize,
        choice: &Choice,
    ) -> remat::Result<Samples> {
        let model = eval_shape(Model::clone)(like)?;
        let mut generator = Generator::new_with(options, Narrowed { model, vocabulary }, choice.sampling());
        generator.context = Some(context);
        Ok(Samples { generator })
    }

    /// The most bytes that are live while `count` tokens are drawn after a prompt of this many, including those of the model.
    ///
    /// # Errors
    /// The first error of the model.
    pub(crate) fn peak(&self, prompt: usize, count: usize) -> Result<usize> {
        Ok(self.generator.peak(1, prompt, count)?)
    }

    /// Up to `count` tokens after a prompt, as printable text.
    ///
    /// # Errors
    /// The first error of the model.
    pub(crate) fn write(
        &self,
        model: &Model,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        count: usize,
        key: random::Key,
    ) -> Result<String> {
        let model = Narrowed { model: model.clone(), vocabulary: tokenizer.vocabulary() };
        let mut written = Vec::new();
        for tokens in self.generator.tokens_of(key, &model, &[prompt], count)? {
            let tokens = tokens?;
            written.extend(&tokens);
            if tokens.iter().any(|&token| tokenizer.end_of_text() == Some(token)) {
                break;
            }
        }
        Ok(printable(&tokenizer.decode(&written)?))
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
        let readable = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes));
        assert_eq!(readable(b"a\tb\n\x1b\xff"), "a\tb\n\u{fffd}\u{fffd}");
        assert_eq!(readable("a€😀".as_bytes()), "a€😀");
        assert_eq!(readable(b"\xe2\x82a\xe2"), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn a_share_is_above_0() {
        let error = |flags: &str| Cli::try_parse_from(flags.split_whitespace()).err().unwrap().to_string();
        assert!(error("c --top-p 0").contains("must be a number above 0, up to 1"));
        let choice = Cli::try_parse_from(["c", "--top-p", "1", "--top-k", "3"]).unwrap().choice;
        assert_eq!(choice.sampling(), Sampling { temperature: 0.7, top_k: Some(3), top_p: Some(1.0) });
    }
}
