//! Copies of parts of matrices to panels.

// Elements are copied through pointers, in vectors, for which slices of a panel would be too short.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::bf16;

use super::element::Elements;
use crate::base::product::Accumulator;
use crate::base::transpose::square;
#[cfg(target_arch = "x86_64")]
use crate::base::transpose::words_avx512;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// Elements of a column that are read at a time before they are transposed.
const CHUNK: usize = 64;

/// Most columns of a panel that is packed this way: the elements of all of them are kept on the stack.
pub(in super::super) const MOST_COLUMNS: usize = 48;

/// How many rows ahead elements are prefetched, and how many rows are copied to a narrow panel at a time: rows that are far apart are not a
/// pattern that the CPU predicts.
const AHEAD: usize = 8;

/// Packs a part of a matrix, whose columns `read` reads, to the first `count` elements of rows of `width`. It reads a few elements of each
/// column at a time, to columns with the given stride, and transposes them.
pub(in super::super) fn pack_transposed<A: Accumulator>(
    depth: Range<usize>,
    count: usize,
    width: usize,
    to: &mut [A],
    read: impl Fn(Range<usize>, usize, &mut [A]),
) {
    pack_transposed_through(&mut chunk(), depth, count, width, to, read);
}

/// Elements on the way from columns to a panel.
pub(in super::super) type Columns<A> = [A; CHUNK * MOST_COLUMNS];

/// Memory for [`pack_transposed_through`].
pub(in super::super) fn chunk<A: Accumulator>() -> Columns<A> {
    [A::default(); CHUNK * MOST_COLUMNS]
}

/// As [`pack_transposed`], through memory that several calls share: to clear it takes longer than to pack a few short columns.
pub(in super::super) fn pack_transposed_through<A: Accumulator>(
    chunk: &mut Columns<A>,
    depth: Range<usize>,
    count: usize,
    width: usize,
    to: &mut [A],
    read: impl Fn(Range<usize>, usize, &mut [A]),
) {
    for (i, to) in to.chunks_mut((CHUNK * width).max(1)).enumerate() {
        let first = depth.start + i * CHUNK;
        read(first..depth.end.min(first + CHUNK), CHUNK, &mut chunk[..CHUNK * count]);
        transpose_rows(chunk, 0, CHUNK as isize, count, width, to);
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
    // SAFETY: the first and the last row are in the slice (checked), and so are those between them; so is the matrix.
    unsafe { transpose_at(Level::best(), [count, depth], from.as_ptr().offset(start), stride, to.as_mut_ptr(), width) }
}

/// As [`transpose`], of words, by the widest registers that are filled.
///
/// # Safety
/// As for [`transpose`]; the CPU has the instructions of the level.
unsafe fn transpose_at<A: Accumulator>(
    level: Level,
    [count, depth]: [usize; 2],
    from: *const A,
    stride: isize,
    to: *mut A,
    width: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if level.instructions() == Instructions::Avx512 && size_of::<A>() == 4 && depth >= 16 {
        let groups = depth / 16;
        for first in (0..count).step_by(16) {
            let rows = 16.min(count - first);
            // SAFETY, of all: these rows and elements are some of those that the caller promises.
            unsafe {
                let (from, to) = (from.offset(first as isize * stride).cast(), to.add(first).cast());
                let words = match rows.div_ceil(4) {
                    1 => words_avx512::<1, true>,
                    2 => words_avx512::<2, true>,
                    3 => words_avx512::<3, true>,
                    _ => words_avx512::<4, true>,
                };
                words([rows, groups], from, stride, to, width);
            }
        }
        let done = 16 * groups;
        // SAFETY: as above.
        return unsafe { transpose(level)([count, depth - done], from.add(done), stride, to.add(done * width), width) };
    }
    // SAFETY: as the caller promises.
    unsafe { transpose(level)([count, depth], from, stride, to, width) }
}

multiversion! {
    /// The function that writes element `k` of row `i` to element `i` of row `k`. The rows are `stride` apart at `from` and `width` apart
    /// at `to`. All must be valid for reading at `from` and for writing at `to`, without overlap.
    fn transpose<A: Accumulator>(level: Level) -> unsafe fn(
        shape: [usize; 2],
        from: *const A,
        stride: isize,
        to: *mut A,
        width: usize,
    ) {
        let ([count, depth], n) = (shape, 16 / size_of::<A>());
        // The last square overlaps the one before.
        let squares = |len: usize| (0..len.saturating_sub(n)).step_by(n).chain([len.saturating_sub(n)]);
        for k in squares(depth) {
            for i in squares(count) {
                // SAFETY, of both: these rows and elements are some of those that the caller promises.
                unsafe {
                    let (from, to) = (from.wrapping_offset(i as isize * stride).wrapping_add(k), to.wrapping_add(k * width + i));
                    if count >= n && depth >= n {
                        square(from, stride, to, width);
                    } else {
                        for k in 0..depth.min(n) {
                            (0..count.min(n)).for_each(|i| to.add(k * width + i).write(from.offset(i as isize * stride).add(k).read()));
                        }
                    }
                }
            }
        }
    }
}

/// Copies rows of neighbours, `stride` apart, to panels: `height` elements of each row to each panel. The last panel may get fewer.
///
/// # Panics
/// If there are fewer elements than the panels get, or panels are shorter.
fn copy_rows<A: Accumulator>(from: &[A], stride: usize, shape: RowsToPanels, to: &mut [A]) {
    shape.check(from.len(), stride, to.len());
    // SAFETY: all elements are inside of the slices (checked).
    unsafe { copy::<A>(Level::best())(shape, from.as_ptr(), stride, to.as_mut_ptr()) }
}

/// Copies columns of a right operand to panels of `width`, from row to row, and fills the rest of the last panel with zeros: `columns`
/// neighbours of each of `depth` rows, which are `stride` apart. Returns false as [`copy_elements`] does.
///
/// # Panics
/// As [`copy_elements`].
pub(in crate::kernels) fn copy_columns<A: Accumulator>(
    elements: &Elements<'_, A>,
    (first, stride): (usize, usize),
    [columns, depth]: [usize; 2],
    width: usize,
    to: &mut [A],
) -> bool {
    let shape = RowsToPanels { count: columns, depth, height: width, width, panel: width * depth, fills: true };
    copy_elements(elements, (first, stride), shape, to)
}

/// As [`copy_rows`], from an element on. Returns false if the elements must be converted by more than widening bf16.
///
/// # Panics
/// As [`copy_rows`], and if there are fewer than `first` elements.
pub(super) fn copy_elements<A: Accumulator>(
    elements: &Elements<'_, A>,
    (first, stride): (usize, usize),
    shape: RowsToPanels,
    to: &mut [A],
) -> bool {
    match (elements.numbers(), elements.bf16()) {
        (Some(from), _) => copy_rows(&from[first..], stride, shape, to),
        (_, Some(from)) => widen_rows(&from[first..], stride, shape, to),
        _ => return false,
    }
    true
}

/// As [`copy_rows`], of elements that are widened.
///
/// # Panics
/// As [`copy_rows`].
fn widen_rows<A: Accumulator>(from: &[bf16], stride: usize, shape: RowsToPanels, to: &mut [A]) {
    shape.check(from.len(), stride, to.len());
    // SAFETY: all elements are inside of the slices (checked).
    unsafe { widen::<A>(Level::best())(shape, from.as_ptr(), stride, to.as_mut_ptr()) }
}

/// The sizes of panels to which rows are copied.
#[derive(Clone, Copy, Debug)]
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
    /// Whether the rest of the rows of panels is filled with zeros.
    pub(super) fills: bool,
}

