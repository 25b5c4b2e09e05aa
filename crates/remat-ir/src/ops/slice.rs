//! Slices with static and with dynamic starts.

use super::{Operation, ParamMap, Params};
use crate::{Aval, Result, Shape};

/// Elements `start, start + stride, .. < limit` of each dimension; strides are at least 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Slice {
    pub start: Shape,
    pub limit: Shape,
    pub strides: Shape,
}

/// `dynamic_slice x start_0 start_1 ..`: a block of these sizes at integer scalar starts, which are clamped so that the
/// block fits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct DynamicSlice {
    pub sizes: Shape,
}

/// `dynamic_update_slice x update start_0 start_1 ..`: `x` with a block replaced; starts are clamped so that it fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DynamicUpdateSlice;

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
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

impl Operation for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
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

impl Operation for DynamicUpdateSlice {
    fn name(&self) -> &'static str {
        "dynamic_update_slice"
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
