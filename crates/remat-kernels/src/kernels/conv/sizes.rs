//! How the products of a convolution are cut.

use crate::base::product::Accumulator;
use crate::kernels::matmul::{Cut, MANY, SHARED, even, panel_columns};

/// The contracted dimension is taken in parts of this length at most, and at least half of it, where an operand has runs that
/// can be cut so.
const PART: usize = 256;

/// Fewest neighbours of a run for which it is worth that several are a part.
const RUN: usize = 16;

/// Most columns of a tile or strip: so often is a copied block of the left operand used.
const COLUMNS: usize = 512;

/// Fewest columns of a tile that packs its strips itself.
const FEWEST_COLUMNS: usize = 128;

/// Most rows of such a tile: so often is a strip used.
const ROWS: usize = 512;

/// Numbers of a strip that a task has for itself, so that it stays in the second level of the cache.
const OWN_STRIP: usize = 1 << 17;

/// Numbers of a strip that all tasks share, so that it stays in the last level of the cache.
const SHARED_STRIP: usize = 1 << 18;

/// Numbers of sums that are kept from strip to strip.
const KEPT: usize = 1 << 20;

/// Rows of tiles that share a strip.
const TILE_ROWS: usize = 48;

/// Fewest rows of such tiles: so often is a panel of the strip used.
const FEWEST_ROWS: usize = 24;

/// So many tasks at least should there be.
const SOME: usize = 6;

/// The cut of a batch of products of `rows` by `depth` and `depth` by `columns` elements, which are written as they are if
/// `direct`. The left operand has runs of neighbours of length `run` along the contracted dimension. If the whole `is_task`, it
/// is one of many.
pub(super) fn cut<A: Accumulator>(
    batch: usize,
    shape: [usize; 3],
    direct: bool,
    run: usize,
    windows_first: bool,
    is_task: bool,
) -> Cut {
    let [rows, columns, depth] = shape;
    let work = rows.saturating_mul(columns).saturating_mul(depth);
    if work.saturating_mul(batch) < SHARED || (batch >= MANY && work < SHARED) {
        return Cut::new::<A>(batch, shape, direct);
    }
    let panel = panel_columns::<A>();
    // Parts that end where runs end are read where they lie, or in fewer pieces.
    let fits = |part: &usize| run.is_multiple_of(*part) || (run >= RUN && part.is_multiple_of(run));
    let part = (PART / 2..=PART).rev().find(fits).filter(|part| *part <= depth).unwrap_or(even(depth, PART, 8));
    let tile_columns = |most: usize| even(columns, most, panel);
    let tiles = |tile_columns: usize| batch * columns.div_ceil(tile_columns);
    if !windows_first && rows <= ROWS {
        // The windows of a tile meet all features, so that each is gathered once, by the task that needs it.
        let wide = if direct { COLUMNS } else { COLUMNS / 2 };
        let most = (1..).map(|i| wide / i).take_while(|&most| most >= FEWEST_COLUMNS);
        if let Some(most) = most.into_iter().find(|&most| is_task || tiles(tile_columns(most)) >= MANY) {
            let tile_columns = tile_columns(most);
            let strip_depth = even(depth, OWN_STRIP / tile_columns, part);
            return Cut::with_sizes(
                batch,
                shape,
                direct,
                part,
                [strip_depth, tile_columns],
                [rows, tile_columns],
                true,
            );
        }
    }
    let mut strip_columns = even(columns, COLUMNS, panel);
    let mut strip_depth = even(depth, SHARED_STRIP / strip_columns, part);
    if !direct && strip_depth < depth && rows.saturating_mul(strip_columns) > KEPT {
        strip_columns = even(columns, (SHARED_STRIP / depth).max(panel), panel);
        strip_depth = depth;
    }
    let tile_rows = even(rows, (rows / SOME).clamp(FEWEST_ROWS, TILE_ROWS), 8);
    let across = SOME.div_ceil(rows.div_ceil(tile_rows));
    let tile_columns = even(strip_columns, strip_columns / across, panel);
    Cut::with_sizes(batch, shape, direct, part, [strip_depth, strip_columns], [tile_rows, tile_columns], false)
}
