//! `jit` and `checkpoint`: one body, called once.

use std::sync::Arc;

use remat_ir::{Atom, Builder, Checkpoint, Eqn, Error, ErrorKind, Jaxpr, Jit, Op, Result, Var, Vars};

use super::super::partial_eval::{PartialEval, Residual, Saving, StageOuts, split};
use super::super::partial_eval::reach::unknown_outs;
use super::super::partial_eval::splitter::Splitter;
use super::super::{dce as dce_jaxpr, jvp as jvp_jaxpr, select, transpose as transpose_jaxpr, vmap as vmap_jaxpr};
use super::{Pruned, batched_mask, batched_outs, fronted, known, present, push, spread};
use crate::rules::{Batched, Linear, Operand};

/// An operation that calls one program.
pub(super) trait Call {
    fn body(&self) -> &Arc<Jaxpr>;
    /// The same call of another program.
    fn of(&self, body: Jaxpr) -> Op;
    /// The call of the backward pass of the program.
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
    let jvp = jvp_jaxpr(body, &nonzero, &vec![false; body.outs.len()])?;
    let operands = [ins, &present(tangents)].concat();
    let mut outs = push(b, op.of(jvp.jaxpr.clone()), &operands, &jvp.jaxpr);
    let out_tangents = outs.split_off(body.outs.len());
    Ok((outs, spread(&jvp.nonzero, out_tangents)))
}

