//! A slice that several tasks write, each its own elements. No other type does this.

// Only the caller knows which elements a task owns.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::interface::Target;

/// A slice in which each task writes only its own elements.
pub(crate) struct DisjointMut<'a, T> {
    first: *mut T,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached only through `slice`, whose callers promise that no two tasks share an element, and through addresses, which
// are unsafe to use. They are sent to threads like those of a `&mut [T]`.
unsafe impl<T: Send> Send for DisjointMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for DisjointMut<'_, T> {}

impl<T> Clone for DisjointMut<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DisjointMut<'_, T> {}

impl<'a> DisjointMut<'a, u8> {
    /// The bytes of an output.
    pub(crate) fn bytes(target: &'a mut Target<'_>) -> DisjointMut<'a, u8> {
        DisjointMut { first: target.as_ptr(), len: target.len(), elements: PhantomData }
    }
}

impl<'a, T> DisjointMut<'a, T> {
    pub(crate) fn new(elements: &'a mut [T]) -> DisjointMut<'a, T> {
        DisjointMut { first: elements.as_mut_ptr(), len: elements.len(), elements: PhantomData }
    }

    /// The `len` elements from `first` on.
    ///
    /// # Safety
    /// No other task borrows any of them at the same time.
    ///
    /// # Panics
    /// If the slice is shorter.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that no other task has these elements")]
    pub(crate) unsafe fn slice(&self, first: usize, len: usize) -> &mut [T] {
        assert!(first <= self.len && len <= self.len - first);
        // SAFETY: the elements are in the slice (checked), and belong to the caller (promised).
        unsafe { std::slice::from_raw_parts_mut(self.first.add(first), len) }
    }

    /// The address of an element, for functions that take addresses. Their callers state why the element belongs to the task and is in the
    /// slice.
    pub(crate) fn at(&self, i: usize) -> *mut T {
        self.first.wrapping_add(i)
    }

    /// The elements from `first` on; empty if the slice is shorter.
    pub(crate) fn skip(&self, first: usize) -> DisjointMut<'a, T> {
        DisjointMut {
            first: self.first.wrapping_add(first),
            len: self.len.saturating_sub(first),
            elements: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::threads;

    #[test]
    fn tasks_write_their_own_elements() {
        for count in [1, 2, 3] {
            let mut numbers = vec![0usize; 21];
            let out = DisjointMut::new(&mut numbers);
            threads(count).for_each(7, |i| {
                let own = out.skip(3 * i);
                // SAFETY: each task has three elements of its own.
                unsafe { own.slice(0, 3) }.fill(i);
            });
            assert!(numbers.iter().enumerate().all(|(i, &x)| x == i / 3));
        }
    }

    #[test]
    #[should_panic(expected = "len <= self.len - first")]
    fn a_slice_ends_with_its_last_element() {
        let mut numbers = [1, 2, 3];
        // SAFETY: there is one task.
        unsafe { DisjointMut::new(&mut numbers).skip(1).slice(1, 2) };
    }
}
