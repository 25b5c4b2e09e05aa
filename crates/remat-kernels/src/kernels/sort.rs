//! Sorting along an axis.
//!
//! The kernel sorts integers of a key and a position in scratch memory. `sort_unstable` allocates nothing, and no two of these integers are
//! equal, so equal elements keep their order. If there are further operands, or the elements of a lane are not neighbours, all positions
//! are computed first, and each result is then gathered in the order of its memory.

use std::cmp::Ordering;

use remat_ir::{Aval, DType, Element, Sort, with_dtype};
use smallvec::SmallVec;

use crate::base::keys::{Key, Packed, fits_u64};
use crate::base::scratch;
use crate::base::strided::TASK_BYTES;
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel that sorts row-major operands together.
pub(crate) fn kernel(op: &Sort, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let shape = &ins[0].shape;
    Box::new(Sorted {
        dtypes: ins.iter().map(|x| x.dtype).collect(),
        num_keys: op.num_keys,
        size: ins[0].size(),
        n: shape[op.axis],
        inner: shape[op.axis + 1..].iter().product(),
    })
}

struct Sorted {
    dtypes: SmallVec<[DType; 2]>,
    num_keys: usize,
    /// Elements of an operand.
    size: usize,
    /// The size of the dimension.
    n: usize,
    /// Elements of the dimensions after it.
    inner: usize,
}

impl Kernel for Sorted {
    fn scratch(&self, threads: usize) -> usize {
        if self.is_small() { self.bytes::<u64>(threads) } else { self.bytes::<u128>(threads) }
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        if self.size == 0 {
            return;
        }
        if self.is_small() {
            self.sort::<u64>(ins, outs, scratch, threads);
        } else {
            self.sort::<u128>(ins, outs, scratch, threads);
        }
    }
}

impl Sorted {
    fn is_small(&self) -> bool {
        fits_u64(self.dtypes[0].size(), self.n)
    }

    /// Whether the sorted elements are written directly: for one operand whose lanes are rows.
    fn is_direct(&self) -> bool {
        self.dtypes.len() == 1 && self.inner == 1
    }

    /// Bytes of all positions, rounded up to the alignment.
    fn position_bytes<P: Packed>(&self) -> usize {
        if self.is_direct() { 0 } else { (self.size * size_of::<P::Position>()).next_multiple_of(64) }
    }

    fn bytes<P: Packed>(&self, threads: usize) -> usize {
        self.position_bytes::<P>() + threads * self.n * size_of::<P>()
    }

    /// Lanes that one task sorts.
    fn lanes(&self) -> usize {
        (TASK_BYTES / 16 / self.n).max(1)
    }

    fn sort<P: Packed>(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (positions, lane) = scratch.split_at_mut(self.position_bytes::<P>());
        let lane = scratch::of::<P>(lane);
        let len = self.lanes() * self.n;
        let tasks = self.size.div_ceil(len);
        if self.is_direct() {
            with_word!(self.dtypes[0], W => {
                let x = ins[0].words::<W>();
                let parts = outs[0].words_mut::<W>().chunks_mut(len).enumerate();
                threads.for_each_item_with_scratch(tasks, parts, lane, |(i, part), lane| {
                    for (row, out) in part.chunks_mut(self.n).enumerate() {
                        let start = i * len + row * self.n;
                        self.order(ins, start, &mut lane[..self.n]);
                        for (out, packed) in out.iter_mut().zip(&*lane) {
                            *out = x[start + packed.position()];
                        }
                    }
                });
            });
            return;
        }
        let positions = &mut scratch::of::<P::Position>(positions)[..self.size];
        let parts = positions.chunks_mut(len).enumerate();
        threads.for_each_item_with_scratch(tasks, parts, lane, |(i, part), lane| {
            for (k, positions) in part.chunks_mut(self.n).enumerate() {
                let number = i * self.lanes() + k;
                let start = number / self.inner * self.n * self.inner + number % self.inner;
                self.order(ins, start, &mut lane[..self.n]);
                for (position, packed) in positions.iter_mut().zip(&*lane) {
                    *position = P::narrow(packed.position());
                }
            }
        });
        for (x, out) in ins.iter().zip(outs) {
            with_word!(x.dtype(), W => self.take::<W, P>(x.words(), positions, out.words_mut(), threads));
        }
    }

