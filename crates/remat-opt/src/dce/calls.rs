//! Dead code in calls, loops and branches: equations are pruned to the results that are used.

use std::sync::Arc;

use remat_ir::{Call, Checkpoint, Cond, CustomLin, Jaxpr, Jit, Op, Result, Scan, While};

use super::{Dce, dce as dce_jaxpr};

/// An equation without its unused results.
pub(super) struct Pruned {
    pub(super) op: Op,
    pub(super) used_ins: Vec<bool>,
    pub(super) kept_outs: Vec<bool>,
}

/// An equation without the results that are not used; `None` if all of them have to stay.
pub(super) fn dce(op: &Call, used_outs: &[bool]) -> Result<Option<Pruned>> {
    match op {
        Call::Jit(op) => {
            let of = |body| Jit { name: op.name.clone(), jaxpr: Arc::new(body) }.into();
            call(&op.jaxpr, of, used_outs).map(Some)
        }
        Call::Checkpoint(op) => {
            let of = |body| Checkpoint { jaxpr: Arc::new(body), ..op.clone() }.into();
            call(&op.jaxpr, of, used_outs).map(Some)
        }
        Call::Scan(op) => scan(op, used_outs).map(Some),
        Call::While(op) => while_loop(op, used_outs).map(Some),
        Call::Cond(op) => cond(op, used_outs).map(Some),
        Call::CustomLin(op) => custom_lin(op).map(Some),
        // The rule of the function is for all of its results.
        Call::CustomJvp(_) | Call::CustomVjp(_) => Ok(None),
    }
}

fn call(body: &Jaxpr, of: impl Fn(Jaxpr) -> Op, used_outs: &[bool]) -> Result<Pruned> {
    let pruned = dce_jaxpr(body, used_outs, &vec![false; body.ins.len()])?;
    Ok(Pruned { op: of(pruned.jaxpr), used_ins: pruned.used_ins, kept_outs: used_outs.to_vec() })
}

/// A carry is needed if its last value is, or if a needed carry or output depends on it.
fn scan(op: &Scan, used_outs: &[bool]) -> Result<Pruned> {
    let carries = op.num_consts..op.num_consts + op.num_carry;
    let mut used = used_outs.to_vec();
    let pruned = loop {
        let mut keep = vec![false; op.jaxpr.ins.len()];
        keep[carries.clone()].copy_from_slice(&used[..op.num_carry]);
        let pruned = dce_jaxpr(&op.jaxpr, &used, &keep)?;
        if pruned.used_ins[carries.clone()] == used[..op.num_carry] {
            break pruned;
        }
        used[..op.num_carry].copy_from_slice(&pruned.used_ins[carries.clone()]);
    };
    let num_consts = count(&pruned.used_ins[..op.num_consts]);
    let num_carry = count(&pruned.used_ins[carries]);
    let op = Scan { jaxpr: Arc::new(pruned.jaxpr), num_consts, num_carry, ..op.clone() };
    Ok(Pruned { op: op.into(), used_ins: pruned.used_ins, kept_outs: used })
}

fn while_loop(op: &While, used_outs: &[bool]) -> Result<Pruned> {
    let condition = dce_jaxpr(&op.cond, &[true], &vec![false; op.cond.ins.len()])?;
    let mut used: Vec<bool> =
        used_outs.iter().zip(&condition.used_ins[op.cond_consts..]).map(|(&out, &cond)| out || cond).collect();
    let body = loop {
        let keep = [vec![false; op.body_consts], used.clone()].concat();
        let body = dce_jaxpr(&op.body, &used, &keep)?;
        if body.used_ins[op.body_consts..] == used[..] {
            break body;
        }
        used.copy_from_slice(&body.used_ins[op.body_consts..]);
    };
    let keep = [vec![false; op.cond_consts], used.clone()].concat();
    let condition = dce_jaxpr(&op.cond, &[true], &keep)?;
    let cond_consts = &condition.used_ins[..op.cond_consts];
    let body_consts = &body.used_ins[..op.body_consts];
    let pruned = While {
        cond: Arc::new(condition.jaxpr),
        body: Arc::new(body.jaxpr),
        cond_consts: count(cond_consts),
        body_consts: count(body_consts),
    };
    let used_ins = [cond_consts, body_consts, &used].concat();
    Ok(Pruned { op: pruned.into(), used_ins, kept_outs: used })
}

fn cond(op: &Cond, used_outs: &[bool]) -> Result<Pruned> {
    let keep_none = vec![false; op.branches[0].ins.len()];
    let pruned = op.branches.iter().map(|j| dce_jaxpr(j, used_outs, &keep_none)).collect::<Result<Vec<Dce>>>()?;
    let used: Vec<bool> = (0..keep_none.len()).map(|i| pruned.iter().any(|d| d.used_ins[i])).collect();
    // The branches take the same operands, so each gets those that only others read.
    let avals = op.branches[0].in_avals();
    let branches = pruned.into_iter().map(|Dce { mut jaxpr, used_ins }| {
        let mut own = std::mem::take(&mut jaxpr.ins).into_iter();
        for (i, aval) in avals.iter().enumerate().filter(|(i, _)| used[*i]) {
            let var = if used_ins[i] { own.next() } else { None };
            let var = var.unwrap_or_else(|| jaxpr.avals.push(aval.clone()));
            jaxpr.ins.push(var);
        }
        Arc::new(jaxpr)
    });
    let op = Cond { branches: branches.collect() };
    let used_ins = [vec![true], used].concat();
    Ok(Pruned { op: op.into(), used_ins, kept_outs: used_outs.to_vec() })
}

/// Drops the residuals that the backward rule does not read.
fn custom_lin(op: &CustomLin) -> Result<Pruned> {
    let num_outs = op.bwd.outs.len();
    let keep: Vec<bool> = (0..op.bwd.ins.len()).map(|i| i >= op.num_residuals).collect();
    let bwd = dce_jaxpr(&op.bwd, &vec![true; num_outs], &keep)?;
    let num_cts = op.bwd.ins.len() - op.num_residuals;
    let used_residuals = &bwd.used_ins[..op.num_residuals];
    let pruned = CustomLin { name: op.name.clone(), num_residuals: count(used_residuals), bwd: Arc::new(bwd.jaxpr) };
    let used_ins = [used_residuals, &vec![true; num_outs]].concat();
    Ok(Pruned { op: pruned.into(), used_ins, kept_outs: vec![true; num_cts] })
}

/// The number of `true`s.
fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|&&m| m).count()
}
