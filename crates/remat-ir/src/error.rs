//! The error type: what failed, why, and where the user wrote it.

use std::fmt;
use std::sync::Arc;

use crate::Loc;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of mistake an error reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes, ranks or sizes that do not fit.
    Shape,
    /// Dtypes that do not fit.
    DType,
    /// An axis or an index out of range, or given twice.
    Axis,
    /// A malformed argument: a parameter, a notation, a number of operands.
    Argument,
    /// The value of a traced tensor was requested.
    Traced,
    /// A traced tensor was used after its trace had ended.
    Escaped,
    /// A checkpoint policy that cannot be applied.
    Policy,
    /// Something that cannot be differentiated or transposed.
    Differentiation,
    /// Trees whose structures differ.
    Structure,
    /// Text or bytes that are not a program.
    Parse,
    /// A well-formed program of another language with an operation or a type that has no counterpart here.
    Unsupported,
    /// A program that breaks a rule.
    Check,
    /// A program that needs more memory than it may have, or than there is.
    Memory,
    /// A value that was asked not to occur: NaN, an index out of range.
    Value,
    /// A file or stream that cannot be read or written.
    Io,
    /// Processes that do not find each other, or a process that ended while others need it.
    Cluster,
    /// A defect of remat itself.
    Internal,
}

/// An error: the operation, what is wrong with which types, and the user's own line.
///
/// Cloning shares it, and it is never nested in another error. `Display` prints the message and, if it is known, the location on its own
/// line:
///
/// ```
/// use remat_ir::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Shape, "add", "shapes f32[2] and f32[3] differ");
/// assert_eq!(error.to_string(), "add: shapes f32[2] and f32[3] differ");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: String,
    message: String,
    loc: Option<Loc>,
}

impl Error {
    /// An error of `operation` without a location yet.
    pub fn new(kind: ErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, operation: operation.into(), message: message.into(), loc: None }))
    }

    /// The same error at this location, unless it already has a location.
    pub fn at(self, loc: Loc) -> Error {
        if self.0.loc.is_some() || loc.site.is_none() {
            return self;
        }
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.loc = Some(loc);
        Error(Arc::new(inner))
    }

    /// The kind of mistake.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed, as programs print it.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The message without operation and location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where the user wrote the operation.
    pub fn loc(&self) -> Option<Loc> {
        self.0.loc
    }
}

/// A number and a noun for a message: `1 leaf`, `2 leaves`.
///
/// ```
/// assert_eq!(remat_ir::counted(1, "element"), "1 element");
/// assert_eq!(remat_ir::counted(0, "leaf"), "0 leaves");
/// ```
pub fn counted(n: usize, noun: &str) -> String {
    let (stem, ending) = match noun.strip_suffix('f') {
        _ if n == 1 => (noun, ""),
        Some(stem) => (stem, "ves"),
        None => (noun, "s"),
    };
    format!("{n} {stem}{ending}")
}

/// Words of this many characters are not compared with others.
const LONGEST: usize = 1000;

/// The end of a message about an unknown word: `; did you mean `dots`?` if a known word is similar, else the text of `otherwise`. Words are
/// similar if at most one edit apart, plus one for every three characters; case does not matter.
///
/// ```
/// use remat_ir::did_you_mean;
/// assert_eq!(did_you_mean("dost", ["dots", "names"], String::new), "; did you mean `dots`?");
/// assert_eq!(did_you_mean("magic", ["dots"], || "; it is dots".into()), "; it is dots");
/// // Very long words, which may come from files, are not compared.
/// let (word, other) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
/// assert_eq!(did_you_mean(&word, [other.as_str(), "dots"], String::new), "");
/// ```
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    match nearest(word, &mut known.into_iter()) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => otherwise(),
    }
}

/// The word that is nearest to another one, if it is near.
fn nearest<'a>(word: &str, known: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    let (length, word) = (word.chars().count(), word.to_lowercase());
    let most = 1 + length / 3;
    // The distance takes time and memory by both lengths, which files of strangers choose, and is no less than their difference.
    let near = known.filter(|name| length < LONGEST && name.chars().count().abs_diff(length) <= most);
    let distance = |name: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &word);
    let (distance, name) = near.map(|name| (distance(name), name)).min()?;
    (distance <= most).then_some(name)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)?;
        match self.0.loc {
            Some(loc) => write!(f, "\n  at {loc}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
