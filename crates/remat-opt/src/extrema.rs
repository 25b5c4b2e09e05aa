//! Puts the operands of extrema behind barriers where they are compared with the result.
//!
//! ```text
//! extrema : b = mul a 2.0; c = cummax b; d = eq b c → b = mul a 2.0; e = optimization_barrier b; c = cummax e; d = eq b c
//! ```
//!
//! The derivative of an extremum finds the elements that are the extremum by comparing the operand with the result. An engine that computes
//! the operand twice, once with a fused multiplication and addition and once without, may find no such element, or others. Behind a barrier
//! it is computed once, and XLA's text reads the result of the barrier in place of the operand from then on.
//!
//! For the same reason the comparison is a residual, and is not computed again from an operand that is computed again. The larger of two
//! values is found by comparing them with each other. If a policy keeps the extremum alone, by its name, its operand is computed again and
//! may miss it.

use std::borrow::Cow;

use remat_ir::{
    AllReduceKind, Atom, Class, CumulativeKind, Eqn, Jaxpr, Op, OptimizationBarrier, Prim, ReduceKind, Result,
    ScatterKind, Var,
};

use crate::rewrite::{map_bodies, rewrite};
use crate::uses::{definitions, vars};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if compares(&jaxpr) { hold(&jaxpr).map(Cow::Owned) } else { Ok(jaxpr) }
}

/// Whether an extremum is compared with its operand, here or in a body.
fn compares(jaxpr: &Jaxpr) -> bool {
    let definitions = definitions(jaxpr);
    let is_selected = |eqn: &Eqn| selected_extremum(eqn, |var| definitions[var], &jaxpr.eqns).is_some();
    jaxpr.eqns.iter().any(|eqn| is_selected(eqn) || eqn.op.bodies().into_iter().any(|body| compares(body)))
}

fn hold(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    let definitions = definitions(jaxpr);
    let mut is_compared = vec![false; jaxpr.eqns.len()];
    for eqn in &jaxpr.eqns {
        if let Some(at) = selected_extremum(eqn, |var| definitions[var], &jaxpr.eqns) {
            is_compared[at] = true;
        }
    }
    let mut is_compared = is_compared.into_iter();
    rewrite(jaxpr, |b, op, mut ins, avals, loc| {
        if is_compared.next() == Some(true) {
            for atom in &mut ins {
                if atom.var().is_some() && b.aval(*atom).dtype.is_float() {
                    b.loc = loc;
                    *atom = b.emit1(OptimizationBarrier.into(), &[*atom])?;
                }
            }
        }
        let op = map_bodies(&op, hold)?;
        Ok(b.push(op, &ins, avals, loc).into_iter().map(Atom::Var).collect())
    })
}

/// Whether this equation compares an extremum among `eqns` with its operand. `definition` is the index of the equation that defines a
/// variable, and `is_argument` tells which variables are never computed again.
///
/// Such a comparison means something only for the bits from which the extremum was computed. So it must not be computed again from an
/// operand that is computed again, which engines may round differently.
pub fn finds_extremum(
    eqn: &Eqn,
    definition: impl Fn(Var) -> Option<usize>,
    eqns: &[Eqn],
    is_argument: impl Fn(Var) -> bool,
) -> bool {
    let is_of_argument = vars(eqn).any(is_argument);
    !is_of_argument && selected_extremum(eqn, definition, eqns).is_some()
}

/// The extremum among `eqns` whose operand this equation compares with its result, by its index.
fn selected_extremum(eqn: &Eqn, definition: impl Fn(Var) -> Option<usize>, eqns: &[Eqn]) -> Option<usize> {
    let (Op::Prim(Prim::Compare(_)), [Atom::Var(a), Atom::Var(b)]) = (&eqn.op, &eqn.ins[..]) else { return None };
    let origin = |mut var: Var| {
        // Each definition is before the one that reads it, but for values that an inlined program passes on.
        let mut before = eqns.len();
        while let Some(at) = definition(var).filter(|&at| at < before)
            && only_moves(&eqns[at].op)
            && let Some(Atom::Var(operand)) = eqns[at].ins.first()
        {
            (var, before) = (*operand, at);
        }
        var
    };
    let (a, b) = (origin(*a), origin(*b));
    [(a, b), (b, a)].into_iter().find_map(|(operand, result)| {
        let at = definition(result)?;
        let mut operands = vars(&eqns[at]);
        (is_extremum(&eqns[at].op) && operands.any(|var| origin(var) == operand)).then_some(at)
    })
}

fn is_extremum(op: &Op) -> bool {
    match op {
        Op::Prim(Prim::Reduce(op)) => matches!(op.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Prim(Prim::Cumulative(op)) => matches!(op.kind, CumulativeKind::Max | CumulativeKind::Min),
        Op::Prim(Prim::Scatter(op)) => matches!(op.kind, ScatterKind::Max | ScatterKind::Min),
        Op::Prim(Prim::AllReduce(op)) => matches!(op.kind, AllReduceKind::Max | AllReduceKind::Min),
        _ => false,
    }
}

/// Whether the result has elements of the first operand.
fn only_moves(op: &Op) -> bool {
    op.class() == Class::View || matches!(op, Op::Prim(Prim::Name(_) | Prim::StopGradient(_) | Prim::Gather(_)))
}
