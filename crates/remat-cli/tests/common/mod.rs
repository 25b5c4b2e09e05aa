//! The command as a user runs it.

#![allow(dead_code, reason = "no test uses all of it")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with a file `text.txt`.
pub(crate) fn folder(text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("text.txt"), text).unwrap();
    folder
}

/// `remat` with these arguments, in a folder.
pub(crate) fn command<'a>(folder: &Path, args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.current_dir(folder).args(args);
    command
}

/// What comes of `remat` with these words as arguments, in a folder.
pub(crate) fn remat(folder: &Path, args: &str) -> Output {
    command(folder, args.split_whitespace()).output().unwrap()
}

/// What a command printed that went well.
pub(crate) fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The errors of a command that failed.
pub(crate) fn error(output: Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}
