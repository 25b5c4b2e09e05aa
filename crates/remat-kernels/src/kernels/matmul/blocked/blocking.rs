//! How products of matrices are cut into tasks, and what scratch memory they need.
//!
//! The levels, with BLIS's letters for their sizes:
//!
//! - a *register tile*: MR by NR sums of the micro-kernel ([`MicroKernel::rows`], [`MicroKernel::columns`]);
//! - a *block*: the rows and columns of the result that one task computes at a time;
//! - a *part*: KC positions of the contracted axis;
//! - a *left block*: MC rows of a part of the left operand, packed into panels of MR rows;
//! - a *strip*: NC columns of one or several parts of the right operand, packed into panels of NR columns.

use super::operands::block_len;
use crate::base::product::{Accumulator, MicroKernel};
use crate::base::{cache, scratch};

/// The contracted axis is taken in parts of this length at most. (Parts of 256 positions take up to 3 % longer, longer ones changed less
/// than 1 %: docs/EXPERIMENTS.md, "Packing of f32 panels" and "Micro-kernels of our own".)
pub(in crate::kernels::matmul) const PART: usize = 512;

/// Parts of the contracted axis are a multiple of this.
const PART_MULTIPLE: usize = 8;

/// Elements of a strip that all threads share, so that it stays in the last level of the cache: 4 MiB of f32.
const STRIP: usize = 1 << 20;

/// Most columns of such a strip. With more columns, threads wait less often for each other; with fewer, the part of the contracted
/// axis for which products are written once is longer. (1024 columns took 0.97 of the time of 512, and 2048 gained nothing:
/// docs/EXPERIMENTS.md, "Micro-kernels of our own".)
const STRIP_COLUMNS: usize = 1024;

/// Most rows of a block with its own strips. A panel is used once for each left block of them.
const BLOCK_ROWS: usize = 512;

/// Most columns of such a block. A part of its strip is then at most 512 KiB of f32.
const BLOCK_COLUMNS: usize = 256;

/// Rows of the left operand that are packed at a time where the second-level cache is small. They stay there, and each panel of the right
/// operand comes into it once for all of them: 96 KiB of f32. They are whole panels of every micro-kernel (4, 6, 8 or 12 rows).
const LEFT_ROWS: usize = 48;

/// Most rows of a left block, for elements of this size: twice as many where these take at most a third of the second-level cache.
/// (Measured in docs/EXPERIMENTS.md, "The next panel of products of several parts".)
fn most_left_rows(cache: usize, element: usize) -> usize {
    LEFT_ROWS * (cache / (3 * LEFT_ROWS * PART * element)).clamp(1, 2)
}

/// Whether a left block and a panel of the right operand, of these bytes, fit the second-level cache together with the next
/// ones. (Measured in docs/EXPERIMENTS.md, "Packing of f32 panels".)
fn fits_with_next(cache: usize, [block, panel]: [usize; 2]) -> bool {
    2 * (block + panel) <= cache
}

/// Most rows of a block that shares its strips: twice [`LEFT_ROWS`], the most that are packed at a time.
const SHARED_ROWS: usize = 96;

/// Fewest blocks of such a strip.
const SHARED_BLOCKS: usize = 8;

/// The number of threads for which [`Blocking::new`] chooses blocks that share strips. More threads get smaller ones.
const FEW_THREADS: usize = 4;

/// Fewest panels of rows of the smaller blocks, for which a panel of the right operand is read, and fewest panels of columns, for which a
/// left block is packed.
const LEAST_PANELS: [usize; 2] = [2, 4];

/// What a block costs besides its multiplications, for each of its rows and columns at a position of the contracted axis, in the
/// multiplications that a core with two vectors of 16 lanes does meanwhile: half a cycle to pack an element of the left operand, and a
/// quarter to bring one of the right operand into the second-level cache. Cores with shorter vectors do fewer, for which blocks come out
/// a little larger than they could be, and so do blocks of a left operand that is packed already.
const COSTS: [usize; 2] = [16, 8];

/// Fewest multiplications of a task: some ten microseconds of a thread with AVX-512, so that handing it out costs little in comparison.
const TASK: usize = 1 << 20;

/// Fewest multiplications for which it is worth that threads wait for each other.
pub(in crate::kernels) const SHARED: usize = 1 << 23;

/// This many tasks keep all threads busy.
pub(in crate::kernels) const MANY: usize = 16;

/// How a batch of products of matrices of one size is cut into tasks.
pub(in crate::kernels) struct Blocking<A: Accumulator> {
    pub(super) kernel: &'static MicroKernel<A>,
    pub(super) batch: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    /// The length of a part of the contracted axis.
    pub(super) part: usize,
    pub(super) strip_depth: usize,
    pub(super) strip_columns: usize,
    pub(super) block_rows: usize,
    pub(super) block_columns: usize,
    /// Blocks that one task computes with its own strips; if `None`, all tasks share each strip.
    pub(super) together: Option<usize>,
    /// Whether products are written without conversion.
    pub(super) direct: bool,
}

