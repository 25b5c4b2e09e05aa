//! A left operand that is packed once, before its products: where many blocks, or many products of a batch, read the same left blocks.

use std::ops::Range;

use super::blocking::{Blocking, even};
use super::operands::{Left, LeftBlock, pack_panels, panels_len};
use crate::base::pieces::pieces;
use crate::base::product::{Accumulator, MicroKernel};
use crate::threads::Threads;

/// The left blocks: part after part of the contracted axis, and in each part the left blocks of each block.
pub(in crate::kernels) struct PackedLeft<'a, A: Accumulator> {
    blocking: &'a Blocking<A>,
    blocks: &'a [A],
}

impl<A: Accumulator> Blocking<A> {
    /// Elements of the left operand, packed.
    pub(in crate::kernels) fn packed_left(&self) -> usize {
        self.depth.div_ceil(self.part.max(1)) * self.left_blocks() * self.left_block()
    }

    /// Packs the left operand. `pack` packs a panel of some rows and positions; its third argument is the stride of positions in the panel.
    pub(in crate::kernels) fn pack_left(
        &self,
        to: &mut [A],
        threads: &Threads,
        pack: impl Fn(Range<usize>, Range<usize>, usize, &mut [A]) + Send + Sync,
    ) {
        let blocks = self.left_blocks();
        threads.for_each_chunk(to, self.left_block(), |i, to| {
            let depth = i / blocks * self.part..self.depth.min((i / blocks + 1) * self.part);
            let rows = self.rows_of_left_block(i % blocks);
            if !rows.is_empty() {
                pack_panels(self.kernel, rows, depth.len(), to, |rows, to| {
                    pack(rows, depth.clone(), self.kernel.rows, to);
                });
            }
        });
    }

    /// The left operand that was packed into this memory.
    pub(in crate::kernels) fn packed<'a>(&'a self, blocks: &'a [A]) -> PackedLeft<'a, A> {
        PackedLeft { blocking: self, blocks }
    }

    /// Rows of a left block of a block with this many rows.
    pub(super) fn rows_of_left_blocks(&self, rows: usize) -> usize {
        even(rows, self.left_rows(), 1)
    }

    /// The number of left blocks of a block.
    fn left_blocks_of_block(&self) -> usize {
        self.block_rows.div_ceil(self.rows_of_left_blocks(self.block_rows))
    }

    fn left_blocks(&self) -> usize {
        self.rows.div_ceil(self.block_rows) * self.left_blocks_of_block()
    }

    /// Elements of the panels of a left block.
    fn left_block(&self) -> usize {
        panels_len(self.kernel, self.block_rows.min(self.left_rows()), self.part)
    }

    /// The rows of a block that begins with this one.
    fn rows_of_block(&self, first: usize) -> Range<usize> {
        first..self.rows.min(first + self.block_rows)
    }

    /// The rows of a left block; the last block may have fewer left blocks.
    fn rows_of_left_block(&self, i: usize) -> Range<usize> {
        let block = self.rows_of_block(i / self.left_blocks_of_block() * self.block_rows);
        let mut left_blocks = pieces(block.clone(), self.rows_of_left_blocks(block.len()));
        left_blocks.nth(i % self.left_blocks_of_block()).unwrap_or(0..0)
    }

    /// The left block that begins with a row.
    fn left_block_of_row(&self, row: usize) -> usize {
        let block = self.rows_of_block(row / self.block_rows * self.block_rows);
        let within = (row - block.start) / self.rows_of_left_blocks(block.len());
        row / self.block_rows * self.left_blocks_of_block() + within
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
        let blocking = self.blocking;
        let i = depth.start / blocking.part * blocking.left_blocks() + blocking.left_block_of_row(rows.start);
        LeftBlock::Packed(&self.blocks[i * blocking.left_block()..][..panels_len(kernel, rows.len(), depth.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    #[test]
    fn every_left_block_of_every_block_is_where_it_is_looked_for() {
        let kernel = f32::micro_kernel(Level::best());
        for [rows, block_rows, depth, part] in [[1, 1, 1, 1], [70, 70, 33, 8], [200, 64, 20, 20], [113, 49, 17, 6]] {
            let block = [block_rows, kernel.columns];
            let blocking = Blocking::with_sizes(kernel, 1, [rows, 1, depth], true, part, [part, block[1]], block, true);
            let number = |row: usize, position: usize| (row * depth + position + 1) as f32;
            let pack = |rows: Range<usize>, depth: Range<usize>, width: usize, to: &mut [f32]| {
                for (position, to) in depth.zip(to.chunks_exact_mut(width)) {
                    rows.clone().zip(to).for_each(|(row, to)| *to = number(row, position));
                }
            };
            let mut blocks = vec![0.0; blocking.packed_left()];
            blocking.pack_left(&mut blocks, &Threads::SERIAL, pack);
            let packed = blocking.packed(&blocks);
            for block in pieces(0..rows, block_rows) {
                for left_block in pieces(block.clone(), blocking.rows_of_left_blocks(block.len())) {
                    for part in pieces(0..depth, part) {
                        let found = packed.block(kernel, left_block.clone(), part.clone(), 1, &mut []);
                        let mut expected = vec![0.0; panels_len(kernel, left_block.len(), part.len())];
                        pack_panels(kernel, left_block.clone(), part.len(), &mut expected, |rows, to| {
                            pack(rows, part.clone(), kernel.rows, to);
                        });
                        assert!(matches!(found, LeftBlock::Packed(found) if found == expected));
                    }
                }
            }
        }
    }
}
