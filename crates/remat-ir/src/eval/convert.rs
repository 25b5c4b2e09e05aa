//! Evaluation.

use crate::{Array, BitcastConvertType, ConvertElementType, Error, ErrorKind, ReducePrecision, Result};

pub(super) fn convert_element_type(_op: &ConvertElementType, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "convert_element_type", "has no evaluation yet"))
}

pub(super) fn bitcast_convert_type(_op: &BitcastConvertType, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "bitcast_convert_type", "has no evaluation yet"))
}

pub(super) fn reduce_precision(_op: &ReducePrecision, _ins: &[Array]) -> Result<Array> {
    Err(Error::new(ErrorKind::Internal, "reduce_precision", "has no evaluation yet"))
}
