//! The trait of kernels.

use remat_ir::LiveValue;

use super::{Source, Target};
use crate::threads::Threads;

/// One step of a compiled program.
///
/// A kernel is built once, when a program is compiled, for operands of known dtypes and layouts. It allocates nothing while it
/// runs: memory beside its outputs is given to it as scratch. Its results have the same bits on any number of threads.
pub trait Kernel: Send + Sync {
    /// Bytes of scratch memory that a run on `threads` threads needs.
    fn scratch(&self, threads: usize) -> usize {
        let _ = threads;
        0
    }

    /// The operands whose memory an output may take, if no later step needs the operand, as pairs of operand and output.
    /// Such an operand is a whole buffer of the output's size. In a run where the output did take it,
    /// [`Source::is_in_place`] says so, the operand has no elements of its own, and the output holds the operand's
    /// elements when the run begins.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// The values in the scratch memory when most of it is used, where the kernel knows more about them than their size.
    fn live(&self) -> &[LiveValue] {
        &[]
    }

    /// Computes the outputs. Their bytes before are unspecified, unless in place. The scratch memory is aligned to 64
    /// bytes, and its bytes are unspecified.
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads);
}