impl RowsToPanels {
    fn check(&self, from: usize, stride: usize, to: usize) {
        let RowsToPanels { count, depth, height, width, panel, .. } = *self;
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

/// Copies some rows at a time, panel by panel, and prefetches others meanwhile.
///
/// # Safety
/// `from` is valid for reading the rows, `to` for writing the panels.
#[inline(always)]
unsafe fn each_run<T: Copy, A: Copy + Default>(
    shape: RowsToPanels,
    from: *const T,
    stride: usize,
    to: *mut A,
    number: impl Fn(T) -> A + Copy,
) {
    let RowsToPanels { count, depth, height, width, panel, fills } = shape;
    // A row that has several cache lines in a panel is copied along the row, so that the CPU sees a pattern.
    let together = if height * size_of::<A>() >= 2 * CACHE_LINE { 1 } else { AHEAD };
    for first in (0..depth).step_by(together) {
        let rows = together.min(depth - first);
        for k in first + AHEAD..depth.min(first + AHEAD + together) {
            for line in (0..count * size_of::<T>()).step_by(CACHE_LINE) {
                prefetch(from.wrapping_add(k * stride).cast::<u8>().wrapping_add(line));
            }
        }
        for (p, i) in (0..count).step_by(height).enumerate() {
            let len = height.min(count - i);
            // SAFETY: these are elements of the rows and of the panel.
            unsafe {
                let to = to.add(p * panel + first * width);
                runs(rows, (from.add(first * stride + i), stride), (to, width), len, number);
                if fills && len < width {
                    (0..rows).for_each(|k| (len..width).for_each(|i| to.add(k * width + i).write(A::default())));
                }
            }
        }
    }
}

/// Copies a few neighbours of each of some rows.
///
/// # Safety
/// All are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn runs<T: Copy, A: Copy + Default>(
    rows: usize,
    from: (*const T, usize),
    to: (*mut A, usize),
    len: usize,
    number: impl Fn(T) -> A + Copy,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match len {
            32 => vectors::<T, A, 32>(rows, from, to, &[0], number),
            16 => vectors::<T, A, 16>(rows, from, to, &[0], number),
            12 => vectors::<T, A, 12>(rows, from, to, &[0], number),
            8 => vectors::<T, A, 8>(rows, from, to, &[0], number),
            17.. => {
                for i in (0..len - 16).step_by(16).chain([len - 16]) {
                    vectors::<T, A, 16>(rows, from, to, &[i], number);
                }
            }
            9.. => vectors::<T, A, 8>(rows, from, to, &[0, len - 8], number),
            4.. => vectors::<T, A, 4>(rows, from, to, &[0, len - 4], number),
            _ => (0..len).for_each(|i| vectors::<T, A, 1>(rows, from, to, &[i], number)),
        }
    }
}

