//! Dead code elimination in calls, loops and branches: equations keep only the results that are used.

use std::sync::Arc;

use remat_ir::{Call, Checkpoint, Cond, CustomLin, Jaxpr, Jit, Op, Result, Scan, ShardMap, While};

use super::{dce as dce_jaxpr, select};
use crate::memo;

/// An equation without its unused results.
pub(super) struct Pruned {
    pub(super) op: Op,
    pub(super) used_ins: Vec<bool>,
    pub(super) kept_outs: Vec<bool>,
}

/// Removes unused results from an equation; `None` if all of them have to stay.
pub(super) fn dce(op: &Call, used_outs: &[bool]) -> Result<Option<Pruned>> {
    match op {
        Call::Jit(op) => {
            let of = |body| Jit { name: op.name.clone(), jaxpr: body }.into();
            call(&op.jaxpr, of, used_outs).map(Some)
        }
        Call::Checkpoint(op) => {
            let of = |body| Checkpoint { jaxpr: body, ..op.clone() }.into();
            call(&op.jaxpr, of, used_outs).map(Some)
        }
        Call::Scan(op) => scan(op, used_outs).map(Some),
        Call::While(op) => while_loop(op, used_outs).map(Some),
        Call::Cond(op) => cond(op, used_outs).map(Some),
        Call::CustomLin(op) => custom_lin(op).map(Some),
        Call::ShardMap(op) => shard_map(op, used_outs).map(Some),
        // The rule of the function is for all of its results.
        Call::CustomJvp(_) | Call::CustomVjp(_) => Ok(None),
    }
}

/// A body without dead code.
#[derive(Clone)]
struct Body {
    jaxpr: Arc<Jaxpr>,
    used_ins: Vec<bool>,
}

/// Removes dead code from a body. A body that was made here is returned as it is when all of it is used.
fn dce_body(body: &Arc<Jaxpr>, used: &[bool], keep_ins: &[bool]) -> Result<Body> {
    memo::get_or_compute(body, [used, keep_ins].concat(), || {
        let pruned = dce_jaxpr(body, used, keep_ins)?;
        let jaxpr = Arc::new(pruned.jaxpr);
        let (outs, ins) = (vec![true; jaxpr.outs.len()], vec![true; jaxpr.ins.len()]);
        let itself = Body { jaxpr: jaxpr.clone(), used_ins: ins };
        memo::remember(&jaxpr, [outs, select(keep_ins, &pruned.used_ins)].concat(), itself);
        Ok(Body { jaxpr, used_ins: pruned.used_ins })
    })
}

fn call(body: &Arc<Jaxpr>, make: impl Fn(Arc<Jaxpr>) -> Op, used_outs: &[bool]) -> Result<Pruned> {
    let pruned = dce_body(body, used_outs, &vec![false; body.ins.len()])?;
    Ok(Pruned { op: make(pruned.jaxpr), used_ins: pruned.used_ins, kept_outs: used_outs.to_vec() })
}

/// A carry is needed if its last value is, or if a needed carry or output depends on it.
fn scan(op: &Scan, used_outs: &[bool]) -> Result<Pruned> {
    let carries = op.num_consts..op.num_consts + op.num_carry;
    let mut used = used_outs.to_vec();
    let pruned = loop {
        let mut keep = vec![false; op.jaxpr.ins.len()];
        keep[carries.clone()].copy_from_slice(&used[..op.num_carry]);
        let pruned = dce_body(&op.jaxpr, &used, &keep)?;
        if pruned.used_ins[carries.clone()] == used[..op.num_carry] {
            break pruned;
        }
        used[..op.num_carry].copy_from_slice(&pruned.used_ins[carries.clone()]);
    };
    let num_consts = count(&pruned.used_ins[..op.num_consts]);
    let num_carry = count(&pruned.used_ins[carries]);
    let op = Scan { jaxpr: pruned.jaxpr, num_consts, num_carry, ..op.clone() };
    Ok(Pruned { op: op.into(), used_ins: pruned.used_ins, kept_outs: used })
}

