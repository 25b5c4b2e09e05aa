//! Printing operands.

use std::sync::Arc;

use remat_ir::{Aval, DType, DebugPrint, Element, Literal, with_dtype};

use crate::interface::{Kernel, Layout, Source, Target};
use crate::threads::Threads;

/// The kernel that prints operands of any layout. It formats them where they are; the texts are the only memory that it takes.
pub(crate) fn kernel(op: &Arc<DebugPrint>, ins: &[(DType, &Layout)]) -> Box<dyn Kernel> {
    let avals = ins.iter().map(|(dtype, layout)| Aval::new(*dtype, layout.shape.iter().copied())).collect();
    Box::new(Print { op: op.clone(), avals, layouts: ins.iter().map(|(_, layout)| Layout::clone(layout)).collect() })
}

struct Print {
    op: Arc<DebugPrint>,
    avals: Vec<Aval>,
    layouts: Vec<Layout>,
}

impl Kernel for Print {
    fn run(&self, ins: &[Source<'_>], _: &mut [Target<'_>], _: &mut [u8], _: &Threads) {
        self.op.print(&self.avals, &|operand, index| {
            let (source, layout) = (ins.get(operand)?, &self.layouts[operand]);
            element(source, position(layout, index))
        });
    }
}

/// The element at this position of a buffer.
fn element(source: &Source<'_>, position: usize) -> Option<Literal> {
    with_dtype!(source.dtype(), T => source.slice::<T>().get(position).map(|x| x.literal()))
}

/// The position in its buffer of the element at a row-major index.
fn position(layout: &Layout, mut index: usize) -> usize {
    let mut position = layout.offset;
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides).rev() {
        position = position.wrapping_add_signed((index % size.max(1)) as isize * stride);
        index /= size.max(1);
    }
    position
}

#[cfg(test)]
mod tests {
    use remat_ir::captured;

    use super::*;

    fn printed(op: &DebugPrint, numbers: &[f32], layout: &Layout) -> String {
        // SAFETY: numbers are bytes, and all bytes are numbers.
        #[allow(unsafe_code)]
        let source = unsafe { Source::new(DType::F32, numbers.align_to::<u8>().1) };
        let kernel = kernel(&Arc::new(op.clone()), &[(DType::F32, layout)]);
        captured(|| kernel.run(&[source], &mut [], &mut [], &Threads::SERIAL)).1
    }

    #[test]
    fn operands_of_any_layout_are_printed_where_they_are() {
        let matrix = Layout::contiguous(&[2, 3]);
        let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let op = DebugPrint::new("x {}");
        assert_eq!(printed(&op, &numbers, &matrix), "x [[0. 1. 2.]\n [3. 4. 5.]]\n");
        assert_eq!(printed(&op, &numbers, &matrix.permuted(&[1, 0])), "x [[0. 3.]\n [1. 4.]\n [2. 5.]]\n");
        assert_eq!(printed(&op, &numbers, &matrix.reversed(&[1]).sliced(&[1, 0], &[2, 3], &[1, 2])), "x [[5. 3.]]\n");
        assert_eq!(printed(&op, &[7.0], &Layout::splat(&[2])), "x [7. 7.]\n");
        assert_eq!(printed(&op, &[], &Layout::contiguous(&[0, 2])), "x []\n");
    }

    #[test]
    fn a_batch_prints_a_line_for_each_example() {
        let batch = |batch: &[usize], axes: &[usize]| DebugPrint {
            batch: batch.iter().copied().collect(),
            axes: vec![axes.iter().copied().collect()],
            ..DebugPrint::new("{}")
        };
        let matrix = Layout::contiguous(&[2, 2]);
        let numbers = [0.0, 1.0, 2.0, 3.0];
        assert_eq!(printed(&batch(&[2], &[0]), &numbers, &matrix), "[0. 1.]\n[2. 3.]\n");
        assert_eq!(printed(&batch(&[2, 2], &[0, 1]), &numbers, &matrix), "0.0\n1.0\n2.0\n3.0\n");
        assert_eq!(printed(&batch(&[3, 2], &[1]), &numbers, &matrix), "[0. 1.]\n[2. 3.]\n".repeat(3));
        assert_eq!(printed(&batch(&[0], &[]), &numbers, &matrix), "");
    }
}
