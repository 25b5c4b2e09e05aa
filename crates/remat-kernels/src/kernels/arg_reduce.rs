//! The index of the first maximum or minimum along an axis.

use remat_ir::{ArgKind, ArgReduce, Aval, DType, with_dtype};

use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::number::Number;
use crate::simd::{CACHE_LINE, multiversion, prefetch};
use crate::threads::Threads;

/// The kernel that finds the index of the first maximum or minimum of each lane of a row-major operand.
pub(crate) fn kernel(op: &ArgReduce, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let shape = &ins[0].shape;
    Box::new(Search {
        dtype: ins[0].dtype,
        index_dtype: op.index_dtype,
        kind: op.kind,
        n: shape[op.axis],
        inner: shape[op.axis + 1..].iter().product(),
    })
}

struct Search {
    dtype: DType,
    index_dtype: DType,
    kind: ArgKind,
    /// The size of the dimension, which is not 0.
    n: usize,
    /// Elements of the dimensions after it.
    inner: usize,
}

/// Lanes that are searched together, with their positions on the stack.
const BLOCK: usize = 1024;

impl Kernel for Search {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_dtype!(self.dtype, T => {
            let x = ins[0].slice::<T>();
            match self.kind {
                ArgKind::Max => self.write(outs, threads, &|first, positions| self.find(x, first, positions, Number::is_above)),
                ArgKind::Min => self.write(outs, threads, &|first, positions| self.find(x, first, positions, Number::is_below)),
            }
        });
    }
}

