//! Files that appear whole or not at all, and what errors say about files: for plans here, and for the crates that save and read data.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use remat_ir::{Error, ErrorKind, Result};
use tempfile::Builder;

/// Longer slices are written without buffering.
const BUFFER: usize = 1 << 18;

/// Writes a file atomically: writes `content` to a temporary file in the same folder, syncs it to the disk, renames it, and syncs the names in
/// the folder, if this process may read it.
///
/// # Errors
/// Those of `content`; if the system fails; if `path` exists and is not a file. Then a file at `path` is unchanged, and the temporary file
/// is deleted, with one exception: if the names cannot be synced, the new file is at `path`, whole, but may lose its name with the power.
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
    // Before a file is replaced, so that it stays if the folder cannot be opened.
    let names = readable(folder).map_err(|error| failed(&error))?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    names.map_or(Ok(()), |names| names.sync_all()).map_err(|error| failed(&error))
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

/// Syncs the names in a folder to the disk, where the system can open folders and this process may read this one.
///
/// # Errors
/// The system's error.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    readable(folder)?.map_or(Ok(()), |names| names.sync_all())
}

/// A folder, opened to sync its names. `None` where the system cannot open folders, and for a folder in which this process may write, but
/// which it may not read: files can be saved there all the same.
///
/// # Errors
/// The system's other errors.
fn readable(folder: &Path) -> io::Result<Option<File>> {
    if !cfg!(unix) {
        return Ok(None);
    }
    match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        opened => opened.map(Some),
    }
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_saved_in_a_folder_that_cannot_be_read() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("written");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("notes.txt");
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o333);
        let is_readable = File::open(&folder).is_ok();
        let saved = ["first", "second"].map(|text| write_bytes("save", &path, text.as_bytes()));
        let synced = sync_folder(&folder);
        mode(0o755);
        if is_readable {
            remat_testkit::not_tested("a folder that cannot be read", &"this user reads all");
        }
        for saved in saved {
            saved.unwrap();
        }
        synced.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error() {
        let outer = tempfile::tempdir().unwrap();
        let missing = outer.path().join("missing");
        assert_eq!(sync_folder(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
