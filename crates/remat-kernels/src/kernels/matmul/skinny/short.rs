//! The loops of products with few rows along a short contracted axis: a sum stays in registers from its first position to its last.
//!
//! The lanes of a sum, and the order in which they are added up, are those of [`lanes`](super::lanes). Its loops keep lanes in memory
//! between steps of a long axis; along a short axis that would take longer than the products. Here 16 sums are computed at a time, of some
//! rows of both operands, and their lanes are added up together. Operands that are not read row by row are transposed first.

// Elements are read through pointers, since their dtype is known as a function.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers are unrolled if they count")]

use remat_ir::{DType, Element};

use super::arithmetic::{Factor, Load};
use super::lanes::LANES;
use crate::kernels::matmul::matrix::Location;
use crate::number::Number;
use crate::simd::{Instructions, Level, prefetch};

/// Sums that are computed at a time: one for each lane.
const TILE: usize = LANES;

/// Rows of a part of a matrix, or of a skinny operand: the first element, the stride of rows, and their number.
#[derive(Clone, Copy)]
pub(in crate::kernels::matmul) struct Run<T> {
    pub(super) first: *const T,
    pub(super) stride: usize,
    pub(super) rows: usize,
}

/// Where sums are written: the first sum, and the strides along the rows of the skinny operand and of the matrix.
#[derive(Clone, Copy)]
pub(in crate::kernels::matmul) struct To<F> {
    pub(super) first: *mut F,
    pub(super) strides: [usize; 2],
}

/// Writes the sums of `depth` products for each row of a skinny operand and each row of a matrix, whose elements are neighbours along the
/// contracted axis.
///
/// # Safety
/// The rows are valid for reading `depth` elements, those of the matrix of the dtype of the function, and the sums for writing. The CPU has
/// the instructions.
pub(in crate::kernels::matmul) type DotRowsFn<F> = unsafe fn(x: Run<F>, matrix: Run<u8>, depth: usize, to: To<F>);

/// As [`DotRowsFn`], for a part of a matrix with this many rows and any strides.
///
/// # Safety
/// As there.
pub(in crate::kernels::matmul) type DotFewFn<F> =
    unsafe fn(x: Run<F>, matrix: Location, rows: usize, depth: usize, to: To<F>);

/// The function for few multiplications, with the instructions of a level.
pub(super) fn dot_few<D: Load>(level: Level) -> DotFewFn<D::Number> {
    match level.instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => x86::avx512::few::<D>,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => x86::avx2::few::<D>,
        Instructions::Plain => few_at::<D, false>,
    }
}

/// See [`DotFewFn`]. The lanes of a sum, and the order in which they are added up, are those of [`rows_at`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn few_at<D: Load, const FUSED: bool>(
    x: Run<D::Number>,
    matrix: Location,
    rows: usize,
    depth: usize,
    to: To<D::Number>,
) {
    let are_neighbours = matrix.strides[0] == 1;
    for i in 0..x.rows {
        let numbers = x.first.wrapping_add(i * x.stride);
        let mut n = 0;
        while n < rows {
            let row = matrix.first.cast::<D>().wrapping_add(n * matrix.strides[0]);
            let to = (to.first.wrapping_add(i * to.strides[0] + n * to.strides[1]), to.strides[1]);
            // SAFETY: these are elements of rows of both operands, and the sums are valid for writing.
            n += unsafe {
                match rows - n {
                    8.. if are_neighbours => sums_of::<D, 8, FUSED>(numbers, row, matrix.strides[1], depth, to),
                    4.. if are_neighbours => sums_of::<D, 4, FUSED>(numbers, row, matrix.strides[1], depth, to),
                    _ => sums_of::<D, 1, FUSED>(numbers, row, matrix.strides[1], depth, to),
                }
            };
        }
    }
}

/// Writes the sums of `N` rows of a matrix whose elements at one position are neighbours, `stride` elements from those at the next one: the
/// first sum at a pointer and the others at a stride. Returns `N`.
///
/// # Safety
/// The rows are valid for reading `depth` elements, and the sums for writing.
#[inline(always)]
unsafe fn sums_of<D: Load, const N: usize, const FUSED: bool>(
    numbers: *const D::Number,
    first: *const D,
    stride: usize,
    depth: usize,
    (to, between): (*mut D::Number, usize),
) -> usize {
    let mut lanes = [[D::Number::default(); N]; LANES];
    for l in 0..depth {
        // SAFETY: these are elements of rows of both operands.
        let (x, elements) = unsafe { (*numbers.add(l), first.add(l * stride).cast::<[D; N]>().read()) };
        let lane = &mut lanes[l % LANES];
        for n in 0..N {
            lane[n] = lane[n].multiply_add_at::<FUSED>(elements[n].load(), x);
        }
    }
    // As `add_lanes`, of all rows at a time.
    let mut half = LANES;
    while half > 1 {
        half /= 2;
        for i in 0..half {
            for n in 0..N {
                lanes[i][n] = lanes[i][n].plus(lanes[i + half][n]);
            }
        }
    }
    for n in 0..N {
        // Zero is added, as in `tile_at`.
        let sum = D::Number::default().plus(lanes[0][n]);
        // SAFETY: as the caller promises.
        unsafe { to.add(n * between).write(sum) };
    }
    N
}