impl Search {
    /// Writes the indices that `find` returns for consecutive lanes, beginning with a given lane.
    fn write(&self, outs: &mut [Target<'_>], threads: &Threads, find: &(dyn Fn(usize, &mut [usize]) + Sync)) {
        // Bools and floats cannot be indices.
        with_dtype!(self.index_dtype, I => {
            let task = (TASK_BYTES / self.dtype.size() / self.n).max(if self.inner == 1 { 1 } else { BLOCK });
            threads.for_each_chunk(outs[0].slice_mut::<I>(), task, |i, part| {
                let mut positions = [0; BLOCK];
                for (block, out) in part.chunks_mut(BLOCK).enumerate() {
                    let positions = &mut positions[..out.len()];
                    find(i * task + block * BLOCK, positions);
                    for (out, &mut position) in out.iter_mut().zip(positions) {
                        *out = I::from_index(position);
                    }
                }
            });
        });
    }

    /// Finds the best elements of the lanes from `first` on. `better` tells whether a value precedes the best so far.
    fn find<T: Number>(
        &self,
        x: &[T],
        first: usize,
        positions: &mut [usize],
        better: impl Fn(T::Wide, T::Wide) -> bool + Copy,
    ) {
        if self.inner == 1 {
            for (position, row) in positions.iter_mut().zip(x[first * self.n..].chunks(self.n)) {
                *position = first_best(row, better);
            }
            return;
        }
        let (mut lane, mut rest) = (first, positions);
        while !rest.is_empty() {
            let (outer, k) = (lane / self.inner, lane % self.inner);
            let (positions, after) = rest.split_at_mut(rest.len().min(self.inner - k));
            first_bests(&x[outer * self.n * self.inner + k..], self.inner, self.n, positions, better);
            lane += positions.len();
            rest = after;
        }
    }
}

/// Elements of a row that are compared side by side.
const LANES: usize = 16;

/// How many rows ahead columns are prefetched.
const AHEAD: usize = 2;

/// Pieces of a lane in which positions fit in 32 bits.
const PIECE: usize = 1 << 30;

multiversion! {
    /// The position of the first element such that no other is better.
    fn first_best<T: Number, F: Fn(T::Wide, T::Wide) -> bool>(row: &[T], better: F) -> usize where T::IS_COMMON => {
        let (mut best, mut position) = (row[0].widen(), 0);
        for (number, piece) in row.chunks(PIECE).enumerate() {
            let start = number * PIECE;
            let (chunks, rest) = piece.as_chunks::<LANES>();
            if let Some(first) = chunks.first() {
                let (mut values, mut numbers) = (first.map(Number::widen), [0u32; LANES]);
                for (number, chunk) in chunks.iter().enumerate() {
                    for lane in 0..LANES {
                        let value = chunk[lane].widen();
                        let wins = better(value, values[lane]);
                        values[lane] = if wins { value } else { values[lane] };
                        numbers[lane] = if wins { number as u32 } else { numbers[lane] };
                    }
                }
                for lane in 0..LANES {
                    let (value, at) = (values[lane], start + numbers[lane] as usize * LANES + lane);
                    if better(value, best) || (!better(best, value) && at < position) {
                        (best, position) = (value, at);
                    }
                }
            }
            for (i, x) in rest.iter().enumerate() {
                if better(x.widen(), best) {
                    (best, position) = (x.widen(), start + piece.len() - rest.len() + i);
                }
            }
        }
        position
    }
}

multiversion! {
    /// The positions of the first best elements of the first columns of `n` rows, which are `stride` apart. There are at most
    /// [`BLOCK`] columns.
    fn first_bests<T: Number, F: Fn(T::Wide, T::Wide) -> bool>(
        x: &[T],
        stride: usize,
        n: usize,
        positions: &mut [usize],
        better: F,
    ) where T::IS_COMMON => {
        let mut best = [T::Wide::default(); BLOCK];
        for (best, x) in best.iter_mut().zip(&x[..positions.len()]) {
            *best = x.widen();
        }
        positions.fill(0);
        for start in (0..n).step_by(PIECE) {
            let mut numbers = [u32::MAX; BLOCK];
            for i in start..n.min(start + PIECE) {
                let row = &x[i * stride..][..positions.len()];
                // Rows are far apart, and the hardware does not prefetch the next one.
                for line in (0..row.len()).step_by(CACHE_LINE / size_of::<T>()) {
                    prefetch(row.as_ptr().wrapping_add(AHEAD * stride + line).cast());
                }
                for ((x, best), number) in row.iter().zip(&mut best).zip(&mut numbers) {
                    let value = x.widen();
                    let wins = better(value, *best);
                    *best = if wins { value } else { *best };
                    *number = if wins { (i - start) as u32 } else { *number };
                }
            }
            for (position, &number) in positions.iter_mut().zip(&numbers) {
                if number != u32::MAX {
                    *position = start + number as usize;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{check, plain, wild};

    #[test]
    fn every_dtype_is_searched_along_every_axis() {
        for dtype in DType::ALL {
            for (shape, axis) in [
                (&[50][..], 0),
                (&[13, 21], 0),
                (&[13, 21], 1),
                (&[3, 10, 300], 1),
                (&[1], 0),
                (&[3, 0], 0),
                (&[40, 100], 1),
            ] {
                searched(&plain(dtype, shape, 1), axis, DType::I32);
                searched(&wild(dtype, shape, 2), axis, DType::I64);
            }
        }
    }

    #[test]
    fn indices_of_every_dtype_are_written() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            searched(&wild(DType::F32, &[100, 7], 1), 0, dtype);
        }
    }

    #[test]
    fn large_and_huge_ranked_arrays_are_searched() {
        searched(&wild(DType::F32, &[2; 12], 1), 3, DType::I32);
        for dtype in [DType::F32, DType::Bf16, DType::U8] {
            searched(&wild(dtype, &[90_000], 1), 0, DType::I32);
            searched(&wild(dtype, &[3, 90_000], 1), 0, DType::I32);
            searched(&wild(dtype, &[90_000, 3], 1), 0, DType::I32);
            searched(&wild(dtype, &[90_000, 3], 1), 1, DType::I32);
        }
    }

    fn searched(x: &Array, axis: usize, index_dtype: DType) {
        for kind in [ArgKind::Max, ArgKind::Min] {
            let op = ArgReduce { kind, axis, index_dtype };
            check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), std::slice::from_ref(x));
        }
    }
}
