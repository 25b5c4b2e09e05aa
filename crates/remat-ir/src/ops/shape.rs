//! Operations that move elements without changing them.

use super::{Operation, ParamMap, Params};
use crate::{Aval, DType, Result, Shape};

/// Result dimension `dims[i]` is operand dimension `i`, repeated where its size is 1; the other dimensions are new.
/// `dims` is strictly increasing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct BroadcastInDim {
    pub shape: Shape,
    pub dims: Shape,
}

/// The same elements in row-major order with another shape of the same size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Reshape {
    pub shape: Shape,
}

/// Result dimension `i` is operand dimension `permutation[i]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Transpose {
    pub permutation: Shape,
}

/// Removes these dimensions of size 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Squeeze {
    pub axes: Shape,
}

/// Adds dimensions of size 1 at these positions of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct ExpandDims {
    pub axes: Shape,
}

/// Reverses the order along these dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Rev {
    pub axes: Shape,
}

/// Joins one or more operands along a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Concatenate {
    pub axis: usize,
}

/// `pad x value`: for each dimension low and high padding, which may be negative (they crop), and interior padding
/// between elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pad {
    /// Low, high and interior padding of each dimension.
    pub config: Vec<(i64, i64, usize)>,
}

/// The index along one dimension, in a numeric dtype. No operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Iota {
    pub dtype: DType,
    pub shape: Shape,
    pub axis: usize,
}

impl Operation for BroadcastInDim {
    fn name(&self) -> &'static str {
        "broadcast_in_dim"
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

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
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

impl Operation for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
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

impl Operation for Squeeze {
    fn name(&self) -> &'static str {
        "squeeze"
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

impl Operation for ExpandDims {
    fn name(&self) -> &'static str {
        "expand_dims"
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

impl Operation for Rev {
    fn name(&self) -> &'static str {
        "rev"
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

impl Operation for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
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

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
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

impl Operation for Iota {
    fn name(&self) -> &'static str {
        "iota"
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
