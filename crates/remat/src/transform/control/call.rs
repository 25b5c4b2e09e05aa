//! The rules of `jit` and `checkpoint`, which call one body once.

use std::sync::Arc;

use remat_ir::{Atom, Budgeted, Builder, Checkpoint, Error, ErrorKind, Jaxpr, Jit, Op, Result};

use super::super::Batch;
use super::super::partial_eval::budget::{Choice, budget_of, choose};
use super::super::partial_eval::log::numbered;
use super::super::partial_eval::reach::unknown_outs;
use super::super::partial_eval::split_eqn::{Context, SplitEqn, program_of};
use super::super::partial_eval::{Input, PartialEval, Request, Saving, StageOuts, split};
use super::super::{jvp_body, transpose as transpose_jaxpr, vmap_batch as vmap_jaxpr};
use super::{batched_mask, batched_outs, fronted, known, present, push, spread};
use crate::rules::{Batched, Linear, Operand};

/// An operation that calls one program.
pub(super) trait Call {
    fn body(&self) -> &Arc<Jaxpr>;
    /// The same call with another body.
    fn of(&self, body: Jaxpr) -> Op;
    /// The call of the body's backward pass.
    fn of_transposed(&self, body: Jaxpr) -> Op;
}

impl Call for Jit {
    fn body(&self) -> &Arc<Jaxpr> {
        &self.jaxpr
    }

    fn of(&self, body: Jaxpr) -> Op {
        Jit { name: self.name.clone(), jaxpr: Arc::new(body) }.into()
    }

    fn of_transposed(&self, body: Jaxpr) -> Op {
        self.of(body)
    }
}

impl Call for Checkpoint {
    fn body(&self) -> &Arc<Jaxpr> {
        &self.jaxpr
    }

    fn of(&self, body: Jaxpr) -> Op {
        Checkpoint { jaxpr: Arc::new(body), ..self.clone() }.into()
    }

    fn of_transposed(&self, body: Jaxpr) -> Op {
        Checkpoint { jaxpr: Arc::new(body), differentiated: true, policy: self.policy.clone() }.into()
    }
}