/// The length of equal pieces: at most `most`, and a multiple of `multiple`.
pub(in crate::kernels) fn even(len: usize, most: usize, multiple: usize) -> usize {
    let len = len.max(1);
    len.div_ceil(len.div_ceil(most.max(multiple))).next_multiple_of(multiple).min(len)
}

impl<A: Accumulator> Blocking<A> {
    /// How `batch` products of `rows` by `depth` and `depth` by `columns` elements are cut. They are written without conversion if
    /// `direct`.
    pub(in crate::kernels) fn new(
        kernel: &'static MicroKernel<A>,
        batch: usize,
        shape: [usize; 3],
        direct: bool,
    ) -> Blocking<A> {
        let [rows, columns, depth] = shape;
        let [height, width] = [kernel.rows, kernel.columns];
        let part = even(depth, PART, PART_MULTIPLE);
        let work = |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(depth).max(1);
        if batch < MANY && work(rows, columns) >= SHARED {
            let strip_depth = if direct { even(depth, STRIP / columns.min(STRIP_COLUMNS), part) } else { depth };
            let strip_columns = even(columns, (STRIP / strip_depth / width * width).min(STRIP_COLUMNS), width);
            // A number of blocks of equal height that two or four threads can share evenly.
            let count = rows.div_ceil(SHARED_ROWS.max(height));
            let block_rows = rows.div_ceil(count.next_multiple_of(if count < 4 { 1 } else { 4 }));
            let across = SHARED_BLOCKS.div_ceil(rows.div_ceil(block_rows)).max(1);
            let block_columns = even(strip_columns, strip_columns / across, width);
            let (strip, block) = ([strip_depth, strip_columns], [block_rows, block_columns]);
            return Blocking::with_sizes(kernel, batch, shape, direct, part, strip, block, false);
        }
        let mut block_rows = even(rows, BLOCK_ROWS, height);
        let mut block_columns = even(columns, BLOCK_COLUMNS, width);
        let blocks = |block_rows, block_columns| batch * rows.div_ceil(block_rows) * columns.div_ceil(block_columns);
        while blocks(block_rows, block_columns) < MANY && work(block_rows, block_columns) >= 2 * TASK {
            if block_rows >= block_columns && block_rows > LEFT_ROWS {
                block_rows = even(rows, block_rows / 2, height);
            } else if block_columns > width {
                block_columns = even(columns, block_columns / 2, width);
            } else {
                break;
            }
        }
        let most = blocks(block_rows, block_columns).max(1);
        let together = Some((TASK / work(block_rows, block_columns)).clamp(1, most));
        let (strip, block) = ([part, block_columns], [block_rows, block_columns]);
        Blocking { together, ..Blocking::with_sizes(kernel, batch, shape, direct, part, strip, block, true) }
    }

    /// The same, where the caller knows good sizes: of the parts of the contracted axis, of strips (a multiple of a part), and of
    /// blocks. If `alone`, strips have the columns of a block, and each task has its own.
    pub(in crate::kernels) fn with_sizes(
        kernel: &'static MicroKernel<A>,
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        direct: bool,
        part: usize,
        [strip_depth, strip_columns]: [usize; 2],
        [block_rows, block_columns]: [usize; 2],
        alone: bool,
    ) -> Blocking<A> {
        let together = alone.then_some(1);
        Blocking {
            kernel,
            batch,
            rows,
            columns,
            depth,
            part,
            strip_depth,
            strip_columns,
            block_rows,
            block_columns,
            together,
            direct,
        }
    }

    /// The same products for this many threads. Where blocks share strips, many threads get smaller blocks, so that all have some: those of
    /// which the threads together finish first, if each thread computes as many blocks as any other. The sums are the same.
    pub(in crate::kernels) fn for_threads(&self, threads: usize) -> Blocking<A> {
        let is_cut = self.together.is_none() && threads > FEW_THREADS;
        let blocks = [self.block_rows, self.block_columns];
        let [block_rows, block_columns] = if is_cut { self.smaller_blocks(blocks, threads) } else { blocks };
        Blocking { block_rows, block_columns, ..*self }
    }

    /// Rows and columns of blocks that share strips: those of few threads, or smaller ones.
    fn smaller_blocks(&self, block_of_few: [usize; 2], threads: usize) -> [usize; 2] {
        let size = [self.rows, self.strip_columns.min(self.columns)];
        let count = |block: [usize; 2]| [0, 1].map(|i| size[i].div_ceil(block[i]).max(1));
        let cost = |&block: &[usize; 2]| {
            let [down, across] = count(block);
            let of_block = block[0] * block[1] + COSTS[0] * block[0] + COSTS[1] * block[1];
            (down * across).div_ceil(threads) * of_block
        };
        let least = count(block_of_few);
        let panels = [self.kernel.rows, self.kernel.columns];
        let most = [0, 1].map(|i| least[i].max(size[i] / (LEAST_PANELS[i] * panels[i])));
        let smaller = [1, 2, 4, 8].into_iter().flat_map(|cuts| {
            let across = (least[1] * cuts).min(most[1]);
            // Each thread has one block, or two, three or four.
            (1..=4).map(move |blocks_per_thread| {
                let down = (blocks_per_thread * threads / across).clamp(least[0], most[0]);
                [size[0].div_ceil(down), even(size[1], size[1].div_ceil(across), self.kernel.columns)]
            })
        });
        std::iter::once(block_of_few).chain(smaller).min_by_key(cost).unwrap_or(block_of_few)
    }

