//! A left operand that is packed once, before its products: where many tiles, or many products of a batch, read the same blocks.

use std::ops::Range;

use super::cut::{Cut, even};
use super::operands::{Left, LeftBlock, pack_panels, panels_len};
use crate::base::pieces::pieces;
use crate::base::product::{Accumulator, MicroKernel};
use crate::threads::Threads;

/// The blocks of a left operand: part after part of the contracted dimension, and in each part the blocks that tiles read.
pub(in super::super) struct PackedLeft<'a, A: Accumulator> {
    cut: &'a Cut<A>,
    blocks: &'a [A],
}

impl<A: Accumulator> Cut<A> {
    /// Elements of the left operand, packed.
    pub(in super::super) fn packed_left(&self) -> usize {
        self.depth.div_ceil(self.part.max(1)) * self.left_blocks() * self.left_block()
    }

    /// Packs the left operand. `pack` packs a panel of some rows and positions; its third argument is the stride of positions in the panel.
    pub(in super::super) fn pack_left(
        &self,
        to: &mut [A],
        threads: &Threads,
        pack: impl Fn(Range<usize>, Range<usize>, usize, &mut [A]) + Send + Sync,
    ) {
        let blocks = self.left_blocks();
        threads.for_each_chunk(to, self.left_block(), |i, to| {
            let depth = i / blocks * self.part..self.depth.min((i / blocks + 1) * self.part);
            let rows = self.rows_of_block(i % blocks);
            if !rows.is_empty() {
                pack_panels(self.kernel, rows, depth.len(), to, |rows, to| {
                    pack(rows, depth.clone(), self.kernel.rows, to);
                });
            }
        });
    }

    /// The left operand that was packed into this memory.
    pub(in super::super) fn packed<'a>(&'a self, blocks: &'a [A]) -> PackedLeft<'a, A> {
        PackedLeft { cut: self, blocks }
    }

    /// Rows of a block in a tile with this many rows.
    pub(super) fn rows_of_blocks(&self, tile: usize) -> usize {
        even(tile, self.block_rows(), 1)
    }

    /// The number of blocks in a tile.
    fn blocks_of_tile(&self) -> usize {
        self.tile_rows.div_ceil(self.rows_of_blocks(self.tile_rows))
    }

    fn left_blocks(&self) -> usize {
        self.rows.div_ceil(self.tile_rows) * self.blocks_of_tile()
    }

    /// Elements of the panels of a block of a part.
    fn left_block(&self) -> usize {
        panels_len(self.kernel, self.tile_rows.min(self.block_rows()), self.part)
    }

    /// The rows of a tile that begins with this one.
    fn rows_of_tile(&self, first: usize) -> Range<usize> {
        first..self.rows.min(first + self.tile_rows)
    }

    /// The rows of a block; the last tile may have fewer blocks.
    fn rows_of_block(&self, block: usize) -> Range<usize> {
        let tile = self.rows_of_tile(block / self.blocks_of_tile() * self.tile_rows);
        let mut blocks = pieces(tile.clone(), self.rows_of_blocks(tile.len()));
        blocks.nth(block % self.blocks_of_tile()).unwrap_or(0..0)
    }

    /// The block that begins with a row.
    fn block_of_row(&self, row: usize) -> usize {
        let tile = self.rows_of_tile(row / self.tile_rows * self.tile_rows);
        let within = (row - tile.start) / self.rows_of_blocks(tile.len());
        row / self.tile_rows * self.blocks_of_tile() + within
    }
}

impl<A: Accumulator> Left<A> for PackedLeft<'_, A> {
    fn block<'a>(
        &'a self,
        kernel: &MicroKernel<A>,
        rows: Range<usize>,
        depth: Range<usize>,
        _: usize,
        _: &'a mut [A],
    ) -> LeftBlock<'a, A> {
        let cut = self.cut;
        let block = depth.start / cut.part * cut.left_blocks() + cut.block_of_row(rows.start);
        LeftBlock::Packed(&self.blocks[block * cut.left_block()..][..panels_len(kernel, rows.len(), depth.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    #[test]
    fn every_block_of_every_tile_is_where_it_is_looked_for() {
        let kernel = f32::micro_kernel(Level::best());
        for [rows, tile_rows, depth, part] in [[1, 1, 1, 1], [70, 70, 33, 8], [200, 64, 20, 20], [113, 49, 17, 6]] {
            let tile = [tile_rows, kernel.columns];
            let cut = Cut::with_sizes(kernel, 1, [rows, 1, depth], true, part, [part, tile[1]], tile, true);
            let number = |row: usize, position: usize| (row * depth + position + 1) as f32;
            let pack = |rows: Range<usize>, depth: Range<usize>, width: usize, to: &mut [f32]| {
                for (position, to) in depth.zip(to.chunks_exact_mut(width)) {
                    rows.clone().zip(to).for_each(|(row, to)| *to = number(row, position));
                }
            };
            let mut blocks = vec![0.0; cut.packed_left()];
            cut.pack_left(&mut blocks, &Threads::SERIAL, pack);
            let packed = cut.packed(&blocks);
            for tile in pieces(0..rows, tile_rows) {
                for block in pieces(tile.clone(), cut.rows_of_blocks(tile.len())) {
                    for part in pieces(0..depth, part) {
                        let found = packed.block(kernel, block.clone(), part.clone(), 1, &mut []);
                        let mut expected = vec![0.0; panels_len(kernel, block.len(), part.len())];
                        pack_panels(kernel, block.clone(), part.len(), &mut expected, |rows, to| {
                            pack(rows, part.clone(), kernel.rows, to);
                        });
                        assert!(matches!(found, LeftBlock::Packed(found) if found == expected));
                    }
                }
            }
        }
    }
}
