//! Convolution.

use super::{Operation, ParamMap, Params};
use crate::{Aval, DType, Result, Shape};

/// Which dimension of an operand is which. For the input and the output `first` is batch and `second` feature; for the
/// kernel `first` is output feature and `second` input feature.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct ConvDims {
    pub first: usize,
    pub second: usize,
    pub spatial: Shape,
}

/// `conv_general_dilated input kernel` in 1 to 3 (or any number of) spatial dimensions; a cross-correlation, as in
/// machine learning. Padding may be negative. Source: XLA's operation semantics, "Conv".
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Conv {
    pub strides: Shape,
    pub padding: Vec<(i64, i64)>,
    /// Dilation of the input: zeros between its elements.
    pub lhs_dilation: Shape,
    /// Dilation of the kernel.
    pub rhs_dilation: Shape,
    pub lhs_dims: ConvDims,
    pub rhs_dims: ConvDims,
    pub out_dims: ConvDims,
    pub feature_group_count: usize,
    pub batch_group_count: usize,
    /// The dtype of the result.
    pub preferred_element_type: DType,
}

impl Operation for Conv {
    fn name(&self) -> &'static str {
        "conv_general_dilated"
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