/// The function for rows of elements, with the instructions of a level.
pub(super) fn dot_rows<D: Load>(level: Level) -> DotRowsFn<D::Number> {
    match level.instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => x86::avx512::rows::<D>,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => x86::avx2::rows::<D>,
        Instructions::Plain => rows_at::<D, 16, false>,
    }
}

/// Writes the dot products of each of `count` rows of a matrix and each of `skinny` rows, of `depth` numbers (f32 or f64) without gaps. That
/// of rows `j` and `i` is written to number `j * stride + i`.
///
/// # Panics
/// If there are fewer numbers, or they are not f32 or f64.
pub(in crate::kernels) fn dots<T: Element>(
    matrix: &[T],
    x: &[T],
    [count, skinny, depth]: [usize; 3],
    to: &mut [T],
    stride: usize,
) {
    if count == 0 || skinny == 0 {
        return;
    }
    assert!(count * depth <= matrix.len() && skinny * depth <= x.len() && (count - 1) * stride + skinny <= to.len());
    macro_rules! run {
        ($type:ty) => {{
            let x = Run { first: x.as_ptr().cast::<$type>(), stride: depth, rows: skinny };
            let matrix = Run { first: matrix.as_ptr().cast(), stride: depth, rows: count };
            let to = To { first: to.as_mut_ptr().cast(), strides: [1, stride] };
            // SAFETY: the slices are long enough (checked), the numbers have this dtype, and the function is for this CPU.
            unsafe { dot_rows::<$type>(Level::best())(x, matrix, depth, to) }
        }};
    }
    match T::DTYPE {
        DType::F32 => run!(f32),
        DType::F64 => run!(f64),
        dtype => panic!("{dtype} is no such float"),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    macro_rules! level {
        ($name:ident $vector:literal $features:literal) => {
            pub(super) mod $name {
                use super::super::super::arithmetic::Load;
                use super::super::{Location, Run, To, few_at, rows_at};

                /// As [`few_at`]; the CPU has the instructions.
                #[target_feature(enable = $features)]
                pub(in super::super) unsafe fn few<D: Load>(
                    x: Run<D::Number>,
                    matrix: Location,
                    rows: usize,
                    depth: usize,
                    to: To<D::Number>,
                ) {
                    // SAFETY: as the caller promises.
                    unsafe { few_at::<D, true>(x, matrix, rows, depth, to) }
                }

                /// As [`rows_at`]; the CPU has the instructions.
                #[target_feature(enable = $features)]
                pub(in super::super) unsafe fn rows<D: Load>(
                    x: Run<D::Number>,
                    matrix: Run<u8>,
                    depth: usize,
                    to: To<D::Number>,
                ) {
                    // SAFETY: as the caller promises.
                    unsafe { rows_at::<D, $vector, true>(x, matrix, depth, to) }
                }
            }
        };
    }

    level! { avx512 64 "avx2,fma,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl" }
    level! { avx2 32 "avx2,fma,f16c" }
}

/// How many rows of the skinny operand are taken at a time, if this many are left. Where there are fewer, the last one is taken again.
fn group(rows: usize) -> usize {
    match rows {
        1 => 1,
        2 => 2,
        _ => 4,
    }
}

/// Rows of the matrix whose lanes are in registers at a time, for a group of this many rows of the skinny operand.
const fn together<F>(group: usize, vector: usize) -> usize {
    let registers = if vector == 64 { 16 } else { 8 };
    let rows = registers * vector / (group * LANES * size_of::<F>());
    if rows == 0 { 1 } else { rows }
}

/// See [`DotRowsFn`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn rows_at<D: Load, const VECTOR: usize, const FUSED: bool>(
    x: Run<D::Number>,
    matrix: Run<u8>,
    depth: usize,
    to: To<D::Number>,
) {
    let matrix = Run { first: matrix.first.cast::<D>(), stride: matrix.stride, rows: matrix.rows };
    for j in (0..matrix.rows).step_by(TILE) {
        let end = matrix.rows.min(j + TILE);
        let mut i = 0;
        while i < x.rows {
            let m = group(x.rows - i);
            for j in (j..end).step_by(TILE / m) {
                // SAFETY: these are rows of both operands.
                unsafe {
                    match m {
                        1 => tile_at::<D, 1, 16, VECTOR, FUSED>(x, matrix, [i, j], depth, to),
                        2 => tile_at::<D, 2, 8, VECTOR, FUSED>(x, matrix, [i, j], depth, to),
                        _ => tile_at::<D, 4, 4, VECTOR, FUSED>(x, matrix, [i, j], depth, to),
                    }
                }
            }
            i += m;
        }
    }
}

