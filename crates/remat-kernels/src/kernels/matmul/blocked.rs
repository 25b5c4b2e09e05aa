//! Products of matrices, block by block.
//!
//! The right operand is taken in *strips*: some columns of a part of the contracted dimension. A strip is packed into *panels*
//! of a few columns, so narrow that the innermost loop reads them from beginning to end. Then blocks of rows of the left
//! operand are multiplied with one panel after the other. A left operand is read in place, if its elements are numbers in a
//! suitable order, and packed block by block otherwise; a right operand that is used for few rows is read in place too.
//! The method is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM Transactions on
//! Mathematical Software, 2008.
//!
//! All threads share the strips of a large product. Of small products, and of many, each task computes a tile with strips of
//! its own. Each sum is over the same parts in the same order, whatever tiles, layouts and threads there are.

// Products are written through pointers, since the tiles of several threads interleave.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::base::product::{self, Accumulator, product_at};
use crate::threads::Threads;

/// The contracted dimension is taken in parts of this length at most.
const PART: usize = 512;

/// Numbers of a strip that all threads share, so that it stays in the last level of the cache.
const STRIP: usize = 1 << 20;

/// Most columns of such a strip. The more there are, the less often do threads wait for each other; the fewer, the longer is
/// the part of the contracted dimension for which products are written once.
const STRIP_COLUMNS: usize = 1024;

/// Most columns of a tile of such a strip. A packed block of the left operand is used for all of them.
const SHARED_COLUMNS: usize = 512;

/// Most rows of a tile with strips of its own. A panel is used once for each block of them.
const TILE_ROWS: usize = 512;

/// Most columns of such a tile.
const TILE_COLUMNS: usize = 256;

/// Bytes in a row of a panel: two of the largest vectors, as many as the innermost loop takes at a time.
const PANEL_BYTES: usize = 128;

/// Rows of the left operand that are multiplied at a time, few enough to stay in the caches beside a panel.
const BLOCK_ROWS: usize = 48;

/// Room between the rows of a block that is copied row by row, so that they do not meet in one set of a cache.
const GAP: usize = 16;

/// Multiplications that are worth a task.
const TASK: usize = 1 << 20;

/// Multiplications for which it is worth that threads wait for each other.
pub(in super::super) const SHARED: usize = 1 << 23;

/// This many tasks keep all threads busy.
pub(in super::super) const MANY: usize = 16;

/// A left operand: it has rows, and columns along which products are summed.
pub(in super::super) trait Left<A>: Sync {
    /// A block of it, read in place or packed to memory of [`block_len`] numbers.
    fn block<'a>(&'a self, rows: Range<usize>, depth: Range<usize>, to: &'a mut [A]) -> product::Left<'a, A>;
}

/// A right operand: it has rows along which products are summed, and columns.
pub(in super::super) trait Right<A>: Sync {
    /// A part of it, if it can be read in place.
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>>;

    /// Copies a part of it, row by row without gaps.
    fn pack(&self, depth: Range<usize>, columns: Range<usize>, to: &mut [A]);
}

/// The output of products.
pub(in super::super) trait Output<A>: Sync {
    /// The first element and the distance between rows, where products are written as they are, neighbours in a row side by
    /// side. Either all outputs of a [`Cut`] have one or none.
    fn direct(&self) -> Option<(*mut A, usize)>;

    /// Writes a tile of products, row by row.
    ///
    /// # Safety
    /// No other task has access to the elements of the tile.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]);
}

/// How a batch of products of matrices of one size is cut into tasks.
pub(in super::super) struct Cut {
    batch: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    /// The length of a part of the contracted dimension.
    part: usize,
    strip_depth: usize,
    strip_columns: usize,
    tile_rows: usize,
    tile_columns: usize,
    /// Tiles that one task computes, with strips of its own; if none, all tasks share each strip.
    together: Option<usize>,
    /// Whether products are written as they are.
    direct: bool,
}

/// A strip of the right operand: packed panel after panel, or in place.
struct Strip<'a, A> {
    elements: &'a [A],
    /// The stride of rows, if it is in place.
    row: Option<usize>,
    columns: Range<usize>,
    depth: Range<usize>,
}

/// Numbers of a block of `rows` rows and `depth` indices of the contracted dimension.
pub(in super::super) fn block_len(rows: usize, depth: usize) -> usize {
    rows * block_stride(depth)
}

