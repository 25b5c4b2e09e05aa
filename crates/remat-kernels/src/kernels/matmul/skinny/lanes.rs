//! The loops of products with few rows.
//!
//! A sum has [`LANES`] lanes: lane `i` sums the elements at positions equal to `i` modulo [`LANES`]. For rows of the matrix, the lanes of a
//! sum lie side by side in registers. For columns, the lanes of many sums are in memory, one lane after the other. Both ways give the same
//! bits, for any number of rows. Elements are converted in registers.

// Elements are read through pointers, since their dtype is known as a function.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers are unrolled if they count")]

use remat_ir::{DType, bf16, f16};

use super::arithmetic::{self, Factor, Load};
use super::short::{self, DotFewFn, DotRowsFn};
use crate::base::product::Accumulator;
use crate::simd::{CACHE_LINE, Instructions, Level, multiversion, prefetch};

/// Lanes of a sum. They are added in pairs: the second half to the first, again and again.
pub(super) const LANES: usize = 16;

/// The distance in bytes by which a row is prefetched. Where the rows end, the next ones are: the CPU does not prefetch them by itself.
const AHEAD: usize = 1024;

/// Columns whose elements are added to the lanes at a time, so that sums are read and written less often: eight for each lane, which the CPU
/// prefetches side by side.
const COLUMNS: usize = 8 * LANES;

/// Most rows of the skinny operand that are multiplied at a time.
const GROUP: usize = 4;

/// Most rows of the matrix that are multiplied at a time, so that the CPU adds to several registers in turn.
const ROWS: usize = 8;

/// Rows of numbers.
#[derive(Clone, Copy)]
pub(in crate::kernels::matmul) struct Skinny<'a, F> {
    /// The first number of the first row.
    pub(super) numbers: &'a [F],
    pub(super) rows: usize,
    /// The numbers of a row: positions of the contracted axis.
    pub(super) depth: usize,
    /// Numbers from one row to the next.
    pub(super) stride: usize,
}

/// A part of a matrix whose elements are neighbours along one axis.
#[derive(Clone, Copy)]
pub(in crate::kernels::matmul) struct Part {
    pub(super) first: *const u8,
    /// Elements from one row, or column, to the next.
    pub(super) stride: usize,
    /// Rows of the matrix: the rows of the part, or the elements of one of its columns.
    pub(super) rows: usize,
}

/// The loops over a matrix of one dtype, compiled for this CPU.
pub(in crate::kernels::matmul) struct Loops<F> {
    /// See [`rows_at`].
    rows: unsafe fn(
        x: (*const F, usize, usize),
        count: usize,
        depth: usize,
        part: (*const u8, usize),
        lanes: (*mut [F; LANES], usize),
    ),
    /// Rows of the matrix that are multiplied with a group of rows of the skinny operand, for each size of a group.
    together: [usize; GROUP + 1],
    /// See [`columns_at`].
    columns: unsafe fn(x: (*const F, usize, usize), columns: usize, part: Part, lanes: (*mut F, usize)),
    /// The loops for a short contracted axis.
    pub(super) short: DotRowsFn<F>,
    /// The same for few multiplications.
    pub(super) few: DotFewFn<F>,
    size: usize,
}

