//! The two forms of a graph in a file, as they are written. What the numbers mean is checked by those that build a graph of them.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::Number;

/// The most bytes of a file. A graph with the most steps, buffers and reads takes less.
const MOST_BYTES: u64 = 32 << 20;

/// The most steps of a graph, and the most buffers. A change of a schedule takes time in proportion to its steps, so that a search finds little
/// in larger graphs.
pub(super) const MOST_STEPS: usize = 20_000;
const MOST_BUFFERS: usize = 4 * MOST_STEPS;

/// The most operands of all steps together.
pub(super) const MOST_READS: usize = 1 << 20;

/// The most pairs of results in place of all steps together.
pub(super) const MOST_PAIRS: usize = MOST_BUFFERS;

/// A list of at most this many elements, of which no more are kept while it is read.
pub(super) struct List<T, const MOST: usize>(pub(super) Vec<T>);

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        List(Vec::new())
    }
}

/// Numbers of buffers.
type Numbers = List<Number, MOST_BUFFERS>;

/// Pairs of numbers.
type Pairs = List<(Number, Number), MOST_READS>;

/// A file: steps and buffers, or the nodes and edges of a graph in which each node has one result. Other keys are not read.
#[derive(serde::Deserialize)]
#[serde(expecting = "an object with `steps` and `buffers`, or with `n`, `cost`, `mem` and `edges`")]
pub(super) struct Written {
    pub(super) steps: Option<List<Step, MOST_STEPS>>,
    pub(super) buffers: Option<List<Buffer, MOST_BUFFERS>>,
    pub(super) n: Option<Number>,
    pub(super) cost: Option<List<Number, MOST_STEPS>>,
    pub(super) mem: Option<List<Number, MOST_STEPS>>,
    pub(super) edges: Option<Pairs>,
}

/// A step. A key that does not exist is an error, since a misspelled one would be missed.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a step, which is an object")]
pub(super) struct Step {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) reads: Numbers,
    #[serde(default)]
    pub(super) writes: Numbers,
    pub(super) cost: Number,
    pub(super) scratch: Option<Number>,
    #[serde(default)]
    pub(super) in_place: Pairs,
    #[serde(default)]
    pub(super) runs_once: bool,
}

/// A buffer.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a buffer, which is an object")]
pub(super) struct Buffer {
    pub(super) bytes: Number,
    #[serde(default)]
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    #[default]
    Temporary,
    Argument,
    Output,
    Constant,
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = List<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::custom(format_args!("a list with more than {MOST} elements")));
            }
            list.push(element);
        }
        // Many lists of a few hundred elements would take twice the memory.
        list.shrink_to_fit();
        Ok(List(list))
    }
}

/// The text of a file.
///
/// # Errors
/// If it cannot be read, is not a file, or is too large.
pub(crate) fn text(path: &Path) -> Result<Vec<u8>> {
    // A pipe or a device may have no end.
    ensure!(fs::metadata(path)?.is_file(), "it is not a file");
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    ensure!(text.len() as u64 <= MOST_BYTES, "it has more than {} MiB", MOST_BYTES >> 20);
    Ok(text)
}

/// Reads a graph.
///
/// # Errors
/// If it is not of either form; the message has the line and the column.
pub(super) fn read(text: &[u8]) -> Result<Written> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    // A list would be read as the values of the keys in their order.
    if first.is_some_and(|&byte| byte == b'[') {
        bail!("it is a list; an object with `steps` and `buffers`, or with `n`, `cost`, `mem` and `edges` is expected");
    }
    Ok(serde_json::from_slice(text)?)
}
