//! Kernels: each computes one step over operands that lie in memory already.
//!
//! A kernel is built once, when a program is compiled, for operands of known dtypes and shapes; whatever can be decided
//! then is decided then. It allocates nothing while it runs: what it needs beside its outputs it asks for as scratch.

mod arg_reduce;
pub(crate) mod attention;
mod bitcast;
mod blocks;
mod concatenate;
pub(crate) mod conv;
pub(crate) mod copy;
mod cumulative;
mod gather;
mod index;
mod iota;
mod keys;
mod layout;
mod library;
pub(crate) mod loops;
pub(crate) mod matmul;
mod number;
mod operand;
mod pad;
mod placement;
mod product;
mod scatter;
pub(crate) mod scratch;
mod slice;
mod sort;
#[cfg(test)]
pub(crate) mod test_support;
mod threefry;
mod top_k;
mod transpose;
mod walk;
mod window;

pub(crate) use layout::Layout;
pub(crate) use library::kernel;
pub(crate) use loops::Extent;
pub(crate) use operand::{Source, Target};

use remat_ir::LiveValue;

use crate::threads::Threads;

/// One step of a compiled program.
pub(crate) trait Kernel: Send + Sync {
    /// Bytes of scratch memory that a run on so many threads needs.
    fn scratch(&self, threads: usize) -> usize {
        let _ = threads;
        0
    }

    /// The operands whose memory an output may take, if nobody needs the operand afterwards, as pairs of operand and output.
    /// Such an operand is a whole buffer of the output's size. In a run where the output did take it,
    /// [`Source::is_in_place`] says so, the operand has no elements of its own, and the output holds the operand's
    /// elements when the run begins.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// What lies in the scratch memory when most of it is used, where the kernel knows it better than by its size.
    fn live(&self) -> &[LiveValue] {
        &[]
    }

    /// Computes the outputs. What they hold before is unspecified, unless in place. The scratch memory is aligned to 64
    /// bytes and what it holds is unspecified.
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads);
}
