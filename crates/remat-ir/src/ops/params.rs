//! The text form of parameters: a small data model that the printer, the parser and the operations share.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use super::values::ParamValue;
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
/// It is an error with the names of operation and parameter if a parameter is missing or of another type than the field.
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

    /// Takes a parameter of the type of a field.
    pub(crate) fn read<T: ParamValue>(&self, name: &str) -> Result<T> {
        T::take(self, name)
    }

    /// Takes a word that stands for a value; of another word the error says that it `is not` one.
    pub(crate) fn choice<T>(&self, name: &str, fault: &str, value: impl Fn(&str) -> Option<T>) -> Result<T> {
        value(&self.read::<Arc<str>>(name)?).ok_or_else(|| self.error(name, fault))
    }

    /// Takes a tuple and converts its items.
    pub(crate) fn tuple<T, C: FromIterator<T>>(
        &self,
        name: &str,
        fault: &str,
        item: impl Fn(Param) -> Option<T>,
    ) -> Result<C> {
        let items = if let Param::Tuple(items) = self.take(name)? { Some(items) } else { None };
        let items = items.and_then(|items| items.into_iter().map(item).collect());
        items.ok_or_else(|| self.error(name, fault))
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
