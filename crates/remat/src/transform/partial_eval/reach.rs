//! Which values depend on unknown inputs: a cheap analysis before a split.
//!
//! ```text
//! unknown_outs : { lambda ; a b. -> c d }  ×  which of (a, b) are unknown  →  which of (c, d) are
//! ```
//!
//! It walks once over a program and its bodies. Loops are walked until their carries settle, so that the split itself, which is expensive,
//! is done once.

use std::convert::Infallible;
use std::sync::Arc;

use remat_ir::{Atom, Call, Eqn, Jaxpr, Op, Scan};

use super::super::memo;

/// The outputs of a body that depend on unknown inputs.
pub(crate) fn unknown_outs(body: &Arc<Jaxpr>, unknown_ins: &[bool]) -> Vec<bool> {
    #[derive(Clone)]
    struct UnknownOuts(Vec<bool>);
    let Ok(UnknownOuts(outs)) = memo::get_or_compute(body, unknown_ins.to_vec(), || {
        Ok::<_, Infallible>(UnknownOuts(follow(body, unknown_ins)))
    });
    outs
}

fn follow(jaxpr: &Jaxpr, unknown_ins: &[bool]) -> Vec<bool> {
    let mut unknown = jaxpr.var_map(false);
    for (&var, &is_unknown) in jaxpr.ins.iter().zip(unknown_ins) {
        unknown[var] = is_unknown;
    }
    for eqn in &jaxpr.eqns {
        let mut ins: Vec<bool> = eqn.ins.iter().map(|&a| matches!(a, Atom::Var(v) if unknown[v])).collect();
        for (&var, is_unknown) in eqn.outs.iter().zip(unknown_results(eqn, &mut ins)) {
            unknown[var] = is_unknown;
        }
    }
    jaxpr.outs.iter().map(|&a| matches!(a, Atom::Var(v) if unknown[v])).collect()
}

/// The results of an equation that depend on unknown operands. It also completes the carries of a loop in `ins`.
fn unknown_results(eqn: &Eqn, ins: &mut [bool]) -> Vec<bool> {
    if !ins.contains(&true) {
        return vec![false; eqn.outs.len()];
    }
    match &eqn.op {
        Op::Call(Call::Jit(op)) => unknown_outs(&op.jaxpr, ins),
        Op::Call(Call::Checkpoint(op)) => unknown_outs(&op.jaxpr, ins),
        Op::Call(Call::ShardMap(op)) => unknown_outs(&op.jaxpr, ins),
        Op::Call(Call::Scan(op)) => unknown_of_scan(op, ins),
        Op::Call(Call::Cond(_)) if ins[0] => vec![true; eqn.outs.len()],
        Op::Call(Call::Cond(op)) => unknown_of_branches(&op.branches, &ins[1..]),
        // Unknown carries may determine the number of iterations, so all results are unknown; the split is more precise.
        Op::Call(Call::While(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_)) | Op::Prim(_) => {
            vec![true; eqn.outs.len()]
        }
    }
}

/// The results of a loop that depend on unknown operands. It also completes the carries in `ins`.
pub(crate) fn unknown_of_scan(op: &Scan, ins: &mut [bool]) -> Vec<bool> {
    loop {
        let mut outs = unknown_outs(&op.jaxpr, ins);
        let carry = &mut ins[op.num_consts..op.num_consts + op.num_carry];
        let mut has_settled = true;
        for (before, after) in carry.iter_mut().zip(&mut outs) {
            has_settled &= *before || !*after;
            *before |= *after;
            *after = *before;
        }
        if has_settled {
            return outs;
        }
    }
}

/// The results of any of several branches that depend on unknown operands.
pub(crate) fn unknown_of_branches(branches: &[Arc<Jaxpr>], ins: &[bool]) -> Vec<bool> {
    let mut all = vec![false; branches.first().map_or(0, |j| j.outs.len())];
    for branch in branches {
        for (all, unknown) in all.iter_mut().zip(unknown_outs(branch, ins)) {
            *all |= unknown;
        }
    }
    all
}
