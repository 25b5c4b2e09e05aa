//! Writing checkpoints, in the background.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use remat::{Error, ErrorKind, Result};

use super::{Snapshot, folder};
use crate::failure::{cannot, wrong};

/// The options of [`Checkpoints::open_with`].
///
/// ```
/// use remat_io::CheckpointOptions;
/// assert_eq!(CheckpointOptions::default(), CheckpointOptions { keep: Some(3), background: true });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointOptions {
    /// How many checkpoints stay, at least 1; `None` is all. 3 by default. One with a missing or cut off file does not count.
    pub keep: Option<usize>,
    /// Whether a thread writes while training goes on; true by default. What that costs in memory: see [`Snapshot`].
    pub background: bool,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions { keep: Some(3), background: true }
    }
}

/// A folder of checkpoints that this process writes to. A run that is killed at any instant goes on from the last of them with the bits that it
/// would have had.
///
/// ```
/// use remat::{Tensor, grad};
/// use remat::optim::{AdamW, Optimizer};
/// use remat_io::{Checkpoint, Checkpoints, Latest, Progress, Snapshot};
///
/// fn train(run: &std::path::Path, steps: u64) -> remat::Result<Vec<f32>> {
///     let mut checkpoints = Checkpoints::open(run)?;
///     let adam = AdamW::default();
///     let mut model = Tensor::new([1.0f32, 2.0]);
///     let mut state = adam.init(&model);
///     let mut done = 0;
///     let Latest { checkpoint, skipped } = Checkpoint::latest(run)?;
///     for error in skipped {
///         eprintln!("note: {error}");
///     }
///     if let Some(checkpoint) = checkpoint {
///         done = checkpoint.progress::<(), ()>()?.step;
///         (model, state) = (checkpoint.tree("model", &model)?, checkpoint.tree("optimizer", &state)?);
///     }
///     for step in done..steps {
///         let gradient = grad(|x: &Tensor| x.square().sum(..))(&model)?;
///         (model, state) = adam.update(&model, &gradient, &state)?;
///         if (step + 1) % 10 == 0 {
///             let progress = Progress { step: step + 1, seed: 0, data: (), config: () };
///             checkpoints.save(Snapshot::new(&progress)?.with("model", &model)?.with("optimizer", &state)?)?;
///         }
///     }
///     checkpoints.finish()?;
///     model.to_vec()
/// }
///
/// let (whole, parts) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// train(parts.path(), 25)?;
/// assert_eq!(train(parts.path(), 40)?, train(whole.path(), 40)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Checkpoints {
    folder: PathBuf,
    options: CheckpointOptions,
    writing: Option<JoinHandle<Result<()>>>,
    /// Locked as long as it is open, also if this process is killed.
    _lock: File,
}

impl Checkpoints {
    /// Opens a folder to write checkpoints, made if it does not exist. What a run that was killed had begun to write is
    /// removed, but for a checkpoint of which only the name was not written: it gets its name.
    ///
    /// # Errors
    /// If the folder cannot be made or written; if another process, or another value of this one, writes checkpoints there.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        Checkpoints::open_with(&CheckpointOptions::default(), folder)
    }

    /// As [`Checkpoints::open`], with options.
    ///
    /// # Errors
    /// As [`Checkpoints::open`].
    #[track_caller]
    pub fn open_with(options: &CheckpointOptions, folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let (loc, folder) = (remat::layer::location(), folder.as_ref());
        let open = || {
            fs::create_dir_all(folder).map_err(|error| cannot(OPEN, "make", folder, &error))?;
            let lock = lock(folder)?;
            folder::recover(OPEN, folder)?;
            Ok(Checkpoints { folder: folder.to_path_buf(), options: *options, writing: None, _lock: lock })
        };
        open().map_err(|error: Error| error.at(loc))
    }

    /// Writes a snapshot. In the background this returns at once, unless the snapshot before it is still being written: it waits for that, so that at most one
    /// is held.
    ///
    /// A checkpoint of the same step is replaced. Those of later steps, which are there when a run goes back, are renamed once this one is whole: `step-000300`
    /// to `step-000300.old`, which is neither read nor counted, and goes when step 300 is saved again. Remove them by hand if the disk is short.
    ///
    /// # Errors
    /// In the background: that of the snapshot before it, and this one is not written; call again to go on. Otherwise its own. It
    /// names the file and the tensor; earlier checkpoints are there as before.
    #[track_caller]
    pub fn save(&mut self, snapshot: Snapshot) -> Result<()> {
        let loc = remat::layer::location();
        self.join().map_err(|error| error.at(loc))?;
        let (folder, keep) = (self.folder.clone(), self.options.keep);
        if !self.options.background {
            return folder::write(&folder, snapshot, keep).map_err(|error| error.at(loc));
        }
        let write = move || folder::write(&folder, snapshot, keep).map_err(|error| error.at(loc));
        let thread = thread::Builder::new().name("remat-checkpoint".into()).spawn(write);
        let failed = |error| cannot(SAVE, "start a thread that writes to", &self.folder, &error).at(loc);
        self.writing = Some(thread.map_err(failed)?);
        Ok(())
    }

    /// Waits until the last snapshot is written.
    ///
    /// # Errors
    /// That of writing it.
    #[track_caller]
    pub fn finish(mut self) -> Result<()> {
        self.wait()
    }

    /// Waits until the last snapshot is written. Its error is given once: a [`save`](Checkpoints::save) after it writes its own snapshot.
    ///
    /// ```
    /// use remat_io::{Checkpoint, Checkpoints, Progress, Snapshot};
    /// let folder = tempfile::tempdir()?;
    /// let mut checkpoints = Checkpoints::open(folder.path())?;
    /// checkpoints.save(Snapshot::new(&Progress { step: 1, seed: 0, data: (), config: () })?)?;
    /// checkpoints.wait()?;
    /// assert!(Checkpoint::latest(folder.path())?.checkpoint.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// That of writing it.
    #[track_caller]
    pub fn wait(&mut self) -> Result<()> {
        let loc = remat::layer::location();
        self.join().map_err(|error| error.at(loc))
    }

    fn join(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(Error::new(ErrorKind::Internal, SAVE, "the thread that writes checkpoints panicked")),
        }
    }
}

/// Waits until the last snapshot is written; its error, which [`Checkpoints::finish`] gives, is lost.
impl Drop for Checkpoints {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

const OPEN: &str = "Checkpoints::open";
const SAVE: &str = "Checkpoints::save";

/// The file that is locked.
const LOCK: &str = ".lock";

/// How often the lock is asked for, and the time between: one that reads the folder may hold it for an instant.
const LOCKS: (u32, Duration) = (5, Duration::from_millis(20));

/// The lock of a folder.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let failed = |error: &io::Error| cannot(OPEN, "lock", &path, error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(&path).map_err(|error| failed(&error))?;
    let mut tries = 1;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if tries < LOCKS.0 => {
                tries += 1;
                thread::sleep(LOCKS.1);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(wrong(OPEN, folder, "is where another run writes its checkpoints"));
            }
            // Some network file systems have no locks; there the user sees to it.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
    }
}

/// Keeps processes from beginning to write to a folder, as long as the result is there; `None` if one is writing.
pub(super) fn lock_to_read(folder: &Path) -> Option<Option<File>> {
    // No process has written there, or this user cannot: then nobody can be asked.
    let Ok(file) = File::open(folder.join(LOCK)) else { return Some(None) };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => None,
        Ok(()) | Err(TryLockError::Error(_)) => Some(Some(file)),
    }
}
