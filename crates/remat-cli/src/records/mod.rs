//! The records of a run besides its checkpoints and metrics: a page with charts.

mod report;
mod series;

use std::fs::File;
use std::io::Write;
use std::path::Path;

pub(crate) use report::{Report, Timeline};

/// Replaces a file atomically: a kill or a full disk leaves the old one as it was. A link of this name is replaced, not followed, and nobody
/// can foresee the name of the file that is written first. Returns the new file, open behind its text.
///
/// # Errors
/// The error of the system.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As other new files, less the umask of the process; a temporary file is its owner's alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut new = builder.prefix(".").suffix(".partial").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    Ok(new.persist(path)?)
}
