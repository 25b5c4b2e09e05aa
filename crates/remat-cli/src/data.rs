//! The text that a model learns: found, read, divided into training and held-out text, cut into batches.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use remat::{DType, Tensor, Tree, random};

use crate::records::METRICS;

/// The kinds of files that are text to learn from.
const EXTENSIONS: [&str; 4] = ["rs", "md", "toml", "txt"];

/// Folders that hold what programs made, not what people wrote.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// The text to learn where there is no other.
const EMBEDDED: &str = include_str!("../README.md");

/// At most this many batches of held-out text are tested: a small part of the time of training.
const TESTED: usize = 16;

/// Text as bytes, and where it comes from.
pub(crate) struct Text {
    /// For the user.
    pub(crate) source: String,
    /// The file or folder; `None` for the text that is built in.
    pub(crate) path: Option<PathBuf>,
    /// The content of each file.
    pub(crate) files: Vec<Vec<u8>>,
    /// Notes for the user about files that were left out.
    pub(crate) notes: Vec<String>,
}

/// Sequences of bytes, and the byte that follows each: both `i32[batch, context]`.
#[derive(Clone, Tree)]
pub(crate) struct Batch {
    /// The bytes.
    pub(crate) tokens: Tensor,
    /// The bytes that follow.
    pub(crate) targets: Tensor,
}

/// The text at a path; without a path, that of the folder that the command runs in, or else the one that is built in.
///
/// # Errors
/// If the path does not exist or cannot be read, or there is no text.
pub(crate) fn load(path: Option<&Path>) -> Result<Text> {
    let Some(path) = path else {
        let root = checkout();
        let text = folder(&root)?;
        return Ok(match text.size() {
            0 => Text { source: "the built-in manual".into(), path: None, files: vec![EMBEDDED.into()], ..text },
            _ => text,
        });
    };
    let shown = path.display();
    let kind = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!("there is no file or folder `{shown}`"),
        _ => anyhow!(unreadable(path, &error)),
    })?;
    let text = match kind.is_dir() {
        true => folder(path)?,
        false => {
            let content = fs::read(path).map_err(|error| anyhow!(unreadable(path, &error)))?;
            Text { source: shown.to_string(), path: Some(path.into()), files: vec![content], notes: Vec::new() }
        }
    };
    match (text.size(), kind.is_dir()) {
        (0, true) => {
            let kinds = EXTENSIONS.map(|extension| format!(".{extension}")).join(", ");
            bail!("the folder `{shown}` has no text: no {kinds} file with anything in it")
        }
        (0, false) => bail!("the file `{shown}` is empty"),
        _ => Ok(text),
    }
}

impl Text {
    /// The number of bytes.
    pub(crate) fn size(&self) -> usize {
        self.files.iter().map(Vec::len).sum()
    }

    /// The text for training, and the last tenth of each file, which is held out. Where that is shorter than a sequence, the
    /// end of the text is held out.
    ///
    /// # Errors
    /// If a part is not longer than the context.
    pub(crate) fn divide(&self, context: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        // A sequence, and the byte that follows it.
        let least = context.saturating_add(1);
        let (size, needed) = (self.size(), least.saturating_mul(2));
        ensure!(
            size >= needed,
            "the text has {size} bytes, too few for a context of {context}: {needed} are needed, half of them to train and \
             half to test"
        );
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for file in &self.files {
            let (start, end) = file.split_at(file.len() - file.len() / 10);
            train.extend(start);
            test.extend(end);
        }
        if test.len() < least {
            train = self.files.concat();
            test = train.split_off(size - least);
        }
        Ok((train, test))
    }
}

/// The batches of a run: those of each step by seed and step alone, and those that test the model.
pub(crate) struct Batches {
    train: Vec<u8>,
    test: Vec<u8>,
    key: random::Key,
    batch: usize,
    context: usize,
}

impl Batches {
    /// The batches of a text, of `batch` sequences of `context` tokens each.
    ///
    /// # Errors
    /// As [`Text::divide`].
    pub(crate) fn new(text: &Text, key: random::Key, batch: usize, context: usize) -> Result<Batches> {
        let (train, test) = text.divide(context)?;
        Ok(Batches { train, test, key, batch, context })
    }

    /// The number of tokens that are held out.
    pub(crate) fn held_out(&self) -> usize {
        self.test.len()
    }

    /// The batch of a step, counted from 0.
    ///
    /// # Errors
    /// As [`random_batch`].
    pub(crate) fn batch(&self, step: u32) -> remat::Result<Batch> {
        random_batch(self.key.fold_in(step), &self.train, self.batch, self.context)
    }

    /// Batches of held-out text, from its start, at most [`TESTED`] of them.
    pub(crate) fn tests(&self) -> Vec<Batch> {
        batches(&self.test, self.batch, self.context).take(TESTED).collect()
    }

    /// The beginning of the held-out text, for a model to continue.
    pub(crate) fn prompt(&self) -> &[u8] {
        &self.test[..self.context.min(self.test.len())]
    }
}

/// A batch of sequences from random positions of the text.
///
/// # Errors
/// If the numbers cannot be drawn, which is a defect: `text` is longer than `context`.
pub(crate) fn random_batch(key: random::Key, text: &[u8], batch: usize, context: usize) -> remat::Result<Batch> {
    let positions = (text.len() - context) as i64;
    let starts = random::randint(key, [batch], DType::I64, 0..positions).to_vec::<i64>()?;
    Ok(batch_at(text, starts.into_iter().map(|start| start as usize), context))
}

