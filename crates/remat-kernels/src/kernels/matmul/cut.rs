//! How products of matrices are cut into tasks, and what scratch memory they need.

use super::operands::block_len;
use crate::base::product::{Accumulator, MicroKernel};
use crate::base::{cache, scratch};

/// The contracted dimension is taken in parts of this length at most. (Parts of 256 to 512 positions measured the same, longer ones within
/// 1 %: docs/EXPERIMENTS.md, "Micro-kernels of our own".)
pub(super) const PART: usize = 512;

/// Parts of the contracted dimension are a multiple of this.
const PART_MULTIPLE: usize = 8;

/// Elements of a strip that all threads share, so that it stays in the last level of the cache: 4 MiB of f32.
const STRIP: usize = 1 << 20;

/// Most columns of such a strip. With more columns, threads wait less often for each other; with fewer, the part of the contracted
/// dimension for which products are written once is longer. (1024 columns took 0.97 of the time of 512, and 2048 gained nothing:
/// docs/EXPERIMENTS.md, "Micro-kernels of our own".)
const STRIP_COLUMNS: usize = 1024;

/// Most rows of a tile with its own strips. A panel is used once for each block of them.
const TILE_ROWS: usize = 512;

/// Most columns of such a tile. A part of its strip is then at most 512 KiB of f32.
const TILE_COLUMNS: usize = 256;

/// Rows of the left operand that are packed at a time where the second-level cache is small. They stay there, and each panel of the right
/// operand comes into it once for all of them: 96 KiB of f32. They are whole panels of every micro-kernel (4, 6, 8 or 12 rows).
const BLOCK_ROWS: usize = 48;

/// How many such blocks are packed at a time, for elements of this size: two where they take at most two thirds of the second-level cache,
/// else one. (Measured in docs/EXPERIMENTS.md, "The next panel of products of several parts".)
fn blocks_in_cache(cache: usize, element: usize) -> usize {
    (cache / (3 * BLOCK_ROWS * PART * element)).clamp(1, 2)
}

/// Whether a block of the left operand and a panel of the right one, of these bytes, fit the second-level cache together with the next
/// ones. (Measured in docs/EXPERIMENTS.md, "Packing of f32 panels".)
fn fits_with_next(cache: usize, [block, panel]: [usize; 2]) -> bool {
    2 * (block + panel) <= cache
}

/// Most rows of a tile that shares its strips: two such blocks, the most that are packed at a time.
const SHARED_ROWS: usize = 96;

/// Fewest tiles of such a strip.
const SHARED_TILES: usize = 8;

/// Fewest multiplications of a task: some ten microseconds of a thread with AVX-512, so that handing it out costs little in comparison.
const TASK: usize = 1 << 20;

/// Fewest multiplications for which it is worth that threads wait for each other.
pub(in super::super) const SHARED: usize = 1 << 23;

/// This many tasks keep all threads busy.
pub(in super::super) const MANY: usize = 16;

/// How a batch of products of matrices of one size is cut into tasks.
pub(in super::super) struct Cut<A: Accumulator> {
    pub(super) kernel: &'static MicroKernel<A>,
    pub(super) batch: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    /// The length of a part of the contracted dimension.
    pub(super) part: usize,
    pub(super) strip_depth: usize,
    pub(super) strip_columns: usize,
    pub(super) tile_rows: usize,
    pub(super) tile_columns: usize,
    /// Tiles that one task computes with its own strips; if `None`, all tasks share each strip.
    pub(super) together: Option<usize>,
    /// Whether products are written without conversion.
    pub(super) direct: bool,
}

/// The length of equal pieces: at most `most`, and a multiple of `multiple`.
pub(in super::super) fn even(len: usize, most: usize, multiple: usize) -> usize {
    let len = len.max(1);
    len.div_ceil(len.div_ceil(most.max(multiple))).next_multiple_of(multiple).min(len)
}

impl<A: Accumulator> Cut<A> {
    /// How `batch` products of `rows` by `depth` and `depth` by `columns` elements are cut. They are written without conversion if
    /// `direct`.
    pub(in super::super) fn new(
        kernel: &'static MicroKernel<A>,
        batch: usize,
        shape: [usize; 3],
        direct: bool,
    ) -> Cut<A> {
        let [rows, columns, depth] = shape;
        let [height, width] = [kernel.rows, kernel.columns];
        let part = even(depth, PART, PART_MULTIPLE);
        let work = |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(depth).max(1);
        if batch < MANY && work(rows, columns) >= SHARED {
            let strip_depth = if direct { even(depth, STRIP / columns.min(STRIP_COLUMNS), part) } else { depth };
            let strip_columns = even(columns, (STRIP / strip_depth / width * width).min(STRIP_COLUMNS), width);
            // A number of tiles of equal height that two or four threads can share evenly.
            let count = rows.div_ceil(SHARED_ROWS.max(height));
            let tile_rows = rows.div_ceil(count.next_multiple_of(if count < 4 { 1 } else { 4 }));
            let across = SHARED_TILES.div_ceil(rows.div_ceil(tile_rows)).max(1);
            let tile_columns = even(strip_columns, strip_columns / across, width);
            let (strip, tile) = ([strip_depth, strip_columns], [tile_rows, tile_columns]);
            return Cut::with_sizes(kernel, batch, shape, direct, part, strip, tile, false);
        }
        let mut tile_rows = even(rows, TILE_ROWS, height);
        let mut tile_columns = even(columns, TILE_COLUMNS, width);
        let tiles = |tile_rows, tile_columns| batch * rows.div_ceil(tile_rows) * columns.div_ceil(tile_columns);
        while tiles(tile_rows, tile_columns) < MANY && work(tile_rows, tile_columns) >= 2 * TASK {
            if tile_rows >= tile_columns && tile_rows > BLOCK_ROWS {
                tile_rows = even(rows, tile_rows / 2, height);
            } else if tile_columns > width {
                tile_columns = even(columns, tile_columns / 2, width);
            } else {
                break;
            }
        }
        let most = tiles(tile_rows, tile_columns).max(1);
        let together = Some((TASK / work(tile_rows, tile_columns)).clamp(1, most));
        let (strip, tile) = ([part, tile_columns], [tile_rows, tile_columns]);
        Cut { together, ..Cut::with_sizes(kernel, batch, shape, direct, part, strip, tile, true) }
    }

