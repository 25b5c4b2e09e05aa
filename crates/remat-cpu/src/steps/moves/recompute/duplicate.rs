//! Duplicates: values that a loop stores only for other loops are computed in each of these readers, as producers are in XLA's fusion.
//!
//! A stored value travels to memory once, and back once per reader. A reader that computes the value reads its operands instead, many of
//! which it reads anyway. In a batch norm, the squared differences and the terms that are summed for the gradients of scale and bias are
//! then never stored. Unlike [`recompute`](super::recompute), this saves time in the first place, and the operands that are kept for the
//! readers have no more bytes than the value. (A reader that would write its result over the value needs other memory for it, unless it can
//! take that of a kept operand: the peak may then be higher by the result.) The same elements are computed, so results do not change.

use remat_ir::Var;
use remat_opt::cost::is_cheap;

use super::{Cone, Kind, Leaves, Recomputer, reads};
use crate::steps::cost::equation_bytes;
use crate::steps::ir::{FusedLoop, Steps};

const DUPLICATE: Kind = Kind { name: "duplicate", why: "loops that read it move fewer bytes if they compute it" };

/// The most equations that are duplicated for a value.
const MOST_DUPLICATED: usize = 6;

/// Computes values where they are read.
pub(in crate::steps) fn duplicate(steps: Steps) -> Steps {
    let mut recomputer = Recomputer::new(steps);
    for at in 0..recomputer.steps.steps.len() {
        let is_plain = |fused_loop: &&FusedLoop| fused_loop.reduction.is_none() && fused_loop.columns.is_none();
        let Some(fused_loop) = recomputer.loop_at(at).filter(is_plain) else { continue };
        // The last first, so that earlier values need not be stored for them.
        for out in fused_loop.outs.clone().into_iter().rev() {
            recomputer.duplicate(at, out);
        }
    }
    recomputer.finish()
}

impl Recomputer {
    /// Computes a stored value in all loops that read it, if they can and it pays.
    fn duplicate(&mut self, at: usize, out: Var) {
        let Some(fused_loop) = self.loop_at(at) else { return };
        if self.facts.stays[out] || self.steps.kept.contains(&out) || !self.steps.is_large(out) {
            return;
        }
        let Some(cone) = self.cone(fused_loop, at, out, Leaves::All) else { return };
        let is_cheap = |&i: &usize| is_cheap(&self.steps.eqn(fused_loop.members[i].eqn).op);
        let readers = self.facts.readers[out].clone();
        let pays = cone.members.len() <= MOST_DUPLICATED
            && cone.members.iter().all(is_cheap)
            && readers.iter().all(|&reader| self.can_inline(reader, fused_loop, out, &cone))
            && self.pays(fused_loop, out, &cone, &readers)
            && self.needs_no_memory(out, &cone, &readers);
        if !pays || readers.is_empty() {
            return;
        }
        let touched: Vec<usize> = [at].into_iter().chain(readers.iter().copied()).collect();
        let time = self.time(&touched);
        for &reader in &readers {
            self.inline(at, out, &cone, reader);
        }
        self.facts.readers[out].clear();
        if let Some(fused_loop) = self.loop_at_mut(at) {
            fused_loop.outs.retain(|&v| v != out);
            fused_loop.prune();
        }
        self.note_move(&DUPLICATE, out, time - self.time(&touched));
    }

    /// Whether computing the value in its readers moves fewer bytes, with equations counted as bytes.
    fn pays(&self, from: &FusedLoop, out: Var, cone: &Cone, readers: &[usize]) -> bool {
        let bytes = |var: Var| self.steps.bytes(var);
        let large = || cone.leaves.iter().copied().filter(|&leaf| self.steps.is_large(leaf));
        let mut saved = self.steps.store_bytes(out) + readers.len() * bytes(out);
        if from.outs == [out] {
            saved += large().map(bytes).sum::<usize>();
        }
        let more = |&reader: &usize| {
            let is_read = |leaf: Var| self.loop_at(reader).is_some_and(|g| g.members.iter().any(|m| reads(m, leaf)));
            large().filter(|&leaf| !is_read(leaf)).map(bytes).sum::<usize>()
        };
        let equations = readers.len() * equation_bytes(cone.members.len(), from.size());
        readers.iter().map(more).sum::<usize>() + equations < saved
    }

    /// Whether the operands kept for the readers have no more bytes than the value.
    fn needs_no_memory(&self, out: Var, cone: &Cone, readers: &[usize]) -> bool {
        let last = readers.last();
        let is_kept = |leaf: Var| !self.facts.is_returned[leaf] && self.facts.readers[leaf].last() < last;
        let kept = cone.leaves.iter().copied().filter(|&leaf| self.steps.is_large(leaf) && is_kept(leaf));
        kept.map(|leaf| self.steps.bytes(leaf)).sum::<usize>() <= self.steps.bytes(out)
    }
}