    /// Sorts the keys and positions of the lane that begins with element `start`.
    fn order<P: Packed>(&self, ins: &[Source<'_>], start: usize, lane: &mut [P]) {
        with_dtype!(self.dtypes[0], T => {
            let keys = ins[0].slice::<T>()[start..].iter().step_by(self.inner);
            for (i, (packed, x)) in lane.iter_mut().zip(keys).enumerate() {
                *packed = P::pack(x.key(), i);
            }
        });
        if self.num_keys == 1 {
            return lane.sort_unstable();
        }
        let later_keys = &ins[1..self.num_keys];
        lane.sort_unstable_by(|a, b| {
            let at = |packed: &P| start + packed.position() * self.inner;
            let order = || later_keys.iter().map(|x| compare(x, at(a), at(b))).find(|order| order.is_ne());
            a.unpack_key().cmp(&b.unpack_key()).then_with(|| order().unwrap_or(Ordering::Equal)).then(a.cmp(b))
        });
    }

    /// Moves the elements of an operand to their positions, lane by lane.
    fn take<W: Element, P: Packed>(&self, from: &[W], positions: &[P::Position], to: &mut [W], threads: &Threads) {
        let task = TASK_BYTES / size_of::<W>();
        threads.for_each_chunk(to, task, |i, part| {
            let mut at = i * task;
            let mut rest = part;
            if self.inner == 1 {
                for (at, out) in (at..).zip(rest) {
                    *out = from[at / self.n * self.n + P::widen(positions[at])];
                }
                return;
            }
            // The lane changes along a row of the result.
            while !rest.is_empty() {
                let (outer, i, k) = (at / self.inner / self.n, at / self.inner % self.n, at % self.inner);
                let len = rest.len().min(self.inner - k);
                let (row, after) = rest.split_at_mut(len);
                let first = outer * self.n * self.inner;
                for (k, out) in (k..).zip(row) {
                    let position = P::widen(positions[first + k * self.n + i]);
                    *out = from[first + position * self.inner + k];
                }
                at += len;
                rest = after;
            }
        });
    }
}

/// The order of two elements of an operand.
fn compare(x: &Source<'_>, a: usize, b: usize) -> Ordering {
    with_dtype!(x.dtype(), T => {
        let x = x.slice::<T>();
        x[a].key().cmp(&x[b].key())
    })
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{check, plain, wild};

    #[test]
    fn every_dtype_is_sorted_along_every_axis() {
        for dtype in DType::ALL {
            for (shape, axis) in [(&[300][..], 0), (&[7, 40], 0), (&[7, 40], 1), (&[3, 50, 4], 1), (&[0], 0), (&[1], 0)]
            {
                sorted(axis, 1, &[wild(dtype, shape, 1)]);
                sorted(axis, 1, &[plain(dtype, shape, 1)]);
            }
        }
    }

    #[test]
    fn operands_follow_the_keys() {
        let shape = [6, 50];
        for dtype in DType::ALL {
            for num_keys in 1..=3 {
                let ins = [wild(dtype, &shape, 1), plain(DType::I8, &shape, 2), wild(DType::F64, &shape, 3)];
                sorted(1, num_keys, &ins);
                sorted(0, num_keys, &ins);
                sorted(0, num_keys, &[plain(DType::Bool, &shape, 5), ins[0].clone(), ins[2].clone()]);
            }
        }
    }

    #[test]
    fn empty_large_and_huge_ranked_arrays_are_sorted() {
        sorted(1, 1, &[wild(DType::F32, &[0, 3], 1), wild(DType::F32, &[0, 3], 2)]);
        sorted(1, 2, &[wild(DType::F32, &[3, 0], 1), wild(DType::F32, &[3, 0], 2)]);
        sorted(4, 1, &[wild(DType::F32, &[2; 12], 1), wild(DType::I8, &[2; 12], 2)]);
        sorted(0, 1, &[wild(DType::F32, &[70_000], 1)]);
        sorted(0, 1, &[wild(DType::F32, &[100, 900], 1), plain(DType::I64, &[100, 900], 1)]);
        sorted(1, 1, &[wild(DType::I64, &[900, 100], 1)]);
    }

    fn sorted(axis: usize, num_keys: usize, ins: &[Array]) {
        for is_stable in [false, true] {
            let op = Sort { axis, num_keys, is_stable };
            check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), ins);
        }
    }
}
