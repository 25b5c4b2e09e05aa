//! The operands of an attention, which its kernels share, and the computation of scores.

use std::ops::Range;

use remat_ir::{AttentionSizes, DotProductAttention};

use super::products::Products;
use super::tile::{
    KEYS, Offsets, QUERIES, QueryBlock, QueryGroup, RUN, Tile, add_bias, any_score, apply_mask, copy_rows, row_width,
};
use crate::base::narrow::Unit;
use crate::base::product::Float;
use crate::interface::{Layout, Source};
use crate::number::{Number, Real};
use crate::simd::{CACHE_LINE, multiversion, prefetch_far};

/// The operands of an attention, which are the first operands of its derivatives too.
pub(super) struct Problem {
    pub(super) sizes: AttentionSizes,
    pub(super) scale: f64,
    /// The unit that multiplies bf16.
    pub(super) unit: Option<Unit>,
    pub(super) causal: bool,
    pub(super) query: Offsets,
    pub(super) key: Offsets,
    pub(super) value: Offsets,
    /// The index of the operand, and the offsets of its elements.
    pub(super) bias: Option<(usize, Offsets)>,
    pub(super) mask: Option<(usize, Offsets)>,
}

/// The elements of these operands.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a, D> {
    pub(super) query: &'a [D],
    key: &'a [D],
    value: &'a [D],
    bias: &'a [D],
    mask: &'a [bool],
}

/// A block of keys and of values, row by row.
pub(super) struct Rows<'a, T> {
    pub(super) key: &'a mut [T],
    pub(super) value: &'a mut [T],
}

impl Problem {
    /// The problem for operands with these layouts, which the operation accepts; if there is a unit, operands are bf16.
    pub(super) fn new(op: &DotProductAttention, layouts: &[Layout], unit: Option<Unit>) -> Problem {
        let operands = op.operands(layouts);
        let (query, key, value) = (&operands.query.shape, &operands.key.shape, &operands.value.shape);
        Problem {
            sizes: AttentionSizes {
                batch: query[0],
                queries: query[1],
                keys: key[1],
                heads: query[2],
                key_heads: key[2],
                features: query[3],
                value_features: value[3],
            },
            scale: op.scale.as_f64(),
            unit,
            causal: op.causal,
            query: Offsets::new(operands.query),
            key: Offsets::new(operands.key),
            value: Offsets::new(operands.value),
            bias: operands.bias.map(|layout| (3, Offsets::new(layout))),
            mask: operands.mask.map(|layout| (op.num_operands() - 1, Offsets::new(layout))),
        }
    }

    /// The number of key heads in the whole batch.
    pub(super) fn key_heads(&self) -> usize {
        self.sizes.batch * self.sizes.key_heads
    }

    /// The queries of key head number `i` of the batch.
    pub(super) fn group(&self, i: usize) -> QueryGroup {
        QueryGroup::of_key_head(&self.sizes, i / self.sizes.key_heads, i % self.sizes.key_heads)
    }

    /// The number of a block of queries among those of all key heads.
    pub(super) fn block_number(&self, block: &QueryBlock) -> usize {
        let group = &block.group;
        (group.batch * self.sizes.key_heads + group.key_head) * group.blocks() + block.number()
    }

