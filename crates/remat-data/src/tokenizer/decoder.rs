//! Decodes tokens to text, one by one.

use remat::Result;

use super::Tokenizer;

/// The most tokens that are decoded together: text does not depend on earlier tokens.
const WINDOW: usize = 32;

/// Tokens whose text depends on each other: the bytes of a character, a word and the space before it.
const CONTEXT: usize = 4;

/// The most bytes of an incomplete character at the end.
const INCOMPLETE: usize = 3;

/// Decodes tokens as they come: text appears once its characters are complete.
///
/// ```
/// use remat_data::Tokenizer;
///
/// let tokenizer = Tokenizer::bytes();
/// let mut decoder = tokenizer.decoder();
/// let euro: Vec<String> = "a€".bytes().map(|byte| decoder.push(byte.into())).collect::<remat::Result<_>>()?;
/// assert_eq!(euro, ["a", "", "", "€"]);
/// assert_eq!(decoder.finish()?, "");
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens.
    tokens: Vec<u32>,
    /// The bytes of their text that were returned.
    given: usize,
}

impl Decoder<'_> {
    pub(super) fn new(tokenizer: &Tokenizer) -> Decoder<'_> {
        Decoder { tokenizer, tokens: Vec::new(), given: 0 }
    }

    /// The text that this token completes; it may be empty.
    ///
    /// # Errors
    /// If there is no such token.
    #[track_caller]
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens).inspect_err(|_| _ = self.tokens.pop())?;
        // More tokens may complete characters that are replacement characters now, each for at least one byte.
        let broken = text.chars().rev().take_while(|&c| c == char::REPLACEMENT_CHARACTER).count();
        let is_too_long = self.tokens.len() > 2 * WINDOW;
        let held = if is_too_long { 0 } else { broken.min(INCOMPLETE) * char::REPLACEMENT_CHARACTER.len_utf8() };
        let new = self.give(&text, text.len() - held);
        if held == 0 && self.tokens.len() > WINDOW {
            self.tokens.drain(..self.tokens.len() - CONTEXT);
            self.given = self.tokenizer.decode(&self.tokens)?.len();
        }
        Ok(new)
    }

    /// The remaining text when no more tokens come, with U+FFFD for an incomplete character.
    ///
    /// # Errors
    /// Those of the tokenizer; none for tokens that were pushed without one.
    #[track_caller]
    pub fn finish(mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(self.give(&text, text.len()))
    }

    /// The text up to `end` that was not returned yet.
    fn give(&mut self, text: &str, end: usize) -> String {
        // If a token changes text that was already returned (a decoder that strips spaces), nothing is returned until there is more.
        let new = text.get(self.given..end).unwrap_or_default().to_string();
        self.given = self.given.max(end);
        new
    }
}
