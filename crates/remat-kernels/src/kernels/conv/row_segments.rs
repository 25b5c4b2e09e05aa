//! Row segments of an image, which may begin or end outside of it.

// Elements are read and written through pointers, since both sides may have gaps.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use crate::base::product::Accumulator;
use crate::kernels::matmul::Elements;
#[cfg(target_arch = "x86_64")]
use crate::simd::Instructions;
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// Row segments of one length. Elements outside of the image are zeros.
pub(super) struct RowSegments {
    /// The offset of the first element of the first segment, whether it is inside or not.
    pub(super) at: isize,
    /// The strides between segments and within one.
    pub(super) strides: [isize; 2],
    pub(super) count: usize,
    pub(super) len: usize,
    /// The offset of the first element in the destination.
    pub(super) to: usize,
    /// The strides in the destination, between segments and within one.
    pub(super) to_strides: [usize; 2],
    /// The segments that are inside.
    pub(super) segments: Range<usize>,
    /// The part of each segment that is inside.
    pub(super) inside: Range<usize>,
    /// If segments and their elements run along one axis: the coordinate of the first element, the distances between
    /// segments and between elements, and the size of the dimension.
    pub(super) shared: Option<(i64, [u64; 2], usize)>,
}

/// Elements that are converted at a time, if they are not neighbours in the destination.
const CHUNK: usize = 64;

/// Neighbours that are copied at a time, of long segments.
const LANES: usize = 16;

/// The elements of an array, from which segments are copied.
pub(super) trait Array: Copy {
    /// The type to which they are copied.
    type Number: Copy + Default;

    /// The elements, if they have this type already.
    fn numbers(&self) -> Option<&[Self::Number]>;

    /// Reads `to.len()` elements that are `stride` apart, the first at `start`.
    fn read(&self, start: isize, stride: isize, to: &mut [Self::Number]);
}

impl<A: Accumulator> Array for Elements<'_, A> {
    type Number = A;

    fn numbers(&self) -> Option<&[A]> {
        Elements::numbers(self)
    }

    fn read(&self, start: isize, stride: isize, to: &mut [A]) {
        Elements::read(self, start, stride, to);
    }
}

/// Elements that are copied without conversion.
impl<N: Copy + Default> Array for &[N] {
    type Number = N;

    fn numbers(&self) -> Option<&[N]> {
        Some(self)
    }

    fn read(&self, start: isize, stride: isize, to: &mut [N]) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = self[(start + i as isize * stride) as usize];
        }
    }
}

/// Copies segments.
pub(super) fn copy_segments<E: Array>(elements: &E, segments: &RowSegments, to: &mut [E::Number]) {
    if segments.count == 0 || segments.len == 0 {
        return;
    }
    let last =
        segments.to + (segments.count - 1) * segments.to_strides[0] + (segments.len - 1) * segments.to_strides[1];
    assert!(last < to.len());
    let is_whole =
        segments.shared.is_none() && segments.segments == (0..segments.count) && segments.inside == (0..segments.len);
    if !is_whole {
        zeros(segments, to);
    }
    let Some((x, [between, along], size)) = segments.shared else { return copy_inside(elements, segments, to) };
    // Most segments are inside from beginning to end.
    let reach = (segments.len as u64 - 1).saturating_mul(along).min(size as u64) as usize;
    let whole = intersection(&segments.segments, part_inside(x, between, size - reach, segments.count));
    let inside = |i: usize| {
        let x = x.wrapping_add((i as i64).wrapping_mul(between as i64));
        intersection(&segments.inside, part_inside(x, along, size, segments.len))
    };
    for i in (segments.segments.start..whole.start).chain(whole.end..segments.segments.end) {
        copy_inside(elements, &RowSegments { segments: i..i + 1, inside: inside(i), shared: None, ..*segments }, to);
    }
    copy_inside(
        elements,
        &RowSegments { segments: whole, inside: segments.inside.clone(), shared: None, ..*segments },
        to,
    );
}

/// Writes zeros for the elements outside.
fn zeros<N: Copy + Default>(segments: &RowSegments, to: &mut [N]) {
    let RowSegments { count, len, to_strides, .. } = *segments;
    let inside = if segments.shared.is_none() { segments.segments.clone() } else { 0..0 };
    let mut fill = |rows: Range<usize>, part: Range<usize>| {
        for (i, j) in rows.flat_map(|i| part.clone().map(move |j| (i, j))) {
            to[segments.to + i * to_strides[0] + j * to_strides[1]] = N::default();
        }
    };
    for rows in [0..inside.start, inside.end..count] {
        fill(rows, 0..len);
    }
    for part in [0..segments.inside.start, segments.inside.end..len] {
        fill(inside.clone(), part);
    }
}

