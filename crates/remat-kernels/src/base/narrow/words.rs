//! Transposes tiles of words.

// Vectors are loaded and stored through pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use crate::base::transpose;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::Level;

/// Writes the transpose of 16 rows of 16 words. The strides are in words.
///
/// # Safety
/// `from` is valid for reading such rows and `to` for writing them, without overlap; the CPU has the instructions.
pub(crate) type Transpose = unsafe fn(from: *const u32, from_stride: usize, to: *mut u32, to_stride: usize);

/// The function for a CPU with these instructions. Only CPUs with AVX-512 have a unit.
pub(crate) fn transpose(level: Level) -> Transpose {
    match level.instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512,
        _ => plain,
    }
}

/// Word by word.
unsafe fn plain(from: *const u32, from_stride: usize, to: *mut u32, to_stride: usize) {
    for (i, j) in (0..16).flat_map(|i| (0..16).map(move |j| (i, j))) {
        // SAFETY: these are words of the rows, as the caller promises.
        unsafe { to.add(i * to_stride + j).write(from.add(j * from_stride + i).read()) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(from: *const u32, from_stride: usize, to: *mut u32, to_stride: usize) {
    // SAFETY: as the caller promises.
    unsafe { transpose::words_avx512::<4, false>([16, 1], from, from_stride as isize, to, to_stride) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let from: [u32; 16 * 21] = std::array::from_fn(|i| i as u32 + 1);
        for level in Level::all() {
            let mut to = [0; 16 * 19];
            // SAFETY: both have 16 rows, and the CPU has the instructions of the level.
            unsafe { transpose(level)(from.as_ptr(), 21, to.as_mut_ptr(), 19) };
            let expected = |i: usize| if i % 19 < 16 { from[i % 19 * 21 + i / 19] } else { 0 };
            assert!((0..to.len()).all(|i| to[i] == expected(i)), "{level:?}");
        }
    }
}