/// Writes the sums of `M` rows of the skinny operand and `N` of the matrix from some rows on, or of fewer where the operands end.
///
/// # Safety
/// As of [`rows_at`].
#[inline(always)]
unsafe fn tile_at<D: Load, const M: usize, const N: usize, const VECTOR: usize, const FUSED: bool>(
    x: Run<D::Number>,
    matrix: Run<D>,
    [i, j]: [usize; 2],
    depth: usize,
    to: To<D::Number>,
) {
    let (mut numbers, mut rows) = ([x.first; M], [matrix.first; N]);
    for m in 0..M {
        numbers[m] = x.first.wrapping_add((i + m).min(x.rows - 1) * x.stride);
    }
    for n in 0..N {
        rows[n] = matrix.first.wrapping_add((j + n).min(matrix.rows - 1) * matrix.stride);
    }
    // The next rows are prefetched while the first rows of the skinny operand are multiplied.
    let ahead = if i == 0 { TILE * matrix.stride } else { 0 };
    let mut lanes = [[D::Number::default(); LANES]; TILE];
    // SAFETY, of all: these are rows of the operands.
    macro_rules! registers {
        ($n:literal) => {{
            let mut n = 0;
            while n < N {
                unsafe { lanes_of::<D, M, N, $n, VECTOR, FUSED>(numbers, &rows, n, [depth, ahead], &mut lanes) };
                n += $n;
            }
        }};
    }
    // A constant, so that the other loops are not compiled.
    match const { together::<D::Number>(M, VECTOR) } {
        16 => registers!(16),
        8 => registers!(8),
        4 => registers!(4),
        2 => registers!(2),
        _ => registers!(1),
    }
    let mut sums = if depth.is_multiple_of(LANES) {
        D::Number::add_up::<VECTOR>(&lanes)
    } else {
        // The rest is added in memory: a loop that is not unrolled would keep all sums there.
        let mut lanes = lanes;
        for l in depth / LANES * LANES..depth {
            for m in 0..M {
                for n in 0..N {
                    let (x, row) = unsafe { (*numbers[m].add(l), *rows[n].add(l)) };
                    let lane = &mut lanes[m * N + n][l % LANES];
                    *lane = lane.multiply_add_at::<FUSED>(row.load(), x);
                }
            }
        }
        D::Number::add_up::<VECTOR>(&lanes)
    };
    // Zero is added, as it is to sums whose lanes are in memory, so that a sum is not negative zero.
    for sum in &mut sums {
        *sum = D::Number::default().plus(*sum);
    }
    let [count, of_row] = [M.min(x.rows - i), N.min(matrix.rows - j)];
    let first = to.first.wrapping_add(i * to.strides[0] + j * to.strides[1]);
    if of_row == N && to.strides[1] == 1 {
        for m in 0..M {
            if m < count {
                let mut row = [D::Number::default(); N];
                row.copy_from_slice(&sums[m * N..][..N]);
                unsafe { first.wrapping_add(m * to.strides[0]).cast::<[D::Number; N]>().write(row) };
            }
        }
        return;
    }
    for m in 0..count {
        for n in 0..of_row {
            unsafe { first.wrapping_add(m * to.strides[0] + n * to.strides[1]).write(sums[m * N + n]) };
        }
    }
}

