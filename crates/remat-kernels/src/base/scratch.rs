//! Views scratch memory as elements of a type.

// Bytes become elements.
#![allow(unsafe_code)]

use crate::number::Scalar;
use crate::simd::CACHE_LINE;

/// As many elements as fit in the bytes, which are aligned to 64. Their values are unspecified.
pub(crate) fn of<T: Scalar>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: any bits are a value of the type.
    let (before, elements, _) = unsafe { bytes.align_to_mut() };
    assert!(before.is_empty(), "scratch memory is aligned");
    elements
}

/// As [`of`], for memory that several tasks read.
pub(crate) fn shared<T: Scalar>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are a value of the type.
    let (before, elements, _) = unsafe { bytes.align_to() };
    assert!(before.is_empty(), "scratch memory is aligned");
    elements
}

/// Bytes of scratch memory for this many elements, rounded up to a multiple of 64 so that the memory after them is aligned too.
pub(crate) fn bytes<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(CACHE_LINE)
}

/// Splits scratch memory into its first `count` elements and the remaining bytes. It has at least the [`bytes`] that they need.
pub(crate) fn take<T: Scalar>(scratch: &mut [u8], count: usize) -> (&mut [T], &mut [u8]) {
    let (taken, rest) = scratch.split_at_mut(bytes::<T>(count));
    (&mut of::<T>(taken)[..count], rest)
}

/// As many narrower elements as fit in words.
pub(crate) fn words<T: Scalar>(words: &mut [u32]) -> &mut [T] {
    const { assert!(align_of::<T>() <= align_of::<u32>()) };
    // SAFETY: any bits are a value of the type, and words are aligned for it.
    unsafe { words.align_to_mut().1 }
}
