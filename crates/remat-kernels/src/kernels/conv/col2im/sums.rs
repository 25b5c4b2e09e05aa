//! Rows of results to which products are added.

// Results are written through pointers, since the tasks' results interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::kernels::conv::output::write_part;
use crate::kernels::matmul::Writer;
use crate::simd::multiversion;

/// Products of one element of the window, which are added to neighbouring results.
#[derive(Clone, Copy, Default)]
pub(super) struct Tap {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) len: usize,
}

multiversion! {
    /// Adds products to a row of results, tap by tap.
    pub(super) fn add<A: Accumulator>(row: &mut [A], products: &[A], taps: &[Tap]) {
        for tap in taps {
            let from = &products[tap.from..][..tap.len];
            for (sum, &product) in row[tap.to..][..tap.len].iter_mut().zip(from) {
                *sum = sum.plus(product);
            }
        }
    }
}

/// The sums of the rows of results that later products may still reach: the same number of rows for each feature, and each row phase by
/// phase.
pub(super) struct Sums<'a, A> {
    sums: &'a mut [A],
    /// Features, rows of each and elements of a row.
    shape: [usize; 3],
    /// The first row that is not written yet.
    first: usize,
    end: usize,
}

impl<'a, A: Accumulator> Sums<'a, A> {
    /// Zeros for a band of results.
    pub(super) fn new(sums: &'a mut [A], shape: [usize; 3], band: Range<usize>) -> Sums<'a, A> {
        sums.fill(A::default());
        Sums { sums, shape, first: band.start, end: band.end }
    }

    /// The sums of a row of a feature, if the row is in the band.
    pub(super) fn row(&mut self, feature: usize, row: i64) -> Option<&mut [A]> {
        let [_, rows, len] = self.shape;
        let row = usize::try_from(row).ok().filter(|row| (self.first..self.end).contains(row))?;
        Some(&mut self.sums[(feature * rows + row - self.first) * len..][..len])
    }

    /// Writes the rows of the band before this one.
    pub(super) fn write_before(&mut self, row: i64, out: &ResultRows<'_, A>) {
        let [_, rows, len] = self.shape;
        let row = (row.max(0) as usize).min(self.end);
        while self.first < row {
            let count = rows.min(row - self.first);
            out.write(self.first, count, self.sums, self.shape);
            for sums in self.sums.chunks_exact_mut(rows * len) {
                sums.copy_within(count * len.., 0);
                sums[(rows - count) * len..].fill(A::default());
            }
            self.first += count;
        }
    }
}

/// Where the rows of results of an image and a group are written.
pub(super) struct ResultRows<'a, A> {
    pub(super) out: DisjointMut<'a, u8>,
    pub(super) writer: &'a Writer<A>,
    /// The first element, and the strides of features, rows and columns.
    pub(super) first: isize,
    pub(super) strides: [isize; 3],
    /// The number of phases of a row, and the most elements of one.
    pub(super) phases: [usize; 2],
    /// Elements of a row.
    pub(super) columns: usize,
}

impl<A: Accumulator> ResultRows<'_, A> {
    /// Writes the first sums of each feature to some rows.
    fn write(&self, first: usize, count: usize, sums: &[A], [features, rows, len]: [usize; 3]) {
        let [of_feature, of_row, of_column] = self.strides;
        let [phases, phase] = self.phases;
        for (i, p) in (0..count).flat_map(|i| (0..phases.min(self.columns)).map(move |p| (i, p))) {
            let at = self.first + (first + i) as isize * of_row + p as isize * of_column;
            let shape = [features, (self.columns - p).div_ceil(phases)];
            let strides = [of_feature, phases as isize * of_column];
            // SAFETY: the rows are of the task's band, and no other task writes them.
            unsafe { write_part(self.out, self.writer, shape, &sums[i * len + p * phase..], rows * len, at, strides) };
        }
    }
}
