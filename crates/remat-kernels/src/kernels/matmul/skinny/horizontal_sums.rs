//! Sums of the lanes of 16 vectors of f32, by shuffles of two vectors at a time: half as many shuffles as transposing them first takes.

// Vectors are loaded and stored through pointers.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers are unrolled if they count")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::arithmetic;
use super::lanes::LANES;

/// As [`Factor::add_up`](arithmetic::Factor::add_up), with vectors of `VECTOR` bytes.
#[inline(always)]
pub(super) fn floats<const VECTOR: usize>(sums: &[[f32; LANES]; LANES]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY, of both: the function that this is inlined into is compiled for such vectors.
        if VECTOR == 64 {
            return unsafe { avx512(sums) };
        }
        if VECTOR == 32 {
            let [first, second] = halves(sums).map(|half| unsafe { avx2(half) });
            return std::array::from_fn(|i| if i < 8 { first[i] } else { second[i - 8] });
        }
    }
    std::array::from_fn(|i| arithmetic::add_lanes(&sums[i]))
}

/// Both halves of 16 elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn halves<T>(all: &[T; 16]) -> [&[T; 8]; 2] {
    let (first, second) = all.as_chunks::<8>().0.split_at(1);
    [&first[0], &second[0]]
}

/// `i` with neighbouring bits exchanged: the sum whose lanes vector `i` must hold, so that the sums come out in order.
#[cfg(target_arch = "x86_64")]
const fn exchanged(i: usize) -> usize {
    (i & 0b0101) << 1 | (i & 0b1010) >> 1
}

/// Adds up the lanes of 16 sums.
///
/// # Safety
/// The CPU has the instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx512(sums: &[[f32; LANES]; LANES]) -> [f32; LANES] {
    // SAFETY, of all: as the caller promises; the arrays fill vectors.
    unsafe {
        let lanes = |i: usize| _mm512_loadu_ps(sums[exchanged(i)].as_ptr());
        let mut eight = [_mm512_setzero_ps(); 8];
        for i in 0..8 {
            let (x, y) = (lanes(i), lanes(i + 8));
            eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(x, y), _mm512_shuffle_f32x4::<0xee>(x, y));
        }
        let mut four = [_mm512_setzero_ps(); 4];
        for i in 0..4 {
            let (x, y) = (eight[i], eight[i + 4]);
            four[i] = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(x, y), _mm512_shuffle_f32x4::<0xdd>(x, y));
        }
        let mut two = [_mm512_setzero_ps(); 2];
        for i in 0..2 {
            let [x, y] = [four[i], four[i + 2]].map(|x| _mm512_castps_pd(x));
            let [first, second] = [_mm512_unpacklo_pd(x, y), _mm512_unpackhi_pd(x, y)].map(|x| _mm512_castpd_ps(x));
            two[i] = _mm512_add_ps(first, second);
        }
        let [x, y] = two;
        let one = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(x, y), _mm512_shuffle_ps::<0xdd>(x, y));
        let mut to = [0.0; LANES];
        _mm512_storeu_ps(to.as_mut_ptr(), one);
        to
    }
}

/// Adds up the lanes of 8 sums.
///
/// # Safety
/// The CPU has the instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx2(sums: &[[f32; LANES]; 8]) -> [f32; 8] {
    // SAFETY, of all: as the caller promises; halves of the arrays fill vectors.
    unsafe {
        let mut eight = [_mm256_setzero_ps(); 8];
        for i in 0..8 {
            let lanes = sums[exchanged(i) & 3 | i & 4].as_ptr();
            eight[i] = _mm256_add_ps(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes.add(8)));
        }
        let mut four = [_mm256_setzero_ps(); 4];
        for i in 0..4 {
            let (x, y) = (eight[i], eight[i + 4]);
            four[i] = _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(x, y), _mm256_permute2f128_ps::<0x31>(x, y));
        }
        let mut two = [_mm256_setzero_ps(); 2];
        for i in 0..2 {
            let [x, y] = [four[i], four[i + 2]].map(|x| _mm256_castps_pd(x));
            let [first, second] = [_mm256_unpacklo_pd(x, y), _mm256_unpackhi_pd(x, y)].map(|x| _mm256_castpd_ps(x));
            two[i] = _mm256_add_ps(first, second);
        }
        let [x, y] = two;
        let one = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(x, y), _mm256_shuffle_ps::<0xdd>(x, y));
        let mut to = [0.0; 8];
        _mm256_storeu_ps(to.as_mut_ptr(), one);
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Instructions, Level};

    /// Every level computes the same sums as plain additions, in the same order.
    #[test]
    fn lanes_add_up_in_one_order() {
        let sums: [[f32; LANES]; LANES] =
            std::array::from_fn(|i| std::array::from_fn(|k| ((i * 37 + k * 101) as f32).sin() * 1.7f32.powi(k as i32)));
        let plain: [f32; LANES] = std::array::from_fn(|i| arithmetic::add_lanes(&sums[i]));
        assert_eq!(floats::<16>(&sums), plain);
        for level in Level::all() {
            let found = {
                match level.instructions() {
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512 => floats::<64>(&sums),
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2 => floats::<32>(&sums),
                    Instructions::Plain => floats::<16>(&sums),
                }
            };
            assert_eq!(found, plain, "{level:?}");
        }
    }
}
