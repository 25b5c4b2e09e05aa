//! The file of a plan: written as a whole or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use remat_ir::{Error, ErrorKind, Result};

/// The most bytes of a file that is read. That of a program with thousands of steps has some kilobytes.
const MOST_BYTES: u64 = 64 << 20;

/// Writes a file: a new one beside it, which then gets its name.
///
/// # Errors
/// If the system fails, or `path` is not the name of a file. What was there is unchanged then.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    // A device or a pipe would be replaced by a file.
    if fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Err(error(format!("`{}` is not a file, and is not replaced by one", path.display())));
    }
    let partial = partial(path).ok_or_else(|| error(format!("`{}` is not the name of a file", path.display())))?;
    let written = write_synced(&partial, text).and_then(|()| fs::rename(&partial, path));
    written.map_err(|cause| {
        // What is left of it helps nobody.
        let _ = fs::remove_file(&partial);
        error(format!("cannot write `{}`: {cause}", path.display()))
    })
}

/// A name in the same folder that no other process and no other call uses.
fn partial(path: &Path) -> Option<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}-{}.partial", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Some(path.with_file_name(name))
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

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
    read().map_err(|cause| error(format!("cannot read `{}`: {cause}", path.display())))
}

/// The same error, about this file.
pub(super) fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), error.operation(), format!("`{}` {}", path.display(), error.message()))
}

fn error(message: String) -> Error {
    Error::new(ErrorKind::Io, "plan", message)
}
