//! The folder in which shards of texts are kept from run to run.

use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use remat::Result;
use remat::layer::location;
use tempfile::TempDir;

use crate::failure::cannot;

/// The operation that errors name.
const CACHE: &str = "TokenCache";

/// The file that lists what the shards of a text are; it is written last.
pub(crate) const INDEX: &str = "index.json";

/// How the names of folders begin that are written, or were when their process ended.
const UNFINISHED: &str = ".tokens";

/// The file that processes lock.
const LOCK: &str = ".lock";

/// A folder in which nothing was written for so long is left of a process that ended.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A folder of tokens of texts: the shards of each text and tokenizer in a folder of their own, as [`Corpus::in_shards`](crate::Corpus::in_shards) makes
/// them. Several processes may use it. It has no limit, since a run cannot do without the tokens of its text.
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

/// What tokens take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TokenUsage {
    /// Texts, one for each tokenizer that it was read by.
    pub texts: usize,
    /// The bytes of their files.
    pub bytes: u64,
}

impl TokenCache {
    /// That of a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> TokenCache {
        TokenCache { folder: folder.into() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it takes, with what is being written; nothing where the folder is not there.
    pub fn usage(&self) -> TokenUsage {
        self.entries().fold(TokenUsage::default(), TokenUsage::with)
    }

    /// Deletes the tokens of all texts, and what processes have left that ended while they wrote; says what they took. Runs that use them go on where the
    /// system lets files be deleted that are open.
    ///
    /// # Errors
    /// If a folder cannot be deleted.
    #[track_caller]
    pub fn clear(&self) -> Result<TokenUsage> {
        let (loc, _lock) = (location(), self.exclusive());
        let mut deleted = TokenUsage::default();
        for entry in self.entries().filter(|entry| entry.is_finished || entry.is_stale()) {
            match fs::remove_dir_all(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot(CACHE, "delete", &entry.path, &error).at(loc));
                }
                _ => deleted = deleted.with(entry),
            }
        }
        Ok(deleted)
    }

    /// A new folder to write shards to, which is deleted when it is dropped unless it was put in its place. What is left of processes that ended is deleted.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn unfinished(&self) -> io::Result<TempDir> {
        for stale in self.entries().filter(|entry| !entry.is_finished && entry.is_stale()) {
            // Another process may have deleted it.
            let _ = fs::remove_dir_all(stale.path);
        }
        tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)
    }

    /// Puts a folder that was written in the place of another. There is no instant at which that has a part of its files: it is moved away, and deleted
    /// afterwards.
    ///
    /// # Errors
    /// If one cannot be moved.
    pub(crate) fn replace(&self, folder: &Path, written: &Path) -> io::Result<()> {
        let aside = self.unfinished()?;
        match fs::rename(folder, aside.path().join("old")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(written, folder),
        }
    }

    /// Keeps other processes from replacing folders while it is held.
    pub(crate) fn shared(&self) -> Option<File> {
        self.lock(File::lock_shared)
    }

    /// Keeps other processes from opening and replacing folders while it is held.
    pub(crate) fn exclusive(&self) -> Option<File> {
        self.lock(File::lock)
    }

    /// Nothing where the folder is not there or cannot be written, or its file system has no locks: then a process may find that a folder is being
    /// replaced, and writes one of its own.
    fn lock(&self, lock: fn(&File) -> io::Result<()>) -> Option<File> {
        let file = File::options().append(true).create(true).open(self.folder.join(LOCK)).ok()?;
        lock(&file).ok().map(|()| file)
    }

    /// The folders that are the cache's. Others are not touched.
    fn entries(&self) -> impl Iterator<Item = Entry> + use<> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(|entry| Entry::of(&entry))
    }
}

impl TokenUsage {
    fn with(self, entry: Entry) -> TokenUsage {
        TokenUsage { texts: self.texts + usize::from(entry.is_finished), bytes: self.bytes + entry.bytes }
    }
}

/// A folder of the cache.
struct Entry {
    path: PathBuf,
    bytes: u64,
    /// When something was last written.
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

    fn is_stale(&self) -> bool {
        SystemTime::now().duration_since(self.written).is_ok_and(|age| age > STALE)
    }
}
