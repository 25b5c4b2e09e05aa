//! Packs elements into panels.
//!
//! The rows of a left operand's tile are words of neighbours along the contracted axis. A right operand's tile is the transpose, as a
//! matrix of words. There are two ways to read: rows whose elements are neighbours, or columns, which are interleaved. If the way to read
//! does not fit the side, the words are transposed afterwards.

// Elements are read through pointers, since their distances are checked once for all panels.
#![allow(unsafe_code)]

use super::part::Part;
use super::transpose::{Transpose, transpose};
use super::{GROUP, PANEL, TILE};
use crate::simd::{CACHE_LINE, Level, multiversion, prefetch};

/// An operand of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A part of an operand: element `i` of the free dimension and `j` of the contracted one is at index `start + i * free + j * contracted`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<'a, N> {
    pub(crate) elements: &'a [N],
    pub(crate) start: isize,
    pub(crate) free: isize,
    pub(crate) contracted: isize,
}

/// Rows of a tile.
const ROWS: usize = 16;

/// Neighbouring tiles for which columns are read at a time: four panels, so that several neighbouring cache lines are read for each index
/// of the contracted axis.
const STRIP: usize = 8;

/// Where tiles are written: the tiles of a group next to each other, plane by plane, then group by group, then panel by panel.
#[derive(Clone, Copy)]
struct Panels {
    to: *mut u32,
    side: Side,
    /// Words from the beginning of a panel to that of the next.
    panel: usize,
    transpose: Transpose,
}

/// Packs `rows` rows (of a right operand: columns) of `depth` elements into panels of [`PANEL`] rows, which begin `panel` words apart.
///
/// # Panics
/// If an element is outside of the operand, or the panels are too short for the groups of `depth` elements.
pub(crate) fn pack<N: Part>(from: Strided<'_, N>, rows: usize, depth: usize, side: Side, to: &mut [u32], panel: usize) {
    let [tiles, groups] = [rows.div_ceil(PANEL) * PANEL / ROWS, depth.div_ceil(N::PER_GROUP)];
    if rows == 0 || depth == 0 {
        return;
    }
    assert!((rows.div_ceil(PANEL) - 1) * panel + groups * N::planes(side) * GROUP <= to.len());
    let last = [(rows, from.free), (depth, from.contracted)].map(|(n, stride)| (n as isize - 1) * stride);
    let first = from.start + last[0].min(0) + last[1].min(0);
    assert!(first >= 0 && from.start + last[0].max(0) + last[1].max(0) < from.elements.len() as isize);
    // SAFETY: the first element is in the operand, as are all others (checked).
    let start = unsafe { from.elements.as_ptr().offset(from.start) };
    let level = Level::best();
    let panels = Panels { to: to.as_mut_ptr(), side, panel, transpose: transpose(level) };
    // Tiles and groups that are whole.
    let whole = match (from.free, from.contracted) {
        (_, 1) | (1, _) => [rows / ROWS, depth / N::PER_GROUP],
        _ => [0, 0],
    };
    // SAFETY: the elements at these strides are in the operand, and the panels have room for them (both checked).
    unsafe {
        match (from.free, from.contracted) {
            (free, 1) => pack_rows::<N>(level)(start, free, whole, panels, [0, 0]),
            (1, contracted) => pack_columns::<N>(level)(start, contracted, whole, panels),
            _ => {}
        }
    }
    for tile in 0..tiles {
        for group in if tile < whole[0] { whole[1] } else { 0 }..groups {
            let mut gathered = [[N::default(); 64]; ROWS];
            let first = [tile * ROWS, group * N::PER_GROUP];
            let depth = first[1]..depth.min(first[1] + N::PER_GROUP);
            for (row, to) in (first[0]..rows.max(first[0])).zip(&mut gathered) {
                for (j, to) in depth.clone().zip(to) {
                    // SAFETY: the element is in the operand (checked).
                    *to = unsafe { start.offset(row as isize * from.free + j as isize * from.contracted).read() };
                }
            }
            // SAFETY: there are this many rows, long enough, and there is a tile for them.
            unsafe { pack_rows::<N>(level)(gathered.as_ptr().cast(), 64, [1, 1], panels, [tile, group]) };
        }
    }
}

impl Panels {
    /// The offset of the tile of some group.
    #[inline(always)]
    fn at<N: Part>(&self, tile: usize, group: usize) -> *mut u32 {
        let offset = group * N::planes(self.side) * GROUP;
        self.to.wrapping_add(tile / 2 * self.panel + offset + tile % 2 * TILE)
    }

