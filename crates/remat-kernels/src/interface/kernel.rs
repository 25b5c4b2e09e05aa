//! The trait of kernels.

use remat_ir::LiveValue;

use super::{Source, Target};
use crate::threads::Threads;

/// One step of a compiled program.
///
/// A kernel is built once, when a program is compiled, for operands of known dtypes and layouts. It allocates nothing while it runs: all
/// memory besides its outputs is scratch memory that it receives. Its results have the same bits on any number of threads.
pub trait Kernel: Send + Sync {
    /// Bytes of scratch memory that a run on `threads` threads needs.
    fn scratch(&self, threads: usize) -> usize {
        let _ = threads;
        0
    }

    /// Pairs of an operand and an output that may share memory, if no later step needs the operand. Several pairs may at once, if no two of
    /// them have an operand or an output in common. The operand is then a whole buffer of the output's size. In a run in which they share memory, [`Source::is_in_place`] returns true, the operand has no elements of its
    /// own, and the output holds the elements of the operand at the start. Bools share memory with bools only, since other bytes are not
    /// valid bools.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// The values in the scratch memory at its peak, if the kernel knows more about them than their size.
    fn live(&self) -> &[LiveValue] {
        &[]
    }

    /// The name of the algorithm that computes the operation, if there are several for its family.
    fn algorithm(&self) -> Option<&'static str> {
        None
    }

    /// Computes the outputs. Their initial bytes are unspecified, unless in place. The scratch memory is aligned to 64 bytes, and its bytes
    /// are unspecified.
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads);
}
