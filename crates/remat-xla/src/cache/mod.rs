//! A cache of executables on disk, so that a program is compiled once on a machine.
//!
//! An executable is a file whose name is a hash of everything that it depends on. Key and checksum are verified before a plugin reads it.
//! The hash is not cryptographic: whoever can write the folder can run programs as the user anyway. There is no minimum compile time, since
//! even the smallest program takes ten times as long to compile as to load. There is no lock: entries are renamed, and at worst two
//! processes do the same work.

mod entry;

use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use remat_ir::{Error, ErrorKind, Result, parse_bytes};

use crate::folder;

/// The environment variable with the limit.
const VARIABLE: &str = "REMAT_CACHE_SIZE";

/// The default limit.
const LIMIT: u64 = 2 << 30;

/// In most file systems a file takes a multiple of this on disk.
const BLOCK: u64 = 4096;

/// How long writing an entry may take. An older unfinished file was left by a process that ended.
const WRITING: Duration = Duration::from_secs(3600);

/// Executables on disk, one file for each combination of everything that an executable depends on.
///
/// Engines look up a program here before compiling it, and store it afterwards. The program of a damaged entry is compiled again; if the
/// folder cannot be read or written, all programs are. Several processes may use one folder. If it exceeds its limit, the least recently
/// used entries are deleted.
///
/// ```
/// # fn main() -> remat_ir::Result<()> {
/// use remat_xla::ExecutableCache;
/// match ExecutableCache::of_user()? {
///     Some(cache) => println!("{} takes {} bytes of {}", cache.folder().display(), cache.usage().bytes, cache.limit()),
///     None => println!("neither HOME nor XDG_CACHE_HOME is set"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExecutableCache {
    folder: PathBuf,
    limit: u64,
    /// The size of the folder when it was last counted; `None` until this process has written an entry.
    counted: Mutex<Option<Counted>>,
}

/// A count of the folder's size.
#[derive(Debug)]
struct Counted {
    bytes: u64,
    /// The bytes that this process has written since.
    written: u64,
}

/// The size of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Usage {
    /// The number of executables.
    pub entries: usize,
    /// Bytes on disk.
    pub bytes: u64,
}

impl ExecutableCache {
    /// The user's cache: the folder `remat/executables` in `$XDG_CACHE_HOME` or `~/.cache`, with the limit in the environment variable
    /// `REMAT_CACHE_SIZE` (`500MiB`, `10GiB`), or 2 GiB by default. A limit of 0 turns it off. `None` if neither `XDG_CACHE_HOME` nor
    /// `HOME` is set.
    ///
    /// # Errors
    /// If `REMAT_CACHE_SIZE` is not a number of bytes.
    pub fn of_user() -> Result<Option<ExecutableCache>> {
        let limit = match folder::variable(VARIABLE) {
            None => LIMIT,
            Some(text) => limit(&text.to_string_lossy())?,
        };
        let cache = |folder| ExecutableCache::new(folder, limit);
        Ok(folder::of_user("executables").ok().map(cache))
    }

    /// The cache in a folder, which need not exist, with a limit in bytes.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> ExecutableCache {
        ExecutableCache { folder: folder.into(), limit, counted: Mutex::new(None) }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Its size; zero if the folder does not exist.
    pub fn usage(&self) -> Usage {
        self.files()
            .iter()
            .filter(|file| file.is_entry)
            .fold(Usage::default(), |sum, file| Usage { entries: sum.entries + 1, bytes: sum.bytes + file.bytes })
    }

