//! The names of checkpoints in a folder, and how checkpoints are published and removed.
//!
//! Saving a step again takes two renames: the old checkpoint away, and the new one there. A kill between them leaves both intact under
//! hidden names, which readers know and the next start resolves. Nothing else of the user's is removed, except what `keep` says.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use remat::files::{cannot, sync_folder, write_synced};
use remat::{Error, ErrorKind, Result};

use super::Snapshot;
use super::manifest::{self, Manifest, Summing, tree_file};
use crate::safetensors;

const OPERATION: &str = "Checkpoints::save";

/// The kind of an entry of the folder, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Entry {
    /// `step-000100`: a complete checkpoint.
    Whole(u64),
    /// `.step-000100.partial`: one that is being written, or was when its process ended.
    Partial(u64),
    /// `.step-000100.removed`: one that is being removed.
    Removed(u64),
    /// `.step-000100.replaced`: one whose step is written again, until the new one has taken its name.
    Replaced(u64),
}

impl Entry {
    fn of(name: &str) -> Option<Entry> {
        let step = |text: &str| {
            let digits = text.strip_prefix("step-")?;
            let plain = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
            // Only the canonical spelling of this step.
            digits.parse().ok().filter(|&step| plain && name_of(step) == text)
        };
        match name.strip_prefix('.') {
            None => step(name).map(Entry::Whole),
            Some(hidden) => match hidden.rsplit_once('.')? {
                (name, "partial") => step(name).map(Entry::Partial),
                (name, "removed") => step(name).map(Entry::Removed),
                (name, "replaced") => step(name).map(Entry::Replaced),
                _ => None,
            },
        }
    }

    pub(super) fn path(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Entry::Whole(step) => name_of(step),
            Entry::Partial(step) => format!(".{}.partial", name_of(step)),
            Entry::Removed(step) => format!(".{}.removed", name_of(step)),
            Entry::Replaced(step) => format!(".{}.replaced", name_of(step)),
        })
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:06}")
}

/// The checkpoints of a folder, in order of their steps, and what interrupted writes and removals left.
///
/// # Errors
/// If the folder cannot be read; a folder that does not exist is empty.
pub(super) fn entries(operation: &str, folder: &Path) -> Result<Vec<Entry>> {
    let failed = |error: io::Error| cannot(operation, "read", folder, &error);
    let mut found = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                found.extend(entry.map_err(failed)?.file_name().to_str().and_then(Entry::of));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    found.sort_unstable();
    Ok(found)
}

/// The steps of the checkpoints, in order.
///
/// # Errors
/// As [`entries`].
fn steps(operation: &str, folder: &Path) -> Result<Vec<u64>> {
    let whole = |entry: Entry| if let Entry::Whole(step) = entry { Some(step) } else { None };
    Ok(entries(operation, folder)?.into_iter().filter_map(whole).collect())
}

/// Completes what a killed process began in a folder: a checkpoint that only lacks its name gets it, one that was to be replaced but was
/// not gets its name back, and the rest is removed.
///
/// # Errors
/// If the system does not do it.
pub(super) fn recover(operation: &'static str, folder: &Path) -> Result<()> {
    // Partial checkpoints come before those that they replace.
    for entry in entries(operation, folder)? {
        let path = entry.path(folder);
        match entry {
            Entry::Whole(_) => {}
            Entry::Partial(step) if Manifest::verified(operation, &path, step).is_ok() => {
                let synced =
                    OpenOptions::new().write(true).open(path.join(manifest::FILE)).and_then(|file| file.sync_all());
                synced.and_then(|()| sync_folder(&path)).map_err(|error| cannot(operation, "write", &path, &error))?;
                publish(operation, folder, step)?;
            }
            Entry::Replaced(step) if !Entry::Whole(step).path(folder).exists() => {
                rename(operation, &path, &Entry::Whole(step).path(folder))?;
            }
            Entry::Partial(_) | Entry::Removed(_) | Entry::Replaced(_) => remove(operation, &path)?,
        }
    }
    Ok(())
}

