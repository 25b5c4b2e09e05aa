//! Solves triangular systems.
//!
//! Systems are solved [`COLUMNS`] at a time, packed into a panel of scratch memory in the order in which they are solved. One loop then
//! covers lower and upper triangles, transposed ones, and systems on the right.

// Panels that different threads solve are interleaved in the result.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{Aval, DType, TriangularSolve};

use super::tile::{COLUMNS, Factors, substitute};
use crate::base::disjoint::DisjointMut;
use crate::base::product::Float;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::number::with_float;
use crate::threads::Threads;

/// The kernel that solves systems of row-major matrices.
pub(crate) fn kernel(op: &TriangularSolve, ins: &[Aval]) -> Box<dyn Kernel> {
    let (dtype, shape) = (ins[1].dtype, &ins[1].shape);
    let [rows, columns] = [shape[shape.len() - 2], shape[shape.len() - 1]];
    let (n, systems) = if op.left_side { (rows, columns) } else { (columns, rows) };
    Box::new(Solve { op: *op, dtype, n, systems })
}

struct Solve {
    op: TriangularSolve,
    dtype: DType,
    /// Unknowns of a system.
    n: usize,
    /// Systems of a matrix.
    systems: usize,
}

/// The fewest products that a task subtracts, if there are that many.
const TASK: usize = 1 << 17;

impl Kernel for Solve {
    fn scratch(&self, threads: usize) -> usize {
        threads * self.n * COLUMNS * self.dtype.wide().size()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(1, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_float!(self.dtype, T => self.solve::<T>(ins, outs, scratch, threads));
    }
}

impl Solve {
    fn solve<T: Float>(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let a = ins[0].slice::<T>();
        let out = outs[0].slice_mut::<T>();
        if out.is_empty() {
            return;
        }
        if !ins[1].is_in_place() {
            out.copy_from_slice(ins[1].slice::<T>());
        }
        let (n, size) = (self.n, self.n * self.systems);
        let panels = self.systems.div_ceil(COLUMNS);
        let total = out.len() / size * panels;
        let group = TASK.div_ceil(n * n * COLUMNS);
        let out = DisjointMut::new(out);
        threads.for_each_with_scratch(total.div_ceil(group), scratch::of(scratch), |task, scratch| {
            for panel in task * group..total.min((task + 1) * group) {
                let (matrix, first) = (panel / panels, panel % panels * COLUMNS);
                let panel = &mut scratch[..n * COLUMNS];
                let systems = first..self.systems.min(first + COLUMNS);
                self.pack(&out.skip(matrix * size), systems.clone(), panel);
                substitute(self.triangle(&a[matrix * n * n..][..n * n]), self.op.unit_diagonal, panel);
                self.unpack(panel, &out.skip(matrix * size), systems);
            }
        });
    }

    /// Whether the systems use the transposed matrix: `x a = b` is solved as `aᵀ xᵀ = bᵀ`.
    fn is_transposed(&self) -> bool {
        self.op.transpose_a == self.op.left_side
    }

    /// The unknown that a step solves for: the first one for a lower triangle, the last one for an upper triangle, and so on.
    fn unknown(&self, step: usize) -> usize {
        if self.op.lower != self.is_transposed() { step } else { self.n - 1 - step }
    }

    /// The matrix of the systems, with rows and columns in the order in which they are solved.
    fn triangle<'a, T>(&self, a: &'a [T]) -> Factors<'a, T> {
        let (n, first) = (self.n as isize, self.unknown(0));
        let (row, column) = if self.is_transposed() { (1, n) } else { (n, 1) };
        let sign = if first == 0 { 1 } else { -1 };
        Factors { elements: a, start: first * (self.n + 1), row: sign * row, column: sign * column }
    }

    /// Copies systems to a panel, whose other columns become zero.
    fn pack<T: Float>(&self, matrix: &DisjointMut<'_, T>, systems: Range<usize>, panel: &mut [T::Wide]) {
        for (step, row) in panel.chunks_exact_mut(COLUMNS).enumerate() {
            let i = self.unknown(step);
            row.fill(T::Wide::default());
            for (system, packed) in systems.clone().zip(row) {
                // SAFETY: each system belongs to one task.
                let x = unsafe { matrix.slice(self.element(i, system), 1) };
                *packed = x[0].widen();
            }
        }
    }

    /// Copies systems from a panel.
    fn unpack<T: Float>(&self, panel: &[T::Wide], matrix: &DisjointMut<'_, T>, systems: Range<usize>) {
        for (step, row) in panel.chunks_exact(COLUMNS).enumerate() {
            let i = self.unknown(step);
            for (system, &packed) in systems.clone().zip(row) {
                // SAFETY: each system belongs to one task.
                let x = unsafe { matrix.slice(self.element(i, system), 1) };
                x[0] = T::narrow(packed);
            }
        }
    }

    /// The index of an unknown of a system in its matrix.
    fn element(&self, unknown: usize, system: usize) -> usize {
        if self.op.left_side { unknown * self.systems + system } else { system * self.n + unknown }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Op};

    use super::*;
    use crate::test_support::{Stream, check, rough, wild};

    #[test]
    fn systems_of_every_dtype_are_solved_on_both_sides() {
        let mut stream = Stream::new(1);
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            for (batch, n, systems) in [(1, 1, 1), (1, 5, 3), (3, 4, 17), (2, 9, 1), (1, 37, 40)] {
                solved([batch, n, systems], |shape| rough(dtype, shape, &mut stream));
            }
            solved([2, 7, 18], |shape| wild(dtype, shape, shape[2] as u64));
        }
    }

    #[test]
    fn nothing_is_solved() {
        for sizes in [[0, 3, 2], [2, 0, 3], [2, 3, 0], [0, 0, 0]] {
            solved(sizes, |shape| wild(DType::F32, shape, 1));
        }
    }

    #[test]
    fn many_small_systems_are_shared_among_threads() {
        let mut stream = Stream::new(2);
        solved([900, 3, 2], |shape| rough(DType::F32, shape, &mut stream));
    }

    fn solved([batch, n, systems]: [usize; 3], mut array: impl FnMut(&[usize]) -> Array) {
        for options in 0..16 {
            let [left_side, lower, transpose_a, unit_diagonal] = [1, 2, 4, 8].map(|bit| options & bit != 0);
            let op = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
            let b = if left_side { [batch, n, systems] } else { [batch, systems, n] };
            let ins = [array(&[batch, n, n]), array(&b)];
            check(&Op::from(op), |ins, _| kernel(&op, ins), &ins);
        }
    }
}