/// Batches that cover the text from its start, but for less than a sequence at its end.
pub(crate) fn batches<T: Copy + Into<u32>>(text: &[T], batch: usize, context: usize) -> impl Iterator<Item = Batch> {
    let count = text.len().saturating_sub(1) / context;
    (0..count).step_by(batch).map(move |first| {
        let rows = first..count.min(first.saturating_add(batch));
        batch_at(text, rows.map(|row| row * context), context)
    })
}

/// The sequences that start at these tokens, which may be bytes, each followed by one at least.
fn batch_at<T: Copy + Into<u32>>(text: &[T], starts: impl Iterator<Item = usize>, context: usize) -> Batch {
    let (mut tokens, mut targets, mut rows) = (Vec::new(), Vec::new(), 0usize);
    for start in starts {
        tokens.extend(text[start..start + context].iter().map(|&token| token.into() as i32));
        targets.extend(text[start + 1..start + context + 1].iter().map(|&token| token.into() as i32));
        rows += 1;
    }
    let tensor = |tokens: Vec<i32>| Tensor::from_vec(tokens, [rows, context]);
    Batch { tokens: tensor(tokens), targets: tensor(targets) }
}

/// The root of the git checkout around the current folder, or that folder.
fn checkout() -> PathBuf {
    let current = std::env::current_dir().unwrap_or_else(|_| ".".into());
    let root = current.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf);
    root.unwrap_or(current)
}

/// The text of the files in a folder; it may be empty. What cannot be read below the folder is left out, with a note.
///
/// # Errors
/// If the folder itself cannot be read.
fn folder(root: &Path) -> Result<Text> {
    let mut text = Text { source: String::new(), path: Some(root.into()), files: Vec::new(), notes: Vec::new() };
    for path in files(root, &mut text.notes).map_err(|error| anyhow!(unreadable(root, &error)))? {
        match fs::read(&path) {
            Ok(content) => text.files.push(content),
            Err(error) => text.notes.push(unreadable(&path, &error)),
        }
    }
    let plural = if text.files.len() == 1 { "" } else { "s" };
    text.source = format!("{} file{plural} of {}", text.files.len(), root.display());
    Ok(text)
}

/// The text files below a folder, in the order of their paths. Hidden ones are skipped, and folders of runs; so are links, which may be loops.
/// A folder below it that cannot be read is skipped with a note.
///
/// # Errors
/// If the folder itself cannot be read.
fn files(folder: &Path, notes: &mut Vec<String>) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() && !SKIPPED.contains(&&*name) && !path.join(METRICS).exists() {
            match files(&path, notes) {
                Ok(files) => found.extend(files),
                Err(error) => notes.push(unreadable(&path, &error)),
            }
        } else if kind.is_file() && path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read `{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(files: &[&[u8]]) -> Text {
        Text {
            source: String::new(),
            path: None,
            files: files.iter().map(|file| file.to_vec()).collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_last_tenth_of_each_file_is_held_out() {
        let (first, second): (Vec<u8>, Vec<u8>) = ((0..100).collect(), (100..150).collect());
        let (train, test) = text(&[&first, &second]).divide(4).unwrap();
        assert_eq!(train, (0..90).chain(100..145).collect::<Vec<u8>>());
        assert_eq!(test, (90..100).chain(145..150).collect::<Vec<u8>>());
    }

    #[test]
    fn no_less_than_a_sequence_is_held_out() {
        let bytes: Vec<u8> = (0..100).collect();
        let both = |context| {
            let divided = text(&[&bytes]).divide(context).map_err(|error| error.to_string());
            divided.map(|(train, test)| (train.len(), test))
        };
        assert_eq!(both(9), Ok((90, (90..100).collect())));
        assert_eq!(both(20), Ok((79, (79..100).collect())));
        assert_eq!(both(49), Ok((50, (50..100).collect())));
        let few = "the text has 100 bytes, too few for a context of 50: 102 are needed, half of them to train and half to \
                   test";
        assert_eq!(both(50), Err(few.into()));
        assert!(both(usize::MAX).is_err());
    }

    #[test]
    fn batches_hold_each_byte_and_the_next() {
        let cut: Vec<Batch> = batches(b"abcdefgh", 2, 3).collect();
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].tokens.to_vec::<i32>().unwrap(), b"abcdef".map(i32::from));
        assert_eq!(cut[0].targets.to_vec::<i32>().unwrap(), b"bcdefg".map(i32::from));
        assert_eq!(batches(b"abcdefgh", 1, 2).count(), 3);
        assert_eq!(batches(b"abcdefgh", usize::MAX, 7).count(), 1);
        assert_eq!(batches(b"abcdefgh", 1, 8).count() + batches(b"", 1, 8).count(), 0);
        // With one byte more than the context there is room for one sequence.
        let drawn = random_batch(random::key(0), b"abcd", 2, 3).unwrap();
        assert_eq!(drawn.targets.to_vec::<i32>().unwrap(), b"bcdbcd".map(i32::from));
    }

    #[test]
    fn text_files_are_found_in_order_without_hidden_and_built_ones() {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("b.md", "2"),
            ("a/z.rs", "1"),
            ("a/image.png", "x"),
            ("target/x.rs", "x"),
            (".git/x.txt", "x"),
            ("run/config.toml", "x"),
            ("run/metrics.jsonl", ""),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let loaded = load(Some(root.path())).unwrap();
        assert_eq!(loaded.files, [b"1", b"2"]);
        assert_eq!(loaded.source, format!("2 files of {}", root.path().display()));
    }
}
