//! The files in a folder that are text to learn from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use remat::ir::counted;

use crate::open;

/// The kinds of files that are text.
const TEXT: [&str; 4] = ["rs", "md", "toml", "txt"];

/// The kinds of files that have a column of text. Single `.json` files are configurations more often than data.
const TABLES: [&str; 3] = ["jsonl", "ndjson", "parquet"];

/// A folder with this file is a run of `remat train`, which is not text to train on.
const RUN: &str = "metrics.jsonl";

/// Folders that hold what programs made, not what people wrote.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// The files below a folder: those of text, or tables if there is no text or `tables` is set.
///
/// # Errors
/// If the folder cannot be read; inside, what is wrong with it if there are no such files.
pub(super) fn below(folder: &Path, tables: bool, notes: &mut Vec<String>) -> io::Result<Result<Vec<PathBuf>, String>> {
    let mut found = Vec::new();
    collect(folder, &mut found, notes)?;
    let (text, with_columns): (Vec<PathBuf>, Vec<PathBuf>) =
        found.into_iter().partition(|path| TEXT.contains(&open::kind(path).as_str()));
    let named = |kinds: &[&str]| kinds.iter().map(|kind| format!(".{kind}")).collect::<Vec<_>>().join(", ");
    Ok(match (tables, text.is_empty(), with_columns.is_empty()) {
        (true, _, true) => Err(format!("has no files with columns: no {} file", named(&TABLES))),
        (false, true, true) => {
            Err(format!("has no text: no {}, {} file with anything in it", named(&TEXT), named(&TABLES)))
        }
        (true, _, false) | (false, true, false) => Ok(with_columns),
        (false, false, is_alone) => {
            if !is_alone {
                let left_out = counted(with_columns.len(), "file");
                notes.push(format!("{left_out} with columns of text left out, since there are text files beside: name the column to read them"));
            }
            Ok(text)
        }
    })
}

/// The files below a folder that are text or tables and are not empty, in the order of their paths.
fn collect(folder: &Path, found: &mut Vec<PathBuf>, notes: &mut Vec<String>) -> io::Result<()> {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(folder)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links may be loops.
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
