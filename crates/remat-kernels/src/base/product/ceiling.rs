//! How fast a CPU multiplies and adds where nothing has to wait for memory: what products are measured against.

// Instructions are those of a level that was found.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use remat_ir::DType;

use super::Accumulator;
use crate::base::narrow::{Kind, Unit};
use crate::simd::Level;

/// Positions of a measurement, of 12 by 32 multiplications in f32 with AVX-512: some tens of microseconds, and less than a millisecond
/// where there are no such vectors.
const POSITIONS: usize = 20_000;

/// The rate in GFLOP/s (of integers, operations) at which one thread multiplies and adds at best, in the type that products of this dtype
/// are computed in, measured once by the clock, for some tens of microseconds or more: the most of many measurements is the ceiling of a
/// product. Vectors do so in registers. Where this CPU has a unit for products of bf16, i8 or u8 (AMX, dot products of AVX-512), it is the
/// rate of that, with operands that are packed in the first-level cache.
///
/// Large products of f32 are on the matrix unit where that is asked for: for f32 this is the ceiling of vectors.
///
/// # Examples
///
/// ```
/// use remat_ir::DType;
/// let most = (0..20).map(|_| remat_kernels::ceiling(DType::F32)).fold(0.0, f64::max);
/// assert!(most > 0.0);
/// ```
pub fn ceiling(dtype: DType) -> f64 {
    if let Some(unit) = Kind::of(dtype).filter(|&kind| kind != Kind::F32).and_then(Unit::best) {
        return unit.rate(size_of::<u32>() / dtype.size());
    }
    match dtype {
        DType::F64 => measure::<f64>(),
        dtype if dtype.is_float() => measure::<f32>(),
        _ => measure::<i64>(),
    }
}

fn measure<A: Accumulator>() -> f64 {
    let kernel = A::micro_kernel(Level::best());
    let start = Instant::now();
    // SAFETY: the kernel is one for this CPU.
    let multiplications = unsafe { (kernel.registers)(black_box(POSITIONS)) };
    2.0 * multiplications as f64 / start.elapsed().as_secs_f64() / 1e9
}
