//! Products of a vector of bytes and a matrix whose rows lie along the contracted axis, by the CPU's instructions for them
//! ([`byte_dots`](super::byte_dots)).

// Rows are read through pointers, and results are written by several threads.
#![allow(unsafe_code)]

use remat_ir::DType;

use super::super::Operands;
use super::super::element::Writer;
use super::super::narrow::kind;
use super::byte_dots::{ByteDots, ROWS, STEP};
use crate::base::disjoint::DisjointMut;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// Most rows of a task, and bytes of the matrix that a task reads at least.
const TASK_ROWS: usize = 128;
const TASK: usize = 1 << 16;

/// The shortest vector, and the fewest rows of a matrix, for which packing the vector first pays.
const DEPTH: usize = 256;
const COLUMNS: usize = 2 * ROWS;

/// Elements of the vector that are converted at a time.
const PIECE: usize = 1 << 10;

/// The kernel of such products, one for each index of the batch.
pub(super) struct BytesKernel {
    operands: Operands<f32>,
    writer: Writer<i64>,
    dots: ByteDots,
    is_signed: bool,
}

impl BytesKernel {
    /// The instructions for products of these operands, if it computes them: vectors of bytes and matrices that are large and lie along the
    /// contracted axis, with results of integers of at most 32 bits, on a CPU with the instructions.
    pub(super) fn dots_for(operands: &Operands<f32>, out: DType) -> Option<ByteDots> {
        let Operands { matrix, thin, .. } = operands;
        let dtypes = [thin.reader.dtype(), matrix.reader.dtype()];
        let is_large = operands.depth >= DEPTH && operands.columns >= COLUMNS;
        let is_regular = [&matrix.free, &matrix.contracted].iter().all(|rows| rows.outer.len() == 1)
            && matrix.contracted.stride[0] == 1
            && matrix.free.stride[0] >= 0;
        let is_for = kind(dtypes, out).is_some() && operands.rows == 1 && is_large && is_regular;
        ByteDots::best().filter(|_| is_for)
    }

    pub(super) fn new(dots: ByteDots, operands: Operands<f32>, out: DType) -> BytesKernel {
        let is_signed = operands.matrix.reader.dtype() == DType::I8;
        BytesKernel { operands, writer: Writer::of_integers(out), dots, is_signed }
    }

    /// Bytes of a packed vector.
    fn vector(&self) -> usize {
        self.operands.depth.next_multiple_of(STEP)
    }

    /// Rows of the matrix in a task.
    fn task_rows(&self) -> usize {
        (TASK / self.operands.depth).next_multiple_of(ROWS).clamp(ROWS, TASK_ROWS)
    }

    /// Bytes of scratch memory: of the vectors, and of their sums.
    fn shared(&self) -> [usize; 2] {
        let count = self.operands.batch.len();
        [count * self.vector(), scratch::bytes::<u32>(count)]
    }

