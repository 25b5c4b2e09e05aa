//! Products of blocks: matrices small enough to lie in the caches while they are multiplied.
//!
//! The arithmetic is that of the crate `nano-gemm`, which keeps a few rows and columns of the result in registers while the
//! operands pass by, and which copies and allocates nothing. Cutting large matrices into blocks, and packing elements of
//! other dtypes and layouts, is up to the caller.

// The innermost loops read and write through pointers, since the blocks of several threads lie between each other.
#![allow(unsafe_code)]

use nano_gemm::Plan;
use remat_ir::bf16;

use crate::number::{Number, Real, Scalar};
use crate::simd::{Level, multiversion};

/// What products are computed and summed in: f32, f64, or i64 modulo 2^64.
pub(crate) trait Accumulator: Number<Wide = Self> + Scalar {
    /// Multiplies as [`multiply`] does, whose conditions are the same, for sizes that are not zero.
    unsafe fn multiply(
        size: [usize; 3],
        left: (*const Self, [isize; 2]),
        right: (*const Self, isize),
        out: (*mut Self, isize),
        adds: bool,
    );

    /// `self + a * b`, fused where every CPU of the architecture can.
    fn multiply_add(self, a: Self, b: Self) -> Self;

    /// The number that a bf16 is; integers are truncated.
    fn from_bf16(x: bf16) -> Self;
}

/// An element type of floats, which are computed in one that has products.
pub(crate) trait Float: Number<Wide: Real + Accumulator> {}

impl<T: Number<Wide: Real + Accumulator>> Float for T {}

/// A left operand: the element in row `i` and column `j` is number `i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// A right operand: the elements of a row are neighbours, and rows are `row` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) row: usize,
}

/// A result: the elements of a row are neighbours, and rows are `row` elements apart.
#[derive(Debug)]
pub(crate) struct Out<'a, T> {
    pub(crate) elements: &'a mut [T],
    pub(crate) row: usize,
    /// Whether the product is added to what is there.
    pub(crate) adds: bool,
}

/// Multiplies `m` by `k` and `k` by `n` elements, where `size` is `[m, n, k]`. Each sum runs over the contracted dimension in
/// order, whatever the other sizes are.
///
/// # Panics
/// If an operand is shorter than the size says.
pub(crate) fn product<T: Accumulator>(size: [usize; 3], left: Left<'_, T>, right: Right<'_, T>, out: Out<'_, T>) {
    let [m, n, _] = size;
    assert!(m == 0 || n == 0 || (m - 1) * out.row + n <= out.elements.len());
    // SAFETY: the result has these rows and columns (checked), and is borrowed mutably.
    unsafe { product_at(size, left, right, (out.elements.as_mut_ptr(), out.row), out.adds) }
}

/// As [`product`], with the first element of the result and the distance between its rows.
///
/// # Safety
/// `out` is valid for writing elements of as many rows and columns, and for reading if `adds`, and no other thread has access to
/// them.
///
/// # Panics
/// If an operand is shorter than the size says.
pub(crate) unsafe fn product_at<T: Accumulator>(
    size: [usize; 3],
    left: Left<'_, T>,
    right: Right<'_, T>,
    (out, out_row): (*mut T, usize),
    adds: bool,
) {
    let [m, n, k] = size;
    assert!(m == 0 || k == 0 || (m - 1) * left.row + (k - 1) * left.column < left.elements.len());
    assert!(n == 0 || k == 0 || (k - 1) * right.row + n <= right.elements.len());
    // SAFETY: the operands have these rows and columns (checked); the result has them as the caller promises.
    unsafe {
        let left = (left.elements.as_ptr(), [left.row as isize, left.column as isize]);
        let right = (right.elements.as_ptr(), right.row as isize);
        multiply(size, left, right, (out, out_row as isize), adds);
    }
}

/// As [`product`], with the first element of each operand and the distances between its elements: those of rows and of columns
/// for the left one, those of rows for the others.
///
/// # Safety
/// `left` and `right` are valid for reading, `out` for writing elements of as many rows and columns, and for reading if `adds`.
/// No other thread writes those of `left` and `right`, or has access to those of `out`.
pub(crate) unsafe fn multiply<T: Accumulator>(
    size: [usize; 3],
    left: (*const T, [isize; 2]),
    right: (*const T, isize),
    (out, out_row): (*mut T, isize),
    adds: bool,
) {
    let [m, n, k] = size;
    if m == 0 || n == 0 {
        return;
    }
    if k > 0 {
        // SAFETY: as the caller promises.
        return unsafe { T::multiply(size, left, right, (out, out_row), adds) };
    }
    if !adds {
        for i in 0..m {
            // SAFETY: row `i` of the result has `n` elements.
            unsafe { std::slice::from_raw_parts_mut(out.offset(i as isize * out_row), n) }.fill(T::default());
        }
    }
}

macro_rules! float {
    ($type:ident, $plan:path) => {
        impl Accumulator for $type {
            #[inline]
            unsafe fn multiply(
                [m, n, k]: [usize; 3],
                (left, [left_row, left_column]): (*const Self, [isize; 2]),
                (right, right_row): (*const Self, isize),
                (out, out_row): (*mut Self, isize),
                adds: bool,
            ) {
                // The crate wants the columns of its left operand and of its result to be neighbours in memory, and ours are
                // rows: it computes the transposed product. What it calls `alpha` is the factor of what is there.
                let (alpha, beta) = (if adds { 1.0 } else { 0.0 }, 1.0);
                let plan: Plan<$type> = $plan(n, m, k);
                // SAFETY: as the caller promises; the plan is for these sizes and for neighbours in the columns.
                unsafe {
                    plan.execute_unchecked(
                        n,
                        m,
                        k,
                        out,
                        1,
                        out_row,
                        right,
                        1,
                        right_row,
                        left,
                        left_column,
                        left_row,
                        alpha,
                        beta,
                        false,
                        false,
                    );
                }
            }

            #[inline(always)]
            fn multiply_add(self, a: Self, b: Self) -> Self {
                if cfg!(target_arch = "aarch64") { a.mul_add(b, self) } else { self + a * b }
            }
            #[inline(always)]
            fn from_bf16(x: bf16) -> Self {
                x.widen().into()
            }
        }
    };
}

