//! The rules of `scan`, a loop over the first axis.

mod split;

pub(super) use split::split;

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, Jaxpr, Result, Scan};

use super::super::Batch;
use super::super::{jvp_body, transpose as transpose_jaxpr, vmap_batch as vmap_jaxpr};
use super::{batched_mask, front, known, present, spread};
use crate::rules::{Batched, Emit, Linear, Operand};

/// The three groups of operands and inputs: constants, carries, stacked inputs.
fn groups<'t, T>(op: &Scan, items: &'t [T]) -> (&'t [T], &'t [T], &'t [T]) {
    let (consts, rest) = items.split_at(op.num_consts);
    let (carry, xs) = rest.split_at(op.num_carry);
    (consts, carry, xs)
}

/// The same loop over another body.
fn of(op: &Scan, body: Jaxpr, num_consts: usize, num_carry: usize) -> Scan {
    Scan { jaxpr: Arc::new(body), num_consts, num_carry, ..op.clone() }
}

/// Adds the loop. Stacked outputs are slices of the body with the length in front.
fn push(b: &mut Builder, op: Scan, ins: &[Atom]) -> Vec<Atom> {
    let loc = b.loc;
    let avals = out_avals(&op);
    b.push(op.into(), ins, avals, loc).into_iter().map(Atom::Var).collect()
}

fn out_avals(op: &Scan) -> Vec<Aval> {
    let mut avals = op.jaxpr.out_avals();
    for aval in &mut avals[op.num_carry..] {
        aval.shape.insert(0, op.length);
    }
    avals
}

pub(super) fn jvp(b: &mut Builder, op: &Scan, ins: &[Atom], tangents: &[Option<Atom>]) -> Result<(Vec<Atom>, Linear)> {
    let mut nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let num_ys = op.jaxpr.outs.len() - op.num_carry;
    // A carry has a tangent if its initial value or the body's result has one: a fixpoint of at most num_carry steps.
    let body = loop {
        let (_, carry, _) = groups(op, &nonzero);
        let instantiate = [carry.to_vec(), vec![false; num_ys]].concat();
        let body = jvp_body(&op.jaxpr, &nonzero, &instantiate)?;
        if body.nonzero[..op.num_carry] == *carry {
            break body;
        }
        nonzero[op.num_consts..op.num_consts + op.num_carry].copy_from_slice(&body.nonzero[..op.num_carry]);
    };
    let mut tangents = tangents.to_vec();
    for i in op.num_consts..op.num_consts + op.num_carry {
        if nonzero[i] && tangents[i].is_none() {
            let aval = b.aval(ins[i]);
            tangents[i] = Some(b.zeros(&aval)?);
        }
    }
    let mut jaxpr = body.jaxpr;
    jaxpr.ins = interleave(op, &jaxpr.ins, &nonzero);
    let (carry_out, ys_out) = jaxpr.outs.split_at(op.num_carry + num_ys);
    let num_carry_tangents = body.nonzero[..op.num_carry].iter().filter(|n| **n).count();
    let (carry_primal, ys_primal) = carry_out.split_at(op.num_carry);
    let (carry_tangent, ys_tangent) = ys_out.split_at(num_carry_tangents);
    jaxpr.outs = [carry_primal, carry_tangent, ys_primal, ys_tangent].concat();

    let both = [ins, &present(&tangents)].concat();
    let operands = interleave(op, &both, &nonzero);
    let num_consts = op.num_consts + nonzero[..op.num_consts].iter().filter(|n| **n).count();
    let loop_ = of(op, jaxpr, num_consts, op.num_carry + num_carry_tangents);
    let outs = push(b, loop_, &operands);
    let (carry, ys) = outs.split_at(op.num_carry + num_carry_tangents);
    let (carry, carry_tangents) = carry.split_at(op.num_carry);
    let (ys, ys_tangents) = ys.split_at(num_ys);
    let out_tangents = [carry_tangents, ys_tangents].concat();
    Ok(([carry, ys].concat(), spread(&body.nonzero, out_tangents)))
}

/// Reorders primals followed by tangents for a loop: constants and their tangents, carries and theirs, inputs and theirs.
fn interleave<T: Copy>(op: &Scan, items: &[T], nonzero: &[bool]) -> Vec<T> {
    let (primals, tangents) = items.split_at(nonzero.len());
    let tangents = spread(nonzero, tangents.iter().copied());
    let (pc, pa, px) = groups(op, primals);
    let (tc, ta, tx) = groups(op, &tangents);
    [pc, &present(tc), pa, &present(ta), px, &present(tx)].concat()
}

