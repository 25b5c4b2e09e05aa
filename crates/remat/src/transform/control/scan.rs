//! `scan`: a loop over the first dimension.

use std::sync::Arc;

use remat_ir::{Atom, Atoms, Aval, Builder, Eqn, Jaxpr, Result, Scan, Var, Vars};

use super::super::partial_eval::{Residual, Saving, StageOuts, split as split_jaxpr};
use super::super::partial_eval::reach::unknown_of_scan;
use super::super::partial_eval::splitter::Splitter;
use super::super::{dce as dce_jaxpr, jvp as jvp_jaxpr, select, transpose as transpose_jaxpr, vmap as vmap_jaxpr};
use super::{Pruned, batched_mask, front, known, present, spread};
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

/// Adds the loop; stacked outputs are slices of the body with the length in front.
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
    // A carry has a tangent if its initial value has one or the body gives it one: a fixpoint of at most num_carry steps.
    let body = loop {
        let (_, carry, _) = groups(op, &nonzero);
        let instantiate = [carry.to_vec(), vec![false; num_ys]].concat();
        let body = jvp_jaxpr(&op.jaxpr, &nonzero, &instantiate)?;
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

/// Brings primals followed by tangents into the order of a loop: constants and theirs, carries and theirs, inputs and
/// theirs.
fn interleave<T: Copy>(op: &Scan, items: &[T], nonzero: &[bool]) -> Vec<T> {
    let (primals, tangents) = items.split_at(nonzero.len());
    let tangents = spread(nonzero, tangents.iter().copied());
    let (pc, pa, px) = groups(op, primals);
    let (tc, ta, tx) = groups(op, &tangents);
    [pc, &present(tc), pa, &present(ta), px, &present(tx)].concat()
}

pub(super) fn dce(op: &Scan, used_outs: &[bool]) -> Result<Pruned> {
    let mut used = used_outs.to_vec();
    // A carry is needed if its last value is, or a needed carry or output depends on it.
    let pruned = loop {
        let mut keep = vec![false; op.jaxpr.ins.len()];
        keep[op.num_consts..op.num_consts + op.num_carry].copy_from_slice(&used[..op.num_carry]);
        let pruned = dce_jaxpr(&op.jaxpr, &used, &keep)?;
        let (_, carry, _) = groups(op, &pruned.used_ins);
        if *carry == used[..op.num_carry] {
            break pruned;
        }
        used[..op.num_carry].copy_from_slice(carry);
    };
    let (consts, carry, _) = groups(op, &pruned.used_ins);
    let num_consts = consts.iter().filter(|u| **u).count();
    let num_carry = carry.iter().filter(|u| **u).count();
    let op = of(op, pruned.jaxpr, num_consts, num_carry);
    Ok(Pruned { op: op.into(), used_ins: pruned.used_ins, kept_outs: used })
}

pub(super) fn split(splitter: &mut Splitter<'_>, eqn: &Eqn, op: &Scan, any_unknown: bool) -> Result<bool> {
    let mut unknown: Vec<bool> = eqn.ins.iter().map(|&a| splitter.is_unknown(a)).collect();
    let saving = match splitter.saving {
        Saving::Residuals if !any_unknown => return Ok(false),
        // A loop that carries nothing known is transposed whole, so that nothing inside it has to be stacked.
        Saving::Linear if !any_unknown || !unknown_of_scan(op, &mut unknown).contains(&false) => return Ok(false),
        Saving::Residuals | Saving::Linear => Saving::Residuals,
        policy @ Saving::Policy(_) => policy,
    };
    // A carry is not at hand: it would have to be stacked.
    let mut at_hand: Vec<bool> = eqn.ins.iter().map(|&a| splitter.is_at_hand(a)).collect();
    at_hand[op.num_consts..op.num_consts + op.num_carry].fill(false);
    let recompute = matches!(saving, Saving::Policy(_));
    let stage_outs = if recompute { StageOuts::All } else { StageOuts::Unknown };
    unknown_of_scan(op, &mut unknown);
    let (_, carry, _) = groups(op, &unknown);
    let force = [carry.to_vec(), vec![false; op.jaxpr.outs.len() - op.num_carry]].concat();
    let parts = split_jaxpr(&op.jaxpr, &unknown, &force, stage_outs, saving, &at_hand)?;
    let (unknown_consts, unknown_carry, unknown_xs) = groups(op, &unknown);
    let is_known = |mask: &[bool]| mask.iter().filter(|u| !**u).count();
    let (known_consts, known_carry) = (is_known(unknown_consts), is_known(unknown_carry));
    let known_ins: Vec<Atom> = eqn.ins.iter().zip(&unknown).filter(|(_, u)| !**u).map(|(&a, _)| a).collect();

    // The known loop. Residuals are its stacked outputs; an invariant one is computed once, before the loop.
    let mut known_body = parts.known.clone();
    let num_known_outs = parts.num_known_outs();
    let invariant = invariants(&known_body, known_consts);
    let mut sources = Vec::with_capacity(parts.residuals.len());
    let mut extra_outs: Vec<Atom> = Vec::new();
    let mut hoisted: Vec<Atom> = Vec::new();
    for residual in &parts.residuals {
        sources.push(match *residual {
            Residual::Input(i) if i < known_consts => Source::Const(known_ins[i]),
            Residual::Input(i) if i < known_consts + known_carry && recompute => Source::Carry(i - known_consts),
            Residual::Input(i) if i < known_consts + known_carry => {
                extra_outs.push(Atom::Var(known_body.ins[i]));
                Source::Extra(extra_outs.len() - 1)
            }
            Residual::Input(i) => Source::Stacked(known_ins[i]),
            Residual::Out(i) => match known_body.outs[i] {
                atom @ Atom::Var(v) if invariant[v] => {
                    hoisted.push(atom);
                    Source::Hoisted(hoisted.len() - 1)
                }
                _ if (known_carry..num_known_outs).contains(&i) => Source::Known(i),
                atom => {
                    extra_outs.push(atom);
                    Source::Extra(extra_outs.len() - 1)
                }
            },
        });
    }
    let hoisted = hoist(splitter, &known_body, hoisted, &known_ins[..known_consts])?;
    known_body.outs.truncate(num_known_outs);
    known_body.outs.extend(&extra_outs);
    let mut known_outs: Vec<Var> =
        eqn.outs.iter().zip(&parts.unknown_outs).filter(|(_, u)| !**u).map(|(&v, _)| v).collect();
    let known_loop = of(op, known_body, known_consts, known_carry);
    for aval in out_avals(&known_loop).into_iter().skip(num_known_outs) {
        known_outs.push(splitter.new_var(aval));
    }
    if !known_outs.is_empty() {
        let outs: Vars = known_outs.iter().copied().collect();
        splitter.push_known(known_loop.into(), known_ins.iter().copied().collect(), outs, eqn.loc);
    }

    // The staged loop: constants, carries (the known ones too where they are recomputed), stacked residuals and inputs.
    let mut body = parts.staged.clone();
    let (residual_ins, unknown_ins) = {
        let (r, u) = body.ins.split_at(parts.residuals.len());
        (r.to_vec(), u.to_vec())
    };
    let mut unknown_ins = unknown_ins.into_iter();
    let mut take = |mask: &[bool]| -> Vec<Option<Var>> { spread(mask, unknown_ins.by_ref()) };
    let (const_vars, carry_vars, x_vars) = (take(unknown_consts), take(unknown_carry), take(unknown_xs));
    let (const_atoms, carry_atoms, x_atoms) = groups(op, &eqn.ins);
    let mut consts: Vec<(Var, Atom)> = Vec::new();
    let mut xs: Vec<(Var, Atom)> = Vec::new();
    let mut carry_inputs = carry_vars;
    for (&var, source) in residual_ins.iter().zip(&sources) {
        match *source {
            Source::Const(atom) => consts.push((var, atom)),
            Source::Hoisted(i) => consts.push((var, Atom::Var(hoisted[i]))),
            Source::Stacked(atom) => xs.push((var, atom)),
            Source::Known(i) => xs.push((var, Atom::Var(known_outs[i]))),
            Source::Extra(i) => xs.push((var, Atom::Var(known_outs[num_known_outs + i]))),
            Source::Carry(i) => {
                let place = (0..op.num_carry).filter(|&c| !unknown_carry[c]).nth(i);
                if let Some(place) = place {
                    carry_inputs[place] = Some(var);
                }
            }
        }
    }
    consts.extend(const_vars.iter().zip(const_atoms).filter_map(|(v, &a)| Some(((*v)?, a))));
    xs.extend(x_vars.iter().zip(x_atoms).filter_map(|(v, &a)| Some(((*v)?, a))));
    let mut carries: Vec<(Var, Atom)> = Vec::new();
    for (i, &atom) in carry_atoms.iter().enumerate() {
        if unknown_carry[i] || recompute {
            let aval = op.jaxpr.avals[op.jaxpr.ins[op.num_consts + i]].clone();
            // A recomputed carry that the staged body does not read still is an input of the loop.
            let var = carry_inputs[i].unwrap_or_else(|| body.avals.push(aval));
            carries.push((var, atom));
        }
    }
    let (num_consts, num_carry) = (consts.len(), carries.len());
    let (vars, ins): (Vec<Var>, Atoms) = consts.into_iter().chain(carries).chain(xs).unzip();
    body.ins = vars;
    let staged_loop = of(op, body, num_consts, num_carry);
    let outs: Vars = select(&eqn.outs, &parts.staged_outs).into();
    if !outs.is_empty() {
        let unknown_outs = select(&parts.unknown_outs, &parts.staged_outs);
        splitter.push_staged(staged_loop.into(), ins, outs, &unknown_outs, eqn.loc);
    }
    Ok(true)
}

/// Where the staged loop takes a residual from.
enum Source {
    /// A constant of the known loop.
    Const(Atom),
    /// A value of the known loop that is the same in every iteration.
    Hoisted(usize),
    /// A stacked input of the known loop.
    Stacked(Atom),
    /// A stacked output that the known loop has anyway.
    Known(usize),
    /// A stacked output that is added to the known loop.
    Extra(usize),
    /// The carry with this number among the known ones, which the staged loop computes again.
    Carry(usize),
}

/// Which variables of a body depend on its constants only.
fn invariants(body: &Jaxpr, num_consts: usize) -> remat_ir::VarMap<bool> {
    let mut invariant = body.var_map(false);
    for &var in &body.ins[..num_consts] {
        invariant[var] = true;
    }
    for eqn in &body.eqns {
        if eqn.ins.iter().all(|a| a.var().is_none_or(|v| invariant[v])) {
            for &out in &eqn.outs {
                invariant[out] = true;
            }
        }
    }
    invariant
}

/// Computes invariant values of a body before the loop.
fn hoist(splitter: &mut Splitter<'_>, body: &Jaxpr, outs: Vec<Atom>, consts: &[Atom]) -> Result<Vec<Var>> {
    if outs.is_empty() {
        return Ok(Vec::new());
    }
    let vars: Vec<Var> = outs.iter().map(|&a| splitter.new_var(body.atom_aval(a))).collect();
    let all = vec![true; outs.len()];
    let before = Jaxpr { outs, ..body.clone() };
    let mut keep = vec![false; body.ins.len()];
    keep[..consts.len()].fill(true);
    let before = dce_jaxpr(&before, &all, &keep)?.jaxpr;
    splitter.inline_known(&before, consts, &vars)?;
    Ok(vars)
}

pub(super) fn transpose(
    b: &mut Builder,
    op: &Scan,
    cotangents: &[Option<Atom>],
    out_avals: &[Aval],
    ins: &[Operand],
) -> Result<Linear> {
    // A carry is linear though its initial value may be known: the zeros that a tangent starts from.
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

pub(super) fn vmap(b: &mut Builder, op: &Scan, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
    let mut batched = batched_mask(ins);
    let num_ys = op.jaxpr.outs.len() - op.num_carry;
    let body = loop {
        let (_, carry, _) = groups(op, &batched);
        let force = [carry.to_vec(), vec![false; num_ys]].concat();
        let body = vmap_jaxpr(&op.jaxpr, size, &batched, &force)?;
        if body.batched_outs[..op.num_carry] == *carry {
            break body;
        }
        batched[op.num_consts..op.num_consts + op.num_carry].copy_from_slice(&body.batched_outs[..op.num_carry]);
    };
    let mut operands = Vec::with_capacity(ins.len());
    for (i, (&x, &is_batched)) in ins.iter().zip(&batched).enumerate() {
        operands.push(match x.axis {
            _ if !is_batched => x.atom,
            // The loop is over the first dimension, so that the batch comes second.
            Some(axis) if i >= op.num_consts + op.num_carry => b.move_axis(x.atom, axis, 1)?,
            _ => front(b, size, x)?,
        });
    }
    let outs = push(b, of(op, body.jaxpr, op.num_consts, op.num_carry), &operands);
    let axis = |i: usize| if i < op.num_carry { 0 } else { 1 };
    let pack = |(i, atom): (usize, Atom)| Batched { atom, axis: body.batched_outs[i].then(|| axis(i)) };
    Ok(outs.into_iter().enumerate().map(pack).collect())
}
