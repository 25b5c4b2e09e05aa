//! The rules of `while`, a loop that runs while a condition holds.

use std::sync::Arc;

use remat_ir::{Atom, Builder, Error, ErrorKind, Jaxpr, Op, Result, While};

use super::super::Batch;
use super::super::partial_eval::split_eqn::{Context, SplitEqn, StagedEqn, StagedIn, StagedOut, program_of};
use super::super::partial_eval::{PartialEval, Saving, partial_eval};
use super::super::{count, dce as dce_jaxpr, invert, jvp_body, select, vmap_batch as vmap_jaxpr};
use super::{batched_mask, batched_outs, front, present, push, select_example, spread};
use crate::rules::{Batched, Emit, Linear};

fn groups<'t, T>(op: &While, items: &'t [T]) -> (&'t [T], &'t [T], &'t [T]) {
    let (cond_consts, rest) = items.split_at(op.cond_consts);
    let (body_consts, carry) = rest.split_at(op.body_consts);
    (cond_consts, body_consts, carry)
}

/// The error of reverse mode.
pub(super) fn no_reverse_mode(_: &While) -> Error {
    let message = "reverse-mode differentiation needs the states of all iterations, and their number is not known; for a first \
                   derivative use `while_loop_checkpointed`, which keeps a bounded number of states; for one of any order use \
                   `scan` or `fori_loop`, with a known number of iterations";
    Error::new(ErrorKind::Differentiation, "while", message)
}

/// A condition that takes additional carries; it reads those in the mask.
fn widen_condition(cond: &Jaxpr, num_consts: usize, carry: Vec<remat_ir::Aval>, is_old: &[bool]) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let consts = b.inputs(cond.in_avals().into_iter().take(num_consts));
    let carry = b.inputs(carry);
    let outs = b.inline(cond, &[consts, select(&carry, is_old)].concat())?;
    Ok(b.finish(outs))
}

pub(super) fn jvp(b: &mut Builder, op: &While, ins: &[Atom], tangents: &[Option<Atom>]) -> Result<(Vec<Atom>, Linear)> {
    let (cond_consts, body_consts, carry) = groups(op, ins);
    let (_, const_tangents, carry_tangents) = groups(op, tangents);
    let const_nonzero: Vec<bool> = const_tangents.iter().map(Option::is_some).collect();
    let mut carry_nonzero: Vec<bool> = carry_tangents.iter().map(Option::is_some).collect();
    let body = loop {
        let nonzero = [const_nonzero.clone(), carry_nonzero.clone()].concat();
        let body = jvp_body(&op.body, &nonzero, &carry_nonzero)?;
        if body.nonzero == carry_nonzero {
            break body;
        }
        carry_nonzero = body.nonzero;
    };
    let mut carry_in = carry.to_vec();
    for (i, &tangent) in carry_tangents.iter().enumerate() {
        if carry_nonzero[i] {
            let aval = b.aval(carry[i]);
            carry_in.push(b.instantiate(tangent, &aval)?);
        }
    }
    // Inputs are constants, carries, then the tangents of both; a loop takes constants and their tangents first.
    let mut jaxpr = body.jaxpr;
    let num_const_tangents = const_nonzero.iter().filter(|n| **n).count();
    let (primals, tangent_ins) = jaxpr.ins.split_at(op.body_consts + carry.len());
    let (consts, carries) = primals.split_at(op.body_consts);
    let (tangent_consts, tangent_carries) = tangent_ins.split_at(num_const_tangents);
    jaxpr.ins = [consts, tangent_consts, carries, tangent_carries].concat();

    let carry_avals = carry_in.iter().map(|&a| b.aval(a)).collect();
    let is_old: Vec<bool> = (0..carry_in.len()).map(|i| i < carry.len()).collect();
    let cond = widen_condition(&op.cond, op.cond_consts, carry_avals, &is_old)?;
    let loop_ = While {
        cond: Arc::new(cond),
        body: Arc::new(jaxpr.clone()),
        cond_consts: op.cond_consts,
        body_consts: op.body_consts + num_const_tangents,
    };
    let operands = [cond_consts, body_consts, &present(const_tangents), &carry_in].concat();
    let mut outs = push(b, loop_.into(), &operands, &jaxpr);
    let out_tangents = outs.split_off(carry.len());
    Ok((outs, spread(&carry_nonzero, out_tangents)))
}

/// A separate loop computes the known carries. The staged loop runs everything again: the number of iterations is unknown, so nothing can
/// be stacked.
pub(super) fn split(op: &While, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    if !eqn.any_unknown() {
        return Ok(None);
    }
    let unknown = eqn.unknown();
    let (cond_consts, body_consts, carry) = groups(op, &unknown);
    let (parts, carry) = split_body(op, body_consts, carry)?;
    let condition_reads = dce_jaxpr(&op.cond, &[true], &vec![false; op.cond.ins.len()])?.used_ins;
    let is_unknown_condition =
        condition_reads.iter().zip(cond_consts.iter().chain(&carry)).any(|(&read, &unknown)| read && unknown);
    if is_unknown_condition || !carry.contains(&false) {
        return Ok(None);
    }
    let known = known_loop(op, eqn, parts, body_consts, &carry)?;
    // If known values are computed again, the known carries are taken from the staged loop, so that they need not be kept; otherwise
    // nothing reads them there.
    let recomputes = eqn.saving.recomputes();
    let out = |(i, &unknown): (usize, &bool)| {
        if unknown || recomputes { StagedOut::Result(i) } else { StagedOut::Unused(i) }
    };
    let staged = StagedEqn {
        // The known loop has the effects.
        op: Op::from(op.clone()).without_effects(),
        ins: (0..eqn.ins.len()).map(StagedIn::Operand).collect(),
        outs: carry.iter().enumerate().map(out).collect(),
    };
    Ok(Some(SplitEqn { known, unknown_outs: carry, staged: Some(staged), is_chosen: false, named: Vec::new() }))
}

