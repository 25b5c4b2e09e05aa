//! The text form of parameters: a small data model that the printer, the parser and the operations share.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::{DType, Error, ErrorKind, Jaxpr, Literal, Policy, Result, Shape};

/// The parameters of an operation by name, in printing order.
pub type Params = Vec<(&'static str, Param)>;

/// One parameter's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Param {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A bare word, such as a mode, or a quoted string if it is not an identifier.
    Word(Arc<str>),
    /// A dtype by its long name.
    DType(DType),
    /// A scalar constant.
    Literal(Literal),
    /// `(a, b)`; one element prints `(a,)`.
    Tuple(Vec<Param>),
    /// `[a, b]`.
    List(Vec<Param>),
    /// A program. The parameter's name ends in `jaxpr`, or is `branches` for a tuple of programs. By this the parser distinguishes the name
    /// of a program from a word.
    Jaxpr(Arc<Jaxpr>),
    /// A checkpoint policy. The parameter's name is `policy`.
    Policy(Arc<Policy>),
}

impl Param {
    /// A tuple of integers.
    pub fn ints(values: impl IntoIterator<Item = usize>) -> Param {
        Param::Tuple(values.into_iter().map(|v| Param::Int(v as i64)).collect())
    }

    /// A tuple of signed integers.
    pub fn signed(values: impl IntoIterator<Item = i64>) -> Param {
        Param::Tuple(values.into_iter().map(Param::Int).collect())
    }

    /// The sizes of a tuple or list of sizes.
    pub fn as_sizes(&self) -> Option<Shape> {
        let (Param::Tuple(items) | Param::List(items)) = self else { return None };
        items.iter().map(|i| if let Param::Int(i) = i { usize::try_from(*i).ok() } else { None }).collect()
    }

    /// A bare word.
    pub fn word(word: &str) -> Param {
        Param::Word(word.into())
    }
}

/// The parameters of one equation as read from text, which are taken out by name.
///
/// Each getter fails if the parameter is missing or of another kind, with a message that names the operation and the parameter.
/// [`ParamMap::finish`] fails if a parameter is left.
#[derive(Debug)]
pub struct ParamMap<'a> {
    operation: &'a str,
    params: RefCell<Vec<(Arc<str>, Param)>>,
}

impl<'a> ParamMap<'a> {
    /// The parameters of an equation of this operation.
    pub fn new(operation: &'a str, params: Vec<(Arc<str>, Param)>) -> ParamMap<'a> {
        ParamMap { operation, params: RefCell::new(params) }
    }

    /// An error of kind [`ErrorKind::Parse`] about the parameter `name`.
    pub fn error(&self, name: &str, message: &str) -> Error {
        Error::new(ErrorKind::Parse, self.operation, format!("parameter `{name}` {message}"))
    }

    /// Whether there is a parameter of this name that was not taken.
    pub fn has(&self, name: &str) -> bool {
        self.params.borrow().iter().any(|(n, _)| &**n == name)
    }

    /// Takes any parameter.
    pub fn take(&self, name: &str) -> Result<Param> {
        let mut params = self.params.borrow_mut();
        match params.iter().position(|(n, _)| &**n == name) {
            Some(i) => Ok(params.remove(i).1),
            None => Err(self.error(name, "is missing")),
        }
    }

    /// Takes an integer.
    pub fn int(&self, name: &str) -> Result<i64> {
        match self.take(name)? {
            Param::Int(i) => Ok(i),
            _ => Err(self.error(name, "is not an integer")),
        }
    }

    /// Takes a size.
    pub fn size(&self, name: &str) -> Result<usize> {
        usize::try_from(self.int(name)?).map_err(|_| self.error(name, "is negative"))
    }

    /// Takes a bool.
    pub fn bool(&self, name: &str) -> Result<bool> {
        match self.take(name)? {
            Param::Bool(b) => Ok(b),
            _ => Err(self.error(name, "is neither True nor False")),
        }
    }

    /// Takes a word.
    pub fn word(&self, name: &str) -> Result<Arc<str>> {
        match self.take(name)? {
            Param::Word(w) => Ok(w),
            _ => Err(self.error(name, "is not a word")),
        }
    }

    /// Takes a word, if it is there.
    pub fn optional_word(&self, name: &str) -> Result<Option<Arc<str>>> {
        let is_there = self.params.borrow().iter().any(|(n, _)| &**n == name);
        is_there.then(|| self.word(name)).transpose()
    }

    /// Takes a dtype.
    pub fn dtype(&self, name: &str) -> Result<DType> {
        match self.take(name)? {
            Param::DType(d) => Ok(d),
            _ => Err(self.error(name, "is not a dtype")),
        }
    }

    /// Takes a literal.
    pub fn literal(&self, name: &str) -> Result<Literal> {
        match self.take(name)? {
            Param::Literal(l) => Ok(l),
            _ => Err(self.error(name, "is not a literal")),
        }
    }

    /// Takes a tuple or list of sizes.
    pub fn sizes(&self, name: &str) -> Result<Shape> {
        let param = self.take(name)?;
        param.as_sizes().ok_or_else(|| self.error(name, "is not a tuple of sizes"))
    }

    /// Takes a program.
    pub fn jaxpr(&self, name: &str) -> Result<Arc<Jaxpr>> {
        match self.take(name)? {
            Param::Jaxpr(j) => Ok(j),
            _ => Err(self.error(name, "is not a jaxpr")),
        }
    }

    /// Takes a program or `None`.
    pub fn optional_jaxpr(&self, name: &str) -> Result<Option<Arc<Jaxpr>>> {
        match self.take(name)? {
            Param::Jaxpr(j) => Ok(Some(j)),
            Param::None => Ok(None),
            _ => Err(self.error(name, "is neither a jaxpr nor None")),
        }
    }

    /// Takes a policy.
    pub fn policy(&self, name: &str) -> Result<Arc<Policy>> {
        match self.take(name)? {
            Param::Policy(p) => Ok(p),
            _ => Err(self.error(name, "is not a policy")),
        }
    }

    /// Fails if a parameter was not taken.
    ///
    /// # Errors
    /// Names the first parameter that is left.
    pub fn finish(&self) -> Result<()> {
        match self.params.borrow().first() {
            Some((name, _)) => Err(self.error(name, "is unknown")),
            None => Ok(()),
        }
    }
}

/// A word as programs print it: bare if it is an identifier without another meaning, and quoted otherwise.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain_word(self.0) { f.write_str(self.0) } else { write!(f, "{:?}", self.0) }
    }
}

/// Whether a word needs no quotes.
pub(crate) fn is_plain_word(word: &str) -> bool {
    let identifier = word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && word.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    identifier && !matches!(word, "None" | "True" | "False") && DType::from_name(word).is_none()
}
