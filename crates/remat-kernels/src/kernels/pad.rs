//! Padding, including negative and interior padding.

use remat_ir::{Aval, DType, Pad, Shape};

use crate::base::strided::TASK_BYTES;
use crate::base::strided_store::StridedStore;
use crate::interface::layout::row_major;
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel that pads a row-major operand.
pub(crate) fn kernel(op: &Pad, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let (x, out) = (&ins[0], &outs[0]);
    let (mut from, mut to) = (row_major(&x.shape), row_major(&out.shape));
    let (mut from_start, mut to_start) = (0, 0);
    let mut shape: Shape = x.shape.clone();
    for (d, &(low, _, interior)) in op.config.iter().enumerate() {
        // Element i lands at low + i * stride; those from `first` to `last` are not cropped.
        let (low, stride) = (low as i128, interior as i128 + 1);
        let first = ((-low).max(0) + stride - 1).div_euclid(stride);
        let last = (out.shape[d] as i128 - 1 - low).div_euclid(stride).min(x.shape[d] as i128 - 1);
        shape[d] = (last - first + 1).max(0) as usize;
        if shape[d] == 0 {
            break;
        }
        from_start += first as isize * from[d];
        to_start += (low + first * stride) as isize * to[d];
        // A single element has no neighbour, so its stride may exceed all sizes.
        (from[d], to[d]) = if shape[d] == 1 { (0, 0) } else { (from[d], to[d] * stride as isize) };
    }
    Box::new(Padded { dtype: x.dtype, starts: [from_start, to_start], x: StridedStore::new(&shape, &from, &to) })
}

struct Padded {
    dtype: DType,
    /// The first element of the operand that is not cropped, and its destination.
    starts: [isize; 2],
    x: StridedStore,
}

impl Kernel for Padded {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_word!(self.dtype, W => {
            let (x, value) = (ins[0].words::<W>(), ins[1].words::<W>()[0]);
            let task = TASK_BYTES / size_of::<W>();
            threads.for_each_chunk(outs[0].words_mut(), task, |i, part| {
                part.fill(value);
                self.x.store(x, [self.starts[0], self.starts[1] - (i * task) as isize], part);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::Op;

    use super::*;
    use crate::test_support::{Stream, check, wild};

    #[test]
    fn every_dtype_is_padded() {
        for dtype in DType::ALL {
            padded(dtype, &[5], &[(1, 2, 0)]);
            padded(dtype, &[5], &[(-1, 2, 3)]);
            padded(dtype, &[], &[]);
            padded(dtype, &[3, 4], &[(-1, -1, 1), (-2, 5, 2)]);
        }
    }

    #[test]
    fn edges_are_cropped_and_gaps_filled() {
        let mut stream = Stream::new(3);
        for round in 0..500 {
            let shape: Vec<usize> = (0..stream.below(4)).map(|_| stream.below(6)).collect();
            let config: Vec<(i64, i64, usize)> = shape
                .iter()
                .map(|&n| {
                    let interior = stream.below(4);
                    let dilated = if n == 0 { 0 } else { (n - 1) * (interior + 1) + 1 } as i64;
                    let low = stream.below(9) as i64 - 4;
                    (low, (stream.below(9) as i64 - 4).max(-low - dilated), interior)
                })
                .collect();
            padded(DType::ALL[round % 13], &shape, &config);
        }
    }

    #[test]
    fn large_arrays_are_padded_in_many_tasks() {
        padded(DType::F32, &[200_000], &[(100_000, 5, 1)]);
        padded(DType::F32, &[7, 300, 100], &[(1, 0, 0), (2, 2, 0), (1, 1, 0)]);
        padded(DType::U8, &[300, 1], &[(1, 0, 0), (1000, 1000, 0)]);
        padded(DType::F64, &[1 << 10, 1 << 8], &[(0, 0, 2), (-3, 0, 0)]);
    }

    #[test]
    fn huge_paddings_of_nothing_and_huge_ranks_are_padded() {
        padded(DType::F32, &[0, 3], &[(2, 1, i64::MAX as usize - 1), (0, 0, 0)]);
        padded(DType::F32, &[1, 3], &[(2, 1, i64::MAX as usize - 1), (-1, -1, 0)]);
        padded(DType::F32, &[2; 12], &[(-1, 1, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1), (-1, 0, 0), (0, 0, 0)].repeat(2));
    }

    fn padded(dtype: DType, shape: &[usize], config: &[(i64, i64, usize)]) {
        let op = Pad { config: config.to_vec() };
        let ins = [wild(dtype, shape, 5), wild(dtype, &[], 6)];
        check(&Op::from(op.clone()), |ins, outs| kernel(&op, ins, outs), &ins);
    }
}
