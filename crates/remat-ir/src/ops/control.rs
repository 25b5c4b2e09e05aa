//! Operations with programs as parameters. A body is closed: all values that it uses are operands of the equation.

use std::sync::Arc;

use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, Class, DType, Error, ErrorKind, Jaxpr, Policy, Result};

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
    fn name(&self) -> &'static str {
        "jit"
    }

    fn class(&self) -> Class {
        Class::Call
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the body takes", &self.jaxpr.in_avals())?;
        Ok(self.jaxpr.out_avals())
    }

    fn params(&self) -> Params {
        vec![("name", Param::Word(self.name.clone())), ("jaxpr", Param::Jaxpr(self.jaxpr.clone()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "jit").then(|| Ok(Jit { name: params.word("name")?, jaxpr: params.jaxpr("jaxpr")? }))
    }
}

impl Operation for Checkpoint {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn class(&self) -> Class {
        Class::Call
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the body takes", &self.jaxpr.in_avals())?;
        Ok(self.jaxpr.out_avals())
    }

    fn params(&self) -> Params {
        vec![
            ("differentiated", Param::Bool(self.differentiated)),
            ("jaxpr", Param::Jaxpr(self.jaxpr.clone())),
            ("policy", Param::Policy(self.policy.clone())),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "checkpoint").then(|| {
            Ok(Checkpoint {
                jaxpr: params.jaxpr("jaxpr")?,
                differentiated: params.bool("differentiated")?,
                policy: params.policy("policy")?,
            })
        })
    }
}

impl Operation for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn class(&self) -> Class {
        Class::Call
    }

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
        let mut wanted = takes;
        for aval in &mut wanted[xs..] {
            aval.shape.insert(0, self.length);
        }
        expect_avals(self.name(), "operand", ins, "the loop takes", &wanted)?;
        for aval in ys {
            aval.shape.insert(0, self.length);
        }
        Ok(outs)
    }

    fn params(&self) -> Params {
        vec![
            ("jaxpr", Param::Jaxpr(self.jaxpr.clone())),
            ("length", Param::Int(self.length as i64)),
            ("num_carry", Param::Int(self.num_carry as i64)),
            ("num_consts", Param::Int(self.num_consts as i64)),
            ("reverse", Param::Bool(self.reverse)),
            ("unroll", Param::Int(self.unroll as i64)),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "scan").then(|| {
            Ok(Scan {
                jaxpr: params.jaxpr("jaxpr")?,
                length: params.size("length")?,
                num_consts: params.size("num_consts")?,
                num_carry: params.size("num_carry")?,
                reverse: params.bool("reverse")?,
                unroll: params.size("unroll")?,
            })
        })
    }
}

impl Operation for While {
    fn name(&self) -> &'static str {
        "while"
    }

    fn class(&self) -> Class {
        Class::Call
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

    fn params(&self) -> Params {
        vec![
            ("cond_jaxpr", Param::Jaxpr(self.cond.clone())),
            ("cond_nconsts", Param::Int(self.cond_consts as i64)),
            ("body_jaxpr", Param::Jaxpr(self.body.clone())),
            ("body_nconsts", Param::Int(self.body_consts as i64)),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "while").then(|| {
            Ok(While {
                cond: params.jaxpr("cond_jaxpr")?,
                body: params.jaxpr("body_jaxpr")?,
                cond_consts: params.size("cond_nconsts")?,
                body_consts: params.size("body_nconsts")?,
            })
        })
    }
}

