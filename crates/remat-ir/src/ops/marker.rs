//! Identities that mean something to a transformation or an engine.

use std::sync::Arc;

use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, Class, MemorySpace, Result};

/// The operand, with a name that checkpoint policies see.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Name {
    pub name: Arc<str>,
}

/// The operand, without a tangent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StopGradient;

/// All operands, as values of their own: no equation of the results is ever merged with an equation of the operands. So a value
/// that is computed again behind a barrier stays a computation of its own.
///
/// It is a barrier to merging, not to scheduling. The reference evaluator computes all operands before it goes on; an engine that
/// orders the steps itself, for a low peak of memory, may compute an equation of one result before another operand is there, and
/// the results are the same in every bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptimizationBarrier;

/// A copy of the operand in this memory space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct DevicePut {
    pub memory: MemorySpace,
}

impl Operation for Name {
    fn name(&self) -> &'static str {
        "name"
    }

    fn class(&self) -> Class {
        Class::Marker
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(Operation::name(self), ins, 1)?;
        Ok(ins.to_vec())
    }

    fn params(&self) -> Params {
        vec![("name", Param::Word(self.name.clone()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "name").then(|| Ok(Name { name: params.word("name")? }))
    }
}

impl Operation for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
    }

    fn class(&self) -> Class {
        Class::Marker
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(ins.to_vec())
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "stop_gradient").then_some(Ok(StopGradient))
    }
}

impl Operation for OptimizationBarrier {
    fn name(&self) -> &'static str {
        "optimization_barrier"
    }

    fn class(&self) -> Class {
        Class::Marker
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(ins.to_vec())
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "optimization_barrier").then_some(Ok(OptimizationBarrier))
    }
}

impl Operation for DevicePut {
    fn name(&self) -> &'static str {
        "device_put"
    }

    fn class(&self) -> Class {
        Class::Movement
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(vec![ins[0].in_memory(self.memory)])
    }

    fn params(&self) -> Params {
        vec![("memory", Param::word(self.memory.name()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "device_put").then(|| {
            let word = params.word("memory")?;
            let memory = MemorySpace::from_name(&word).ok_or_else(|| params.error("memory", "is no memory space"))?;
            Ok(DevicePut { memory })
        })
    }
}