/// The split of the body, and the unknown carries: those that start unknown, and those that the body computes from unknown values.
fn split_body(op: &While, body_consts: &[bool], carry: &[bool]) -> Result<(PartialEval, Vec<bool>)> {
    let mut carry = carry.to_vec();
    loop {
        let parts = partial_eval(&op.body, &[body_consts, &carry].concat(), &carry, Saving::Linear)?;
        if parts.unknown_outs == carry {
            return Ok((parts, carry));
        }
        carry.copy_from_slice(&parts.unknown_outs);
    }
}

/// The loop of the known carries.
fn known_loop(
    op: &While,
    eqn: &Context<'_>,
    parts: PartialEval,
    unknown_body_consts: &[bool],
    unknown_carry: &[bool],
) -> Result<Jaxpr> {
    let known_body_consts = invert(unknown_body_consts);
    let known_carry = invert(unknown_carry);
    let is_known_out: Vec<bool> = (0..parts.known.outs.len()).map(|i| i < parts.num_known_outs()).collect();
    let body = dce_jaxpr(&parts.known, &is_known_out, &vec![true; parts.known.ins.len()])?.jaxpr;
    let keep = [vec![true; op.cond_consts], known_carry.clone()].concat();
    let out_avals = body.out_avals();
    let loop_ = While {
        cond: Arc::new(dce_jaxpr(&op.cond, &[true], &keep)?.jaxpr),
        body: Arc::new(body),
        cond_consts: op.cond_consts,
        body_consts: count(&known_body_consts),
    };
    Ok(program_of(loop_.into(), eqn.known_avals(), out_avals, eqn.loc))
}

pub(super) fn vmap(b: &mut Builder, op: &While, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let (cond_consts, body_consts, carry) = groups(op, &batched);
    let mut carry = carry.to_vec();
    let (cond, body) = loop {
        let body = vmap_jaxpr(&op.body, batch, &[body_consts, &carry].concat(), &carry)?;
        let cond = vmap_jaxpr(&op.cond, batch, &[cond_consts, &carry].concat(), &[false])?;
        // Examples that end at different times all continue until the last one ends, so each carry needs a batch.
        let needed: Vec<bool> = body.batched_outs.iter().map(|&o| o || cond.batched_outs[0]).collect();
        if needed == carry {
            break (cond, body);
        }
        carry = needed;
    };
    let mut operands = Vec::with_capacity(ins.len());
    let wanted = [cond_consts, body_consts, &carry].concat();
    for (&x, &is_batched) in ins.iter().zip(&wanted) {
        operands.push(if is_batched { front(b, batch.size, x)? } else { x.atom });
    }
    let avals: Vec<_> = operands.iter().map(|&a| b.aval(a)).collect();
    let (cond_avals, body_avals, carry_avals) = groups(op, &avals);
    let loop_ = if cond.batched_outs[0] {
        let any = {
            let mut b = Builder::new();
            let ins = b.inputs(cond_avals.iter().chain(carry_avals).cloned());
            let going = b.inline(&cond.jaxpr, &ins)?;
            let any =
                b.apply(remat_ir::Reduce { kind: remat_ir::ReduceKind::Or, axes: [0].into_iter().collect() }, &going)?;
            b.finish(vec![any])
        };
        // The body freezes the examples that have ended, so it needs the operands of the condition, whose effects have happened.
        let frozen = {
            let mut b = Builder::new();
            let cond_ins = b.inputs(cond_avals.iter().cloned());
            let body_ins = b.inputs(body_avals.iter().cloned());
            let old = b.inputs(carry_avals.iter().cloned());
            let going = b.inline(&cond.jaxpr.without_effects(), &[cond_ins, old.clone()].concat())?[0];
            let new = b.inline(&body.jaxpr, &[body_ins, old.clone()].concat())?;
            let mut outs = Vec::with_capacity(old.len());
            for (&old, &new) in old.iter().zip(&new) {
                outs.push(select_example(&mut b, going, &[old, new])?);
            }
            b.finish(outs)
        };
        While {
            cond: Arc::new(any),
            body: Arc::new(frozen),
            cond_consts: op.cond_consts,
            body_consts: op.cond_consts + op.body_consts,
        }
    } else {
        While { cond: Arc::new(cond.jaxpr.clone()), body: Arc::new(body.jaxpr.clone()), ..op.clone() }
    };
    if cond.batched_outs[0] {
        let cond_operands: Vec<Atom> = operands[..op.cond_consts].to_vec();
        operands.splice(op.cond_consts..op.cond_consts, cond_operands);
    }
    let body = loop_.body.clone();
    let outs = push(b, loop_.into(), &operands, &body);
    Ok(batched_outs(outs, &carry))
}
