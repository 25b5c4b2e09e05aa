//! Concatenation.

use remat_ir::{Aval, Concatenate, DType};
use smallvec::SmallVec;

use crate::base::strided::TASK_BYTES;
use crate::base::strided_store::StridedStore;
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel of a concatenation of row-major operands.
pub(crate) fn kernel(op: &Concatenate, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let rows = outs[0].shape[..op.axis].iter().product();
    let len = |x: &Aval| x.shape[op.axis..].iter().product::<usize>();
    let stride = len(&outs[0]) as isize;
    let mut at = 0;
    let place = |x: &Aval| {
        let to = at;
        at += len(x) as isize;
        (to, StridedStore::new(&[rows, len(x)], &[len(x) as isize, 1], &[stride, 1]))
    };
    Box::new(Joined { dtype: outs[0].dtype, operands: ins.iter().map(place).collect() })
}

struct Joined {
    dtype: DType,
    /// The destination of the first element of each operand, and the store of its elements from there.
    operands: SmallVec<[(isize, StridedStore); 2]>,
}

impl Kernel for Joined {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_word!(self.dtype, W => {
            let task = TASK_BYTES / size_of::<W>();
            threads.for_each_chunk(outs[0].words_mut::<W>(), task, |i, part| {
                for ((to, store), from) in self.operands.iter().zip(ins) {
                    store.store(from.words(), [0, to - (i * task) as isize], part);
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{check, wild};

    #[test]
    fn operands_are_joined_along_every_axis() {
        for dtype in DType::ALL {
            joined(dtype, &[&[3], &[0], &[70], &[1]], 0);
            joined(dtype, &[&[2, 1, 3], &[2, 4, 3], &[2, 1, 3]], 1);
            joined(dtype, &[&[5, 7, 2], &[5, 7, 1], &[5, 7, 30]], 2);
            joined(dtype, &[&[5, 7, 2], &[1, 7, 2]], 0);
        }
        joined(DType::F32, &[&[0, 3], &[0, 4]], 1);
        joined(DType::F32, &[&[3, 0], &[2, 0]], 0);
        joined(DType::F32, &[&[2; 12], &[2; 12]], 7);
        joined(DType::F32, &[&[4]], 0);
    }

    #[test]
    fn large_operands_are_joined_in_many_tasks() {
        joined(DType::F32, &[&[300_000], &[7], &[100_001]], 0);
        joined(DType::U8, &[&[700, 500], &[700, 499]], 1);
        joined(DType::F64, &[&[70_000, 1], &[70_000, 1], &[70_000, 3]], 1);
    }

    fn joined(dtype: DType, shapes: &[&[usize]], axis: usize) {
        let op = Concatenate { axis };
        let ins: Vec<Array> = shapes.iter().enumerate().map(|(i, shape)| wild(dtype, shape, i as u64)).collect();
        check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), &ins);
    }
}
