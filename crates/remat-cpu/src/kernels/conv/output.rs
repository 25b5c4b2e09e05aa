//! Where the products of a convolution go.

// Several threads write elements that lie between each other.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::kernels::matmul::{Accumulator, Output, Place, Writer};
use crate::kernels::walk::Rows;

/// Products that are converted at a time before they are put where they belong.
const CHUNK: usize = 64;

/// A matrix of results that lie at the offsets of rows and columns from the first on.
pub(super) struct Scattered<'a, A> {
    pub(super) place: Place,
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
        direct_step(self.writer, self.rows, self.columns).map(|step| (self.place.0.cast(), step))
    }

    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        let mut sums = sums.chunks_exact(columns.len());
        self.rows.each(rows, |[row], range| {
            for (i, mut sums) in range.zip(&mut sums) {
                let row = row + i as isize * self.rows.step[0];
                self.columns.each(columns.clone(), |[column], range| {
                    let (step, first) = (self.columns.step[0], range.start as isize);
                    let (run, rest) = sums.split_at(range.len());
                    sums = rest;
                    // SAFETY: these are elements of the tile.
                    unsafe { self.run(row + column + first * step, step, run) };
                });
            }
        });
    }
}

impl<A: Accumulator> Scattered<'_, A> {
    /// Writes results that are `step` apart, the first at an offset.
    ///
    /// # Safety
    /// They are the result's, and nobody else has access to them meanwhile.
    unsafe fn run(&self, at: isize, step: isize, sums: &[A]) {
        let size = self.writer.dtype.size();
        let place = |i: usize| self.place.at(((at + i as isize * step) as usize) * size);
        if step == 1 || sums.len() == 1 {
            // SAFETY: as the caller promises.
            return unsafe { self.writer.write(sums, place(0).0) };
        }
        for (i, sums) in sums.chunks(CHUNK).enumerate() {
            let mut converted = [0u64; CHUNK];
            let from = converted.as_mut_ptr().cast::<u8>();
            // SAFETY: the chunk fits as many elements of any dtype; each place is an element of the result.
            unsafe {
                self.writer.write(sums, from);
                for j in 0..sums.len() {
                    let to = place(i * CHUNK + j).0;
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
