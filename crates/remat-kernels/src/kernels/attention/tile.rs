//! Tiles: a block of queries, a block of keys, and their scores.
//!
//! Scores are stored with the keys as rows and the queries as columns. So the state of each query is an element of a row, and maxima, sums
//! and exponentials run down the columns without a reduction across a vector. Keys and values are left operands of the products, and need
//! no transposition.

use remat_ir::AttentionSizes;

use crate::base::narrow::PANEL;
use crate::base::product::Float;
use crate::base::transpose::transpose_tile;
use crate::interface::Layout;
use crate::number::{Number, Real};
use crate::simd::multiversion;

/// Numbers that are computed together: the length of rows of tiles is a multiple of it.
pub(super) const COLUMNS: usize = 16;

/// The queries of a block: the columns of a tile.
pub(super) const QUERIES: usize = 64;
/// The keys of a block: the rows of a tile.
pub(super) const KEYS: usize = 64;

/// Blocks of queries that are computed together, so that keys and values are loaded once for all of them.
pub(super) const RUN: usize = 4;

/// One number for each query of a block.
pub(super) type PerQuery<T> = [T; QUERIES];

/// The stride of the rows in a tile of `features` features: whole panels of products.
pub(super) fn row_width(features: usize) -> usize {
    features.next_multiple_of(PANEL)
}

/// The offsets of the elements of an operand with four dimensions.
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    first: isize,
    strides: [isize; 4],
}

impl Offsets {
    /// The offsets of a layout of up to four dimensions. A dimension of size one is broadcast.
    pub(super) fn new(layout: &Layout) -> Offsets {
        let mut strides = [0; 4];
        for (to, (&size, &stride)) in strides.iter_mut().zip(layout.shape.iter().zip(&layout.strides)) {
            *to = if size == 1 { 0 } else { stride };
        }
        Offsets { first: layout.offset as isize, strides }
    }

    /// The offset of an element.
    pub(super) fn at(&self, index: [usize; 4]) -> isize {
        index.iter().zip(self.strides).fold(self.first, |offset, (&i, stride)| offset + i as isize * stride)
    }

    /// The stride of a dimension.
    pub(super) fn stride(&self, dimension: usize) -> isize {
        self.strides[dimension]
    }
}

/// Queries that attend to the same keys: those of all heads that share a key head, with the heads of one position next to each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryGroup {
    pub(super) batch: usize,
    pub(super) key_head: usize,
    pub(super) first_head: usize,
    pub(super) heads: usize,
    /// The number of positions.
    pub(super) positions: usize,
}

impl QueryGroup {
    /// The group of a key head.
    pub(super) fn of_key_head(sizes: &AttentionSizes, batch: usize, key_head: usize) -> QueryGroup {
        let heads = sizes.group();
        QueryGroup { batch, key_head, first_head: key_head * heads, heads, positions: sizes.queries }
    }

    /// The queries of one head.
    pub(super) fn of_head(sizes: &AttentionSizes, batch: usize, head: usize) -> QueryGroup {
        QueryGroup { batch, key_head: head / sizes.group(), first_head: head, heads: 1, positions: sizes.queries }
    }

    /// The number of blocks of queries.
    pub(super) fn blocks(&self) -> usize {
        (self.positions * self.heads).div_ceil(QUERIES)
    }

    /// The blocks of queries, in runs of [`RUN`].
    pub(super) fn runs(&self) -> usize {
        self.blocks().div_ceil(RUN)
    }

    /// The blocks of run number `i`.
    pub(super) fn run(&self, i: usize) -> impl DoubleEndedIterator<Item = QueryBlock> + Clone {
        let group = *self;
        ((i * RUN)..self.blocks().min((i + 1) * RUN)).map(move |i| group.block(i))
    }

    /// Block number `i`.
    pub(super) fn block(&self, i: usize) -> QueryBlock {
        let first = i * QUERIES;
        QueryBlock { group: *self, first, len: (self.positions * self.heads - first).min(QUERIES) }
    }
}