pub(super) fn transpose(
    b: &mut Builder,
    op: &Scan,
    cotangents: &[Option<Atom>],
    out_avals: &[Aval],
    ins: &[Operand],
) -> Result<Linear> {
    // A carry is linear even if its initial value is known, since a tangent starts from zeros.
    let carry_range = op.num_consts..op.num_consts + op.num_carry;
    let linear: Vec<bool> =
        ins.iter().enumerate().map(|(i, operand)| carry_range.contains(&i) || operand.is_linear()).collect();
    let (linear_consts, _, linear_xs) = groups(op, &linear);
    let (ct_carry, ct_ys) = cotangents.split_at(op.num_carry);
    let has_ct: Vec<bool> = vec![true; op.num_carry].into_iter().chain(ct_ys.iter().map(Option::is_some)).collect();
    let transposed = transpose_jaxpr(&op.jaxpr, &linear, &has_ct, true)?;

    // Operands of the backward loop: known constants; sums for the linear constants and cotangents of the carries;
    // cotangents of the stacked outputs and known stacked inputs.
    let (in_consts, _, in_xs) = groups(op, ins);
    let mut consts = Vec::new();
    let mut carry = Vec::new();
    for operand in in_consts {
        match operand {
            Operand::Known(atom) => consts.push(*atom),
            Operand::Linear(aval) => carry.push(b.zeros(aval)?),
        }
    }
    let num_sums = carry.len();
    for (&ct, aval) in ct_carry.iter().zip(out_avals) {
        carry.push(b.instantiate(ct, aval)?);
    }
    let xs = [present(ct_ys), known(in_xs)].concat();

    let body = {
        let mut body = Builder::new();
        body.loc = b.loc;
        let body_avals = op.jaxpr.in_avals();
        let (const_avals, carry_avals, x_avals) = groups(op, &body_avals);
        let pick = |avals: &[Aval], mask: &[bool], value: bool| -> Vec<Aval> {
            avals.iter().zip(mask).filter(|(_, m)| **m == value).map(|(a, _)| a.clone()).collect()
        };
        let known_consts = body.inputs(pick(const_avals, linear_consts, false));
        let sums = body.inputs(pick(const_avals, linear_consts, true));
        let cts = body.inputs(carry_avals.iter().cloned());
        let ys_avals = op.jaxpr.out_avals().split_off(op.num_carry);
        let ys: Vec<bool> = ct_ys.iter().map(Option::is_some).collect();
        let ct_ys = body.inputs(pick(&ys_avals, &ys, true));
        let known_xs = body.inputs(pick(x_avals, linear_xs, false));
        let args = [known_consts, known_xs, cts, ct_ys].concat();
        let outs = body.inline(&transposed.jaxpr, &args)?;
        let (ct_consts, rest) = outs.split_at(num_sums);
        let mut body_outs = Vec::with_capacity(outs.len());
        for (&sum, &ct) in sums.iter().zip(ct_consts) {
            body_outs.extend(body.add_any(Some(sum), Some(ct))?);
        }
        body_outs.extend(rest);
        body.finish(body_outs)
    };
    let mut backward = of(op, body, consts.len(), carry.len());
    backward.reverse = !op.reverse;
    let operands = [consts, carry, xs].concat();
    let outs = push(b, backward, &operands);
    let cts = spread(&linear, outs);
    Ok(cts.into_iter().zip(ins).map(|(ct, operand)| ct.filter(|_| operand.is_linear())).collect())
}

pub(super) fn vmap(b: &mut Builder, op: &Scan, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    let mut batched = batched_mask(ins);
    let num_ys = op.jaxpr.outs.len() - op.num_carry;
    let body = loop {
        let (_, carry, _) = groups(op, &batched);
        let force = [carry.to_vec(), vec![false; num_ys]].concat();
        let body = vmap_jaxpr(&op.jaxpr, batch, &batched, &force)?;
        if body.batched_outs[..op.num_carry] == *carry {
            break body;
        }
        batched[op.num_consts..op.num_consts + op.num_carry].copy_from_slice(&body.batched_outs[..op.num_carry]);
    };
    let mut operands = Vec::with_capacity(ins.len());
    for (i, (&x, &is_batched)) in ins.iter().zip(&batched).enumerate() {
        operands.push(match x.axis {
            _ if !is_batched => x.atom,
            // The loop is over the first axis, so the batch is the second.
            Some(axis) if i >= op.num_consts + op.num_carry => b.move_axis(x.atom, axis, 1)?,
            _ => front(b, batch.size, x)?,
        });
    }
    let outs = push(b, of(op, body.jaxpr, op.num_consts, op.num_carry), &operands);
    let axis = |i: usize| if i < op.num_carry { 0 } else { 1 };
    let pack = |(i, atom): (usize, Atom)| Batched { atom, axis: body.batched_outs[i].then(|| axis(i)) };
    Ok(outs.into_iter().enumerate().map(pack).collect())
}