float!(f32, Plan::new_colmajor_lhs_and_dst_f32);
float!(f64, Plan::new_colmajor_lhs_and_dst_f64);

impl Accumulator for i64 {
    #[inline]
    unsafe fn multiply(
        size: [usize; 3],
        left: (*const Self, [isize; 2]),
        right: (*const Self, isize),
        out: (*mut Self, isize),
        adds: bool,
    ) {
        // SAFETY: as the caller promises.
        unsafe { integers(Level::best())(size, left, right, out, adds) }
    }

    #[inline(always)]
    fn multiply_add(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
    #[inline(always)]
    fn from_bf16(x: bf16) -> Self {
        x.widen() as i64
    }
}

multiversion! {
    /// The function that multiplies integers, row by row. It may be called as [`multiply`] may.
    fn integers(level: Level) -> unsafe fn(
        size: [usize; 3],
        left: (*const i64, [isize; 2]),
        right: (*const i64, isize),
        out: (*mut i64, isize),
        adds: bool,
    ) {
        let [m, n, k] = size;
        let (left, [left_row, left_column]) = left;
        for i in 0..m as isize {
            // SAFETY, of all: row `i` is one of the result's and of the left operand's, `l` is one of the right operand's.
            let out = unsafe { std::slice::from_raw_parts_mut(out.0.offset(i * out.1), n) };
            if !adds {
                out.fill(0);
            }
            for l in 0..k as isize {
                let (x, right) = unsafe {
                    let x = *left.offset(i * left_row + l * left_column);
                    (x, std::slice::from_raw_parts(right.0.offset(l * right.1), n))
                };
                for (out, &y) in out.iter_mut().zip(right) {
                    *out = out.wrapping_add(x.wrapping_mul(y));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers, whose products and sums are exact.
    fn values<T>(len: usize, seed: usize, convert: fn(i8) -> T) -> Vec<T> {
        (0..len).map(|i| convert(((i * 7 + seed * 5) % 11) as i8 - 5)).collect()
    }

    fn check<T: Accumulator>(convert: fn(i8) -> T) {
        for m in [0, 1, 2, 3, 5, 8, 64] {
            for (n, k) in [(0, 3), (1, 1), (2, 7), (3, 2), (7, 20), (16, 0), (16, 1), (33, 5), (64, 64)] {
                for (row, column) in [(k + 3, 1), (1, m + 2)] {
                    let left = values((m * row).max(k * column) + 1, 1, convert);
                    let (right_row, out_row) = (n + 2, n + 5);
                    let right = values(k * right_row, 2, convert);
                    for adds in [false, true] {
                        let before = values(m * out_row, 3, convert);
                        let mut out = before.clone();
                        product(
                            [m, n, k],
                            Left { elements: &left, row, column },
                            Right { elements: &right, row: right_row },
                            Out { elements: &mut out, row: out_row, adds },
                        );
                        let mut expected = before;
                        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                            let out = &mut expected[i * out_row + j];
                            let start = if adds { *out } else { T::default() };
                            *out = (0..k).fold(start, |sum, l| {
                                sum.plus(left[i * row + l * column].times(right[l * right_row + j]))
                            });
                        }
                        assert_eq!(out, expected, "{m} by {n} of {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_are_sums_of_products() {
        check(f32::from);
        check(f64::from);
        check(i64::from);
    }

    #[test]
    fn what_lies_in_the_result_does_not_matter_unless_added_to() {
        let (left, right) = ([1.0f32, 2.0], [3.0f32; 34]);
        let mut out = [f32::NAN; 17];
        let (left, right) = (Left { elements: &left, row: 2, column: 1 }, Right { elements: &right, row: 17 });
        product([1, 17, 2], left, right, Out { elements: &mut out, row: 17, adds: false });
        assert_eq!(out, [9.0; 17]);
        product([1, 17, 2], left, right, Out { elements: &mut out, row: 17, adds: true });
        assert_eq!(out, [18.0; 17]);
    }

    #[test]
    fn a_column_is_the_same_in_any_block() {
        let wave = |len: usize, step: f32| (0..len).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let (left, right) = (wave(9 * 300, 0.37), wave(300 * 50, 0.71));
        let run = |rows: usize, first: usize, columns: usize| {
            let mut out = vec![0.0; rows * columns];
            let left = Left { elements: &left, row: 300, column: 1 };
            let right = Right { elements: &right[first..], row: 50 };
            product([rows, columns, 300], left, right, Out { elements: &mut out, row: columns, adds: false });
            out
        };
        let whole = run(9, 0, 50);
        for (first, columns) in [(0, 1), (3, 2), (7, 3), (1, 9), (16, 33)] {
            for (i, row) in run(4, first, columns).chunks(columns).enumerate() {
                assert_eq!(row, &whole[i * 50 + first..][..columns]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "right.elements.len()")]
    fn operands_are_as_long_as_their_sizes() {
        let left = Left { elements: &[1.0f32; 4], row: 2, column: 1 };
        let right = Right { elements: &[1.0; 31], row: 16 };
        product([2, 16, 2], left, right, Out { elements: &mut [0.0; 32], row: 16, adds: false });
    }
}
