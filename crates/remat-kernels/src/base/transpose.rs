//! Transposition of squares in registers.
//!
//! Squares of elements are read as rows of 16 bytes, interleaved in registers, and written as rows of 16 bytes. Interleaving row `k` with
//! row `k + N / 2`, for each `k`, rotates the bits of an element's position (row, column) by one. After as many rotations as the row has
//! bits, row and column are exchanged. Source: Stone, "Parallel processing with the perfect shuffle", IEEE Transactions on Computers, 1971.

// Vector registers are loaded and stored through pointers.
#![allow(unsafe_code)]

use remat_ir::Element;

use super::copy::copy_row;
use super::rectangle::Rectangle;
use crate::simd::CACHE_LINE;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Instructions, Level};

/// Bytes of a register.
const REGISTER: usize = 16;

/// Copies `rows` by `columns` elements to a rectangle from `row` and `column` on. Element `i, j` is read from `start + i + j * from_stride`.
/// With `stream`, aligned cache lines are written past the cache; the thread must call [`finish_stream`] before another thread may read
/// them.
#[inline(always)]
pub(crate) fn transpose<W: Element>(
    from: &[W],
    start: isize,
    from_stride: isize,
    rectangle: &mut Rectangle<'_, W>,
    [row, column]: [usize; 2],
    [rows, columns]: [usize; 2],
    stream: bool,
) {
    let n = REGISTER / size_of::<W>();
    let stream = stream && rectangle.is_aligned(column, CACHE_LINE);
    for i in (0..rows).step_by(n) {
        for j in (0..columns).step_by(n) {
            let source = start + i as isize + j as isize * from_stride;
            if i + n <= rows && j + n <= columns {
                checked_square(from, source, from_stride, rectangle, [row + i, column + j], stream);
                continue;
            }
            for k in i..rows.min(i + n) {
                let to = &mut rectangle.row(row + k)[column + j..column + columns.min(j + n)];
                copy_row(from, start + k as isize + j as isize * from_stride, from_stride, to);
            }
        }
    }
}

/// Transposes a tile of `size` rows and columns of the result, both matrices with the given strides of rows: as [`transpose`], in the widest
/// registers of the CPU.
pub(crate) fn transpose_tile<W: Element>(
    (from, from_stride): (&[W], usize),
    (to, to_stride): (&mut [W], usize),
    size: [usize; 2],
) {
    let [rows, columns] = size;
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut, reason = "only CPUs of x86-64 have such registers"))]
    let mut whole = [0, 0];
    #[cfg(target_arch = "x86_64")]
    if size_of::<W>() == 4 && Level::best().instructions() == Instructions::Avx512 {
        whole = size.map(|n| n - n % 16);
        let fits = |rows: usize, stride: usize, columns: usize, len: usize| {
            rows == 0 || columns == 0 || (rows - 1) * stride + columns <= len
        };
        assert!(fits(whole[1], from_stride, whole[0], from.len()) && fits(whole[0], to_stride, whole[1], to.len()));
        for i in (0..whole[0]).step_by(16) {
            for j in (0..whole[1]).step_by(16) {
                // SAFETY: the rows and columns are those of both matrices (checked), which do not overlap, and the CPU has the instructions.
                unsafe {
                    let from = from.as_ptr().add(i + j * from_stride).cast();
                    words_avx512::<4, false>(
                        [16, 1],
                        from,
                        from_stride as isize,
                        to.as_mut_ptr().add(i * to_stride + j).cast(),
                        to_stride,
                    );
                }
            }
        }
    }
    let mut to = Rectangle::whole(to, to_stride);
    for (i, j, rows, columns) in [(whole[0], 0, rows - whole[0], columns), (0, whole[1], whole[0], columns - whole[1])]
    {
        let start = (i + j * from_stride) as isize;
        transpose(from, start, from_stride as isize, &mut to, [i, j], [rows, columns], false);
    }
}

