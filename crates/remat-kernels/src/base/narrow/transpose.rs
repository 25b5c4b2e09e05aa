//! Transposes tiles of words.

// Vectors are loaded and stored through pointers.
#![allow(unsafe_code)]

use super::TILE;
use crate::base::rectangle::Rectangle;
use crate::base::transpose;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::Level;

/// Writes the transpose of a tile of 16 by 16 words.
///
/// # Safety
/// `from` is valid for reading a tile and `to` for writing one, without overlap; the CPU has the instructions.
pub(crate) type Transpose = unsafe fn(from: *const u32, to: *mut u32);

/// The function for a CPU with these instructions. Other CPUs of x86-64 pack only bytes.
pub(crate) fn transpose(level: Level) -> Transpose {
    match level.instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512,
        _ => squares,
    }
}

/// Square by square, each as large as every CPU can transpose.
unsafe fn squares(from: *const u32, to: *mut u32) {
    // SAFETY: as the caller promises.
    let (from, to) = unsafe { (std::slice::from_raw_parts(from, TILE), std::slice::from_raw_parts_mut(to, TILE)) };
    transpose::transpose(from, 0, 16, &mut Rectangle::whole(to, 16), [0, 0], [16, 16], false);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(from: *const u32, to: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe { transpose::words_avx512::<4, false>([16, 1], from, 16, to, 16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let from: [u32; TILE] = std::array::from_fn(|i| i as u32);
        for level in Level::all() {
            let mut to = [0; TILE];
            // SAFETY: both have the words of a tile, and the CPU has the instructions of the level.
            unsafe { transpose(level)(from.as_ptr(), to.as_mut_ptr()) };
            assert!((0..TILE).all(|i| to[i] == from[i % 16 * 16 + i / 16]), "{level:?}");
        }
    }
}
