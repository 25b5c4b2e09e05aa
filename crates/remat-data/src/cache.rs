//! The cache of shards of texts, a folder that outlives runs.

use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use remat::Result;
use remat::files::cannot;
use remat::layer::location;
use tempfile::TempDir;

/// The operation that errors name.
const CACHE: &str = "TokenCache";

/// The file that describes the shards of a text; it is written last.
pub(crate) const INDEX: &str = "index.json";

/// The prefix of folders that are being written, or were when their process ended.
const UNFINISHED: &str = ".tokens";

/// The file that processes lock.
const LOCK: &str = ".lock";

/// Where folders have no locks, the age of the last write after which an unfinished one counts as left by a process that ended.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A cache of tokenized texts in a folder. The shards of each text and tokenizer are in a folder inside of it, as
/// [`Corpus::in_shards`](crate::Corpus::in_shards) writes them. Several processes may use it. It has no size limit, since a run needs all
/// tokens of its text.
///
/// ```
/// use remat_data::{Corpus, Source, TokenCache, Tokenizer};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("digits.txt");
/// std::fs::write(&path, "0123456789")?;
/// let cache = TokenCache::new(folder.path().join("tokens"));
/// Corpus::in_shards(&Source::open(&path, None)?, &Tokenizer::bytes(), cache.folder())?;
/// let usage = cache.usage();
/// assert_eq!(usage.texts, 1);
/// assert_eq!(cache.clear()?, usage);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenCache {
    folder: PathBuf,
}

/// The size of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TokenUsage {
    /// The number of texts, counted once for each tokenizer.
    pub texts: usize,
    /// The bytes of their files.
    pub bytes: u64,
}

impl TokenCache {
    /// The cache in a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> TokenCache {
        TokenCache { folder: folder.into() }
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its size, including shards that are being written; zero if the folder does not exist.
    pub fn usage(&self) -> TokenUsage {
        self.entries().fold(TokenUsage::default(), TokenUsage::with)
    }

    /// Deletes the tokens of all texts, and unfinished folders of processes that ended; returns their size. Runs that use them continue if
    /// the system can delete open files.
    ///
    /// # Errors
    /// If a folder cannot be deleted.
    #[track_caller]
    pub fn clear(&self) -> Result<TokenUsage> {
        let (loc, _lock) = (location(), self.exclusive());
        let mut deleted = TokenUsage::default();
        for entry in self.entries().filter(|entry| entry.is_finished || entry.is_left()) {
            match fs::remove_dir_all(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot(CACHE, "delete", &entry.path, &error).at(loc));
                }
                _ => deleted = deleted.with(entry),
            }
        }
        Ok(deleted)
    }

    /// A new folder to write shards to. Deletes folders of processes that ended.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn unfinished(&self) -> io::Result<Unfinished> {
        // Nobody takes a folder for one that was left, between its beginning and its lock.
        let _lock = self.exclusive();
        for left in self.entries().filter(|entry| !entry.is_finished && entry.is_left()) {
            // Without locks another process may have deleted it.
            let _ = fs::remove_dir_all(left.path);
        }
        self.begun()
    }

    /// The same, while the cache is locked.
    fn begun(&self) -> io::Result<Unfinished> {
        let folder = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        let lock = File::open(folder.path()).ok().filter(|folder| folder.try_lock().is_ok());
        Ok(Unfinished { folder, _lock: lock })
    }

    /// Replaces a folder by one that was written, while the cache is locked. The old folder is moved away and deleted afterwards, so that
    /// its path never has only a part of its files.
    ///
    /// # Errors
    /// If one cannot be moved.
    pub(crate) fn replace(&self, folder: &Path, written: &Unfinished) -> io::Result<()> {
        let aside = self.begun()?;
        match fs::rename(folder, aside.path().join("old")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(written.path(), folder),
        }
    }

    /// Prevents other processes from replacing folders while it is held.
    pub(crate) fn shared(&self) -> Option<File> {
        self.lock(File::lock_shared)
    }

    /// Prevents other processes from opening and replacing folders while it is held.
    pub(crate) fn exclusive(&self) -> Option<File> {
        self.lock(File::lock)
    }

    /// `None` if the folder does not exist or is not writable, or its file system has no locks. Then a process may find that a folder is
    /// being replaced, and writes its own.
    fn lock(&self, lock: fn(&File) -> io::Result<()>) -> Option<File> {
        let file = File::options().append(true).create(true).open(self.folder.join(LOCK)).ok()?;
        lock(&file).ok().map(|()| file)
    }

    /// The folders that belong to the cache. Others are not touched.
    fn entries(&self) -> impl Iterator<Item = Entry> + use<> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(|entry| Entry::of(&entry))
    }
}

impl TokenUsage {
    fn with(self, entry: Entry) -> TokenUsage {
        TokenUsage { texts: self.texts + usize::from(entry.is_finished), bytes: self.bytes + entry.bytes }
    }
}

/// A folder that this process writes. It is deleted when dropped, unless it has replaced another.
pub(crate) struct Unfinished {
    folder: TempDir,
    /// The folder itself, locked as long as this is written: a kill of the process unlocks it. `None` where folders have no locks.
    _lock: Option<File>,
}

impl Unfinished {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder of the cache.
struct Entry {
    path: PathBuf,
    bytes: u64,
    /// The time of the last write.
    written: SystemTime,
    is_finished: bool,
}

impl Entry {
    fn of(entry: &DirEntry) -> Option<Entry> {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str()?;
        let is_key = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_finished = is_key && path.join(INDEX).exists();
        let metadata = entry.metadata().ok().filter(|metadata| metadata.is_dir())?;
        if !is_finished && !name.starts_with(UNFINISHED) {
            return None;
        }
        let mut this = Entry { path, bytes: 0, written: metadata.modified().ok()?, is_finished };
        for file in fs::read_dir(&this.path).into_iter().flatten().flatten() {
            if let Ok(metadata) = file.metadata().as_ref() {
                this.bytes += metadata.len();
                this.written = metadata.modified().map_or(this.written, |time| time.max(this.written));
            }
        }
        Some(this)
    }

    /// Whether the process that wrote an unfinished folder has ended.
    fn is_left(&self) -> bool {
        match File::open(&self.path).map(|folder| folder.try_lock()) {
            Ok(Ok(())) => true,
            Ok(Err(TryLockError::WouldBlock)) => false,
            Ok(Err(TryLockError::Error(_))) | Err(_) => {
                SystemTime::now().duration_since(self.written).is_ok_and(|age| age > STALE)
            }
        }
    }
}
