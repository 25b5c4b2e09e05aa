//! Reading checkpoints.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::SystemTime;

use remat::files::wrong;
use remat::ir::{counted, did_you_mean};
use remat::{Error, Result, Tree};
use serde::de::DeserializeOwned;

use super::Progress;
use super::folder::{self, Entry};
use super::manifest::{self, Files, Manifest, tree_file};
use super::write;
use crate::failure::listed;
use crate::safetensors::of_operation;
use crate::{LoadOptions, SafeTensors};

/// A checkpoint whose files have been verified. They stay open, so that it can be read even after the run that wrote it has removed it.
///
/// ```
/// use remat::Tensor;
/// use remat_io::{Checkpoint, Checkpoints, Progress, Snapshot};
///
/// let run = tempfile::tempdir()?;
/// let mut checkpoints = Checkpoints::open(run.path())?;
/// let progress = Progress { step: 100, seed: 7, data: (), config: "small".to_string() };
/// checkpoints.save(Snapshot::new(&progress)?.with("model", &Tensor::new([1.0f32, 2.0]))?)?;
/// checkpoints.finish()?;
///
/// let checkpoint = Checkpoint::open(run.path().join("step-000100"))?;
/// let read: Progress<(), String> = checkpoint.progress()?;
/// assert_eq!(read, progress);
/// let like = Tensor::shape_only([2], remat::DType::F32);
/// assert_eq!(checkpoint.tree("model", &like)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Checkpoint {
    path: PathBuf,
    manifest: Manifest,
    files: Files,
}

/// The last readable checkpoint of a folder, and the later ones that were skipped.
#[must_use = "what was skipped is to be told to the user"]
pub struct Latest {
    /// The checkpoint; `None` if the folder has none.
    pub checkpoint: Option<Checkpoint>,
    /// Why later ones were skipped: damaged, of a newer format, or not finished when their process ended. Tell the user.
    pub skipped: Vec<Error>,
}

/// The operations that errors name.
const OPEN: &str = "Checkpoint::open";
const LATEST: &str = "Checkpoint::latest";

impl Checkpoint {
    /// Opens the checkpoint in a folder such as `run/step-000100`, and reads all of it once to verify it.
    ///
    /// # Errors
    /// If a file is missing, damaged or of a newer format: the error names it.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let loc = remat::layer::location();
        Checkpoint::verified(path.as_ref()).map_err(|error| error.at(loc))
    }

    fn verified(path: &Path) -> Result<Checkpoint> {
        let manifest = Manifest::read(OPEN, path)?;
        let files = manifest.check(OPEN, path)?;
        Ok(Checkpoint { path: path.to_path_buf(), manifest, files })
    }

    /// The last complete checkpoint in a folder, with the reasons why later ones were skipped. Another process may be writing to the
    /// folder. A folder that does not exist has no checkpoint.
    ///
    /// # Errors
    /// If the folder cannot be read; if it has checkpoints but none is complete, since starting from scratch would be wrong then.
    #[track_caller]
    pub fn latest(folder: impl AsRef<Path>) -> Result<Latest> {
        let (loc, folder) = (remat::layer::location(), folder.as_ref());
        let latest = || {
            let mut skipped = unfinished(folder)?;
            let partial = skipped.len();
            let mut looks = 1;
            'look: loop {
                skipped.truncate(partial);
                let entries = candidates(&folder::entries(LATEST, folder)?);
                for &(step, entry) in &entries {
                    let path = entry.path(folder);
                    let before = identity(&path);
                    match Manifest::verified(LATEST, &path, step) {
                        Ok((manifest, files)) => {
                            return Ok(Latest { checkpoint: Some(Checkpoint { path, manifest, files }), skipped });
                        }
                        // Removed, renamed or replaced meanwhile: there is a later checkpoint, or the same step again.
                        Err(_)
                            if looks < LOOKS
                                && (before.is_none()
                                    || identity(&path) != before
                                    || candidates(&folder::entries(LATEST, folder)?) != entries) =>
                        {
                            looks += 1;
                            continue 'look;
                        }
                        Err(error) => skipped.push(error),
                    }
                }
                return match skipped.last().filter(|_| !entries.is_empty()) {
                    None => Ok(Latest { checkpoint: None, skipped }),
                    Some(last) => {
                        let count = counted(entries.len(), "checkpoint");
                        let message = format!("has {count}, and none of them can be read: {}", last.message());
                        Err(wrong(LATEST, folder, message))
                    }
                };
            }
        };
        latest().map_err(|error: Error| error.at(loc))
    }

    /// The folder of the checkpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The progress of the run, with the configuration from which the model is built.
    ///
    /// # Errors
    /// If the position in the data is not a `D`, or the configuration not a `C`: the error names the field.
    #[track_caller]
    pub fn progress<D: DeserializeOwned, C: DeserializeOwned>(&self) -> Result<Progress<D, C>> {
        serde_json::from_str(self.manifest.progress.get()).map_err(|error| {
            let message = format!("has a progress of another type: {error}");
            wrong("Checkpoint::progress", &self.path.join(manifest::FILE), message).at(remat::layer::location())
        })
    }

    /// The names of the trees.
    pub fn trees(&self) -> impl ExactSizeIterator<Item = &str> {
        self.manifest.trees.keys().map(String::as_str)
    }

    /// A tree, in the structure of `like`: see [`load`](crate::load).
    ///
    /// # Errors
    /// If there is no tree of this name (the error suggests a similar one); as [`load`](crate::load).
    #[track_caller]
    pub fn tree<T: Tree>(&self, name: &str, like: &T) -> Result<T> {
        let Some(file) = self.files.get(name) else {
            let near = did_you_mean(name, self.trees(), || format!("; it has {}", listed(self.trees())));
            let error = wrong("Checkpoint::tree", &self.path, format!("has no tree `{name}`{near}"));
            return Err(error.at(remat::layer::location()));
        };
        let file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let read =
            || SafeTensors::of_file(&tree_file(&self.path, name), &file)?.read_tree(&LoadOptions::default(), like);
        read().map_err(of_operation("Checkpoint::tree"))
    }
}

/// How often a folder is listed again if its checkpoints vanish while they are read; then it is an error.
const LOOKS: u32 = 100;

/// The checkpoints of a folder with their steps, from the last to the first, including those that were to be replaced but were not when
/// their process ended.
fn candidates(entries: &[Entry]) -> Vec<(u64, Entry)> {
    let candidate = |&entry: &Entry| match entry {
        Entry::Whole(step) => Some((step, entry)),
        Entry::Replaced(step) if !entries.contains(&Entry::Whole(step)) => Some((step, entry)),
        _ => None,
    };
    let mut found: Vec<(u64, Entry)> = entries.iter().filter_map(candidate).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// Entries that are incomplete and that no process is writing any more.
fn unfinished(folder: &Path) -> Result<Vec<Error>> {
    let is_partial = |entry: &Entry| matches!(entry, Entry::Partial(_));
    if !folder::entries(LATEST, folder)?.iter().any(is_partial) {
        return Ok(Vec::new());
    }
    // No process starts writing while this lock is held.
    let Some(_lock) = write::lock_to_read(folder) else { return Ok(Vec::new()) };
    let partial = folder::entries(LATEST, folder)?.into_iter().filter(is_partial);
    Ok(partial.map(|entry| wrong(LATEST, &entry.path(folder), "was not finished")).collect())
}

/// The identity of a folder, which changes when another folder takes its name; `None` if the name does not exist.
fn identity(path: &Path) -> Option<(u64, Option<SystemTime>)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((number, metadata.modified().ok()))
}
