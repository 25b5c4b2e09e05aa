//! A kernel that runs a fast method and, if a result is not finite, runs a plain method instead.
//!
//! By the operation, weights meet the zeros of padding, and weights that are not finite become NaN. The fast methods differ there: some
//! skip these zeros, and one that exchanges image and window lets elements of the image meet zeros that they do not meet by the operation.
//! Such zeros change no sum of finite numbers. Minimal filtering adds up neighbours before it multiplies them, so that infinities become NaN
//! and sums overflow earlier.

use std::sync::atomic::{AtomicBool, Ordering};

use remat_ir::DType;

use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::number::{Number, with_float};
use crate::threads::Threads;

/// A convolution computed by one method and, if a result is not finite, by another.
pub(super) struct IfFinite<K> {
    fast: K,
    plain: Box<dyn Kernel>,
    /// The dtype of the results.
    out: DType,
}

impl<K: Kernel> IfFinite<K> {
    /// The kernel `fast`, and `plain` to compute the results again if one is not finite. Each element of either operand that reaches a
    /// result by `plain` must reach one by `fast` too.
    pub(super) fn new(fast: K, plain: Box<dyn Kernel>, out: DType) -> IfFinite<K> {
        IfFinite { fast, plain, out }
    }

    fn is_finite(&self, out: &mut Target<'_>, threads: &Threads) -> bool {
        let is_finite = AtomicBool::new(true);
        with_float!(self.out, T => {
            threads.for_each_chunk(out.slice_mut::<T>(), TASK_BYTES / size_of::<T>(), |_, part| {
                if !part.iter().all(|x| Number::widen(*x).is_finite()) {
                    is_finite.store(false, Ordering::Relaxed);
                }
            });
        });
        is_finite.into_inner()
    }
}

impl<K: Kernel> Kernel for IfFinite<K> {
    fn scratch(&self, threads: usize) -> usize {
        self.fast.scratch(threads).max(self.plain.scratch(threads))
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        self.fast.run(ins, outs, scratch, threads);
        if !self.is_finite(&mut outs[0], threads) {
            self.plain.run(ins, outs, scratch, threads);
        }
    }
}
