//! The general matrix product.

use super::geometry::{alike, distinct_axes, operands, sized, without_axes};
use super::op::op;
use super::values::ParamValue;
use super::{Operation, Param, ParamMap, dtype_error, shape_error};
use crate::{Aval, DType, Result, Shape, counted};

/// `dot_general lhs rhs`: products summed over the contracting dimensions, for each index of the batch dimensions. The
/// result has the batch dimensions, then the free ones of `lhs`, then those of `rhs`.
///
/// Operands have one dtype; products are accumulated in at least f32 for f16 and bf16, and the result is rounded once to
/// `preferred_element_type`: a float for floats, an integer or a float for integers, anything for bools. Integers wrap;
/// bools to bool are an `or` of `and`s.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct DotGeneral {
    pub lhs_contract: Shape,
    pub rhs_contract: Shape,
    pub lhs_batch: Shape,
    pub rhs_batch: Shape,
    /// The dtype of the result.
    pub preferred_element_type: DType,
}

impl DotGeneral {
    /// The dimensions of the left operand that are not free: batch, then contracting.
    pub(crate) fn lhs_fixed(&self) -> Shape {
        self.lhs_batch.iter().chain(&self.lhs_contract).copied().collect()
    }

    /// The dimensions of the right operand that are not free.
    pub(crate) fn rhs_fixed(&self) -> Shape {
        self.rhs_batch.iter().chain(&self.rhs_contract).copied().collect()
    }
}

impl Operation for DotGeneral {
    op! {
        "dot_general" class Contraction {
            (lhs_contract, rhs_contract, lhs_batch, rhs_batch): dimension_numbers,
            preferred_element_type,
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [lhs, rhs] = operands(name, ins)?;
        alike(name, lhs, rhs)?;
        check_preferred(name, lhs.dtype, self.preferred_element_type)?;
        let pairs =
            [("contracting", &self.lhs_contract, &self.rhs_contract), ("batch", &self.lhs_batch, &self.rhs_batch)];
        for (what, left, right) in pairs {
            if left.len() != right.len() {
                let dimensions = counted(left.len(), &format!("{what} dimension"));
                let message = format!("{lhs} has {dimensions} and {rhs} has {}", right.len());
                return shape_error(name, message);
            }
        }
        distinct_axes(name, "batch and contracting dimensions", &self.lhs_fixed(), lhs.rank())?;
        distinct_axes(name, "batch and contracting dimensions", &self.rhs_fixed(), rhs.rank())?;
        for (what, left, right) in pairs {
            for (&l, &r) in left.iter().zip(right) {
                if lhs.shape[l] != rhs.shape[r] {
                    let (m, n) = (lhs.shape[l], rhs.shape[r]);
                    return shape_error(name, format!("{what} dimensions differ: {m} of {lhs} and {n} of {rhs}"));
                }
            }
        }
        let mut shape: Shape = self.lhs_batch.iter().map(|&d| lhs.shape[d]).collect();
        shape.extend(without_axes(&lhs.shape, &self.lhs_fixed()));
        shape.extend(without_axes(&rhs.shape, &self.rhs_fixed()));
        Ok(vec![sized(name, lhs.with_dtype(self.preferred_element_type).with_shape(shape))?])
    }
}

/// Contracting dimensions of both operands, then their batch dimensions: `(([1], [0]), ([], []))`.
impl ParamValue for (Shape, Shape, Shape, Shape) {
    fn to_param(&self) -> Option<Param> {
        let (lhs_contract, rhs_contract, lhs_batch, rhs_batch) = self;
        let list = |dims: &Shape| Param::List(dims.iter().map(|&d| Param::Int(d as i64)).collect());
        let pair = |lhs: &Shape, rhs: &Shape| Param::Tuple(vec![list(lhs), list(rhs)]);
        Some(Param::Tuple(vec![pair(lhs_contract, rhs_contract), pair(lhs_batch, rhs_batch)]))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let pair = |param: &Param| match param {
            Param::Tuple(sides) if sides.len() == 2 => Some((sides[0].as_sizes()?, sides[1].as_sizes()?)),
            _ => None,
        };
        let numbers = |param: &Param| match param {
            Param::Tuple(pairs) if pairs.len() == 2 => Some((pair(&pairs[0])?, pair(&pairs[1])?)),
            _ => None,
        };
        let ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)) = numbers(&params.take(name)?)
            .ok_or_else(|| params.error(name, "is not (([..], [..]), ([..], [..])), contracting before batch"))?;
        Ok((lhs_contract, rhs_contract, lhs_batch, rhs_batch))
    }
}

/// Fails unless products of `dtype` can be summed in `preferred`. Other dtypes cannot be summed in bool, and a float becomes an integer
/// only by an explicit conversion.
pub(super) fn check_preferred(name: &str, dtype: DType, preferred: DType) -> Result<()> {
    let fits = match dtype {
        DType::Bool => true,
        d if d.is_integer() => preferred != DType::Bool,
        _ => preferred.is_float(),
    };
    if fits { Ok(()) } else { dtype_error(name, format!("products of {dtype} cannot be summed in {preferred}")) }
}
