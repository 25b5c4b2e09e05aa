//! The general matrix product.

use super::{Operation, ParamMap, Params};
use crate::{Aval, DType, Result, Shape};

/// `dot_general lhs rhs`: products summed over the contracting dimensions, for each index of the batch dimensions. The
/// result has the batch dimensions, then the free ones of `lhs`, then those of `rhs`.
///
/// Operands have one dtype; products are accumulated in at least f32 for f16 and bf16, and the result is rounded once to
/// `preferred_element_type`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct DotGeneral {
    pub lhs_contract: Shape,
    pub rhs_contract: Shape,
    pub lhs_batch: Shape,
    pub rhs_batch: Shape,
    /// The dtype of the result.
    pub preferred_element_type: DType,
}

impl Operation for DotGeneral {
    fn name(&self) -> &'static str {
        "dot_general"
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