fn while_loop(op: &While, used_outs: &[bool]) -> Result<Pruned> {
    let condition = dce_body(&op.cond, &[true], &vec![false; op.cond.ins.len()])?;
    let mut used: Vec<bool> =
        used_outs.iter().zip(&condition.used_ins[op.cond_consts..]).map(|(&out, &cond)| out || cond).collect();
    let body = loop {
        let keep = [vec![false; op.body_consts], used.clone()].concat();
        let body = dce_body(&op.body, &used, &keep)?;
        if body.used_ins[op.body_consts..] == used[..] {
            break body;
        }
        used.copy_from_slice(&body.used_ins[op.body_consts..]);
    };
    let keep = [vec![false; op.cond_consts], used.clone()].concat();
    let condition = dce_body(&op.cond, &[true], &keep)?;
    let cond_consts = &condition.used_ins[..op.cond_consts];
    let body_consts = &body.used_ins[..op.body_consts];
    let pruned = While {
        cond: condition.jaxpr,
        body: body.jaxpr,
        cond_consts: count(cond_consts),
        body_consts: count(body_consts),
    };
    let used_ins = [cond_consts, body_consts, &used].concat();
    Ok(Pruned { op: pruned.into(), used_ins, kept_outs: used })
}

/// All branches take the same operands, so a branch keeps those that any other branch reads.
fn cond(op: &Cond, used_outs: &[bool]) -> Result<Pruned> {
    let prune = |keep: &[bool]| -> Result<Vec<Body>> {
        op.branches.iter().map(|branch| dce_body(branch, used_outs, keep)).collect()
    };
    let mut branches = prune(&vec![false; op.branches[0].ins.len()])?;
    let used: Vec<bool> =
        (0..op.branches[0].ins.len()).map(|i| branches.iter().any(|branch| branch.used_ins[i])).collect();
    if branches.iter().any(|branch| branch.used_ins != used) {
        branches = prune(&used)?;
    }
    let op = Cond { branches: branches.into_iter().map(|branch| branch.jaxpr).collect() };
    let used_ins = [vec![true], used].concat();
    Ok(Pruned { op: op.into(), used_ins, kept_outs: used_outs.to_vec() })
}

/// Drops the residuals that the backward rule does not read.
fn custom_lin(op: &CustomLin) -> Result<Pruned> {
    let num_outs = op.bwd.outs.len();
    let keep: Vec<bool> = (0..op.bwd.ins.len()).map(|i| i >= op.num_residuals).collect();
    let bwd = dce_body(&op.bwd, &vec![true; num_outs], &keep)?;
    let num_cts = op.bwd.ins.len() - op.num_residuals;
    let used_residuals = &bwd.used_ins[..op.num_residuals];
    let pruned = CustomLin { num_residuals: count(used_residuals), bwd: bwd.jaxpr, ..op.clone() };
    let used_ins = [used_residuals, &vec![true; num_outs]].concat();
    Ok(Pruned { op: pruned.into(), used_ins, kept_outs: vec![true; num_cts] })
}

fn shard_map(op: &ShardMap, used_outs: &[bool]) -> Result<Pruned> {
    let pruned = dce_body(&op.jaxpr, used_outs, &vec![false; op.jaxpr.ins.len()])?;
    let pruned_op = ShardMap {
        jaxpr: pruned.jaxpr,
        mesh: op.mesh.clone(),
        in_specs: select(&op.in_specs, &pruned.used_ins),
        out_specs: select(&op.out_specs, used_outs),
        within: op.within.clone(),
    };
    Ok(Pruned { op: pruned_op.into(), used_ins: pruned.used_ins, kept_outs: used_outs.to_vec() })
}

/// The number of `true`s.
fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|&&m| m).count()
}
