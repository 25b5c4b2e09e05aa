//! Merges equal equations of a loop, and reductions that read the same values.
//!
//! A loop that computes values of another loop again may compute something twice. The gradient of a maximum, for example, has two
//! comparisons, each with everything that leads to it. So equal equations within a loop become one. Reductions over the same axes become
//! one loop if they are computed from the same values, which are then read once.

use remat_ir::Var;
use remat_opt::cost::{MUCH_SMALLER, SMALL_BYTES};

use super::fuse::MOST_MEMBERS;
use super::ir::{FusedLoop, Member, Step, Steps, Value};

/// A reduction moves ahead by at most this many steps. From there on its results are live.
const MOST_STEPS_AHEAD: usize = 16;

/// The most arrays that a merged loop reads: a CPU does not prefetch more, and the tiles of more would leave the first-level cache.
pub(super) const MOST_READ: usize = 6;

/// Computes equal values of each loop once.
pub(super) fn merge_equal(steps: &mut Steps) {
    let mut all = std::mem::take(&mut steps.steps);
    for step in &mut all {
        if let Step::Loop(fused_loop) = step {
            merge_members(steps, fused_loop);
        }
    }
    steps.steps = all;
}

/// As [`merge_equal`], of one loop.
pub(super) fn merge_members(steps: &Steps, fused_loop: &mut FusedLoop) {
    let mut at = 0;
    while at < fused_loop.members.len() {
        let Some(first) = fused_loop.members[..at].iter().position(|m| is_equal(steps, m, &fused_loop.members[at]))
        else {
            at += 1;
            continue;
        };
        let [kept, dropped] = [first, at].map(|i| fused_loop.members[i].out);
        let is_stored = |var: Var| fused_loop.outs.contains(&var);
        match (is_stored(kept), is_stored(dropped)) {
            // Each has its own buffer.
            (true, true) => at += 1,
            (false, true) => {
                fused_loop.members.remove(at);
                rename(fused_loop, kept, dropped);
                fused_loop.members[first].out = dropped;
            }
            (_, false) => {
                fused_loop.members.remove(at);
                rename(fused_loop, dropped, kept);
            }
        }
    }
}

/// Whether two equations give the same value, and the second waits for no barrier that the first does not wait for.
fn is_equal(steps: &Steps, a: &Member, b: &Member) -> bool {
    let waits = |m: &Member| steps.tokens.of(m.eqn);
    a.extent == b.extent
        && a.operands == b.operands
        && steps.jaxpr.avals[a.out] == steps.jaxpr.avals[b.out]
        && (a.eqn == b.eqn
            || (steps.eqn(a.eqn).op == steps.eqn(b.eqn).op && waits(b).iter().all(|t| waits(a).contains(t))))
}

/// Makes the equations of a loop read one variable for another.
fn rename(fused_loop: &mut FusedLoop, old: Var, new: Var) {
    for operand in fused_loop.members.iter_mut().flat_map(|m| &mut m.operands) {
        if let Value::View { base, .. } = operand
            && *base == old
        {
            *base = new;
        }
    }
}

/// Merges reductions that read the same values. Each moves to the first such reduction at which its operands are available, if its results
/// are small enough to be kept from then on.
pub(super) fn merge_reductions(steps: &mut Steps) {
    let mut all = std::mem::take(&mut steps.steps);
    let mut written: Vec<usize> = vec![0; steps.jaxpr.avals.len()];
    for at in 0..all.len() {
        let target = merge_target(steps, &all, at, &written).unwrap_or(at);
        if target < at
            && let (before, [Step::Loop(fused_loop), ..]) = all.split_at_mut(at)
            && let Some(Step::Loop(into)) = before.get_mut(target)
        {
            into.members.append(&mut fused_loop.members);
            into.outs.append(&mut fused_loop.outs);
        }
        // Steps are counted from one; arguments are written at zero.
        all[target].outs().for_each(|out| written[out.0 as usize] = target + 1);
    }
    all.retain(|step| !matches!(step, Step::Loop(fused_loop) if fused_loop.members.is_empty()));
    steps.steps = all;
}

/// The first reduction into which this one can be merged.
fn merge_target(steps: &Steps, all: &[Step], at: usize, written: &[usize]) -> Option<usize> {
    let reduction = |i: usize| match &all[i] {
        Step::Loop(fused_loop) => fused_loop.reduction.as_ref().map(|over| (fused_loop, over)),
        _ => None,
    };
    let (fused_loop, over) = reduction(at)?;
    let reads = steps.large_reads(fused_loop.members.iter());
    let bytes = |vars: &[Var]| vars.iter().map(|&var| steps.jaxpr.avals[var].bytes()).sum::<usize>();
    if bytes(&fused_loop.outs) > SMALL_BYTES.max(bytes(&reads) / MUCH_SMALLER) {
        return None;
    }
    let is_own = |var: Var| fused_loop.members.iter().any(|m| m.out == var);
    let ready = all[at].reads(&steps.tokens).filter(|&var| !is_own(var)).map(|var| written[var.0 as usize]).max();
    (at.saturating_sub(MOST_STEPS_AHEAD)..at).find(|&i| {
        reduction(i).is_some_and(|(into, other)| {
            let others = steps.large_reads(into.members.iter());
            let shared = reads.iter().filter(|var| others.contains(var)).count();
            other == over
                && shared > 0
                && reads.len() + others.len() - shared <= MOST_READ
                && fused_loop.members.len() + into.members.len() <= MOST_MEMBERS
                && ready.is_none_or(|ready| ready <= i)
        })
    })
}
