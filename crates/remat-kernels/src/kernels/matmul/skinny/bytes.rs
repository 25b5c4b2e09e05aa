//! Products of up to [`VECTORS`] vectors of bytes and a matrix whose rows lie along the contracted axis, by the CPU's instructions for them
//! ([`byte_dots`](super::byte_dots)). Some rows at a time are multiplied by all vectors, so that memory is read once.

// Rows are read through pointers, and results are written by several threads.
#![allow(unsafe_code)]

use remat_ir::DType;

use super::super::element::Writer;
use super::super::matrix::Location;
use super::super::narrow::kinds;
use super::super::thresholds::{SKINNY_BYTES_DEPTH, SKINNY_BYTES_TILES};
use super::super::{Dot, Operands};
use super::byte_dots::{ByteDots, ROWS, STEP, VECTORS};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::Kind;
use crate::base::pieces::pieces;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// Most rows of a task, and bytes of the matrix that a task reads at least.
const TASK_ROWS: usize = 128;
const TASK: usize = 1 << 16;

/// Sums that a task has before it writes them.
const SUMS: usize = 128;

/// A piece of the rows has some for each of the vectors.
const _: () = assert!(SUMS >= TASK_ROWS && SUMS.is_multiple_of(VECTORS * ROWS));

/// The shortest vector, and the fewest rows of a matrix, for which packing the vector first pays.
const DEPTH: usize = SKINNY_BYTES_DEPTH;
const COLUMNS: usize = SKINNY_BYTES_TILES * ROWS;

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
    /// The instructions for a product, if this kernel is faster than others: for few vectors of bytes and a matrix that is large and lies
    /// along the contracted axis, with results of integers of at most 32 bits, on a CPU with the instructions.
    pub(super) fn dots_for(dot: &Dot<f32>) -> Option<ByteDots> {
        let is_large = dot.depth >= DEPTH && dot.rows.max(dot.columns) >= COLUMNS;
        let lies_along_rows = matches!(dot.large().strides(), Some([(0..), 1]));
        let kinds = kinds([&dot.left, &dot.right].map(|side| side.reader.dtype()), dot.out);
        let is_of_bytes = matches!(kinds, [Kind::I8 | Kind::U8]);
        let few = dot.rows.min(dot.columns);
        ByteDots::best().filter(|dots| is_of_bytes && is_large && lies_along_rows && (1..=dots.vectors).contains(&few))
    }

    /// The kernel of such a product, by these instructions.
    pub(super) fn new(dots: ByteDots, dot: Dot<f32>) -> BytesKernel {
        let (out, is_signed) = (dot.out, dot.left.reader.dtype() == DType::I8);
        BytesKernel { operands: dot.operands(), writer: Writer::of_integers(out), dots, is_signed }
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
        let count = self.operands.batch.len() * self.operands.rows;
        [count * self.vector(), scratch::bytes::<u32>(count)]
    }

    /// Packs a vector of an index of the batch, and returns what makes up for the shift of the matrix.
    fn pack(&self, ins: &[Source<'_>], [index, row]: [usize; 2], space: &mut [f32], to: &mut [u8]) -> u32 {
        let (depth, (_, skinny)) = (self.operands.depth, self.operands.at(ins, index));
        let (packed, rest) = to.split_at_mut(depth);
        rest.fill(0);
        if let Some(Location { first, strides: [_, 1] }) = skinny.locate(&(row..row + 1), &(0..depth)) {
            // SAFETY: the row is in the operand (`locate`), whose elements are bytes.
            packed.copy_from_slice(unsafe { std::slice::from_raw_parts(first, depth) });
            let number = |byte: u8| if self.is_signed { i32::from(byte as i8) } else { i32::from(byte) };
            return self
                .dots
                .shift(self.is_signed, packed.iter().fold(0, |sum, &byte| sum.wrapping_add(number(byte) as u32)));
        }
        let (numbers, space) = space.split_at_mut(PIECE);
        let mut sum = 0u32;
        for first in (0..depth).step_by(PIECE) {
            let piece = first..depth.min(first + PIECE);
            let numbers = &mut numbers[..piece.len()];
            skinny.read_rows(row..row + 1, piece.clone(), space, numbers);
            for (to, &number) in packed[piece].iter_mut().zip(&*numbers) {
                let number = number as i32;
                *to = number as u8;
                sum = sum.wrapping_add(number as u32);
            }
        }
        self.dots.shift(self.is_signed, sum)
    }
}

