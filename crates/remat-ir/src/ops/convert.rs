//! Conversions between dtypes.

use super::{Operation, ParamMap, Params};
use crate::{Aval, DType, Result};

/// Value conversion. Float to integer truncates and saturates (NaN is 0); anything to bool is `!= 0`; integer to integer
/// wraps; to a smaller float rounds half to even.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConvertElementType {
    /// The new dtype.
    pub dtype: DType,
}

/// The same bits as another dtype. To a narrower dtype a last dimension is added, to a wider one the last is consumed,
/// little end first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BitcastConvertType {
    /// The new dtype.
    pub dtype: DType,
}

/// Rounds a float, half to even, to a format with fewer bits, without changing its dtype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReducePrecision {
    /// Bits of the exponent, at least 1.
    pub exponent_bits: u32,
    /// Bits of the mantissa.
    pub mantissa_bits: u32,
}

impl Operation for ConvertElementType {
    fn name(&self) -> &'static str {
        "convert_element_type"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for BitcastConvertType {
    fn name(&self) -> &'static str {
        "bitcast_convert_type"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for ReducePrecision {
    fn name(&self) -> &'static str {
        "reduce_precision"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}
