//! Gathers and scatters.

use crate::{Array, Error, ErrorKind, Gather, Result, Scatter};

pub(super) fn gather(_op: &Gather, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "gather", "has no evaluation yet"))
}

pub(super) fn scatter(_op: &Scatter, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "scatter", "has no evaluation yet"))
}
