//! Text as tokens, split into training data and held-out data.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io;
use std::path::Path;

use remat::Result;
use remat::files::{cannot, wrong};
use remat::ir::counted;
use remat::layer::location;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::cache::{INDEX, TokenCache};
use crate::failure::invalid;
use crate::source::Source;
use crate::stream::{Tokenized, tokenized};
use crate::tokenizer::Tokenizer;
use crate::tokens::{Header, ToFiles, ToMemory, Tokens, Writer};

/// The operation that errors name.
const CORPUS: &str = "Corpus";

/// One of this many documents is held out; of a text file, the last of this many parts.
const HELD_OUT: usize = 10;

/// The names of the two sequences in a folder of shards.
const TRAIN: &str = "train";
const TEST: &str = "held-out";

/// The tokens of a text: training tokens, and held-out tokens.
///
/// Of a text file the last tenth is held out, or the last tenth of every MiB if the file is larger; of JSON and Parquet, every tenth
/// document. If the tokenizer has a token that ends documents, it follows each document, and each part of a file.
///
/// ```
/// use remat_data::{Corpus, Source, Tokenizer};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("digits.txt"), "0123456789")?;
/// let source = Source::open(folder.path(), None)?;
/// let corpus = Corpus::in_memory(&source, &Tokenizer::bytes())?;
/// assert_eq!((corpus.train.len(), corpus.held_out.len(), corpus.bytes), (9, 1, 10));
/// assert_eq!(corpus.held_out.read(0, 1)?, [57]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The training tokens.
    pub train: Tokens,
    /// The held-out tokens.
    pub held_out: Tokens,
    /// The number of bytes of the text, training and held-out.
    pub bytes: u64,
    /// The number of documents.
    pub documents: u64,
    /// Messages for the user, such as files that could not be read.
    pub notes: Vec<String>,
}

/// Counts of a text, made while it is tokenized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    bytes: u64,
    documents: u64,
    /// Pieces with bytes that are not UTF-8, if the tokenizer only takes text.
    not_utf8: u64,
}

/// The description of a folder of shards.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    tokenizer: u64,
    vocabulary: u64,
    source: u64,
    /// The numbers of shards.
    train: usize,
    held_out: usize,
    counts: Counts,
    /// XXH3 of all of these: a damaged number of shards would leave tokens out.
    checksum: u64,
}

impl Index {
    /// The checksum of the other fields.
    fn sum(&self) -> u64 {
        let Index { tokenizer, vocabulary, source, train, held_out, counts, checksum: _ } = self;
        let Counts { bytes, documents, not_utf8 } = *counts;
        let numbers = [*tokenizer, *vocabulary, *source, *train as u64, *held_out as u64, bytes, documents, not_utf8];
        let mut hasher = XxHash3_64::new();
        numbers.iter().for_each(|number| hasher.write(&number.to_le_bytes()));
        hasher.finish()
    }
}

impl Corpus {
    /// Tokenizes a text in memory. A token takes two bytes, or four if the vocabulary has more than 65,536 tokens.
    ///
    /// # Errors
    /// If the text cannot be read, has no documents, or cannot be tokenized.
    #[track_caller]
    pub fn in_memory(source: &Source, tokenizer: &Tokenizer) -> Result<Corpus> {
        let loc = location();
        let new = || ToMemory::new(tokenizer.vocabulary());
        let (mut train, mut test) = (new(), new());
        let counts = tokenize(source, tokenizer, &mut train, &mut test).map_err(|error| error.at(loc))?;
        Ok(Corpus::new(source, train.into_tokens(), test.into_tokens(), counts))
    }

