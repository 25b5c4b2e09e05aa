//! `state.json`: the content of a checkpoint besides tensors.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Mutex;

use remat::Result;
use remat::files::{cannot, wrong};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::open;

/// The name of the file.
pub(super) const FILE: &str = "state.json";

/// The version that this code writes, and the newest that it reads. Changes that older code cannot read increment it.
const FORMAT: u32 = 1;

/// The progress of a run, besides its model and the state of its optimizer: what it needs to resume with the same numbers.
///
/// ```
/// use remat_io::Progress;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// struct Config { width: usize, learning_rate: f64 }
///
/// let config = Config { width: 96, learning_rate: 3e-3 };
/// let progress = Progress { step: 100, seed: 0, data: (), config };
/// let text = serde_json::to_string(&progress)?;
/// assert_eq!(text, r#"{"step":100,"seed":0,"data":null,"config":{"width":96,"learning_rate":0.003}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress<D = (), C = ()> {
    /// The number of completed steps.
    pub step: u64,
    /// The seed of the run's random numbers. Keys derived from the seed and the step need no other state.
    pub seed: u64,
    /// The position of the run in its data; `()` if seed and step determine it.
    pub data: D,
    /// The configuration of the run, such as the sizes of the model.
    pub config: C,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The checksum of the fields below.
    crc32: u32,
    /// A [`Progress`], as the text that was written: another version of a library may write the same numbers differently.
    pub(super) progress: Box<RawValue>,
    /// The trees by name.
    pub(super) trees: BTreeMap<String, Sum>,
}

/// Open files that were checked: they stay as they are when their checkpoint is removed.
pub(super) type Files = BTreeMap<String, Mutex<fs::File>>;

/// The length of a file and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Sum {
    bytes: u64,
    crc32: u32,
}

impl Manifest {
    pub(super) fn new(progress: Box<RawValue>, trees: BTreeMap<String, Sum>) -> Manifest {
        let crc32 = checksum(&progress, &trees);
        Manifest { format: FORMAT, crc32, progress, trees }
    }

    /// Reads the file of a checkpoint.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or of a newer format.
    pub(super) fn read(operation: &str, folder: &Path) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let path = folder.join(FILE);
        let text = open::read(&path).map_err(|error| cannot(operation, "read", &path, &error))?;
        let damaged = |error: serde_json::Error| wrong(operation, &path, format!("is damaged: {error}"));
        let Version { format } = serde_json::from_slice(&text).map_err(damaged)?;
        if format > FORMAT {
            let message = format!("has the format {format} of a newer version; this one reads up to {FORMAT}");
            return Err(wrong(operation, &path, message));
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(damaged)?;
        if format != FORMAT || manifest.crc32 != checksum(&manifest.progress, &manifest.trees) {
            return Err(wrong(operation, &path, "is damaged: it is not what was written"));
        }
        Ok(manifest)
    }

    /// Reads the manifest of a checkpoint of this step, and checks that no other file is missing or truncated, without reading them.
    ///
    /// # Errors
    /// As [`Manifest::read`]; if it is of another step; if a file is missing or has another length.
    pub(super) fn glanced(operation: &str, folder: &Path, step: u64) -> Result<Manifest> {
        let manifest = Manifest::of_step(operation, folder, step)?;
        let glance = |(name, sum): (&String, &Sum)| sum.open(operation, &tree_file(folder, name)).map(drop);
        manifest.trees.iter().try_for_each(glance)?;
        Ok(manifest)
    }

    /// Reads the manifest of a checkpoint of this step, and reads all other files once to check them. Returns these by the names of trees.
    ///
    /// # Errors
    /// As [`Manifest::read`]; if it is of another step; as [`Manifest::check`].
    pub(super) fn verified(operation: &str, folder: &Path, step: u64) -> Result<(Manifest, Files)> {
        let manifest = Manifest::of_step(operation, folder, step)?;
        let files = manifest.check(operation, folder)?;
        Ok((manifest, files))
    }

    fn of_step(operation: &str, folder: &Path, step: u64) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Step {
            step: u64,
        }
        let manifest = Manifest::read(operation, folder)?;
        match serde_json::from_str(manifest.progress.get()) {
            Ok(Step { step: own }) if own == step => Ok(manifest),
            Ok(Step { step: own }) => Err(wrong(operation, folder, format!("is the checkpoint of step {own}"))),
            Err(error) => Err(wrong(operation, &folder.join(FILE), format!("is damaged: {error}"))),
        }
    }

    /// Checks the length and checksum of each file of a checkpoint, and returns them by the names of trees.
    ///
    /// # Errors
    /// If one differs, or cannot be read.
    pub(super) fn check(&self, operation: &str, folder: &Path) -> Result<Files> {
        let check = |(name, sum): (&String, &Sum)| {
            Ok((name.clone(), Mutex::new(sum.check(operation, &tree_file(folder, name))?)))
        };
        self.trees.iter().map(check).collect()
    }
}

/// The checksum of a progress and of the checksums of trees.
fn checksum(progress: &RawValue, trees: &BTreeMap<String, Sum>) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(progress.get().as_bytes());
    for (name, sum) in trees {
        // Neither JSON nor a name contains a zero byte.
        crc.update(&[0]);
        crc.update(name.as_bytes());
        crc.update(&[0]);
        crc.update(&sum.bytes.to_le_bytes());
        crc.update(&sum.crc32.to_le_bytes());
    }
    crc.finalize()
}

/// The path of the file of a tree.
pub(super) fn tree_file(folder: &Path, name: &str) -> std::path::PathBuf {
    folder.join(format!("{name}.safetensors"))
}

/// A stream that computes the checksum of what is written through it.
pub(super) struct Summing<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl Summing<'_> {
    pub(super) fn new(out: &mut dyn Write) -> Summing<'_> {
        Summing { out, bytes: 0, crc: crc32fast::Hasher::new() }
    }

    pub(super) fn sum(self) -> Sum {
        Sum { bytes: self.bytes, crc32: self.crc.finalize() }
    }
}

impl Write for Summing<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buffer)?;
        self.bytes += written as u64;
        self.crc.update(&buffer[..written]);
        Ok(written)
    }

    // After a partial write the rest also goes directly to the file, not into its buffer, so that an error is reported for the tensor being
    // written.
    fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        self.out.write_all(buffer)?;
        self.bytes += buffer.len() as u64;
        self.crc.update(buffer);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Sum {
    /// Opens a file and checks its length.
    ///
    /// # Errors
    /// If it has another length, or cannot be opened.
    fn open(self, operation: &str, path: &Path) -> Result<fs::File> {
        let failed = |error: &io::Error| cannot(operation, "read", path, error);
        let file = open::open(path).map_err(|error| failed(&error))?;
        let len = file.metadata().map_err(|error| failed(&error))?.len();
        if len == self.bytes {
            Ok(file)
        } else {
            Err(wrong(operation, path, format!("is damaged: it has {len} bytes and had {}", self.bytes)))
        }
    }

    /// Checks the length and checksum of a file, and returns it.
    ///
    /// # Errors
    /// If they differ, or it cannot be read.
    fn check(self, operation: &str, path: &Path) -> Result<fs::File> {
        let failed = |error: &io::Error| cannot(operation, "read", path, error);
        let mut file = self.open(operation, path)?;
        let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 18]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => crc.update(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        if crc.finalize() != self.crc32 {
            return Err(wrong(operation, path, "is damaged: its bytes are not those that were written"));
        }
        Ok(file)
    }
}
