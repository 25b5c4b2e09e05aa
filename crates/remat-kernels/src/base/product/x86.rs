//! Micro-kernels of x86-64: AVX-512 with 24 sums in 32 registers, AVX2 with 12 in 16.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::tile::{Vector, micro_kernel};

/// A vector with a mask register that selects lanes.
macro_rules! avx512 {
    (
        $vector:ident $element:ident $lanes:literal $mask:ident: $zero:ident $splat:ident $load:ident $load_mask:ident $store:ident
        $store_mask:ident $plus:ident $multiply_add:ident
    ) => {
        impl Vector for $vector {
            type Element = $element;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY, here and below: as the trait asks of callers.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn splat(from: *const $element) -> Self {
                unsafe { $splat(*from) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn load_first(n: usize, from: *const $element) -> Self {
                unsafe { $load_mask(((1u32 << n) - 1) as $mask, from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, n: usize, to: *mut $element) {
                unsafe { $store_mask(to, ((1u32 << n) - 1) as $mask, self) }
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                unsafe { $plus(self, other) }
            }
            #[inline(always)]
            unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
                unsafe { $multiply_add(a, b, self) }
            }
        }
    };
}

avx512! {
    __m512 f32 16 __mmask16: _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_maskz_loadu_ps _mm512_storeu_ps
    _mm512_mask_storeu_ps _mm512_add_ps _mm512_fmadd_ps
}
avx512! {
    __m512d f64 8 __mmask8: _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_maskz_loadu_pd _mm512_storeu_pd
    _mm512_mask_storeu_pd _mm512_add_pd _mm512_fmadd_pd
}

/// A vector with lanes selected by the signs of a vector of integers.
macro_rules! avx2 {
    (
        $vector:ident $element:ident $lanes:literal $signs:expr; $zero:ident $splat:ident $load:ident $load_mask:ident $store:ident
        $store_mask:ident $plus:ident $multiply_add:ident
    ) => {
        impl Vector for $vector {
            type Element = $element;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY, here and below: as the trait asks of callers.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn splat(from: *const $element) -> Self {
                unsafe { $splat(*from) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn load_first(n: usize, from: *const $element) -> Self {
                unsafe { $load_mask(from, $signs(n)) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, n: usize, to: *mut $element) {
                unsafe { $store_mask(to, $signs(n), self) }
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                unsafe { $plus(self, other) }
            }
            #[inline(always)]
            unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
                unsafe { $multiply_add(a, b, self) }
            }
        }
    };
}

avx2! {
    __m256 f32 8 |n| _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_maskload_ps _mm256_storeu_ps _mm256_maskstore_ps _mm256_add_ps
    _mm256_fmadd_ps
}
avx2! {
    __m256d f64 4 |n| _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3));
    _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_maskload_pd _mm256_storeu_pd _mm256_maskstore_pd _mm256_add_pd
    _mm256_fmadd_pd
}

micro_kernel! {
    AVX512_F32: f32, __m512, features "avx512f,avx512vl,avx2,fma", rows [1 2 3 4 5 6 7 8 9 10 11] 12, vectors [1] 2
}
micro_kernel! {
    AVX512_F64: f64, __m512d, features "avx512f,avx512vl,avx2,fma", rows [1 2 3 4 5 6 7 8 9 10 11] 12, vectors [1] 2
}
micro_kernel! {
    AVX2_F32: f32, __m256, features "avx2,fma", rows [1 2 3 4 5] 6, vectors [1] 2
}
micro_kernel! {
    AVX2_F64: f64, __m256d, features "avx2,fma", rows [1 2 3 4 5] 6, vectors [1] 2
}