    /// Tokenizes a text into shards (files of tokens) in a folder inside of `cache`. Batches are read from these files, so that memory does
    /// not depend on the size of the text. A text is tokenized once, and again if one of its files has changed or a shard is damaged.
    ///
    /// ```
    /// use remat_data::{Corpus, Source, Tokenizer};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("digits.txt");
    /// std::fs::write(&path, "0123456789")?;
    /// let source = Source::open(&path, None)?;
    /// let cache = folder.path().join("tokens");
    /// for _ in 0..2 {
    ///     let corpus = Corpus::in_shards(&source, &Tokenizer::bytes(), &cache)?;
    ///     assert_eq!(corpus.train.len(), 9);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Corpus::in_memory`]; if the folder cannot be written; if the source is a text in memory ([`Source::in_memory`]).
    #[track_caller]
    pub fn in_shards(source: &Source, tokenizer: &Tokenizer, cache: impl AsRef<Path>) -> Result<Corpus> {
        let (loc, cache) = (location(), TokenCache::new(cache.as_ref()));
        Corpus::shards_in(source, tokenizer, &cache).map_err(|error| error.at(loc))
    }

    fn shards_in(source: &Source, tokenizer: &Tokenizer, cache: &TokenCache) -> Result<Corpus> {
        let (folder, fingerprint) = (cache.folder().join(name(source, tokenizer)?), source.fingerprint()?);
        let open = || open(&folder, tokenizer, fingerprint);
        let mut notes = Vec::new();
        let lock = cache.shared();
        if folder.join(INDEX).exists() {
            match open() {
                Ok((train, test, counts)) => return Ok(Corpus::new(source, train, test, counts)),
                Err(error) => notes.push(format!("the text is tokenized again: {}", error.message())),
            }
        }
        drop(lock);
        fs::create_dir_all(cache.folder())
            .map_err(|error| cannot(CORPUS, "make the folder", cache.folder(), &error))?;
        let failed = |error: &io::Error| cannot(CORPUS, "write", &folder, error);
        let written = cache.unfinished().map_err(|error| failed(&error))?;
        write(source, tokenizer, fingerprint, written.path())?;
        let _lock = cache.exclusive();
        // Another process may have written the same meanwhile, or without locks be replacing this one.
        let (train, test, counts) = match open() {
            Ok(opened) => opened,
            Err(_) => match (cache.replace(&folder, &written), open()) {
                (Err(error), Err(_)) => return Err(failed(&error)),
                (_, opened) => opened?,
            },
        };
        let mut corpus = Corpus::new(source, train, test, counts);
        corpus.notes.extend(notes);
        Ok(corpus)
    }

    fn new(source: &Source, train: Tokens, held_out: Tokens, counts: Counts) -> Corpus {
        let mut notes = source.notes().to_vec();
        if counts.not_utf8 > 0 {
            let pieces = counted(counts.not_utf8 as usize, "part");
            notes.push(format!("{pieces} of the text had bytes that are not UTF-8, which are read as U+FFFD"));
        }
        Corpus { train, held_out, bytes: counts.bytes, documents: counts.documents, notes }
    }

    /// The same tokens, of which at least `context + 1` are training tokens and as many are held out: enough for one sequence and the token
    /// after it. If the split has fewer of either, the last `context + 1` of all tokens are held out instead.
    ///
    /// # Errors
    /// If there are fewer than `2 * (context + 1)` tokens.
    #[track_caller]
    pub fn with_context(self, context: usize) -> Result<Corpus> {
        let loc = location();
        let least = (context as u64).saturating_add(1);
        let (size, needed) = (self.train.len() + self.held_out.len(), least.saturating_mul(2));
        if size < needed {
            let message = format!(
                "the text has {}, too few for a context of {context}: {needed} are needed, half of them to train and half to test",
                counted(size as usize, "token")
            );
            return Err(invalid(CORPUS, message).at(loc));
        }
        if self.held_out.len() >= least && self.train.len() >= least {
            return Ok(self);
        }
        let (train, held_out) = self.train.divided_again(&self.held_out, least);
        Ok(Corpus { train, held_out, ..self })
    }
}

/// The name of the folder for a text's shards: it depends on the path of the text, and on the tokenizer.
fn name(source: &Source, tokenizer: &Tokenizer) -> Result<String> {
    let path = source.path();
    // A text in memory has a description instead of a path.
    let full = path.canonicalize().map_err(|error| cannot(CORPUS, "read", path, &error))?;
    let mut hasher = XxHash3_64::new();
    hasher.write(full.as_os_str().as_encoded_bytes());
    hasher.write(&[0]);
    hasher.write(source.column().as_bytes());
    hasher.write(&tokenizer.fingerprint().to_le_bytes());
    Ok(format!("{:016x}", hasher.finish()))
}

