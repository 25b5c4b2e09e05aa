//! Conversions between dtypes.

use super::op::op;
use super::rules::{Accepts, elementwise};
use super::{Operation, dtype_error, expect_operands, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result};

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
    op! { "convert_element_type" class Elementwise { dtype: new_dtype } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(vec![ins[0].with_dtype(self.dtype)])
    }
}

impl Operation for BitcastConvertType {
    op! { "bitcast_convert_type" class Elementwise { dtype: new_dtype } }

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
}

impl Operation for ReducePrecision {
    op! { "reduce_precision" class Elementwise { exponent_bits, mantissa_bits } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let out = elementwise(self.name(), ins, 1, Accepts::Floats)?;
        if self.exponent_bits == 0 {
            let message = format!("a format for {out} has at least one bit of exponent");
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        Ok(vec![out])
    }
}
