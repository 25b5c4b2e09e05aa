//! Rematerialization that costs next to nothing: readers compute a value again that a loop would store for a step far away, or that has
//! more bytes than its operands.
//!
//! An elementwise value need not stay in memory until a late reader if its operands are in memory then anyway. A reader that is a loop
//! computes the value itself; for other steps a loop is inserted before the first of them. Only elementwise operations are computed again:
//! row values of a loop (a mean, a maximum) are small and are stored. Results do not change, since the same operations are applied to the
//! same elements. (XLA's fusion also duplicates cheap producers into their consumers; here the decision depends on how long a value would
//! be kept.)
//!
//! An operand that is kept for long anyway may also take the place of a value of its size: the input of a checkpointed block stays until
//! the norm's derivative, instead of its difference from the mean since the forward pass. Results are bitwise the same, except which NaN an
//! operation of two NaN returns. What a policy must save, or `custom_remat` passes, is never computed again.

mod duplicate;

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use remat_ir::{Var, VarMap};
use remat_kernels::Extent;
use remat_opt::cost::{FAR_STEPS, MOST_RECOMPUTED};

pub(in crate::steps) use self::duplicate::duplicate;
use super::{Change, Kind};
use crate::steps::facts::Facts;
use crate::steps::fuse::{MOST_MEMBERS, fits_shape};
use crate::steps::ir::{FusedLoop, Member, Step, Steps, Value};

const RECOMPUTE: Kind = Kind { name: "recompute", why: "its readers are far away, or its operands have fewer bytes" };

/// How often the steps are visited. A round keeps the operands of the values that it computes again; the next one may compute those again
/// too: a norm from the normalised values, those from the difference from the mean, and that from the norm's input.
const ROUNDS: usize = 3;

/// Recomputes values that are read far away from the step that computes them.
pub(in crate::steps) fn recompute(steps: Steps) -> Steps {
    (0..ROUNDS).fold(steps, |steps, _| {
        let mut recomputer = Recomputer::new(steps);
        (0..recomputer.steps.steps.len()).for_each(|at| recomputer.fused_loop(at));
        recomputer.finish()
    })
}

struct Recomputer {
    steps: Steps,
    facts: Facts,
    /// Values that are not computed again, because they are operands of recomputed values or of barriers, or marked.
    pinned: VarMap<bool>,
    /// The steps that are inserted before each step, and their time in picoseconds.
    before: Vec<Vec<Step>>,
    inserted: i64,
}

/// The values from which a value of a loop may be computed again, besides the loop's operands and its row values.
#[derive(Clone, Copy)]
enum Leaves {
    /// None.
    Read,
    /// Values that the loop stores and that take fewer bytes.
    Narrower,
    /// Values that the loop stores and that are read far away too.
    Stored,
    /// Values that the loop stores.
    All,
}

/// The members that compute a value from its leaves.
struct Cone {
    /// Positions in the loop, in order.
    members: Vec<usize>,
    leaves: Vec<Var>,
}

impl Recomputer {
    fn new(steps: Steps) -> Recomputer {
        // An operand of a barrier is computed before the barrier, and not again after it.
        let mut pinned = VarMap::filled(steps.jaxpr.avals.len(), false);
        for step in steps.steps.iter().filter(|step| matches!(step, Step::Barrier { .. })) {
            step.operands().filter_map(Value::base).for_each(|base| pinned[base] = true);
        }
        steps.kept.iter().for_each(|&var| pinned[var] = true);
        let before = steps.steps.iter().map(|_| Vec::new()).collect();
        Recomputer { facts: Facts::of(&steps), steps, pinned, before, inserted: 0 }
    }

    fn loop_at(&self, at: usize) -> Option<&FusedLoop> {
        self.steps.steps[at].fused_loop()
    }

    fn loop_at_mut(&mut self, at: usize) -> Option<&mut FusedLoop> {
        self.steps.steps[at].fused_loop_mut()
    }

