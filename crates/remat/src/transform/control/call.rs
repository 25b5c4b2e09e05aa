//! The rules of `jit` and `checkpoint`, which call one body once.

use std::sync::Arc;

use remat_ir::{Atom, Builder, Checkpoint, Error, ErrorKind, Jaxpr, Jit, Op, Result};

use super::super::Batch;
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
    let parts = split_body(op, eqn, eqn.ins, saving, false)?;
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
    // The policy of the outer region alone decides what the forward pass keeps.
    let saving = match saving {
        Saving::Policy(_) => saving,
        Saving::Residuals | Saving::Linear => {
            eqn.log.inspect(|log| log.enter(eqn.loc, &op.policy));
            Saving::Policy(&op.policy)
        }
    };
    let is_plain = !saving.recomputes() && eqn.saving.minimises();
    let (parts, known);
    if eqn.saving.recomputes() {
        parts = split_body(op, eqn, eqn.ins, saving, false)?;
        known = known_call(op, &parts, eqn);
    } else {
        let input = |&i: &Input| if i == Input::Known && !is_plain { Input::Region } else { i };
        let ins: Vec<Input> = eqn.ins.iter().map(input).collect();
        parts = split_body(op, eqn, &ins, saving, is_plain)?;
        known = parts.known.clone();
    }
    let staged = op.of_transposed(parts.staged.clone());
    Ok(Some(SplitEqn::of_call(parts, known, staged, eqn)))
}

/// Whether some result does not depend on unknown operands.
fn has_known_outs(op: &impl Call, eqn: &Context<'_>) -> bool {
    unknown_outs(op.body(), &eqn.unknown()).contains(&false)
}

fn split_body(
    op: &impl Call,
    eqn: &Context<'_>,
    ins: &[Input],
    saving: Saving<'_>,
    is_minimised_outside: bool,
) -> Result<PartialEval> {
    let stage_outs = if eqn.saving.recomputes() { StageOuts::Recomputed } else { StageOuts::Unknown };
    let force_unknown = vec![false; op.body().outs.len()];
    split(
        op.body(),
        &Request { ins, force_unknown: &force_unknown, stage_outs, saving, is_minimised_outside, log: eqn.log },
    )
}

/// The call of the known part.
fn known_call(op: &impl Call, parts: &PartialEval, eqn: &Context<'_>) -> Jaxpr {
    program_of(op.of(parts.known.clone()), eqn.known_avals(), parts.known.out_avals(), eqn.loc)
}
