//! Measures what bounds products on a CPU: the peak rate of multiplications and additions, and that of reading memory.

// The instructions are those of the detected level.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use remat_ir::DType;

use super::Accumulator;
use crate::base::narrow::{Kind, Unit};
use crate::simd::{Level, multiversion, prefetch};
use crate::threads::Threads;

/// Positions of a measurement, each of 12 by 32 multiplications in f32 with AVX-512. It takes some tens of microseconds, and less than a
/// millisecond without such vectors.
const POSITIONS: usize = 20_000;

/// Measures the peak rate of one thread, in GFLOP/s (for integers, billions of operations per second), in the type in which products of
/// this dtype are computed. One measurement takes some tens of microseconds or more; the maximum of many measurements is the ceiling of a
/// product. All operands are in registers. Where this CPU has a unit for products of bf16, f16, i8 or u8 (AMX, dot products of AVX-512 or
/// NEON; for bytes also AVX-VNNI or AVX2) that is used, it is the rate of the unit's instructions. Elsewhere it is the rate of f32 for f16
/// and bf16, and that of i64 for integers, which small and skinny products of bytes may exceed, since they are computed in f32.
///
/// With [`Precision::High`](crate::Precision::High), large products of f32 run on the matrix unit; the rate given here for f32 is still
/// that of vector instructions.
///
/// # Examples
///
/// ```
/// use remat_ir::DType;
/// let most = (0..20).map(|_| remat_kernels::ceiling(DType::F32)).fold(0.0, f64::max);
/// assert!(most > 0.0);
/// ```
pub fn ceiling(dtype: DType) -> f64 {
    if dtype == DType::F32 {
        return measure::<f32>();
    }
    if let Some((kind, unit)) = Unit::of(Kind::of(dtype)) {
        return unit.rate(kind);
    }
    match dtype {
        DType::F64 => measure::<f64>(),
        dtype if dtype.is_float() => measure::<f32>(),
        _ => measure::<i64>(),
    }
}

/// Words that a thread reads at a time in [`read_rate`], and how many words before their use they are prefetched.
const WORDS_OF_TASK: usize = 1 << 15;
const WORDS_AHEAD: usize = 256;

/// Measures how fast these threads together read memory, in GB/s: from the caches if the words fit there, since they are read several
/// times. The maximum of some measurements, with [`ceiling`], bounds a product that reads as many bytes (Williams, Waterman and Patterson,
/// "Roofline: an insightful visual performance model for multicore architectures", Communications of the ACM, 2009).
///
/// # Examples
///
/// ```
/// let threads = remat_kernels::Threads::new(1)?;
/// let most = (0..5).map(|_| remat_kernels::read_rate(&[1; 1 << 16], &threads)).fold(0.0, f64::max);
/// assert!(most > 0.0);
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn read_rate(words: &[u64], threads: &Threads) -> f64 {
    let total = AtomicU64::new(0);
    let parts = words.chunks(WORDS_OF_TASK);
    let start = Instant::now();
    threads.for_each_item(parts.len(), parts, |part| {
        total.fetch_add(sum(part), Ordering::Relaxed);
    });
    let seconds = start.elapsed().as_secs_f64();
    black_box(total.into_inner());
    size_of_val(words) as f64 / seconds / 1e9
}

multiversion! {
    /// The sum of all words, modulo 2^64.
    fn sum(words: &[u64]) -> u64 {
        const LINES: usize = 8;
        let (lines, rest) = words.as_chunks::<{ LINES * 8 }>();
        let mut sums = [0u64; LINES * 8];
        for line in lines {
            for i in 0..LINES {
                prefetch(line.as_ptr().wrapping_add(WORDS_AHEAD + 8 * i).cast());
            }
            for (sum, &word) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(word);
            }
        }
        sums.iter().chain(rest).fold(0, |sum, &word| sum.wrapping_add(word))
    }
}

fn measure<A: Accumulator>() -> f64 {
    let kernel = A::micro_kernel(Level::best());
    let start = Instant::now();
    // SAFETY: the kernel is one for this CPU.
    let multiplications = unsafe { (kernel.registers)(black_box(POSITIONS)) };
    2.0 * multiplications as f64 / start.elapsed().as_secs_f64() / 1e9
}
