//! Atomic writing of files: they appear complete or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use remat::Result;
use tempfile::{Builder, TempDir};

use crate::failure::{cannot, wrong};

/// Longer slices are written without buffering.
const BUFFER: usize = 1 << 18;

/// Writes a file atomically: writes `content` to a temporary file in the same folder, syncs it to the disk, and renames it.
///
/// # Errors
/// Those of `content`; if the system fails; if `path` exists and is not a file. Then a file at `path` is unchanged, and the temporary file
/// is deleted.
pub(crate) fn write_file(
    operation: &str,
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    // A device or a pipe would be replaced by a file.
    if fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Err(wrong(operation, path, "is not a file, and is not replaced by one"));
    }
    let folder = folder_of(path);
    let failed = |error: &io::Error| cannot(operation, "write", path, error);
    let mut builder = Builder::new();
    let temporary = named(&mut builder, 0o666).tempfile_in(folder).map_err(|error| failed(&error))?;
    write_synced(temporary.as_file(), content, failed)?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    sync_folder(folder).map_err(|error| failed(&error))
}

/// A temporary folder, from which a folder is to be made, beside it, and the parent of both. It is removed when it is dropped.
///
/// # Errors
/// The system's error.
pub(crate) fn temporary_folder(path: &Path) -> io::Result<(TempDir, PathBuf)> {
    let folder = folder_of(path);
    let mut builder = Builder::new();
    Ok((named(&mut builder, 0o777).tempdir_in(folder)?, folder.to_path_buf()))
}

/// The parent folder of a path.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes `content` to a file and syncs it to the disk.
///
/// # Errors
/// Those of `content`; if the system fails, wrapped by `failed`.
pub(crate) fn write_synced(
    file: &File,
    content: impl FnOnce(&mut dyn Write) -> Result<()>,
    failed: impl Fn(&io::Error) -> remat::Error,
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
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes names for incomplete files and folders. On Unix they get these permissions, less the process's umask, as other new files and
/// folders do; by default temporary ones are accessible only to their owner.
#[cfg_attr(not(unix), allow(unused_variables))]
fn named<'a>(builder: &'a mut Builder<'static, 'static>, mode: u32) -> &'a mut Builder<'static, 'static> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    builder.prefix(".").suffix(".partial")
}
