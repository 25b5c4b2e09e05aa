//! Files that may be compressed, by the ending of their names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Endings of compressed files.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// The extension that says what a file has, in lower case: `jsonl` of `data.jsonl.gz`.
pub(crate) fn kind(path: &Path) -> String {
    let extension = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let outer = extension(path);
    if COMPRESSED.contains(&outer.as_str()) { extension(&path.with_extension("")) } else { outer }
}

/// The content of a file; that of a `.gz` or `.zst` file decompressed as it is read.
///
/// # Errors
/// Those of the system, as those of reading, which also say if compressed bytes are damaged or end early.
pub(crate) fn reader(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let file = File::open(path)?;
    Ok(match path.extension().map(|e| e.to_string_lossy().to_lowercase()).as_deref() {
        Some("gz") => Box::new(MultiGzDecoder::new(io::BufReader::new(file))),
        Some("zst") => Box::new(Frames::Between(io::BufReader::new(file))),
        _ => Box::new(file),
    })
}

/// The frames of a Zstandard file, one after the other: the decoder reads one.
enum Frames {
    Between(io::BufReader<File>),
    Inside(Box<StreamingDecoder<io::BufReader<File>, FrameDecoder>>),
    Ended,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(self, Frames::Ended) {
                Frames::Ended => return Ok(0),
                Frames::Between(mut file) => {
                    if io::BufRead::fill_buf(&mut file)?.is_empty() {
                        return Ok(0);
                    }
                    let frame = StreamingDecoder::new(file).map_err(io::Error::other)?;
                    *self = Frames::Inside(Box::new(frame));
                }
                Frames::Inside(mut frame) => {
                    let read = frame.read(buffer)?;
                    if read > 0 || buffer.is_empty() {
                        *self = Frames::Inside(frame);
                        return Ok(read);
                    }
                    *self = Frames::Between(frame.into_inner());
                }
            }
        }
    }
}