    /// Bytes of scratch memory for a run on `threads` threads, a multiple of 64.
    pub(in crate::kernels) fn scratch(&self, threads: usize) -> usize {
        let strip = scratch::bytes::<A>(self.strip_len());
        if self.together.is_some() {
            threads * (strip + self.scratch_per_thread())
        } else {
            strip + scratch::bytes::<A>(self.kept_sums()) + threads * self.scratch_per_thread()
        }
    }

    /// Bytes of scratch memory for each thread, besides strips.
    pub(super) fn scratch_per_thread(&self) -> usize {
        scratch::bytes::<A>(self.left_len()) + scratch::bytes::<A>(self.sums())
    }

    /// Blocks of all products.
    pub(in crate::kernels) fn blocks(&self) -> usize {
        self.batch * self.rows.div_ceil(self.block_rows) * self.columns.div_ceil(self.block_columns)
    }

    /// Elements of a strip.
    pub(super) fn strip_len(&self) -> usize {
        let columns = self.strip_columns.next_multiple_of(self.kernel.columns);
        self.strip_depth.min(self.depth) * columns
    }

    /// Most rows of a left block.
    pub(super) fn left_rows(&self) -> usize {
        (most_left_rows(cache::second_level(), size_of::<A>()) / self.kernel.rows).max(1) * self.kernel.rows
    }

    /// Whether the part of the left operand that is packed next is prefetched while a left block is multiplied.
    pub(super) fn fetches(&self) -> bool {
        let panel = self.kernel.columns * self.part;
        fits_with_next(cache::second_level(), [self.left_len(), panel].map(|elements| elements * size_of::<A>()))
    }

    /// Elements of a left block.
    pub(super) fn left_len(&self) -> usize {
        block_len(self.kernel, self.block_rows.min(self.left_rows()), self.part)
    }

    /// Sums of a block, if they are converted when written, and not kept.
    pub(super) fn sums(&self) -> usize {
        if self.direct || self.kept_sums() > 0 { 0 } else { self.block_rows * self.block_columns }
    }

    /// Sums of all blocks of a strip, if they are converted when written and are summed over several strips that all tasks share.
    pub(super) fn kept_sums(&self) -> usize {
        if self.direct || self.together.is_some() || self.strip_depth >= self.depth {
            return 0;
        }
        let blocks = self.rows.div_ceil(self.block_rows) * self.strip_columns.div_ceil(self.block_columns);
        blocks * self.block_rows * self.block_columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    /// Caches of 256 KiB (Haswell), 512 KiB (Zen 2), 1 MiB (Zen 4 and 5, Skylake) and 2 MiB (Sapphire Rapids), and elements of 4 and 8
    /// bytes.
    #[test]
    fn blocks_fit_in_the_second_level_cache() {
        for (kibibytes, element, rows, fetches) in [
            (256, 4, 48, false),
            (512, 4, 48, true),
            (1024, 4, 96, true),
            (2048, 4, 96, true),
            (256, 8, 48, false),
            (1024, 8, 48, true),
            (2048, 8, 96, true),
        ] {
            let cache = kibibytes << 10;
            assert_eq!(most_left_rows(cache, element), rows, "{kibibytes} KiB, {element} bytes");
            // A panel of 128 bytes for each position.
            let bytes = [rows * PART * element, 128 * PART];
            assert_eq!(fits_with_next(cache, bytes), fetches, "{kibibytes} KiB, {element} bytes");
        }
    }

    /// The products of the reference step on many threads: how much of the time of all threads the blocks take, if each takes as long as
    /// any other.
    #[test]
    fn many_threads_have_blocks_to_compute() {
        let shapes = [[2048, 512, 512], [2048, 2048, 512], [512, 512, 2048], [512, 2048, 2048], [2048, 512, 8192]];
        for (level, shape) in Level::all().flat_map(|level| shapes.map(|shape| (level, shape))) {
            let blocking = Blocking::new(f32::micro_kernel(level), 1, shape, true);
            for threads in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64] {
                let Blocking { block_rows, block_columns, strip_columns, .. } = blocking.for_threads(threads);
                if threads <= FEW_THREADS {
                    assert_eq!([block_rows, block_columns], [blocking.block_rows, blocking.block_columns]);
                }
                let blocks = shape[0].div_ceil(block_rows) * strip_columns.div_ceil(block_columns);
                let of_threads = blocks.div_ceil(threads) * threads * block_rows * block_columns;
                let share = (shape[0] * strip_columns) as f64 / of_threads as f64;
                assert!(
                    share > 0.8,
                    "{share} of {threads} threads compute {shape:?} by {block_rows} x {block_columns}"
                );
            }
        }
    }
}
