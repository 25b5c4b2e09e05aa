//! Slices.

use crate::{Array, DynamicSlice, DynamicUpdateSlice, Error, ErrorKind, Result, Slice};

pub(super) fn slice(_op: &Slice, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "slice", "has no evaluation yet"))
}

pub(super) fn dynamic_slice(_op: &DynamicSlice, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "dynamic_slice", "has no evaluation yet"))
}

pub(super) fn dynamic_update_slice(_op: &DynamicUpdateSlice, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "dynamic_update_slice", "has no evaluation yet"))
}
