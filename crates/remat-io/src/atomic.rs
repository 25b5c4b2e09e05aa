//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use remat::Result;
use tempfile::{Builder, TempDir};

use crate::failure::{cannot, wrong};

/// Slices that are longer than this go to the system as they are.
const BUFFER: usize = 1 << 18;

/// Writes a file: `content` into a file of a temporary name in the same folder, which is brought to the disk and then renamed.
///
/// # Errors
/// Those of `content`; if the system does not do it; if there is something at `path` that is not a file. What was at `path` stays, and the
/// temporary file is gone.
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

/// A folder of a temporary name beside one that is to be made of it, and the folder of both. It is removed when it is dropped.
///
/// # Errors
/// That of the system.
pub(crate) fn temporary_folder(path: &Path) -> io::Result<(TempDir, PathBuf)> {
    let folder = folder_of(path);
    let mut builder = Builder::new();
    Ok((named(&mut builder, 0o777).tempdir_in(folder)?, folder.to_path_buf()))
}

/// The folder that a path lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes `content` to a file and brings it to the disk.
///
/// # Errors
/// Those of `content`; if the system does not do it, as `failed` puts it.
pub(crate) fn write_synced(
    file: &File,
    content: impl FnOnce(&mut dyn Write) -> Result<()>,
    failed: impl Fn(&io::Error) -> remat::Error,
) -> Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    if let Err(error) = content(&mut out) {
        // What is left in the buffer is not tried again.
        drop(out.into_parts());
        return Err(error);
    }
    out.into_inner().map_err(|error| failed(error.error()))?;
    file.sync_all().map_err(|error| failed(&error))
}

/// Brings the names in a folder to the disk, where the system lets folders be opened.
///
/// # Errors
/// That of the system.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Names of what is not whole yet, with these permissions on Unix, less the mask of the process, as other new files and folders have: temporary
/// ones are their owner's alone.
#[cfg_attr(not(unix), allow(unused_variables))]
fn named<'a>(builder: &'a mut Builder<'static, 'static>, mode: u32) -> &'a mut Builder<'static, 'static> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    builder.prefix(".").suffix(".partial")
}