/// Writes a snapshot as a checkpoint of a folder, and removes all before the last `keep`.
///
/// If a run went back to an earlier step, checkpoints of later steps are renamed, to `step-000300.old`.
///
/// # Errors
/// If the system fails, for example when the disk is full. Then nothing of the snapshot is left, unless it is complete.
pub(super) fn write(folder: &Path, snapshot: Snapshot, keep: Option<usize>) -> Result<()> {
    let step = snapshot.step;
    let partial = Entry::Partial(step).path(folder);
    if let Err(error) = fill(&partial, snapshot).and_then(|()| publish(OPERATION, folder, step)) {
        // What is left is removed now or at the next start.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    // From the last on, so that a kill leaves consecutive steps.
    for later in steps(OPERATION, folder)?.into_iter().rev().take_while(|&other| other > step) {
        let (path, old) = (Entry::Whole(later).path(folder), old(folder, later));
        remove(OPERATION, &old)?;
        rename(OPERATION, &path, &old)?;
    }
    remove(OPERATION, &old(folder, step))?;
    keep.map_or(Ok(()), |keep| prune(folder, keep.max(1)))
}

/// Gives a complete checkpoint its name, and removes the one that had the name.
fn publish(operation: &str, folder: &Path, step: u64) -> Result<()> {
    let of = |entry: fn(u64) -> Entry| entry(step).path(folder);
    let (partial, whole, replaced) = (of(Entry::Partial), of(Entry::Whole), of(Entry::Replaced));
    let again = whole.exists();
    if again {
        remove(operation, &replaced)?;
        rename(operation, &whole, &replaced)?;
    }
    if let Err(error) = rename(operation, &partial, &whole) {
        if again {
            // If this fails, it is done at the next start.
            let _ = fs::rename(&replaced, &whole);
        }
        return Err(error);
    }
    sync_folder(folder).map_err(|error| cannot(operation, "write", folder, &error))?;
    remove(operation, &replaced)
}

/// Removes all checkpoints before the last few that have no missing or truncated file: a damaged one must not replace one from which a run
/// can resume.
fn prune(folder: &Path, keep: usize) -> Result<()> {
    let mut kept = 0;
    for step in steps(OPERATION, folder)?.into_iter().rev() {
        let path = Entry::Whole(step).path(folder);
        if kept < keep {
            kept += usize::from(Manifest::glanced(OPERATION, &path, step).is_ok());
        } else {
            // Renamed first, so that a kill leaves nothing that looks complete.
            let removed = Entry::Removed(step).path(folder);
            rename(OPERATION, &path, &removed)?;
            remove(OPERATION, &removed)?;
        }
    }
    Ok(())
}

fn rename(operation: &str, from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| {
        let message = format!("cannot rename `{}` to `{}`: {error}", from.display(), to.display());
        Error::new(ErrorKind::Io, operation, message)
    })
}

/// Removes a folder, if it is there.
fn remove(operation: &str, path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(operation, "remove", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The path of a checkpoint that was set aside.
fn old(folder: &Path, step: u64) -> PathBuf {
    Entry::Whole(step).path(folder).with_extension("old")
}

/// Writes the files of a checkpoint, and syncs them and their names to the disk.
fn fill(partial: &Path, snapshot: Snapshot) -> Result<()> {
    let failed = |path: &Path, error: &io::Error| cannot(OPERATION, "write", path, error);
    remove(OPERATION, partial)?;
    fs::create_dir(partial).map_err(|error| failed(partial, &error))?;
    let create = |path: &Path| File::create_new(path).map_err(|error| failed(path, &error));
    let mut sums = BTreeMap::new();
    for (name, tensors) in snapshot.trees {
        let path = tree_file(partial, &name);
        let mut sum = None;
        let content = |out: &mut dyn Write| {
            let mut out = Summing::new(out);
            safetensors::write(OPERATION, &path, tensors, &BTreeMap::new(), &mut out)?;
            sum = Some(out.sum());
            Ok(())
        };
        write_synced(&create(&path)?, content, |error| failed(&path, error))?;
        sums.extend(sum.map(|sum| (name, sum)));
    }
    let path = partial.join(manifest::FILE);
    let manifest = Manifest::new(snapshot.progress, sums);
    let content = |out: &mut dyn Write| {
        let text = serde_json::to_string_pretty(&manifest).map_err(|error| failed(&path, &error.into()))?;
        writeln!(out, "{text}").map_err(|error| failed(&path, &error))
    };
    write_synced(&create(&path)?, content, |error| failed(&path, error))?;
    sync_folder(partial).map_err(|error| failed(partial, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entries() {
        let folder = Path::new("run");
        let numbers = [Entry::Whole(0), Entry::Whole(12_345_678), Entry::Removed(u64::MAX)];
        for entry in numbers.into_iter().chain([Entry::Partial(7), Entry::Replaced(7)]) {
            let path = entry.path(folder);
            assert_eq!(path.parent(), Some(folder));
            assert_eq!(Entry::of(path.file_name().unwrap().to_str().unwrap()), Some(entry));
        }
        assert_eq!(Entry::Partial(7).path(folder), Path::new("run/.step-000007.partial"));
        for other in ["step-7", "step-0000007", "step-000007.old", ".step-000007", "step-99999999999999999999", ".lock"]
        {
            assert_eq!(Entry::of(other), None, "{other}");
        }
    }
}
