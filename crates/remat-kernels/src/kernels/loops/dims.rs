//! The dimensions of a strided operand, and how to walk through them.

// Elements are addressed by pointers, as the functions of tiles are.
#![allow(unsafe_code)]

use smallvec::SmallVec;

use crate::interface::Layout;
use crate::tile::{RepeatFn, StridedFn};

/// Merged dimensions, outermost first: their elements in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Dims(SmallVec<[(usize, isize); 4]>);

impl Dims {
    pub(super) fn of(layout: &Layout) -> Dims {
        Dims(layout.merged())
    }

    /// Whether element `i` is at position `i`.
    pub(super) fn is_contiguous(&self) -> bool {
        matches!(self.0.as_slice(), [] | [(_, 1)])
    }

    /// The position of an element, relative to the first.
    pub(super) fn at(&self, mut index: usize) -> isize {
        let mut position = 0;
        for &(size, stride) in self.0.iter().rev() {
            position += (index % size) as isize * stride;
            index /= size;
        }
        position
    }

    /// The length of a run along the innermost of several dimensions, if its elements are all the same or contiguous.
    pub(super) fn run(&self) -> Option<usize> {
        match self.0.as_slice() {
            [_, .., (size, 0 | 1)] => Some(*size),
            _ => None,
        }
    }

    /// Whether each run repeats one element.
    pub(super) fn repeats(&self) -> bool {
        matches!(self.0.as_slice(), [_, .., (_, 0)])
    }

    /// Whether each range that does not cross a multiple of `run` is one repeated element.
    pub(super) fn is_one_along(&self, run: Option<usize>) -> bool {
        match self.0.as_slice() {
            [] | [(_, 0)] => true,
            [.., (size, 0)] => run.is_some_and(|run| size.is_multiple_of(run)),
            _ => false,
        }
    }

    /// The position of element `start`, relative to the first, if the next `n` elements are contiguous from there.
    pub(super) fn side_by_side(&self, start: usize, n: usize) -> Option<isize> {
        let &(size, stride) = self.0.last()?;
        (stride == 1 && start % size + n <= size).then(|| self.at(start))
    }

    /// Copies the elements from `start` to `start + n` to `out`. `base` is the first element.
    ///
    /// # Safety
    /// All elements of these dimensions must be readable at `base`, `n` of them writable at `out`, and there must be `start + n` of them;
    /// each has `width` bytes, the size for which `copy` and `repeat` are made.
    pub(super) unsafe fn copy(
        &self,
        (copy, repeat): (StridedFn, RepeatFn),
        width: usize,
        base: *const u8,
        start: usize,
        n: usize,
        out: *mut u8,
    ) {
        let &(size, stride) = self.0.last().unwrap_or(&(1, 0));
        // Neighbours that are repeated are copied together, as far as they are contiguous.
        let side_by_side = match self.0.as_slice() {
            [.., (count, 1), (times, 0)] => count * times,
            _ => 0,
        };
        let mut done = 0;
        while done < n {
            let index = start + done;
            let from = base.wrapping_offset(self.at(index) * width as isize);
            let whole = match index % size {
                0 => side_by_side.saturating_sub(index % side_by_side.max(1)).min(n - done) / size,
                _ => 0,
            };
            let len = if whole > 0 { whole * size } else { (size - index % size).min(n - done) };
            // SAFETY: these are elements `index` to `index + len`, which are in one run of the innermost dimension, or in whole runs of it,
            // each of which repeats an element that is next to that of the previous run; `done + len` is at most `n`.
            unsafe {
                match whole {
                    0 => copy(len, out.add(done * width), from, stride),
                    _ => repeat(whole, size, out.add(done * width), from),
                }
            };
            done += len;
        }
    }
}
