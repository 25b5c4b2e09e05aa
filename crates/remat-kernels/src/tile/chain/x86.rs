//! Chain vectors of AVX2 and AVX-512.

use std::arch::x86_64::*;

use super::{ChainFn, ChainStep, Vector, run};
use crate::number::rounding::{from_bf16, to_bf16};
use crate::simd::{Instructions, Level};

pub(super) fn function_at(level: Level) -> Option<ChainFn> {
    match level.instructions() {
        Instructions::Avx512 => Some(avx512),
        Instructions::Avx2 => Some(avx2),
        Instructions::Plain => None,
    }
}

/// # Safety
/// That of a [`ChainFn`].
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2(n: usize, steps: &[ChainStep], slots: *const *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { run::<__m256>(n, steps, slots) }
}

/// # Safety
/// That of a [`ChainFn`].
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
unsafe fn avx512(n: usize, steps: &[ChainStep], slots: *const *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { run::<__m512>(n, steps, slots) }
}

/// Methods that are a single instruction for both vector lengths.
macro_rules! arithmetic {
    ($($method:ident $instruction:ident;)*) => { $(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the CPU has the instructions (promised).
            unsafe { $instruction(self, other) }
        }
    )* };
}

/// The mask of a vector's first `n` elements.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

// SAFETY of all blocks: the CPU has the instructions and the pointers are valid for what is read or written, as the trait asks.
impl Vector for __m512 {
    const LEN: usize = 16;

    arithmetic! { add _mm512_add_ps; sub _mm512_sub_ps; mul _mm512_mul_ps; div _mm512_div_ps; }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe { widened(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16_part(from: *const u16, n: usize) -> Self {
        unsafe { widened(_mm256_maskz_loadu_epi16(first(n), from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        unsafe { _mm512_mask_storeu_ps(to, first(n), self) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe { _mm256_storeu_si256(to.cast(), narrowed(self)) }
    }

    #[inline(always)]
    unsafe fn store_bf16_part(self, to: *mut u16, n: usize) {
        unsafe { _mm256_mask_storeu_epi16(to.cast(), first(n), narrowed(self)) }
    }

    #[inline(always)]
    unsafe fn select(self, other: Self, bools: *const u8) -> Self {
        unsafe {
            let bools = _mm_loadu_si128(bools.cast());
            _mm512_mask_mov_ps(other, _mm_test_epi8_mask(bools, bools), self)
        }
    }

    #[inline(always)]
    unsafe fn select_part(self, other: Self, bools: *const u8, n: usize) -> Self {
        unsafe {
            let bools = _mm_maskz_loadu_epi8(first(n), bools.cast());
            _mm512_mask_mov_ps(other, _mm_test_epi8_mask(bools, bools), self)
        }
    }

    #[inline(always)]
    unsafe fn compare<const PREDICATE: i32>(self, other: Self, bools: *mut u8) {
        unsafe {
            let mask = _mm512_cmp_ps_mask::<PREDICATE>(self, other);
            _mm_storeu_si128(bools.cast(), _mm_maskz_set1_epi8(mask, 1));
        }
    }

    #[inline(always)]
    unsafe fn compare_part<const PREDICATE: i32>(self, other: Self, bools: *mut u8, n: usize) {
        unsafe {
            let mask = _mm512_cmp_ps_mask::<PREDICATE>(self, other);
            _mm_mask_storeu_epi8(bools.cast(), first(n), _mm_maskz_set1_epi8(mask, 1));
        }
    }

    #[inline(always)]
    unsafe fn neg(self) -> Self {
        unsafe { _mm512_xor_ps(self, _mm512_set1_ps(-0.0)) }
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        unsafe { _mm512_sqrt_ps(self) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe {
            let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self, other);
            let larger = _mm512_mask_and_ps(_mm512_max_ps(self, other), equal, self, other);
            _mm512_mask_mov_ps(larger, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self, self), self)
        }
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe {
            let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self, other);
            let smaller = _mm512_mask_or_ps(_mm512_min_ps(self, other), equal, self, other);
            _mm512_mask_mov_ps(smaller, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self, self), self)
        }
    }

    #[inline(always)]
    unsafe fn max_plain(self, other: Self) -> Self {
        unsafe { _mm512_mask_max_ps(self, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(self, self), self, other) }
    }

    #[inline(always)]
    unsafe fn min_plain(self, other: Self) -> Self {
        unsafe { _mm512_mask_min_ps(self, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(self, self), self, other) }
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        unsafe {
            let bits = _mm512_castps_si512(self);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
            _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(!0xFFFF)))
        }
    }

    #[inline(always)]
    unsafe fn round_any(self) -> Self {
        unsafe {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self, self);
            let quiet = _mm512_or_si512(_mm512_castps_si512(self), _mm512_set1_epi32(0x0040_0000));
            let quiet = _mm512_and_si512(quiet, _mm512_set1_epi32(!0xFFFF));
            _mm512_mask_mov_ps(self.round(), nan, _mm512_castsi512_ps(quiet))
        }
    }
}

