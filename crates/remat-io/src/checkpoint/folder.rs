//! The names of checkpoints in a folder, and how one appears and goes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use remat::Result;

use super::Snapshot;
use super::manifest::{self, Manifest, Summing, tree_file};
use crate::atomic::{sync_folder, write_synced};
use crate::failure::cannot;
use crate::safetensors;

const OPERATION: &str = "Checkpoints::save";

/// What an entry of the folder is, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Entry {
    /// `step-000100`: a whole checkpoint.
    Whole(u64),
    /// `.step-000100.partial`: one that is being written, or was when its process ended.
    Partial(u64),
    /// `.step-000100.removed`: one that is being removed.
    Removed(u64),
}

impl Entry {
    fn of(name: &str) -> Option<Entry> {
        let step = |text: &str| {
            let digits = text.strip_prefix("step-")?;
            let plain = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
            // The name of this step and not another spelling of it.
            digits.parse().ok().filter(|&step| plain && name_of(step) == text)
        };
        match name.strip_prefix('.') {
            None => step(name).map(Entry::Whole),
            Some(hidden) => match hidden.rsplit_once('.')? {
                (name, "partial") => step(name).map(Entry::Partial),
                (name, "removed") => step(name).map(Entry::Removed),
                _ => None,
            },
        }
    }

    pub(super) fn path(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Entry::Whole(step) => name_of(step),
            Entry::Partial(step) => format!(".{}.partial", name_of(step)),
            Entry::Removed(step) => format!(".{}.removed", name_of(step)),
        })
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:06}")
}

/// The checkpoints of a folder, from the first step to the last, and what writing and removing left.
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

/// The steps of the whole checkpoints, in order.
///
/// # Errors
/// As [`entries`].
pub(super) fn steps(operation: &str, folder: &Path) -> Result<Vec<u64>> {
    let whole = |entry: Entry| if let Entry::Whole(step) = entry { Some(step) } else { None };
    Ok(entries(operation, folder)?.into_iter().filter_map(whole).collect())
}

/// Removes what a process left that was killed while it wrote or removed a checkpoint.
///
/// # Errors
/// If the system does not do it.
pub(super) fn clean(operation: &str, folder: &Path) -> Result<()> {
    for entry in entries(operation, folder)? {
        if !matches!(entry, Entry::Whole(_)) {
            let path = entry.path(folder);
            fs::remove_dir_all(&path).map_err(|error| cannot(operation, "remove", &path, &error))?;
        }
    }
    Ok(())
}

/// Writes a snapshot as a checkpoint of a folder, and removes all but the last `keep`.
///
/// Checkpoints of this step and of later ones, which a run has that goes back to an earlier step, are set aside first, as `step-000300.old`.
///
/// # Errors
/// If the system does not do it, as when the disk is full; then nothing of the snapshot is left.
pub(super) fn write(folder: &Path, snapshot: Snapshot, keep: Option<usize>) -> Result<()> {
    let step = snapshot.step;
    let (partial, whole) = (Entry::Partial(step).path(folder), Entry::Whole(step).path(folder));
    let failed = |what: &'static str, path: &Path| {
        let path = path.to_path_buf();
        move |error: io::Error| cannot(OPERATION, what, &path, &error)
    };
    if let Err(error) = fill(&partial, snapshot) {
        // What is left of it is removed at the next start, if not now.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    for later in steps(OPERATION, folder)?.into_iter().filter(|&other| other >= step) {
        set_aside(&Entry::Whole(later).path(folder)).map_err(failed("set aside", &Entry::Whole(later).path(folder)))?;
    }
    fs::rename(&partial, &whole).map_err(failed("write", &whole))?;
    sync_folder(folder).map_err(failed("write", folder))?;
    let steps = steps(OPERATION, folder)?;
    let surplus = keep.map_or(0, |keep| steps.len().saturating_sub(keep.max(1)));
    for &step in &steps[..surplus] {
        // With another name first, so that a kill leaves nothing that looks whole.
        let (old, removed) = (Entry::Whole(step).path(folder), Entry::Removed(step).path(folder));
        fs::rename(&old, &removed).map_err(failed("remove", &old))?;
        fs::remove_dir_all(&removed).map_err(failed("remove", &removed))?;
    }
    Ok(())
}

/// The files of a checkpoint, each on the disk, and so are their names.
fn fill(partial: &Path, snapshot: Snapshot) -> Result<()> {
    let failed = |path: &Path, error: &io::Error| cannot(OPERATION, "write", path, error);
    match fs::remove_dir_all(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(partial, &error)),
        Ok(()) | Err(_) => {}
    }
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

/// Gives a checkpoint the name of one that is not read, in place of another that has it.
fn set_aside(path: &Path) -> io::Result<()> {
    let old = path.with_extension("old");
    match fs::remove_dir_all(&old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::rename(path, old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entries() {
        let folder = Path::new("run");
        for entry in [Entry::Whole(0), Entry::Whole(12_345_678), Entry::Partial(7), Entry::Removed(u64::MAX)] {
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
