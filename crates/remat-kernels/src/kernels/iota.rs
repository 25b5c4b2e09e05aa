//! Counting along an axis.

use remat_ir::{Aval, DType, Iota, with_dtype};

use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::number::Number;
use crate::threads::Threads;

/// The kernel that counts along an axis.
pub(crate) fn kernel(op: &Iota, _ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    Box::new(Count { dtype: op.dtype, n: op.shape[op.axis], inner: op.shape[op.axis + 1..].iter().product() })
}

struct Count {
    dtype: DType,
    /// The size of the dimension.
    n: usize,
    /// Elements of the dimensions after it.
    inner: usize,
}

impl Kernel for Count {
    fn run(&self, _: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_dtype!(self.dtype, T => self.count::<T>(outs[0].slice_mut(), threads));
    }
}

impl Count {
    fn count<T: Number>(&self, out: &mut [T], threads: &Threads) {
        let task = TASK_BYTES / size_of::<T>();
        threads.for_each_chunk(out, task, |i, mut part| {
            let mut at = i * task;
            while !part.is_empty() {
                let (first, len) = match self.inner {
                    1 => (at % self.n, self.n - at % self.n),
                    inner => (at / inner % self.n, inner - at % inner),
                };
                let (run, rest) = part.split_at_mut(len.min(part.len()));
                at += run.len();
                part = rest;
                if self.inner == 1 {
                    for (i, x) in run.iter_mut().enumerate() {
                        *x = T::from_index(first + i);
                    }
                } else {
                    run.fill(T::from_index(first));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::Op;

    use super::*;
    use crate::test_support::check;

    #[test]
    fn every_numeric_dtype_counts_along_every_axis() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            for (shape, axis) in [
                (&[7][..], 0),
                (&[300, 2], 0),
                (&[2, 300], 1),
                (&[3, 4, 5], 1),
                (&[0], 0),
                (&[3, 0], 0),
                (&[70_000], 0),
            ] {
                count(dtype, shape, axis);
            }
        }
        count(DType::F32, &[2; 12], 5);
    }

    fn count(dtype: DType, shape: &[usize], axis: usize) {
        let op = Iota { dtype, shape: shape.into(), axis };
        check(&Op::from(op.clone()), |ins, outs| kernel(&op, ins, outs), &[]);
    }
}
