//! Reductions over sliding windows: pooling.

use super::{ArgKind, Operation, ParamMap, Params};
use crate::{Aval, DType, Result, Shape};

/// The geometry of sliding windows; every vector has one entry per dimension of the operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Window {
    pub dimensions: Shape,
    pub strides: Shape,
    pub padding: Vec<(i64, i64)>,
    pub base_dilation: Shape,
    pub window_dilation: Shape,
}

/// The monoid of a window reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum WindowKind {
    Sum,
    Max,
    Min,
}

/// Reduces every window; padding holds the identity of the monoid.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct ReduceWindow {
    pub kind: WindowKind,
    pub window: Window,
}

/// For every window the row-major position in the whole operand of its first extremum, or -1 if the window holds padding
/// only. The derivative of max pooling is a gather of these.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct ArgReduceWindow {
    pub kind: ArgKind,
    pub window: Window,
    /// i32 or i64.
    pub index_dtype: DType,
}

impl Operation for ReduceWindow {
    fn name(&self) -> &'static str {
        match self.kind {
            WindowKind::Sum => "reduce_window_sum",
            WindowKind::Max => "reduce_window_max",
            WindowKind::Min => "reduce_window_min",
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

impl Operation for ArgReduceWindow {
    fn name(&self) -> &'static str {
        match self.kind {
            ArgKind::Max => "argmax_window",
            ArgKind::Min => "argmin_window",
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
