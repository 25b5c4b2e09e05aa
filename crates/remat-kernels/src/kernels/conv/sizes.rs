//! The blocking of the products of a convolution (the levels are those of `matmul::blocking`).

use super::phase::Products;
use crate::base::product::{Accumulator, MicroKernel};
use crate::kernels::matmul::{Blocking, MANY, SHARED, even};

/// Parts of the contracted axis are at most this long, and at least half of it if an operand has runs that can be cut to that length.
const PART: usize = 256;

/// Runs of at least this many neighbours are joined to parts.
const MIN_RUN: usize = 16;

/// Most columns of a block or strip. A copied left block is used once for each column.
const MAX_COLUMNS: usize = 512;

/// Fewest columns of a block that packs its own strips.
const MIN_COLUMNS: usize = 128;

/// Fewest columns where the left operand is read in place: no block copies it again, and none waits for another.
const MIN_COLUMNS_IN_PLACE: usize = 32;

/// Most rows of such a block. A strip is used once for each row.
const MAX_ROWS: usize = 1024;

/// Numbers in a strip of one task, so that it stays in the second-level cache.
const OWN_STRIP: usize = 1 << 17;

/// Numbers in a strip that all tasks share, so that it stays in the last-level cache.
const SHARED_STRIP: usize = 1 << 18;

/// Most sums that are kept from strip to strip.
const KEPT: usize = 1 << 20;

/// Most rows of blocks that share a strip.
const BLOCK_ROWS: usize = 48;

/// Fewest rows of such blocks. A panel of the strip is used once for each row.
const MIN_ROWS: usize = 24;

/// Split into at least this many tasks.
const MIN_TASKS: usize = 8;

/// How the products of a phase are cut.
pub(super) fn blocking<A: Accumulator>(kernel: &'static MicroKernel<A>, products: &Products) -> Blocking<A> {
    let Products { batch, shape, direct, run, windows_first, in_place, is_task, .. } = *products;
    let [rows, columns, depth] = shape;
    let work = rows.saturating_mul(columns).saturating_mul(depth);
    if work.saturating_mul(batch) < SHARED || (batch >= MANY && work < SHARED) {
        return Blocking::new(kernel, batch, shape, direct);
    }
    let panel = kernel.columns;
    // Parts that end where runs end are read in place, or in fewer pieces.
    let fits = |part: &usize| run.is_multiple_of(*part) || (run >= MIN_RUN && part.is_multiple_of(run));
    let part = (PART / 2..=PART).rev().find(fits).filter(|part| *part <= depth).unwrap_or(even(depth, PART, 8));
    let block_columns = |most: usize| even(columns, most, panel);
    let blocks = |block_columns: usize| batch * columns.div_ceil(block_columns);
    if !windows_first && rows <= MAX_ROWS {
        // A block's windows are multiplied with all features, so that the task that needs a window gathers it once.
        let wide = if direct { MAX_COLUMNS } else { MAX_COLUMNS / 2 };
        let (least, enough) = if in_place { (MIN_COLUMNS_IN_PLACE, MANY / 2) } else { (MIN_COLUMNS, MANY) };
        let with = |count: usize| {
            let mut sizes = (1..).map(|i| wide / i).take_while(|&most| most >= least);
            sizes.find(|&most| is_task || blocks(block_columns(most)) >= count)
        };
        if let Some(most) = with(MANY).or_else(|| with(enough)) {
            let block_columns = block_columns(most);
            let strip_depth = even(depth, OWN_STRIP / block_columns, part);
            return Blocking::with_sizes(
                kernel,
                batch,
                shape,
                direct,
                part,
                [strip_depth, block_columns],
                [rows, block_columns],
                true,
            );
        }
    }
    let mut strip_columns = even(columns, MAX_COLUMNS, panel);
    let mut strip_depth = even(depth, SHARED_STRIP / strip_columns, part);
    if !direct && strip_depth < depth && rows.saturating_mul(strip_columns) > KEPT {
        strip_columns = even(columns, (SHARED_STRIP / depth).max(panel), panel);
        strip_depth = depth;
    }
    // A number of blocks of equal height that two or four threads can share evenly. Rows are cut before columns, since each block
    // copies its rows of the left operand once for all columns.
    let count = rows.div_ceil(BLOCK_ROWS).max((rows / MIN_ROWS).min(MIN_TASKS));
    let block_rows = rows.div_ceil(count.next_multiple_of(if count > MIN_TASKS { 4 } else { 2 })).clamp(1, rows.max(1));
    let across = MIN_TASKS.div_ceil(rows.div_ceil(block_rows));
    let block_columns = even(strip_columns, strip_columns / across, panel);
    Blocking::with_sizes(
        kernel,
        batch,
        shape,
        direct,
        part,
        [strip_depth, strip_columns],
        [block_rows, block_columns],
        false,
    )
}
