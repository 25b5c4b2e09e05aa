//! Keeps values that loops would compute again, where there is memory for them.
//!
//! [`recompute`](super::recompute) decides before schedule and memory plan are known, as if every byte counted. But only bytes at the peak
//! count. Where fewer bytes are live, one loop may store a value that several loops compute, and the others read it instead of its
//! operands. The blocks of a residual network are such values: each is the sum of all before it, so a loop far behind would read the
//! operands of all of them. What a policy recomputes has equations of its own and is not touched.
//!
//! (Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020, choose optimally what to keep
//! within a budget. Here only loops are considered, and greedily: value by value, the last first.)

use std::collections::BTreeMap;
use std::ops::Range;

use remat_ir::{Result, Var, VarMap};
use remat_kernels::Extent;
use remat_opt::cost::SMALL_BYTES;
use remat_plan::{StepId, aligned};

use super::check::check;
use super::ir::{FusedLoop, Member, Step, Steps, Value, read_by};
use super::recompute::BYTES_OF_EQUATION;
use crate::ids::EqnId;

impl Steps {
    /// The steps in the order in which they run, with loops reading values that earlier loops have computed, as far as the bytes suffice
    /// that are free while each step runs. A kept value reserves `margin` times its bytes. `None` if nothing is kept.
    ///
    /// Enough free bytes do not prove that a value fits, since memory has holes and results are computed in place of operands. The caller
    /// therefore plans the memory of both programs.
    ///
    /// # Errors
    /// If the steps are wrong, which is a defect.
    pub(crate) fn keep(&self, order: &[StepId], free: &[usize], margin: usize) -> Result<Option<Steps>> {
        if !self.computes_again() {
            return Ok(None);
        }
        // Copies of results are not steps here.
        let there = order.iter().zip(free).filter(|(step, _)| step.index() < self.steps.len());
        let (order, free): (Vec<StepId>, Vec<usize>) = there.map(|(&step, &free)| (step, free / margin)).unzip();
        let steps = order.iter().map(|step| self.steps[step.index()].clone()).collect();
        let mut keeper = Keeper::new(self.with(steps), free);
        // The last equations first: a loop that reads one of them need not compute the equations before it.
        let mut is_changed = false;
        for (eqn, positions) in keeper.computed().into_iter().rev() {
            is_changed |= keeper.keep(eqn, &positions);
        }
        if !is_changed {
            return Ok(None);
        }
        let steps = keeper.finish();
        check(&steps)?;
        Ok(Some(steps))
    }

    /// Whether several loops compute one large value.
    fn computes_again(&self) -> bool {
        let mut seen = vec![false; self.jaxpr.eqns.len()];
        let mut members = self.steps.iter().filter_map(Step::fused_loop).flat_map(|fused_loop| &fused_loop.members);
        members.any(|m| {
            let is_large = m.extent == Extent::Full && self.jaxpr.avals[m.out].bytes() >= SMALL_BYTES;
            is_large && std::mem::replace(&mut seen[m.eqn.index()], true)
        })
    }
}

struct Keeper {
    steps: Steps,
    /// Bytes that are free while each step runs.
    free: Vec<usize>,
    /// The steps that read the buffer of each variable without computing it, in order. This includes steps that did so before another value
    /// was kept.
    readers: VarMap<Vec<usize>>,
    /// Arguments and results, which are in memory throughout.
    stays: VarMap<bool>,
}

/// A value that a loop computes.
#[derive(Clone, Copy)]
struct Computed {
    at: usize,
    var: Var,
}

impl Keeper {
    fn new(steps: Steps, free: Vec<usize>) -> Keeper {
        let vars = steps.jaxpr.avals.len();
        let (mut readers, mut stays) = (VarMap::filled(vars, Vec::new()), VarMap::filled(vars, false));
        for (at, step) in steps.steps.iter().enumerate() {
            for base in step.operands().filter_map(Value::base) {
                let is_own =
                    step.fused_loop().is_some_and(|fused_loop| fused_loop.members.iter().any(|m| m.out == base));
                let readers: &mut Vec<usize> = &mut readers[base];
                if !is_own && readers.last() != Some(&at) {
                    readers.push(at);
                }
            }
        }
        let outs = steps.jaxpr.outs.iter().filter_map(|a| steps.values[a.var()?].base());
        for var in steps.jaxpr.ins.iter().copied().chain(outs) {
            stays[var] = true;
        }
        Keeper { steps, free, readers, stays }
    }

