//! The lexer: words, numbers, strings and marks with their byte offsets.

use crate::{Error, ErrorKind, Result};

/// A token of program text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'t> {
    /// An identifier.
    Word(&'t str),
    /// A number with its signs and letters: `-1.5e-7`, `0x7fc00001`, `-inf`.
    Number(&'t str),
    /// A quoted text without its quotes.
    Text(String),
    /// One of `{ } ( ) [ ] < > ; : , . =`.
    Mark(char),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) | Token::Number(word) => write!(f, "`{word}`"),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Mark(mark) => write!(f, "`{mark}`"),
            Token::End => f.write_str("the end"),
        }
    }
}

/// The tokens with the byte at which each begins; the last one is [`Token::End`].
///
/// # Errors
/// At a character that begins no token, and at a string without an end or with an unknown escape.
pub(super) fn lex(text: &str) -> Result<Vec<(Token<'_>, usize)>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, at));
            return Ok(tokens);
        };
        let (token, len) = match first {
            '#' => {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            '{' | '}' | '(' | ')' | '[' | ']' | '<' | '>' | ';' | ':' | ',' | '.' | '=' => (Token::Mark(first), 1),
            'a'..='z' | 'A'..='Z' | '_' => {
                let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
                (Token::Word(&rest[..len]), len)
            }
            '"' => {
                let (string, len) = string(rest).map_err(|message| error_at(text, at, message))?;
                (Token::Text(string), len)
            }
            '0'..='9' | '-' => {
                let len = number_len(rest);
                if len == 0 {
                    return Err(error_at(text, at, "`-` is not a number"));
                }
                (Token::Number(&rest[..len]), len)
            }
            other => return Err(error_at(text, at, format!("unexpected character `{other}`"))),
        };
        tokens.push((token, at));
        rest = &rest[len..];
    }
}

/// An error of kind [`ErrorKind::Parse`] at the byte `at`.
pub(super) fn error_at(text: &str, at: usize, message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Parse, "parse", placed(text, at, &message.to_string()))
}

/// A message with the position of a byte. Where it quotes a word of the text that is longer than any page, its middle is left out.
pub(super) fn placed(text: &str, at: usize, message: &str) -> String {
    const LONGEST: usize = 1000;
    let (place, count) = (position(text, at), message.chars().count());
    if count <= LONGEST {
        return format!("{place}: {message}");
    }
    let head: String = message.chars().take(LONGEST / 2).collect();
    let tail: String = message.chars().skip(count - LONGEST / 2).collect();
    format!("{place}: {head} … {tail}")
}

/// Line and column of a byte, both counted from 1, columns in characters.
fn position(text: &str, at: usize) -> String {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    format!("line {line}, column {}", before[line_start..].chars().count() + 1)
}

fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    let mut len = usize::from(bytes[0] == b'-');
    if text[len..].starts_with("inf") {
        return len + 3;
    }
    if !is_digit(len) {
        return 0;
    }
    let is_hex = text[len..].starts_with("0x");
    loop {
        let exponent = !is_hex && matches!(bytes[len], b'e' | b'E');
        len += 1;
        let goes_on = match bytes.get(len) {
            Some(b'.') => is_digit(len + 1),
            Some(b'-' | b'+') => exponent,
            Some(b) => b.is_ascii_alphanumeric(),
            None => false,
        };
        if !goes_on {
            return len;
        }
    }
}

/// The content of the string that `text` begins with, and its length with quotes and escapes.
fn string(text: &str) -> Result<(String, usize), String> {
    let mut string = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((string, at + 1)),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => string.push('\n'),
                Some('r') => string.push('\r'),
                Some('t') => string.push('\t'),
                Some('0') => string.push('\0'),
                Some(c @ ('\\' | '"' | '\'')) => string.push(c),
                Some('u') => {
                    let digits: String = chars.by_ref().map(|(_, c)| c).take_while(|&c| c != '}').collect();
                    let code = digits.strip_prefix('{').and_then(|d| u32::from_str_radix(d, 16).ok());
                    string.push(code.and_then(char::from_u32).ok_or("`\\u` must be followed by a character's number")?);
                }
                Some(c) => return Err(format!("`\\{c}` is not an escape")),
                None => break,
            },
            c => string.push(c),
        }
    }
    Err("the string has no end".to_string())
}
