//! Row segments of an image, which may begin or end outside of it.

// Elements are read and written through pointers, since both may lie apart.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::product::Accumulator;
use crate::kernels::matmul::Elements;
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// Row segments of one length. Elements outside of the image are zeros.
pub(super) struct RowSegments {
    /// The offset of the first element of the first segment, whether it is inside or not.
    pub(super) at: isize,
    /// The strides between segments and within one.
    pub(super) strides: [isize; 2],
    pub(super) count: usize,
    pub(super) len: usize,
    /// The offset of the first element where they are copied to.
    pub(super) to: usize,
    /// The strides between segments and within one where they are copied to.
    pub(super) to_strides: [usize; 2],
    /// The segments that are inside.
    pub(super) segments: Range<usize>,
    /// The part of each segment that is inside.
    pub(super) inside: Range<usize>,
    /// If segments and their elements run along one dimension: the coordinate of the first element, the distances between
    /// segments and between elements, and the size of the dimension.
    pub(super) shared: Option<(i64, [u64; 2], usize)>,
}

/// Elements that are converted at a time, if they are not neighbours where they are copied to.
const CHUNK: usize = 64;

/// Numbers that are copied at a time, of four bytes or more, and of fewer.
const LANES: usize = 8;
const NARROW_LANES: usize = 16;

/// The elements of an array, from which segments are copied.
pub(super) trait Array: Copy {
    /// What they are copied as.
    type Number: Copy + Default;

    /// The elements, where they are such numbers.
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

/// Elements that are copied as they are.
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
    let RowSegments { len, inside, .. } = segments;
    for i in 0..segments.count {
        let to = &mut to[segments.to + i * segments.to_strides[0]..];
        let is_inside = segments.shared.is_none() && segments.segments.contains(&i);
        let parts = if is_inside { [0..inside.start, inside.end..*len] } else { [0..*len, 0..0] };
        for j in parts.into_iter().flatten() {
            to[j * segments.to_strides[1]] = N::default();
        }
    }
}

/// Copies the part of some segments that is inside, which is the same in all.
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
    // The first and the last number of the first and of the last segment, and with them all between, are in the slice.
    let (across, along) = ((count - 1) as isize * strides[0], (len - 1) as isize * strides[1]);
    let is_in = |at: isize| at >= 0 && (at as usize) < from.len();
    assert!(is_in(at) && is_in(at + across) && is_in(at + along) && is_in(at + across + along));
    assert!((count - 1) * to_strides[0] + (len - 1) * to_strides[1] < to.len());
    let to_strides = to_strides.map(|stride| stride as isize);
    // SAFETY: all numbers that are read are in `from` and all that are written are in `to` (checked).
    unsafe { copy::<N>(Level::best())([count, len], from.as_ptr().offset(at), strides, to.as_mut_ptr(), to_strides) }
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
        let [count, len] = shape;
        for i in 0..count as isize {
            // SAFETY: these are numbers of the segment.
            unsafe {
                let (from, to) = (from.offset(i * strides[0]), to.offset(i * to_strides[0]));
                match (strides[1], to_strides[1]) {
                    (1, 1) if size_of::<A>() < 4 && len >= NARROW_LANES => {
                        copy_neighbours::<A, NARROW_LANES>(from, to, len);
                    }
                    (1, 1) if len >= LANES => copy_neighbours::<A, LANES>(from, to, len),
                    (1, 1) => copy_segment(from, 1, to, 1, len),
                    (-1, 1) => copy_segment(from, -1, to, 1, len),
                    (2, 1) => copy_segment(from, 2, to, 1, len),
                    (stride, 1) => copy_segment(from, stride, to, 1, len),
                    (1, 2) => copy_segment(from, 1, to, 2, len),
                    (stride, to_stride) => copy_segment(from, stride, to, to_stride, len),
                }
            }
        }
    }
}

/// Copies at least `LANES` neighbours. Segments are so short that a call would take as long, and that the CPU does not foresee
/// that the next segment is read next.
///
/// # Safety
/// All are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn copy_neighbours<A: Copy, const LANES: usize>(from: *const A, to: *mut A, len: usize) {
    let last = len - LANES;
    for i in (0..last).step_by(CACHE_LINE / size_of::<A>()) {
        prefetch(from.wrapping_add(len + i).cast());
    }
    // The last lanes overlap with those before.
    for i in (0..last).step_by(LANES).chain([last]) {
        // SAFETY: as the caller promises.
        unsafe { to.add(i).cast::<[A; LANES]>().write_unaligned(from.add(i).cast::<[A; LANES]>().read_unaligned()) };
    }
}

/// Copies numbers that are `stride` and `to_stride` apart.
///
/// # Safety
/// All are valid for reading at `from` and for writing at `to`.
#[inline(always)]
unsafe fn copy_segment<A: Copy>(from: *const A, stride: isize, to: *mut A, to_stride: isize, len: usize) {
    for i in 0..len as isize {
        // SAFETY: as the caller promises.
        unsafe { to.offset(i * to_stride).write(from.offset(i * stride).read()) };
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
