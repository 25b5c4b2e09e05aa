//! Convolutions that are computed in a way that is right where all results are finite, and again in a plain one where a result is not.
//!
//! By the operation, weights meet the zeros of padding, which makes NaN of those that are not finite; and a way that reads the window
//! instead lets elements of the image meet zeros that they do not meet by the operation. Zeros change no sum of finite numbers.

use std::sync::atomic::{AtomicBool, Ordering};

use remat_ir::DType;

use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::number::{Number, with_float};
use crate::threads::Threads;

/// A convolution computed in one way and, if a result is not finite, in another.
pub(super) struct IfFinite<K> {
    fast: K,
    plain: Box<dyn Kernel>,
    /// The dtype of the results.
    out: DType,
}

impl<K: Kernel> IfFinite<K> {
    /// The kernel `fast`, whose results `plain` computes again if one is not finite. Each element of either operand has to reach a result by
    /// `fast` if it does by `plain`.
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
