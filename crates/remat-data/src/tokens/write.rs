//! Writes sequences of tokens.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remat::Result;
use remat::files::cannot;
use twox_hash::XxHash3_64;

use super::header::{self, Header};
use super::{Bytes, Inner, Part, TOKENS, Tokens, width_of};

/// The most tokens of a shard: 256 MiB or 512 MiB.
const SHARD: u64 = 1 << 27;

/// The destination of tokens.
pub(crate) trait Writer {
    /// Appends tokens.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn write(&mut self, tokens: &[u32]) -> Result<()>;
}

/// Appends tokens as bytes.
fn encode(tokens: &[u32], width: usize, bytes: &mut Vec<u8>) {
    match width {
        // The vocabulary is small enough.
        2 => tokens.iter().for_each(|&token| bytes.extend((token as u16).to_le_bytes())),
        _ => tokens.iter().for_each(|&token| bytes.extend(token.to_le_bytes())),
    }
}

/// Keeps tokens in memory.
pub(crate) struct ToMemory {
    vocabulary: usize,
    bytes: Vec<u8>,
}

impl ToMemory {
    pub(crate) fn new(vocabulary: usize) -> ToMemory {
        ToMemory { vocabulary, bytes: Vec::new() }
    }

    pub(super) fn push(&mut self, tokens: &[u32]) {
        encode(tokens, width_of(self.vocabulary), &mut self.bytes);
    }

    pub(crate) fn into_tokens(self) -> Tokens {
        let (bytes, vocabulary, width) = (self.bytes, self.vocabulary, width_of(self.vocabulary));
        let len = (bytes.len() / width) as u64;
        let checksum = XxHash3_64::oneshot(&bytes);
        let part = Part { start: 0, len, first: 0, width, checksum, bytes: Arc::new(Bytes::Memory(bytes)) };
        Tokens(Arc::new(Inner { parts: vec![part], vocabulary }))
    }
}

impl Writer for ToMemory {
    fn write(&mut self, tokens: &[u32]) -> Result<()> {
        self.push(tokens);
        Ok(())
    }
}

/// Writes tokens to shards `NAME-00000.tokens`, `NAME-00001.tokens`, .. of a folder.
pub(crate) struct ToFiles {
    folder: PathBuf,
    name: &'static str,
    /// The common header of all shards.
    header: Header,
    shards: usize,
    current: Option<Shard>,
    buffer: Vec<u8>,
}

/// A shard that is being written.
struct Shard {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: XxHash3_64,
    count: u64,
}

impl ToFiles {
    /// `header` describes the tokens.
    pub(crate) fn new(folder: &Path, name: &'static str, header: Header) -> ToFiles {
        let header = Header { width: width_of(header.vocabulary as usize) as u32, ..header };
        ToFiles { folder: folder.to_path_buf(), name, header, shards: 0, current: None, buffer: Vec::new() }
    }

    /// The name of a shard.
    pub(crate) fn file_name(name: &str, number: usize) -> String {
        format!("{name}-{number:05}.tokens")
    }

    /// Ends the last shard, syncs it to the disk, and returns the number of shards.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<usize> {
        self.end_shard()?;
        Ok(self.shards)
    }

    fn begin_shard(&mut self) -> Result<Shard> {
        let path = self.folder.join(ToFiles::file_name(self.name, self.shards));
        let create = || -> io::Result<BufWriter<File>> {
            let mut file = BufWriter::with_capacity(1 << 18, File::create(&path)?);
            // The header comes last, when count and checksum are known.
            file.write_all(&[0; header::SIZE])?;
            Ok(file)
        };
        let file = create().map_err(|error| cannot(TOKENS, "write", &path, &error))?;
        self.shards += 1;
        Ok(Shard { path, file, hasher: XxHash3_64::new(), count: 0 })
    }

    fn end_shard(&mut self) -> Result<()> {
        let Some(Shard { path, mut file, hasher, count }) = self.current.take() else { return Ok(()) };
        let header = Header { count, checksum: hasher.finish(), ..self.header };
        let end = || -> io::Result<()> {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header.encode())?;
            file.flush()?;
            file.get_ref().sync_all()
        };
        let mut end = end;
        end().map_err(|error| cannot(TOKENS, "write", &path, &error))
    }
}

impl Writer for ToFiles {
    fn write(&mut self, mut tokens: &[u32]) -> Result<()> {
        while !tokens.is_empty() {
            let mut shard = match self.current.take() {
                Some(shard) => shard,
                None => self.begin_shard()?,
            };
            let (now, later) = tokens.split_at(tokens.len().min((SHARD - shard.count) as usize));
            self.buffer.clear();
            encode(now, self.header.width as usize, &mut self.buffer);
            shard.hasher.write(&self.buffer);
            shard.file.write_all(&self.buffer).map_err(|error| cannot(TOKENS, "write", &shard.path, &error))?;
            shard.count += now.len() as u64;
            tokens = later;
            let is_full = shard.count == SHARD;
            self.current = Some(shard);
            if is_full {
                self.end_shard()?;
            }
        }
        Ok(())
    }
}
