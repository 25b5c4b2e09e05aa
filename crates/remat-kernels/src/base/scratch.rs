//! Scratch memory as elements of a type.

// Bytes become elements.
#![allow(unsafe_code)]

use crate::number::Scalar;

/// As many elements as fit in the bytes, which are aligned to 64. What they hold is unspecified.
pub(crate) fn of<T: Scalar>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: any bits are a value of the type.
    let (before, elements, _) = unsafe { bytes.align_to_mut() };
    debug_assert!(before.is_empty(), "scratch memory is aligned");
    elements
}
