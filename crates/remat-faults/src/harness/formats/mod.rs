//! The formats that remat reads: how a valid file of each is made, how it is read, and what may come of a damaged one.

mod commands;
mod data;
mod images;
mod tensors;
mod texts;

use std::path::Path;

use anyhow::Result;

use crate::harness::work::Work;
pub(crate) use data::tokens;

/// The folder of a small tokenizer.
pub(crate) const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../remat-data/tests/data/gpt2");

/// What may come of damage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The format has checksums: an error, or the value of the undamaged file.
    Noticed,
    /// It has none: an error, or a value that the changed file may have.
    Formed,
}

/// Where an error says that the damage is.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In a file of the folder that was damaged.
    File,
    /// At a line of the text.
    Line,
    /// In something of this name.
    Name(&'static str),
}

/// What came of reading a damaged file.
pub(crate) enum Read {
    /// A value, as a text that differs where the value does.
    Value(String),
    /// An error that was reported.
    Error(String),
    /// Neither: a panic, an abort, a hang.
    Broken(String),
}

/// A format, and how it is read.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    pub(crate) rule: Rule,
    pub(crate) place: Place,
    /// Whether what reads it also writes to its folder.
    pub(crate) writes: bool,
    /// Writes valid files to an empty folder.
    pub(crate) make: fn(&Work, &Path) -> Result<()>,
    /// Reads the files of the folder.
    pub(crate) read: fn(&Work, &Path) -> Read,
}

impl Rule {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Rule::Noticed => "checksums",
            Rule::Formed => "no checksums",
        }
    }
}

impl Place {
    /// Whether a message says where the error is.
    pub(crate) fn is_in(self, message: &str, folder: &Path) -> bool {
        match self {
            Place::File => folder.to_str().is_some_and(|folder| message.contains(folder)),
            Place::Line => message.contains("line "),
            Place::Name(name) => message.contains(name),
        }
    }
}

impl Read {
    fn of(result: remat::Result<String>) -> Read {
        match result {
            Ok(value) => Read::Value(value),
            Err(error) => Read::Error(error.message().into()),
        }
    }
}

/// All formats that this build reads.
pub(crate) fn all() -> Vec<Format> {
    [tensors::formats(), data::formats(), images::formats(), texts::formats(), commands::formats()].concat()
}

/// The hash of some bytes.
fn hash(bytes: &[u8]) -> String {
    format!("{:016x}", twox_hash::XxHash3_64::oneshot(bytes))
}
