//! Reading checkpoints.

use std::path::{Path, PathBuf};

use remat::ir::{counted, did_you_mean};
use remat::{Error, Result, Tree};
use serde::de::DeserializeOwned;

use super::Progress;
use super::folder::{self, Entry};
use super::manifest::{self, Manifest, tree_file};
use crate::failure::{listed, wrong};
use crate::{LoadOptions, SafeTensors};

/// A checkpoint whose files were found to be those that were written.
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
}

/// The last checkpoint of a folder that can be read, and what came after it.
#[must_use = "what was skipped is to be told to the user"]
pub struct Latest {
    /// The checkpoint; `None` if the folder has none.
    pub checkpoint: Option<Checkpoint>,
    /// Why later ones were skipped: damaged, of a newer format, or not finished when their process ended. Tell the user.
    pub skipped: Vec<Error>,
}

const OPERATION: &str = "Checkpoint::open";

impl Checkpoint {
    /// Opens the checkpoint in a folder such as `run/step-000100`, and reads all of it once, to see that it is whole.
    ///
    /// # Errors
    /// If a file is missing, damaged or of a newer format: the error names it.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let loc = remat::layer::location();
        Checkpoint::verified(path.as_ref()).map_err(|error| error.at(loc))
    }

    fn verified(path: &Path) -> Result<Checkpoint> {
        let manifest = Manifest::read(OPERATION, path)?;
        for (name, sum) in &manifest.trees {
            sum.check(OPERATION, &tree_file(path, name))?;
        }
        Ok(Checkpoint { path: path.to_path_buf(), manifest })
    }

    /// The last checkpoint in a folder that is whole, with the reasons why later ones were skipped. The folder may be one that a
    /// process is writing to; one that does not exist has none.
    ///
    /// # Errors
    /// If the folder cannot be read; if it has checkpoints and none of them is whole: to begin anew is not what was meant then.
    #[track_caller]
    pub fn latest(folder: impl AsRef<Path>) -> Result<Latest> {
        let (loc, folder) = (remat::layer::location(), folder.as_ref());
        let latest = || {
            let entries = folder::entries(OPERATION, folder)?;
            let partial = entries.iter().filter(|entry| matches!(entry, Entry::Partial(_)));
            let unfinished = |entry: &Entry| wrong(OPERATION, &entry.path(folder), "was not finished");
            let mut skipped: Vec<Error> = partial.map(unfinished).collect();
            let steps = folder::steps(OPERATION, folder)?;
            for &step in steps.iter().rev() {
                match Checkpoint::verified(&Entry::Whole(step).path(folder)) {
                    Ok(checkpoint) => return Ok(Latest { checkpoint: Some(checkpoint), skipped }),
                    Err(error) => skipped.push(error),
                }
            }
            match skipped.last().filter(|_| !steps.is_empty()) {
                None => Ok(Latest { checkpoint: None, skipped }),
                Some(last) => {
                    let count = counted(steps.len(), "checkpoint");
                    let message = format!("has {count}, and none of them can be read: {}", last.message());
                    Err(wrong(OPERATION, folder, message))
                }
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
    /// If data position or configuration are not of these types: the error names the field.
    #[track_caller]
    pub fn progress<D: DeserializeOwned, C: DeserializeOwned>(&self) -> Result<Progress<D, C>> {
        serde_json::from_value(self.manifest.progress.clone()).map_err(|error| {
            let message = format!("has another progress than was asked for: {error}");
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
    /// If there is no tree of this name, with a did-you-mean; as [`load`](crate::load).
    #[track_caller]
    pub fn tree<T: Tree>(&self, name: &str, like: &T) -> Result<T> {
        if !self.manifest.trees.contains_key(name) {
            let near = did_you_mean(name, self.trees(), || format!("; it has {}", listed(self.trees())));
            let error = wrong("Checkpoint::tree", &self.path, format!("has no tree `{name}`{near}"));
            return Err(error.at(remat::layer::location()));
        }
        SafeTensors::open(tree_file(&self.path, name))?.tree(&LoadOptions::default(), like)
    }
}
