//! Copies of parts of matrices to panels.

// Elements are copied through pointers, in vectors that a panel has no slices for.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::bf16;

use crate::base::product::Accumulator;
use crate::base::transpose::square;
#[cfg(target_arch = "x86_64")]
use crate::base::transpose::words_avx512;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// Elements of a column that are read at a time before they are transposed.
const CHUNK: usize = 64;

/// Most columns of a panel that are read so: the elements of all of them lie in memory of their own.
const MOST_COLUMNS: usize = 48;

/// Rows by which elements are fetched ahead: rows that are far apart are no pattern that a CPU sees.
const AHEAD: usize = 8;

/// Packs a part of a matrix whose columns `read` reads, to the first `count` elements of rows of `width`: a few elements of each
/// column at a time, with the given stride of columns, which are then transposed.
pub(in super::super) fn pack_transposed<A: Accumulator>(
    depth: Range<usize>,
    count: usize,
    width: usize,
    to: &mut [A],
    read: impl Fn(Range<usize>, usize, &mut [A]),
) {
    let mut chunk = [A::default(); CHUNK * MOST_COLUMNS];
    for (i, to) in to.chunks_mut((CHUNK * width).max(1)).enumerate() {
        let first = depth.start + i * CHUNK;
        read(first..depth.end.min(first + CHUNK), CHUNK, &mut chunk[..CHUNK * count]);
        transpose_rows(&chunk, 0, CHUNK as isize, count, width, to);
    }
}

/// Writes element `k` of each of `count` rows, `stride` apart, the first at `start`, to row `k` of a matrix of rows of `width`.
///
/// # Panics
/// If a row has fewer elements than the matrix has rows.
pub(in super::super) fn transpose_rows<A: Accumulator>(
    from: &[A],
    start: isize,
    stride: isize,
    count: usize,
    width: usize,
    to: &mut [A],
) {
    let depth = to.len().checked_div(width).unwrap_or(0);
    if count == 0 || depth == 0 {
        return;
    }
    let last = start + (count as isize - 1) * stride;
    let inside = |first: isize| first >= 0 && first as usize + depth <= from.len();
    assert!(inside(start) && inside(last) && count <= width);
    // SAFETY: the first and the last row, and with them those between, are in the slice (checked), and so is the matrix.
    unsafe { transpose_at(Level::best(), [count, depth], from.as_ptr().offset(start), stride, to.as_mut_ptr(), width) }
}

/// As [`transpose`], of words by the widest registers where there are enough.
///
/// # Safety
/// As there; the CPU has the instructions of the level.
unsafe fn transpose_at<A: Accumulator>(
    level: Level,
    [count, depth]: [usize; 2],
    from: *const A,
    stride: isize,
    to: *mut A,
    width: usize,
) {
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut, reason = "only CPUs of x86-64 have such registers"))]
    let mut done = [0, 0];
    #[cfg(target_arch = "x86_64")]
    if level.instructions() == Instructions::Avx512 && size_of::<A>() == 4 && depth >= 16 {
        let positions = depth / 16 * 16;
        // SAFETY, of all: these rows and elements are some of those that the caller promises.
        while count - done[0] >= 4 {
            let first = done[0];
            let [from, to] =
                unsafe { [from.offset(first as isize * stride).cast::<u32>(), to.add(first).cast_const().cast()] };
            for k in (0..positions).step_by(16) {
                let (from, to) = unsafe { (from.add(k), to.add(k * width).cast_mut()) };
                // The next rows: those that are far apart are no pattern that a CPU sees.
                for i in 16..(count - first).min(32) {
                    prefetch(from.wrapping_offset(i as isize * stride).cast());
                }
                unsafe {
                    match (count - first) / 4 {
                        1 => words_avx512::<1>(from, stride, to, width),
                        2 => words_avx512::<2>(from, stride, to, width),
                        3 => words_avx512::<3>(from, stride, to, width),
                        _ => words_avx512::<4>(from, stride, to, width),
                    }
                }
            }
            done = [first + (count - first).min(16) / 4 * 4, positions];
        }
    }
    // SAFETY, of both: as above.
    unsafe {
        let rest = [done[0], depth - done[1]];
        transpose(level)(rest, from.add(done[1]), stride, to.add(done[1] * width), width);
        // Where all rows are done this is past them, and not read.
        let from = from.wrapping_offset(done[0] as isize * stride);
        transpose(level)([count - done[0], depth], from, stride, to.add(done[0]), width);
    }
}

multiversion! {
    /// The function that writes element `k` of row `i`, of rows that are `stride` apart, to element `i` of row `k`, of rows that are
    /// `width` apart. All must be valid for reading at `from` and for writing at `to`, without overlap.
    fn transpose<A: Accumulator>(level: Level) -> unsafe fn(
        shape: [usize; 2],
        from: *const A,
        stride: isize,
        to: *mut A,
        width: usize,
    ) {
        let ([count, depth], n) = (shape, 16 / size_of::<A>());
        let whole = [count / n * n, depth / n * n];
        for k in (0..whole[1]).step_by(n) {
            for i in (0..whole[0]).step_by(n) {
                // SAFETY: these rows and elements are some of those that the caller promises.
                unsafe { square(from.offset(i as isize * stride).add(k), stride, to.add(k * width + i), width) };
            }
        }
        for i in 0..count {
            let rest = if i < whole[0] { whole[1] } else { 0 };
            for k in rest..depth {
                // SAFETY: as above.
                unsafe { to.add(k * width + i).write(from.offset(i as isize * stride).add(k).read()) };
            }
        }
    }
}