/// Makes data that this thread has written past the cache visible to the threads that receive it.
pub(crate) fn finish_stream() {
    // SAFETY: every x86-64 CPU has SSE.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies a square of as many rows and columns as there are elements in a register.
#[inline(always)]
fn checked_square<W: Element>(
    from: &[W],
    start: isize,
    from_stride: isize,
    rectangle: &mut Rectangle<'_, W>,
    [row, column]: [usize; 2],
    stream: bool,
) {
    let n = REGISTER / size_of::<W>();
    let last = start + (n as isize - 1) * from_stride;
    // The rows between the first and the last one lie between them in memory, so checking those two suffices.
    let inside = |first: isize| first >= 0 && first as usize + n <= from.len();
    assert!(inside(start) && inside(last));
    let (to, to_stride) = rectangle.square(row, column, n);
    // SAFETY: all rows of the square are inside of `from` (checked) and of the rectangle (checked by `square`); `stream` is only set for
    // aligned rows.
    unsafe {
        let from = from.as_ptr().offset(start);
        #[cfg(target_arch = "x86_64")]
        if stream {
            return x86::square_of_size(from, from_stride, to, to_stride, true);
        }
        // Only x86-64 can write past the caches.
        let _ = stream;
        square(from, from_stride, to, to_stride);
    }
}

/// Transposes `groups` times 16 words of each of some rows: word `k` of row `i` becomes word `i` of row `k`. The rows are at most `4 * QUADS`,
/// and more than four fewer. Loads put four words each from four rows into a register, which saves half of the shuffles of a transposition
/// in registers. With `FETCH`, as many rows after these are prefetched.
///
/// # Safety
/// All rows, which are `from_stride` and `to_stride` words apart, are valid for reading and writing `16 * groups` words and rows,
/// without overlap. The CPU has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn words_avx512<const QUADS: usize, const FETCH: bool>(
    [rows, groups]: [usize; 2],
    from: *const u32,
    from_stride: isize,
    to: *mut u32,
    to_stride: usize,
) {
    use std::arch::x86_64::*;

    use crate::simd::prefetch;

    // Where a quad has fewer rows, the last one is read in their place, and not written.
    let starts: [isize; 16] = std::array::from_fn(|i| i.min(rows - 1) as isize * from_stride);
    let written = ((1u32 << rows) - 1) as __mmask16;
    for group in 0..groups {
        let (from, to) = (from.wrapping_add(16 * group), to.wrapping_add(16 * group * to_stride));
        if FETCH {
            // A CPU sees no pattern in rows that are far apart.
            for i in rows..2 * rows {
                prefetch(from.wrapping_offset(i as isize * from_stride).cast());
            }
        }
        for column in (0..16).step_by(4) {
            // SAFETY: these are words of the rows.
            unsafe {
                let row = |i: usize| _mm_loadu_si128(from.offset(starts[i]).add(column).cast());
                let rows = |i: usize| {
                    let mut rows = _mm512_castsi128_si512(row(i));
                    if QUADS > 1 {
                        rows = _mm512_inserti32x4::<1>(rows, row(i + 4));
                    }
                    if QUADS > 2 {
                        rows = _mm512_inserti32x4::<2>(rows, row(i + 8));
                    }
                    if QUADS > 3 {
                        rows = _mm512_inserti32x4::<3>(rows, row(i + 12));
                    }
                    rows
                };
                let [a, b, c, d] = [rows(0), rows(1), rows(2), rows(3)];
                let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                let columns = [
                    _mm512_unpacklo_epi64(ab, cd),
                    _mm512_unpackhi_epi64(ab, cd),
                    _mm512_unpacklo_epi64(ab_high, cd_high),
                    _mm512_unpackhi_epi64(ab_high, cd_high),
                ];
                for (i, words) in columns.into_iter().enumerate() {
                    _mm512_mask_storeu_epi32(to.add((column + i) * to_stride).cast(), written, words);
                }
            }
        }
    }
}