    /// Packs the vector of an index of the batch, and returns what makes up for the shift of the matrix.
    fn pack(&self, ins: &[Source<'_>], index: usize, space: &mut [f32], to: &mut [u8]) -> u32 {
        let (_, thin) = self.operands.at(ins, index);
        let (numbers, space) = space.split_at_mut(PIECE);
        let mut sum = 0u32;
        for first in (0..self.operands.depth).step_by(PIECE) {
            let piece = first..self.operands.depth.min(first + PIECE);
            let numbers = &mut numbers[..piece.len()];
            thin.read_rows(0..1, piece.clone(), space, numbers);
            for (to, &number) in to[piece].iter_mut().zip(&*numbers) {
                let number = number as i32;
                *to = number as u8;
                sum = sum.wrapping_add(number as u32);
            }
        }
        to[self.operands.depth..].fill(0);
        self.dots.shift(self.is_signed, sum)
    }
}

impl Kernel for BytesKernel {
    fn scratch(&self, threads: usize) -> usize {
        self.shared().iter().sum::<usize>() + threads * scratch::bytes::<f32>(2 * PIECE)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (Operands { batch, columns, depth, .. }, size) = (&self.operands, self.writer.dtype.size());
        let (columns, depth, vector, rows) = (*columns, *depth, self.vector(), self.task_rows());
        let [of_vectors, of_shifts] = self.shared();
        let (vectors, rest) = scratch.split_at_mut(of_vectors);
        let (shifts, own) = rest.split_at_mut(of_shifts);
        let shifts = &mut scratch::of::<u32>(shifts)[..batch.len()];
        let packed = vectors.chunks_exact_mut(vector).zip(&mut *shifts).enumerate();
        threads.for_each_item_with_scratch(batch.len(), packed, own, |(index, (to, shift)), own| {
            *shift = self.pack(ins, index, &mut scratch::of::<f32>(own)[..2 * PIECE], to);
        });
        let (vectors, shifts, dots) = (&*vectors, &*shifts, self.dots.of(self.is_signed));
        let out = DisjointMut::bytes(&mut outs[0]);
        let blocks = columns.div_ceil(rows);
        threads.for_each(batch.len() * blocks, |task| {
            let (index, first) = (task / blocks, task % blocks * rows);
            let (matrix, _) = self.operands.at(ins, index);
            let part = first..columns.min(first + rows);
            let location = matrix.locate(&part, &(0..depth));
            assert!(location.is_some(), "the matrix has the same strides everywhere");
            let Some(location) = location else { return };
            let x = &vectors[index * vector..][..vector];
            let mut sums = [0i64; TASK_ROWS];
            let sums = &mut sums[..part.len()];
            for (i, sums) in sums.chunks_mut(ROWS).enumerate() {
                let from = (location.first.wrapping_add(i * ROWS * location.strides[0]), location.strides[0]);
                // SAFETY: the rows are in the matrix (`locate`), the vector has as many bytes, and the CPU has the instructions.
                let found = unsafe { dots(x, from, sums.len(), depth) };
                for (sum, found) in sums.iter_mut().zip(found) {
                    *sum = i64::from(found.wrapping_add(shifts[index]) as i32);
                }
            }
            // SAFETY: one task writes these results, which are in the output.
            unsafe { self.writer.write(sums, out.at((index * columns + first) * size)) };
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Aval, DotGeneral, Operation};

    use super::*;
    use crate::interface::Layout;
    use crate::kernels::matmul::Dot;

    /// Whether the kernel is taken for a vector of this length and a matrix of so many rows, or columns if they are `transposed`.
    fn is_taken(k: usize, n: usize, transposed: bool) -> bool {
        let op = DotGeneral {
            lhs_contract: [1].as_slice().into(),
            rhs_contract: [usize::from(!transposed)].as_slice().into(),
            lhs_batch: [].as_slice().into(),
            rhs_batch: [].as_slice().into(),
            preferred_element_type: DType::I32,
        };
        let ins = [Aval::new(DType::I8, [1, k]), Aval::new(DType::I8, if transposed { [k, n] } else { [n, k] })];
        let layouts = ins.each_ref().map(Layout::from);
        let operands = [(DType::I8, &layouts[0]), (DType::I8, &layouts[1])];
        let out = &op.infer(&ins).expect("they fit")[0];
        BytesKernel::dots_for(&Dot::<f32>::new(&op, operands, out).operands(), DType::I32).is_some()
    }

    #[test]
    fn large_matrices_along_the_contracted_axis_are_read_as_bytes() {
        assert_eq!(is_taken(DEPTH, COLUMNS, false), ByteDots::best().is_some());
        for (k, n, transposed) in [(DEPTH - 1, COLUMNS, false), (DEPTH, COLUMNS - 1, false), (DEPTH, COLUMNS, true)] {
            assert!(!is_taken(k, n, transposed), "{k} {n} {transposed}");
        }
    }
}