impl Kernel for BytesKernel {
    fn scratch(&self, threads: usize) -> usize {
        self.shared().iter().sum::<usize>() + threads * scratch::bytes::<f32>(2 * PIECE)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (&Operands { ref batch, rows, columns, depth, skinny_first, .. }, size) =
            (&self.operands, self.writer.dtype.size());
        let (vector, matrix_rows) = (self.vector(), self.task_rows());
        let [of_vectors, of_shifts] = self.shared();
        let (vectors, rest) = scratch.split_at_mut(of_vectors);
        let (shifts, own) = rest.split_at_mut(of_shifts);
        let shifts = &mut scratch::of::<u32>(shifts)[..batch.len() * rows];
        let packed = vectors.chunks_exact_mut(rows * vector).zip(shifts.chunks_exact_mut(rows)).enumerate();
        threads.for_each_item_with_scratch(batch.len(), packed, own, |(index, (to, shifts)), own| {
            let space = &mut scratch::of::<f32>(own)[..2 * PIECE];
            for (row, (to, shift)) in to.chunks_exact_mut(vector).zip(shifts).enumerate() {
                *shift = self.pack(ins, [index, row], space, to);
            }
        });
        let (vectors, shifts, dots) = (&*vectors, &*shifts, self.dots.of(self.is_signed));
        let out = DisjointMut::bytes(&mut outs[0]);
        let blocks = columns.div_ceil(matrix_rows);
        threads.for_each(batch.len() * blocks, |task| {
            let (index, first) = (task / blocks, task % blocks * matrix_rows);
            let (matrix, _) = self.operands.at(ins, index);
            let vectors = vectors.chunks_exact(vector).zip(shifts).skip(index * rows).take(rows);
            let mut sums = [0i64; SUMS];
            for part in pieces(first..columns.min(first + matrix_rows), SUMS / rows) {
                let location = matrix.locate(&part, &(0..depth));
                assert!(location.is_some(), "the matrix has the same strides everywhere");
                let Some(location) = location else { return };
                let strides = if skinny_first { [part.len(), 1] } else { [1, rows] };
                for done in (0..part.len()).step_by(ROWS) {
                    let count = ROWS.min(part.len() - done);
                    let from = (location.first.wrapping_add(done * location.strides[0]), location.strides[0]);
                    for (row, (x, &shift)) in vectors.clone().enumerate() {
                        // SAFETY: the rows are in the matrix (`locate`), the vector has as many bytes, and the CPU has the instructions.
                        let found = unsafe { dots(x, from, count, depth) };
                        for (i, found) in found.into_iter().enumerate().take(count) {
                            sums[row * strides[0] + (done + i) * strides[1]] =
                                i64::from(found.wrapping_add(shift) as i32);
                        }
                    }
                }
                let sums = &sums[..rows * part.len()];
                let (first, run) =
                    if skinny_first { (part.start, part.len()) } else { (part.start * rows, sums.len()) };
                for (i, sums) in sums.chunks_exact(run).enumerate() {
                    let at = index * rows * columns + i * columns + first;
                    // SAFETY: one task writes these results, which are in the output.
                    unsafe { self.writer.write(sums, out.at(at * size)) };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Aval, DotGeneral, Op, Operation};

    use super::*;
    use crate::interface::Layout;
    use crate::test_support::{assert_same, check_by, wild};

    /// Whether the kernel is taken for a vector of this length and a matrix of this number of rows, or columns if they are `transposed`.
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
        BytesKernel::dots_for(&Dot::<f32>::new(&op, operands, out)).is_some()
    }

    #[test]
    fn large_matrices_along_the_contracted_axis_are_read_as_bytes() {
        assert_eq!(is_taken(DEPTH, COLUMNS, false), ByteDots::best().is_some());
        for (k, n, transposed) in [(DEPTH - 1, COLUMNS, false), (DEPTH, COLUMNS - 1, false), (DEPTH, COLUMNS, true)] {
            assert!(!is_taken(k, n, transposed), "{k} {n} {transposed}");
        }
    }

    /// Few vectors by a matrix, as the first operand and as the second, for several rests of a register and of the rows of a task.
    #[test]
    fn all_instructions_multiply_few_vectors() {
        for (_, dots) in ByteDots::all() {
            for dtype in [DType::I8, DType::U8] {
                for (m, k, n) in [(1, 256, 16), (2, 257, 17), (3, 319, 139), (VECTORS, 4100, 33)] {
                    let [few, matrix] = [[2, m, k], [2, n, k]].map(|shape| wild(dtype, &shape, 1));
                    let op = DotGeneral {
                        lhs_contract: [2].as_slice().into(),
                        rhs_contract: [2].as_slice().into(),
                        lhs_batch: [0].as_slice().into(),
                        rhs_batch: [0].as_slice().into(),
                        preferred_element_type: DType::I32,
                    };
                    let build = |ins: &[Aval], outs: &[Aval]| -> Box<dyn Kernel> {
                        let layouts = [0, 1].map(|i| Layout::from(&ins[i]));
                        let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
                        Box::new(BytesKernel::new(dots, Dot::new(&op, operands, &outs[0])))
                    };
                    for ins in [[few.clone(), matrix.clone()], [matrix, few]] {
                        check_by(&Op::from(op.clone()), build, &ins, assert_same);
                    }
                }
            }
        }
    }
}