    /// Transposes the words of a tile, and writes it.
    ///
    /// # Safety
    /// There is memory for the tile at `to`.
    #[inline(always)]
    unsafe fn put_transposed<N: Part>(&self, words: &[[u32; 16]; ROWS], to: *mut u32) {
        // SAFETY: both have the words of a tile.
        unsafe {
            if !N::IS_SPLIT {
                return (self.transpose)(words.as_ptr().cast(), to);
            }
            let mut transposed = [[0; 16]; ROWS];
            (self.transpose)(words.as_ptr().cast(), transposed.as_mut_ptr().cast());
            for (i, &words) in transposed.iter().enumerate() {
                self.put::<N>(words, to.add(16 * i));
            }
        }
    }

    /// Writes a row of a tile.
    ///
    /// # Safety
    /// There is memory for the row in each plane, the first at `to`.
    #[inline(always)]
    unsafe fn put<N: Part>(&self, words: [u32; 16], to: *mut u32) {
        let planes = N::of_planes(words, self.side);
        for (i, words) in planes.into_iter().enumerate().take(N::planes(self.side)) {
            // SAFETY: as the caller promises.
            unsafe { to.add(i * GROUP).cast::<[u32; 16]>().write_unaligned(words) };
        }
    }
}

multiversion! {
    /// The function that packs rows whose elements are neighbours: `size` tiles and groups, beginning with the tile and group `first`.
    /// `from` must be valid for reading these rows, `stride` apart, and the panels for writing the tiles.
    fn pack_rows<N: Part>(level: Level) -> unsafe fn(
        from: *const N,
        stride: isize,
        size: [usize; 2],
        panels: Panels,
        first: [usize; 2],
    ) {
        let mut natural = [[0; 16]; ROWS];
        for tile in 0..size[0] {
            for group in 0..size[1] {
                let to = panels.at::<N>(first[0] + tile, first[1] + group);
                // SAFETY: these are elements of the rows and words of the panels.
                unsafe {
                    let from = from.offset((tile * ROWS) as isize * stride).add(group * N::PER_GROUP);
                    for (i, natural) in natural.iter_mut().enumerate() {
                        // The next tile. Only a few cache lines of each of its rows are read, far apart.
                        prefetch(from.wrapping_offset((ROWS + i) as isize * stride).cast());
                        let words = N::row(from.offset(i as isize * stride));
                        match panels.side {
                            Side::Left => panels.put::<N>(words, to.add(16 * i)),
                            Side::Right => *natural = words,
                        }
                    }
                    if panels.side == Side::Right {
                        panels.put_transposed::<N>(&natural, to);
                    }
                }
            }
        }
    }
}

multiversion! {
    /// The function that packs columns whose elements are neighbours across: `size` tiles and groups. For each index of the contracted
    /// axis, `from` must be valid for reading the neighbours of all tiles, `stride` apart, and the panels for writing the tiles.
    fn pack_columns<N: Part>(level: Level) -> unsafe fn(from: *const N, stride: isize, size: [usize; 2], panels: Panels) {
        let [tiles, groups] = size;
        let mut natural = [[[0; 16]; ROWS]; STRIP];
        for first in (0..tiles).step_by(STRIP) {
            let strip = STRIP.min(tiles - first);
            for group in 0..groups {
                for word in 0..16 {
                    let index = group * N::PER_GROUP + word * N::PER_WORD;
                    let from = from.wrapping_offset(index as isize * stride).wrapping_add(first * ROWS);
                    // The next group: rows that are far apart are not a pattern that the CPU predicts.
                    for i in 0..N::PER_WORD {
                        let ahead = from.wrapping_offset((N::PER_GROUP + i) as isize * stride).cast::<u8>();
                        for line in (0..strip * ROWS * size_of::<N>()).step_by(CACHE_LINE) {
                            prefetch(ahead.wrapping_add(line));
                        }
                    }
                    for (tile, natural) in natural[..strip].iter_mut().enumerate() {
                        // SAFETY: these are elements of the operand and words of the panels.
                        unsafe {
                            let words = N::column(from.add(tile * ROWS), stride);
                            match panels.side {
                                Side::Left => natural[word] = words,
                                Side::Right => panels.put::<N>(words, panels.at::<N>(first + tile, group).add(16 * word)),
                            }
                        }
                    }
                }
                if panels.side == Side::Left {
                    for (i, natural) in natural[..strip].iter().enumerate() {
                        // SAFETY: as above.
                        unsafe { panels.put_transposed::<N>(natural, panels.at::<N>(first + i, group)) };
                    }
                }
            }
        }
    }
}
