//! The kernel of a branch.

// Branches run on addresses of operands.
#![allow(unsafe_code)]

use remat_ir::{Cond, Element, LiveValue, Result, with_dtype};
use remat_kernels::{Kernel, Source, Target, Threads};

use super::body::{Body, internal};
use crate::compile::Caller;

pub(super) struct CondKernel {
    branches: Vec<Body>,
    /// Those of the branch with the most scratch memory.
    live: Vec<LiveValue>,
}

impl CondKernel {
    pub(super) fn new(op: &Cond, threads: &Threads) -> Result<CondKernel> {
        let branches = op.branches.iter().map(|branch| Body::new(branch, Caller::WITHOUT_CARRIES, threads));
        let branches = branches.collect::<Result<Vec<Body>>>()?;
        let largest = branches.iter().max_by_key(|body| body.addresses() + body.arena());
        let largest = largest.ok_or_else(|| internal("a cond has no branches".to_string()))?;
        Ok(CondKernel { live: largest.live().collect(), branches })
    }
}

impl Kernel for CondKernel {
    fn scratch(&self, _: usize) -> usize {
        self.branches.iter().map(|body| body.addresses() + body.arena()).max().unwrap_or(0)
    }

    fn live(&self) -> &[LiveValue] {
        &self.live
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let outs = &*outs;
        let index = with_dtype!(ins[0].dtype(), T => ins[0].slice::<T>().first().and_then(|i| i.literal().as_i128()));
        let last = self.branches.len().saturating_sub(1);
        let branch = index.unwrap_or(0).clamp(0, last as i128) as usize;
        if let Some(body) = self.branches.get(branch) {
            let (addresses, arena) = scratch.split_at_mut(body.addresses());
            // SAFETY: the branch reads operands and writes outputs, and no output is an operand.
            unsafe {
                let frame = body.frame(addresses.as_mut_ptr(), |i| ins[i + 1].as_ptr(), |o| outs[o].as_ptr());
                frame.run(arena.as_mut_ptr(), threads);
            }
        }
    }
}
