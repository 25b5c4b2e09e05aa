//! Long sequences of tokens, in memory or in files.

mod header;
mod shard;
mod write;

use std::fs::File;
use std::hash::Hasher;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remat::Result;
use remat::files::wrong;
use twox_hash::XxHash3_64;

use crate::failure::invalid;
pub(crate) use header::Header;
pub(crate) use write::{ToFiles, ToMemory, Writer};

/// The operation that errors name.
const TOKENS: &str = "Tokens";

/// A sequence of tokens: in memory, or in shards, which are files that are read in parts on request. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    parts: Vec<Part>,
    vocabulary: usize,
}

/// A part of the sequence, in little-endian numbers of two or four bytes.
#[derive(Clone, Debug)]
struct Part {
    /// The index of its first token in the sequence.
    start: u64,
    len: u64,
    /// The number of its first token in `bytes`.
    first: u64,
    width: usize,
    checksum: u64,
    bytes: Arc<Bytes>,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    /// An open file, and where its tokens begin.
    File {
        file: File,
        path: PathBuf,
        begin: u64,
    },
}

/// The bytes of a token: two if the vocabulary is small enough.
fn width_of(vocabulary: usize) -> usize {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}

impl Tokens {
    /// These tokens, in memory. All must be below `vocabulary`.
    ///
    /// ```
    /// use remat_data::Tokens;
    /// let tokens = Tokens::new(&[3, 1, 2], 4)?;
    /// assert_eq!((tokens.len(), tokens.read(1, 2)?), (3, vec![1, 2]));
    /// assert_eq!(Tokens::new(&[3, 4], 4).unwrap_err().message(), "there is no token 4: the vocabulary has 4");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token is not in the vocabulary.
    #[track_caller]
    pub fn new(tokens: &[u32], vocabulary: usize) -> Result<Tokens> {
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let message = format!("there is no token {token}: the vocabulary has {vocabulary}");
            return Err(invalid(TOKENS, message).at(remat::layer::location()));
        }
        let mut writer = ToMemory::new(vocabulary);
        writer.push(tokens);
        Ok(writer.into_tokens())
    }

    /// The number of tokens.
    pub fn len(&self) -> u64 {
        self.0.parts.last().map_or(0, |part| part.start + part.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the vocabulary; all tokens are below it.
    pub fn vocabulary(&self) -> usize {
        self.0.vocabulary
    }

    /// A number that identifies the tokens: a resumed run compares it to check that it has the same text.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = XxHash3_64::new();
        for part in &self.0.parts {
            hasher.write(&part.len.to_le_bytes());
            hasher.write(&part.checksum.to_le_bytes());
        }
        hasher.finish()
    }

    /// `count` tokens from index `start` on, as the i32 that models take.
    ///
    /// # Errors
    /// If the sequence ends before; if a file cannot be read, or has a token outside of the vocabulary.
    #[track_caller]
    pub fn read(&self, start: u64, count: usize) -> Result<Vec<i32>> {
        let loc = remat::layer::location();
        let end = start.saturating_add(count as u64);
        if end > self.len() {
            let message = format!("tokens {start} to {end} are asked for, and there are {}", self.len());
            return Err(invalid(TOKENS, message).at(loc));
        }
        let mut tokens = Vec::with_capacity(count);
        let first = self.0.parts.partition_point(|part| part.start + part.len <= start);
        for part in self.0.parts.iter().skip(first).take_while(|part| part.start < end) {
            let from = start.max(part.start) - part.start;
            let to = end.min(part.start + part.len) - part.start;
            part.read(from, (to - from) as usize, self.0.vocabulary, &mut tokens).map_err(|error| error.at(loc))?;
        }
        Ok(tokens)
    }

    /// The tokens of these shards.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, truncated, or does not match `expected`, except for count and checksum.
    pub(crate) fn open(paths: impl IntoIterator<Item = PathBuf>, expected: &Header) -> Result<Tokens> {
        let (mut parts, mut start) = (Vec::new(), 0);
        for path in paths {
            let part = shard::open(&path, expected, start)?;
            start += part.len;
            parts.push(part);
        }
        Ok(Tokens(Arc::new(Inner { parts, vocabulary: expected.vocabulary as usize })))
    }

    /// The tokens of both, concatenated, and split before the last `count`. Nothing is read.
    pub(crate) fn divided_again(&self, other: &Tokens, count: u64) -> (Tokens, Tokens) {
        let len = self.len() + other.len();
        let behind = |part: &Part| Part { start: self.len() + part.start, ..part.clone() };
        let all: Vec<Part> = self.0.parts.iter().cloned().chain(other.0.parts.iter().map(behind)).collect();
        let between = |range: Range<u64>| {
            let parts = all.iter().filter_map(|part| part.within(&range)).collect();
            Tokens(Arc::new(Inner { parts, vocabulary: self.vocabulary() }))
        };
        let end = len.saturating_sub(count);
        (between(0..end), between(end..len))
    }
}

impl Part {
    /// The tokens of a range of the sequence, as a part of a sequence that begins there; `None` if it has none of them.
    fn within(&self, range: &Range<u64>) -> Option<Part> {
        let (start, end) = (self.start.max(range.start), (self.start + self.len).min(range.end));
        let len = end.checked_sub(start).filter(|&len| len > 0)?;
        let first = self.first + (start - self.start);
        let mut hasher = XxHash3_64::new();
        [self.checksum, first, len].iter().for_each(|number| hasher.write(&number.to_le_bytes()));
        let checksum = if len == self.len { self.checksum } else { hasher.finish() };
        Some(Part { start: start - range.start, len, first, checksum, ..self.clone() })
    }

    fn read(&self, from: u64, count: usize, vocabulary: usize, tokens: &mut Vec<i32>) -> Result<()> {
        let (at, len) = ((self.first + from) * self.width as u64, count * self.width);
        let (buffer, path): (Vec<u8>, Option<&Path>);
        let bytes = match &*self.bytes {
            Bytes::Memory(bytes) => {
                path = None;
                bytes.get(at as usize..at as usize + len).unwrap_or_default()
            }
            Bytes::File { file, path: of, begin } => {
                (buffer, path) = (shard::read_at(file, of, begin + at, len)?, Some(of.as_path()));
                &buffer
            }
        };
        let first = tokens.len();
        match self.width {
            2 => tokens.extend(bytes.as_chunks().0.iter().map(|&token| i32::from(u16::from_le_bytes(token)))),
            _ => tokens.extend(bytes.as_chunks().0.iter().map(|&token| i32::from_le_bytes(token))),
        }
        // As unsigned numbers, negative tokens are too large too.
        if let Some(&token) = tokens[first..].iter().find(|&&token| token.cast_unsigned() as usize >= vocabulary) {
            let message = format!("is damaged: it has the token {token}, and the vocabulary has {vocabulary}");
            return Err(wrong(TOKENS, path.unwrap_or(Path::new("memory")), message));
        }
        Ok(())
    }
}
