//! Operations with programs in them. A body is closed: whatever it uses is an operand of the equation.

use std::sync::Arc;

use super::{Operation, ParamMap, Params};
use crate::{Aval, Jaxpr, Policy, Result};

/// A call of a compiled function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Jit {
    pub name: Arc<str>,
    pub jaxpr: Arc<Jaxpr>,
}

/// A region that the backward pass recomputes but for what the policy saves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Checkpoint {
    /// The region.
    pub jaxpr: Arc<Jaxpr>,
    /// Whether this is a recomputation: an engine must not merge it with the forward pass, and runs it late.
    pub differentiated: bool,
    /// What the forward pass may keep.
    pub policy: Arc<Policy>,
}

/// A loop over the first dimension. Operands: constants, initial carries, stacked inputs. The body takes constants,
/// carries and one slice of each stacked input; it gives carries and one slice of each stacked output. Results: last
/// carries, stacked outputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Scan {
    pub jaxpr: Arc<Jaxpr>,
    pub length: usize,
    pub num_consts: usize,
    pub num_carry: usize,
    /// From the last slice to the first.
    pub reverse: bool,
    /// How many iterations an engine may lay out in a row.
    pub unroll: usize,
}

/// A loop while a condition holds. Operands: constants of the condition, constants of the body, carries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct While {
    pub cond: Arc<Jaxpr>,
    pub body: Arc<Jaxpr>,
    pub cond_consts: usize,
    pub body_consts: usize,
}

/// One of several branches. Operands: an i32 scalar index, which is clamped, then the operands of every branch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Cond {
    pub branches: Vec<Arc<Jaxpr>>,
}

/// A function with a derivative of its own. `jvp` takes the operands and a tangent for each float operand; it gives the
/// results and a tangent for each float result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct CustomJvp {
    pub name: Arc<str>,
    pub call: Arc<Jaxpr>,
    pub jvp: Arc<Jaxpr>,
}

/// A function with a reverse rule of its own. `fwd` takes the operands and gives the results, then residuals; `bwd` takes
/// the residuals and a cotangent for each float result and gives a cotangent for each float operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct CustomVjp {
    pub name: Arc<str>,
    pub call: Arc<Jaxpr>,
    pub fwd: Arc<Jaxpr>,
    pub bwd: Arc<Jaxpr>,
}

/// The linear map whose transpose is `bwd`. Operands: residuals, then tangents. It appears when a [`CustomVjp`] is
/// differentiated, and can be transposed but not evaluated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct CustomLin {
    pub name: Arc<str>,
    pub bwd: Arc<Jaxpr>,
    pub num_residuals: usize,
}

impl Operation for Jit {
    fn name(&self) -> &'static str {
        "jit"
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

impl Operation for Checkpoint {
    fn name(&self) -> &'static str {
        "checkpoint"
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

impl Operation for Scan {
    fn name(&self) -> &'static str {
        "scan"
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

impl Operation for While {
    fn name(&self) -> &'static str {
        "while"
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

impl Operation for Cond {
    fn name(&self) -> &'static str {
        "cond"
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

impl Operation for CustomJvp {
    fn name(&self) -> &'static str {
        "custom_jvp"
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

impl Operation for CustomVjp {
    fn name(&self) -> &'static str {
        "custom_vjp"
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

impl Operation for CustomLin {
    fn name(&self) -> &'static str {
        "custom_lin"
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
