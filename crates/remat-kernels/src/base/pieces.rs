//! Cuts ranges into pieces of one size, of which the last may be smaller.

use std::ops::Range;

/// Piece `i` of a range.
#[inline]
pub(crate) fn piece(range: Range<usize>, size: usize, i: usize) -> Range<usize> {
    range.start + i * size..range.end.min(range.start + (i + 1) * size)
}

/// The pieces of a range. An empty range has one piece, which is empty.
#[inline]
pub(crate) fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..range.len().div_ceil(size.max(1)).max(1)).map(move |i| piece(range.clone(), size, i))
}
