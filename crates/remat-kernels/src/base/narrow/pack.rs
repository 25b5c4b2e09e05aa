//! Packing of narrow elements into panels.
//!
//! A tile of a left operand has rows of words, each of neighbours along the contracted dimension; that of a right operand is the
//! transpose, as a matrix of words. So there are two ways to read (rows whose elements are neighbours, or columns that are
//! interleaved), and the one that does not fit the side is followed by a transposition of words.

// Elements are read through pointers, since their distances are checked once for a whole panel.
#![allow(unsafe_code)]

use super::{GROUP, GROUP_BYTES, PANEL, TILE};
use crate::base::blocks::Block;
use crate::base::transpose::transpose;
use crate::number::rounding::round_to_bf16;
use crate::simd::{Level, multiversion, prefetch};

/// An element that is packed with others into a word.
pub(crate) trait Part: Copy + Default + Send + Sync {
    /// Bits that it takes.
    const BITS: usize;
    /// Elements of a word.
    const PER_WORD: usize = 32 / Self::BITS;
    /// Elements of a row in a group.
    const PER_GROUP: usize = 8 * GROUP_BYTES / Self::BITS;

    /// The bits.
    fn bits(self) -> u32;

    /// The words of a row of a group.
    ///
    /// # Safety
    /// `from` is valid for reading as many elements.
    #[inline(always)]
    unsafe fn row(from: *const Self) -> [u32; 16] {
        const { assert!(Self::BITS == 8 * size_of::<Self>()) };
        // SAFETY: the elements have no other bits, and fill the words.
        unsafe { from.cast::<[u32; 16]>().read_unaligned() }
    }
}

impl Part for u16 {
    const BITS: usize = 16;

    #[inline(always)]
    fn bits(self) -> u32 {
        self.into()
    }
}

impl Part for u8 {
    const BITS: usize = 8;

    #[inline(always)]
    fn bits(self) -> u32 {
        self.into()
    }
}

/// Rounded to bf16.
impl Part for f32 {
    const BITS: usize = 16;

    #[inline(always)]
    fn bits(self) -> u32 {
        round_to_bf16(self).to_bits() >> 16
    }

    #[inline(always)]
    unsafe fn row(from: *const f32) -> [u32; 16] {
        // SAFETY: the caller promises 32 elements.
        let from = unsafe { from.cast::<[[f32; 2]; 16]>().read_unaligned() };
        from.map(|[first, second]| first.bits() | round_to_bf16(second).to_bits())
    }
}

/// An operand of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A part of an operand: element `i` of the free dimension and `j` of the contracted one is number
/// `start + i * free + j * contracted`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<'a, N> {
    pub(crate) elements: &'a [N],
    pub(crate) start: isize,
    pub(crate) free: isize,
    pub(crate) contracted: isize,
}

/// Packs `rows` rows (of a right operand: columns) of `depth` elements into a panel.
///
/// # Panics
/// If there are more than [`PANEL`] rows, if an element is not one of the operand's, or if the panel does not have the groups
/// that `depth` elements take.
pub(crate) fn pack<N: Part>(from: Strided<'_, N>, rows: usize, depth: usize, side: Side, to: &mut [u32]) {
    assert!(rows <= PANEL && to.len() == depth.div_ceil(N::PER_GROUP) * GROUP);
    if rows == 0 || depth == 0 {
        return to.fill(0);
    }
    let last = [(rows, from.free), (depth, from.contracted)].map(|(n, stride)| (n as isize - 1) * stride);
    let first = from.start + last[0].min(0) + last[1].min(0);
    assert!(first >= 0 && from.start + last[0].max(0) + last[1].max(0) < from.elements.len() as isize);
    // SAFETY: the first element is one of the operand's, as are all others (checked).
    let start = unsafe { from.elements.as_ptr().offset(from.start) };
    // SAFETY, of all: as many elements at these distances are the operand's (checked).
    let (size, level) = ([rows, depth], Level::best());
    match (from.free, from.contracted) {
        (free, 1) => unsafe { pack_rows(level)(start, free, size, side, to) },
        (1, contracted) => unsafe { pack_columns(level)(start, contracted, size, side, to) },
        strides => unsafe { pack_any(start, strides, size, side, to) },
    }
}