/// Copies `N` neighbours of each row from each of the offsets on. They may overlap.
///
/// # Safety
/// As of [`runs`].
#[inline(always)]
unsafe fn vectors<T: Copy, A: Copy + Default, const N: usize>(
    rows: usize,
    (from, stride): (*const T, usize),
    (to, width): (*mut A, usize),
    places: &[usize],
    number: impl Fn(T) -> A + Copy,
) {
    for k in 0..rows {
        for &i in places {
            let mut numbers = [A::default(); N];
            // SAFETY: as the caller promises.
            let elements = unsafe { from.add(k * stride + i).cast::<[T; N]>().read() };
            for (number_of, x) in numbers.iter_mut().zip(elements) {
                *number_of = number(x);
            }
            // SAFETY: as above.
            unsafe { to.add(k * width + i).cast::<[A; N]>().write(numbers) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distinct elements, in memory for some rows.
    fn numbers<A: Accumulator>(count: usize) -> Vec<A> {
        (0..count).map(|i| A::from_bf16(bf16::from_f32((i % 251) as f32 + 1.0))).collect()
    }

    /// Transposes rows of any number and length, forwards and backwards, and checks that nothing besides the results is written.
    fn check_transposition<A: Accumulator>(level: Level) {
        for count in (1..=20).chain([32, 33]) {
            for depth in [1, 2, 3, 4, 5, 15, 16, 17, 35, 48] {
                let (stride, width) = (depth + 3, count + 2);
                let from = numbers::<A>(count * stride);
                for (start, step) in [(0, stride as isize), ((count - 1) * stride, -(stride as isize))] {
                    let mut to = vec![A::default(); depth * width];
                    // SAFETY: the rows and the matrix are in the slices, and the CPU has the level.
                    unsafe {
                        let from = from.as_ptr().add(start);
                        transpose_at(level, [count, depth], from, step, to.as_mut_ptr(), width);
                    }
                    let row = |i: usize| (start as isize + i as isize * step) as usize;
                    for (k, i) in (0..depth).flat_map(|k| (0..width).map(move |i| (k, i))) {
                        let expected = if i < count { from[row(i) + k] } else { A::default() };
                        assert!(to[k * width + i] == expected, "{count} rows of {depth}, {level:?}: {k}, {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_any_number_and_length_are_transposed() {
        for level in Level::all() {
            check_transposition::<f32>(level);
            check_transposition::<f64>(level);
            check_transposition::<i64>(level);
        }
    }

    /// Copies rows to panels of any height, and checks each element of them and the rest of each row.
    fn check_copies<T: Copy, A: Accumulator>(
        from: &[T],
        copy: unsafe fn(RowsToPanels, *const T, usize, *mut A),
        number: fn(T) -> A,
    ) {
        for height in (1..=17).chain([24, 31, 32, 33, 48]) {
            for (count, width, fills) in
                [(1, height, true), (height, height + 1, true), (2 * height + 1, height + 2, false)]
            {
                for depth in [1, 7, 8, 9, 20] {
                    let (stride, panel) = (count + 2, depth * width);
                    let shape = RowsToPanels { count, depth, height, width, panel, fills };
                    let panels = count.div_ceil(height);
                    let left = A::from_bf16(bf16::from_f32(-7.0));
                    let mut to = vec![left; panels * panel];
                    shape.check(from.len(), stride, to.len());
                    // SAFETY: the elements are in the slices (checked), and the CPU has the level.
                    unsafe { copy(shape, from.as_ptr(), stride, to.as_mut_ptr()) };
                    for (at, &found) in to.iter().enumerate() {
                        let (p, k, i) = (at / panel, at % panel / width, at % width);
                        let column = p * height + i;
                        let expected = match i < height && column < count {
                            true => number(from[k * stride + column]),
                            false if fills => A::default(),
                            false => left,
                        };
                        assert!(found == expected, "{shape:?}: {p}, {k}, {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_copied_to_panels_of_any_height() {
        let halves: Vec<bf16> = (0..4000).map(|i| bf16::from_f32((i % 251) as f32 + 1.0)).collect();
        for level in Level::all() {
            check_copies(&numbers::<f32>(4000), copy::<f32>(level), |x| x);
            check_copies(&numbers::<f64>(4000), copy::<f64>(level), |x| x);
            check_copies(&halves, widen::<f32>(level), |x| x.to_f32());
        }
    }
}
