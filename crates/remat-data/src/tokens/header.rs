//! The header of a shard.

/// The first bytes of every shard.
const MAGIC: [u8; 8] = *b"rematTOK";

/// The version of the format, incremented by changes.
const VERSION: u32 = 1;

/// The bytes of a header.
pub(crate) const SIZE: usize = 56;

/// The description of a shard's tokens. In the file its fields follow magic and version, in this order, in little-endian numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The bytes of a token: 2 or 4.
    pub(crate) width: u32,
    pub(crate) vocabulary: u64,
    /// The fingerprint of the tokenizer.
    pub(crate) tokenizer: u64,
    /// The fingerprint of the source.
    pub(crate) source: u64,
    /// The number of tokens.
    pub(crate) count: u64,
    /// XXH3 of the tokens' bytes.
    pub(crate) checksum: u64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.width.to_le_bytes());
        let numbers = [self.vocabulary, self.tokenizer, self.source, self.count, self.checksum];
        for (place, number) in bytes[16..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }

    /// Decodes the header of a file.
    ///
    /// # Errors
    /// A message about the file.
    pub(super) fn decode(bytes: &[u8; SIZE]) -> Result<Header, String> {
        if bytes[..8] != MAGIC {
            return Err("is not a shard of tokens".into());
        }
        let small = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (version, width) = (small(8), small(12));
        if version != VERSION {
            return Err(format!("has version {version} of the format, and this program reads version {VERSION}"));
        }
        if width != 2 && width != 4 {
            return Err(format!("is damaged: its tokens are said to have {width} bytes"));
        }
        let number = |i: usize| bytes[16..].as_chunks().0.get(i).map_or(0, |&number| u64::from_le_bytes(number));
        let [vocabulary, tokenizer, source, count, checksum] = std::array::from_fn(number);
        Ok(Header { width, vocabulary, tokenizer, source, count, checksum })
    }
}
