//! Reductions over windows.

use crate::{ArgReduceWindow, Array, Error, ErrorKind, ReduceWindow, Result};

pub(super) fn reduce_window(_op: &ReduceWindow, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "reduce_window", "has no evaluation yet"))
}

pub(super) fn arg_reduce_window(_op: &ArgReduceWindow, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "arg_reduce_window", "has no evaluation yet"))
}
