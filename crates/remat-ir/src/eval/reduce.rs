//! Evaluation.

use crate::{ArgReduce, Array, Cumulative, Error, ErrorKind, Reduce, Result};

pub(super) fn reduce(_op: &Reduce, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "reduce", "has no evaluation yet"))
}

pub(super) fn arg_reduce(_op: &ArgReduce, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "arg_reduce", "has no evaluation yet"))
}

pub(super) fn cumulative(_op: &Cumulative, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "cumulative", "has no evaluation yet"))
}
