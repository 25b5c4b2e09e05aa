//! Operations with programs as parameters. A body is closed: all values that it uses are operands of the equation.

use std::sync::Arc;

use super::op::op;
use super::values::ParamGroup;
use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, DType, Error, ErrorKind, Jaxpr, Policy, Result};

/// A call of a compiled function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Jit {
    pub name: Arc<str>,
    pub jaxpr: Arc<Jaxpr>,
}

/// A region that the backward pass recomputes, except the values that the policy saves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Checkpoint {
    /// The region.
    pub jaxpr: Arc<Jaxpr>,
    /// Whether this is a recomputation, which an engine must not merge with the forward pass and may run late.
    pub differentiated: bool,
    /// Decides which values the forward pass keeps.
    pub policy: Arc<Policy>,
}

/// A loop over the first axis. Operands: constants, initial carries, stacked inputs. The body takes constants,
/// carries and one slice of each stacked input; it gives carries and one slice of each stacked output. Results: last
/// carries, stacked outputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Scan {
    pub jaxpr: Arc<Jaxpr>,
    pub length: usize,
    pub num_consts: usize,
    pub num_carry: usize,
    /// Whether the loop runs from the last slice to the first.
    pub reverse: bool,
    /// How many iterations an engine puts in a row as one iteration; 1 for a plain loop.
    pub unroll: usize,
}

/// A loop while a condition holds. Operands: constants of the condition, constants of the body, carries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct While {
    pub cond: Arc<Jaxpr>,
    pub body: Arc<Jaxpr>,
    pub cond_consts: usize,
    pub body_consts: usize,
}

/// One of several branches. Operands: an i32 scalar index, which is clamped, then the operands of every branch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Cond {
    pub branches: Vec<Arc<Jaxpr>>,
}

/// A function with its own derivative rule. Operands: captured constants, then the argument.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CustomJvp {
    /// The name of the function.
    pub name: Arc<str>,
    /// The function.
    pub call: Arc<Jaxpr>,
    /// The rule, a program. Inputs: the operands, then a tangent for each float of the argument. Outputs: the results, then a tangent for
    /// each float result. `None` if the program was not traced for differentiation of this order. Rules are traced on demand, so that a
    /// rule may call its own function.
    pub jvp: Option<Arc<Jaxpr>>,
    /// The number of captured constants.
    pub num_consts: usize,
}

/// A function with its own reverse rule. Operands: captured constants, then the argument.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CustomVjp {
    /// The name of the function.
    pub name: Arc<str>,
    /// The function.
    pub call: Arc<Jaxpr>,
    /// The rule; `None` as in [`CustomJvp::jvp`].
    pub rule: Option<VjpRule>,
    /// The name of a function with the same values and a forward-mode derivative, if there is one. Errors suggest it.
    pub forward: Option<Arc<str>>,
    /// The number of captured constants.
    pub num_consts: usize,
}

/// The reverse rule of a [`CustomVjp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VjpRule {
    /// Takes the operands, and gives the results followed by the residuals.
    pub fwd: Arc<Jaxpr>,
    /// Takes the residuals and a cotangent for each float result, and gives a cotangent for each float of the argument.
    pub bwd: Arc<Jaxpr>,
}

/// The linear map whose transpose is `bwd`. Operands: residuals, then tangents. It appears when a [`CustomVjp`] is
/// differentiated, and can be transposed but not evaluated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct CustomLin {
    pub name: Arc<str>,
    pub forward: Option<Arc<str>>,
    pub bwd: Arc<Jaxpr>,
    pub num_residuals: usize,
}

impl CustomLin {
    /// The error of an engine that has to evaluate it: only the transpose of this map is known.
    pub fn not_evaluated(&self) -> Error {
        let remedy = match &self.forward {
            Some(function) => format!("; in forward mode use `{function}`, which has the same values"),
            None => " (custom_vjp); give it a custom_jvp instead".to_string(),
        };
        let message = format!(
            "forward-mode differentiation of `{}` is not defined: it has a reverse rule only{remedy}",
            self.name
        );
        Error::new(ErrorKind::Differentiation, "custom_vjp", message)
    }
}

impl Operation for Jit {
    op! { "jit" class Call { name, jaxpr } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the body takes", &self.jaxpr.in_avals())?;
        Ok(self.jaxpr.out_avals())
    }
}

impl Operation for Checkpoint {
    op! { "checkpoint" class Call { differentiated, jaxpr, policy } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the body takes", &self.jaxpr.in_avals())?;
        Ok(self.jaxpr.out_avals())
    }
}

