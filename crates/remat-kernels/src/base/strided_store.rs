//! Stores of a strided array to a larger row-major one, for padding, concatenation, updates of slices and scatters.

use std::ops::Range;

use super::strided::{Rows, StridedIter};

/// The destinations of an array's elements in a larger row-major one. Both have their dimensions in the same order, so later elements have
/// larger offsets.
pub(crate) struct StridedStore {
    /// Rows, with the strides of the smaller and of the larger array.
    rows: Rows<2>,
    /// The offset of the last element from the first; negative if there are no elements.
    extent: isize,
}

impl StridedStore {
    /// The store of an array of this shape, with its strides in the smaller and in the larger array.
    pub(crate) fn new(shape: &[usize], from: &[isize], to: &[isize]) -> StridedStore {
        let iter = StridedIter::new(shape, [from, to]);
        let extent = if iter.len() == 0 { -1 } else { iter.extent(1) };
        StridedStore { rows: iter.into(), extent }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.rows.outer.len() * self.rows.len
    }

    /// The offset of the last element from the first; negative if there are no elements.
    pub(crate) fn extent(&self) -> isize {
        self.extent
    }

    /// The distance between the elements of a row, in the smaller and in the larger array.
    pub(crate) fn strides(&self) -> [isize; 2] {
        self.rows.stride
    }

    /// The part of the larger array from the first to the last element, if the first goes to `to`.
    pub(crate) fn range(&self, to: isize) -> Range<usize> {
        if self.extent < 0 { 0..0 } else { to as usize..(to + self.extent + 1) as usize }
    }

    /// Calls `row` for each row with elements in a part of the larger array. It gets the index of the first such element in the smaller
    /// array and in the part, and their number. `from` is the first element of the smaller array, and `to` its destination relative to the
    /// start of the part, which has `len` elements.
    #[inline(always)]
    pub(crate) fn each_row(&self, [from, to]: [isize; 2], len: usize, mut row: impl FnMut([usize; 2], usize)) {
        let [from_stride, to_stride] = self.rows.stride;
        let (end, count) = (len as isize, self.rows.len as isize);
        let last = (count - 1) * to_stride;
        let outer = &self.rows.outer;
        let rows = if to >= 0 && to + self.extent < end {
            0..outer.len()
        } else {
            let reaches = |i| to + outer.offsets(i)[1] + last >= 0;
            let passes = |i| to + outer.offsets(i)[1] >= end;
            first_index(outer.len(), reaches)..first_index(outer.len(), passes)
        };
        outer.each(rows, |[source, target]| {
            let (source, target) = (from + source, to + target);
            let before = if target < 0 { (-target + to_stride - 1) / to_stride } else { 0 };
            let inside = if target + last < end { count } else { (end - 1 - target) / to_stride + 1 };
            if before < inside {
                let [source, target] = [source + before * from_stride, target + before * to_stride];
                row([source as usize, target as usize], (inside - before) as usize);
            }
        });
    }

    /// Calls `position` for each element with its offset from the first one in the smaller and in the larger array.
    #[inline(always)]
    pub(crate) fn each_position(&self, mut position: impl FnMut([isize; 2])) {
        let [from_stride, to_stride] = self.rows.stride;
        self.rows.outer.each(0..self.rows.outer.len(), |[from, to]| {
            for k in 0..self.rows.len as isize {
                position([from + k * from_stride, to + k * to_stride]);
            }
        });
    }

    /// Copies the elements whose destination is in this part of the larger array; see [`StridedStore::each_row`].
    pub(crate) fn store<T: Copy>(&self, from: &[T], starts: [isize; 2], part: &mut [T]) {
        let strides = self.rows.stride;
        self.each_row(starts, part.len(), |[source, target], count| match strides {
            // A call for a few elements would take longer than copying them.
            [1, 1] if count > 8 => part[target..target + count].copy_from_slice(&from[source..source + count]),
            [from_stride, to_stride] => {
                for k in 0..count {
                    part[target + k * to_stride as usize] = from[source + k * from_stride as usize];
                }
            }
        });
    }
}

/// The first of `n` indices for which `test` holds, or `n` if there is none. `test` holds for all later ones.
fn first_index(n: usize, test: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if test(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
