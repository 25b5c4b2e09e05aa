//! Identities with a meaning for a transformation or an engine.

use std::sync::Arc;

use super::op::op;
use super::values::ParamValue;
use super::{Operation, Param, ParamMap, expect_operands};
use crate::{Aval, MemorySpace, Result};

/// The operand, with a name for checkpoint policies, or marked as a value that is to be kept.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Name {
    /// It is empty if the equation only marks a value.
    pub name: Arc<str>,
    pub keep: Keep,
}

/// Who has to keep a value that the backward pass reads. It prints as `keep=planner` or `keep=everyone`, and not at all if there is a choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Keep {
    /// A policy decides, and an engine may compute the value again.
    #[default]
    Choice,
    /// A policy decides, and an engine does not compute the value again: one that a policy [must](crate::Policy::must) save.
    Planner,
    /// Policies and engines: what a function with custom rematerialization passes to its backward pass.
    Everyone,
}

impl Keep {
    const WORDS: [(&str, Keep); 2] = [("planner", Keep::Planner), ("everyone", Keep::Everyone)];
}

impl ParamValue for Keep {
    fn to_param(&self) -> Option<Param> {
        let (word, _) = Keep::WORDS.into_iter().find(|(_, keep)| keep == self)?;
        Some(Param::word(word))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        if !params.has(name) {
            return Ok(Keep::Choice);
        }
        let keep = |word: &str| Keep::WORDS.into_iter().find(|(known, _)| *known == word).map(|(_, keep)| keep);
        params.choice(name, "is neither planner nor everyone", keep)
    }
}

impl Name {
    /// A name, with which a policy decides about the operand.
    pub fn new(name: impl Into<Arc<str>>) -> Name {
        Name { name: name.into(), keep: Keep::Choice }
    }

    /// A mark without a name.
    pub fn kept(keep: Keep) -> Name {
        Name { name: "".into(), keep }
    }

    /// The name, unless the equation only marks a value.
    pub fn label(&self) -> Option<&Arc<str>> {
        (self.keep == Keep::Choice || !self.name.is_empty()).then_some(&self.name)
    }
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
    op! { "name" class Marker { keep, name } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(Operation::name(self), ins, 1)?;
        Ok(ins.to_vec())
    }
}

impl Operation for StopGradient {
    op! { "stop_gradient" class Marker }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(ins.to_vec())
    }
}

impl Operation for OptimizationBarrier {
    op! { "optimization_barrier" class Marker }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(ins.to_vec())
    }
}

impl Operation for DevicePut {
    op! { "device_put" class Movement { memory } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        Ok(vec![ins[0].in_memory(self.memory)])
    }
}
