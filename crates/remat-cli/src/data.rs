//! The text that a model learns: found, read, divided into training and held-out text, cut into batches.

use std::fs;
use std::path::{Path, PathBuf};

use remat::{DType, Tensor, Tree, random};

use crate::Result;

/// The kinds of files that are text to learn from.
const EXTENSIONS: [&str; 4] = ["rs", "md", "toml", "txt"];

/// Folders that hold what programs made, not what people wrote.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// What there is to learn where no text is at hand.
const EMBEDDED: &str = include_str!("../README.md");

/// Text as bytes, and where it comes from.
pub(crate) struct Text {
    /// For the user.
    pub(crate) source: String,
    /// The content of each file.
    pub(crate) files: Vec<Vec<u8>>,
}

/// Sequences of bytes, and for each place the byte that follows: both `i32[batch, context]`.
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
            0 => Text { source: "the built-in manual".into(), files: vec![EMBEDDED.into()] },
            _ => text,
        });
    };
    let shown = path.display();
    let kind = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file or folder `{shown}`"),
        _ => unreadable(path, &error),
    })?;
    let text = match kind.is_dir() {
        true => folder(path)?,
        false => Text { source: shown.to_string(), files: vec![read(path)?] },
    };
    match (text.size(), kind.is_dir()) {
        (0, true) => {
            let kinds = EXTENSIONS.map(|extension| format!(".{extension}")).join(", ");
            Err(format!("the folder `{shown}` has no text: no {kinds} file with anything in it"))
        }
        (0, false) => Err(format!("the file `{shown}` is empty")),
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
        // A sequence, and the byte that follows its last place.
        let least = context.saturating_add(1);
        let (size, needed) = (self.size(), least.saturating_mul(2));
        if size < needed {
            return Err(format!(
                "the text has {size} bytes, too few for a context of {context}: {needed} are needed, half of them to \
                 train and half to test"
            ));
        }
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

/// A batch of sequences at random places.
///
/// # Errors
/// If the numbers cannot be drawn, which is a defect: `text` is longer than `context`.
pub(crate) fn random_batch(key: random::Key, text: &[u8], batch: usize, context: usize) -> remat::Result<Batch> {
    let places = (text.len() - context) as i64;
    let starts = random::randint(key, [batch], DType::I64, 0..places).to_vec::<i64>()?;
    Ok(batch_at(text, starts.into_iter().map(|start| start as usize), context))
}

/// Batches that cover the text from its start, at most `count`.
pub(crate) fn batches(text: &[u8], batch: usize, context: usize, count: usize) -> Vec<Batch> {
    let starts: Vec<usize> = (0..text.len().saturating_sub(context)).step_by(context).take(batch * count).collect();
    starts.chunks(batch).map(|starts| batch_at(text, starts.iter().copied(), context)).collect()
}

/// The sequences at these places, each followed by one byte at least.
fn batch_at(text: &[u8], starts: impl Iterator<Item = usize>, context: usize) -> Batch {
    let (mut tokens, mut targets, mut rows) = (Vec::new(), Vec::new(), 0usize);
    for start in starts {
        tokens.extend(text[start..start + context].iter().map(|&byte| i32::from(byte)));
        targets.extend(text[start + 1..start + context + 1].iter().map(|&byte| i32::from(byte)));
        rows += 1;
    }
    let tensor = |bytes: Vec<i32>| Tensor::from_vec(bytes, [rows, context]);
    Batch { tokens: tensor(tokens), targets: tensor(targets) }
}

/// The root of the git checkout around the current folder, or that folder.
fn checkout() -> PathBuf {
    let current = std::env::current_dir().unwrap_or_else(|_| ".".into());
    let root = current.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf);
    root.unwrap_or(current)
}

/// The text of the files in a folder; it may be empty.
///
/// # Errors
/// If the folder or a file cannot be read.
fn folder(root: &Path) -> Result<Text> {
    let paths = files(root)?;
    let plural = if paths.len() == 1 { "" } else { "s" };
    let source = format!("{} file{plural} of {}", paths.len(), root.display());
    Ok(Text { source, files: paths.iter().map(|path| read(path)).collect::<Result<_>>()? })
}

/// The text files below a folder, in the order of their paths. Hidden ones are skipped; so are links, which may be loops.
///
/// # Errors
/// If the folder cannot be read. A folder below it that cannot be read is skipped.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() && !SKIPPED.contains(&&*name) {
            found.extend(files(&path).unwrap_or_default());
        } else if kind.is_file() && path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The bytes of a file.
///
/// # Errors
/// If it cannot be read.
fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read `{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(files: &[&[u8]]) -> Text {
        Text { source: String::new(), files: files.iter().map(|file| file.to_vec()).collect() }
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
        let both = |context| text(&[&bytes]).divide(context).map(|(train, test)| (train.len(), test));
        assert_eq!(both(9), Ok((90, (90..100).collect())));
        assert_eq!(both(20), Ok((79, (79..100).collect())));
        assert_eq!(both(49), Ok((50, (50..100).collect())));
        assert_eq!(
            both(50),
            Err("the text has 100 bytes, too few for a context of 50: 102 are needed, half of them to train and half to \
                 test"
                .into())
        );
        assert!(both(usize::MAX).is_err());
    }

    #[test]
    fn batches_hold_each_byte_and_the_next() {
        let cut = batches(b"abcdefgh", 2, 3, 9);
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].tokens.to_vec::<i32>().unwrap(), b"abcdef".map(i32::from));
        assert_eq!(cut[0].targets.to_vec::<i32>().unwrap(), b"bcdefg".map(i32::from));
        assert_eq!(batches(b"abcdefgh", 1, 2, 2).len(), 2);
        // With one byte more than the context there is one place for a sequence.
        let drawn = random_batch(random::key(0), b"abcd", 2, 3).unwrap();
        assert_eq!(drawn.targets.to_vec::<i32>().unwrap(), b"bcdbcd".map(i32::from));
    }

    #[test]
    fn text_files_are_found_in_order_without_hidden_and_built_ones() {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in
            [("b.md", "2"), ("a/z.rs", "1"), ("a/image.png", "x"), ("target/x.rs", "x"), (".git/x.txt", "x")]
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let loaded = load(Some(root.path())).unwrap();
        assert_eq!(loaded.files, [b"1", b"2"]);
        assert_eq!(loaded.source, format!("2 files of {}", root.path().display()));
    }
}