    /// The same, where the caller knows good sizes: of the parts of the contracted dimension, of strips (a multiple of a part), and of
    /// tiles. If `alone`, strips have the columns of a tile, and each task has its own.
    pub(in super::super) fn with_sizes(
        kernel: &'static MicroKernel<A>,
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        direct: bool,
        part: usize,
        [strip_depth, strip_columns]: [usize; 2],
        [tile_rows, tile_columns]: [usize; 2],
        alone: bool,
    ) -> Cut<A> {
        let together = alone.then_some(1);
        Cut {
            kernel,
            batch,
            rows,
            columns,
            depth,
            part,
            strip_depth,
            strip_columns,
            tile_rows,
            tile_columns,
            together,
            direct,
        }
    }

    /// Bytes of scratch memory for a run on `threads` threads, a multiple of 64.
    pub(in super::super) fn scratch(&self, threads: usize) -> usize {
        let strip = scratch::bytes::<A>(self.strip());
        if self.together.is_some() {
            threads * (strip + self.of_thread())
        } else {
            strip + scratch::bytes::<A>(self.kept_sums()) + threads * self.of_thread()
        }
    }

    /// Bytes of scratch memory for each thread, besides strips.
    pub(super) fn of_thread(&self) -> usize {
        scratch::bytes::<A>(self.block()) + scratch::bytes::<A>(self.sums())
    }

    /// Tiles of all products.
    pub(super) fn tiles(&self) -> usize {
        self.batch * self.rows.div_ceil(self.tile_rows) * self.columns.div_ceil(self.tile_columns)
    }

    /// Elements of a strip.
    pub(super) fn strip(&self) -> usize {
        let columns = self.strip_columns.next_multiple_of(self.kernel.columns);
        self.strip_depth.min(self.depth) * columns
    }

    /// Most rows of a block of the left operand.
    pub(super) fn block_rows(&self) -> usize {
        (blocks_in_cache(cache::second_level(), size_of::<A>()) * BLOCK_ROWS / self.kernel.rows).max(1)
            * self.kernel.rows
    }

    /// Whether the part of the left operand that is packed next is prefetched while a block is multiplied.
    pub(super) fn fetches(&self) -> bool {
        let panel = self.kernel.columns * self.part;
        fits_with_next(cache::second_level(), [self.block(), panel].map(|elements| elements * size_of::<A>()))
    }

    /// Elements of a block of the left operand.
    pub(super) fn block(&self) -> usize {
        block_len(self.kernel, self.tile_rows.min(self.block_rows()), self.part)
    }

    /// Sums of a tile, if they are converted when written, and not kept.
    pub(super) fn sums(&self) -> usize {
        if self.direct || self.kept_sums() > 0 { 0 } else { self.tile_rows * self.tile_columns }
    }

    /// Sums of all tiles of a strip, if they are converted when written and are summed over several strips that all tasks share.
    pub(super) fn kept_sums(&self) -> usize {
        if self.direct || self.together.is_some() || self.strip_depth >= self.depth {
            return 0;
        }
        let tiles = self.rows.div_ceil(self.tile_rows) * self.strip_columns.div_ceil(self.tile_columns);
        tiles * self.tile_rows * self.tile_columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Caches of 256 KiB (Haswell), 512 KiB (Zen 2), 1 MiB (Zen 4 and 5, Skylake) and 2 MiB (Sapphire Rapids), and elements of 4 and 8 bytes.
    #[test]
    fn blocks_fit_in_the_second_level_cache() {
        for (kibibytes, element, blocks, fetches) in [
            (256, 4, 1, false),
            (512, 4, 1, true),
            (1024, 4, 2, true),
            (2048, 4, 2, true),
            (256, 8, 1, false),
            (1024, 8, 1, true),
            (2048, 8, 2, true),
        ] {
            let cache = kibibytes << 10;
            assert_eq!(blocks_in_cache(cache, element), blocks, "{kibibytes} KiB, {element} bytes");
            // A panel of 128 bytes for each position.
            let bytes = [blocks * BLOCK_ROWS * PART * element, 128 * PART];
            assert_eq!(fits_with_next(cache, bytes), fetches, "{kibibytes} KiB, {element} bytes");
        }
    }
}
