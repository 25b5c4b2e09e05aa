//! Reading the file of a plan.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use remat_ir::{Error, Result};

use crate::files::cannot;

/// The most bytes of a file that is read. That of a program with thousands of steps has some kilobytes.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file.
///
/// # Errors
/// If it cannot be read, is not a file or is too large.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let read = || {
        // A pipe or a device may have no end.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut text = Vec::new();
        File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(io::Error::other(format!("it has more than {} MiB", MOST_BYTES >> 20)));
        }
        Ok(text)
    };
    read().map_err(|cause| cannot("plan", "read", path, &cause))
}

/// The same error, about this file.
pub(super) fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), error.operation(), format!("`{}` {}", path.display(), error.message()))
}
