//! Where the products of a convolution go.

// Several threads write elements that lie between each other.
#![allow(unsafe_code)]

use std::ops::Range;

use super::row_segments::copy;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::strided::Rows;
use crate::kernels::matmul::{Output, Writer};
use crate::simd::Level;

/// Products that are converted at a time before they are put where they belong.
const CHUNK: usize = 64;

/// A matrix of results that lie at the offsets of rows and columns from the first on.
pub(super) struct Scattered<'a, A> {
    pub(super) place: DisjointMut<'a, u8>,
    pub(super) writer: &'a Writer<A>,
    pub(super) rows: &'a Rows<1>,
    pub(super) columns: &'a Rows<1>,
}

/// The distance between the rows of a matrix whose products can be written as they are.
pub(super) fn direct_step<A: Accumulator>(writer: &Writer<A>, rows: &Rows<1>, columns: &Rows<1>) -> Option<usize> {
    let contiguous = columns.outer.len() <= 1 && (columns.len == 1 || columns.step[0] == 1);
    (writer.is_direct() && contiguous && rows.outer.len() <= 1).then_some(rows.step[0] as usize)
}

impl<A: Accumulator> Output<A> for Scattered<'_, A> {
    fn direct(&self) -> Option<(*mut A, usize)> {
        direct_step(self.writer, self.rows, self.columns).map(|step| (self.place.at(0).cast(), step))
    }

    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        let (across, mut j) = (columns.len(), 0);
        let steps = [self.rows.step[0], self.columns.step[0]];
        self.columns.each(columns, |[column], columns| {
            let mut i = 0;
            self.rows.each(rows.clone(), |[row], rows| {
                let at = row + rows.start as isize * steps[0] + column + columns.start as isize * steps[1];
                let shape = [rows.len(), columns.len()];
                // SAFETY: these are elements of the tile.
                unsafe { self.write_box(shape, &sums[i * across + j..], across, at, steps) };
                i += rows.len();
            });
            j += columns.len();
        });
    }
}

impl<A: Accumulator> Scattered<'_, A> {
    /// Writes some rows and columns of a tile, which has so many columns, from an offset on and between these distances.
    ///
    /// # Safety
    /// They are the result's, and nobody else has access to them meanwhile.
    unsafe fn write_box(&self, shape: [usize; 2], sums: &[A], across: usize, at: isize, steps: [isize; 2]) {
        let [rows, columns] = shape;
        if self.writer.is_direct() {
            assert!((rows - 1) * across + columns <= sums.len());
            let to = self.place.at(0).cast::<A>().wrapping_offset(at);
            let (mut shape, mut from_steps, mut steps) = (shape, [across as isize, 1], steps);
            if steps[0] == 1 {
                (shape, from_steps, steps) = ([columns, rows], [1, across as isize], [steps[1], 1]);
            }
            // SAFETY: the sums are as many (checked), and where they go is as the caller promises.
            return unsafe { copy::<A>(Level::best())(shape, sums.as_ptr(), from_steps, to, steps) };
        }
        for (i, sums) in sums.chunks(across).take(rows).enumerate() {
            // SAFETY: as the caller promises.
            unsafe { self.write_row(&sums[..columns], at + i as isize * steps[0], steps[1]) };
        }
    }

    /// Writes results that are `step` apart, the first at an offset.
    ///
    /// # Safety
    /// They are the result's, and nobody else has access to them meanwhile.
    unsafe fn write_row(&self, sums: &[A], at: isize, step: isize) {
        let size = self.writer.dtype.size();
        let place = |i: usize| self.place.at(((at + i as isize * step) as usize) * size);
        if step == 1 || sums.len() == 1 {
            // SAFETY: as the caller promises.
            return unsafe { self.writer.write(sums, place(0)) };
        }
        for (i, sums) in sums.chunks(CHUNK).enumerate() {
            let mut converted = [0u64; CHUNK];
            let from = converted.as_mut_ptr().cast::<u8>();
            // SAFETY: the chunk fits as many elements of any dtype; each place is an element of the result.
            unsafe {
                self.writer.write(sums, from);
                for j in 0..sums.len() {
                    let to = place(i * CHUNK + j);
                    match size {
                        1 => to.write(from.add(j).read()),
                        2 => to.cast::<u16>().write(from.cast::<u16>().add(j).read()),
                        4 => to.cast::<u32>().write(from.cast::<u32>().add(j).read()),
                        _ => to.cast::<u64>().write(from.cast::<u64>().add(j).read()),
                    }
                }
            }
        }
    }
}
