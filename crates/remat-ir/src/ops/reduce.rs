//! Reductions and cumulative operations.

use super::{Operation, ParamMap, Params};
use crate::{Aval, DType, Result, Shape};

/// The monoid of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum ReduceKind {
    Sum,
    Prod,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
    And,
    Or,
}

/// Reduces over these dimensions, which the result lacks. f16 and bf16 sums and products accumulate in f32 and round
/// once. Of nothing: the identity of the monoid (for `Max` the smallest value of the dtype).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Shape,
}

/// Which extremum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum ArgKind {
    Max,
    Min,
}

/// The index of the first extremum along a dimension, which the result lacks; a NaN is extreme. The dimension is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axis: usize,
    /// An integer dtype.
    pub index_dtype: DType,
}

/// The operation of a cumulative reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum CumulativeKind {
    Sum,
    Prod,
    Max,
    Min,
    LogSumExp,
}

/// Element `i` along the dimension is the reduction of elements `0..=i`, or of `i..` when reversed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Prod => "reduce_prod",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
            ReduceKind::And => "reduce_and",
            ReduceKind::Or => "reduce_or",
        }
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

impl Operation for ArgReduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ArgKind::Max => "argmax",
            ArgKind::Min => "argmin",
        }
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

impl Operation for Cumulative {
    fn name(&self) -> &'static str {
        match self.kind {
            CumulativeKind::Sum => "cumsum",
            CumulativeKind::Prod => "cumprod",
            CumulativeKind::Max => "cummax",
            CumulativeKind::Min => "cummin",
            CumulativeKind::LogSumExp => "cumlogsumexp",
        }
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