/// A block of the queries of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryBlock {
    pub(super) group: QueryGroup,
    first: usize,
    pub(super) len: usize,
}

impl QueryBlock {
    /// The number of the block in its group.
    pub(super) fn number(&self) -> usize {
        self.first / QUERIES
    }

    /// Columns that products compute: the queries, rounded up to whole vectors.
    pub(super) fn columns(&self) -> usize {
        self.len.next_multiple_of(COLUMNS)
    }

    /// The head and the position of query `i`.
    pub(super) fn query(&self, i: usize) -> (usize, usize) {
        let i = self.first + i;
        (self.group.first_head + i % self.group.heads, i / self.group.heads)
    }

    /// The offsets, in an operand `[batch, positions, heads, ..]`, of the first feature of each query.
    pub(super) fn rows(&self, offsets: &Offsets) -> PerQuery<isize> {
        self.each(|head, position| offsets.at([self.group.batch, position, head, 0]))
    }

    /// The offsets, in an operand `[batch, heads, positions, ..]`, of the first element of each query.
    pub(super) fn scores(&self, offsets: &Offsets) -> PerQuery<isize> {
        self.each(|head, position| offsets.at([self.group.batch, head, position, 0]))
    }

    fn each(&self, f: impl Fn(usize, usize) -> isize) -> PerQuery<isize> {
        let mut out = [0; QUERIES];
        for (i, out) in out.iter_mut().enumerate().take(self.len) {
            let (head, position) = self.query(i);
            *out = f(head, position);
        }
        out
    }

    /// How many of the first `keys` keys the queries attend to.
    pub(super) fn visible(&self, keys: usize, causal: bool) -> usize {
        if causal && self.len > 0 { keys.min(self.query(self.len - 1).1 + 1) } else { keys }
    }
}

/// The part of a tile that a product computes: some columns, and their first rows. These columns have no weight below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Strip {
    pub(super) column: usize,
    pub(super) columns: usize,
    pub(super) keys: usize,
}

/// The tile of a block of queries and a block of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) queries: QueryBlock,
    pub(super) first_key: usize,
    pub(super) keys: usize,
    /// Whether the attention is causal and some of the keys are later than some query.
    crosses_diagonal: bool,
}

impl Tile {
    /// The tile of the keys from `first_key` on, of `keys` in all. It has only the keys to which the queries attend.
    pub(super) fn new(queries: QueryBlock, first_key: usize, keys: usize, causal: bool) -> Tile {
        let keys = queries.visible(keys, causal).saturating_sub(first_key).min(KEYS);
        let crosses_diagonal = causal && queries.len > 0 && first_key + keys > queries.query(0).1 + 1;
        Tile { queries, first_key, keys, crosses_diagonal }
    }

    /// How many of the keys of this tile query `i` attends to.
    fn limit(&self, i: usize) -> usize {
        let position = self.queries.query(i.min(self.queries.len - 1)).1;
        (position + 1).saturating_sub(self.first_key).min(self.keys)
    }

    /// The parts of the tile that products compute: the whole tile, or one vector of columns after the other where the tile is cut.
    pub(super) fn strips(self) -> impl Iterator<Item = Strip> {
        let all = self.queries.columns();
        let width = if self.crosses_diagonal { COLUMNS } else { all.max(1) };
        (0..all).step_by(width).map(move |column| {
            let keys = if self.crosses_diagonal { self.limit(column + width - 1) } else { self.keys };
            Strip { column, columns: width, keys }
        })
    }

    /// How many panels of keys the queries of a panel attend to.
    pub(super) fn panels_of_keys(&self, panel: usize) -> usize {
        let keys = if self.crosses_diagonal { self.limit(panel * PANEL + PANEL - 1) } else { self.keys };
        keys.div_ceil(PANEL)
    }

    /// Sets scores to negative infinity where a key is later than the query.
    pub(super) fn mask_causal<T: Real>(&self, scores: &mut [T]) {
        if self.crosses_diagonal {
            let mut limits = [0; QUERIES];
            for (i, limit) in limits.iter_mut().enumerate().take(self.queries.columns()) {
                *limit = self.limit(i) as i32;
            }
            mask_from(&mut scores[..self.keys * QUERIES], &limits);
        }
    }
}

