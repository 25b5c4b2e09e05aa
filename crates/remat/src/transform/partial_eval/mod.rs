//! Partial evaluation: splits a program into a known part, computed now, and a staged part, computed later.
//!
//! ```text
//! partial_eval : { lambda ; a b. -> c d }, b unknown
//!     → known  { lambda ; a. -> c r }        what needs only known inputs, and residuals
//!     × staged { lambda ; r b. -> d }        the rest
//! ```
//!
//! Applied to a jvp with unknown tangents this is linearization: the known part is the forward pass, the staged part the linear function,
//! and the residuals are the values kept in memory between them. [`Saving`] decides what may become a residual. Under a policy, both parts
//! compute a value that is not saved, and dead code elimination then removes what is not needed. So the last value of a region is not
//! computed again, and a value that may be saved but is not needed is not saved.
//!
//! A `name` is a label on its operand: if the named value is kept, it replaces the operand too.
//!
//! Source: JAX's `partial_eval_jaxpr_custom` for the semantics of policies.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Candidate, Decision, Jaxpr, Op, Policy, Prim, Result, Var, VarMap};

mod assemble;
pub(super) mod budget;
mod graph;
pub(crate) mod log;
mod minimise;
pub(super) mod reach;
pub(super) mod split_eqn;
mod splitter;

pub use budget::Chosen;
use log::{Log, Reason, numbered};
pub(crate) use split_eqn::Input;
use splitter::Splitter;

use super::{expect_mask, memo};

/// The values that the staged part may take from the known part.
#[derive(Clone, Copy, Debug)]
pub enum Saving<'a> {
    /// Whatever it needs, except values that are cheap to compute from other residuals: plain differentiation.
    Residuals,
    /// Whatever it needs; a call-like equation without known results stays whole. For a program whose parts will be joined again:
    /// transposition.
    Linear,
    /// Inputs, and values that the policy saves: the inside of a checkpoint.
    Policy(&'a Policy),
    /// Inputs, and the values that a budget has chosen.
    Chosen(&'a Chosen),
}

impl Saving<'_> {
    /// Whether the staged part recomputes known values that are not saved. A policy that saves everything is plain differentiation.
    pub(crate) fn recomputes(self) -> bool {
        match self {
            Saving::Policy(policy) => !is_everything(policy),
            Saving::Chosen(_) => true,
            Saving::Residuals | Saving::Linear => false,
        }
    }

    /// Whether residuals that are cheap to compute from others are dropped.
    pub(crate) fn minimises(self) -> bool {
        match self {
            Saving::Residuals => true,
            Saving::Policy(policy) => is_everything(policy),
            Saving::Linear | Saving::Chosen(_) => false,
        }
    }
}

/// Whether a policy saves whatever is needed, and leaves it to others what that is: one that *must* save everything does not.
fn is_everything(policy: &Policy) -> bool {
    match policy {
        Policy::Everything => true,
        Policy::Prefer(policy) => is_everything(policy),
        _ => false,
    }
}

/// The source of a residual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResidualSource {
    /// This input of the known part.
    Input(usize),
    /// This output of the known part.
    Out(usize),
}

/// The two parts of a program.
#[derive(Clone, Debug)]
pub struct PartialEval {
    /// Takes the known inputs; returns the known outputs, then the residuals that are neither inputs nor outputs.
    pub known: Jaxpr,
    /// Takes the residuals, then the unknown inputs; returns the outputs in `staged_outs`.
    pub staged: Jaxpr,
    /// The outputs that are unknown.
    pub unknown_outs: Vec<bool>,
    /// The outputs that the staged part returns: the unknown ones, and known ones that it recomputes.
    pub staged_outs: Vec<bool>,
    /// The residuals, inputs first, in the order of the program.
    pub residuals: Vec<ResidualSource>,
    /// Variables of the known part and the named values that replace them, if residuals are dropped outside.
    pub(crate) named: Vec<(Var, Var)>,
}

impl PartialEval {
    /// The residuals, given the atoms of the inputs and outputs of the known part.
    pub(crate) fn residual_atoms(&self, known_ins: &[Atom], known_outs: &[Atom]) -> Vec<Atom> {
        let atom = |residual: &ResidualSource| match *residual {
            ResidualSource::Input(i) => known_ins[i],
            ResidualSource::Out(i) => known_outs[i],
        };
        self.residuals.iter().map(atom).collect()
    }

    /// The number of outputs of the known part that are outputs of the program.
    pub(crate) fn num_known_outs(&self) -> usize {
        self.unknown_outs.iter().filter(|u| !**u).count()
    }
}

