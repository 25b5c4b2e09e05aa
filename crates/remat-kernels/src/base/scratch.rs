//! Scratch memory as elements of a type.

// Bytes become elements.
#![allow(unsafe_code)]

/// A type that any bits are a value of.
///
/// # Safety
/// Every pattern of bits must be a value.
pub(crate) unsafe trait AnyBits: Copy + Send + Sync + 'static {}

macro_rules! any_bits {
    ($($type:ty)*) => { $(
        // SAFETY: numbers have no invalid values.
        unsafe impl AnyBits for $type {}
    )* };
}

any_bits! { u8 u16 u32 u64 u128 i64 f32 f64 }

/// As many elements as fit in the bytes, which are aligned to 64. What they hold is unspecified.
pub(crate) fn of<T: AnyBits>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: any bits are a value of the type.
    let (before, elements, _) = unsafe { bytes.align_to_mut() };
    debug_assert!(before.is_empty(), "scratch memory is aligned");
    elements
}
