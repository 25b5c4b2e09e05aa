//! Lines of elements of an image, which may begin or end outside of it.

// Elements are read and written through pointers, since both may lie apart.
#![allow(unsafe_code)]

use std::ops::Range;

use super::im2col::{intersection, part_inside};
use crate::base::product::Accumulator;
use crate::kernels::matmul::Elements;
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// Lines of as many elements each. Those that are outside of the image are zeros.
pub(super) struct Lines {
    /// The offset of the first element of the first line, whether it is inside or not.
    pub(super) at: isize,
    /// The distances in memory between lines and between the elements of one.
    pub(super) steps: [isize; 2],
    pub(super) count: usize,
    pub(super) len: usize,
    /// Where the first element goes.
    pub(super) to: usize,
    /// The distances between lines and between the elements of one where they go.
    pub(super) to_steps: [usize; 2],
    /// The lines that are inside.
    pub(super) lines: Range<usize>,
    /// The part of each line that is inside.
    pub(super) inside: Range<usize>,
    /// Where both lines and elements run along one dimension: the coordinate of the first element, what a step skips between
    /// lines and between elements, and the size of the dimension.
    pub(super) shared: Option<(i64, [u64; 2], usize)>,
}

/// Elements that are converted at a time, where they do not go side by side.
const CHUNK: usize = 64;

/// Numbers that are copied at a time.
const LANES: usize = 8;

/// Copies lines.
pub(super) fn copy_lines<A: Accumulator>(elements: &Elements<'_, A>, lines: &Lines, to: &mut [A]) {
    if lines.count == 0 || lines.len == 0 {
        return;
    }
    let last = lines.to + (lines.count - 1) * lines.to_steps[0] + (lines.len - 1) * lines.to_steps[1];
    assert!(last < to.len());
    let is_whole = lines.shared.is_none() && lines.lines == (0..lines.count) && lines.inside == (0..lines.len);
    if !is_whole {
        zeros(lines, to);
    }
    let Some((x, [between, along], size)) = lines.shared else { return copy_box(elements, lines, to) };
    // Most lines are inside from beginning to end.
    let reach = (lines.len as u64 - 1).saturating_mul(along).min(size as u64) as usize;
    let whole = intersection(&lines.lines, part_inside(x, between, size - reach, lines.count));
    let inside = |i: usize| {
        let x = x.wrapping_add((i as i64).wrapping_mul(between as i64));
        intersection(&lines.inside, part_inside(x, along, size, lines.len))
    };
    for i in (lines.lines.start..whole.start).chain(whole.end..lines.lines.end) {
        copy_box(elements, &Lines { lines: i..i + 1, inside: inside(i), shared: None, ..*lines }, to);
    }
    copy_box(elements, &Lines { lines: whole, inside: lines.inside.clone(), shared: None, ..*lines }, to);
}

/// Writes zeros to what is outside.
fn zeros<A: Accumulator>(lines: &Lines, to: &mut [A]) {
    let Lines { len, inside, .. } = lines;
    for i in 0..lines.count {
        let to = &mut to[lines.to + i * lines.to_steps[0]..];
        let is_inside = lines.shared.is_none() && lines.lines.contains(&i);
        let parts = if is_inside { [0..inside.start, inside.end..*len] } else { [0..*len, 0..0] };
        for j in parts.into_iter().flatten() {
            to[j * lines.to_steps[1]] = A::default();
        }
    }
}

