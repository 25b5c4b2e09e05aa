//! The training text: it is found, read, divided into training and held-out text, and cut into batches.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use remat::ir::counted;
use remat::{DType, random};
use remat_data::{Corpus, Prefetch, Source, Tokenizer, Tokens};
use remat_xla::ExecutableCache;

pub(crate) use remat_data::Batch;

/// The text to learn if there is no other.
const EMBEDDED: &str = include_str!("../README.md");

/// The held-out text that is evaluated has at most as many sequences as this many steps, so that it takes a small part of the training
/// time.
const TESTED: usize = 16;

/// Tokens of larger texts are stored in files. Tokens other than bytes take time to compute, and are also stored for smaller texts.
const IN_MEMORY: u64 = 256 << 20;
const MADE_EACH_TIME: u64 = 4 << 20;

/// The number of batches that are prepared ahead of their steps.
const AHEAD: usize = 1;

/// The folder of tokens in the user's cache.
const TOKENS: &str = "tokens";

/// A text as tokens, and its origin.
pub(crate) struct Text {
    /// The text in words, for the user.
    pub(crate) source: String,
    /// The file or folder; `None` for the built-in text.
    pub(crate) path: Option<PathBuf>,
    /// Notes for the user about skipped files.
    pub(crate) notes: Vec<String>,
    corpus: Corpus,
}

/// The text at a path, in this column if it is a table. Without a path it is that of the current folder or, if there is none, the built-in
/// text, with a note for the user.
///
/// # Errors
/// If the path does not exist or cannot be read, or there is no text; if the folder cannot be read.
pub(crate) fn open(path: Option<&Path>, column: Option<&str>) -> Result<Source> {
    match (path, column) {
        (Some(path), _) => {
            let source = Source::open(path, column).map_err(plain)?;
            Ok(match source.tables_left_out() {
                0 => source,
                count => {
                    let (tables, shown) = (counted(count, "file"), path.display());
                    let are = if count == 1 { "is" } else { "are" };
                    source.with_note(format!("{tables} of JSON lines or Parquet in `{shown}` {are} not read, since there is text beside; --column NAME reads such files in place of the text"))
                }
            })
        }
        (None, Some(_)) => Source::open(checkout()?, column).map_err(plain),
        (None, None) => {
            let folder = checkout()?;
            let built_in = || {
                let shown = folder.display();
                Source::in_memory("the built-in manual", EMBEDDED)
                    .with_note(format!("THERE IS NO TEXT in `{shown}`: this is the manual of remat, a few kilobytes; --text PATH names another text"))
            };
            Ok(Source::find(&folder).map_err(plain)?.unwrap_or_else(built_in))
        }
    }
}

/// As [`open`] for a resumed run, whose user knows its text.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_again(path: Option<&Path>, column: Option<&str>) -> Result<Source> {
    path.map_or_else(|| open(None, column), |path| Source::open(path, column).map_err(plain))
}

/// Divides a text into training text and held-out text.
///
/// # Errors
/// If there is no text, or it cannot be read or tokenized.
pub(crate) fn load(from: &Source, tokenizer: &Tokenizer) -> Result<Text> {
    let most = if tokenizer.fingerprint() == Tokenizer::bytes().fingerprint() { IN_MEMORY } else { MADE_EACH_TIME };
    let corpus = if from.is_larger_than(most).map_err(plain)? {
        let folder = token_folder()?
            .context("there is no folder for the tokens of this text: neither HOME nor XDG_CACHE_HOME is set")?;
        Corpus::in_shards(from, tokenizer, folder)
    } else {
        Corpus::in_memory(from, tokenizer)
    };
    let corpus = corpus.map_err(plain)?;
    let path = (!from.files().is_empty()).then(|| from.path().to_path_buf());
    Ok(Text { source: from.description(), path, notes: corpus.notes.clone(), corpus })
}

