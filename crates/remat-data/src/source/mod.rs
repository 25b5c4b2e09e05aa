//! Text from files and folders, as a stream of documents.

mod files;
mod identity;
mod json;
#[cfg(feature = "parquet")]
mod parquet;
mod piece;
mod text;

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remat::files::{cannot, wrong};
use remat::ir::counted;
use remat::layer::location;
use remat::{Error, ErrorKind, Result};
use twox_hash::XxHash3_64;

use crate::guard::guarded;
use files::Below;
pub use piece::Piece;

/// The operation that errors name.
const READ: &str = "Source";

/// The default name of a table's column of text.
pub const TEXT_COLUMN: &str = "text";

/// Text in files: plain text, JSON lines, or Parquet with a column of text.
///
/// A file of any name can be a source. Its extension determines the format: `.jsonl`, `.ndjson` and `.json` are JSON, `.parquet` is
/// Parquet, all others are text. A further `.gz` or `.zst` means that the file is compressed.
///
/// In a folder, the files below it are read in the order of their paths, except hidden files, links, and the contents of `target`,
/// `node_modules` and runs of `remat train`. Text files (`.rs`, `.md`, `.toml`, `.txt`) are read; if there are none, or a column is named,
/// JSON lines and Parquet files are read instead.
///
/// A text file is one document; so is each line of JSON lines, each element of a JSON array, each row of Parquet.
///
/// ```
/// use remat_data::Source;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("poems.jsonl");
/// std::fs::write(&path, "{\"text\": \"roses\"}\n{\"text\": \"violets\"}\n")?;
/// let source = Source::open(&path, None)?;
/// let pieces: Vec<_> = source.pieces().collect::<remat::Result<_>>()?;
/// assert_eq!(pieces[1].bytes, b"violets");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    files: Vec<PathBuf>,
    column: String,
    notes: Vec<String>,
    /// The number of tables that are not read.
    tables: usize,
    is_folder: bool,
    /// The text, if it is not in files.
    text: Option<Arc<str>>,
}

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Text,
    /// JSON lines, or a JSON array.
    Json,
    Parquet,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        match crate::open::kind(path).as_str() {
            "jsonl" | "ndjson" | "json" => Kind::Json,
            "parquet" => Kind::Parquet,
            _ => Kind::Text,
        }
    }
}

