//! Opens files that may come from anywhere.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file to read it. Pipes and devices, which may have no end, are not opened.
///
/// # Errors
/// The system's error; if it is not a file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    File::open(path)
}

/// The bytes of a file, as [`open`].
///
/// # Errors
/// As there.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(read(&link).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(folder.path().join("file"), "text").unwrap();
        assert_eq!(read(&link).unwrap(), b"text");
        for other in [&pipe, Path::new("/dev/zero"), folder.path()] {
            assert_eq!(read(other).unwrap_err().to_string(), "it is not a file", "{}", other.display());
        }
    }
}
