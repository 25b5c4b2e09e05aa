//! Weights packed as panels: for each pair of input features and each element of the window, the words of some output features.

// Elements are read through pointers, since offsets are checked once for a panel.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::narrow::{PANEL, Transpose, transpose};
use crate::simd::{Level, multiversion, prefetch};

/// Output features, and elements of the window, that are packed at a time.
const TILE: usize = 16;

/// How many elements ahead a long window is prefetched.
const AHEAD: isize = 128;

/// The weights of one group, in any layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// The offset of the first weight.
    pub(super) start: isize,
    /// The strides of output features, of input features, and of rows and columns of the window.
    pub(super) strides: [isize; 4],
    /// Columns of the window.
    pub(super) columns: usize,
}

/// Columns of a panel of this many features.
pub(super) fn width(features: usize) -> usize {
    if features > TILE { PANEL } else { TILE }
}

impl Weights {
    /// Packs the panel of some output features, at most [`PANEL`], for some input features and rows of the window. `start` is the offset of
    /// the group's first weight.
    ///
    /// # Panics
    /// If a weight is outside of the elements, or the panel has another length.
    pub(super) fn pack(
        &self,
        elements: &[u16],
        start: isize,
        features: Range<usize>,
        summed: Range<usize>,
        rows: Range<usize>,
        to: &mut [u32],
    ) {
        let width = width(features.len());
        assert!(to.len() == summed.len().div_ceil(2) * rows.len() * self.columns * width);
        let [of_feature, of_summed, row, column] = self.strides;
        let at = |range: &Range<usize>, stride: isize| range.start as isize * stride;
        let start = self.start + start + at(&features, of_feature) + at(&summed, of_summed) + at(&rows, row);
        let sizes = [features.len(), summed.len(), rows.len(), self.columns];
        let reach = |end: fn(isize) -> isize| -> isize {
            sizes.iter().zip(self.strides).map(|(&size, stride)| end((size as isize - 1) * stride)).sum()
        };
        assert!(start + reach(|x| x.min(0)) >= 0 && start + reach(|x| x.max(0)) < elements.len() as isize);
        let level = Level::best();
        // Windows whose elements lie close together are transposed, and dense ones piece by piece.
        let is_dense = (rows.len() == 1 || row == column * self.columns as isize) && column.abs() == 1;
        let window = Window { rows: rows.len(), columns: self.columns, strides: [row, column] };
        let halves = [features.len().min(TILE), features.len().saturating_sub(TILE)];
        for (half, &count) in halves.iter().enumerate().take(width / TILE) {
            let first = start + (half * TILE) as isize * of_feature;
            let tile = Tile { features: count, summed: summed.len(), width, transpose: transpose(level) };
            let to = to[half * TILE..].as_mut_ptr();
            let from = elements.as_ptr().wrapping_offset(first);
            // SAFETY: the first and the last weight are elements (checked), and so are all between them; the panel has these words.
            unsafe {
                if (window.span() < TILE || is_dense) && count == TILE && window.len() > 1 {
                    let elements = (elements.as_ptr(), elements.len());
                    pack_windows(level)(elements, first, [of_feature, of_summed], window, tile, to);
                } else {
                    pack_apart(level)(from, [of_feature, of_summed], window, tile, to);
                }
            }
        }
    }
}

/// The rows and columns of a window.
#[derive(Clone, Copy)]
struct Window {
    rows: usize,
    columns: usize,
    strides: [isize; 2],
}

impl Window {
    fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// The offset of an element.
    #[inline(always)]
    fn at(&self, i: usize) -> isize {
        (i / self.columns) as isize * self.strides[0] + (i % self.columns) as isize * self.strides[1]
    }

    /// The distance from the first to the last element in memory.
    fn span(&self) -> usize {
        let [row, column] = self.strides.map(isize::unsigned_abs);
        ((self.rows - 1).saturating_mul(row)).saturating_add((self.columns - 1).saturating_mul(column))
    }
}

/// The half of a panel's words that is packed.
#[derive(Clone, Copy)]
struct Tile {
    features: usize,
    summed: usize,
    width: usize,
    transpose: Transpose,
}

