//! Converts f16 to f32 by the CPU's own instructions, where it has some. Products use it: a product of a matrix and a vector takes no
//! longer than reading the matrix, and products make every NaN quiet, as these instructions do. Other kernels keep the bits of a NaN, by
//! integer arithmetic (`number::rounding`).

// Vector instructions, which read and write through pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use remat_ir::{DType, f16};

use crate::number::Number;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::Level;
use crate::tile::{self, TileFn};

/// Reads neighbours as f32, with vectors of `VECTOR` bytes.
///
/// # Safety
/// They are valid for reading, and the function into which this is inlined is compiled for such vectors: AVX-512 F for 64 bytes, AVX and
/// F16C for 32.
#[inline(always)]
pub(super) unsafe fn widened<const N: usize, const VECTOR: usize>(from: *const f16) -> [f32; N] {
    let mut to = [0.0; N];
    // SAFETY, of all: as the caller promises; the vectors fill the array.
    #[cfg(target_arch = "x86_64")]
    {
        if VECTOR == 64 && N.is_multiple_of(16) {
            for i in (0..N).step_by(16) {
                let half = unsafe { _mm256_loadu_si256(from.add(i).cast()) };
                unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(i), _mm512_cvtph_ps(half)) };
            }
            return to;
        }
        if VECTOR == 32 && N.is_multiple_of(8) {
            for i in (0..N).step_by(8) {
                let half = unsafe { _mm_loadu_si128(from.add(i).cast()) };
                unsafe { _mm256_storeu_ps(to.as_mut_ptr().add(i), _mm256_cvtph_ps(half)) };
            }
            return to;
        }
    }
    for (i, to) in to.iter_mut().enumerate() {
        *to = unsafe { from.add(i).read() }.widen();
    }
    to
}

/// The function that reads elements of a dtype into a register where it differs from [`tile::load`]: for f16.
pub(super) fn load(dtype: DType) -> Option<TileFn> {
    load_at(Level::best(), dtype)
}

/// As [`load`], with the instructions of a level.
fn load_at(level: Level, dtype: DType) -> Option<TileFn> {
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F16 {
        match level.instructions() {
            Instructions::Avx512 => return Some(avx512),
            Instructions::Avx2 => return Some(avx2),
            Instructions::Plain => {}
        }
    }
    tile::load(dtype)
}

#[cfg(target_arch = "x86_64")]
macro_rules! load {
    ($name:ident $lanes:literal $vector:literal $features:literal) => {
        /// Widens `n` elements.
        ///
        /// # Safety
        /// As of every function of tiles; the CPU has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(n: usize, to: *mut u8, from: &[*const u8]) {
            let (from, to, whole) = (from[0].cast::<f16>(), to.cast::<f32>(), n / $lanes * $lanes);
            // SAFETY, of both: the caller promises this many elements.
            for i in (0..whole).step_by($lanes) {
                unsafe { to.add(i).cast::<[f32; $lanes]>().write(widened::<$lanes, $vector>(from.add(i))) };
            }
            for i in whole..n {
                unsafe { to.add(i).write(from.add(i).read().widen()) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
load! { avx512 16 64 "avx2,fma,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl" }
#[cfg(target_arch = "x86_64")]
load! { avx2 8 32 "avx2,fma,f16c" }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_widened() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for (first, level) in [0, 3].into_iter().flat_map(|first| Level::all().map(move |level| (first, level))) {
            let (from, mut to) = (&all[first..], vec![0f32; all.len() - first]);
            let load = load_at(level, DType::F16).expect("f16 is widened");
            // SAFETY: both have the same length.
            unsafe { load(to.len(), to.as_mut_ptr().cast(), &[from.as_ptr().cast()]) };
            for (x, &widened) in from.iter().zip(&to) {
                assert_eq!(x.is_nan(), widened.is_nan());
                assert!(x.is_nan() || x.widen().to_bits() == widened.to_bits(), "{x:?}");
            }
        }
    }
}
