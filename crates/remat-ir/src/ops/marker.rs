//! Identities with a meaning for a transformation or an engine.

use std::sync::Arc;

use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, Class, MemorySpace, Result};

/// The operand, with a name for checkpoint policies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Name {
    pub name: Arc<str>,
}

/// The operand, without a tangent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StopGradient;

/// An optimization barrier: returns all operands, available once all operands are computed, as in JAX and StableHLO. An equation that reads
/// a result, directly or through others, runs after the equations that compute the operands. No equation is merged with one on the other
/// side of the barrier, so that a recomputation behind it stays separate. Equations that read no result are not ordered, and the results
/// have the same bits with and without the barrier.
///
/// A barrier of one operand only prevents merging, since its readers run after the operand in any case: an engine may compute the operand
/// and its readers in one loop, and compute equal equations of this loop once. Partial evaluation writes such barriers, which cost no
/// memory.
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
            let memory =
                MemorySpace::from_name(&word).ok_or_else(|| params.error("memory", "is not a memory space"))?;
            Ok(DevicePut { memory })
        })
    }
}
