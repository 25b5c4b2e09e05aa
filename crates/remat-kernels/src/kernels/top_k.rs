//! The largest elements of rows.
//!
//! Candidates are collected in scratch memory. When it is full, all but the largest are dropped, and from then on smaller or equal elements
//! are skipped. So a row is read once, and most of its elements are compared once.

use remat_ir::{Aval, DType, TopK, with_dtype};

use crate::base::keys::{Key, Packed, fits_u64};
use crate::base::scratch;
use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::simd::multiversion;
use crate::threads::Threads;

/// The kernel that finds the largest elements along the last axis of a row-major operand, and their indices.
pub(crate) fn kernel(op: &TopK, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let n = ins[0].shape.last().copied().unwrap_or(1);
    Box::new(Largest { dtype: ins[0].dtype, n, k: op.k })
}

struct Largest {
    dtype: DType,
    /// Elements of a row.
    n: usize,
    k: usize,
}

/// Elements that are compared at once.
const CHUNK: usize = 64;

impl Kernel for Largest {
    fn scratch(&self, threads: usize) -> usize {
        let bytes = if self.is_small() { size_of::<u64>() } else { size_of::<u128>() };
        threads * self.candidates() * bytes
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_dtype!(self.dtype, T => {
            if self.is_small() {
                self.select::<T, u64>(ins, outs, scratch, threads);
            } else {
                self.select::<T, u128>(ins, outs, scratch, threads);
            }
        });
    }
}

impl Largest {
    fn is_small(&self) -> bool {
        fits_u64(self.dtype.size(), self.n)
    }

    /// The most candidates that are kept.
    fn candidates(&self) -> usize {
        (4 * self.k).max(256).min(self.n)
    }

    fn select<T: Key, P: Packed>(
        &self,
        ins: &[Source<'_>],
        outs: &mut [Target<'_>],
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let [values, indices] = outs else { return };
        let (values, indices) = (values.slice_mut::<T>(), indices.slice_mut::<i32>());
        if values.is_empty() {
            return;
        }
        let x = ins[0].slice::<T>();
        let rows = (TASK_BYTES / size_of::<T>() / self.n).max(1);
        let len = rows * self.k;
        let tasks = values.len().div_ceil(len);
        let parts = values.chunks_mut(len).zip(indices.chunks_mut(len)).zip(x.chunks(rows * self.n));
        threads.for_each_item_with_scratch(
            tasks,
            parts,
            scratch::of::<P>(scratch),
            |((values, indices), x), scratch| {
                let results = values.chunks_mut(self.k).zip(indices.chunks_mut(self.k));
                for ((values, indices), row) in results.zip(x.chunks(self.n)) {
                    let largest = self.largest(row, &mut scratch[..self.candidates()]);
                    for ((value, index), packed) in values.iter_mut().zip(indices).zip(largest) {
                        (*value, *index) = (row[packed.position()], packed.position() as i32);
                    }
                }
            },
        );
    }

    /// The largest elements of a row, in descending order; `k` is not 0.
    fn largest<'a, T: Key, P: Packed>(&self, row: &[T], candidates: &'a mut [P]) -> &'a [P] {
        let mut count = 0;
        // Later elements with the key of the smallest candidate are not candidates.
        let mut least = None;
        for (number, chunk) in row.chunks(CHUNK).enumerate() {
            if least.is_some_and(|least| !exceeds(chunk, least)) {
                continue;
            }
            for (i, x) in chunk.iter().enumerate() {
                if least.is_some_and(|least| x.key() <= least) {
                    continue;
                }
                if count == candidates.len() {
                    least = Some(candidates.select_nth_unstable(self.k - 1).1.unpack_descending());
                    count = self.k;
                    if least.is_some_and(|least| x.key() <= least) {
                        continue;
                    }
                }
                candidates[count] = P::pack_descending(x.key(), number * CHUNK + i);
                count += 1;
            }
        }
        let candidates = &mut candidates[..count];
        if self.k < count {
            candidates.select_nth_unstable(self.k - 1);
        }
        let largest = &mut candidates[..self.k];
        largest.sort_unstable();
        largest
    }
}

multiversion! {
    /// Whether one of the elements has a key above this one.
    fn exceeds<T: Key>(x: &[T], least: u64) -> bool {
        x.iter().fold(false, |exceeds, x| exceeds | (x.key() > least))
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{check, plain, wild};

    #[test]
    fn the_largest_of_every_dtype_are_found() {
        for dtype in DType::ALL {
            for (shape, k) in [(&[300][..], 5), (&[7, 40], 40), (&[7, 40], 1), (&[2, 3, 600], 3), (&[5], 0), (&[0], 0)]
            {
                largest(wild(dtype, shape, 1), k);
                largest(plain(dtype, shape, 1), k);
            }
        }
    }

    #[test]
    fn empty_large_and_huge_ranked_arrays_are_searched() {
        largest(wild(DType::F32, &[0, 3], 1), 2);
        largest(wild(DType::F32, &[3, 0], 1), 0);
        largest(wild(DType::F32, &[2; 12], 1), 1);
        largest(wild(DType::F32, &[3, 70_000], 1), 100);
        largest(wild(DType::F64, &[90, 1000], 1), 700);
        largest(wild(DType::F32, &[100_000, 2], 1), 1);
    }

    #[test]
    fn ascending_rows_replace_all_candidates_again_and_again() {
        let ascending = Array::from_vec((0..5000).map(|i| (i / 3) as f32).collect(), [5000]).expect("an array");
        largest(ascending, 7);
    }

    fn largest(x: Array, k: usize) {
        let op = TopK { k };
        check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), &[x]);
    }
}