/// Copies the part of some segments that is inside of the image; it is the same part in all of them.
fn copy_inside<E: Array>(elements: &E, segments: &RowSegments, to: &mut [E::Number]) {
    let (count, len) = (segments.segments.len(), segments.inside.len());
    if count == 0 || len == 0 {
        return;
    }
    let at = segments.at.wrapping_add(segments.strides[0].wrapping_mul(segments.segments.start as isize));
    let at = at.wrapping_add(segments.strides[1].wrapping_mul(segments.inside.start as isize));
    let first =
        segments.to + segments.segments.start * segments.to_strides[0] + segments.inside.start * segments.to_strides[1];
    let to = &mut to[first..];
    if let Some(from) = elements.numbers() {
        return copy_numbers(from, at, segments.strides, [count, len], to, segments.to_strides);
    }
    for i in 0..count {
        let (at, to) = (at + i as isize * segments.strides[0], &mut to[i * segments.to_strides[0]..]);
        if segments.to_strides[1] == 1 {
            elements.read(at, segments.strides[1], &mut to[..len]);
            continue;
        }
        let mut chunk = [E::Number::default(); CHUNK];
        for first in (0..len).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(len - first)];
            elements.read(at + first as isize * segments.strides[1], segments.strides[1], chunk);
            let to = to[first * segments.to_strides[1]..].iter_mut().step_by(segments.to_strides[1]);
            to.zip(chunk).for_each(|(to, &mut x)| *to = x);
        }
    }
}

/// Copies `count` segments of `len` numbers each, neither of which is zero, from the offset `at` on, with these strides of
/// segments and of numbers.
fn copy_numbers<N: Copy>(
    from: &[N],
    at: isize,
    strides: [isize; 2],
    [count, len]: [usize; 2],
    to: &mut [N],
    to_strides: [usize; 2],
) {
    // The first and the last number of the first and the last segment, and so all between them, are in the slice.
    let (across, along) = ((count - 1) as isize * strides[0], (len - 1) as isize * strides[1]);
    let is_in = |at: isize| at >= 0 && (at as usize) < from.len();
    assert!(is_in(at) && is_in(at + across) && is_in(at + along) && is_in(at + across + along));
    assert!((count - 1) * to_strides[0] + (len - 1) * to_strides[1] < to.len());
    let to_strides = to_strides.map(|stride| stride as isize);
    // SAFETY: all numbers that are read are in `from` and all that are written are in `to` (checked).
    unsafe {
        let copy = copy_function::<N>([strides[1], to_strides[1]]);
        copy([count, len], from.as_ptr().offset(at), strides, to.as_mut_ptr(), to_strides)
    }
}

/// A function that copies row segments: their number and length, and the first element and the strides, between segments and within
/// one, of both sides.
///
/// # Safety
/// All elements are valid for reading at the first and for writing at the second pointer, without overlap.
type CopyFn<A> = unsafe fn([usize; 2], *const A, [isize; 2], *mut A, [isize; 2]);

/// The best function for segments with these strides.
pub(super) fn copy_function<A: Copy>(strides: [isize; 2]) -> CopyFn<A> {
    let level = Level::best();
    #[cfg(target_arch = "x86_64")]
    if strides == [1, 2] && size_of::<A>() == size_of::<i32>() && level.instructions() == Instructions::Avx512 {
        return copy_to_every_second::<A>;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = strides;
    copy::<A>(level)
}

/// As [`copy`], from neighbouring elements of four bytes to every second one, several at a time.
///
/// # Safety
/// As [`CopyFn`], and the CPU has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_to_every_second<A: Copy>(
    [count, len]: [usize; 2],
    from: *const A,
    strides: [isize; 2],
    to: *mut A,
    to_strides: [isize; 2],
) {
    let spread = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for i in 0..count as isize {
        let (from, to) = (from.wrapping_offset(i * strides[0]), to.wrapping_offset(i * to_strides[0]));
        for j in (0..len).step_by(8) {
            let n = (len - j).min(8);
            // SAFETY: only lanes of elements that the caller promises are read and written.
            unsafe {
                let x = _mm512_maskz_loadu_epi32((1 << n) - 1, from.add(j).cast());
                let even = (0x5555 & ((1u32 << (2 * n)) - 1)) as __mmask16;
                _mm512_mask_storeu_epi32(to.wrapping_add(2 * j).cast(), even, _mm512_permutexvar_epi32(spread, x));
            }
        }
    }
}