    /// Decides which stored values of a loop are computed again. The last come first, so that their operands may stay, and the widest
    /// before all others, so that they are not kept for narrow ones.
    fn fused_loop(&mut self, at: usize) {
        let Some(fused_loop) = self.loop_at(at).filter(|g| g.reduction.is_none()) else { return };
        let mut outs: Vec<Var> = fused_loop.outs.iter().rev().copied().collect();
        outs.sort_by_key(|&out| Reverse(self.steps.jaxpr.avals[out].bytes()));
        for out in outs {
            self.value(at, out);
        }
    }

    fn value(&mut self, at: usize, out: Var) {
        let Some(fused_loop) = self.loop_at(at) else { return };
        let is_full = fused_loop.members.iter().any(|m| m.out == out && m.extent == Extent::Full);
        if !is_full || self.facts.stays[out] || self.pinned[out] || !self.steps.is_large(out) {
            return;
        }
        let kinds = [Leaves::Read, Leaves::Narrower, Leaves::Stored].into_iter();
        let cones = kinds.filter_map(|leaves| self.cone(fused_loop, at, out, leaves));
        let chosen = cones
            .map(|cone| (self.worth(fused_loop, at, out, &cone), cone))
            .find(|(readers, cone)| self.available(cone, at, out, readers));
        let Some((again, cone)) = chosen else { return };
        let touched: Vec<usize> = [at].into_iter().chain(again.iter().copied()).collect();
        let time = self.time(&touched);
        for &leaf in &cone.leaves {
            self.pinned[leaf] = true;
            if self.facts.computed[leaf] == Some(at)
                && let Some(fused_loop) = self.loop_at_mut(at)
                && !fused_loop.outs.contains(&leaf)
            {
                fused_loop.outs.push(leaf);
            }
        }
        let mut from = 0;
        while from < again.len() {
            let until =
                again[from..].iter().position(|&r| r > again[from] + FAR_STEPS).map_or(again.len(), |n| from + n);
            self.serve(at, out, &cone, &again[from..until]);
            from = until;
        }
        self.facts.readers[out].retain(|r| !again.contains(r));
        let is_needed = !self.facts.readers[out].is_empty();
        if let Some(fused_loop) = self.loop_at_mut(at).filter(|_| !is_needed) {
            fused_loop.outs.retain(|&v| v != out);
            fused_loop.prune();
        }
        self.note_move(&RECOMPUTE, out, time - self.time(&touched));
    }

    /// The time of these steps and of those that are inserted, in picoseconds.
    fn time(&self, steps: &[usize]) -> i64 {
        self.steps.time_of(steps.iter().map(|&at| &self.steps.steps[at])) + self.inserted
    }

    /// Notes that a value is no longer stored, or for fewer steps, which saves this time.
    fn note_move(&mut self, kind: &'static Kind, value: Var, time: i64) {
        let bytes = -(self.steps.bytes(value) as i64);
        self.steps.made.push(Change { kind, value, results: Vec::new(), kept: None, time, bytes });
    }

    /// The readers for which computing a value again pays: steps far away, or all readers if they are loops that can compute it, none of
    /// them a reduction, and its operands have fewer bytes, as numbers in half precision do.
    fn worth(&self, fused_loop: &FusedLoop, at: usize, out: Var, cone: &Cone) -> Vec<usize> {
        let bytes = self.steps.jaxpr.avals[out].bytes();
        let of_leaves: usize = cone.leaves.iter().map(|&leaf| self.steps.jaxpr.avals[leaf].bytes()).sum();
        let readers = &self.facts.readers[out];
        let may_read = |&reader: &usize| {
            self.loop_at(reader).is_some_and(|g| g.reduction.is_none())
                && self.can_inline(reader, fused_loop, out, cone)
        };
        if of_leaves < bytes && readers.iter().all(may_read) {
            return readers.clone();
        }
        readers.iter().copied().filter(|&r| r > at + FAR_STEPS).collect()
    }