/// Copies rows of neighbours, `stride` apart, to panels: `height` of each row to each panel, the last of which may get fewer. What is
/// left of the rows of panels becomes zeros.
///
/// # Panics
/// If there are fewer elements than the panels get, or panels are shorter.
pub(super) fn copy_rows<A: Accumulator>(from: &[A], stride: usize, shape: RowsToPanels, to: &mut [A]) {
    shape.check(from.len(), stride, to.len());
    // SAFETY: all are inside of the slices (checked).
    unsafe { copy::<A>(Level::best())(shape, from.as_ptr(), stride, to.as_mut_ptr()) }
}

/// As [`copy_rows`], of elements that are widened.
///
/// # Panics
/// As [`copy_rows`].
pub(super) fn widen_rows<A: Accumulator>(from: &[bf16], stride: usize, shape: RowsToPanels, to: &mut [A]) {
    shape.check(from.len(), stride, to.len());
    // SAFETY: all are inside of the slices (checked).
    unsafe { widen::<A>(Level::best())(shape, from.as_ptr(), stride, to.as_mut_ptr()) }
}

/// The sizes of panels to which rows are copied.
#[derive(Clone, Copy)]
pub(super) struct RowsToPanels {
    /// Elements of a row.
    pub(super) count: usize,
    /// Rows.
    pub(super) depth: usize,
    /// Elements of a row that a panel gets.
    pub(super) height: usize,
    /// The stride of rows in a panel.
    pub(super) width: usize,
    /// The distance between panels.
    pub(super) panel: usize,
}

impl RowsToPanels {
    fn check(&self, from: usize, stride: usize, to: usize) {
        let RowsToPanels { count, depth, height, width, panel } = *self;
        if count > 0 && depth > 0 {
            assert!(height > 0 && height <= width && (depth - 1) * stride + count <= from);
            assert!((count - 1) / height * panel + depth * width <= to);
        }
    }
}

multiversion! {
    /// The function that copies rows to panels.
    fn copy<A: Accumulator>(level: Level) -> unsafe fn(shape: RowsToPanels, from: *const A, stride: usize, to: *mut A) {
        // SAFETY: as the caller promises.
        unsafe { each_run(shape, from, stride, to, |x| x) }
    }
}

multiversion! {
    /// The function that widens rows to panels.
    fn widen<A: Accumulator>(level: Level) -> unsafe fn(shape: RowsToPanels, from: *const bf16, stride: usize, to: *mut A) {
        // SAFETY: as the caller promises.
        unsafe { each_run(shape, from, stride, to, A::from_bf16) }
    }
}

/// Copies each row, panel by panel.
///
/// # Safety
/// `from` is valid for reading the rows, `to` for writing the panels.
#[inline(always)]
unsafe fn each_run<T: Copy, A: Default>(
    shape: RowsToPanels,
    from: *const T,
    stride: usize,
    to: *mut A,
    number: impl Fn(T) -> A + Copy,
) {
    let RowsToPanels { count, depth, height, width, panel } = shape;
    for k in 0..depth {
        let from = from.wrapping_add(k * stride);
        for line in (0..count * size_of::<T>()).step_by(CACHE_LINE) {
            prefetch(from.wrapping_add(AHEAD * stride).cast::<u8>().wrapping_add(line));
        }
        for (p, i) in (0..count).step_by(height).enumerate() {
            let len = height.min(count - i);
            // SAFETY: these are elements of the row and of the panel.
            unsafe {
                let to = to.add(p * panel + k * width);
                run(from.add(i), to, len, number);
                (len..width).for_each(|i| to.add(i).write(A::default()));
            }
        }
    }
}

/// Copies a few neighbours, in vectors of which the last overlaps the one before.
///
/// # Safety
/// All are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn run<T: Copy, A>(from: *const T, to: *mut A, len: usize, number: impl Fn(T) -> A + Copy) {
    // SAFETY: as the caller promises.
    unsafe {
        match len {
            32 => vector::<T, A, 32>(from, to, number),
            16 => vector::<T, A, 16>(from, to, number),
            12 => vector::<T, A, 12>(from, to, number),
            8.. => {
                for i in (0..len - 8).step_by(8).chain([len - 8]) {
                    vector::<T, A, 8>(from.add(i), to.add(i), number);
                }
            }
            4.. => {
                vector::<T, A, 4>(from, to, number);
                vector::<T, A, 4>(from.add(len - 4), to.add(len - 4), number);
            }
            _ => (0..len).for_each(|i| to.add(i).write(number(from.add(i).read()))),
        }
    }
}

/// Copies neighbours.
///
/// # Safety
/// As many are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn vector<T: Copy, A, const N: usize>(from: *const T, to: *mut A, number: impl Fn(T) -> A) {
    // SAFETY: as the caller promises.
    unsafe { to.cast::<[A; N]>().write(from.cast::<[T; N]>().read().map(number)) }
}
