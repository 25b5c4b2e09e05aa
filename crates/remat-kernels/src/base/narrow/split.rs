//! Elements that are multiplied as sums of bf16.

// Elements are read through pointers.
#![allow(unsafe_code)]

use super::Side;
use super::part::Part;
use crate::number::Scalar;

/// An f32 that is multiplied as the sum of three bf16: the nearest bf16, the nearest to the remainder, and the rest
/// ([`Kind::SplitF32`](super::Kind::SplitF32)). The sum is exact.
///
/// A word has two of the three. Its products with words of the other operand are two of the nine. The six that count come from two planes
/// of the left operand and three of the right one.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct SplitF32(f32);

impl SplitF32 {
    /// Views elements as ones to be split.
    pub(crate) fn all(elements: &[f32]) -> &[SplitF32] {
        // SAFETY: both types have the same representation.
        unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), elements.len()) }
    }

    /// The number.
    pub(crate) fn number(self) -> f32 {
        self.0
    }
}

impl Part for SplitF32 {
    const PER_WORD: usize = 1;
    const IS_SPLIT: bool = true;

    #[inline(always)]
    unsafe fn row(from: *const SplitF32) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn column(from: *const SplitF32, _: isize) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    fn planes(side: Side) -> usize {
        if side == Side::Left { 2 } else { 3 }
    }

    #[inline(always)]
    fn of_planes(words: [u32; 16], side: Side) -> [[u32; 16]; 3] {
        let mut planes = [[0; 16]; 3];
        for (i, bits) in words.into_iter().enumerate() {
            let [first, second, third] = split_f32(f32::from_bits(bits));
            [planes[0][i], planes[1][i], planes[2][i]] = match side {
                Side::Left => [third >> 16 | first, second >> 16 | first, 0],
                Side::Right => [first >> 16 | third, first >> 16 | second, second >> 16 | first],
            };
        }
        planes
    }
}

/// The parts of an f32, in the upper halves of words. If the number is not finite, or larger than every bf16, some part is NaN.
#[inline(always)]
pub(super) fn split_f32(x: f32) -> [u32; 3] {
    // As `number::rounding::round_to_bf16`, but a NaN may become any number: then the last part is NaN.
    let nearest = |x: f32| x.to_bits().wrapping_add(0x7fff + (x.to_bits() >> 16 & 1)) & 0xffff_0000;
    let first = nearest(x);
    let rest = x - f32::from_bits(first);
    let second = nearest(rest);
    let third = rest - f32::from_bits(second);
    [first, second, third.to_bits() & 0xffff_0000]
}

/// An f16 that is multiplied as the sum of two bf16 ([`Kind::SplitF16`](super::Kind::SplitF16)). The sum is exact.
///
/// A word has both. Its products with words of the other operand are two of the four. The others come from a second plane of the right
/// operand, whose words have the two exchanged.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct SplitF16(u16);

// SAFETY: it is an integer, which has no invalid values.
unsafe impl Scalar for SplitF16 {
    const IS_COMMON_IN_TILES: bool = false;
}

impl SplitF16 {
    /// Views the bits of elements as ones to be split.
    pub(crate) fn all(elements: &[u16]) -> &[SplitF16] {
        // SAFETY: both types have the same representation.
        unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), elements.len()) }
    }
}

impl Part for SplitF16 {
    const PER_WORD: usize = 1;
    const IS_SPLIT: bool = true;

    #[inline(always)]
    unsafe fn row(from: *const SplitF16) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u16; 16]>().read_unaligned() }.map(u32::from)
    }

    #[inline(always)]
    unsafe fn column(from: *const SplitF16, _: isize) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u16; 16]>().read_unaligned() }.map(u32::from)
    }

    #[inline(always)]
    fn planes(side: Side) -> usize {
        if side == Side::Left { 1 } else { 2 }
    }

    #[inline(always)]
    fn of_planes(words: [u32; 16], _: Side) -> [[u32; 16]; 3] {
        let mut planes = [[0; 16]; 3];
        for (i, bits) in words.into_iter().enumerate() {
            let [first, second] = split_f16(bits);
            [planes[0][i], planes[1][i]] = [first >> 16 | second, second >> 16 | first];
        }
        planes
    }
}

/// The parts of an f16, given by its bits, in the upper halves of words. Both have its sign, and neither is zero unless the number is: an
/// infinity times the parts of a number is then an infinity, not a NaN. Both parts of an infinity or a NaN are that.
#[inline(always)]
pub(super) fn split_f16(bits: u32) -> [u32; 2] {
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    // The exponent of f32 is larger by 112. Multiplying also makes subnormal numbers normal.
    let number = f32::from_bits(magnitude << 13) * const { f32::from_bits((254 - 15) << 23) };
    let special = if magnitude == 0x7c00 { f32::INFINITY } else { f32::NAN };
    let wide = if magnitude < 0x7c00 { number } else { special }.to_bits();
    // A bf16 has the first 8 of the 11 significant bits. The number before it is taken if nothing would be left.
    let is_split = magnitude != 0 && magnitude < 0x7c00;
    let first = if is_split { (wide - 1) & 0xffff_0000 } else { wide };
    let rest = f32::from_bits(wide) - f32::from_bits(first);
    let second = if is_split { rest.to_bits() } else { wide };
    [sign | first, sign | second]
}
