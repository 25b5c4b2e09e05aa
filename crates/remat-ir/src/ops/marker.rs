//! Identities that mean something to a transformation or an engine.

use std::sync::Arc;

use super::{Operation, ParamMap, Params};
use crate::{Aval, MemorySpace, Result};

/// The operand, bearing a name that checkpoint policies see.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Name {
    pub name: Arc<str>,
}

/// The operand, without a tangent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StopGradient;

/// All operands; no result can be computed before all operands are, and nothing is merged or moved across it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptimizationBarrier;

/// A copy of the operand in this memory space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct DevicePut {
    pub memory: MemorySpace,
}

impl Operation for Name {
    fn name(&self) -> &'static str {
        "name"
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

impl Operation for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
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

impl Operation for OptimizationBarrier {
    fn name(&self) -> &'static str {
        "optimization_barrier"
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

impl Operation for DevicePut {
    fn name(&self) -> &'static str {
        "device_put"
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
