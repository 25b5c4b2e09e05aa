//! Files that appear whole or not at all, and what errors say about files: for plans here, and for the crates that save and read data.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use remat_ir::{Error, ErrorKind, Result};
use tempfile::Builder;

/// Longer slices are written without buffering.
const BUFFER: usize = 1 << 18;

/// Writes a file atomically: writes `content` to a temporary file in the same folder, syncs it to the disk, and renames it.
///
/// # Errors
/// Those of `content`; if the system fails; if `path` exists and is not a file. Then a file at `path` is unchanged, and the temporary file
/// is deleted.
pub fn write(operation: &str, path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // A device or a pipe would be replaced by a file.
    if fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Err(wrong(operation, path, "is not a file, and is not replaced by one"));
    }
    let folder = folder_of(path);
    let failed = |error: &io::Error| cannot(operation, "write", path, error);
    let mut builder = Builder::new();
    // Permissions as other new files have, less the process's umask; by default temporary ones are accessible only to their owner.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let temporary = builder.prefix(".").suffix(".partial").tempfile_in(folder).map_err(|error| failed(&error))?;
    write_synced(temporary.as_file(), content, failed)?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    sync_folder(folder).map_err(|error| failed(&error))
}

/// As [`write`], of these bytes.
///
/// # Errors
/// As there.
pub fn write_bytes(operation: &str, path: &Path, bytes: &[u8]) -> Result<()> {
    write(operation, path, |file| file.write_all(bytes).map_err(|error| cannot(operation, "write", path, &error)))
}

/// Writes `content` to a file and syncs it to the disk.
///
/// # Errors
/// Those of `content`; if the system fails, wrapped by `failed`.
pub fn write_synced(
    file: &File,
    content: impl FnOnce(&mut dyn Write) -> Result<()>,
    failed: impl Fn(&io::Error) -> Error,
) -> Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    if let Err(error) = content(&mut out) {
        // The rest of the buffer is not written again.
        drop(out.into_parts());
        return Err(error);
    }
    out.into_inner().map_err(|error| failed(error.error()))?;
    file.sync_all().map_err(|error| failed(&error))
}

/// Syncs the names in a folder to the disk, where the system can open folders.
///
/// # Errors
/// The system's error.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The parent folder of a path.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// An error about the content of a file or folder.
pub fn wrong(operation: &str, path: &Path, message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Io, operation, format!("`{}` {}", path.display(), message.as_ref()))
}

/// A system error: what could not be done with a file or folder.
pub fn cannot(operation: &str, what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, operation, format!("cannot {what} `{}`: {error}", path.display()))
}