    /// The loops that compute each large value, if there are several.
    fn computed(&self) -> BTreeMap<EqnId, Vec<usize>> {
        let mut computed: BTreeMap<EqnId, Vec<usize>> = BTreeMap::new();
        for (at, fused_loop) in
            self.steps.steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.fused_loop()?)))
        {
            let is_large = |var: Var| self.bytes(var) >= SMALL_BYTES;
            for member in fused_loop.members.iter().filter(|m| m.extent == Extent::Full && is_large(m.out)) {
                let positions = computed.entry(member.eqn).or_default();
                if positions.last() != Some(&at) {
                    positions.push(at);
                }
            }
        }
        computed.retain(|_, positions| positions.len() > 1);
        computed
    }

    /// Makes loops read a value that an earlier loop has computed. Returns whether any does.
    fn keep(&mut self, eqn: EqnId, positions: &[usize]) -> bool {
        let (mut kept, mut is_changed) = (None, false);
        for &at in positions {
            let Some(fused_loop) = self.steps.steps[at].fused_loop() else { continue };
            let Some(member) = fused_loop.members.iter().find(|m| m.eqn == eqn && m.extent == Extent::Full) else {
                continue;
            };
            let (again, can_store) = (Computed { at, var: member.out }, fused_loop.reduction.is_none());
            if kept.is_some_and(|kept| self.reads(kept, again)) {
                is_changed = true;
            } else if can_store {
                kept = Some(again);
            }
        }
        is_changed
    }

    /// Makes a loop, and the readers of its value, read the value that another loop has computed. Does so, and returns true, if that moves
    /// fewer bytes and the memory suffices.
    fn reads(&mut self, kept: Computed, again: Computed) -> bool {
        let [Some(from), Some(fused_loop)] = [kept.at, again.at].map(|at| self.steps.steps[at].fused_loop()) else {
            return false;
        };
        let (is_stored, is_given) = (from.outs.contains(&kept.var), fused_loop.outs.contains(&again.var));
        if is_given && self.stays[again.var] {
            return false;
        }
        let rest = rest(fused_loop, again.var);
        let is_read = rest.iter().any(|m| m.operands.iter().any(|x| x.base() == Some(again.var)));
        // A store first reads its cache line.
        let store = 2 * self.bytes(kept.var);
        let all: Vec<&Member> = fused_loop.members.iter().collect();
        let before = self.cost(fused_loop, &all) + if is_given { store } else { 0 };
        let after = self.cost(fused_loop, &rest) + if is_stored { 0 } else { store };
        if after >= before || !self.takes_memory(kept, again, is_stored, is_given) {
            return false;
        }
        if let Some(from) = self.steps.steps[kept.at].fused_loop_mut().filter(|_| !is_stored) {
            from.outs.push(kept.var);
        }
        self.steps.steps[again.at].replace(again.var, kept.var);
        if let Some(fused_loop) = self.steps.steps[again.at].fused_loop_mut() {
            fused_loop.outs.retain(|&out| out != again.var);
            fused_loop.prune();
        }
        let mut readers = std::mem::take(&mut self.readers[again.var]);
        readers.iter().for_each(|&reader| self.steps.steps[reader].replace(again.var, kept.var));
        readers.extend(is_read.then_some(again.at));
        let of_kept = &mut self.readers[kept.var];
        of_kept.append(&mut readers);
        of_kept.sort_unstable();
        of_kept.dedup();
        true
    }

    /// Subtracts the bytes of `kept` from the free bytes of the steps at which it was not live before, up to the one that would have
    /// computed `again`: from there on it takes the memory of `again`. Returns whether they suffice.
    fn takes_memory(&mut self, kept: Computed, again: Computed, is_stored: bool, is_given: bool) -> bool {
        if self.stays[kept.var] {
            return true;
        }
        let bytes = aligned(self.bytes(kept.var));
        let start = if is_stored { self.readers[kept.var].last().map_or(kept.at, |&last| last + 1) } else { kept.at };
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
        let Keeper { mut steps, stays: mut needed, .. } = self;
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

    /// The bytes that these equations of a loop read from memory, plus a number of bytes per equation that takes as long.
    fn cost(&self, fused_loop: &FusedLoop, members: &[&Member]) -> usize {
        let read = read_by(members.iter().copied()).into_iter().map(|var| self.bytes(var));
        let large = read.filter(|&bytes| bytes >= SMALL_BYTES);
        large.sum::<usize>() + members.len() * fused_loop.size() * BYTES_OF_EQUATION
    }

    fn bytes(&self, var: Var) -> usize {
        self.steps.jaxpr.avals[var].bytes()
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
