//! Conversions between dtypes.

use super::rules::{Accepts, elementwise};
use super::{Operation, Param, ParamMap, Params, dtype_error, expect_operands, shape_error};
use crate::{Aval, Class, DType, Error, ErrorKind, Result};

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

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(vec![ins[0].with_dtype(self.dtype)])
    }

    fn params(&self) -> Params {
        vec![("new_dtype", Param::DType(self.dtype))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "convert_element_type").then(|| Ok(ConvertElementType { dtype: params.dtype("new_dtype")? }))
    }
}

impl Operation for BitcastConvertType {
    fn name(&self) -> &'static str {
        "bitcast_convert_type"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let (from, to) = (&ins[0], self.dtype);
        if (from.dtype == DType::Bool || to == DType::Bool) && from.dtype != to {
            let message = format!("{from} and {to} do not have the same bits: a bool has no defined ones");
            return dtype_error(self.name(), message);
        }
        let mut shape = from.shape.clone();
        if to.size() < from.dtype.size() {
            shape.push(from.dtype.size() / to.size());
        } else if to.size() > from.dtype.size() {
            let count = to.size() / from.dtype.size();
            if shape.pop() != Some(count) {
                let message = format!("{from} to {to} needs a last dimension of size {count}");
                return shape_error(self.name(), message);
            }
        }
        Ok(vec![from.with_shape(shape).with_dtype(to)])
    }

    fn params(&self) -> Params {
        vec![("new_dtype", Param::DType(self.dtype))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "bitcast_convert_type").then(|| Ok(BitcastConvertType { dtype: params.dtype("new_dtype")? }))
    }
}

impl Operation for ReducePrecision {
    fn name(&self) -> &'static str {
        "reduce_precision"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let out = elementwise(self.name(), ins, 1, Accepts::Floats)?;
        if self.exponent_bits == 0 {
            let message = format!("a format for {out} has at least one bit of exponent");
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        Ok(vec![out])
    }

    fn params(&self) -> Params {
        vec![
            ("exponent_bits", Param::Int(self.exponent_bits.into())),
            ("mantissa_bits", Param::Int(self.mantissa_bits.into())),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "reduce_precision").then(|| {
            let bits =
                |name| u32::try_from(params.int(name)?).map_err(|_| params.error(name, "is not a number of bits"));
            Ok(ReducePrecision { exponent_bits: bits("exponent_bits")?, mantissa_bits: bits("mantissa_bits")? })
        })
    }
}
