//! Products of blocks: matrices small enough to stay in the caches while they are multiplied.
//!
//! *Micro-kernels* ([`micro`]) do the arithmetic: they keep a tile of the result in registers while the operands stream by. They copy and
//! allocate nothing. [`product`] multiplies small matrices in place. Cutting large ones into blocks, and packing elements of other dtypes
//! and layouts, is up to the caller (`kernels::matmul`).

// Micro-kernels read and write through pointers, since the blocks of several threads interleave.
#![allow(unsafe_code)]

mod ceiling;
pub(crate) mod micro;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
#[cfg(test)]
mod tests;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
use neon as floats;
#[cfg(not(target_arch = "aarch64"))]
use plain as floats;
use remat_ir::bf16;

pub use ceiling::{ceiling, read_rate};
pub(crate) use micro::{ColumnVector, MOST_VECTORS, MicroKernel, Prefetch, ROWS_PER_POINTER, Segments};
pub(crate) use tile::{CALLS_PER_PANEL, POSITIONS_PER_LINE};

use crate::number::{Number, Real, Scalar};
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::Level;

/// The types in which products are computed and summed: f32, f64, or i64 modulo 2^64.
pub(crate) trait Accumulator: Number<Wide = Self> + Scalar {
    /// The best micro-kernel for a CPU with these instructions.
    fn micro_kernel(level: Level) -> &'static MicroKernel<Self>;

    /// `self + a * b`, fused where every CPU of the architecture can.
    fn multiply_add(self, a: Self, b: Self) -> Self;

    /// The value of a bf16; truncated for integers.
    fn from_bf16(x: bf16) -> Self;
}

/// A float type of elements, computed in a type that has products.
pub(crate) trait Float: Number<Wide: Real + Accumulator> {}

impl<T: Number<Wide: Real + Accumulator>> Float for T {}

/// A left operand: the element in row `i` and column `j` is at index `i * row_stride + j * column_stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

/// A right operand: the elements of a row are neighbours, and rows are `row_stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) row_stride: usize,
}

/// A result: the elements of a row are neighbours, and rows are `row_stride` elements apart.
#[derive(Debug)]
pub(crate) struct Out<'a, T> {
    pub(crate) elements: &'a mut [T],
    pub(crate) row_stride: usize,
    /// Whether the product is added to what is there.
    pub(crate) adds: bool,
}

impl<T> Left<'_, T> {
    /// The first element and the strides, checked for this many rows and columns.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub(crate) fn checked(&self, rows: usize, columns: usize) -> (*const T, [usize; 2]) {
        let is_empty = rows == 0 || columns == 0;
        assert!(is_empty || (rows - 1) * self.row_stride + (columns - 1) * self.column_stride < self.elements.len());
        (self.elements.as_ptr(), [self.row_stride, self.column_stride])
    }
}

impl<T> Right<'_, T> {
    /// As [`Left::checked`].
    ///
    /// # Panics
    /// If there are fewer rows or columns.
    #[inline]
    pub(crate) fn checked(&self, rows: usize, columns: usize) -> (*const T, usize) {
        assert!(rows == 0 || columns == 0 || (rows - 1) * self.row_stride + columns <= self.elements.len());
        (self.elements.as_ptr(), self.row_stride)
    }
}

/// Multiplies `rows` by `depth` and `depth` by `columns` elements, where `size` is `[rows, columns, depth]`. Each sum adds along the
/// contracted axis in order, whatever the other sizes.
///
/// # Panics
/// If an operand is too short for `size`.
pub(crate) fn product<T: Accumulator>(size: [usize; 3], left: Left<'_, T>, right: Right<'_, T>, out: Out<'_, T>) {
    let [rows, columns, depth] = size;
    assert!(rows == 0 || columns == 0 || (rows - 1) * out.row_stride + columns <= out.elements.len());
    let (left, right, adds) = (left.checked(rows, depth), right.checked(depth, columns), out.adds);
    if depth == 0 {
        if !adds {
            out.elements.chunks_mut(out.row_stride.max(1)).take(rows).for_each(|row| row[..columns].fill(T::default()));
        }
        return;
    }
    let kernel = T::micro_kernel(Level::best());
    let (height, width) = (kernel.height(rows), kernel.columns);
    let ((left, [row, column]), (right, right_row), to) = (left, right, out.elements.as_mut_ptr());
    for j in (0..columns).step_by(width) {
        for i in (0..rows).step_by(height) {
            let size = [height.min(rows - i), width.min(columns - j), depth];
            // SAFETY: the operands and the result have these rows and columns (checked), and the result is borrowed mutably; the
            // kernel is one for this CPU.
            unsafe {
                let (left, right) = ((left.add(i * row), [row, column]), (right.add(j), right_row));
                (kernel.strided)(size, left, right, (to.add(i * out.row_stride + j), out.row_stride), adds);
            }
        }
    }
}

macro_rules! accumulator {
    ($type:ident: $plain:path, $avx2:path, $avx512:path; |$sum:ident, $a:ident, $b:ident| $multiply_add:expr, $from_bf16:expr) => {
        impl Accumulator for $type {
            #[inline]
            fn micro_kernel(level: Level) -> &'static MicroKernel<Self> {
                match level.instructions() {
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512 => &$avx512,
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2 => &$avx2,
                    _ => &$plain,
                }
            }

            #[inline(always)]
            fn multiply_add(self, $a: Self, $b: Self) -> Self {
                let $sum = self;
                $multiply_add
            }

            #[inline(always)]
            fn from_bf16(x: bf16) -> Self {
                $from_bf16(x)
            }
        }
    };
}

accumulator! { f32: floats::F32, x86::AVX2_F32, x86::AVX512_F32; |sum, a, b| multiply_add(sum, a, b), |x: bf16| x.widen() }
accumulator! { f64: floats::F64, x86::AVX2_F64, x86::AVX512_F64; |sum, a, b| multiply_add(sum, a, b), |x: bf16| x.widen().into() }
accumulator! {
    i64: plain::I64, plain::I64_AVX2, plain::I64_AVX512; |sum, a, b| sum.wrapping_add(a.wrapping_mul(b)), |x: bf16| x.widen() as i64
}

/// `sum + a * b`, rounded once where every CPU of the architecture can.
#[inline(always)]
fn multiply_add<T: Real>(sum: T, a: T, b: T) -> T {
    if cfg!(target_arch = "aarch64") { a.fused(b, sum) } else { sum + a * b }
}