/// Computes the lanes of the sums of `M` rows of numbers and `R` of the `N` rows of a tile, from number `from` on, for all positions that
/// fill lanes. Prefetches the elements `ahead` of these rows.
///
/// # Safety
/// The rows are valid for reading `depth` elements.
#[inline(always)]
unsafe fn lanes_of<D: Load, const M: usize, const N: usize, const R: usize, const VECTOR: usize, const FUSED: bool>(
    numbers: [*const D::Number; M],
    rows: &[*const D; N],
    from: usize,
    [depth, ahead]: [usize; 2],
    to: &mut [[D::Number; LANES]; TILE],
) {
    let mut sums = [[[D::Number::default(); LANES]; R]; M];
    // SAFETY, of all: these are elements of the rows.
    for l in (0..depth / LANES * LANES).step_by(LANES) {
        let mut x = [[D::Number::default(); LANES]; M];
        for m in 0..M {
            x[m] = unsafe { numbers[m].add(l).cast::<[D::Number; LANES]>().read() };
        }
        for n in 0..R {
            let row = rows[from + n].wrapping_add(l);
            prefetch(row.wrapping_add(ahead).cast());
            let row = unsafe { D::load_all::<LANES, VECTOR>(row) };
            for m in 0..M {
                for k in 0..LANES {
                    sums[m][n][k] = sums[m][n][k].multiply_add_at::<FUSED>(row[k], x[m][k]);
                }
            }
        }
    }
    for m in 0..M {
        for n in 0..R {
            to[m * N + from + n] = sums[m][n];
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Literal, bf16, f16};

    use super::*;

    fn rounded<T: Element>(x: f64) -> T {
        T::from_literal(Literal::from_f64(T::DTYPE, x)).expect("the literal has this dtype")
    }

    fn exact<T: Element>(x: T) -> f64 {
        x.literal().as_f64()
    }

    fn bits<T: Element>(numbers: &[T]) -> Vec<u64> {
        numbers.iter().map(|number| number.literal().bits()).collect()
    }

    /// Every level computes the same sums of rows as plain loops, for every rest, and rows without NaN or infinity are not changed by
    /// others. Sums that are computed one by one, of a matrix by rows and by columns, have the same bits: those of the same lanes.
    #[test]
    fn sums_of_short_rows_are_those_of_every_level() {
        compare::<f32>(256.7, 1e-6);
        compare::<f64>(256.7, 2e-14);
        compare::<bf16>(256.7, 1e-6);
        compare::<f16>(256.7, 1e-6);
        compare::<i8>(4.1, 1e-6);
        compare::<i64>(0.001, 0.0);
    }

    /// Compares sums of elements of a dtype: numbers from -504 to 504, divided by `scale`, so that the sums of floats are rounded. They are
    /// as exact as `tolerance` says, beside the sum of the sizes of all products.
    fn compare<D: Load>(scale: f64, tolerance: f64) {
        let (depth, count) = (100, 37);
        let number = |i: usize| ((i * 7919 % 1009) as f64 - 504.0) / scale;
        let mut numbers: Vec<f64> = (0..count * depth).map(number).collect();
        if D::DTYPE.is_float() {
            (numbers[5 * depth + 3], numbers[9 * depth + 40]) = (f64::NAN, f64::INFINITY);
        }
        let matrix: Vec<D> = numbers.into_iter().map(rounded).collect();
        let columns: Vec<D> = (0..depth * count).map(|i| matrix[i % count * depth + i / count]).collect();
        let skinny: Vec<D::Number> = (0..16 * depth).map(|i| rounded(number(i + 13).abs() + 0.5)).collect();
        for len in [0, 1, 15, 16, 64, 99, 100] {
            let expected: Vec<(f64, f64)> = (0..16 * count)
                .map(|at| {
                    let (x, row) = (&skinny[at / count * depth..][..len], &matrix[at % count * depth..][..len]);
                    let products = x.iter().zip(row).map(|(&x, &element)| exact(x) * exact(element));
                    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()))
                })
                .collect();
            for level in Level::all() {
                for rows in 1..=16 {
                    for strides in [[count, 1], [1, rows]] {
                        let untouched: Vec<D::Number> = vec![rounded(7.0); rows * count];
                        let mut sums = untouched.clone();
                        let x = Run { first: skinny.as_ptr(), stride: depth, rows };
                        let y = Run { first: matrix.as_ptr().cast(), stride: depth, rows: count };
                        let to = To { first: sums.as_mut_ptr(), strides };
                        // SAFETY: the operands and the sums have these rows, and the CPU has the instructions.
                        unsafe { dot_rows::<D>(level)(x, y, len, to) };
                        let by_rows = Location { first: y.first, strides: [depth, 1] };
                        let by_columns = Location { first: columns.as_ptr().cast(), strides: [1, count] };
                        for part in [by_rows, by_columns] {
                            let mut few = untouched.clone();
                            let to = To { first: few.as_mut_ptr(), strides };
                            // SAFETY: as above.
                            unsafe { dot_few::<D>(level)(x, part, count, len, to) };
                            let what = format!("{} {level:?} {len} {rows} {:?}", D::DTYPE, part.strides);
                            assert_eq!(bits(&few), bits(&sums), "{what}");
                        }
                        for (i, j) in (0..rows).flat_map(|i| (0..count).map(move |j| (i, j))) {
                            let (exact_sum, size) = expected[i * count + j];
                            let found = exact(sums[i * strides[0] + j * strides[1]]);
                            let same = found == exact_sum || found.is_nan() && exact_sum.is_nan();
                            assert!(
                                same || (found - exact_sum).abs() <= size * tolerance,
                                "{} {level:?} {len} {rows} {i} {j}: {found} {exact_sum}",
                                D::DTYPE
                            );
                        }
                    }
                }
            }
        }
    }
}
