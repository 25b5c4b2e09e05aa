//! Micro-kernels in plain Rust, which LLVM vectorises for the target.

#![allow(unsafe_code)]

use super::Accumulator;
use super::tile::{Vector, micro_kernel};

/// Numbers side by side.
#[derive(Clone, Copy)]
struct Lanes<T, const N: usize>([T; N]);

impl<T: Accumulator, const N: usize> Vector for Lanes<T, N> {
    type Element = T;
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Lanes([T::ZERO; N])
    }
    #[inline(always)]
    unsafe fn splat(from: *const T) -> Self {
        // SAFETY, here and below: as the trait asks of callers.
        Lanes([unsafe { from.read() }; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        Lanes(unsafe { from.cast::<[T; N]>().read() })
    }
    #[inline(always)]
    unsafe fn load_first(n: usize, from: *const T) -> Self {
        if n == N {
            return unsafe { Self::load(from) };
        }
        let mut lanes = [T::ZERO; N];
        unsafe { from.copy_to_nonoverlapping(lanes.as_mut_ptr(), n) };
        Lanes(lanes)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        unsafe { to.cast::<[T; N]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, n: usize, to: *mut T) {
        if n == N {
            return unsafe { self.store(to) };
        }
        unsafe { to.copy_from_nonoverlapping(self.0.as_ptr(), n) };
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i].plus(other.0[i])))
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i].multiply_add(a.0[i], b.0[i])))
    }
}

#[cfg(not(target_arch = "aarch64"))]
micro_kernel! {
    F32: f32, Lanes<f32, 4>, rows [1 2 3] 4, vectors [1] 2
}
#[cfg(not(target_arch = "aarch64"))]
micro_kernel! {
    F64: f64, Lanes<f64, 2>, rows [1 2 3] 4, vectors [1] 2
}
micro_kernel! {
    I64: i64, Lanes<i64, 2>, rows [1 2 3] 4, vectors [1] 2
}
#[cfg(target_arch = "x86_64")]
micro_kernel! {
    I64_AVX2: i64, Lanes<i64, 4>, features "avx2,fma", rows [1 2 3] 4, vectors [1] 2
}
#[cfg(target_arch = "x86_64")]
micro_kernel! {
    I64_AVX512: i64, Lanes<i64, 8>, features "avx512f,avx512vl,avx512dq,avx2,fma", rows [1 2 3] 4, vectors [1] 2
}