    pub(super) fn elements<'a, D: Float>(&self, ins: &[Source<'a>]) -> Elements<'a, D> {
        Elements {
            query: ins[0].slice(),
            key: ins[1].slice(),
            value: ins[2].slice(),
            bias: self.bias.as_ref().map_or(&[], |(i, _)| ins[*i].slice()),
            mask: self.mask.as_ref().map_or(&[], |(i, _)| ins[*i].slice()),
        }
    }

    /// Elements of a tile of features of queries or keys.
    pub(super) fn features_len(&self) -> usize {
        QUERIES.max(KEYS) * row_width(self.sizes.features)
    }

    /// Elements of a tile of features of values.
    pub(super) fn value_features_len(&self) -> usize {
        QUERIES.max(KEYS) * row_width(self.sizes.value_features)
    }

    /// Copies a block of the keys and values that the queries of a group attend to.
    pub(super) fn load<D: Float>(
        &self,
        group: &QueryGroup,
        keys: Range<usize>,
        from: &Elements<'_, D>,
        to: &mut Rows<'_, D::Wide>,
    ) {
        let (len, [key, value]) = (keys.len(), self.starts(group, keys));
        let one = D::Wide::ONE;
        copy_rows(from.key, &key[..len], self.key.stride(3), self.sizes.features, one, to.key);
        copy_rows(from.value, &value[..len], self.value.stride(3), self.sizes.value_features, one, to.value);
    }

    /// As [`load`](Problem::load), as operands of products.
    pub(super) fn load_for_products<D: Float>(
        &self,
        group: &QueryGroup,
        keys: Range<usize>,
        from: &Elements<'_, D>,
        products: &mut Products<'_>,
        to: &mut Rows<'_, D::Wide>,
    ) {
        let (len, [key, value]) = (keys.len(), self.starts(group, keys));
        products.load_rows(from.key, (&key[..len], self.key.stride(3)), self.sizes.features, to.key);
        products.load_rows(from.value, (&value[..len], self.value.stride(3)), self.sizes.value_features, to.value);
    }

    /// The offsets of the first features of keys and of values.
    fn starts(&self, group: &QueryGroup, keys: Range<usize>) -> [[isize; KEYS]; 2] {
        let mut starts = [[0; KEYS]; 2];
        for (i, key) in keys.enumerate() {
            let index = [group.batch, key, group.key_head, 0];
            (starts[0][i], starts[1][i]) = (self.key.at(index), self.value.at(index));
        }
        starts
    }

    /// Prefetches part `i` of [`RUN`] of the keys and values from `first` on, which are loaded next, into the second-level cache: a few
    /// rows with each tile, whose products hide the latency.
    pub(super) fn prefetch<D>(&self, group: &QueryGroup, first: usize, i: usize, from: &Elements<'_, D>) {
        const PART: usize = KEYS / RUN;
        for key in (first + i * PART..self.sizes.keys).take(PART) {
            let index = [group.batch, key, group.key_head, 0];
            let row = |from: &[D], offsets: &Offsets, features: usize| {
                if offsets.stride(3) == 1 {
                    let row = from.as_ptr().wrapping_offset(offsets.at(index)).cast::<u8>();
                    (0..features * size_of::<D>()).step_by(CACHE_LINE).for_each(|i| prefetch_far(row.wrapping_add(i)));
                }
            };
            row(from.key, &self.key, self.sizes.features);
            row(from.value, &self.value, self.sizes.value_features);
        }
    }

    /// Calls `f` with each block of those keys in a part to which the queries of a run attend.
    pub(super) fn for_each_block_of_keys(
        &self,
        mut run: impl DoubleEndedIterator<Item = QueryBlock>,
        part: Range<usize>,
        mut f: impl FnMut(Range<usize>),
    ) {
        // The last queries attend to the most keys.
        let visible = run.next_back().map_or(0, |block| block.visible(self.sizes.keys, self.causal)).min(part.end);
        for first in (part.start..visible).step_by(KEYS) {
            f(first..visible.min(first + KEYS));
        }
    }

    /// The factor for queries when they are loaded: the scale; or 1 with a unit, for which they must stay bf16.
    pub(super) fn query_factor<T: Real>(&self) -> T {
        if self.unit.is_some() { T::ONE } else { T::from_f64(self.scale) }
    }

    /// The factor for a unit's products with queries, instead.
    pub(super) fn product_factor<T: Real>(&self) -> T {
        if self.unit.is_some() { T::from_f64(self.scale) } else { T::ONE }
    }

    /// Numbers of scratch memory for products.
    pub(super) fn products_len(&self) -> usize {
        Products::len(self.unit, self.sizes.features.max(self.sizes.value_features))
    }

    /// Starts multiplying, with memory from the beginning of scratch memory.
    pub(super) fn products<'a, T: Real>(&self, scratch: &mut &'a mut [T]) -> Products<'a> {
        Products::new(self.unit, self.sizes.features.max(self.sizes.value_features), scratch)
    }

    /// The scores of a tile, negative infinity where there is no weight. `queries` has the queries, times their factor, as columns.
    pub(super) fn scores<D: Float>(
        &self,
        tile: &Tile,
        from: &Elements<'_, D>,
        products: &mut Products<'_>,
        keys: &[D::Wide],
        queries: &[D::Wide],
        scores: &mut [D::Wide],
    ) {
        products.dot_products(tile, keys, self.sizes.features, queries, scores);
        let factor = self.product_factor();
        if factor != D::Wide::ONE {
            scale(&mut scores[..tile.keys * QUERIES], factor);
        }
        self.bias_and_mask(tile, from, scores);
    }

    /// Adds the bias to the products of a tile, and sets them to negative infinity where the mask, or causality, hides the key.
    pub(super) fn bias_and_mask<D: Float>(&self, tile: &Tile, from: &Elements<'_, D>, scores: &mut [D::Wide]) {
        if let Some((_, offsets)) = &self.bias {
            add_bias(tile, from.bias, offsets, scores);
        }
        if let Some((_, offsets)) = &self.mask {
            apply_mask(tile, from.mask, offsets, scores);
        }
        tile.mask_causal(scores);
    }

    /// Whether no query of a tile attends to any of its keys, so that the tile is skipped.
    pub(super) fn is_fully_masked<D: Float>(&self, tile: &Tile, from: &Elements<'_, D>) -> bool {
        let mask = self.mask.as_ref();
        tile.keys == 0 || mask.is_some_and(|(_, offsets)| !any_score(tile, offsets, |offset| from.mask[offset]))
    }
}

multiversion! {
    /// Multiplies numbers by a factor.
    fn scale<T: Real>(numbers: &mut [T], factor: T) {
        for x in numbers {
            *x = *x * factor;
        }
    }
}

/// The next `len` elements of scratch memory.
pub(super) fn take<'a, T>(scratch: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (taken, rest) = std::mem::take(scratch).split_at_mut(len);
    *scratch = rest;
    taken
}