impl Operation for Cond {
    fn name(&self) -> &'static str {
        "cond"
    }

    fn class(&self) -> Class {
        Class::Call
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let Some(first) = self.branches.first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "there is no branch"));
        };
        let Some((index, operands)) = ins.split_first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "there is no index"));
        };
        let wanted = Aval::scalar(DType::I32);
        if *index != wanted {
            let kind = if index.dtype == wanted.dtype { ErrorKind::Shape } else { ErrorKind::DType };
            return Err(Error::new(kind, self.name(), format!("the index is {index} and has to be {wanted}")));
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

    fn params(&self) -> Params {
        vec![("branches", Param::Tuple(self.branches.iter().cloned().map(Param::Jaxpr).collect()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "cond").then(|| {
            let malformed = || params.error("branches", "is not a tuple of jaxprs");
            let Param::Tuple(items) = params.take("branches")? else { return Err(malformed()) };
            let branch = |item| if let Param::Jaxpr(jaxpr) = item { Ok(jaxpr) } else { Err(malformed()) };
            Ok(Cond { branches: items.into_iter().map(branch).collect::<Result<_>>()? })
        })
    }
}

impl Operation for CustomJvp {
    fn name(&self) -> &'static str {
        "custom_jvp"
    }

    fn class(&self) -> Class {
        Class::Call
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_avals(self.name(), "operand", ins, "the function takes", &self.call.in_avals())?;
        let outs = self.call.out_avals();
        let argument = argument(self.name(), ins, self.num_consts)?;
        if let Some(jvp) = &self.jvp {
            let wanted: Vec<Aval> = ins.iter().chain(floats(argument)).cloned().collect();
            expect_avals(self.name(), "input of the jvp", &jvp.in_avals(), "the function wants", &wanted)?;
            let wanted = with_tangents(&outs);
            expect_avals(self.name(), "result of the jvp", &jvp.out_avals(), "the function wants", &wanted)?;
        }
        Ok(outs)
    }

    fn params(&self) -> Params {
        vec![
            ("name", Param::Word(self.name.clone())),
            ("call_jaxpr", Param::Jaxpr(self.call.clone())),
            ("jvp_jaxpr", optional(self.jvp.as_ref())),
            ("num_consts", Param::Int(self.num_consts as i64)),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "custom_jvp").then(|| {
            Ok(CustomJvp {
                name: params.word("name")?,
                call: params.jaxpr("call_jaxpr")?,
                jvp: params.optional_jaxpr("jvp_jaxpr")?,
                num_consts: params.size("num_consts")?,
            })
        })
    }
}

impl Operation for CustomVjp {
    fn name(&self) -> &'static str {
        "custom_vjp"
    }

    fn class(&self) -> Class {
        Class::Call
    }

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
        let wanted: Vec<Aval> = residuals.iter().chain(floats(&outs)).cloned().collect();
        expect_avals(self.name(), "input of bwd", &bwd.in_avals(), "fwd wants", &wanted)?;
        let wanted: Vec<Aval> = floats(argument).cloned().collect();
        expect_avals(self.name(), "result of bwd", &bwd.out_avals(), "the function wants", &wanted)?;
        Ok(outs)
    }

    fn params(&self) -> Params {
        let mut params = vec![
            ("name", Param::Word(self.name.clone())),
            ("call_jaxpr", Param::Jaxpr(self.call.clone())),
            ("fwd_jaxpr", optional(self.rule.as_ref().map(|rule| &rule.fwd))),
            ("bwd_jaxpr", optional(self.rule.as_ref().map(|rule| &rule.bwd))),
            ("num_consts", Param::Int(self.num_consts as i64)),
        ];
        params.extend(forward(self.forward.as_ref()));
        params
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "custom_vjp").then(|| {
            let rule = match (params.optional_jaxpr("fwd_jaxpr")?, params.optional_jaxpr("bwd_jaxpr")?) {
                (Some(fwd), Some(bwd)) => Some(VjpRule { fwd, bwd }),
                (None, None) => None,
                (Some(_), None) => return Err(params.error("bwd_jaxpr", "is None, and fwd_jaxpr is not")),
                (None, Some(_)) => return Err(params.error("fwd_jaxpr", "is None, and bwd_jaxpr is not")),
            };
            Ok(CustomVjp {
                name: params.word("name")?,
                call: params.jaxpr("call_jaxpr")?,
                rule,
                forward: params.optional_word("forward")?,
                num_consts: params.size("num_consts")?,
            })
        })
    }
}

impl Operation for CustomLin {
    fn name(&self) -> &'static str {
        "custom_lin"
    }

    fn class(&self) -> Class {
        Class::Call
    }

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

    fn params(&self) -> Params {
        let mut params = vec![
            ("name", Param::Word(self.name.clone())),
            ("bwd_jaxpr", Param::Jaxpr(self.bwd.clone())),
            ("num_res", Param::Int(self.num_residuals as i64)),
        ];
        params.extend(forward(self.forward.as_ref()));
        params
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "custom_lin").then(|| {
            Ok(CustomLin {
                name: params.word("name")?,
                forward: params.optional_word("forward")?,
                bwd: params.jaxpr("bwd_jaxpr")?,
                num_residuals: params.size("num_res")?,
            })
        })
    }
}

/// The parameter with the function that has a forward mode, which programs print only if there is one.
fn forward(function: Option<&Arc<str>>) -> Option<(&'static str, Param)> {
    function.map(|function| ("forward", Param::Word(function.clone())))
}

/// A program, or `None`.
fn optional(jaxpr: Option<&Arc<Jaxpr>>) -> Param {
    jaxpr.map_or(Param::None, |jaxpr| Param::Jaxpr(jaxpr.clone()))
}

/// The avals that have tangents and cotangents.
fn floats(avals: &[Aval]) -> impl Iterator<Item = &Aval> {
    avals.iter().filter(|a| a.dtype.is_float())
}

/// The avals, then those of their tangents.
fn with_tangents(avals: &[Aval]) -> Vec<Aval> {
    avals.iter().chain(floats(avals)).cloned().collect()
}

/// Fails unless `got` equals the avals `wanted`. The message reads `{what} 2 is f32[3] and {wants} f32[4]`.
pub(super) fn expect_avals(name: &str, what: &str, got: &[Aval], wants: &str, wanted: &[Aval]) -> Result<()> {
    if got.len() != wanted.len() {
        let message =
            format!("{what} count is {} ({}) and {wants} {} ({})", got.len(), list(got), wanted.len(), list(wanted));
        return Err(Error::new(ErrorKind::Argument, name, message));
    }
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        if got != wanted {
            let kind = if got.dtype == wanted.dtype { ErrorKind::Shape } else { ErrorKind::DType };
            return Err(Error::new(kind, name, format!("{what} {i} is {got} and {wants} {wanted}")));
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
