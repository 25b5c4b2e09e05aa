//! The output of a convolution, whose rows and columns may have any strides.

// Elements are written through pointers, since those of several threads interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::DType;

use super::row_segments::copy_function;
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{PANEL, Sums};
use crate::base::product::Accumulator;
use crate::base::strided::Rows;
use crate::kernels::matmul::{Output, Writer, narrow};

/// Products that are converted at a time before they are scattered.
const CHUNK: usize = 64;

/// A matrix of outputs, each at the sum of the offsets of its row and its column.
pub(super) struct StridedOutput<'a, A> {
    pub(super) out: DisjointMut<'a, u8>,
    pub(super) writer: &'a Writer<A>,
    pub(super) rows: &'a Rows<1>,
    pub(super) columns: &'a Rows<1>,
}

/// The stride of the rows, if sums need no conversion and can be written row by row.
pub(super) fn direct_stride(is_direct: bool, rows: &Rows<1>, columns: &Rows<1>) -> Option<usize> {
    let contiguous = columns.outer.len() <= 1 && (columns.len == 1 || columns.stride[0] == 1);
    (is_direct && contiguous && rows.outer.len() <= 1).then_some(rows.stride[0] as usize)
}

impl<A: Accumulator> Output<A> for StridedOutput<'_, A> {
    fn direct(&self) -> Option<(*mut A, usize)> {
        direct_stride(self.writer.is_direct(), self.rows, self.columns).map(|stride| (self.out.at(0).cast(), stride))
    }

    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        let across = columns.len();
        each_part([self.rows, self.columns], [rows, columns], |[i, j], shape, at, strides| {
            // SAFETY: the elements are of the block.
            unsafe { write_part(self.out, self.writer, shape, &sums[i * across + j..], across, at, strides) };
        });
    }
}

/// Calls `f` with the parts of a block that have constant strides: where the part begins in the block, its rows and columns, its offset in
/// the output, and its strides there.
fn each_part(
    [all_rows, all_columns]: [&Rows<1>; 2],
    [rows, columns]: [Range<usize>; 2],
    mut f: impl FnMut([usize; 2], [usize; 2], isize, [isize; 2]),
) {
    let (mut j, strides) = (0, [all_rows.stride[0], all_columns.stride[0]]);
    all_columns.each(columns, |[column], columns| {
        let mut i = 0;
        all_rows.each(rows.clone(), |[row], rows| {
            let at = row + rows.start as isize * strides[0] + column + columns.start as isize * strides[1];
            f([i, j], [rows.len(), columns.len()], at, strides);
            i += rows.len();
        });
        j += columns.len();
    });
}

/// A matrix of outputs like [`StridedOutput`], for the sums of a unit for narrow elements.
pub(super) struct StridedSums<'a> {
    pub(super) out: DisjointMut<'a, u8>,
    pub(super) dtype: DType,
    pub(super) rows: &'a Rows<1>,
    pub(super) columns: &'a Rows<1>,
}

impl narrow::Output for StridedSums<'_> {
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &mut Sums) {
        each_part([self.rows, self.columns], [rows, columns], |[i, j], shape, at, strides| {
            let to = self.out.at(at as usize * self.dtype.size());
            // SAFETY: the elements are of the block, which belongs to this task, as the caller promises.
            unsafe { narrow::write_sums(self.dtype, &sums[i * PANEL + j..], shape, to, strides) };
        });
    }
}

/// Writes rows of sums, `across` apart, to an offset, with these strides of rows and columns.
///
/// # Safety
/// The elements are of the output, and no other task has access to them.
pub(super) unsafe fn write_part<A: Accumulator>(
    out: DisjointMut<'_, u8>,
    writer: &Writer<A>,
    shape: [usize; 2],
    sums: &[A],
    across: usize,
    at: isize,
    strides: [isize; 2],
) {
    let [rows, columns] = shape;
    if writer.is_direct() {
        assert!((rows - 1) * across + columns <= sums.len());
        let to = out.at(0).cast::<A>().wrapping_offset(at);
        let (mut shape, mut from_strides, mut strides) = (shape, [across as isize, 1], strides);
        if strides[0] == 1 {
            (shape, from_strides, strides) = ([columns, rows], [1, across as isize], [strides[1], 1]);
        }
        // SAFETY: the sums have this length (checked), and the elements are as the caller promises.
        return unsafe {
            copy_function::<A>([from_strides[1], strides[1]])(shape, sums.as_ptr(), from_strides, to, strides)
        };
    }
    for (i, sums) in sums.chunks(across).take(rows).enumerate() {
        // SAFETY: as the caller promises.
        unsafe { write_row(out, writer, &sums[..columns], at + i as isize * strides[0], strides[1]) };
    }
}

/// Writes outputs that are `stride` apart, the first at an offset.
///
/// # Safety
/// As [`write_part`].
unsafe fn write_row<A: Accumulator>(
    out: DisjointMut<'_, u8>,
    writer: &Writer<A>,
    sums: &[A],
    at: isize,
    stride: isize,
) {
    let size = writer.dtype.size();
    let element = |i: usize| out.at(((at + i as isize * stride) as usize) * size);
    if stride == 1 || sums.len() == 1 {
        // SAFETY: as the caller promises.
        return unsafe { writer.write(sums, element(0)) };
    }
    for (i, sums) in sums.chunks(CHUNK).enumerate() {
        let mut converted = [0u64; CHUNK];
        let from = converted.as_mut_ptr().cast::<u8>();
        // SAFETY: the chunk fits this many elements of any dtype; each element is in the output.
        unsafe {
            writer.write(sums, from);
            for j in 0..sums.len() {
                let to = element(i * CHUNK + j);
                match size {
                    1 => to.write(from.add(j).read()),
                    2 => to.cast::<u16>().write(from.cast::<u16>().add(j).read()),
                    4 => to.cast::<u32>().write(from.cast::<u32>().add(j).read()),
                    _ => to.cast::<u64>().write(from.cast::<u64>().add(j).read()),
                }
            }
        }
    }
}
