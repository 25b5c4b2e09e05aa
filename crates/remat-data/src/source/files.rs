//! Finds the text files in a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::open;

/// The extensions of text files.
const TEXT: [&str; 4] = ["rs", "md", "toml", "txt"];

/// The extensions of files with a column of text. Single `.json` files are configurations more often than data.
const TABLES: [&str; 3] = ["jsonl", "ndjson", "parquet"];

/// A folder with this file is a run of `remat train`, not training data.
const RUN: &str = "metrics.jsonl";

/// Folders of generated files.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// The files below a folder.
pub(super) struct Below {
    /// The files that are read, in the order of their paths: text files; or tables, if there is no text file or tables are requested.
    pub(super) files: Vec<PathBuf>,
    /// The number of tables that are not read.
    pub(super) tables: usize,
    /// Messages about what could not be read.
    pub(super) notes: Vec<String>,
}

/// The files below a folder: those of text, or tables if there is no text or `tables` is set.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn below(folder: &Path, tables: bool) -> io::Result<Below> {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    collect(folder, &mut found, &mut notes)?;
    let (text, with_columns): (Vec<PathBuf>, Vec<PathBuf>) =
        found.into_iter().partition(|path| TEXT.contains(&open::kind(path).as_str()));
    Ok(match tables || text.is_empty() {
        true => Below { files: with_columns, tables: 0, notes },
        false => Below { files: text, tables: with_columns.len(), notes },
    })
}

/// The message about a folder that has no files to read.
pub(super) fn nothing(tables: bool) -> String {
    let named = |kinds: &[&str]| kinds.iter().map(|kind| format!(".{kind}")).collect::<Vec<_>>().join(", ");
    match tables {
        true => format!("has no files with columns: no {} file", named(&TABLES)),
        false => format!("has no text: no {}, {} file with anything in it", named(&TEXT), named(&TABLES)),
    }
}

/// Collects the text files or tables below a folder that are not empty, in the order of their paths.
fn collect(folder: &Path, found: &mut Vec<PathBuf>, notes: &mut Vec<String>) -> io::Result<()> {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(folder)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links may form loops.
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() && !SKIPPED.contains(&&*name) && !path.join(RUN).exists() {
            if let Err(error) = collect(&path, found, notes) {
                notes.push(format!("cannot read `{}`: {error}", path.display()));
            }
        } else if kind.is_file() {
            let extension = open::kind(&path);
            if !TEXT.contains(&extension.as_str()) && !TABLES.contains(&extension.as_str()) {
                continue;
            }
            match fs::File::open(&path).and_then(|file| file.metadata()) {
                Ok(data) if data.len() == 0 => {}
                Ok(_) => found.push(path),
                Err(error) => notes.push(format!("cannot read `{}`: {error}", path.display())),
            }
        }
    }
    Ok(())
}