multiversion! {
    /// The function that packs weights by transposing neighbours: those of a window, or of each [`TILE`] elements of it. `strides` are
    /// those of output features and of input features.
    fn pack_windows(level: Level) -> unsafe fn(
        elements: (*const u16, usize),
        start: isize,
        strides: [isize; 2],
        window: Window,
        tile: Tile,
        to: *mut u32,
    ) {
        let mut natural = [[0u32; TILE]; TILE];
        let mut transposed = [[0u32; TILE]; TILE];
        // A short span may have more elements than that: a broadcast window has one address for several.
        let step = window.len().min(TILE);
        for first in (0..window.len()).step_by(step) {
            let count = step.min(window.len() - first);
            // The position of each element among the neighbours.
            let low = (first..first + count).map(|i| window.at(i)).min().unwrap_or(0);
            let mut lanes = [0; TILE];
            lanes[..count].iter_mut().enumerate().for_each(|(i, lane)| *lane = (window.at(first + i) - low) as usize);
            let most = lanes.iter().max().map_or(0, |lane| lane + 1);
            for pair in 0..tile.summed.div_ceil(2) {
                let has_second = 2 * pair + 1 < tile.summed;
                for (i, natural) in natural.iter_mut().enumerate() {
                    let at = start + i as isize * strides[0] + 2 * pair as isize * strides[1] + low;
                    // SAFETY: these are weights, as the caller promises, and elements behind them where there are any.
                    unsafe {
                        // Rows that are far apart are not a pattern that the CPU predicts.
                        for at in [at, at + strides[1]] {
                            prefetch(elements.0.wrapping_offset(at + AHEAD).cast());
                        }
                        let first = sixteen(elements, at, most);
                        let second = if has_second { sixteen(elements, at + strides[1], most) } else { [0; TILE] };
                        *natural = std::array::from_fn(|i| u32::from(first[i]) | u32::from(second[i]) << 16);
                    }
                }
                // SAFETY: both are tiles, and these are words of the panel, as the caller promises.
                unsafe {
                    (tile.transpose)(natural.as_ptr().cast(), transposed.as_mut_ptr().cast());
                    for (i, &lane) in lanes[..count].iter().enumerate() {
                        let to = to.add((pair * window.len() + first + i) * tile.width);
                        to.cast::<[u32; TILE]>().write_unaligned(transposed[lane % TILE]);
                    }
                }
            }
        }
    }
}

/// `count` elements, padded with others that follow them.
///
/// # Safety
/// The elements are in the array, of which the first element and the length are given.
#[inline(always)]
unsafe fn sixteen((elements, len): (*const u16, usize), at: isize, count: usize) -> [u16; TILE] {
    let from = elements.wrapping_offset(at);
    // SAFETY: as the caller promises.
    unsafe {
        if at as usize + TILE <= len {
            return from.cast::<[u16; TILE]>().read_unaligned();
        }
        let mut some = [0; TILE];
        from.copy_to_nonoverlapping(some.as_mut_ptr(), count);
        some
    }
}

multiversion! {
    /// The function that packs weights one by one, or together where output features are neighbours.
    fn pack_apart(level: Level) -> unsafe fn(
        from: *const u16,
        strides: [isize; 2],
        window: Window,
        tile: Tile,
        to: *mut u32,
    ) {
        let mut to = to;
        for pair in 0..tile.summed.div_ceil(2) {
            let has_second = 2 * pair + 1 < tile.summed;
            for (y, x) in (0..window.rows).flat_map(|y| (0..window.columns).map(move |x| (y, x))) {
                let of_window = y as isize * window.strides[0] + x as isize * window.strides[1];
                let at = 2 * pair as isize * strides[1] + of_window;
                // SAFETY: these are weights and words of the panel, as the caller promises.
                unsafe {
                    let from = from.offset(at);
                    let mut words = [0u32; TILE];
                    if strides[0] == 1 && tile.features == TILE && has_second {
                        let [first, second] = [0, strides[1]].map(|at| from.offset(at).cast::<[u16; TILE]>().read_unaligned());
                        words = std::array::from_fn(|i| u32::from(first[i]) | u32::from(second[i]) << 16);
                    } else {
                        for (i, word) in words[..tile.features].iter_mut().enumerate() {
                            let from = from.offset(i as isize * strides[0]);
                            let second = if has_second { from.offset(strides[1]).read() } else { 0 };
                            *word = u32::from(from.read()) | u32::from(second) << 16;
                        }
                    }
                    to.cast::<[u32; TILE]>().write_unaligned(words);
                    to = to.wrapping_add(tile.width);
                }
            }
        }
    }
}
