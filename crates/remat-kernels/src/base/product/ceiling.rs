//! Measures the peak rate of multiplications and additions of a CPU, without waiting for memory.

// The instructions are those of the detected level.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use remat_ir::DType;

use super::Accumulator;
use crate::base::narrow::{Kind, Unit};
use crate::simd::Level;

/// Positions of a measurement, each of 12 by 32 multiplications in f32 with AVX-512. It takes some tens of microseconds, and less than a
/// millisecond without such vectors.
const POSITIONS: usize = 20_000;

/// Measures the peak rate of one thread, in GFLOP/s (for integers, billions of operations per second), in the type in which products of
/// this dtype are computed. One measurement takes some tens of microseconds or more; the maximum of many measurements is the ceiling of a
/// product. The operands of vectors are in registers. Where this CPU has a unit for products of bf16, i8 or u8 (AMX, dot products of
/// AVX-512), it is the rate of the unit, with packed operands in the first-level cache.
///
/// Large products of f32 run on the matrix unit if that is requested. For f32 this is still the ceiling of vectors.
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
