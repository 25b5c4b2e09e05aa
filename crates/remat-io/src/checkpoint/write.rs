//! Writing checkpoints, in the background.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use remat::files::{cannot, wrong};
use remat::{Error, ErrorKind, Result};

use super::{Snapshot, folder};
use crate::open;

/// The options of [`Checkpoints::open_with`].
///
/// ```
/// use remat_io::CheckpointOptions;
/// assert_eq!(CheckpointOptions::default(), CheckpointOptions { keep: Some(3), background: true });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointOptions {
    /// How many checkpoints are kept, at least 1; `None` keeps all. The default is 3. Checkpoints with a missing or truncated file do not
    /// count.
    pub keep: Option<usize>,
    /// Whether another thread writes while training continues; true by default. See [`Snapshot`] for the cost in memory.
    pub background: bool,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions { keep: Some(3), background: true }
    }
}

/// A folder of checkpoints to which this process writes. A run that is killed at any time resumes from the last of them, and then computes
/// the same bits as a run that was not killed.
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
    /// Locked while this is open; a kill of the process unlocks it.
    lock: File,
}

impl Checkpoints {
    /// Opens a folder for checkpoints, and creates it if it does not exist. Removes incomplete checkpoints that a killed run left; one that
    /// was complete but not yet renamed gets its name.
    ///
    /// # Errors
    /// If the folder cannot be created or written; if another process, or another value of this type, writes checkpoints there.
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
            Ok(Checkpoints { folder: folder.to_path_buf(), options: *options, writing: None, lock })
        };
        open().map_err(|error: Error| error.at(loc))
    }

    /// The same folder with other options for the next saves: a run may read its last checkpoint before it knows them.
    ///
    /// ```
    /// use remat_io::{CheckpointOptions, Checkpoints};
    /// let folder = tempfile::tempdir()?;
    /// let all = CheckpointOptions { keep: None, ..CheckpointOptions::default() };
    /// let checkpoints = Checkpoints::open(folder.path())?.with_options(all);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: CheckpointOptions) -> Checkpoints {
        self.options = options;
        self
    }

    /// Writes a snapshot. First waits until the previous snapshot is written, so that at most one is in memory; in the background this then
    /// returns at once.
    ///
    /// If the folder was moved since it was opened, the snapshot is written to its new place on Linux; elsewhere that is an error.
    ///
    /// Replaces a checkpoint of the same step. When a run goes back, checkpoints of later steps are renamed once this one is complete:
    /// `step-000300` to `step-000300.old`. These are neither read nor counted, and are removed when step 300 is saved again. Remove them by
    /// hand if the disk is short.
    ///
    /// # Errors
    /// In the background: the error of the previous snapshot; then this one is not written, and the next call begins anew. Otherwise the
    /// error of this snapshot. It names the file and the tensor; earlier checkpoints are unchanged. If the folder was deleted, or another
    /// one has taken its place.
    #[track_caller]
    pub fn save(&mut self, snapshot: Snapshot) -> Result<()> {
        let loc = remat::layer::location();
        self.join().and_then(|()| self.follow()).map_err(|error| error.at(loc))?;
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

    /// The folder: the one that was opened, or where it was when the last snapshot was written.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Goes on where the folder that is locked is now: another run may have begun under its old name.
    ///
    /// # Errors
    /// If it was deleted, or the system does not tell where it is.
    fn follow(&mut self) -> Result<()> {
        if is_locked_by(&self.lock, &self.folder) {
            return Ok(());
        }
        let moved = folder_of(&self.lock).filter(|folder| is_locked_by(&self.lock, folder));
        let gone = || wrong(SAVE, &self.folder, "is no longer the folder that was opened: it was deleted or moved");
        self.folder = moved.ok_or_else(gone)?;
        Ok(())
    }

    /// Waits until the last snapshot is written.
    ///
    /// # Errors
    /// The error of writing it.
    #[track_caller]
    pub fn finish(mut self) -> Result<()> {
        self.wait()
    }

    /// Waits until the last snapshot is written. Its error is returned once: a later [`save`](Checkpoints::save) writes its own snapshot.
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
    /// The error of writing it.
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

/// Waits until the last snapshot is written. Its error is lost here; [`Checkpoints::finish`] returns it.
impl Drop for Checkpoints {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

const OPEN: &str = "Checkpoints::open";
const SAVE: &str = "Checkpoints::save";

/// The file that is locked.
const LOCK: &str = ".lock";

/// How often the lock is tried, and the time between: a reader of the folder may hold it for a moment.
const LOCKS: (u32, Duration) = (5, Duration::from_millis(20));

/// The lock of a folder.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    // A link would make a file elsewhere, and a pipe would be waited for.
    if fs::symlink_metadata(&path).is_ok_and(|kind| !kind.is_file()) {
        return Err(wrong(OPEN, &path, "is not a file"));
    }
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
            // Some network file systems have no locks; there the user must ensure a single writer.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
    }
}

/// Whether the lock of a folder is this file.
#[cfg(unix)]
fn is_locked_by(lock: &File, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (held, there) = (lock.metadata(), fs::metadata(folder.join(LOCK)));
    held.is_ok_and(|held| there.is_ok_and(|there| (held.dev(), held.ino()) == (there.dev(), there.ino())))
}

/// Other systems do not move or delete a folder with an open file.
#[cfg(not(unix))]
fn is_locked_by(_: &File, _: &Path) -> bool {
    true
}

/// The folder in which an open file is now, if the system tells.
fn folder_of(file: &File) -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        let number = std::os::fd::AsRawFd::as_raw_fd(file);
        let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        path.parent().map(Path::to_path_buf)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// Prevents processes from starting to write to a folder while the result is held; `None` if a process is writing.
pub(super) fn lock_to_read(folder: &Path) -> Option<Option<File>> {
    // If no process has written there, or this user may not lock, there is nothing to lock.
    let Ok(file) = open::open(&folder.join(LOCK)) else { return Some(None) };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => None,
        Ok(()) | Err(TryLockError::Error(_)) => Some(Some(file)),
    }
}