impl<F: Factor> Loops<F> {
    /// The loops over elements of this dtype, if there are any.
    pub(super) fn new(dtype: DType) -> Option<Loops<F>> {
        F::loops(dtype)
    }

    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The loops over elements of type `D`.
    pub(super) fn of<D: Load<Number = F>>() -> Loops<F> {
        let loops = |rows, columns, vector: usize| {
            let together = std::array::from_fn(|group| rows_together::<F>(group, vector));
            let (short, few) = (short::dot_rows::<D>(Level::best()), short::dot_few::<D>(Level::best()));
            Loops { rows, together, columns, short, few, size: size_of::<D>() }
        };
        match Level::best().instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => loops(x86::avx512::rows::<D>, x86::avx512::columns::<D>, 64),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => loops(x86::avx2::rows::<D>, x86::avx2::columns::<D>, 32),
            Instructions::Plain => loops(rows_at::<D, 16, false>, columns_at::<D, 16, false>, 16),
        }
    }

    /// Adds products of rows of a part and rows of a skinny operand to lanes. The lanes are ordered by row of the skinny operand, then by row
    /// of the part.
    ///
    /// # Safety
    /// The elements of the part are valid for reading.
    pub(super) unsafe fn rows(&self, x: Skinny<'_, F>, part: Part, lanes: &mut [F]) {
        let lanes = &mut lanes.as_chunks_mut::<LANES>().0[..x.rows * part.rows];
        let mut first = 0;
        while first < x.rows {
            let mut group = GROUP;
            while group > x.rows - first || self.together[group] == 0 {
                group /= 2;
            }
            assert!((first + group - 1) * x.stride + x.depth <= x.numbers.len());
            for i in (0..part.rows).step_by(self.together[group]) {
                let n = self.together[group].min(part.rows - i);
                // SAFETY: the rows are in the part, as the caller promises, and in the skinny operand (checked); there are lanes for each
                // pair (checked by their slice).
                unsafe {
                    let numbers = x.numbers.as_ptr().add(first * x.stride);
                    let rows = part.first.add(i * part.stride * self.size);
                    let lanes = lanes.as_mut_ptr().add(first * part.rows + i);
                    (self.rows)((numbers, x.stride, group), n, x.depth, (rows, part.stride), (lanes, part.rows));
                }
            }
            first += group;
        }
    }

    /// Adds products of columns of a part and numbers of a skinny operand to lanes. For each lane, and then for each row of the skinny operand,
    /// there are `width` numbers, the first of them for the rows of the part. Column `j` belongs to lane `j` modulo [`LANES`].
    ///
    /// # Safety
    /// The elements of the part are valid for reading.
    pub(super) unsafe fn columns(&self, x: Skinny<'_, F>, part: Part, lanes: &mut [F], width: usize) {
        assert!(part.rows <= width && (LANES * x.rows - 1) * width + part.rows <= lanes.len());
        assert!((x.rows - 1) * x.stride + x.depth <= x.numbers.len());
        for first in (0..x.depth).step_by(COLUMNS) {
            let count = COLUMNS.min(x.depth - first);
            // SAFETY: the columns are those that the caller promises, and the lanes and the numbers are inside of the slices (checked).
            unsafe {
                let part = Part { first: part.first.add(first * part.stride * self.size), ..part };
                let x = (x.numbers.as_ptr().add(first), x.stride, x.rows);
                (self.columns)(x, count, part, (lanes.as_mut_ptr(), width));
            }
        }
    }
}

impl Loops<f32> {
    /// The loops over elements that are converted to f32 in registers.
    pub(super) fn f32(dtype: DType) -> Option<Loops<f32>> {
        match dtype {
            DType::F32 => Some(Loops::of::<f32>()),
            DType::F16 => Some(Loops::of::<f16>()),
            DType::Bf16 => Some(Loops::of::<bf16>()),
            DType::I8 => Some(Loops::of::<i8>()),
            DType::U8 => Some(Loops::of::<u8>()),
            _ => None,
        }
    }
}

/// Adds up the lanes of sums, `len` numbers each, in the first lane.
pub(super) fn add_lanes<F: Factor>(lanes: &mut [F], len: usize) {
    let mut half = LANES;
    while half > 1 {
        half /= 2;
        let (sums, others) = lanes.split_at_mut(half * len);
        add(&others[..half * len], sums);
    }
}

multiversion! {
    /// Adds up lanes that lie side by side, each sum in the first of its lanes.
    pub(super) fn add_neighbours<F: Factor>(lanes: &mut [F]) {
        for lanes in lanes.as_chunks_mut::<LANES>().0 {
            lanes[0] = arithmetic::add_lanes(lanes);
        }
    }
}

