//! Fused loops: elementwise operations and reductions, computed tile by tile.
//!
//! A loop is given as a [`LoopSpec`] and becomes a small program in which each instruction computes a whole tile, so that intermediate
//! values never leave the first-level cache (as in MonetDB/X100's vectorised execution, Boncz et al. 2005). There is no code generation:
//! compiling a loop takes microseconds. Several loops over one space can run block by block ([`BlockedLoops`](crate::BlockedLoops)).
//!
//! A long loop prefetches the next tile while it computes one, since the hardware does not prefetch what many short loops read in turn.

mod blocks;
#[cfg(test)]
mod blocks_tests;
#[cfg(test)]
mod chain_tests;
mod dims;
mod map;
mod memory;
mod program;
mod reducer;
mod reduction;
#[cfg(test)]
mod tests;

use crate::interface::{Kernel, LoopSpec};

impl LoopSpec {
    /// The kernel; `None` if there is no tile function for one of the operations, which is a defect.
    pub fn kernel(&self) -> Option<Box<dyn Kernel>> {
        match &self.reduction {
            None => Some(Box::new(map::Map::new(self)?)),
            Some((shape, axes)) => Some(Box::new(reduction::Reduction::new(self, shape, axes)?)),
        }
    }
}
