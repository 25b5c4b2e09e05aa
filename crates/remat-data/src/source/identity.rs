//! What tells a file from the same file before it changed.

use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file of at most this many parts is hashed as a whole; of a longer one, as many parts at even distances, with the first and the last.
const PARTS: u64 = 256;

/// The bytes of a part.
const PART: u64 = 4096;

/// Adds a file's size, times and samples of its content. Where the system keeps the time of the last change itself (Unix), no change is
/// missed: a program can set the time of modification, but not that one. Elsewhere, and on file systems that invent it, the samples find
/// most changes, and all of a file of up to a mebibyte.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn write(path: &Path, hasher: &mut impl Hasher) -> io::Result<()> {
    let mut file = File::open(path)?;
    let data = file.metadata()?;
    let size = data.len();
    hasher.write(&size.to_le_bytes());
    hasher.write(&nanoseconds(data.modified().ok()).to_le_bytes());
    hasher.write(&changed(&data).to_le_bytes());
    let mut part = Vec::new();
    // One part more than needed does no harm.
    let count = (size / PART + 1).min(PARTS);
    let last = size.saturating_sub(PART);
    for number in 0..count {
        let at = if size <= PARTS * PART {
            number * PART
        } else {
            (u128::from(last) * u128::from(number) / u128::from(PARTS - 1)) as u64
        };
        part.clear();
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(PART).read_to_end(&mut part)?;
        hasher.write(&part);
    }
    Ok(())
}

/// A time in nanoseconds after 1970, or before it if negative.
fn nanoseconds(time: Option<SystemTime>) -> i128 {
    let count = |duration: std::time::Duration| duration.as_nanos().cast_signed();
    time.map_or(i128::MAX, |time| match time.duration_since(UNIX_EPOCH) {
        Ok(after) => count(after),
        Err(before) => -count(before.duration()),
    })
}

/// The time of the last change of content or attributes, in nanoseconds.
#[cfg(unix)]
fn changed(data: &Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec())
}

/// The system does not tell it.
#[cfg(not(unix))]
fn changed(_: &Metadata) -> i128 {
    0
}