    /// The members that compute a value of a loop from leaves of this kind.
    fn cone(&self, fused_loop: &FusedLoop, at: usize, out: Var, leaves: Leaves) -> Option<Cone> {
        let position: HashMap<Var, usize> = fused_loop.members.iter().enumerate().map(|(i, m)| (m.out, i)).collect();
        let mut cone = Cone { members: Vec::new(), leaves: Vec::new() };
        let mut stack = vec![out];
        while let Some(var) = stack.pop() {
            let &i = position.get(&var)?;
            if cone.members.contains(&i) {
                continue;
            }
            cone.members.push(i);
            if cone.members.len() > MOST_RECOMPUTED {
                return None;
            }
            for base in fused_loop.members[i].operands.iter().filter_map(Value::base) {
                let inside = position.get(&base).map(|&j| &fused_loop.members[j]);
                let is_leaf = inside.is_none_or(|m| {
                    m.extent == Extent::Row || (fused_loop.outs.contains(&base) && self.may_stay(base, at, out, leaves))
                });
                match is_leaf {
                    true if !cone.leaves.contains(&base) => cone.leaves.push(base),
                    true => {}
                    false => stack.push(base),
                }
            }
        }
        cone.members.sort_unstable();
        Some(cone)
    }

    /// Whether a stored value may stay in memory instead of another one.
    fn may_stay(&self, var: Var, at: usize, out: Var, leaves: Leaves) -> bool {
        let avals = &self.steps.jaxpr.avals;
        match leaves {
            Leaves::Read => false,
            Leaves::All => true,
            Leaves::Narrower => avals[var].bytes() < avals[out].bytes(),
            Leaves::Stored => {
                self.facts.stays[var] || self.facts.readers[var].last().is_some_and(|&r| r > at + FAR_STEPS)
            }
        }
    }

    /// Whether the leaves of a value are in memory at these readers (or nearly until then) anyway, are small, or have fewer bytes than the
    /// value that would have to stay. One leaf of as many bytes may also stay, if it does so for long anyway and all readers are loops: it
    /// takes the place of the value from its last reader on. A loop must be able to write its result over it as over the value, so it has
    /// the dtype and is read element by element. A reduction writes no result of that size.
    fn available(&self, cone: &Cone, at: usize, out: Var, readers: &[usize]) -> bool {
        let (Some(fused_loop), Some(&step)) = (self.loop_at(at), readers.last()) else { return false };
        let aval = |var: Var| &self.steps.jaxpr.avals[var];
        let last = |leaf: Var| self.facts.readers[leaf].last().copied().unwrap_or(0);
        let stays = |leaf: Var| {
            let is_row = self.facts.computed[leaf] == Some(at) && self.is_row(leaf, at);
            self.facts.stays[leaf] || !self.steps.is_large(leaf) || is_row || last(leaf) + FAR_STEPS >= step
        };
        let others: Vec<Var> = cone.leaves.iter().copied().filter(|&leaf| !stays(leaf)).collect();
        match others.iter().map(|&leaf| aval(leaf).bytes()).sum::<usize>().cmp(&aval(out).bytes()) {
            Ordering::Less => true,
            Ordering::Equal => {
                let &[leaf] = &others[..] else { return false };
                aval(leaf).dtype == aval(out).dtype
                    && last(leaf) > at + FAR_STEPS
                    && self.is_read_in_order(at, cone, leaf)
                    && readers.iter().all(|&reader| self.can_inline(reader, fused_loop, out, cone))
            }
            Ordering::Greater => false,
        }
    }

    /// Whether the members of a cone read all elements of a leaf in their order.
    fn is_read_in_order(&self, at: usize, cone: &Cone, leaf: Var) -> bool {
        let size = self.steps.jaxpr.avals[leaf].size();
        let Some(fused_loop) = self.loop_at(at) else { return false };
        cone.members.iter().all(|&i| fused_loop.members[i].operands.iter().all(|x| x.is_other_or_whole(leaf, size)))
    }

    fn is_row(&self, var: Var, at: usize) -> bool {
        self.loop_at(at).is_some_and(|g| g.members.iter().any(|m| m.out == var && m.extent == Extent::Row))
    }

