//! Reads shards.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use remat::Result;
use remat::files::{cannot, wrong};
use remat::ir::counted;
use twox_hash::XxHash3_64;

use super::header::{self, Header};
use super::{Bytes, Part, TOKENS};

/// The bytes that are read at a time for the checksum.
const BLOCK: usize = 1 << 20;

/// Opens a shard and reads all of it once, so that damage is detected before a step uses it.
///
/// # Errors
/// If it cannot be read, is damaged, truncated, or of another tokenizer or source than expected.
pub(super) fn open(path: &Path, expected: &Header, start: u64) -> Result<Part> {
    let failed = |error: &io::Error| cannot(TOKENS, "read", path, error);
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let len = file.metadata().map_err(|error| failed(&error))?.len();
    let mut first = [0; header::SIZE];
    match file.read_exact(&mut first) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(wrong(TOKENS, path, format!("is cut off: it has {}", counted(len as usize, "byte"))));
        }
        read => read.map_err(|error| failed(&error))?,
    }
    let header = Header::decode(&first).map_err(|message| wrong(TOKENS, path, message))?;
    let of = |what: &str| wrong(TOKENS, path, format!("has tokens of another {what}"));
    if header.tokenizer != expected.tokenizer || header.vocabulary != expected.vocabulary {
        return Err(of("tokenizer"));
    }
    if header.source != expected.source {
        return Err(of("text, or of this one before it changed"));
    }
    let (begin, width) = (header::SIZE as u64, u64::from(header.width));
    let size = header.count.checked_mul(width).and_then(|size| size.checked_add(begin));
    if size != Some(len) {
        let message = format!("is cut off or damaged: it is said to have {} tokens, and has {len} bytes", header.count);
        return Err(wrong(TOKENS, path, message));
    }
    if checksum(&mut file).map_err(|error| failed(&error))? != header.checksum {
        return Err(wrong(TOKENS, path, "is damaged: its checksum does not match"));
    }
    let bytes = Arc::new(Bytes::File { file, path: path.to_path_buf(), begin });
    Ok(Part { start, len: header.count, first: 0, width: header.width as usize, checksum: header.checksum, bytes })
}

/// The checksum of the rest of a file.
fn checksum(file: &mut File) -> io::Result<u64> {
    let (mut hasher, mut block) = (XxHash3_64::new(), vec![0; BLOCK]);
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => hasher.write(&block[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads bytes of a file from an offset on; several threads may read at the same time.
///
/// # Errors
/// If they no longer exist, or cannot be read.
pub(super) fn read_at(file: &File, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    read_exact_at(file, &mut bytes, offset).map_err(|error| cannot(TOKENS, "read", path, &error))?;
    Ok(bytes)
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => (bytes, offset) = (&mut bytes[read..], offset + read as u64),
        }
    }
    Ok(())
}
