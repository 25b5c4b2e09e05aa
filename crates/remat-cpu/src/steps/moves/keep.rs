//! Keeps values that loops would compute again, where there is memory for them.
//!
//! [`recompute`](super::recompute) decides before schedule and memory plan are known, as if every byte counted. But only bytes at the peak
//! count. Where fewer bytes are live, one loop may store a value that several loops compute, and the others read it instead of its
//! operands. The blocks of a residual network are such values: each is the sum of all before it, so a loop far behind would read the
//! operands of all of them. What a policy recomputes has equations of its own and is not touched.
//!
//! (Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020, choose optimally what to keep
//! within a budget. Here only loops are considered, and greedily: value by value, the last first.)

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use remat_ir::{Result, Var};
use remat_kernels::Extent;
use remat_plan::aligned;

use super::{Change, Kind, Program, Proposal};
use crate::ids::EqnId;
use crate::steps::check::check;
use crate::steps::facts::Facts;
use crate::steps::ir::{FusedLoop, Member, Step, Steps, Value};

const KIND: Kind = Kind { name: "keep", why: "there is memory for a value that a loop would compute again" };

/// The steps in the order in which they run, with loops reading values that earlier loops have computed, as far as the bytes suffice that
/// are free while each step runs.
///
/// Enough free bytes do not prove that a value fits, since memory has holes and results are computed in place of operands.
///
/// # Errors
/// If the changed steps are wrong, which is a defect.
pub(crate) fn propose(program: &Program<'_>) -> Result<Option<Proposal>> {
    let steps = program.steps;
    if !steps.computes_again() {
        return Ok(None);
    }
    let free = program.order.iter().zip(program.free).filter(|(step, _)| step.index() < steps.steps.len());
    let free = free.map(|(_, &free)| free).collect();
    let in_order = program.positions().map(|at| steps.steps[at].clone()).collect();
    let mut keeper = Keeper::new(steps.with(in_order), free, program.excluded);
    // The last equations first: a loop that reads one of them need not compute the equations before it.
    for (eqn, positions) in keeper.computed().into_iter().rev() {
        keeper.keep(eqn, &positions);
    }
    if keeper.moves.is_empty() {
        return Ok(None);
    }
    let moves = std::mem::take(&mut keeper.moves);
    let steps = keeper.finish();
    check(&steps)?;
    Ok(Some(Proposal { steps, moves }))
}

impl Steps {
    /// Whether several loops compute one large value.
    fn computes_again(&self) -> bool {
        let mut seen = vec![false; self.jaxpr.eqns.len()];
        let mut members = self.steps.iter().filter_map(Step::fused_loop).flat_map(|fused_loop| &fused_loop.members);
        members.any(|m| {
            let is_large = m.extent == Extent::Full && self.is_large(m.out);
            is_large && std::mem::replace(&mut seen[m.eqn.index()], true)
        })
    }
}

struct Keeper<'a> {
    steps: Steps,
    /// Bytes that are free while each step runs.
    free: Vec<usize>,
    /// The readers include steps that read a variable before another value was kept.
    facts: Facts,
    excluded: &'a HashSet<Var>,
    moves: Vec<Change>,
}

/// A value that a loop computes.
#[derive(Clone, Copy)]
struct Computed {
    at: usize,
    var: Var,
}