    /// Computes a value again for some steps.
    fn serve(&mut self, at: usize, out: Var, cone: &Cone, readers: &[usize]) {
        let (Some(&first), Some(fused_loop)) = (readers.first(), self.loop_at(at)) else { return };
        let size = fused_loop.size();
        if readers.iter().all(|&r| self.can_inline(r, fused_loop, out, cone)) {
            readers.iter().for_each(|&reader| self.inline(at, out, cone, reader));
            return;
        }
        let (members, again) = self.copies(at, out, cone);
        let fused_loop = FusedLoop { members, rows: size, columns: None, reduction: None, outs: vec![again] };
        let step = Step::Loop(fused_loop);
        self.inserted += self.steps.time(&step) as i64;
        self.before[first].push(step);
        self.note(cone, first);
        for &reader in readers {
            self.steps.steps[reader].replace(out, again);
            self.facts.readers[again].push(reader);
        }
    }

    /// Computes a value again in a loop that reads it.
    fn inline(&mut self, at: usize, out: Var, cone: &Cone, reader: usize) {
        let (members, again) = self.copies(at, out, cone);
        self.steps.steps[reader].replace(out, again);
        self.note(cone, reader);
        if let Some(fused_loop) = self.loop_at_mut(reader) {
            fused_loop.members.splice(0..0, members);
        }
    }

    /// Notes that the leaves are read at a step.
    fn note(&mut self, cone: &Cone, reader: usize) {
        for &leaf in &cone.leaves {
            self.facts.read(leaf, reader);
        }
    }

    /// Whether a step is a loop that can compute a value of the loop `from`: it has as many elements, and a reduction can read the operands
    /// in the dimensions of its shape.
    fn can_inline(&self, reader: usize, from: &FusedLoop, out: Var, cone: &Cone) -> bool {
        let Some(fused_loop) = self.loop_at(reader) else { return false };
        let is_readable =
            |&i: &usize| fused_loop.reduction.as_ref().is_none_or(|(shape, _)| fits_shape(&from.members[i], shape));
        fused_loop.size() == from.size()
            && fused_loop.members.len() + cone.members.len() <= MOST_MEMBERS
            && fused_loop.members.iter().all(|m| m.operands.iter().all(|x| x.is_other_or_whole(out, from.size())))
            && cone.members.iter().all(is_readable)
    }

    /// Copies of a cone's members with new results, and the variable of the value among them.
    fn copies(&mut self, at: usize, out: Var, cone: &Cone) -> (Vec<Member>, Var) {
        let mut again: HashMap<Var, Var> = HashMap::new();
        let mut members = Vec::new();
        for &i in &cone.members {
            let Some(fused_loop) = self.loop_at(at) else { continue };
            let member = &fused_loop.members[i];
            let (eqn, var) = (member.eqn, member.out);
            let mut operands = member.operands.clone();
            for operand in &mut operands {
                if let Value::View { base, .. } = operand
                    && let Some(&copy) = again.get(base)
                {
                    *base = copy;
                }
            }
            let copy = self.var(var);
            again.insert(var, copy);
            members.push(Member { eqn, out: copy, operands, extent: Extent::Full });
        }
        (members, again.get(&out).copied().unwrap_or(out))
    }

    /// A new variable of the same aval.
    fn var(&mut self, like: Var) -> Var {
        let var = self.steps.var_like(like);
        self.facts.push();
        self.pinned.push(true);
        var
    }

    fn finish(self) -> Steps {
        let Recomputer { mut steps, before, .. } = self;
        let old = std::mem::take(&mut steps.steps);
        for (step, before) in old.into_iter().zip(before) {
            steps.steps.extend(before);
            // Loops that store no value any more are dropped.
            if !matches!(&step, Step::Loop(fused_loop) if fused_loop.outs.is_empty()) {
                steps.steps.push(step);
            }
        }
        steps
    }
}

fn reads(member: &Member, var: Var) -> bool {
    member.operands.iter().any(|x| x.base() == Some(var))
}