/// Copies the part of some lines that is inside, which is the same in all.
fn copy_box<A: Accumulator>(elements: &Elements<'_, A>, lines: &Lines, to: &mut [A]) {
    let (count, len) = (lines.lines.len(), lines.inside.len());
    if count == 0 || len == 0 {
        return;
    }
    let at = lines.at.wrapping_add(lines.steps[0].wrapping_mul(lines.lines.start as isize));
    let at = at.wrapping_add(lines.steps[1].wrapping_mul(lines.inside.start as isize));
    let first = lines.to + lines.lines.start * lines.to_steps[0] + lines.inside.start * lines.to_steps[1];
    let to = &mut to[first..];
    if let Some(from) = elements.numbers() {
        return copy_numbers(from, at, lines.steps, [count, len], to, lines.to_steps);
    }
    for i in 0..count {
        let (at, to) = (at + i as isize * lines.steps[0], &mut to[i * lines.to_steps[0]..]);
        if lines.to_steps[1] == 1 {
            elements.read(at, lines.steps[1], &mut to[..len]);
            continue;
        }
        let mut chunk = [A::default(); CHUNK];
        for first in (0..len).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(len - first)];
            elements.read(at + first as isize * lines.steps[1], lines.steps[1], chunk);
            let to = to[first * lines.to_steps[1]..].iter_mut().step_by(lines.to_steps[1]);
            to.zip(chunk).for_each(|(to, &mut x)| *to = x);
        }
    }
}

/// Copies `count` lines of `len` numbers each, of which there is at least one, from the offset `at` on and between these
/// distances of lines and of numbers.
fn copy_numbers<A: Accumulator>(
    from: &[A],
    at: isize,
    steps: [isize; 2],
    [count, len]: [usize; 2],
    to: &mut [A],
    to_steps: [usize; 2],
) {
    // The first and the last number of the first and of the last line, and with them all between, are in the slice.
    let (across, along) = ((count - 1) as isize * steps[0], (len - 1) as isize * steps[1]);
    let is_in = |at: isize| at >= 0 && (at as usize) < from.len();
    assert!(is_in(at) && is_in(at + across) && is_in(at + along) && is_in(at + across + along));
    assert!((count - 1) * to_steps[0] + (len - 1) * to_steps[1] < to.len());
    let to_steps = to_steps.map(|step| step as isize);
    // SAFETY: all numbers that are read are in `from` and all that are written are in `to` (checked).
    unsafe { copy::<A>(Level::best())([count, len], from.as_ptr().offset(at), steps, to.as_mut_ptr(), to_steps) }
}

multiversion! {
    /// The function that copies lines of numbers: of so many lines and numbers in a line, between these distances of lines and
    /// of numbers. All must be valid for reading, and where they go for writing, and the one may not overlap with the other.
    pub(super) fn copy<A: Copy>(level: Level) -> unsafe fn(
        shape: [usize; 2],
        from: *const A,
        steps: [isize; 2],
        to: *mut A,
        to_steps: [isize; 2],
    ) {
        let [count, len] = shape;
        for i in 0..count as isize {
            // SAFETY: these are numbers of the line.
            unsafe {
                let (from, to) = (from.offset(i * steps[0]), to.offset(i * to_steps[0]));
                match (steps[1], to_steps[1]) {
                    (1, 1) if len >= LANES => copy_neighbours(from, to, len),
                    (1, 1) => copy_line(from, 1, to, 1, len),
                    (-1, 1) => copy_line(from, -1, to, 1, len),
                    (2, 1) => copy_line(from, 2, to, 1, len),
                    (step, 1) => copy_line(from, step, to, 1, len),
                    (1, 2) => copy_line(from, 1, to, 2, len),
                    (step, to_step) => copy_line(from, step, to, to_step, len),
                }
            }
        }
    }
}

/// Copies at least [`LANES`] numbers that lie side by side. Lines are so short that a call would take as long, and that the CPU
/// does not foresee that the same line of the next box is read next.
///
/// # Safety
/// They are valid for reading, and where they go for writing.
#[inline(always)]
unsafe fn copy_neighbours<A: Copy>(from: *const A, to: *mut A, len: usize) {
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

/// Copies numbers that are `step` and `to_step` apart.
///
/// # Safety
/// They are valid for reading, and where they go for writing.
#[inline(always)]
unsafe fn copy_line<A: Copy>(from: *const A, step: isize, to: *mut A, to_step: isize, len: usize) {
    for i in 0..len as isize {
        // SAFETY: as the caller promises.
        unsafe { to.offset(i * to_step).write(from.offset(i * step).read()) };
    }
}
