//! Bands of an image: words of two features each.

// Elements are read and written through pointers, since both may have gaps.
#![allow(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use super::super::direct::Along;
use super::super::row_segments::part_inside;
use crate::simd::{CACHE_LINE, Level, multiversion};

/// Words of a cache line.
const LINE: usize = CACHE_LINE / size_of::<u32>();

/// The part of an image that a step reads for some rows of positions. It has a *plane* for each pair of features and each row and column
/// phase of the stride in which windows have elements. In a plane, neighbouring positions are neighbours.
///
/// The zeros right of a row are also those left of the next row, as far as both need them.
#[derive(Clone, Debug)]
pub(super) struct Band {
    rows: Along,
    columns: Along,
    /// The numbers of rows of positions, pairs of features, and rows of the window of the band.
    positions: usize,
    pairs: usize,
    window: usize,
    /// The row and column phases of the stride.
    phases: [SmallVec<[usize; 4]>; 2],
    /// Words of a row, the stride of rows, and the stride of planes.
    row: usize,
    pub(super) pitch: usize,
    plane: usize,
}

/// The phases of the stride, of rows or columns, in which windows of this many elements have some.
fn phases(along: &Along, window: usize) -> SmallVec<[usize; 4]> {
    // From the stride on, they repeat.
    let mut all: SmallVec<[usize; 4]> = (0..window.min(along.stride))
        .map(|k| k.checked_mul(along.dilation).map_or(0, |at| at % along.stride))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Band {
    /// The band for this many rows of positions, pairs of features, and rows of the window.
    pub(super) fn new([rows, columns]: [Along; 2], positions: usize, pairs: usize, window: usize) -> Band {
        let phases = [phases(&rows, window), phases(&columns, columns.window)];
        let row = columns.positions + (columns.window - 1) * columns.dilation / columns.stride;
        let shared = phases[1].iter().map(|&phase| {
            let inside = part_inside(columns.first(0) + phase as i64, columns.stride as u64, columns.image, row);
            inside.start.min(row - inside.end)
        });
        let pitch = row - shared.min().unwrap_or(0).min(row - columns.positions);
        let band = Band { rows, columns, positions, pairs, window, phases, row, pitch, plane: 0 };
        // An odd number of cache lines, so that planes do not fall into one set of the cache.
        let plane = (band.plane_rows(positions, window) - 1).saturating_mul(pitch).saturating_add(row);
        Band { plane: (plane / LINE / 2 * 2 + 1).saturating_mul(LINE).max(plane), ..band }
    }

    /// Rows of a plane for this many rows of positions and of the window.
    fn plane_rows(&self, positions: usize, window: usize) -> usize {
        positions + (window - 1) * self.rows.dilation / self.rows.stride
    }

    /// Planes of a pair.
    fn planes(&self) -> usize {
        self.phases[0].len() * self.phases[1].len()
    }

    /// Words of the band.
    pub(super) fn len(&self) -> usize {
        [self.pairs, self.planes(), self.plane].into_iter().fold(1, usize::saturating_mul)
    }

    /// The offset of each element of the window from a position: pair by pair, and row by row.
    pub(super) fn offsets(&self) -> Vec<u32> {
        let (pairs, window) = (self.pairs, self.window);
        let mut offsets = Vec::with_capacity(pairs * window * self.columns.window);
        let phase = |i: usize, at: usize, stride: usize| self.phases[i].partition_point(|&phase| phase < at % stride);
        for (pair, y) in (0..pairs).flat_map(|pair| (0..window).map(move |y| (pair, y * self.rows.dilation))) {
            for x in (0..self.columns.window).map(|x| x * self.columns.dilation) {
                let of_row = phase(0, y, self.rows.stride) * self.phases[1].len();
                let plane = pair * self.planes() + of_row + phase(1, x, self.columns.stride);
                let at = plane * self.plane + y / self.rows.stride * self.pitch + x / self.columns.stride;
                offsets.push(at as u32);
            }
        }
        offsets
    }

    /// Whether neighbouring rows of positions are neighbours in planes, as with windows of one column.
    pub(super) fn is_flat(&self) -> bool {
        self.pitch == self.columns.positions
    }

    /// Copies the band of some rows of positions. The elements begin at `start`, the `features` of them are `stride` apart, and the window
    /// begins with row `first`.
    ///
    /// # Panics
    /// If an element is outside of the image, or the band has another length.
    pub(super) fn copy(
        &self,
        image: &[u16],
        (start, stride): (isize, isize),
        features: usize,
        positions: &Range<usize>,
        window: &Range<usize>,
        to: &mut [u32],
    ) {
        assert!(to.len() == self.len() && positions.len() <= self.positions && window.len() <= self.window);
        let pairs = features.div_ceil(2);
        assert!(pairs <= self.pairs);
        let copy = copy_rows(Level::best());
        for (i, phase) in self.phases[0].iter().enumerate() {
            for row in 0..self.plane_rows(positions.len(), window.len()) {
                let y = self.rows.first(positions.start)
                    + (window.start * self.rows.dilation + phase + row * self.rows.stride) as i64;
                let is_inside = (0..self.rows.image as i64).contains(&y);
                for (j, phase) in self.phases[1].iter().enumerate() {
                    let x = self.columns.first(0) + *phase as i64;
                    let all = part_inside(x, self.columns.stride as u64, self.columns.image, self.row);
                    let inside = if is_inside { all } else { 0..0 };
                    let element = (self.columns.stride as isize).wrapping_mul(self.columns.element);
                    let at = (y as isize).wrapping_mul(self.rows.element).wrapping_add(start);
                    let at = at.wrapping_add((x as isize).wrapping_mul(self.columns.element));
                    let first = at.wrapping_add(element.wrapping_mul(inside.start as isize));
                    if !inside.is_empty() {
                        let ends = [(features as isize - 1) * stride, (inside.len() as isize - 1) * element];
                        let low = first + ends[0].min(0) + ends[1].min(0);
                        let high = first + ends[0].max(0) + ends[1].max(0);
                        assert!(low >= 0 && high < image.len() as isize);
                    }
                    let to_row = (i * self.phases[1].len() + j) * self.plane + row * self.pitch;
                    let to_stride = self.planes() * self.plane;
                    assert!((pairs - 1) * to_stride + to_row + self.row <= to.len());
                    // SAFETY: the elements are the image's and the words the band's (both checked).
                    unsafe {
                        let to = to.as_mut_ptr().add(to_row);
                        copy(
                            image.as_ptr().wrapping_offset(first),
                            [stride, element],
                            features,
                            inside,
                            (to, to_stride),
                            self.row,
                        );
                    }
                }
            }
        }
    }
}

multiversion! {
    /// The function that writes rows of `len` words. The words at `inside` are pairs of two features each, the others zeros. `from` is the
    /// first element inside of the first feature, `strides` are those of features and of elements. The row of the next pair begins `to.1`
    /// words later.
    fn copy_rows(level: Level) -> unsafe fn(
        from: *const u16,
        strides: [isize; 2],
        features: usize,
        inside: Range<usize>,
        to: (*mut u32, usize),
        len: usize,
    ) {
        for pair in 0..features.div_ceil(2) {
            let to = to.0.wrapping_add(pair * to.1);
            let first = from.wrapping_offset(2 * pair as isize * strides[0]);
            // SAFETY: these are elements of the image and words of the row, as the caller promises.
            unsafe {
                for i in (0..inside.start).chain(inside.end..len) {
                    to.add(i).write(0);
                }
                let (to, count) = (to.add(inside.start), inside.len());
                if 2 * pair + 1 < features {
                    pairs_of::<true>([first, first.wrapping_offset(strides[0])], strides[1], to, count);
                } else {
                    pairs_of::<false>([first; 2], strides[1], to, count);
                }
            }
        }
    }
}

/// Writes `len` words of the elements of two features. If both are the same feature, the other half of each word is zero.
///
/// # Safety
/// The elements, `stride` apart, are valid for reading, and the words for writing.
#[inline(always)]
unsafe fn pairs_of<const TWO: bool>(from: [*const u16; 2], stride: isize, to: *mut u32, len: usize) {
    // SAFETY, of all: as the caller promises.
    let at = |i: usize| from.map(|from| from.wrapping_add(i));
    let neighbours_at = |i: usize| unsafe { neighbours::<1, TWO>(at(2 * i), to.add(i)) };
    match (stride, len) {
        (1, 16..) => {
            for i in (0..len - 16).step_by(16).chain([len - 16]) {
                unsafe { neighbours::<16, TWO>(at(i), to.add(i)) };
            }
        }
        (1, 8..) => [0, len - 8].into_iter().for_each(|i| unsafe { neighbours::<8, TWO>(at(i), to.add(i)) }),
        (1, 4..) => [0, len - 4].into_iter().for_each(|i| unsafe { neighbours::<4, TWO>(at(i), to.add(i)) }),
        // The last word is read alone, since no element may follow it.
        (2, 17..) => {
            for i in (0..len - 17).step_by(16).chain([len - 17]) {
                unsafe { every_second::<16, TWO>(at(2 * i), to.add(i)) };
            }
            neighbours_at(len - 1);
        }
        (2, 9..) => {
            [0, len - 9].into_iter().for_each(|i| unsafe { every_second::<8, TWO>(at(2 * i), to.add(i)) });
            neighbours_at(len - 1);
        }
        _ => {
            for i in 0..len {
                let from = from.map(|from| from.wrapping_offset(i as isize * stride));
                unsafe { neighbours::<1, TWO>(from, to.add(i)) };
            }
        }
    }
}

/// `N` words of neighbouring elements.
///
/// # Safety
/// As [`pairs_of`].
#[inline(always)]
unsafe fn neighbours<const N: usize, const TWO: bool>(from: [*const u16; 2], to: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe {
        let [first, second] = from.map(|from| from.cast::<[u16; N]>().read_unaligned());
        let high = |i: usize| if TWO { u32::from(second[i]) << 16 } else { 0 };
        let words: [u32; N] = std::array::from_fn(|i| u32::from(first[i]) | high(i));
        to.cast::<[u32; N]>().write_unaligned(words);
    }
}

/// `N` words of every second element.
///
/// # Safety
/// As [`pairs_of`], and one more element of both is valid for reading.
#[inline(always)]
unsafe fn every_second<const N: usize, const TWO: bool>(from: [*const u16; 2], to: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe {
        let [first, second] = from.map(|from| from.cast::<[u32; N]>().read_unaligned());
        let high = |i: usize| if TWO { u32::from_le(second[i]) << 16 } else { 0 };
        let words: [u32; N] = std::array::from_fn(|i| u32::from_le(first[i]) & 0xffff | high(i));
        to.cast::<[u32; N]>().write_unaligned(words);
    }
}