    /// Deletes all entries, and returns their size.
    ///
    /// # Errors
    /// If one cannot be deleted.
    pub fn clear(&self) -> Result<Usage> {
        let mut deleted = Usage::default();
        for file in self.files() {
            match fs::remove_file(&file.path) {
                // Another process was faster.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::new(ErrorKind::Io, "cache", format!("{}: {error}", file.path.display())));
                }
                _ => deleted.bytes += file.bytes,
            }
            deleted.entries += usize::from(file.is_entry);
        }
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(deleted)
    }

    /// The executable with this key, if it exists and is intact. It becomes the most recently used one.
    pub(crate) fn get(&self, key: u128) -> Option<Vec<u8>> {
        let mut file = File::open(self.path(key)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let executable = entry::read(key, bytes)?;
        // If that is not allowed, entries are deleted by the time at which they were written.
        let _ = file.set_modified(SystemTime::now());
        Some(executable)
    }

    /// Stores an executable under a key. One that cannot be written, or that exceeds the limit, is compiled again by the next process.
    pub(crate) fn put(&self, key: u128, executable: &[u8]) {
        let entry = entry::written(key, executable);
        let size = on_disk(entry.len() as u64);
        if size > self.limit || self.write(key, &entry).is_err() {
            return;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = Some(match counted.take() {
            // Other processes write too: each may exceed the limit by a 64th before it counts again.
            Some(Counted { bytes, written })
                if written + size <= self.limit / 64 && bytes + written + size <= self.limit =>
            {
                Counted { bytes, written: written + size }
            }
            _ => Counted { bytes: self.shrink(&self.path(key)), written: 0 },
        });
    }

    /// Writes an entry to a file of another name and renames it, so that no process reads a partial entry.
    fn write(&self, key: u128, entry: &[u8]) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.folder)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!("{key:032x}.{}.{number}", std::process::id()));
        let renamed = fs::write(&unfinished, entry).and_then(|()| fs::rename(&unfinished, self.path(key)));
        if renamed.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&unfinished);
        }
        renamed
    }

    /// If the folder exceeds the limit, deletes entries until an eighth of it is free, so that the next entries need no count of all files.
    /// The last entry, which may be larger than the rest, stays. Returns the remaining size.
    fn shrink(&self, last: &Path) -> u64 {
        let mut files = self.files();
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        if bytes <= self.limit {
            return bytes;
        }
        files.sort_by_key(|file| file.used);
        let wanted = self.limit - self.limit / 8;
        let now = SystemTime::now();
        for file in files {
            let is_written = || now.duration_since(file.used).is_ok_and(|age| age < WRITING);
            if bytes <= wanted || file.path == last || (!file.is_entry && is_written()) {
                continue;
            }
            // Another process may have deleted it.
            let _ = fs::remove_file(&file.path);
            bytes -= file.bytes;
        }
        bytes
    }

    fn path(&self, key: u128) -> PathBuf {
        self.folder.join(format!("{key:032x}"))
    }

    /// All files of the cache: entries, and unfinished ones. Other files in the folder are not touched.
    fn files(&self) -> Vec<CachedFile> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(|file| CachedFile::of(&file)).collect()
    }
}

/// A file of the cache.
struct CachedFile {
    path: PathBuf,
    /// On disk.
    bytes: u64,
    used: SystemTime,
    /// Whether it is complete; other files are being written, or were when their process ended.
    is_entry: bool,
}

impl CachedFile {
    fn of(file: &DirEntry) -> Option<CachedFile> {
        let name = file.file_name();
        let (key, rest) = name.to_str()?.split_at_checked(32)?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let unfinished = rest.strip_prefix('.').and_then(|rest| rest.split_once('.'));
        let is_unfinished = unfinished.is_some_and(|(process, number)| is_number(process) && is_number(number));
        let is_cached = key.bytes().all(|byte| byte.is_ascii_hexdigit()) && (rest.is_empty() || is_unfinished);
        let metadata = file.metadata().ok().filter(|metadata| is_cached && metadata.is_file())?;
        let (bytes, used) = (on_disk(metadata.len()), metadata.modified().ok()?);
        Some(CachedFile { path: file.path(), bytes, used, is_entry: rest.is_empty() })
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

/// Parses the limit in the environment variable.
fn limit(text: &str) -> Result<u64> {
    parse_bytes(text).map(|bytes| bytes as u64).ok_or_else(|| {
        let message = format!("{VARIABLE} is '{text}' and must be a number of bytes such as 500MiB or 10GiB, or 0");
        Error::new(ErrorKind::Argument, "cache", message)
    })
}

#[cfg(test)]
mod tests;