multiversion! {
    /// Adds `x` to `y`.
    fn add<A: Accumulator>(x: &[A], y: &mut [A]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = y.plus(x);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    macro_rules! level {
        ($name:ident $vector:literal $features:literal) => {
            pub(super) mod $name {
                use super::super::super::arithmetic::Load;
                use super::super::{LANES, Part, columns_at, rows_at};

                /// As [`rows_at`]; the CPU has the instructions.
                #[target_feature(enable = $features)]
                pub(in super::super) unsafe fn rows<D: Load>(
                    x: (*const D::Number, usize, usize),
                    count: usize,
                    depth: usize,
                    part: (*const u8, usize),
                    lanes: (*mut [D::Number; LANES], usize),
                ) {
                    // SAFETY: as the caller promises.
                    unsafe { rows_at::<D, $vector, true>(x, count, depth, part, lanes) }
                }

                /// As [`columns_at`]; the CPU has the instructions.
                #[target_feature(enable = $features)]
                pub(in super::super) unsafe fn columns<D: Load>(
                    x: (*const D::Number, usize, usize),
                    columns: usize,
                    part: Part,
                    lanes: (*mut D::Number, usize),
                ) {
                    // SAFETY: as the caller promises.
                    unsafe { columns_at::<D, $vector, true>(x, columns, part, lanes) }
                }
            }
        };
    }

    level! { avx512 64 "avx2,fma,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl" }
    level! { avx2 32 "avx2,fma,f16c" }
}

/// How many rows of the matrix are multiplied with a group of rows of the skinny operand, so that their lanes fit in the registers of a CPU
/// with vectors of `vector` bytes; 0 if not even one row fits.
const fn rows_together<F>(group: usize, vector: usize) -> usize {
    let registers = if vector == 64 { 16 } else { 8 };
    let of_one = LANES * size_of::<F>() / vector;
    match group {
        1 | 2 | GROUP => {
            let rows = registers / (group * of_one);
            if rows > ROWS {
                ROWS
            } else if rows == 0 && group == 1 {
                1
            } else {
                rows
            }
        }
        _ => 0,
    }
}

/// Adds the products of `count` rows of `depth` neighbours and each row of a group to lanes. `x` has the first number, the stride of rows
/// and their number; `part` the first element and the stride of rows; `lanes` the first lane, and the number of lanes for each row of
/// numbers. `count` is at most the number of rows that are taken together.
///
/// # Safety
/// The elements of the rows and of `x` are valid for reading, the lanes for writing too.
#[inline(always)]
unsafe fn rows_at<D: Load, const VECTOR: usize, const FUSED: bool>(
    (x, x_stride, group): (*const D::Number, usize, usize),
    count: usize,
    depth: usize,
    (part, stride): (*const u8, usize),
    (lanes, width): (*mut [D::Number; LANES], usize),
) {
    let (x, part) = ((x, x_stride), (part.cast::<D>(), stride));
    // SAFETY, of all: the rows and lanes are those of the caller.
    macro_rules! of {
        ($m:literal) => {{
            // A constant, so that the other loops are not compiled.
            match const { rows_together::<D::Number>($m, VECTOR) } {
                8 if count == 8 => unsafe { rows_of::<D, $m, 8, VECTOR, FUSED>(x, depth, part, (lanes, width)) },
                4 if count == 4 => unsafe { rows_of::<D, $m, 4, VECTOR, FUSED>(x, depth, part, (lanes, width)) },
                2 if count == 2 => unsafe { rows_of::<D, $m, 2, VECTOR, FUSED>(x, depth, part, (lanes, width)) },
                0 => unreachable!("a group of rows has registers"),
                _ => {
                    for i in 0..count {
                        let row = unsafe { (part.0.add(i * stride), stride) };
                        unsafe { rows_of::<D, $m, 1, VECTOR, FUSED>(x, depth, row, (lanes.add(i), width)) };
                    }
                }
            }
        }};
    }
    match group {
        4 => of!(4),
        2 => of!(2),
        _ => of!(1),
    }
}

/// Adds the products of `N` rows of the matrix and `M` rows of numbers to lanes. The lanes of rows of numbers are `width` apart.
///
/// # Safety
/// As for [`rows_at`].
#[inline(always)]
unsafe fn rows_of<D: Load, const M: usize, const N: usize, const VECTOR: usize, const FUSED: bool>(
    (x, x_stride): (*const D::Number, usize),
    depth: usize,
    (part, stride): (*const D, usize),
    (lanes, width): (*mut [D::Number; LANES], usize),
) {
    // Written as plain loops over arrays, which the compiler keeps in registers.
    // SAFETY, of all: from `l` on, the rows have [`LANES`] elements and numbers, or one where `l` is the position of one; there are lanes
    // for each row. None need be aligned to more than one number.
    let mut sums = [[[D::Number::default(); LANES]; N]; M];
    for m in 0..M {
        for n in 0..N {
            sums[m][n] = unsafe { lanes.add(m * width + n).read() };
        }
    }
    let whole = depth / LANES * LANES;
    let to_next_rows = (AHEAD + N * stride * size_of::<D>()).wrapping_sub(depth * size_of::<D>());
    for l in (0..whole).step_by(LANES) {
        let mut numbers = [[D::Number::default(); LANES]; M];
        for m in 0..M {
            numbers[m] = unsafe { x.add(m * x_stride + l).cast::<[D::Number; LANES]>().read() };
        }
        let at = l * size_of::<D>();
        let begins_line = at.is_multiple_of(CACHE_LINE);
        let ahead = if at + AHEAD < depth * size_of::<D>() { AHEAD } else { to_next_rows };
        for n in 0..N {
            let from = unsafe { part.add(n * stride + l) };
            if begins_line {
                prefetch(from.cast::<u8>().wrapping_add(ahead));
            }
            let row = unsafe { D::load_all::<LANES, VECTOR>(from) };
            for m in 0..M {
                for k in 0..LANES {
                    sums[m][n][k] = sums[m][n][k].multiply_add_at::<FUSED>(row[k], numbers[m][k]);
                }
            }
        }
    }
    for m in 0..M {
        for n in 0..N {
            unsafe { lanes.add(m * width + n).write(sums[m][n]) };
        }
    }
    // The rest is added in memory: a loop that is not unrolled would keep all sums there.
    for l in whole..depth {
        for m in 0..M {
            for n in 0..N {
                let (x, row) = unsafe { (*x.add(m * x_stride + l), *part.add(n * stride + l)) };
                let lane = unsafe { &mut (*lanes.add(m * width + n))[l - whole] };
                *lane = lane.multiply_add_at::<FUSED>(row.load(), x);
            }
        }
    }
}

/// Adds the products of columns of a part and rows of numbers to lanes. `x` has the first number, the stride of rows and their number;
/// `lanes` has the first lane, and the number of lanes for each row of numbers.
///
/// # Safety
/// The elements of the columns and of `x` are valid for reading, those of the lanes for writing too.
#[inline(always)]
unsafe fn columns_at<D: Load, const VECTOR: usize, const FUSED: bool>(
    (x, x_stride, rows): (*const D::Number, usize, usize),
    columns: usize,
    part: Part,
    (lanes, width): (*mut D::Number, usize),
) {
    let (between, part_first) = (rows * width, part.first.cast::<D>());
    // One lane after the other, so that runs of the matrix are as long as the part: the CPU prefetches along them.
    for lane in 0..LANES.min(columns) {
        let mut first = 0;
        while first < rows {
            let mut i = 0;
            // SAFETY, of all: the elements of the strip are in each column; the caller promises the rows of numbers and their lanes.
            macro_rules! strips {
                ($m:literal, $n:literal) => {
                    while part.rows - i >= $n {
                        let to = unsafe { (lanes.add(lane * between + first * width + i), width) };
                        let x = unsafe { (x.add(first * x_stride + lane), x_stride) };
                        let from = unsafe { (part_first.add(lane * part.stride + i), part.stride) };
                        unsafe { columns_of::<D, $m, $n, VECTOR, FUSED>(x, columns - lane, from, to) };
                        i += $n;
                    }
                };
            }
            // Strips whose sums fill eight registers if these hold 32 or more for each row, and the rest.
            macro_rules! group {
                ($m:literal) => {
                    match const { 8 * VECTOR / size_of::<D::Number>() / $m } {
                        128 => strips!($m, 128),
                        64 => strips!($m, 64),
                        32 => strips!($m, 32),
                        _ => {}
                    }
                    strips!($m, 16);
                    strips!($m, 1);
                    first += $m;
                };
            }
            match rows - first {
                1 => {
                    group!(1);
                }
                2 | 3 => {
                    group!(2);
                }
                _ => {
                    group!(4);
                }
            }
        }
    }
}

/// Adds the products of `N` elements of columns and `M` rows of numbers to one of their lanes: of the first of `columns` columns, and each
/// [`LANES`] columns after it. `lanes` has the first number of the lane, and the distance to that of the next row.
///
/// # Safety
/// As for [`columns_at`].
#[inline(always)]
unsafe fn columns_of<D: Load, const M: usize, const N: usize, const VECTOR: usize, const FUSED: bool>(
    (x, x_stride): (*const D::Number, usize),
    columns: usize,
    (part, stride): (*const D, usize),
    (lanes, width): (*mut D::Number, usize),
) {
    // SAFETY, of all: the caller promises these elements, which need not be aligned to more than one.
    let at = |m: usize| unsafe { lanes.add(m * width).cast::<[D::Number; N]>() };
    let mut sums = [[D::Number::default(); N]; M];
    for m in 0..M {
        sums[m] = unsafe { at(m).read() };
    }
    for j in (0..columns).step_by(LANES) {
        let column = unsafe { D::load_all::<N, VECTOR>(part.add(j * stride)) };
        for m in 0..M {
            let x = unsafe { *x.add(m * x_stride + j) };
            for i in 0..N {
                sums[m][i] = sums[m][i].multiply_add_at::<FUSED>(column[i], x);
            }
        }
    }
    for m in 0..M {
        unsafe { at(m).write(sums[m]) };
    }
}