/// Packs elements that are neighbours in neither direction: a group is gathered and then packed.
///
/// # Safety
/// The elements at these distances are valid for reading.
unsafe fn pack_any<N: Part>(
    from: *const N,
    (free, contracted): (isize, isize),
    [rows, depth]: [usize; 2],
    side: Side,
    to: &mut [u32],
) {
    let mut gathered = [N::default(); PANEL * GROUP_BYTES];
    for (i, group) in to.chunks_exact_mut(GROUP).enumerate() {
        let n = N::PER_GROUP.min(depth - i * N::PER_GROUP);
        for (row, to) in gathered.chunks_exact_mut(N::PER_GROUP).enumerate().take(rows) {
            for (j, to) in to[..n].iter_mut().enumerate() {
                // SAFETY: the element is one of those that the caller promises.
                *to = unsafe { from.offset(row as isize * free + (i * N::PER_GROUP + j) as isize * contracted).read() };
            }
        }
        // SAFETY: there are as many rows of as many elements.
        unsafe { pack_rows(Level::best())(gathered.as_ptr(), N::PER_GROUP as isize, [rows, n], side, group) };
    }
}

multiversion! {
    /// The function that packs rows whose elements are neighbours. `from` has to be valid for reading `rows` rows of `depth` elements, `stride` apart.
    fn pack_rows<N: Part>(level: Level) -> unsafe fn(
        from: *const N,
        stride: isize,
        size: [usize; 2],
        side: Side,
        to: &mut [u32],
    ) {
        let [rows, depth] = size;
        let mut natural = [0; TILE];
        for (i, group) in to.chunks_exact_mut(GROUP).enumerate() {
            let n = N::PER_GROUP.min(depth - i * N::PER_GROUP);
            for (j, tile) in group.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
                let to = if side == Side::Left { &mut *tile } else { &mut natural };
                for (row, to) in to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let row = 16 * j + row;
                    if row >= rows || n < N::PER_GROUP {
                        to.fill(0);
                    }
                    if row < rows {
                        // SAFETY: the row has `n` more elements, as the caller promises, and as many fit in the words.
                        unsafe {
                            let from = from.offset(row as isize * stride).add(i * N::PER_GROUP);
                            if n == N::PER_GROUP {
                                *to = N::row(from);
                            } else {
                                for k in 0..n {
                                    to[k / N::PER_WORD] |= from.add(k).read().bits() << (k % N::PER_WORD * N::BITS);
                                }
                            }
                        }
                    }
                }
                if side == Side::Right {
                    transpose_words(&natural, tile);
                }
            }
        }
    }
}

multiversion! {
    /// The function that packs columns, whose elements are neighbours across. `from` has to be valid for reading, for each of `depth`
    /// indices, `rows` neighbours, `stride` apart.
    fn pack_columns<N: Part>(level: Level) -> unsafe fn(
        from: *const N,
        stride: isize,
        size: [usize; 2],
        side: Side,
        to: &mut [u32],
    ) {
        let [rows, depth] = size;
        let mut natural = [[0; TILE]; 2];
        for (i, group) in to.chunks_exact_mut(GROUP).enumerate() {
            let tiles = group.as_chunks_mut::<TILE>().0;
            let to = if side == Side::Right { &mut *tiles } else { &mut natural };
            for word in 0..16 {
                let first = i * N::PER_GROUP + word * N::PER_WORD;
                let mut words = [[0; 16]; 2];
                for k in 0..N::PER_WORD.min(depth.saturating_sub(first)) {
                    let shift = (k * N::BITS) as u32;
                    // SAFETY: the caller promises the elements of this index.
                    let from = unsafe { std::slice::from_raw_parts(from.offset((first + k) as isize * stride), rows) };
                    // The next panel has the elements beside these, of which rows that are far apart let no CPU foresee any.
                    prefetch(from.as_ptr().wrapping_add(PANEL).cast());
                    if let Some(from) = from.first_chunk::<PANEL>() {
                        for (words, from) in words.iter_mut().zip(from.as_chunks::<16>().0) {
                            words.iter_mut().zip(from).for_each(|(word, part)| *word |= part.bits() << shift);
                        }
                    } else {
                        words.as_flattened_mut().iter_mut().zip(from).for_each(|(word, part)| *word |= part.bits() << shift);
                    }
                }
                for (to, words) in to.iter_mut().zip(&words) {
                    to[word * 16..][..16].copy_from_slice(words);
                }
            }
            if side == Side::Left {
                tiles.iter_mut().zip(&natural).for_each(|(to, natural)| transpose_words(natural, to));
            }
        }
    }
}

/// Writes the transpose of a tile.
#[inline(always)]
fn transpose_words(from: &[u32; TILE], to: &mut [u32; TILE]) {
    transpose(from, 0, 16, &mut Block::whole(to, 16), [0, 0], [16, 16], false);
}
