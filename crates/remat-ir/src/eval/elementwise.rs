//! Elementwise operations.

use crate::{Array, Binary, Clamp, Compare, Error, ErrorKind, IntegerPow, Result, SelectN, Unary};

pub(super) fn unary(op: &Unary, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, format!("{op:?}"), "has no evaluation yet"))
}

pub(super) fn integer_pow(_op: &IntegerPow, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "integer_pow", "has no evaluation yet"))
}

pub(super) fn binary(op: &Binary, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, format!("{op:?}"), "has no evaluation yet"))
}

pub(super) fn compare(op: &Compare, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, format!("{op:?}"), "has no evaluation yet"))
}

pub(super) fn select_n(_op: &SelectN, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "select_n", "has no evaluation yet"))
}

pub(super) fn clamp(_op: &Clamp, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "clamp", "has no evaluation yet"))
}
