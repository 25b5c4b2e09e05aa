//! The rules of `cond`, which runs one of several branches.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, Cond, DType, Jaxpr, Literal, Result};

use super::super::Batch;
use super::super::partial_eval::reach::unknown_of_branches;
use super::super::partial_eval::split_eqn::{Context, SplitEqn, StagedEqn, StagedIn, program_of};
use super::super::partial_eval::{PartialEval, Request, ResidualSource, StageOuts, split as split_jaxpr};
use super::super::{dce as dce_jaxpr, jvp_body, select, transpose as transpose_jaxpr, vmap_batch as vmap_jaxpr};
use super::{batched_mask, batched_outs, front, fronted, known, present, push, select_example, spread};
use crate::rules::{Batched, Emit, Linear, Operand};

fn of(branches: impl IntoIterator<Item = Jaxpr>) -> Cond {
    Cond { branches: branches.into_iter().map(Arc::new).collect() }
}

/// Widens a mask by the needs of each branch until all branches agree. A branch that already agrees is not processed again.
fn agree<T>(
    op: &Cond,
    mut mask: Vec<bool>,
    transform: impl Fn(&Arc<Jaxpr>, &[bool]) -> Result<T>,
    outs: impl Fn(&T) -> &[bool],
) -> Result<(Vec<T>, Vec<bool>)> {
    let mut branches = op.branches.iter().map(|j| transform(j, &mask)).collect::<Result<Vec<T>>>()?;
    loop {
        for branch in &branches {
            for (wider, &o) in mask.iter_mut().zip(outs(branch)) {
                *wider |= o;
            }
        }
        let stale: Vec<usize> = (0..branches.len()).filter(|&i| outs(&branches[i]) != mask).collect();
        if stale.is_empty() {
            return Ok((branches, mask));
        }
        for i in stale {
            branches[i] = transform(&op.branches[i], &mask)?;
        }
    }
}

pub(super) fn jvp(b: &mut Builder, op: &Cond, ins: &[Atom], tangents: &[Option<Atom>]) -> Result<(Vec<Atom>, Linear)> {
    let nonzero: Vec<bool> = tangents[1..].iter().map(Option::is_some).collect();
    let num_outs = op.branches[0].outs.len();
    let (branches, out_nonzero) =
        agree(op, vec![false; num_outs], |j, mask| jvp_body(j, &nonzero, mask), |j| &j.nonzero)?;
    let operands = [ins, &present(tangents)].concat();
    let like = branches[0].jaxpr.clone();
    let mut outs = push(b, of(branches.into_iter().map(|j| j.jaxpr)).into(), &operands, &like);
    let out_tangents = outs.split_off(num_outs);
    Ok((outs, spread(&out_nonzero, out_tangents)))
}

pub(super) fn split(op: &Cond, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    if eqn.ins[0].is_unknown() {
        return Ok(None);
    }
    let ins = &eqn.ins[1..];
    let unknown_outs = unknown_of_branches(&op.branches, &eqn.unknown()[1..]);
    let Some(saving) =
        eqn.saving_of_bodies(|| unknown_outs.contains(&false) || op.branches.iter().any(|body| body.has_effect()))
    else {
        return Ok(None);
    };
    let stage_outs = if saving.recomputes() { StageOuts::All } else { StageOuts::Unknown };
    let request =
        Request { ins, force_unknown: &unknown_outs, stage_outs, saving, is_minimised_outside: false, log: eqn.log };
    let branches = op.branches.iter().map(|j| split_jaxpr(j, &request)).collect::<Result<Vec<PartialEval>>>()?;
    let num_known = unknown_outs.iter().filter(|u| !**u).count();
    let merged = Merged::new(&branches)?;

    let known_branches =
        branches.iter().enumerate().map(|(i, p)| merged.known_branch(i, p, num_known)).collect::<Result<Vec<_>>>()?;
    let known_avals = eqn.known_avals();
    let known_out_avals = known_branches[0].out_avals();
    let known = program_of(of(known_branches).into(), known_avals.clone(), known_out_avals, eqn.loc);

    let staged_branches = branches
        .iter()
        .enumerate()
        .map(|(i, p)| merged.staged_branch(i, p, &known_avals[1..]))
        .collect::<Result<Vec<_>>>()?;
    // After the index: the residuals, the kept known operands, the unknown operands.
    let known_operands = eqn.known();
    let residuals = (0..merged.avals.len()).map(|i| StagedIn::Known(num_known + i));
    let kept = merged.inputs.iter().map(|&i| StagedIn::Operand(known_operands[1 + i]));
    let unknown = (1..eqn.ins.len()).filter(|&i| eqn.ins[i].is_unknown()).map(StagedIn::Operand);
    let operands = std::iter::once(StagedIn::Operand(0)).chain(residuals).chain(kept).chain(unknown).collect();
    let staged = StagedEqn::of_outs(of(staged_branches).into(), operands, &branches[0].staged_outs);
    Ok(Some(SplitEqn { known, unknown_outs, staged, is_chosen: false, named: Vec::new() }))
}

