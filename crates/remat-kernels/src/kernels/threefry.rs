//! The Threefry-2x32 block function (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

use remat_ir::{Aval, threefry_block};
use smallvec::SmallVec;

use crate::base::strided::TASK_BYTES;
use crate::interface::{Kernel, Source, Target};
use crate::simd::multiversion;
use crate::threads::Threads;

/// Pairs of counters that are computed side by side.
const BLOCK: usize = 64;

/// The kernel of the block function on row-major operands; scalars are repeated.
pub(crate) fn kernel(ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let is_whole = |&(operand, _): &(usize, usize)| ins[operand].rank() > 0 && ins[operand].shape == outs[0].shape;
    Box::new(Threefry {
        is_scalar: std::array::from_fn(|i| ins[i].rank() == 0),
        in_place: COUNTERS.into_iter().filter(is_whole).collect(),
    })
}

/// The operands that are counters, and the outputs that may take their memory. A block is read before it is written.
const COUNTERS: [(usize, usize); 2] = [(2, 0), (3, 1)];

struct Threefry {
    is_scalar: [bool; 4],
    in_place: SmallVec<[(usize, usize); 2]>,
}

impl Kernel for Threefry {
    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        let ([k0, k1, x0, x1], [y0, y1]) = (ins, outs) else { return };
        let words = [k0, k1, x0, x1].map(|x| x.slice::<u32>());
        let task = TASK_BYTES / 2 / size_of::<u32>();
        let (y0, y1) = (y0.slice_mut::<u32>(), y1.slice_mut::<u32>());
        let tasks = y0.len().div_ceil(task);
        let parts = y0.chunks_mut(task).zip(y1.chunks_mut(task)).enumerate();
        threads.for_each_item(tasks, parts, |(i, (y0, y1))| {
            let start = i * task;
            // A scalar stays as it is, and an operand in place has no elements of its own.
            let words = std::array::from_fn(|i| match self.is_scalar[i] || words[i].is_empty() {
                true => words[i],
                false => &words[i][start..start + y0.len()],
            });
            encrypt(words, self.is_scalar, y0, y1);
        });
    }
}

multiversion! {
    /// Computes all blocks of keys `words[0], words[1]` and counters `words[2], words[3]`. Counters without words are in the outputs.
    fn encrypt(words: [&[u32]; 4], is_scalar: [bool; 4], y0: &mut [u32], y1: &mut [u32]) {
        let mut lanes = [[0; BLOCK]; 4];
        for (lane, words) in lanes.iter_mut().zip(words) {
            lane.fill(words.first().copied().unwrap_or(0));
        }
        for (i, (y0, y1)) in y0.chunks_mut(BLOCK).zip(y1.chunks_mut(BLOCK)).enumerate() {
            let len = y0.len();
            for (operand, lane) in lanes.iter_mut().enumerate() {
                let lane = &mut lane[..len];
                match operand {
                    _ if is_scalar[operand] => {}
                    2 if words[2].is_empty() => lane.copy_from_slice(y0),
                    3 if words[3].is_empty() => lane.copy_from_slice(y1),
                    _ => lane.copy_from_slice(&words[operand][i * BLOCK..][..len]),
                }
            }
            let [k0, k1, x0, x1] = &lanes;
            let mut blocks = [[0; BLOCK]; 2];
            for j in 0..BLOCK {
                [blocks[0][j], blocks[1][j]] = threefry_block([k0[j], k1[j]], [x0[j], x1[j]]);
            }
            y0.copy_from_slice(&blocks[0][..len]);
            y1.copy_from_slice(&blocks[1][..len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{DType, Op, Threefry2x32};

    use super::*;
    use crate::test_support::{check, wild};

    #[test]
    fn scalars_stand_for_every_element_of_any_operand() {
        for shape in [&[][..], &[1], &[0], &[63], &[64], &[5, 31], &[2, 0]] {
            for scalars in 0..16 {
                let operand = |i: u64| wild(DType::U32, if scalars >> i & 1 == 1 { &[] } else { shape }, i);
                let ins = [operand(0), operand(1), operand(2), operand(3)];
                check(&Op::from(Threefry2x32), kernel, &ins);
            }
        }
    }

    #[test]
    fn many_blocks_are_cut_into_tasks() {
        let ins = [wild(DType::U32, &[], 1), wild(DType::U32, &[], 2)];
        let counters = [wild(DType::U32, &[3, 70_001], 3), wild(DType::U32, &[3, 70_001], 4)];
        check(&Op::from(Threefry2x32), kernel, &[ins, counters].concat());
    }
}
