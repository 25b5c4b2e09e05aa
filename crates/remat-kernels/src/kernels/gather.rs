//! Gathers. The result is written row by row, each row from the slice or slices that it reads.

use remat_ir::{Aval, DType, Element, Gather, Literal};

use crate::base::copy::copy_row;
use crate::base::index::{BLOCK, Numbers, Slices, Starts};
use crate::base::strided::{Rows, StridedIter, TASK_BYTES};
use crate::interface::layout::{Strides, row_major};
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel of a gather from a row-major operand with row-major indices.
pub(crate) fn kernel(op: &Gather, ins: &[Aval], outs: &[Aval]) -> Box<dyn Kernel> {
    let (x, indices, out) = (&ins[0], &ins[1], &outs[0]);
    let numbers = Numbers {
        sizes: &op.slice_sizes,
        index_map: &op.start_index_map,
        operand_batching: &op.operand_batching_dims,
        index_batching: &op.start_indices_batching_dims,
        mode: op.mode,
    };
    let batch = &indices.shape[..indices.rank() - 1];
    let number = row_major(batch);
    let slices = Slices::new(x, indices, &numbers, &number);
    // Along each dimension of the result either the index vector or the position in the slice changes.
    let kept = |d: &usize| !op.collapsed_slice_dims.contains(d) && !op.operand_batching_dims.contains(d);
    let x_strides = row_major(&x.shape);
    let mut window = (0..x.rank()).filter(kept).map(|d| x_strides[d]);
    let mut vectors = number.iter().copied();
    let (mut vector, mut position) = (Strides::from_elem(0, out.rank()), Strides::from_elem(0, out.rank()));
    for d in 0..out.rank() {
        if op.offset_dims.contains(&d) {
            position[d] = window.next().unwrap_or(0);
        } else {
            vector[d] = vectors.next().unwrap_or(0);
        }
    }
    let rows = StridedIter::new(&out.shape, [&vector, &position]).into();
    Box::new(Gathered { dtype: x.dtype, fill: op.fill_value, slices, rows })
}

struct Gathered {
    dtype: DType,
    fill: Literal,
    slices: Slices,
    /// The rows of the result. The strides count index vectors, and elements of the operand.
    rows: Rows<2>,
}

impl Kernel for Gathered {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        with_word!(self.dtype, W => {
            let (from, to) = (ins[0].words::<W>(), outs[0].words_mut::<W>());
            let fill = W::from_literal(Literal::from_bits(W::DTYPE, self.fill.bits())).unwrap_or_default();
            let task = TASK_BYTES / size_of::<W>();
            threads.for_each_chunk(to, task, |i, part| self.part(from, &ins[1], fill, i * task, part));
        });
    }
}

impl Gathered {
    /// Computes the elements of the result from `first` on.
    fn part<W: Element>(&self, from: &[W], indices: &Source<'_>, fill: W, first: usize, part: &mut [W]) {
        let mut starts = Starts::new();
        let mut at = 0;
        let [vector_stride, stride] = self.rows.stride;
        self.rows.each(first..first + part.len(), |[vector, position], range| {
            let to = &mut part[at..at + range.len()];
            at += range.len();
            let vector = vector as usize + range.start * vector_stride as usize;
            let position = position + range.start as isize * stride;
            if vector_stride == 0 {
                // The whole row comes from one slice.
                match starts.of(&self.slices, indices, vector) {
                    ..0 => to.fill(fill),
                    start => copy_row(from, start + position, stride, to),
                }
                return;
            }
            // Each element comes from the next slice.
            for (i, to) in to.chunks_mut(BLOCK).enumerate() {
                let (starts, _) = starts.find(&self.slices, indices, vector + i * BLOCK, to.len());
                for (to, &start) in to.iter_mut().zip(starts) {
                    *to = if start < 0 { fill } else { from[(start + position) as usize] };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, IndexMode, Op, Shape};

    use super::*;
    use crate::base::index::samples::{any_gather, indices};
    use crate::test_support::{Stream, check, wild};

    #[test]
    fn rows_of_every_dtype_are_gathered() {
        for dtype in DType::ALL {
            for mode in [IndexMode::Clip, IndexMode::FillOrDrop] {
                let op = Gather {
                    offset_dims: (&[1][..]).into(),
                    collapsed_slice_dims: (&[0][..]).into(),
                    start_index_map: (&[0][..]).into(),
                    operand_batching_dims: Shape::new(),
                    start_indices_batching_dims: Shape::new(),
                    slice_sizes: (&[1, 9][..]).into(),
                    mode,
                    fill_value: Literal::from_f64(dtype, 3.0),
                };
                gathered(&op, wild(dtype, &[20, 9], 1), indices(DType::I32, &[300, 1], 20, 2));
            }
        }
    }

    #[test]
    fn elements_are_gathered_by_indices_of_every_dtype() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            for mode in [IndexMode::Clip, IndexMode::FillOrDrop] {
                let op = Gather {
                    offset_dims: Shape::new(),
                    collapsed_slice_dims: (&[0][..]).into(),
                    start_index_map: (&[0][..]).into(),
                    operand_batching_dims: Shape::new(),
                    start_indices_batching_dims: Shape::new(),
                    slice_sizes: (&[1][..]).into(),
                    mode,
                    fill_value: Literal::from_f64(DType::F32, -1.0),
                };
                gathered(&op, wild(DType::F32, &[100], 1), indices(dtype, &[7, 100, 1], 100, 2));
                gathered(&op, wild(DType::F32, &[100], 1), wild(dtype, &[500, 1], 2));
            }
        }
    }

    #[test]
    fn dimension_numbers_of_every_kind_are_understood() {
        let mut stream = Stream::new(4);
        for round in 0..600 {
            let (op, x, indices) = any_gather(&mut stream, DType::ALL[round % 13], 5);
            gathered(&op, x, indices);
        }
    }

    #[test]
    fn large_gathers_are_cut_into_many_tasks() {
        let mut stream = Stream::new(5);
        for _ in 0..6 {
            let (op, x, indices) = any_gather(&mut stream, DType::F32, 40);
            gathered(&op, x, indices);
        }
        let embedding = Gather {
            offset_dims: (&[1][..]).into(),
            collapsed_slice_dims: (&[0][..]).into(),
            start_index_map: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: (&[1, 100][..]).into(),
            mode: IndexMode::FillOrDrop,
            fill_value: Literal::from_f64(DType::F32, f64::NAN),
        };
        gathered(&embedding, wild(DType::F32, &[50, 100], 1), indices(DType::I32, &[3000, 1], 50, 2));
        let columns = Gather { offset_dims: (&[0][..]).into(), slice_sizes: (&[1, 100][..]).into(), ..embedding };
        gathered(&columns, wild(DType::F32, &[50, 100], 1), indices(DType::I32, &[3000, 1], 50, 2));
    }

    fn gathered(op: &Gather, x: Array, indices: Array) {
        check(&Op::from(op.clone()), |ins, outs| kernel(op, ins, outs), &[x, indices]);
    }
}
