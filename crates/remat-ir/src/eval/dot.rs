//! The matrix product.

use crate::{Array, DotGeneral, Error, ErrorKind, Result};

pub(super) fn dot_general(_op: &DotGeneral, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "dot_general", "has no evaluation yet"))
}
