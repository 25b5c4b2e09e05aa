//! Slices whose start is known only at run time.

use remat_ir::{Aval, DType, DynamicSlice, DynamicUpdateSlice};
use smallvec::SmallVec;

use crate::base::copy::StridedCopy;
use crate::base::index::integer;
use crate::base::strided::TASK_BYTES;
use crate::base::strided_store::StridedStore;
use crate::interface::layout::row_major;
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel of a slice of a row-major operand.
pub(crate) fn dynamic_slice(op: &DynamicSlice, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let x = &ins[0];
    let strides = row_major(&x.shape);
    let copy = StridedCopy::new(&op.sizes, &strides);
    Box::new(Sliced { dtype: x.dtype, start: Start::new(&x.shape, &op.sizes), copy })
}

/// The kernel of the update of a slice of a row-major operand, in place if there is no other reference to the operand.
pub(crate) fn dynamic_update_slice(_op: &DynamicUpdateSlice, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let (x, update) = (&ins[0], &ins[1]);
    let store = StridedStore::new(&update.shape, &row_major(&update.shape), &row_major(&x.shape));
    Box::new(Updated { dtype: x.dtype, start: Start::new(&x.shape, &update.shape), store })
}

struct Sliced {
    dtype: DType,
    start: Start,
    copy: StridedCopy,
}

struct Updated {
    dtype: DType,
    start: Start,
    store: StridedStore,
}

/// The start of a slice: scalars that are clamped so that the slice fits.
struct Start {
    /// The largest start along each axis, and the stride.
    dims: SmallVec<[(usize, isize); 4]>,
}

impl Start {
    fn new(shape: &[usize], sizes: &[usize]) -> Start {
        let dims = shape.iter().zip(sizes).map(|(&n, &size)| n - size).zip(row_major(shape));
        // A slice of no elements may begin anywhere, and the strides of its array may not be countable.
        Start { dims: if sizes.contains(&0) { SmallVec::new() } else { dims.collect() } }
    }

    /// The offset of the first element, given one scalar per dimension.
    fn offset(&self, starts: &[Source<'_>]) -> isize {
        let along = |(start, &(most, stride)): (&Source, &(usize, isize))| {
            integer(start).clamp(0, most as i64) as isize * stride
        };
        starts.iter().zip(&self.dims).map(along).sum()
    }
}

impl Kernel for Sliced {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        let start = self.start.offset(&ins[1..]);
        with_word!(self.dtype, W => self.copy.run::<W>(ins[0].words(), start, outs[0].words_mut(), threads));
    }
}

impl Kernel for Updated {
    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        let start = self.start.offset(&ins[2..]);
        with_word!(self.dtype, W => {
            let (update, to) = (ins[1].words::<W>(), outs[0].words_mut::<W>());
            let task = TASK_BYTES / size_of::<W>();
            if ins[0].is_in_place() {
                let range = self.store.range(start);
                threads.for_each_chunk(&mut to[range.clone()], task, |i, part| {
                    self.store.store(update, [0, start - (range.start + i * task) as isize], part);
                });
                return;
            }
            let x = ins[0].words::<W>();
            threads.for_each_chunk(to, task, |i, part| {
                part.copy_from_slice(&x[i * task..][..part.len()]);
                self.store.store(update, [0, start - (i * task) as isize], part);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Element, Literal, Op, f16};

    use super::*;
    use crate::test_support::{Stream, check, filled, wild};

    #[test]
    fn starts_of_every_dtype_are_clamped() {
        let values = [0, 1, 2, 3, 100, -1, i128::from(i64::MIN), i128::from(i64::MAX), i128::from(u64::MAX)];
        for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            for &start in &values {
                sliced(wild(DType::F32, &[5, 7], 1), &[3, 2], &[scalar(dtype, start), scalar(dtype, 2)]);
            }
        }
    }

    #[test]
    fn slices_of_every_dtype_and_shape_are_read_and_written() {
        let mut stream = Stream::new(2);
        for round in 0..300 {
            let shape: Vec<usize> = (0..stream.below(4)).map(|_| stream.below(9)).collect();
            let sizes: Vec<usize> = shape.iter().map(|&n| stream.below(n + 1)).collect();
            let starts: Vec<Array> =
                shape.iter().map(|&n| scalar(DType::I32, stream.below(n + 6) as i128 - 3)).collect();
            sliced(wild(DType::ALL[round % 13], &shape, round as u64), &sizes, &starts);
        }
        let starts = vec![scalar(DType::I8, 1); 12];
        sliced(wild(DType::I64, &[2; 12], 1), &[1, 2, 2, 1, 1, 2, 2, 2, 1, 2, 1, 2], &starts);
    }

    #[test]
    fn large_slices_are_moved_in_many_tasks() {
        let starts = [scalar(DType::I32, 3), scalar(DType::I32, 17)];
        sliced(wild(DType::F32, &[700, 900], 1), &[650, 800], &starts);
        sliced(wild(DType::F32, &[8, 100_000], 1), &[1, 100_000], &starts);
        sliced(wild(f16::DTYPE, &[8, 300_000], 1), &[2, 299_000], &starts);
    }

    fn sliced(x: Array, sizes: &[usize], starts: &[Array]) {
        let op = DynamicSlice { sizes: sizes.into() };
        let update = wild(x.dtype(), sizes, 9);
        let ins = [std::slice::from_ref(&x), starts].concat();
        check(&Op::from(op.clone()), |ins, outs| dynamic_slice(&op, ins, outs), &ins);
        let ins = [&[x, update][..], starts].concat();
        check(&Op::from(DynamicUpdateSlice), |ins, outs| dynamic_update_slice(&DynamicUpdateSlice, ins, outs), &ins);
    }

    fn scalar(dtype: DType, value: i128) -> Array {
        filled(dtype, &[], 0, |_| Literal::from_i128(dtype, value))
    }
}