/// Copies a square of as many rows and columns as there are elements in 16 bytes, and transposes it.
///
/// # Safety
/// All rows, which are `from_stride` and `to_stride` elements apart, are valid for reading and writing.
#[inline(always)]
pub(crate) unsafe fn square<W: Copy>(from: *const W, from_stride: isize, to: *mut W, to_stride: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        x86::square_of_size(from, from_stride, to, to_stride, false);
        #[cfg(not(target_arch = "x86_64"))]
        plain::square(from, from_stride, to, to_stride, REGISTER / size_of::<W>());
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Copies a square of elements of any size.
    ///
    /// # Safety
    /// As of [`square`].
    #[inline(always)]
    pub(super) unsafe fn square_of_size<W>(
        from: *const W,
        from_stride: isize,
        to: *mut W,
        to_stride: usize,
        stream: bool,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            match size_of::<W>() {
                1 => square::<W, 16>(from, from_stride, to, to_stride, stream),
                2 => square::<W, 8>(from, from_stride, to, to_stride, stream),
                4 => square::<W, 4>(from, from_stride, to, to_stride, stream),
                _ => square::<W, 2>(from, from_stride, to, to_stride, stream),
            }
        }
    }

    /// Copies a square of `N` by `N` elements of `16 / N` bytes.
    ///
    /// # Safety
    /// All rows must be readable and writable, and those written must be aligned to 16 bytes if `stream`.
    #[inline(always)]
    unsafe fn square<W, const N: usize>(
        from: *const W,
        from_stride: isize,
        to: *mut W,
        to_stride: usize,
        stream: bool,
    ) {
        // SAFETY: every x86-64 CPU has SSE2; the rows are as promised.
        unsafe {
            let mut rows: [__m128i; N] =
                std::array::from_fn(|j| _mm_loadu_si128(from.offset(j as isize * from_stride).cast()));
            for _ in 0..N.ilog2() {
                let mut next = rows;
                for k in 0..N / 2 {
                    [next[2 * k], next[2 * k + 1]] = interleave::<N>(rows[k], rows[k + N / 2]);
                }
                rows = next;
            }
            for (i, &row) in rows.iter().enumerate() {
                let to = to.add(i * to_stride).cast();
                if stream {
                    _mm_stream_si128(to, row);
                } else {
                    _mm_storeu_si128(to, row);
                }
            }
        }
    }

    /// `a[0], b[0], a[1], b[1], ..` of registers of `N` elements, in two registers.
    #[inline(always)]
    unsafe fn interleave<const N: usize>(a: __m128i, b: __m128i) -> [__m128i; 2] {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe {
            match N {
                16 => [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)],
                8 => [_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)],
                4 => [_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)],
                _ => [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)],
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod plain {
    /// Copies a square of `n` by `n` elements.
    ///
    /// # Safety
    /// All rows must be readable and writable.
    #[inline(always)]
    pub(crate) unsafe fn square<W: Copy>(from: *const W, from_stride: isize, to: *mut W, to_stride: usize, n: usize) {
        for i in 0..n {
            for j in 0..n {
                // SAFETY: the rows are as promised.
                unsafe { to.add(i * to_stride + j).write(from.offset(i as isize + j as isize * from_stride).read()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<W: Element + From<u8>>(size: [usize; 2]) {
        let ([rows, columns], from_stride, to_stride) = (size, size[0] + 3, size[1] + 2);
        let from: Vec<W> = (0..columns * from_stride).map(|i| W::from((i % 251) as u8)).collect();
        let mut to = vec![W::from(252); rows * to_stride];
        transpose_tile((&from, from_stride), (&mut to, to_stride), size);
        for (i, row) in to.chunks(to_stride).enumerate() {
            assert!((0..columns).all(|j| row[j] == from[j * from_stride + i]), "{rows} by {columns}");
            assert!(row[columns..].iter().all(|&x| x == W::from(252)), "{rows} by {columns}");
        }
    }

    #[test]
    fn tiles_are_transposed_and_nothing_else_is_written() {
        for size in [[64, 64], [16, 16], [17, 33], [5, 40], [40, 5], [0, 16], [16, 0], [48, 16]] {
            check::<f32>(size);
            check::<f64>(size);
            check::<u16>(size);
        }
    }
}
