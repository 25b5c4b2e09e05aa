//! Products of large matrices, block by block.
//!
//! The right operand is cut into *strips* of columns. A strip is packed as panels of a tile's width over the whole contracted
//! dimension. Then blocks of rows are multiplied with it: a block of the left operand is packed over a part of the contracted
//! dimension, and each of its panels meets each panel of the strip in a tile. How the sums are grouped depends on the size of
//! the matrices alone.

// Tiles are written through pointers, since blocks of several threads lie between each other.
#![allow(unsafe_code)]

use std::ops::Range;

use super::pack::{Left, Right};
use super::tile::{Accumulator, Tiles, panel_len};
use crate::simd::Level;
use crate::threads::Threads;

/// Numbers in a strip, so that it stays in the last level of the cache; if a panel over the whole contracted dimension is
/// larger, the strip is that panel.
const STRIP: usize = 1 << 20;

/// Most columns of a strip. More would not make the packing of the left operand any cheaper beside its use.
const STRIP_COLUMNS: usize = 512;

/// Rows that are packed at a time: a multiple of the rows of every tile.
pub(super) const BLOCK_ROWS: usize = 48;

/// A product of two matrices.
pub(in super::super) struct Product<'a, A: 'static, L, R> {
    pub(super) left: &'a L,
    pub(super) right: &'a R,
    pub(super) depth: usize,
    pub(super) tiles: &'static Tiles<A>,
}

/// How much memory a product of this size takes while it is computed, in numbers.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sizes {
    /// Columns of a strip.
    pub(super) strip_columns: usize,
    /// A strip.
    pub(super) strip: usize,
    /// The panels of a block of rows.
    pub(super) panels: usize,
}

impl Sizes {
    pub(in super::super) fn new<A: Accumulator>(rows: usize, columns: usize, depth: usize) -> Sizes {
        let tiles = A::tiles(Level::best());
        let whole = columns.next_multiple_of(tiles.columns);
        let fits = STRIP / depth.max(1) / tiles.columns * tiles.columns;
        let strip_columns = fits.clamp(tiles.columns, STRIP_COLUMNS).min(whole);
        let panels = rows.min(BLOCK_ROWS).div_ceil(tiles.rows) * panel_len(tiles);
        Sizes { strip_columns, strip: strip_columns * depth, panels }
    }
}

impl<'a, A: Accumulator, L: Left<A>, R: Right<A>> Product<'a, A, L, R> {
    pub(in super::super) fn new(left: &'a L, right: &'a R, depth: usize) -> Product<'a, A, L, R> {
        Product { left, right, depth, tiles: A::tiles(Level::best()) }
    }

    /// Packs a strip.
    pub(in super::super) fn pack(&self, columns: Range<usize>, strip: &mut [A], threads: &Threads) {
        let size = self.tiles.columns;
        let panels = columns.len().div_ceil(size);
        threads.for_each_chunk(&mut strip[..panels * size * self.depth], size * self.depth, |i, panel| {
            let first = columns.start + i * size;
            self.right.pack(self.tiles, first..columns.end.min(first + size), panel);
        });
    }

    /// Multiplies rows, at most [`BLOCK_ROWS`], with a packed strip of so many columns, and writes the products to `out`,
    /// whose rows are `stride` apart.
    ///
    /// # Safety
    /// `out` is valid for reading and writing these rows and columns, and nobody else has access to them meanwhile.
    pub(in super::super) unsafe fn multiply(
        &self,
        rows: Range<usize>,
        strip: &[A],
        columns: usize,
        panels: &mut [A],
        out: *mut A,
        stride: usize,
    ) {
        let (tiles, order, panel) = (self.tiles, self.left.order(), panel_len(self.tiles));
        assert!(strip.len() >= columns.next_multiple_of(tiles.columns) * self.depth);
        assert!(panels.len() >= rows.len().div_ceil(tiles.rows) * panel);
        let parts = self.depth.div_ceil(A::DEPTH);
        let step = self.depth.div_ceil(parts.max(1)).max(1);
        for from in (0..self.depth).step_by(step) {
            let depth = from..self.depth.min(from + step);
            self.left.pack(tiles, rows.clone(), depth.clone(), panels);
            for j in (0..columns).step_by(tiles.columns) {
                let right = &strip[j * self.depth + from * tiles.columns..];
                let width = tiles.columns.min(columns - j);
                for (i, left) in (0..rows.len()).step_by(tiles.rows).zip(panels.chunks_exact(panel)) {
                    let height = tiles.rows.min(rows.len() - i);
                    // SAFETY: the tile has no more rows and columns than the block has from here on, which the caller
                    // promises; the panels were packed for this depth, and are long enough (checked); the tiles are those of
                    // a level that this CPU has.
                    unsafe {
                        let out = out.add(i * stride + j);
                        let tile = tiles.version(order, height, width);
                        tile(depth.len(), left.as_ptr(), right.as_ptr(), out, stride, height, width, from > 0);
                    }
                }
            }
        }
    }
}
