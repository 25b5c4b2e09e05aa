//! Sorting.

use super::{Operation, ParamMap, Params};
use crate::{Aval, Result};

/// Sorts operands of one shape together along a dimension, ascending and lexicographic by the first `num_keys` of them.
/// Floats are in total order but for zeros, which are equal, and NaNs, which are equal and last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Sort {
    pub axis: usize,
    pub num_keys: usize,
    /// Equal keys keep their order.
    pub is_stable: bool,
}

/// The `k` largest along the last dimension in descending order, and their i32 indices; the first of equals wins, NaN is
/// largest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct TopK {
    pub k: usize,
}

impl Operation for Sort {
    fn name(&self) -> &'static str {
        "sort"
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

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "top_k"
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
