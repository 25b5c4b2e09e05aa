//! The folder of remat in the user's cache.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use remat_ir::{Error, ErrorKind, Result};

/// A folder of this name in `remat` in `$XDG_CACHE_HOME`, or in `~/.cache`; it need not exist.
///
/// # Errors
/// If neither variable of the environment is set.
pub(crate) fn of_user(name: &str) -> Result<PathBuf> {
    by(variable).map(|folder| folder.join(name)).ok_or_else(|| {
        let message = format!("there is no folder for {name}: neither HOME nor XDG_CACHE_HOME is set");
        Error::new(ErrorKind::Io, "xla", message)
    })
}

/// A variable of the environment that has a value.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of remat, by the variables of the environment that have a value.
pub(crate) fn by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = given.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
    Some(folder.join("remat"))
}