pub(super) fn dce(op: &impl Call, used_outs: &[bool]) -> Result<Pruned> {
    let body = op.body();
    let pruned = dce_jaxpr(body, used_outs, &vec![false; body.ins.len()])?;
    Ok(Pruned { op: op.of(pruned.jaxpr), used_ins: pruned.used_ins, kept_outs: used_outs.to_vec() })
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

pub(super) fn vmap(b: &mut Builder, op: &impl Call, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
    let body = op.body();
    let vmapped = vmap_jaxpr(body, size, &batched_mask(ins), &vec![false; body.outs.len()])?;
    let operands = fronted(b, size, ins)?;
    let outs = push(b, op.of(vmapped.jaxpr.clone()), &operands, &vmapped.jaxpr);
    Ok(batched_outs(outs, &vmapped.batched_outs))
}

pub(super) fn split_jit(splitter: &mut Splitter<'_>, eqn: &Eqn, op: &Jit, any_unknown: bool) -> Result<bool> {
    let saving = match splitter.saving {
        Saving::Residuals if !any_unknown => return Ok(false),
        Saving::Linear if !any_unknown || !has_known_outs(splitter, eqn, op) => return Ok(false),
        Saving::Residuals | Saving::Linear => Saving::Residuals,
        policy @ Saving::Policy(_) => policy,
    };
    let is_inside_region = matches!(saving, Saving::Policy(_));
    let stage_outs = if is_inside_region { StageOuts::Recomputed } else { StageOuts::Unknown };
    let parts = split_body(splitter, eqn, op, stage_outs, saving)?;
    let known_outs = push_known_call(splitter, eqn, op, &parts);
    push_staged_call(splitter, eqn, op.of(parts.staged.clone()), &parts, &known_outs);
    Ok(true)
}

pub(super) fn split_checkpoint(
    splitter: &mut Splitter<'_>,
    eqn: &Eqn,
    op: &Checkpoint,
    any_unknown: bool,
) -> Result<bool> {
    let is_inside_region = match splitter.saving {
        Saving::Residuals if !any_unknown => return Ok(false),
        Saving::Linear if !any_unknown || !has_known_outs(splitter, eqn, op) => return Ok(false),
        Saving::Residuals | Saving::Linear => false,
        Saving::Policy(_) => true,
    };
    if let Some(name) = op.policy.missing_callable() {
        let message =
            format!("the policy `{name}` is a callable, and the program that was read from text has its name only");
        return Err(Error::new(ErrorKind::Policy, "checkpoint", message).at(eqn.loc));
    }
    let saving = match splitter.saving {
        // The policy of the outer region alone decides what the forward pass keeps.
        outer @ Saving::Policy(_) => outer,
        Saving::Residuals | Saving::Linear => Saving::Policy(&op.policy),
    };
    let stage_outs = if is_inside_region { StageOuts::Recomputed } else { StageOuts::Unknown };
    let parts = split_body(splitter, eqn, op, stage_outs, saving)?;
    let known_outs = if is_inside_region {
        push_known_call(splitter, eqn, op, &parts)
    } else {
        let known_ins = known_atoms(splitter, eqn);
        let outs = known_out_vars(splitter, eqn, &parts);
        splitter.inline_known(&parts.known, &known_ins, &outs)?;
        outs
    };
    let staged = op.of_transposed(parts.staged.clone());
    push_staged_call(splitter, eqn, staged, &parts, &known_outs);
    Ok(true)
}

/// Whether some result does not depend on unknown operands.
fn has_known_outs(splitter: &Splitter<'_>, eqn: &Eqn, op: &impl Call) -> bool {
    let unknown: Vec<bool> = eqn.ins.iter().map(|&a| splitter.is_unknown(a)).collect();
    unknown_outs(op.body(), &unknown).contains(&false)
}

fn split_body(
    splitter: &Splitter<'_>,
    eqn: &Eqn,
    op: &impl Call,
    stage_outs: StageOuts,
    saving: Saving<'_>,
) -> Result<PartialEval> {
    let unknown: Vec<bool> = eqn.ins.iter().map(|&a| splitter.is_unknown(a)).collect();
    // The inputs of a region are always kept.
    let is_region = matches!(saving, Saving::Policy(_)) && !matches!(splitter.saving, Saving::Policy(_));
    let at_hand: Vec<bool> = eqn.ins.iter().map(|&a| is_region || splitter.is_at_hand(a)).collect();
    let body = op.body();
    split(body, &unknown, &vec![false; body.outs.len()], stage_outs, saving, &at_hand)
}

fn known_atoms(splitter: &Splitter<'_>, eqn: &Eqn) -> Vec<Atom> {
    eqn.ins.iter().copied().filter(|&a| !splitter.is_unknown(a)).collect()
}

/// The variables for the outputs of the known part: those of the equation, then new ones for residuals.
fn known_out_vars(splitter: &mut Splitter<'_>, eqn: &Eqn, parts: &PartialEval) -> Vec<Var> {
    let mut outs: Vec<_> = eqn.outs.iter().zip(&parts.unknown_outs).filter(|(_, u)| !**u).map(|(&v, _)| v).collect();
    for aval in parts.known.out_avals().into_iter().skip(outs.len()) {
        outs.push(splitter.new_var(aval));
    }
    outs
}

fn push_known_call(splitter: &mut Splitter<'_>, eqn: &Eqn, op: &impl Call, parts: &PartialEval) -> Vec<Var> {
    let known_ins = known_atoms(splitter, eqn);
    let outs = known_out_vars(splitter, eqn, parts);
    if !outs.is_empty() {
        let vars: Vars = outs.iter().copied().collect();
        splitter.push_known(op.of(parts.known.clone()), known_ins.into_iter().collect(), vars, eqn.loc);
    }
    outs
}

fn push_staged_call(splitter: &mut Splitter<'_>, eqn: &Eqn, op: Op, parts: &PartialEval, known_outs: &[Var]) {
    let outs: Vars = select(&eqn.outs, &parts.staged_outs).into();
    if outs.is_empty() {
        return;
    }
    let known_ins = known_atoms(splitter, eqn);
    let residual = |r: &Residual| match *r {
        Residual::Input(i) => known_ins[i],
        Residual::Out(i) => Atom::Var(known_outs[i]),
    };
    let unknown_ins = eqn.ins.iter().copied().filter(|&a| splitter.is_unknown(a));
    let ins = parts.residuals.iter().map(residual).chain(unknown_ins).collect();
    let unknown = select(&parts.unknown_outs, &parts.staged_outs);
    splitter.push_staged(op, ins, outs, &unknown, eqn.loc);
}
