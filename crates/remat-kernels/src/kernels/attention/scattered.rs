//! Elements that tasks write here and there.

// Which elements a task has for itself only its caller knows.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A slice of which each task writes elements of its own.
pub(super) struct Scattered<'a, T> {
    first: *mut T,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: the elements are reached through `at` only, whose callers promise that no two have the same ones; they are sent to
// threads as those of a `&mut [T]` are.
unsafe impl<T: Send> Sync for Scattered<'_, T> {}

impl<'a, T> Scattered<'a, T> {
    pub(super) fn new(elements: &'a mut [T]) -> Scattered<'a, T> {
        Scattered { first: elements.as_mut_ptr(), len: elements.len(), elements: PhantomData }
    }

    /// The `len` elements from `first` on.
    ///
    /// # Safety
    /// Nobody else has one of them while they are borrowed.
    ///
    /// # Panics
    /// If there are not so many.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that nobody else has these elements")]
    pub(super) unsafe fn at(&self, first: usize, len: usize) -> &mut [T] {
        assert!(first <= self.len && len <= self.len - first);
        // SAFETY: the elements are in the slice (checked), and are the caller's (promised).
        unsafe { std::slice::from_raw_parts_mut(self.first.add(first), len) }
    }
}