multiversion! {
    /// Sets scores to negative infinity in each column from a row on.
    fn mask_from<T: Real>(scores: &mut [T], limits: &PerQuery<i32>) {
        for (key, row) in scores.as_chunks_mut::<QUERIES>().0.iter_mut().enumerate() {
            for (score, &limit) in row.iter_mut().zip(limits) {
                *score = if (key as i32) < limit { *score } else { T::BOTTOM };
            }
        }
    }
}

multiversion! {
    /// Copies rows of `features` elements that begin at `starts`, times a factor. The rest of each row, and the remaining rows, are filled
    /// with zeros.
    pub(super) fn copy_rows<D: Float>(
        from: &[D],
        starts: &[isize],
        stride: isize,
        features: usize,
        factor: D::Wide,
        to: &mut [D::Wide],
    ) {
        let width = row_width(features);
        let (rows, rest) = to.split_at_mut(starts.len() * width);
        rest.fill(D::Wide::ZERO);
        if width == 0 {
            return;
        }
        for (row, &start) in rows.chunks_exact_mut(width).zip(starts) {
            let (row, rest) = row.split_at_mut(features);
            if stride == 1 {
                for (to, from) in row.iter_mut().zip(&from[start as usize..][..features]) {
                    *to = from.widen() * factor;
                }
            } else {
                for (i, to) in row.iter_mut().enumerate() {
                    *to = from[(start + i as isize * stride) as usize].widen() * factor;
                }
            }
            rest.fill(D::Wide::ZERO);
        }
    }
}

multiversion! {
    /// Writes numbers times a factor, each rounded once.
    pub(super) fn write_row<D: Float>(from: &[D::Wide], factor: D::Wide, to: &mut [D]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = D::narrow(from * factor);
        }
    }
}

/// Transposes a tile: the first `columns` elements of each row become the columns of rows that are `width` apart.
pub(super) fn transposed<T: Real>(from: &[T], from_width: usize, columns: usize, to: &mut [T], width: usize) {
    let rows = from.len().checked_div(from_width).unwrap_or(0);
    let size = [columns, rows.min(width)];
    transpose_tile((from, from_width), (to, width), size);
}

/// Adds a bias to scores.
pub(super) fn add_bias<D: Float>(tile: &Tile, from: &[D], offsets: &Offsets, scores: &mut [D::Wide]) {
    for_each_score(tile, offsets, |offset, i| scores[i] = scores[i] + from[offset].widen());
}

/// Sets scores to negative infinity where the mask is false.
pub(super) fn apply_mask<T: Real>(tile: &Tile, mask: &[bool], offsets: &Offsets, scores: &mut [T]) {
    for_each_score(tile, offsets, |offset, i| {
        if !mask[offset] {
            scores[i] = T::BOTTOM;
        }
    });
}

/// Calls `f` with the offset in an operand `[batch, heads, query positions, key positions]` and the index in the tile of each
/// score.
pub(super) fn for_each_score(tile: &Tile, offsets: &Offsets, mut f: impl FnMut(usize, usize)) {
    let starts = tile.queries.scores(offsets);
    let stride = offsets.stride(3);
    for key in 0..tile.keys {
        let offset = (tile.first_key + key) as isize * stride;
        for (column, start) in starts[..tile.queries.len].iter().enumerate() {
            f((start + offset) as usize, key * QUERIES + column);
        }
    }
}

/// Whether `f` is true for the offset of some score in such an operand.
pub(super) fn any_score(tile: &Tile, offsets: &Offsets, f: impl Fn(usize) -> bool) -> bool {
    let starts = tile.queries.scores(offsets);
    let offset = |key: usize| (tile.first_key + key) as isize * offsets.stride(3);
    (0..tile.keys).any(|key| starts[..tile.queries.len].iter().any(|start| f((start + offset(key)) as usize)))
}