impl Operation for Scan {
    op! { "scan" class Call { jaxpr, length, num_carry, num_consts, reverse, unroll } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let takes = self.jaxpr.in_avals();
        let mut outs = self.jaxpr.out_avals();
        let Some(xs) = self.num_consts.checked_add(self.num_carry).filter(|&n| n <= takes.len()) else {
            let message = format!(
                "{} constants and {} carries are more than the {} inputs of the body",
                self.num_consts,
                self.num_carry,
                takes.len()
            );
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        };
        if outs.len() < self.num_carry {
            let message = format!("the body gives {} results for {} carries", outs.len(), self.num_carry);
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        if self.unroll == 0 {
            return Err(Error::new(ErrorKind::Argument, self.name(), "unroll is 0"));
        }
        let (carries, ys) = outs.split_at_mut(self.num_carry);
        expect_avals(self.name(), "carry", carries, "the body takes", &takes[self.num_consts..xs])?;
        let mut expected = takes;
        for aval in &mut expected[xs..] {
            aval.shape.insert(0, self.length);
        }
        expect_avals(self.name(), "operand", ins, "the loop takes", &expected)?;
        for aval in ys {
            aval.shape.insert(0, self.length);
        }
        Ok(outs)
    }
}

impl Operation for While {
    op! {
        "while" class Call {
            cond: cond_jaxpr,
            cond_consts: cond_nconsts,
            body: body_jaxpr,
            body_consts: body_nconsts,
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let Some(consts) = self.cond_consts.checked_add(self.body_consts).filter(|&n| n <= ins.len()) else {
            let message = format!(
                "{} and {} constants are more than the {} operands",
                self.cond_consts,
                self.body_consts,
                ins.len()
            );
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        };
        let (cond_consts, body_ins) = ins.split_at(self.cond_consts);
        let carries = &ins[consts..];
        let cond_ins = [cond_consts, carries].concat();
        expect_avals(self.name(), "operand of the condition", &cond_ins, "it takes", &self.cond.in_avals())?;
        expect_avals(self.name(), "operand of the body", body_ins, "it takes", &self.body.in_avals())?;
        let holds = [Aval::scalar(DType::Bool)];
        expect_avals(self.name(), "result of the condition", &self.cond.out_avals(), "the loop takes", &holds)?;
        let outs = self.body.out_avals();
        expect_avals(self.name(), "carry", &outs, "the body takes", carries)?;
        Ok(outs)
    }
}

impl Operation for Cond {
    op! { "cond" class Call { branches } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let Some(first) = self.branches.first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "there is no branch"));
        };
        let Some((index, operands)) = ins.split_first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "there is no index"));
        };
        let expected = Aval::scalar(DType::I32);
        if *index != expected {
            let kind = if index.dtype == expected.dtype { ErrorKind::Shape } else { ErrorKind::DType };
            return Err(Error::new(kind, self.name(), format!("the index is {index} and has to be {expected}")));
        }
        let outs = first.out_avals();
        for (i, branch) in self.branches.iter().enumerate() {
            let takes = format!("branch {i} takes");
            expect_avals(self.name(), "operand", operands, &takes, &branch.in_avals())?;
            let result = format!("branch {i}: result");
            expect_avals(self.name(), &result, &branch.out_avals(), "branch 0 gives", &outs)?;
        }
        Ok(outs)
    }
}

impl Operation for CustomJvp {
    op! { "custom_jvp" class Call { name, call: call_jaxpr, jvp: jvp_jaxpr, num_consts } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the function takes", &self.call.in_avals())?;
        let outs = self.call.out_avals();
        let argument = argument(self.name(), ins, self.num_consts)?;
        if let Some(jvp) = &self.jvp {
            let expected: Vec<Aval> = ins.iter().chain(floats(argument)).cloned().collect();
            expect_avals(self.name(), "input of the jvp", &jvp.in_avals(), "the function wants", &expected)?;
            let expected = with_tangents(&outs);
            expect_avals(self.name(), "result of the jvp", &jvp.out_avals(), "the function wants", &expected)?;
        }
        Ok(outs)
    }
}