/// The distance between the rows of a block that is copied row by row.
pub(in super::super) fn block_stride(depth: usize) -> usize {
    depth + GAP
}

/// Columns of a panel.
pub(in super::super) const fn panel_columns<A>() -> usize {
    PANEL_BYTES / size_of::<A>()
}

/// The length of equal pieces of at most `most`, but of a multiple.
pub(in super::super) fn even(len: usize, most: usize, multiple: usize) -> usize {
    let len = len.max(1);
    len.div_ceil(len.div_ceil(most.max(multiple))).next_multiple_of(multiple).min(len)
}

impl Cut {
    /// The cut of `batch` products of `rows` by `depth` and `depth` by `columns` elements, which are written as they are if
    /// `direct`.
    pub(in super::super) fn new<A>(batch: usize, shape: [usize; 3], direct: bool) -> Cut {
        let [rows, columns, depth] = shape;
        let panel = panel_columns::<A>();
        let part = even(depth, PART, 8);
        let work = |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(depth).max(1);
        if batch < MANY && work(rows, columns) >= SHARED {
            let strip_depth = if direct { even(depth, STRIP / columns.min(STRIP_COLUMNS), part) } else { depth };
            let strip_columns = even(columns, (STRIP / strip_depth / panel * panel).min(STRIP_COLUMNS), panel);
            let tile_rows = even(rows, BLOCK_ROWS, 8);
            let across = MANY.div_ceil(rows.div_ceil(tile_rows)).max(1);
            let tile_columns = even(strip_columns, (strip_columns / across).min(SHARED_COLUMNS), panel);
            let (strip, tile) = ([strip_depth, strip_columns], [tile_rows, tile_columns]);
            return Cut::with_sizes(batch, shape, direct, part, strip, tile, false);
        }
        let mut tile_rows = even(rows, TILE_ROWS, 8);
        let mut tile_columns = even(columns, TILE_COLUMNS, panel);
        let tiles = |tile_rows, tile_columns| batch * rows.div_ceil(tile_rows) * columns.div_ceil(tile_columns);
        while tiles(tile_rows, tile_columns) < MANY && work(tile_rows, tile_columns) >= 2 * TASK {
            if tile_rows >= tile_columns && tile_rows > BLOCK_ROWS {
                tile_rows = even(rows, tile_rows / 2, 8);
            } else if tile_columns > panel {
                tile_columns = even(columns, tile_columns / 2, panel);
            } else {
                break;
            }
        }
        let most = tiles(tile_rows, tile_columns).max(1);
        let together = Some((TASK / work(tile_rows, tile_columns)).clamp(1, most));
        let (strip_depth, strip_columns) = (part, tile_columns);
        Cut { batch, rows, columns, depth, part, strip_depth, strip_columns, tile_rows, tile_columns, together, direct }
    }

    /// The cut of such products where the caller knows good sizes: of the parts of the contracted dimension, of strips of a
    /// multiple of a part, and of tiles. If `alone`, strips have the columns of a tile, and each task has its own.
    pub(in super::super) fn with_sizes(
        batch: usize,
        [rows, columns, depth]: [usize; 3],
        direct: bool,
        part: usize,
        [strip_depth, strip_columns]: [usize; 2],
        [tile_rows, tile_columns]: [usize; 2],
        alone: bool,
    ) -> Cut {
        let together = alone.then_some(1);
        Cut { batch, rows, columns, depth, part, strip_depth, strip_columns, tile_rows, tile_columns, together, direct }
    }

    /// Numbers of scratch memory for a run on `threads` threads.
    pub(in super::super) fn scratch(&self, threads: usize) -> usize {
        let of_thread = self.block() + self.sums();
        if self.together.is_some() {
            threads * (self.strip() + of_thread)
        } else {
            self.strip() + self.kept_sums() + threads * of_thread
        }
    }