/// The folder that stores tokens of large texts; `None` if neither `HOME` nor `XDG_CACHE_HOME` is set.
///
/// # Errors
/// If `REMAT_CACHE_SIZE` is not a size.
pub(crate) fn token_folder() -> Result<Option<PathBuf>> {
    let programs = ExecutableCache::of_user()?;
    Ok(programs.and_then(|programs| Some(programs.folder().parent()?.join(TOKENS))))
}

/// An error of a text without the operation, which is meaningless to the user of a command.
pub(crate) fn plain(error: remat::Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}

impl Text {
    /// The number of bytes.
    pub(crate) fn size(&self) -> usize {
        self.corpus.bytes as usize
    }

    /// The number of tokens.
    pub(crate) fn tokens(&self) -> usize {
        (self.corpus.train.len() + self.corpus.held_out.len()) as usize
    }

    /// A number that differs between texts.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.corpus.train.fingerprint() ^ self.corpus.held_out.fingerprint().rotate_left(1)
    }
}

/// The batches of a run: those of each step, which depend only on seed and step, and those for evaluation.
pub(crate) struct Batches {
    train: remat_data::Batches,
    tests: Vec<Batch>,
    held_out: usize,
    prompt: Vec<u32>,
}

impl Batches {
    /// The batches of a text: `sequences` for each step, which may be trained on in parts, and `tested` for evaluation, which is as many as
    /// memory allows; a sequence has `context` tokens.
    ///
    /// # Errors
    /// If the training or the held-out text is not longer than the context, or can no longer be read.
    pub(crate) fn new(
        text: &Text,
        key: random::Key,
        sequences: usize,
        tested: usize,
        context: usize,
    ) -> Result<Batches> {
        let corpus = text.corpus.clone().with_context(context).map_err(plain)?;
        let seed = random::bits(key, (), DType::U64).item::<u64>()?;
        let of = |tokens: &Tokens, rows: usize| remat_data::Batches::new(tokens.clone(), [rows, context], seed);
        let count = TESTED * sequences.div_ceil(tested);
        let tests = of(&corpus.held_out, tested)?.in_order().take(count).collect::<remat::Result<_>>()?;
        let held_out = corpus.held_out.len() as usize;
        let prompt = corpus.held_out.read(0, context.min(held_out))?;
        let prompt = prompt.into_iter().map(|token| token as u32).collect();
        Ok(Batches { train: of(&corpus.train, sequences)?, tests, held_out, prompt })
    }

    /// The number of held-out tokens.
    pub(crate) fn held_out(&self) -> usize {
        self.held_out
    }

    /// The batches of the steps from `first` on, counted from 0, prepared while earlier steps run. Each fails if the file of the tokens can
    /// no longer be read.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn ahead(&self, first: u32) -> remat::Result<Prefetch<Batch>> {
        let batches = self.train.clone();
        Prefetch::new(first.into(), AHEAD, move |step| batches.get(step))
    }

    /// Batches of held-out text, from its start: at most the sequences of [`TESTED`] steps.
    pub(crate) fn tests(&self) -> Vec<Batch> {
        self.tests.clone()
    }

    /// The beginning of the held-out text, for a model to continue.
    pub(crate) fn prompt(&self) -> &[u32] {
        &self.prompt
    }
}

/// A batch of a text that is in memory.
///
/// # Errors
/// If the text is not longer than the context.
#[cfg(test)]
pub(crate) fn random_batch(key: random::Key, text: &[u8], batch: usize, context: usize) -> remat::Result<Batch> {
    let tokens: Vec<u32> = text.iter().copied().map(u32::from).collect();
    let seed = random::bits(key, (), DType::U64).item::<u64>()?;
    remat_data::Batches::new(Tokens::new(&tokens, 256)?, [batch, context], seed)?.get(0)
}

/// The root of the git checkout that contains the current folder, or else the current folder.
///
/// # Errors
/// If the current folder no longer exists.
fn checkout() -> Result<PathBuf> {
    let current = std::env::current_dir().context("cannot find the current folder")?;
    let root = current.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf);
    Ok(root.unwrap_or(current))
}
