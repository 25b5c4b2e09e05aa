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
    /// Whether the words of planes are parts of the words that are read.
    const IS_SPLIT: bool = false;

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
