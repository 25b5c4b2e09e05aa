//! The text form of parameters: one small data model between the printer, the parser and the operations.

use std::sync::Arc;

use crate::{DType, Jaxpr, Literal, Policy};

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
    /// A bare word, such as a mode, or a quoted string where it is no word.
    Word(Arc<str>),
    /// A dtype by its long name.
    DType(DType),
    /// A scalar constant.
    Literal(Literal),
    /// `(a, b)`; one element prints `(a,)`.
    Tuple(Vec<Param>),
    /// `[a, b]`.
    List(Vec<Param>),
    /// A program.
    Jaxpr(Arc<Jaxpr>),
    /// A checkpoint policy.
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

    /// A bare word.
    pub fn word(word: &str) -> Param {
        Param::Word(word.into())
    }
}