/// The header of shards of this tokenizer and source.
fn header(tokenizer: &Tokenizer, source: u64) -> Header {
    let (tokenizer, vocabulary) = (tokenizer.fingerprint(), tokenizer.vocabulary() as u64);
    Header { vocabulary, tokenizer, source, ..Header::default() }
}

/// Opens a folder of shards.
///
/// # Errors
/// If it is damaged, or of another text or tokenizer.
fn open(folder: &Path, tokenizer: &Tokenizer, source: u64) -> Result<(Tokens, Tokens, Counts)> {
    let path = folder.join(INDEX);
    let json = fs::read(&path).map_err(|error| cannot(CORPUS, "read", &path, &error))?;
    let index: Index =
        serde_json::from_slice(&json).map_err(|error| wrong(CORPUS, &path, format!("is damaged: {error}")))?;
    let expected = header(tokenizer, source);
    let tokens = |name: &str, count: usize| {
        // The count may be absurd: the first file that is not there is the error.
        Tokens::open((0..count).map(|number| folder.join(ToFiles::file_name(name, number))), &expected)
    };
    if index.checksum != index.sum() {
        return Err(wrong(CORPUS, &path, "is damaged: its checksum is that of other numbers"));
    }
    if index.source != source {
        return Err(wrong(CORPUS, folder, "has the tokens of the text before it changed"));
    }
    Ok((tokens(TRAIN, index.train)?, tokens(TEST, index.held_out)?, index.counts))
}

/// Writes the shards of a text to a new folder.
///
/// # Errors
/// As [`Corpus::in_shards`].
fn write(source: &Source, tokenizer: &Tokenizer, fingerprint: u64, folder: &Path) -> Result<()> {
    let header = header(tokenizer, fingerprint);
    let [mut train, mut test] = [TRAIN, TEST].map(|name| ToFiles::new(folder, name, header));
    let counts = tokenize(source, tokenizer, &mut train, &mut test)?;
    let (train, held_out) = (train.finish()?, test.finish()?);
    let Header { tokenizer, vocabulary, source, .. } = header;
    let mut index = Index { tokenizer, vocabulary, source, train, held_out, counts, checksum: 0 };
    index.checksum = index.sum();
    let path = folder.join(INDEX);
    let write = || -> io::Result<()> {
        let file = File::create(&path)?;
        serde_json::to_writer_pretty(&file, &index)?;
        file.sync_all()
    };
    write().map_err(|error| cannot(CORPUS, "write", &path, &error))
}

/// Tokenizes a text, piece by piece, into training and held-out tokens.
///
/// # Errors
/// Those of the source, the tokenizer and the writers; if there are no documents.
fn tokenize(source: &Source, tokenizer: &Tokenizer, train: &mut impl Writer, test: &mut impl Writer) -> Result<Counts> {
    let mut counts = Counts::default();
    let (by_document, end) = (source.has_rows(), tokenizer.end_of_text());
    for tokenized in tokenized(source, tokenizer) {
        let Tokenized { piece, document, mut tokens } = tokenized?;
        counts.bytes += piece.bytes.len() as u64;
        counts.documents = document + 1;
        counts.not_utf8 += u64::from(tokenizer.needs_text() && std::str::from_utf8(&piece.bytes).is_err());
        if by_document {
            tokens.extend(end.filter(|_| piece.ends));
            let is_held_out = document % HELD_OUT as u64 == HELD_OUT as u64 - 1;
            if is_held_out {
                test.write(&tokens)?
            } else {
                train.write(&tokens)?
            }
            continue;
        }
        let held_out = tokens.split_off(tokens.len() - tokens.len() / HELD_OUT);
        tokens.extend(end);
        train.write(&tokens)?;
        if !held_out.is_empty() {
            test.write(&held_out)?;
            test.write(end.as_slice())?;
        }
    }
    if counts.documents == 0 {
        return Err(wrong(CORPUS, source.path(), "has no text"));
    }
    Ok(counts)
}
