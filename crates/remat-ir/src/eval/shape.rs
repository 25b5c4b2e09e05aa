//! Operations that move elements.

use crate::{
    Array, BroadcastInDim, Concatenate, Error, ErrorKind, ExpandDims, Iota, Pad, Reshape, Result, Rev, Squeeze,
    Transpose,
};

pub(super) fn broadcast_in_dim(_op: &BroadcastInDim, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "broadcast_in_dim", "has no evaluation yet"))
}

pub(super) fn reshape(_op: &Reshape, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "reshape", "has no evaluation yet"))
}

pub(super) fn transpose(_op: &Transpose, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "transpose", "has no evaluation yet"))
}

pub(super) fn squeeze(_op: &Squeeze, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "squeeze", "has no evaluation yet"))
}

pub(super) fn expand_dims(_op: &ExpandDims, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "expand_dims", "has no evaluation yet"))
}

pub(super) fn rev(_op: &Rev, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "rev", "has no evaluation yet"))
}

pub(super) fn concatenate(_op: &Concatenate, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "concatenate", "has no evaluation yet"))
}

pub(super) fn pad(_op: &Pad, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "pad", "has no evaluation yet"))
}

pub(super) fn iota(_op: &Iota, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "iota", "has no evaluation yet"))
}