impl Operation for CustomVjp {
    op! { "custom_vjp" class Call { name, call: call_jaxpr, ..rule, num_consts, forward } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the function takes", &self.call.in_avals())?;
        let outs = self.call.out_avals();
        let argument = argument(self.name(), ins, self.num_consts)?;
        let Some(VjpRule { fwd, bwd }) = &self.rule else { return Ok(outs) };
        expect_avals(self.name(), "input of fwd", &fwd.in_avals(), "the function takes", ins)?;
        let given = fwd.out_avals();
        if given.len() < outs.len() {
            let message = format!("fwd gives {} results and the function {}", given.len(), outs.len());
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        let (results, residuals) = given.split_at(outs.len());
        expect_avals(self.name(), "result of fwd", results, "the function gives", &outs)?;
        let expected: Vec<Aval> = residuals.iter().chain(floats(&outs)).cloned().collect();
        expect_avals(self.name(), "input of bwd", &bwd.in_avals(), "fwd wants", &expected)?;
        let expected: Vec<Aval> = floats(argument).cloned().collect();
        expect_avals(self.name(), "result of bwd", &bwd.out_avals(), "the function wants", &expected)?;
        Ok(outs)
    }
}

impl Operation for CustomLin {
    op! { "custom_lin" class Call { name, bwd: bwd_jaxpr, num_residuals: num_res, forward } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let mut takes = self.bwd.in_avals();
        if takes.len() < self.num_residuals {
            let message = format!("bwd takes {} inputs for {} residuals", takes.len(), self.num_residuals);
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        let outs = takes.split_off(self.num_residuals);
        expect_operands(self.name(), ins, takes.len() + self.bwd.outs.len())?;
        let (residuals, tangents) = ins.split_at(self.num_residuals);
        expect_avals(self.name(), "residual", residuals, "bwd takes", &takes)?;
        expect_avals(self.name(), "tangent", tangents, "bwd gives", &self.bwd.out_avals())?;
        Ok(outs)
    }
}

/// `fwd_jaxpr` and `bwd_jaxpr`, which are both `None` if there is no rule.
impl ParamGroup for Option<VjpRule> {
    fn to_params(&self) -> Params {
        let param = |jaxpr: Option<&Arc<Jaxpr>>| jaxpr.map_or(Param::None, |jaxpr| Param::Jaxpr(jaxpr.clone()));
        let rule = self.as_ref();
        vec![("fwd_jaxpr", param(rule.map(|rule| &rule.fwd))), ("bwd_jaxpr", param(rule.map(|rule| &rule.bwd)))]
    }

    fn take(params: &ParamMap<'_>) -> Result<Self> {
        match (params.read("fwd_jaxpr")?, params.read("bwd_jaxpr")?) {
            (Some(fwd), Some(bwd)) => Ok(Some(VjpRule { fwd, bwd })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(params.error("bwd_jaxpr", "is None, and fwd_jaxpr is not")),
            (None, Some(_)) => Err(params.error("fwd_jaxpr", "is None, and bwd_jaxpr is not")),
        }
    }
}

/// The avals that have tangents and cotangents.
fn floats(avals: &[Aval]) -> impl Iterator<Item = &Aval> {
    avals.iter().filter(|a| a.dtype.is_float())
}

/// The avals, then those of their tangents.
fn with_tangents(avals: &[Aval]) -> Vec<Aval> {
    avals.iter().chain(floats(avals)).cloned().collect()
}

/// Fails unless `got` equals the avals `expected`. The message reads `{what} 2 is f32[3] and {wants} f32[4]`.
pub(super) fn expect_avals(name: &str, what: &str, got: &[Aval], wants: &str, expected: &[Aval]) -> Result<()> {
    if got.len() != expected.len() {
        let message = format!(
            "{what} count is {} ({}) and {wants} {} ({})",
            got.len(),
            list(got),
            expected.len(),
            list(expected)
        );
        return Err(Error::new(ErrorKind::Argument, name, message));
    }
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        if got != expected {
            let kind = if got.dtype == expected.dtype { ErrorKind::Shape } else { ErrorKind::DType };
            return Err(Error::new(kind, name, format!("{what} {i} is {got} and {wants} {expected}")));
        }
    }
    Ok(())
}

fn list(avals: &[Aval]) -> String {
    avals.iter().map(Aval::to_string).collect::<Vec<_>>().join(", ")
}

/// The operands after the captured constants.
fn argument<'a>(name: &str, ins: &'a [Aval], num_consts: usize) -> Result<&'a [Aval]> {
    ins.get(num_consts..).ok_or_else(|| {
        Error::new(ErrorKind::Argument, name, format!("takes {num_consts} constants and got {} operands", ins.len()))
    })
}