    /// Computes the products. `operands` gives the operands and the output of each.
    pub(in super::super) fn run<A: Accumulator, L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        scratch: &mut [A],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        match self.together {
            Some(together) => self.run_alone(together, scratch, threads, operands),
            None => self.run_shared(scratch, threads, operands),
        }
    }

    /// Each task computes tiles with strips of its own.
    fn run_alone<A: Accumulator, L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        together: usize,
        scratch: &mut [A],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        let across = self.columns.div_ceil(self.tile_columns);
        let of_one = self.rows.div_ceil(self.tile_rows) * across;
        threads.for_each_with_scratch(self.tiles().div_ceil(together), scratch, |task, scratch| {
            let (panels, scratch) = scratch.split_at_mut(self.strip());
            let (block, sums) = scratch.split_at_mut(self.block());
            for i in task * together..self.tiles().min((task + 1) * together) {
                let (left, right, out) = operands(i / of_one);
                let rows = piece(self.rows, self.tile_rows, i % of_one / across);
                let columns = piece(self.columns, self.tile_columns, i % across);
                let to = self.destination(&out, &rows, &columns, sums);
                for depth in pieces(0..self.depth, self.strip_depth) {
                    let strip = Strip::new(&right, depth, columns.clone(), panels, rows.len() <= BLOCK_ROWS);
                    // SAFETY: each tile of each product is computed once.
                    unsafe { self.multiply(&left, &strip, rows.clone(), columns.clone(), block, to) };
                }
                self.finish(&out, rows, columns, sums);
            }
        });
    }

    /// All tasks share each strip.
    fn run_shared<A: Accumulator, L: Left<A>, R: Right<A>, O: Output<A>>(
        &self,
        scratch: &mut [A],
        threads: &Threads,
        operands: impl Fn(usize) -> (L, R, O) + Sync,
    ) {
        let (panels, scratch) = scratch.split_at_mut(self.strip());
        let (kept, scratch) = scratch.split_at_mut(self.kept_sums());
        for i in 0..self.batch {
            let (left, right, out) = operands(i);
            for strip_columns in pieces(0..self.columns, self.strip_columns) {
                for depth in pieces(0..self.depth, self.strip_depth) {
                    let strip = Strip::pack(&right, depth, strip_columns.clone(), panels, threads);
                    let across = strip_columns.len().div_ceil(self.tile_columns);
                    let tiles = self.rows.div_ceil(self.tile_rows) * across;
                    let compute = |tile: usize, block: &mut [A], sums: &mut [A]| {
                        let rows = piece(self.rows, self.tile_rows, tile / across);
                        let columns = piece(strip_columns.len(), self.tile_columns, tile % across);
                        let columns = strip_columns.start + columns.start..strip_columns.start + columns.end;
                        let to = self.destination(&out, &rows, &columns, sums);
                        // SAFETY: each tile is computed by one task; where there are several strips for it, one is
                        // multiplied after the other.
                        unsafe { self.multiply(&left, &strip, rows.clone(), columns.clone(), block, to) };
                        if strip.depth.end == self.depth {
                            self.finish(&out, rows, columns, sums);
                        }
                    };
                    if kept.is_empty() {
                        threads.for_each_with_scratch(tiles, scratch, |tile, scratch| {
                            let (block, sums) = scratch.split_at_mut(self.block());
                            compute(tile, block, sums);
                        });
                    } else {
                        let kept = kept.chunks_mut(self.tile_rows * self.tile_columns).enumerate().take(tiles);
                        threads.for_each_item_with_scratch(tiles, kept, scratch, |(tile, sums), block| {
                            compute(tile, block, sums);
                        });
                    }
                }
            }
        }
    }

    /// Tiles of all products.
    fn tiles(&self) -> usize {
        self.batch * self.rows.div_ceil(self.tile_rows) * self.columns.div_ceil(self.tile_columns)
    }

    /// Numbers of a strip.
    fn strip(&self) -> usize {
        self.strip_depth.min(self.depth) * self.strip_columns
    }

    /// Numbers of a block of the left operand.
    fn block(&self) -> usize {
        block_len(self.tile_rows.min(BLOCK_ROWS), self.part)
    }

    /// Numbers of a tile, if it is not written as it is and not kept.
    fn sums(&self) -> usize {
        if self.direct || self.kept_sums() > 0 { 0 } else { self.tile_rows * self.tile_columns }
    }

    /// Numbers of all tiles of a strip, if they are not written as they are and are summed over several strips that all tasks
    /// share.
    fn kept_sums(&self) -> usize {
        if self.direct || self.together.is_some() || self.strip_depth >= self.depth {
            return 0;
        }
        let tiles = self.rows.div_ceil(self.tile_rows) * self.strip_columns.div_ceil(self.tile_columns);
        tiles * self.tile_rows * self.tile_columns
    }

    /// Where the products of a tile are written: in the output, or in memory for sums.
    fn destination<A>(
        &self,
        out: &impl Output<A>,
        rows: &Range<usize>,
        columns: &Range<usize>,
        sums: &mut [A],
    ) -> (*mut A, usize) {
        match out.direct() {
            Some((out, stride)) if self.direct => (out.wrapping_add(rows.start * stride + columns.start), stride),
            _ => (sums[..rows.len() * columns.len()].as_mut_ptr(), columns.len()),
        }
    }

    /// Writes a tile to the output, if it is not there.
    fn finish<A>(&self, out: &impl Output<A>, rows: Range<usize>, columns: Range<usize>, sums: &[A]) {
        if !self.direct {
            let sums = &sums[..rows.len() * columns.len()];
            // SAFETY: each tile of each product is computed by one task.
            unsafe { out.write(rows, columns, sums) };
        }
    }

    /// Multiplies rows with some columns of a strip, and writes the products to `out`, whose rows are `stride` apart, or adds
    /// them unless the strip is the first.
    ///
    /// # Safety
    /// `out` is valid for reading and writing these rows and columns, and no other task has access to them.
    unsafe fn multiply<A: Accumulator>(
        &self,
        left: &impl Left<A>,
        strip: &Strip<'_, A>,
        rows: Range<usize>,
        columns: Range<usize>,
        block: &mut [A],
        (out, stride): (*mut A, usize),
    ) {
        for block_rows in pieces(rows.clone(), BLOCK_ROWS) {
            for depth in pieces(strip.depth.clone(), self.part) {
                let left = left.block(block_rows.clone(), depth.clone(), block);
                for panel in pieces(columns.clone(), panel_columns::<A>()) {
                    let size = [block_rows.len(), panel.len(), depth.len()];
                    let right = strip.part(&panel, &depth);
                    // SAFETY: these are rows and columns of those that the caller promises.
                    unsafe {
                        let out = out.add((block_rows.start - rows.start) * stride + panel.start - columns.start);
                        product_at(size, left, right, (out, stride), depth.start > 0);
                    }
                }
            }
        }
    }
}

