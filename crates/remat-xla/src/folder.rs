//! The folder of remat in the user's cache.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use remat_ir::{Error, ErrorKind, Result};

/// The folder of this name in `remat` in `$XDG_CACHE_HOME`, or in `~/.cache`. It need not exist.
///
/// # Errors
/// If neither environment variable is set.
pub(crate) fn of_user(name: &str) -> Result<PathBuf> {
    by(variable).map(|folder| folder.join(name)).ok_or_else(|| {
        let message = format!("there is no folder for {name}: neither HOME nor XDG_CACHE_HOME is set");
        Error::new(ErrorKind::Io, "xla", message)
    })
}

/// An environment variable that is not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of remat, according to the environment variables.
pub(crate) fn by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = given.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
    Some(folder.join("remat"))
}
