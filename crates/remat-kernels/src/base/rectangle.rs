//! Rectangular parts of a matrix, each written by one task.

// A rectangle consists of parts of a slice that are not one slice, so the borrow checker cannot tell rectangles apart.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use super::disjoint::DisjointMut;
use crate::threads::Threads;

/// Exclusive access to a rectangle of a matrix.
pub(crate) struct Rectangle<'a, T> {
    /// The first element of the rectangle.
    first: *mut T,
    /// The distance between rows.
    stride: usize,
    /// The rows of the matrix that the rectangle covers.
    pub(crate) rows: Range<usize>,
    /// The columns of the matrix that the rectangle covers.
    pub(crate) columns: Range<usize>,
    elements: PhantomData<&'a mut [T]>,
}

impl<'a, T> Rectangle<'a, T> {
    /// The rectangle of a whole matrix with this many columns.
    pub(crate) fn whole(matrix: &'a mut [T], columns: usize) -> Rectangle<'a, T> {
        let rows = 0..matrix.len().checked_div(columns).unwrap_or(0);
        Rectangle { first: matrix.as_mut_ptr(), stride: columns, rows, columns: 0..columns, elements: PhantomData }
    }

    /// The elements of row `i` of the rectangle.
    #[inline(always)]
    pub(crate) fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows.len());
        // SAFETY: the row is one of the rectangle's (checked), so that its columns are elements of the matrix, which are
        // borrowed exclusively for `'a` and reached through this rectangle alone; `&mut self` keeps rows from overlapping.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(i * self.stride), self.columns.len()) }
    }

    /// A pointer to the element at `row` and `column` of the rectangle, where an `n` by `n` square begins, and the distance between rows.
    #[inline(always)]
    pub(crate) fn square(&mut self, row: usize, column: usize, n: usize) -> (*mut T, usize) {
        assert!(row + n <= self.rows.len() && column + n <= self.columns.len());
        // SAFETY: the element is one of the rectangle's (checked).
        (unsafe { self.first.add(row * self.stride + column) }, self.stride)
    }

    /// Whether the element in this column has an address that is a multiple of `bytes` in every row of the rectangle.
    pub(crate) fn is_aligned(&self, column: usize, bytes: usize) -> bool {
        (self.first as usize + column * size_of::<T>()).is_multiple_of(bytes)
            && (self.stride * size_of::<T>()).is_multiple_of(bytes)
    }
}

/// Calls `f` for every rectangle of at most `size` rows and columns of a matrix, in any order, on any thread.
pub(crate) fn for_each_rectangle<T: Send>(
    threads: &Threads,
    matrix: &mut [T],
    columns: usize,
    size: [usize; 2],
    f: impl Fn(Rectangle<'_, T>) + Send + Sync,
) {
    let rows = matrix.len().checked_div(columns).unwrap_or(0);
    let size = size.map(|size| size.max(1));
    let across = columns.div_ceil(size[1]);
    let matrix = DisjointMut::new(matrix);
    threads.for_each(rows.div_ceil(size[0]) * across, |task| {
        let (i, j) = (task / across * size[0], task % across * size[1]);
        let (rows, columns_of_rectangle) = (i..rows.min(i + size[0]), j..columns.min(j + size[1]));
        let first = matrix.at(i * columns + j);
        // The ranges of tasks do not overlap, and each task runs once, while the matrix is borrowed here.
        f(Rectangle { first, stride: columns, rows, columns: columns_of_rectangle, elements: PhantomData });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::threads;

    #[test]
    fn rectangles_cover_a_matrix_once() {
        for count in [1, 2, 3] {
            for (rows, columns, size) in
                [(7, 5, [2, 3]), (1, 9, [4, 4]), (6, 4, [6, 1]), (3, 0, [1, 1]), (0, 3, [0, 0])]
            {
                let mut matrix = vec![0usize; rows * columns];
                for_each_rectangle(&threads(count), &mut matrix, columns, size, |mut rectangle| {
                    for i in 0..rectangle.rows.len() {
                        let first = (rectangle.rows.start + i) * columns + rectangle.columns.start;
                        for (j, x) in rectangle.row(i).iter_mut().enumerate() {
                            *x += first + j + 1;
                        }
                    }
                });
                assert!(matrix.iter().enumerate().all(|(i, &x)| x == i + 1), "{rows} by {columns}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "i < self.rows.len()")]
    fn a_rectangle_ends_with_its_last_row() {
        Rectangle::whole(&mut [1, 2, 3, 4], 2).row(2);
    }
}
