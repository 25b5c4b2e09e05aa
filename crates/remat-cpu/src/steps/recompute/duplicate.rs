//! Duplicates: values that a loop stores only for other loops are computed in each of these readers, as producers are in XLA's fusion.
//!
//! A stored value travels to memory once, and back once per reader. A reader that computes the value reads its operands instead, many of
//! which it reads anyway. In a batch norm, the squared differences and the terms that are summed for the gradients of scale and bias are
//! then never stored. Unlike [`recompute`](super::recompute), this saves time in the first place, and the operands that are kept for the
//! readers have no more bytes than the value. (A reader that would write its result over the value needs other memory for it, unless it can
//! take that of a kept operand: the peak may then be higher by the result.) The same elements are computed, so results do not change.

use remat_ir::Var;
use remat_opt::cost::{SMALL_BYTES, is_cheap};

use super::super::ir::{FusedLoop, Steps};
use super::{Cone, Leaves, Recomputer, reads};

/// The most equations that are duplicated for a value.
const MOST_DUPLICATED: usize = 6;

/// The bytes that arrive from memory in the time a loop takes to compute one equation for one element.
pub(in crate::steps) const BYTES_OF_EQUATION: usize = 1;

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
        if self.stays[out] || self.steps.jaxpr.avals[out].bytes() < SMALL_BYTES {
            return;
        }
        let Some(cone) = self.cone(fused_loop, at, out, Leaves::All) else { return };
        let is_cheap = |&i: &usize| is_cheap(&self.steps.eqn(fused_loop.members[i].eqn).op);
        let readers = self.readers[out].clone();
        let pays = cone.members.len() <= MOST_DUPLICATED
            && cone.members.iter().all(is_cheap)
            && readers.iter().all(|&reader| self.can_inline(reader, fused_loop, out, &cone))
            && self.pays(fused_loop, out, &cone, &readers)
            && self.needs_no_memory(out, &cone, &readers);
        if !pays || readers.is_empty() {
            return;
        }
        for &reader in &readers {
            self.inline(at, out, &cone, reader);
        }
        self.readers[out].clear();
        if let Some(fused_loop) = self.loop_at_mut(at) {
            fused_loop.outs.retain(|&v| v != out);
            fused_loop.prune();
        }
    }

    /// Whether computing the value in its readers moves fewer bytes, with equations counted as bytes.
    fn pays(&self, from: &FusedLoop, out: Var, cone: &Cone, readers: &[usize]) -> bool {
        let bytes = |var: Var| self.steps.jaxpr.avals[var].bytes();
        let large = || cone.leaves.iter().copied().filter(|&leaf| bytes(leaf) >= SMALL_BYTES);
        // A store first reads its cache line.
        let mut saved = (2 + readers.len()) * bytes(out);
        if from.outs == [out] {
            saved += large().map(bytes).sum::<usize>();
        }
        let more = |&reader: &usize| {
            let is_read = |leaf: Var| self.loop_at(reader).is_some_and(|g| g.members.iter().any(|m| reads(m, leaf)));
            large().filter(|&leaf| !is_read(leaf)).map(bytes).sum::<usize>()
        };
        let equations = readers.len() * cone.members.len() * from.size() * BYTES_OF_EQUATION;
        readers.iter().map(more).sum::<usize>() + equations < saved
    }

    /// Whether the operands kept for the readers have no more bytes than the value.
    fn needs_no_memory(&self, out: Var, cone: &Cone, readers: &[usize]) -> bool {
        let bytes = |var: Var| self.steps.jaxpr.avals[var].bytes();
        let last = readers.last();
        let is_kept = |leaf: Var| !self.is_output(leaf) && self.readers[leaf].last() < last;
        let kept = cone.leaves.iter().copied().filter(|&leaf| bytes(leaf) >= SMALL_BYTES && is_kept(leaf));
        kept.map(bytes).sum::<usize>() <= bytes(out)
    }

    fn is_output(&self, var: Var) -> bool {
        self.stays[var] && !self.steps.jaxpr.ins.contains(&var)
    }
}
