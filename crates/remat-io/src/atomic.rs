//! Atomic writing of texts and folders: they appear complete or not at all.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use remat::Result;
use remat::files::{cannot, folder_of, sync_folder, write_bytes, wrong};

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
    write_bytes("save_text", path.as_ref(), text.as_bytes())
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
