//! Elements as words of panels: a word holds one element, or several neighbours along the contracted axis.

// Words are read through pointers.
#![allow(unsafe_code)]

use super::{GROUP_BYTES, Side};

/// An element that is packed into words.
pub(crate) trait Part: Copy + Default + Send + Sync {
    /// Elements of a word.
    const PER_WORD: usize;
    /// Elements of a row in a group.
    const PER_GROUP: usize = GROUP_BYTES / 4 * Self::PER_WORD;

    /// The words of a row of a group.
    ///
    /// # Safety
    /// `from` is valid for reading these elements.
    unsafe fn row(from: *const Self) -> [u32; 16];

    /// One word of each of 16 rows. The rows are neighbours in memory, and positions along the contracted axis are `stride` apart.
    ///
    /// # Safety
    /// `from` is valid for reading these elements.
    unsafe fn column(from: *const Self, stride: isize) -> [u32; 16];

    /// The number of planes of a panel: groups of words for the same elements.
    #[inline(always)]
    fn planes(_: Side) -> usize {
        1
    }

    /// The words of all planes; those past the last plane are unused.
    #[inline(always)]
    fn of_planes(words: [u32; 16], _: Side) -> [[u32; 16]; 3] {
        [words, [0; 16], [0; 16]]
    }
}

/// Interleaves elements into words, the first element in the low bits.
///
/// # Safety
/// `from` is valid for reading 16 neighbours, `N` times, `stride` apart.
#[inline(always)]
unsafe fn interleaved<T: Copy, const N: usize>(
    from: *const T,
    stride: isize,
    bits: impl Fn(T) -> u32 + Copy,
) -> [u32; 16] {
    let mut words = [0; 16];
    for i in 0..N {
        // SAFETY: as the caller promises.
        let from = unsafe { from.offset(i as isize * stride).cast::<[T; 16]>().read_unaligned() };
        for (word, part) in words.iter_mut().zip(from) {
            *word |= bits(part) << (32 / N * i);
        }
    }
    words
}

impl Part for u16 {
    const PER_WORD: usize = 2;

    #[inline(always)]
    unsafe fn row(from: *const u16) -> [u32; 16] {
        // SAFETY: the elements have no other bits, and fill the words.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn column(from: *const u16, stride: isize) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { interleaved::<u16, 2>(from, stride, u32::from) }
    }
}

impl Part for u8 {
    const PER_WORD: usize = 4;

    #[inline(always)]
    unsafe fn row(from: *const u8) -> [u32; 16] {
        // SAFETY: as above.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn column(from: *const u8, stride: isize) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { interleaved::<u8, 4>(from, stride, u32::from) }
    }
}

/// An f32 that is multiplied as the sum of three bf16: the nearest bf16, the nearest to the remainder, and the rest
/// ([`Kind::F32`](super::Kind::F32)). The sum is exact.
///
/// A word has two of the three. Its products with words of the other operand are two of the nine. The six that count come from two planes
/// of the left operand and three of the right one.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Split(f32);

impl Split {
    /// Views elements as ones to be split.
    pub(crate) fn all(elements: &[f32]) -> &[Split] {
        // SAFETY: both types have the same representation.
        unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), elements.len()) }
    }

    /// The number.
    pub(crate) fn number(self) -> f32 {
        self.0
    }
}

impl Part for Split {
    const PER_WORD: usize = 1;

    #[inline(always)]
    unsafe fn row(from: *const Split) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn column(from: *const Split, _: isize) -> [u32; 16] {
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
            let [first, second, third] = split(f32::from_bits(bits));
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
pub(super) fn split(x: f32) -> [u32; 3] {
    // As `number::rounding::round_to_bf16`, but a NaN may become any number: then the last part is NaN.
    let nearest = |x: f32| x.to_bits().wrapping_add(0x7fff + (x.to_bits() >> 16 & 1)) & 0xffff_0000;
    let first = nearest(x);
    let rest = x - f32::from_bits(first);
    let second = nearest(rest);
    let third = rest - f32::from_bits(second);
    [first, second, third.to_bits() & 0xffff_0000]
}