impl<'a, A: Accumulator> Strip<'a, A> {
    /// A strip for one task, read in place if that can be and `in_place` allows it.
    fn new<R: Right<A>>(
        right: &'a R,
        depth: Range<usize>,
        columns: Range<usize>,
        panels: &'a mut [A],
        in_place: bool,
    ) -> Strip<'a, A> {
        match right.in_place(depth.clone(), columns.clone()) {
            Some(product::Right { elements, row }) if in_place => Strip { elements, row: Some(row), columns, depth },
            _ => Strip::pack(right, depth, columns, panels, &Threads::SERIAL),
        }
    }

    /// A strip packed into panels.
    fn pack(
        right: &impl Right<A>,
        depth: Range<usize>,
        columns: Range<usize>,
        panels: &'a mut [A],
        threads: &Threads,
    ) -> Strip<'a, A> {
        let size = panel_columns::<A>();
        let panels = &mut panels[..depth.len() * columns.len()];
        threads.for_each_chunk(panels, depth.len() * size, |i, panel| {
            let piece = piece(columns.len(), size, i);
            right.pack(depth.clone(), columns.start + piece.start..columns.start + piece.end, panel);
        });
        Strip { elements: panels, row: None, columns, depth }
    }

    /// A part of a panel, which has these columns.
    fn part(&self, panel: &Range<usize>, depth: &Range<usize>) -> product::Right<'_, A> {
        let (j, from) = (panel.start - self.columns.start, depth.start - self.depth.start);
        match self.row {
            Some(row) => product::Right { elements: &self.elements[from * row + j..], row },
            None => {
                let first = j * self.depth.len() + from * panel.len();
                product::Right { elements: &self.elements[first..], row: panel.len() }
            }
        }
    }
}

/// Piece `i` of a length.
fn piece(len: usize, size: usize, i: usize) -> Range<usize> {
    i * size..len.min((i + 1) * size)
}

/// The pieces of a range; of an empty one there is one, which is empty.
fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let count = range.len().div_ceil(size).max(1);
    (0..count).map(move |i| range.start + i * size..range.end.min(range.start + (i + 1) * size))
}
