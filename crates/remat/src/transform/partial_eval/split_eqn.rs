//! The input and the result of a partial evaluation rule for an equation with bodies.
//!
//! ```text
//! split : eqn, what is known of its operands
//!     → known program { lambda ; known operands. -> known results, residuals }
//!     × staged equation over residuals and operands
//! ```
//!
//! A rule is a function: it knows neither the enclosing program nor its variables. JAX's rules have the same form and return `(eqn_known,
//! eqn_staged, unks_out, inst_out, new_residuals)`.

use remat_ir::{Aval, Builder, Jaxpr, Loc, Op, Var};

use super::super::{count, select};
use super::log::Log;
use super::{PartialEval, ResidualSource, Saving};

/// What partial evaluation knows about an input of a program or an operand of an equation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// The value comes later, like that of a tangent.
    Unknown,
    /// The value is known, and is kept if the staged part reads it.
    Known,
    /// As `Known`, for an input of a checkpointed region. If the staged part reads a `name` of it, the input is kept instead of the named
    /// value.
    Region,
    /// The value is known, and is kept in any case: an argument of the user's function.
    Available,
}

impl Input {
    /// Whether the value comes later.
    pub(crate) fn is_unknown(self) -> bool {
        self == Input::Unknown
    }
}

/// The context of an equation with bodies, as its rule sees it.
pub(crate) struct Context<'a> {
    /// The kind of each operand.
    pub(crate) ins: &'a [Input],
    /// The aval of each operand.
    pub(crate) avals: &'a [Aval],
    /// What the enclosing program may save.
    pub(crate) saving: Saving<'a>,
    pub(crate) loc: Loc,
    /// The log of decisions.
    pub(crate) log: Option<&'a Log>,
}

impl<'a> Context<'a> {
    pub(crate) fn any_unknown(&self) -> bool {
        self.ins.contains(&Input::Unknown)
    }

    /// The operands that are unknown.
    pub(crate) fn unknown(&self) -> Vec<bool> {
        self.ins.iter().map(|i| i.is_unknown()).collect()
    }

    /// The positions of the known operands.
    pub(crate) fn known(&self) -> Vec<usize> {
        (0..self.ins.len()).filter(|&i| !self.ins[i].is_unknown()).collect()
    }

    /// The avals of the known operands.
    pub(crate) fn known_avals(&self) -> Vec<Aval> {
        self.known().into_iter().map(|i| self.avals[i].clone()).collect()
    }

    /// How the bodies of the equation are split. `None` if it is treated as one operation: if all of it is known, or if it will be
    /// transposed and has no known results.
    pub(crate) fn saving_of_bodies(&self, has_known_outs: impl FnOnce() -> bool) -> Option<Saving<'a>> {
        match self.saving {
            Saving::Policy(_) | Saving::Chosen(_) if self.saving.recomputes() => Some(self.saving),
            Saving::Policy(_) | Saving::Chosen(_) | Saving::Residuals => self.any_unknown().then_some(self.saving),
            Saving::Linear => (self.any_unknown() && has_known_outs()).then_some(Saving::Residuals),
        }
    }
}

/// The two parts of an equation.
pub(crate) struct SplitEqn {
    /// Maps the known operands to the known results, then the residuals. It is copied into the known part.
    pub(crate) known: Jaxpr,
    /// The results that are unknown.
    pub(crate) unknown_outs: Vec<bool>,
    /// The equation of the staged part; `None` if nothing is left for it.
    pub(crate) staged: Option<StagedEqn>,
    /// Whether a budget has chosen the residuals, so that no cheaper ones are looked for.
    pub(crate) is_chosen: bool,
    /// Variables of `known` and the named values that replace them, also in the enclosing program.
    pub(crate) named: Vec<(Var, Var)>,
}

/// The equation in the staged part.
pub(crate) struct StagedEqn {
    pub(crate) op: Op,
    pub(crate) ins: Vec<StagedIn>,
    pub(crate) outs: Vec<StagedOut>,
}

/// An operand of a staged equation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StagedIn {
    /// This operand of the equation.
    Operand(usize),
    /// This output of the known program: a known result or a residual.
    Known(usize),
}

/// A result of a staged equation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StagedOut {
    /// This result of the equation; a known one is recomputed.
    Result(usize),
    /// This result of the equation, which is not read here.
    Unused(usize),
}

impl SplitEqn {
    /// A call whose body was split; `known` and `op` are the calls of both parts.
    pub(crate) fn of_call(parts: PartialEval, known: Jaxpr, op: Op, eqn: &Context<'_>) -> SplitEqn {
        let known_operands = eqn.known();
        let residual = |r: &ResidualSource| match *r {
            ResidualSource::Input(i) => StagedIn::Operand(known_operands[i]),
            ResidualSource::Out(i) => StagedIn::Known(i),
        };
        let unknown_operands = (0..eqn.ins.len()).filter(|&i| eqn.ins[i].is_unknown()).map(StagedIn::Operand);
        let ins = parts.residuals.iter().map(residual).chain(unknown_operands).collect();
        SplitEqn {
            known,
            staged: StagedEqn::of_outs(op, ins, &parts.staged_outs),
            unknown_outs: parts.unknown_outs,
            is_chosen: false,
            named: parts.named,
        }
    }

    /// The number of known results.
    pub(crate) fn num_known_outs(&self) -> usize {
        self.unknown_outs.len() - count(&self.unknown_outs)
    }
}

impl StagedEqn {
    /// An equation with the results in the mask; `None` if there are none.
    pub(crate) fn of_outs(op: Op, ins: Vec<StagedIn>, staged_outs: &[bool]) -> Option<StagedEqn> {
        let all: Vec<StagedOut> = (0..staged_outs.len()).map(StagedOut::Result).collect();
        let outs = select(&all, staged_outs);
        (!outs.is_empty() || op.has_effect()).then_some(StagedEqn { op, ins, outs })
    }
}

/// A program of one equation, or of none if the operation has neither results nor effects.
pub(crate) fn program_of(op: Op, in_avals: Vec<Aval>, out_avals: Vec<Aval>, loc: Loc) -> Jaxpr {
    let mut b = Builder::new();
    let ins = b.inputs(in_avals);
    if out_avals.is_empty() && !op.has_effect() {
        return b.finish(Vec::new());
    }
    let outs = b.push(op, &ins, out_avals, loc);
    b.finish(outs.into_iter().map(Into::into).collect())
}
