//! Parts of documents, and where they are cut.
//!
//! For tokenizers of the GPT-2 and Llama 3 kinds the tokens of a long document are the same as if it were one piece. Those of Llama 2,
//! Mistral and Gemma do not cut text at all: there each piece is tokenized as a separate text.

/// The most bytes of a piece.
pub(super) const PIECE: usize = 1 << 20;

/// A document, or a part of one that is longer than a mebibyte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its text, in UTF-8 unless the file is not; at least one byte.
    pub bytes: Vec<u8>,
    /// Whether the document ends here.
    pub ends: bool,
}

/// The pieces of a document that is in memory; none if it is empty.
pub(super) fn cut(text: &str) -> impl Iterator<Item = Piece> + '_ {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = if rest.len() > PIECE { end_of_piece(&rest[..PIECE]) } else { rest.len() };
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(Piece { bytes: piece.to_vec(), ends: after.is_empty() })
    })
}

/// The position at which to cut a document that continues after these bytes: not inside a character, and where tokenizers cut too, so that
/// the tokens are those of the whole document. The tokenizers of GPT-2, Llama 3 and similar models cut after the last single line end
/// between two characters that are not spaces; without one, before a space.
pub(super) fn end_of_piece(bytes: &[u8]) -> usize {
    let is_space = |byte: u8| byte.is_ascii_whitespace();
    let line = bytes.windows(3).rposition(|w| !is_space(w[0]) && w[1] == b'\n' && !is_space(w[2]));
    if let Some(at) = line {
        return at + 2;
    }
    let word = bytes.windows(2).rposition(|w| !is_space(w[0]) && w[1] == b' ');
    if let Some(at) = word {
        return at + 1;
    }
    // The bytes of a character after its first are 0b10xxxxxx.
    let end = bytes.len();
    (end.saturating_sub(3).max(1)..end).rev().find(|&at| bytes[at] & 0xc0 != 0x80).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_at_lines_then_words_then_characters() {
        let cut = |text: &str| text[..end_of_piece(text.as_bytes())].to_string();
        assert_eq!(cut("one two\nthree\n\nfour\n five"), "one two\n");
        assert_eq!(cut("one two\n three"), "one");
        assert_eq!(cut("a\u{20ac}\u{20ac}"), "a\u{20ac}");
        assert_eq!(cut("ab"), "a");
        assert_eq!(end_of_piece(b"a\x80\x80\x80\x80\x80"), 6);
        assert_eq!(end_of_piece(b"\x80"), 1);
        assert_eq!(end_of_piece(" \n \n".as_bytes()), 3);
    }
}