multiversion! {
    /// The function that copies row segments: their number and length, and the first element and the strides, between segments
    /// and within one, of both sides. All must be valid for reading at `from` and for writing at `to`, without overlap.
    pub(super) fn copy<A: Copy>(level: Level) -> unsafe fn(
        shape: [usize; 2],
        from: *const A,
        strides: [isize; 2],
        to: *mut A,
        to_strides: [isize; 2],
    ) {
        // SAFETY: the caller promises these numbers.
        unsafe {
            match (strides[1], to_strides[1]) {
                (1, 1) => {}
                (-1, 1) => return copy_apart::<A, false>(shape, from, [strides[0], -1], to, [to_strides[0], 1]),
                (2, 1) => return copy_apart::<A, false>(shape, from, [strides[0], 2], to, [to_strides[0], 1]),
                _ => return copy_apart::<A, true>(shape, from, strides, to, to_strides),
            }
            match shape[1] {
                0 => {}
                1 => copy_ends::<A, 1>(shape, from, strides, to, to_strides),
                2..4 => copy_ends::<A, 2>(shape, from, strides, to, to_strides),
                4..8 => copy_ends::<A, 4>(shape, from, strides, to, to_strides),
                8..16 => copy_ends::<A, 8>(shape, from, strides, to, to_strides),
                16..32 => copy_ends::<A, 16>(shape, from, strides, to, to_strides),
                _ => copy_long(shape, from, strides, to, to_strides),
            }
        }
    }
}

/// Copies segments of `N` to `2 * N` neighbours: the first and the last `N` of each, which may overlap. So short segments need no loops or
/// branches.
///
/// # Safety
/// All are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn copy_ends<A: Copy, const N: usize>(
    [count, len]: [usize; 2],
    from: *const A,
    strides: [isize; 2],
    to: *mut A,
    to_strides: [isize; 2],
) {
    for i in 0..count as isize {
        let (from, to) = (from.wrapping_offset(i * strides[0]), to.wrapping_offset(i * to_strides[0]));
        // SAFETY: as the caller promises.
        unsafe {
            from.copy_to_nonoverlapping(to, N);
            from.add(len - N).copy_to_nonoverlapping(to.add(len - N), N);
        }
    }
}

/// Copies segments of at least [`LANES`] neighbours. A call for each segment would take as long as the copy, and the CPU would not predict
/// that the next segment is read next.
///
/// # Safety
/// As [`copy_ends`].
#[inline(always)]
unsafe fn copy_long<A: Copy>(
    [count, len]: [usize; 2],
    from: *const A,
    strides: [isize; 2],
    to: *mut A,
    to_strides: [isize; 2],
) {
    let last = len - LANES;
    for i in 0..count as isize {
        let (from, to) = (from.wrapping_offset(i * strides[0]), to.wrapping_offset(i * to_strides[0]));
        for i in (0..last).step_by(CACHE_LINE / size_of::<A>()) {
            prefetch(from.wrapping_offset(strides[0]).wrapping_add(i).cast());
        }
        // The last lanes overlap with those before.
        for i in (0..last).step_by(LANES).chain([last]) {
            // SAFETY: as the caller promises.
            unsafe { from.add(i).copy_to_nonoverlapping(to.add(i), LANES) };
        }
    }
}

/// Copies numbers with gaps, one by one if `SCALAR`. Otherwise the compiler may use gather and scatter, which take several cycles for each
/// number on many CPUs.
///
/// # Safety
/// As [`copy_ends`].
#[inline(always)]
unsafe fn copy_apart<A: Copy, const SCALAR: bool>(
    [count, len]: [usize; 2],
    from: *const A,
    strides: [isize; 2],
    to: *mut A,
    to_strides: [isize; 2],
) {
    for i in 0..count as isize {
        let (from, to) = (from.wrapping_offset(i * strides[0]), to.wrapping_offset(i * to_strides[0]));
        for j in 0..len as isize {
            // SAFETY: as the caller promises.
            unsafe {
                let (x, to) = (from.offset(j * strides[1]).read(), to.offset(j * to_strides[1]));
                // The compiler does not vectorise volatile writes.
                if SCALAR { to.write_volatile(x) } else { to.write(x) }
            }
        }
    }
}

/// The intersection of two ranges. An empty one begins in the first.
pub(super) fn intersection(a: &Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start).min(a.end);
    start..a.end.min(b.end).max(start)
}

/// Which of `len` coordinates, the first at `x` and `skip` apart, are neither negative nor as large as the size.
pub(super) fn part_inside(x: i64, skip: u64, size: usize, len: usize) -> Range<usize> {
    let below = |end: usize| {
        let gap = if x < 0 { end as u64 + x.unsigned_abs() } else { (end as u64).saturating_sub(x as u64) };
        gap.div_ceil(skip).min(len as u64) as usize
    };
    below(0)..below(size)
}
