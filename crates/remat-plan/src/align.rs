//! The alignment of buffers.

/// Every buffer begins at a multiple of this many bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// Rounds up to a multiple of the alignment. Sizes that no machine can hold count as 64 TiB, so that sums do not overflow; allocating them
/// fails in any case.
pub fn aligned(bytes: usize) -> usize {
    bytes.min(1 << 46).next_multiple_of(ALIGNMENT)
}