/// Splits a program, given its unknown inputs. Only the staged part returns outputs in `force_unknown`.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::{ResidualSource, Saving, partial_eval};
/// // The jvp of sin: the tangent b is unknown, and the cosine is the residual.
/// let text = "{ lambda ; a:f32[] b:f32[]. let c:f32[] = sin a; d:f32[] = cos a; e:f32[] = mul b d in (c, e) }";
/// let parts = partial_eval(&text.parse()?, &[false, true], &[false, true], Saving::Residuals)?;
/// assert_eq!(parts.known.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = cos a in (b, c) }");
/// assert_eq!(parts.staged.to_string(), "{ lambda ; a:f32[] b:f32[]. let c:f32[] = mul b a in (c,) }");
/// assert_eq!(parts.residuals, [ResidualSource::Out(1)]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed, or an operation in it cannot be split.
pub fn partial_eval(
    jaxpr: &Jaxpr,
    unknown_ins: &[bool],
    force_unknown: &[bool],
    saving: Saving<'_>,
) -> Result<PartialEval> {
    partial_eval_logged(jaxpr, unknown_ins, force_unknown, saving, None)
}

/// As [`partial_eval`], with the decisions of policies written into the log, which requires numbered equations.
///
/// # Errors
/// As [`partial_eval`].
pub(crate) fn partial_eval_logged(
    jaxpr: &Jaxpr,
    unknown_ins: &[bool],
    force_unknown: &[bool],
    saving: Saving<'_>,
    log: Option<&Log>,
) -> Result<PartialEval> {
    expect_mask("partial_eval", "input", unknown_ins, jaxpr.ins.len())?;
    expect_mask("partial_eval", "output", force_unknown, jaxpr.outs.len())?;
    let input = |&unknown: &bool| if unknown { Input::Unknown } else { Input::Available };
    let ins: Vec<Input> = unknown_ins.iter().map(input).collect();
    let stage_outs = StageOuts::Unknown;
    let request = Request { ins: &ins, force_unknown, stage_outs, saving, is_minimised_outside: false, log };
    let Saving::Policy(policy) = saving else { return split(jaxpr, &request) };
    let Some(parts) = budget::budget_of("partial_eval", policy)? else { return split(jaxpr, &request) };
    let jaxpr = if log.is_some() { jaxpr.clone() } else { numbered(jaxpr) };
    let choice = budget::choose("partial_eval", &jaxpr, &request, parts)?;
    split(&jaxpr, &Request { saving: choice.saving(), ..request })
}

/// The options of a split.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The kinds of the inputs.
    pub(crate) ins: &'a [Input],
    /// The outputs that only the staged part returns.
    pub(crate) force_unknown: &'a [bool],
    pub(crate) stage_outs: StageOuts,
    pub(crate) saving: Saving<'a>,
    /// Whether both parts will be in programs that save in the same way, which then drop the cheap residuals: more is
    /// seen there.
    pub(crate) is_minimised_outside: bool,
    /// Where decisions are written.
    pub(crate) log: Option<&'a Log>,
}

/// The outputs that the staged part returns besides the unknown ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StageOuts {
    /// None.
    Unknown,
    /// The known ones that it recomputes: the body of a call inside a region.
    Recomputed,
    /// All: a loop or branch inside a region, whose bodies must agree.
    All,
}

/// As [`partial_eval`], with more options for inputs and outputs.
pub(crate) fn split(jaxpr: &Jaxpr, request: &Request<'_>) -> Result<PartialEval> {
    let _open = memo::open();
    let mut splitter = Splitter::new(jaxpr, request);
    for eqn in &jaxpr.eqns {
        splitter.equation(eqn)?;
    }
    splitter.finish(jaxpr, request)
}

/// The names that later equations give to each variable of a program.
fn labels(jaxpr: &Jaxpr) -> VarMap<Vec<Arc<str>>> {
    let mut labels = jaxpr.var_map(Vec::new());
    for eqn in &jaxpr.eqns {
        if let (Op::Prim(Prim::Name(op)), [Atom::Var(operand)]) = (&eqn.op, &eqn.ins[..]) {
            labels[*operand].extend(op.label().cloned());
        }
    }
    labels
}

/// A policy's decision about the results of an operation that later get these names, with its reason. A value that must not be saved under
/// its name is not saved without it either.
fn decide<'l>(
    policy: &Policy,
    op: &Op,
    ins: &[Aval],
    outs: &[Aval],
    mut labels: impl Iterator<Item = &'l Arc<str>>,
) -> (Decision, Reason) {
    let ask = |label| policy.decide(&Candidate { op, ins, outs, label });
    match ask(None) {
        Some(Decision::Save) => match labels.find(|label| ask(Some(label)).is_none_or(|d| d == Decision::Recompute)) {
            Some(label) => (Decision::Recompute, Reason::Named(label.clone())),
            None => (Decision::Save, Reason::Policy),
        },
        Some(decision) => (decision, Reason::Policy),
        None => (Decision::Recompute, Reason::Undecided),
    }
}
