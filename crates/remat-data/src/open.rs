//! Opens files that may be compressed, by the extension of their names.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Extensions of compressed files.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// The extension of the content, in lower case: `jsonl` for `data.jsonl.gz`.
pub(crate) fn kind(path: &Path) -> String {
    let extension = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let outer = extension(path);
    if COMPRESSED.contains(&outer.as_str()) { extension(&path.with_extension("")) } else { outer }
}

/// Whether a file is decompressed as it is read.
pub(crate) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|e| COMPRESSED.contains(&&*e.to_string_lossy().to_lowercase()))
}

/// Opens the content of a file; a `.gz` or `.zst` file is decompressed as it is read.
///
/// # Errors
/// System errors. Reading has system errors too, also for compressed bytes that are damaged or truncated.
pub(crate) fn reader(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let file = File::open(path)?;
    Ok(match path.extension().map(|e| e.to_string_lossy().to_lowercase()).as_deref() {
        Some("gz") => Box::new(MultiGzDecoder::new(io::BufReader::new(file))),
        Some("zst") => Box::new(Frames { file: io::BufReader::new(file), decoder: FrameDecoder::new() }),
        _ => Box::new(file),
    })
}

/// The frames of a Zstandard file, one after the other; the decoder reads only one.
struct Frames {
    file: io::BufReader<File>,
    decoder: FrameDecoder,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.file, one).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            // The decoder computes the checksum of a frame, but the caller must compare it.
            let expected = self.decoder.get_checksum_from_data();
            if expected.is_some() && expected != self.decoder.get_calculated_checksum() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a frame does not match"));
            }
            if !self.next()? {
                return Ok(0);
            }
        }
    }
}

impl Frames {
    /// Starts the next frame with content, if there is one. Skippable frames are skipped.
    fn next(&mut self) -> io::Result<bool> {
        while !self.file.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.file) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.file.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a skippable frame"));
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}