/// # Safety
/// The CPU has AVX-512.
#[inline(always)]
unsafe fn widened(bits: __m256i) -> __m512 {
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
}

/// # Safety
/// The CPU has AVX-512.
#[inline(always)]
unsafe fn narrowed(x: __m512) -> __m256i {
    unsafe { _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_castps_si512(x))) }
}

// SAFETY of all blocks: as above.
impl Vector for __m256 {
    const LEN: usize = 8;

    arithmetic! { add _mm256_add_ps; sub _mm256_sub_ps; mul _mm256_mul_ps; div _mm256_div_ps; }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        let mut whole = [0.0; 8];
        (0..n.min(8)).for_each(|i| whole[i] = unsafe { from.add(i).read() });
        unsafe { Self::load(whole.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_bf16_part(from: *const u16, n: usize) -> Self {
        let mut whole = [0.0; 8];
        (0..n.min(8)).for_each(|i| whole[i] = from_bf16(unsafe { from.add(i).read() }));
        unsafe { Self::load(whole.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        let mut whole = [0.0; 8];
        unsafe { self.store(whole.as_mut_ptr()) };
        (0..n.min(8)).for_each(|i| unsafe { to.add(i).write(whole[i]) });
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let halves = _mm256_srli_epi32::<16>(_mm256_castps_si256(self));
            let packed = _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
            _mm_storeu_si128(to.cast(), packed);
        }
    }

    #[inline(always)]
    unsafe fn store_bf16_part(self, to: *mut u16, n: usize) {
        let mut whole = [0.0; 8];
        unsafe { self.store(whole.as_mut_ptr()) };
        (0..n.min(8)).for_each(|i| unsafe { to.add(i).write(to_bf16(whole[i])) });
    }

    #[inline(always)]
    unsafe fn select(self, other: Self, bools: *const u8) -> Self {
        unsafe {
            // The selection depends on the sign of each element.
            let bools = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bools.cast()));
            _mm256_blendv_ps(other, self, _mm256_castsi256_ps(_mm256_slli_epi32::<31>(bools)))
        }
    }

    #[inline(always)]
    unsafe fn select_part(self, other: Self, bools: *const u8, n: usize) -> Self {
        let mut whole = [0; 8];
        (0..n.min(8)).for_each(|i| whole[i] = unsafe { bools.add(i).read() });
        unsafe { self.select(other, whole.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn compare<const PREDICATE: i32>(self, other: Self, bools: *mut u8) {
        unsafe {
            let ones = _mm256_srli_epi32::<31>(_mm256_castps_si256(_mm256_cmp_ps::<PREDICATE>(self, other)));
            let words = _mm_packus_epi32(_mm256_castsi256_si128(ones), _mm256_extracti128_si256::<1>(ones));
            _mm_storel_epi64(bools.cast(), _mm_packus_epi16(words, words));
        }
    }

    #[inline(always)]
    unsafe fn compare_part<const PREDICATE: i32>(self, other: Self, bools: *mut u8, n: usize) {
        let mut whole = [0; 8];
        unsafe { self.compare::<PREDICATE>(other, whole.as_mut_ptr()) };
        (0..n.min(8)).for_each(|i| unsafe { bools.add(i).write(whole[i]) });
    }

    #[inline(always)]
    unsafe fn neg(self) -> Self {
        unsafe { _mm256_xor_ps(self, _mm256_set1_ps(-0.0)) }
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        unsafe { _mm256_sqrt_ps(self) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe {
            let equal = _mm256_cmp_ps::<_CMP_EQ_OQ>(self, other);
            let larger = _mm256_blendv_ps(_mm256_max_ps(self, other), _mm256_and_ps(self, other), equal);
            _mm256_blendv_ps(larger, self, _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self))
        }
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe {
            let equal = _mm256_cmp_ps::<_CMP_EQ_OQ>(self, other);
            let smaller = _mm256_blendv_ps(_mm256_min_ps(self, other), _mm256_or_ps(self, other), equal);
            _mm256_blendv_ps(smaller, self, _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self))
        }
    }

    #[inline(always)]
    unsafe fn max_plain(self, other: Self) -> Self {
        unsafe { _mm256_blendv_ps(_mm256_max_ps(self, other), self, _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self)) }
    }

    #[inline(always)]
    unsafe fn min_plain(self, other: Self) -> Self {
        unsafe { _mm256_blendv_ps(_mm256_min_ps(self, other), self, _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self)) }
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        unsafe {
            let bits = _mm256_castps_si256(self);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
            _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(!0xFFFF)))
        }
    }

    #[inline(always)]
    unsafe fn round_any(self) -> Self {
        unsafe {
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self);
            let quiet = _mm256_or_ps(self, _mm256_castsi256_ps(_mm256_set1_epi32(0x0040_0000)));
            let quiet = _mm256_and_ps(quiet, _mm256_castsi256_ps(_mm256_set1_epi32(!0xFFFF)));
            _mm256_blendv_ps(self.round(), quiet, nan)
        }
    }
}