impl Keeper<'_> {
    fn new(steps: Steps, free: Vec<usize>, excluded: &HashSet<Var>) -> Keeper<'_> {
        Keeper { facts: Facts::of(&steps), steps, free, excluded, moves: Vec::new() }
    }

    /// The loops that compute each large value, if there are several.
    fn computed(&self) -> BTreeMap<EqnId, Vec<usize>> {
        let mut computed: BTreeMap<EqnId, Vec<usize>> = BTreeMap::new();
        for (at, fused_loop) in
            self.steps.steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.fused_loop()?)))
        {
            for member in fused_loop.members.iter().filter(|m| m.extent == Extent::Full && self.steps.is_large(m.out)) {
                let positions = computed.entry(member.eqn).or_default();
                if positions.last() != Some(&at) {
                    positions.push(at);
                }
            }
        }
        computed.retain(|_, positions| positions.len() > 1);
        computed
    }

    /// Makes loops read a value that an earlier loop has computed.
    fn keep(&mut self, eqn: EqnId, positions: &[usize]) {
        let mut kept = None;
        for &at in positions {
            let Some(fused_loop) = self.steps.steps[at].fused_loop() else { continue };
            let Some(member) = fused_loop.members.iter().find(|m| m.eqn == eqn && m.extent == Extent::Full) else {
                continue;
            };
            let again = Computed { at, var: member.out };
            let can_store = fused_loop.reduction.is_none() && !self.excluded.contains(&again.var);
            if !kept.is_some_and(|kept| self.reads(kept, again)) && can_store {
                kept = Some(again);
            }
        }
    }

    /// Makes a loop, and the readers of its value, read the value that another loop has computed. Does so, and returns true, if that moves
    /// fewer bytes and the memory suffices.
    fn reads(&mut self, kept: Computed, again: Computed) -> bool {
        let both = [kept.at, again.at];
        let [Some(from), Some(fused_loop)] = both.map(|at| self.steps.steps[at].fused_loop()) else {
            return false;
        };
        let (is_stored, is_given) = (from.outs.contains(&kept.var), fused_loop.outs.contains(&again.var));
        if is_given && self.facts.stays[again.var] {
            return false;
        }
        let rest = rest(fused_loop, again.var);
        let is_read = rest.iter().any(|m| m.operands.iter().any(|x| x.base() == Some(again.var)));
        let store = self.steps.store_bytes(kept.var);
        let read = |members: &[&Member]| self.steps.read_bytes(members.iter().copied(), fused_loop.size());
        let before = read(&fused_loop.members.iter().collect::<Vec<_>>()) + if is_given { store } else { 0 };
        let after = read(&rest) + if is_stored { 0 } else { store };
        if after >= before || !self.takes_memory(kept, again, is_stored, is_given) {
            return false;
        }
        let time = |steps: &Steps| steps.time_of(both.map(|at| &steps.steps[at]));
        let time_before = time(&self.steps);
        if let Some(from) = self.steps.steps[kept.at].fused_loop_mut().filter(|_| !is_stored) {
            from.outs.push(kept.var);
        }
        self.steps.steps[again.at].replace(again.var, kept.var);
        if let Some(fused_loop) = self.steps.steps[again.at].fused_loop_mut() {
            fused_loop.outs.retain(|&out| out != again.var);
            fused_loop.prune();
        }
        let mut readers = std::mem::take(&mut self.facts.readers[again.var]);
        readers.iter().for_each(|&reader| self.steps.steps[reader].replace(again.var, kept.var));
        readers.extend(is_read.then_some(again.at));
        readers.into_iter().for_each(|reader| self.facts.read(kept.var, reader));
        let bytes = self.steps.bytes(kept.var) as i64;
        let time = time_before - time(&self.steps);
        self.moves.push(Change {
            kind: &KIND,
            value: kept.var,
            results: Vec::new(),
            kept: Some(kept.var),
            time,
            bytes,
        });
        true
    }

    /// Subtracts the bytes of `kept` from the free bytes of the steps at which it was not live before, up to the one that would have
    /// computed `again`: from there on it takes the memory of `again`. Returns whether they suffice.
    fn takes_memory(&mut self, kept: Computed, again: Computed, is_stored: bool, is_given: bool) -> bool {
        if self.facts.stays[kept.var] {
            return true;
        }
        let bytes = aligned(self.steps.bytes(kept.var));
        let last = self.facts.readers[kept.var].last();
        let start = if is_stored { last.map_or(kept.at, |&last| last + 1) } else { kept.at };
        let range: Range<usize> = start..again.at + usize::from(!is_given);
        let free = self.free.get_mut(range).unwrap_or_default();
        let suffices = free.iter().all(|&free| free >= bytes);
        if suffices {
            free.iter_mut().for_each(|free| *free -= bytes);
        }
        suffices
    }

    /// The steps without stores that nothing reads, and without loops and copies that store nothing.
    fn finish(self) -> Steps {
        let Keeper { mut steps, facts: Facts { stays: mut needed, .. }, .. } = self;
        let mut rest = Vec::with_capacity(steps.steps.len());
        for mut step in std::mem::take(&mut steps.steps).into_iter().rev() {
            let is_needed = match &mut step {
                Step::Loop(fused_loop) => {
                    fused_loop.outs.retain(|&out| needed[out]);
                    fused_loop.prune();
                    !fused_loop.outs.is_empty()
                }
                Step::Copy { out, .. } | Step::Iota { out, .. } => needed[*out],
                Step::Equation { .. } | Step::Barrier { .. } | Step::Blocks(_) => true,
            };
            if is_needed {
                step.operands().filter_map(Value::base).for_each(|base| needed[base] = true);
                rest.push(step);
            }
        }
        rest.reverse();
        steps.steps = rest;
        steps
    }
}

/// The members that a loop still needs if it reads `read` from memory instead of computing it.
fn rest(fused_loop: &FusedLoop, read: Var) -> Vec<&Member> {
    let mut needed: Vec<Var> = fused_loop.outs.iter().copied().filter(|&out| out != read).collect();
    let mut rest = Vec::new();
    for member in fused_loop.members.iter().rev().filter(|m| m.out != read) {
        if needed.contains(&member.out) {
            needed.extend(member.operands.iter().filter_map(Value::base));
            rest.push(member);
        }
    }
    rest
}