/// The residuals of all branches in one list. A slot serves every branch that needs a value of its aval, and holds zeros for the others.
/// Known operands that any branch keeps are passed as they are.
struct Merged {
    avals: Vec<Aval>,
    /// For each branch, the slot of each of its residuals; `None` for an operand.
    slots: Vec<Vec<Option<usize>>>,
    /// The known operands that are kept.
    inputs: Vec<usize>,
}

impl Merged {
    /// Values that only known outputs need, in case they are read where the branch is computed again, have separate slots: dead code
    /// elimination removes these if the outputs are not read.
    fn new(branches: &[PartialEval]) -> Result<Merged> {
        let mut avals: Vec<Aval> = Vec::new();
        let mut inputs: Vec<usize> = Vec::new();
        let mut slots: Vec<Vec<Option<usize>>> = Vec::new();
        let mut needed: Vec<Vec<bool>> = Vec::new();
        for parts in branches {
            slots.push(vec![None; parts.residuals.len()]);
            let staged = &parts.staged;
            let unknown = select(&parts.unknown_outs, &parts.staged_outs);
            needed.push(dce_jaxpr(staged, &unknown, &vec![false; staged.ins.len()])?.used_ins);
        }
        for is_needed in [true, false] {
            let first_slot = avals.len();
            for (branch, parts) in branches.iter().enumerate() {
                let mut taken = vec![false; avals.len()];
                taken[..first_slot].fill(true);
                for (k, residual) in parts.residuals.iter().enumerate().filter(|&(k, _)| needed[branch][k] == is_needed)
                {
                    match *residual {
                        ResidualSource::Input(i) if inputs.contains(&i) => {}
                        ResidualSource::Input(i) => inputs.push(i),
                        ResidualSource::Out(i) => {
                            let aval = parts.known.atom_aval(parts.known.outs[i]);
                            let free = (0..avals.len()).find(|&p| !taken[p] && avals[p] == aval);
                            let slot = free.unwrap_or_else(|| {
                                avals.push(aval);
                                taken.push(false);
                                avals.len() - 1
                            });
                            taken[slot] = true;
                            slots[branch][k] = Some(slot);
                        }
                    }
                }
            }
        }
        inputs.sort_unstable();
        Ok(Merged { avals, slots, inputs })
    }

    /// The known part of a branch. It returns the known outputs, then all slots.
    fn known_branch(&self, branch: usize, parts: &PartialEval, num_known: usize) -> Result<Jaxpr> {
        let mut b = Builder::new();
        let ins = b.inputs(parts.known.in_avals());
        let outs = b.inline(&parts.known, &ins)?;
        let mut all = outs[..num_known].to_vec();
        for (slot, aval) in self.avals.iter().enumerate() {
            let index = self.slots[branch].iter().position(|&p| p == Some(slot));
            let atom = match index.map(|i| parts.residuals[i]) {
                Some(ResidualSource::Out(i)) => outs[i],
                Some(ResidualSource::Input(i)) => ins[i],
                None => {
                    let zeros = b.zeros(&aval.in_memory(remat_ir::MemorySpace::Device))?;
                    if aval.memory == remat_ir::MemorySpace::Device {
                        zeros
                    } else {
                        b.apply(remat_ir::DevicePut { memory: aval.memory }, &[zeros])?
                    }
                }
            };
            all.push(atom);
        }
        Ok(b.finish(all))
    }

