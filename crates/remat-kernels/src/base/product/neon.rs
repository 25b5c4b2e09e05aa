//! Micro-kernels of 64-bit ARM: NEON, with 24 sums in 32 registers.

#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::tile::{Vector, micro_kernel};

macro_rules! neon {
    (
        $vector:ident $element:ident $lanes:literal: $splat:ident $load_splat:ident $load:ident $store:ident $plus:ident $multiply_add:ident
    ) => {
        impl Vector for $vector {
            type Element = $element;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY, here and below: every CPU of the architecture has NEON; otherwise as the trait asks of callers.
                unsafe { $splat(0.0) }
            }
            #[inline(always)]
            unsafe fn splat(from: *const $element) -> Self {
                unsafe { $load_splat(from) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn load_first(n: usize, from: *const $element) -> Self {
                if n == $lanes {
                    return unsafe { $load(from) };
                }
                let mut lanes = [0.0; $lanes];
                unsafe {
                    from.copy_to_nonoverlapping(lanes.as_mut_ptr(), n);
                    $load(lanes.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, n: usize, to: *mut $element) {
                if n == $lanes {
                    return unsafe { $store(to, self) };
                }
                let mut lanes = [0.0; $lanes];
                unsafe {
                    $store(lanes.as_mut_ptr(), self);
                    to.copy_from_nonoverlapping(lanes.as_ptr(), n);
                }
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                unsafe { $plus(self, other) }
            }
            #[inline(always)]
            unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
                unsafe { $multiply_add(self, a, b) }
            }
        }
    };
}

neon! { float32x4_t f32 4: vdupq_n_f32 vld1q_dup_f32 vld1q_f32 vst1q_f32 vaddq_f32 vfmaq_f32 }
neon! { float64x2_t f64 2: vdupq_n_f64 vld1q_dup_f64 vld1q_f64 vst1q_f64 vaddq_f64 vfmaq_f64 }

micro_kernel! {
    F32: f32, float32x4_t, features "neon", rows [1 2 3 4 5 6 7] 8, vectors [1 2] 3
}
micro_kernel! {
    F64: f64, float64x2_t, features "neon", rows [1 2 3 4 5 6 7] 8, vectors [1 2] 3
}