impl Source {
    /// Opens the text of a file, or of the files in a folder. `column` is the column of JSON and Parquet; `None` means [`TEXT_COLUMN`].
    ///
    /// # Errors
    /// If there is no such file or folder, it cannot be read, or the folder has no file of text; if `column` is given for plain text.
    /// Damaged files are detected when they are read.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, column: Option<&str>) -> Result<Source> {
        let (loc, path) = (location(), path.as_ref());
        let source = Source::open_at(path, column);
        let nothing = || wrong(READ, path, files::nothing(column.is_some()));
        source.and_then(|source| source.ok_or_else(nothing)).map_err(|error| error.at(loc))
    }

    /// As [`Source::open`] without a column; `None` for a folder without text, if everything in it could be read.
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// assert!(remat_data::Source::find(folder.path())?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Source::open`], except for a folder without text.
    #[track_caller]
    pub fn find(path: impl AsRef<Path>) -> Result<Option<Source>> {
        let loc = location();
        Source::open_at(path.as_ref(), None).map_err(|error| error.at(loc))
    }

    /// The text at a path; `None` for a folder without text in which everything could be read.
    fn open_at(path: &Path, column: Option<&str>) -> Result<Option<Source>> {
        let is_folder = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("there is no file or folder `{}`", path.display());
                return Err(Error::new(ErrorKind::Io, READ, message));
            }
            data => {
                let data = data.map_err(|error| cannot(READ, "read", path, &error))?;
                if is_device(&data) {
                    return Err(wrong(READ, path, "is a device, and may have no end"));
                }
                data.is_dir()
            }
        };
        let Below { files, tables, notes } = if is_folder {
            files::below(path, column.is_some()).map_err(|error| cannot(READ, "read", path, &error))?
        } else {
            if column.is_some() && Kind::of(path) == Kind::Text {
                return Err(wrong(READ, path, "is read as text, which has no columns"));
            }
            Below { files: vec![path.to_path_buf()], tables: 0, notes: Vec::new() }
        };
        match notes.first() {
            _ if !files.is_empty() => {}
            None => return Ok(None),
            Some(note) => return Err(Error::new(ErrorKind::Io, READ, note.clone())),
        }
        let column = column.unwrap_or(TEXT_COLUMN).to_string();
        Ok(Some(Source { path: path.to_path_buf(), files, column, notes, tables, is_folder, text: None }))
    }

    /// A text in memory, as one document. The description stands for the path in messages to the user.
    ///
    /// ```
    /// let source = remat_data::Source::in_memory("a poem", "roses are red");
    /// assert_eq!((source.description(), source.size()?), ("a poem".into(), 13));
    /// assert_eq!(source.pieces().count(), 1);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn in_memory(description: impl Into<PathBuf>, text: impl Into<Arc<str>>) -> Source {
        Source {
            path: description.into(),
            files: Vec::new(),
            column: TEXT_COLUMN.to_string(),
            notes: Vec::new(),
            tables: 0,
            is_folder: false,
            text: Some(text.into()),
        }
    }

    /// The path that was opened; for a text in memory its description.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, in the order in which they are read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Messages for the user about files and folders that could not be read, and those of [`Source::with_note`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same text with another message for the user, which is passed on with its tokens.
    ///
    /// ```
    /// let source = remat_data::Source::in_memory("a poem", "roses are red").with_note("there is no other text");
    /// assert_eq!(source.notes(), ["there is no other text"]);
    /// ```
    pub fn with_note(mut self, note: impl Into<String>) -> Source {
        self.notes.push(note.into());
        self
    }

    /// The number of tables (JSON lines and Parquet) in the folder that are not read, since it also has text files and no column was named.
    pub fn tables_left_out(&self) -> usize {
        self.tables
    }

    /// The column that is read from tables.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// A description for the user: the path of a file, or `12 files of FOLDER`.
    pub fn description(&self) -> String {
        let path = self.path.display();
        if self.is_folder { format!("{} of {path}", counted(self.files.len(), "file")) } else { path.to_string() }
    }

    /// The total size of its files on the disk, or of a text in memory, in bytes.
    ///
    /// # Errors
    /// If a file no longer exists.
    pub fn size(&self) -> Result<u64> {
        if let Some(text) = &self.text {
            return Ok(text.len() as u64);
        }
        self.files.iter().map(|file| Ok(metadata(file)?.len())).sum()
    }

    /// Whether it has more bytes than this, on the disk or as text. Files that are compressed are read for this, as far as needed.
    ///
    /// ```
    /// let source = remat_data::Source::in_memory("a poem", "roses are red");
    /// assert_eq!((source.is_larger_than(12)?, source.is_larger_than(13)?), (true, false));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file no longer exists, or a compressed one cannot be read.
    #[track_caller]
    pub fn is_larger_than(&self, bytes: u64) -> Result<bool> {
        let loc = location();
        self.has_more_than(bytes).map_err(|error| error.at(loc))
    }

    fn has_more_than(&self, bytes: u64) -> Result<bool> {
        let is_larger = self.size()? > bytes;
        let may_grow = |file: &PathBuf| crate::open::is_compressed(file) || Kind::of(file) == Kind::Parquet;
        if is_larger || !self.files.iter().any(may_grow) {
            return Ok(is_larger);
        }
        let mut left = bytes;
        for piece in self.pieces() {
            match left.checked_sub(piece?.bytes.len() as u64) {
                Some(less) => left = less,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// A number that changes if a file is added, removed, renamed or written: it depends on names, sizes, times and samples of the content.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn fingerprint(&self) -> Result<u64> {
        let mut hasher = XxHash3_64::new();
        hasher.write(self.column.as_bytes());
        hasher.write(self.text.as_deref().unwrap_or_default().as_bytes());
        for file in &self.files {
            let name = file.strip_prefix(&self.path).unwrap_or(file);
            hasher.write(name.as_os_str().as_encoded_bytes());
            identity::write(file, &mut hasher).map_err(|error| cannot(READ, "read", file, &error))?;
        }
        Ok(hasher.finish())
    }

    /// The text, document by document, each in pieces of at most a mebibyte, so that memory does not depend on the size of files. It ends
    /// after an error.
    ///
    /// Documents without text (empty files, empty or null elements of a column) are skipped.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Piece>> + Send + use<> {
        let column = self.column.clone();
        let mut files = self.files.clone().into_iter();
        let in_memory = self.text.as_deref().map(|text| piece::cut(text).collect::<Vec<_>>());
        let in_memory = in_memory.map(|pieces| Box::new(pieces.into_iter().map(Ok)) as Pieces);
        let mut current = in_memory.map(|pieces| (PathBuf::new(), pieces));
        let mut is_over = false;
        std::iter::from_fn(move || {
            while !is_over {
                let next = current.as_mut().and_then(|(file, pieces)| guarded_next(file, pieces));
                if let Some(next) = next {
                    is_over = next.is_err();
                    return Some(next);
                }
                let file = files.next()?;
                match guarded(|| open(&file, &column)).unwrap_or_else(|panic| Err(failed(&file, &panic))) {
                    Ok(pieces) => current = Some((file, pieces)),
                    Err(error) => {
                        is_over = true;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }

    /// Whether its documents are elements of a column: many, and short compared with a file.
    pub(crate) fn has_rows(&self) -> bool {
        self.files.first().is_some_and(|file| Kind::of(file) != Kind::Text)
    }
}

/// The pieces of one file.
type Pieces = Box<dyn Iterator<Item = Result<Piece>> + Send>;

/// The pieces of a file.
fn open(path: &Path, column: &str) -> Result<Pieces> {
    let reader = || crate::open::reader(path).map_err(|error| cannot(READ, "read", path, &error));
    Ok(match Kind::of(path) {
        Kind::Text => text::pieces(path, reader()?),
        Kind::Json => json::pieces(path, column, reader()?),
        #[cfg(feature = "parquet")]
        Kind::Parquet => parquet::pieces(path, column)?,
        #[cfg(not(feature = "parquet"))]
        Kind::Parquet => {
            let message = "is Parquet, which this build does not read: build it with the feature `parquet`";
            return Err(wrong(READ, path, message));
        }
    })
}

/// Whether a path is a device, such as `/dev/zero`. A pipe ends when its writer does.
fn is_device(data: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        data.file_type().is_char_device() || data.file_type().is_block_device()
    }
    #[cfg(not(unix))]
    {
        let _ = data;
        false
    }
}

/// The next piece of a file, whose reader may panic at damage: after that it is not read further.
fn guarded_next(file: &Path, pieces: &mut Pieces) -> Option<Result<Piece>> {
    guarded(|| pieces.next()).unwrap_or_else(|panic| Some(Err(failed(file, &panic))))
}

/// The error of a file whose reader has panicked.
fn failed(file: &Path, panic: &str) -> Error {
    wrong(READ, file, format!("cannot be read, and is probably damaged: {panic}"))
}

fn metadata(file: &Path) -> Result<fs::Metadata> {
    fs::metadata(file).map_err(|error| cannot(READ, "read", file, &error))
}
