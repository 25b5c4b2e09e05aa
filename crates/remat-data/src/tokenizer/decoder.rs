//! Tokens as text, one by one.

use remat::Result;

use super::Tokenizer;

/// More tokens than this are not decoded together: their text does not depend on those before.
const WINDOW: usize = 32;

/// Tokens whose text depends on each other: the bytes of a character, a word and the space before it.
const CONTEXT: usize = 4;

/// The most bytes by which a character can be incomplete at the end.
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
    /// The bytes of their text that were given out.
    given: usize,
}

impl Decoder<'_> {
    pub(super) fn new(tokenizer: &Tokenizer) -> Decoder<'_> {
        Decoder { tokenizer, tokens: Vec::new(), given: 0 }
    }

    /// The text that is complete with this token; it may be empty.
    ///
    /// # Errors
    /// If there is no such token.
    #[track_caller]
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens).inspect_err(|_| _ = self.tokens.pop())?;
        // More tokens may complete what ends in replacement characters, each for a byte at least.
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

    /// What is left when no more tokens come, with U+FFFD for a character that is not complete.
    ///
    /// # Errors
    /// Those of the tokenizer; none for tokens that were pushed without one.
    #[track_caller]
    pub fn finish(mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(self.give(&text, text.len()))
    }

    /// The text up to `end` that was not given out.
    fn give(&mut self, text: &str, end: usize) -> String {
        // A token that takes back what was given out (a decoder that strips spaces) gives nothing until there is more.
        let new = text.get(self.given..end).unwrap_or_default().to_string();
        self.given = self.given.max(end);
        new
    }
}
