//! The tokens of a text, as they are made.

use std::iter;

use remat::Result;
use remat::ir::Loc;
use remat::layer::location;

use crate::source::{Piece, Source};
use crate::tokenizer::Tokenizer;

/// The bytes of text that are tokenized together.
const TOGETHER: usize = 2 << 20;

/// All tokens of a text in order, with nothing held out, made as they are asked for: memory does not depend on the size of the text. If the
/// tokenizer has a token that ends documents, it follows each document. After an error there are no more.
///
/// ```
/// use remat_data::{Source, TokenStream, Tokenizer};
///
/// let source = Source::in_memory("a poem", "roses");
/// let mut stream = TokenStream::new(&source, &Tokenizer::bytes_with_end());
/// let tokens: Vec<Vec<u32>> = stream.by_ref().collect::<remat::Result<_>>()?;
/// assert_eq!(tokens.concat(), [114, 111, 115, 101, 115, 256]);
/// assert_eq!(stream.bytes(), 5);
/// # Ok::<(), remat::Error>(())
/// ```
pub struct TokenStream {
    pieces: Box<dyn Iterator<Item = Result<Tokenized>> + Send>,
    end: Option<u32>,
    bytes: u64,
    loc: Loc,
}

impl TokenStream {
    /// The tokens of a text, from its beginning.
    #[track_caller]
    pub fn new(source: &Source, tokenizer: &Tokenizer) -> TokenStream {
        let pieces = Box::new(tokenized(source, tokenizer));
        TokenStream { pieces, end: tokenizer.end_of_text(), bytes: 0, loc: location() }
    }

    /// The number of bytes of the text whose tokens were returned so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Each item is the tokens of a mebibyte of text or less. Errors are those of the files and of the tokenizer.
impl Iterator for TokenStream {
    type Item = Result<Vec<u32>>;

    fn next(&mut self) -> Option<Result<Vec<u32>>> {
        let loc = self.loc;
        Some(self.pieces.next()?.map_err(|error| error.at(loc)).map(|Tokenized { piece, mut tokens, .. }| {
            self.bytes += piece.bytes.len() as u64;
            tokens.extend(self.end.filter(|_| piece.ends));
            tokens
        }))
    }
}

/// A piece of a text, the index of its document, and its tokens.
pub(crate) struct Tokenized {
    pub(crate) piece: Piece,
    pub(crate) document: u64,
    pub(crate) tokens: Vec<u32>,
}

/// The pieces of a text with their tokens. It ends after an error, which is one of the source or of the tokenizer.
pub(crate) fn tokenized(
    source: &Source,
    tokenizer: &Tokenizer,
) -> impl Iterator<Item = Result<Tokenized>> + Send + use<> {
    let (mut pieces, tokenizer) = (source.pieces().fuse(), tokenizer.clone());
    let (mut ready, mut document, mut is_over) = (Vec::new().into_iter(), 0, false);
    iter::from_fn(move || {
        if ready.len() == 0 && !is_over {
            match together(&mut pieces, &tokenizer) {
                Ok(more) => ready = more.into_iter(),
                Err(error) => {
                    is_over = true;
                    return Some(Err(error));
                }
            }
        }
        let (piece, tokens): (Piece, Vec<u32>) = ready.next()?;
        let of = document;
        document += u64::from(piece.ends);
        Some(Ok(Tokenized { piece, document: of, tokens }))
    })
}

/// The next pieces of a text, a few mebibytes, with their tokens; none at the end.
fn together(pieces: &mut impl Iterator<Item = Result<Piece>>, tokenizer: &Tokenizer) -> Result<Vec<(Piece, Vec<u32>)>> {
    let (mut together, mut bytes) = (Vec::new(), 0);
    while bytes < TOGETHER
        && let Some(piece) = pieces.next().transpose()?
    {
        // Short pieces take memory besides their bytes.
        bytes += piece.bytes.len() + 256;
        together.push(piece);
    }
    let texts: Vec<&[u8]> = together.iter().map(|piece| piece.bytes.as_slice()).collect();
    let tokens = tokenizer.encode_all(&texts)?;
    Ok(together.into_iter().zip(tokens).collect())
}
