//! Atomic writing of files and folders: they appear complete or not at all.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use remat::Result;
use tempfile::Builder;

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
    // Permissions as other new files have, less the process's umask; by default temporary ones are accessible only to their owner.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let temporary = builder.prefix(".").suffix(".partial").tempfile_in(folder).map_err(|error| failed(&error))?;
    write_synced(temporary.as_file(), content, failed)?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    sync_folder(folder).map_err(|error| failed(&error))
}

/// Writes a text as a file. The file appears complete or not at all, and replaces one of this name; a link is replaced too, and not followed.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.txt");
/// remat_io::save_text(&path, "first")?;
/// remat_io::save_text(&path, "second")?;
/// assert_eq!(std::fs::read_to_string(&path)?, "second");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If there is something of this name that is not a file, or the file cannot be written.
pub fn save_text(path: impl AsRef<Path>, text: &str) -> Result<()> {
    write_text("save_text", path.as_ref(), text)
}

/// As [`save_text`], with the operation that errors name.
///
/// # Errors
/// As there.
pub(crate) fn write_text(operation: &str, path: &Path, text: &str) -> Result<()> {
    write_file(operation, path, |file| {
        file.write_all(text.as_bytes()).map_err(|error| cannot(operation, "write", path, &error))
    })
}

/// A new folder that appears complete or not at all: it is written as `.NAME.partial` beside its path, and then renamed. It is removed when
/// it is dropped before that; what a killed process left is removed by the next one that writes the same folder.
pub(crate) struct NewFolder {
    path: PathBuf,
    partial: PathBuf,
    is_complete: bool,
    /// The partial folder, locked: a kill of the process unlocks it. `None` where folders have no locks; there the user must ensure a single
    /// writer.
    _lock: Option<File>,
}

impl NewFolder {
    /// # Errors
    /// If another process writes this folder, the path names none, or the system fails.
    pub(crate) fn begin(operation: &str, path: &Path) -> Result<NewFolder> {
        let failed = |error: &io::Error| cannot(operation, "write", path, error);
        let name = path.file_name().ok_or_else(|| wrong(operation, path, "is not the name of a new folder"))?;
        let partial = folder_of(path).join([OsStr::new("."), name, OsStr::new(".partial")].join(OsStr::new("")));
        let locked = || match File::open(&partial).map(|folder| (folder.try_lock(), folder)) {
            Ok((Err(TryLockError::WouldBlock), _)) => Err(wrong(operation, path, "is written by another process")),
            Ok((Ok(()), folder)) => Ok(Some(folder)),
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => Ok(None),
        };
        // Kept locked until there is a new one. A link would lead to the files of others.
        let mut left = None;
        if fs::symlink_metadata(&partial).is_ok_and(|kind| kind.is_dir()) {
            left = locked()?;
            fs::remove_dir_all(&partial).map_err(|error| failed(&error))?;
        }
        fs::create_dir(&partial).map_err(|error| failed(&error))?;
        let lock = locked()?;
        drop(left);
        Ok(NewFolder { path: path.to_path_buf(), partial, is_complete: false, _lock: lock })
    }

    /// Where its files are to be written.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Gives the folder its name. An empty folder of that name is replaced.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        sync_folder(&self.partial)?;
        // If it is not empty, the folder cannot be renamed.
        let _ = fs::remove_dir(&self.path);
        fs::rename(&self.partial, &self.path)?;
        // Without this its name may be lost with the power. An error leaves nothing behind, so that the next process can begin.
        sync_folder(folder_of(&self.path)).inspect_err(|_| {
            let _ = fs::rename(&self.path, &self.partial);
        })?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_complete {
            // What is left is removed by the next process.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
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