pub(super) fn jvp(
    b: &mut Builder,
    op: &impl Call,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<(Vec<Atom>, Linear)> {
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let body = op.body();
    let jvp = jvp_body(body, &nonzero, &vec![false; body.outs.len()])?;
    let operands = [ins, &present(tangents)].concat();
    let mut outs = push(b, op.of(jvp.jaxpr.clone()), &operands, &jvp.jaxpr);
    let out_tangents = outs.split_off(body.outs.len());
    Ok((outs, spread(&jvp.nonzero, out_tangents)))
}

pub(super) fn transpose(
    b: &mut Builder,
    op: &impl Call,
    cotangents: &[Option<Atom>],
    ins: &[Operand],
) -> Result<Linear> {
    let linear: Vec<bool> = ins.iter().map(Operand::is_linear).collect();
    let has_cotangent: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    let transposed = transpose_jaxpr(op.body(), &linear, &has_cotangent, false)?;
    let operands = [known(ins), present(cotangents)].concat();
    let outs = push(b, op.of_transposed(transposed.jaxpr.clone()), &operands, &transposed.jaxpr);
    let cts = spread(&transposed.nonzero, outs);
    Ok(spread(&linear, cts).into_iter().map(Option::flatten).collect())
}

pub(super) fn vmap(b: &mut Builder, op: &impl Call, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    let body = op.body();
    let vmapped = vmap_jaxpr(body, batch, &batched_mask(ins), &vec![false; body.outs.len()])?;
    let operands = fronted(b, batch.size, ins)?;
    let outs = push(b, op.of(vmapped.jaxpr.clone()), &operands, &vmapped.jaxpr);
    Ok(batched_outs(outs, &vmapped.batched_outs))
}

pub(super) fn split_jit(op: &Jit, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    let Some(saving) = eqn.saving_of_bodies(|| has_known_outs(op, eqn)) else { return Ok(None) };
    let parts = split_body(&op.jaxpr, eqn, eqn.ins, saving, false)?;
    let known = known_call(op, &parts, eqn);
    let staged = op.of(parts.staged.clone());
    Ok(Some(SplitEqn::of_call(parts, known, staged, eqn)))
}

pub(super) fn split_checkpoint(op: &Checkpoint, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    let Some(saving) = eqn.saving_of_bodies(|| has_known_outs(op, eqn)) else { return Ok(None) };
    if let Some(name) = op.policy.missing_callable() {
        let message =
            format!("the policy `{name}` is a callable, and the program that was read from text has its name only");
        return Err(Error::new(ErrorKind::Policy, "checkpoint", message).at(eqn.loc));
    }
    let budget = budget_of("checkpoint", &op.policy).map_err(|error| error.at(eqn.loc))?;
    // The policy of the outer region alone decides what the forward pass keeps.
    let is_outermost = matches!(saving, Saving::Residuals | Saving::Linear);
    if is_outermost {
        eqn.log.inspect(|log| log.enter(eqn.loc, &op.policy));
    }
    let choice = match budget {
        Some(budget) if is_outermost => Some(within_budget(op, eqn, budget)?),
        _ => None,
    };
    let (body, saving) = match &choice {
        Some((body, choice)) => (body, choice.saving()),
        None if is_outermost => (&op.jaxpr, Saving::Policy(&op.policy)),
        None => (&op.jaxpr, saving),
    };
    let is_plain = !saving.recomputes() && eqn.saving.minimises();
    let (parts, known);
    if eqn.saving.recomputes() {
        parts = split_body(body, eqn, eqn.ins, saving, false)?;
        known = known_call(op, &parts, eqn);
    } else {
        let ins = if is_plain { eqn.ins.to_vec() } else { region_inputs(eqn) };
        parts = split_body(body, eqn, &ins, saving, is_plain)?;
        known = parts.known.clone();
    }
    let staged = op.of_transposed(parts.staged.clone());
    let is_chosen = matches!(choice, Some((_, Choice::Values(_))));
    Ok(Some(SplitEqn { is_chosen, ..SplitEqn::of_call(parts, known, staged, eqn) }))
}

/// The choice of a region with a budget, and its body with the numbers that the choice refers to.
fn within_budget(op: &Checkpoint, eqn: &Context<'_>, budget: Budgeted) -> Result<(Arc<Jaxpr>, Choice)> {
    let body = if eqn.log.is_some() { op.jaxpr.clone() } else { Arc::new(numbered(&op.jaxpr)) };
    let force_unknown = vec![false; body.outs.len()];
    let request = Request {
        ins: &region_inputs(eqn),
        force_unknown: &force_unknown,
        stage_outs: StageOuts::Unknown,
        saving: Saving::Policy(&op.policy),
        is_minimised_outside: false,
        log: eqn.log,
    };
    let choice = choose("checkpoint", &body, &request, budget).map_err(|error| error.at(eqn.loc))?;
    Ok((body, choice))
}

/// The kinds of the operands as inputs of a region that computes values again.
fn region_inputs(eqn: &Context<'_>) -> Vec<Input> {
    let input = |&i: &Input| if i == Input::Known { Input::Region } else { i };
    eqn.ins.iter().map(input).collect()
}

/// Whether some result does not depend on unknown operands, or an effect may not.
fn has_known_outs(op: &impl Call, eqn: &Context<'_>) -> bool {
    unknown_outs(op.body(), &eqn.unknown()).contains(&false) || op.body().has_effect()
}

fn split_body(
    body: &Jaxpr,
    eqn: &Context<'_>,
    ins: &[Input],
    saving: Saving<'_>,
    is_minimised_outside: bool,
) -> Result<PartialEval> {
    let stage_outs = if eqn.saving.recomputes() { StageOuts::Recomputed } else { StageOuts::Unknown };
    let force_unknown = vec![false; body.outs.len()];
    split(body, &Request { ins, force_unknown: &force_unknown, stage_outs, saving, is_minimised_outside, log: eqn.log })
}

/// The call of the known part.
fn known_call(op: &impl Call, parts: &PartialEval, eqn: &Context<'_>) -> Jaxpr {
    program_of(op.of(parts.known.clone()), eqn.known_avals(), parts.known.out_avals(), eqn.loc)
}