    /// The staged part of a branch. It takes all slots, the kept operands, then the unknown operands.
    fn staged_branch(&self, branch: usize, parts: &PartialEval, known_avals: &[Aval]) -> Result<Jaxpr> {
        let mut b = Builder::new();
        let slots = b.inputs(self.avals.iter().cloned());
        let inputs = b.inputs(self.inputs.iter().map(|&i| known_avals[i].clone()));
        let unknown = b.inputs(parts.staged.in_avals().into_iter().skip(parts.residuals.len()));
        let mut args = Vec::new();
        for (residual, slot) in parts.residuals.iter().zip(&self.slots[branch]) {
            args.push(match (*residual, *slot) {
                (_, Some(slot)) => slots[slot],
                (ResidualSource::Input(i) | ResidualSource::Out(i), None) => {
                    let at = self.inputs.iter().position(|&k| k == i);
                    inputs[at.ok_or_else(|| super::super::internal("a kept operand of a branch is missing"))?]
                }
            });
        }
        args.extend(unknown);
        let outs = b.inline(&parts.staged, &args)?;
        Ok(b.finish(outs))
    }
}

pub(super) fn transpose(b: &mut Builder, op: &Cond, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
    let index = ins[0].known(op)?;
    let linear: Vec<bool> = ins[1..].iter().map(Operand::is_linear).collect();
    let has_ct: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    // Every branch returns a cotangent for every linear operand, since the branches must agree.
    let branches = op
        .branches
        .iter()
        .map(|j| Ok(transpose_jaxpr(j, &linear, &has_ct, true)?.jaxpr))
        .collect::<Result<Vec<Jaxpr>>>()?;
    let like = branches[0].clone();
    let operands = [vec![index], known(&ins[1..]), present(cotangents)].concat();
    let outs = push(b, of(branches).into(), &operands, &like);
    let mut cts = vec![None];
    cts.extend(spread(&linear, outs));
    Ok(cts)
}

pub(super) fn vmap(b: &mut Builder, op: &Cond, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    let batched = batched_mask(&ins[1..]);
    let num_outs = op.branches[0].outs.len();
    if ins[0].axis.is_none() {
        let transform = |j: &Arc<Jaxpr>, force: &[bool]| vmap_jaxpr(j, batch, &batched, force);
        let (branches, outs_batched) = agree(op, vec![false; num_outs], transform, |v| &v.batched_outs)?;
        let operands = fronted(b, batch.size, ins)?;
        let like = branches[0].jaxpr.clone();
        let outs = push(b, of(branches.into_iter().map(|v| v.jaxpr)).into(), &operands, &like);
        return Ok(batched_outs(outs, &outs_batched));
    }
    // Each example takes its own branch: all branches are computed, and results selected.
    let index = front(b, batch.size, ins[0])?;
    let last = Literal::from_i128(DType::I32, op.branches.len() as i128 - 1);
    let index = b.apply(remat_ir::Clamp, &[Literal::from_i128(DType::I32, 0).into(), index, last.into()])?;
    let operands = fronted(b, batch.size, &ins[1..])?;
    let force = vec![true; num_outs];
    let mut outs_of_branches = Vec::with_capacity(op.branches.len());
    for branch in &op.branches {
        let vmapped = vmap_jaxpr(branch, batch, &batched, &force)?;
        outs_of_branches.push(b.inline(&vmapped.jaxpr, &operands)?);
    }
    let mut outs = Vec::with_capacity(num_outs);
    for i in 0..num_outs {
        let cases: Vec<Atom> = outs_of_branches.iter().map(|outs| outs[i]).collect();
        if cases.len() == 1 {
            outs.push(Batched::front(cases[0]));
            continue;
        }
        outs.push(Batched::front(select_example(b, index, &cases)?));
    }
    Ok(outs)
}
