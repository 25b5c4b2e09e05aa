//! Attention of few queries to many keys, as when a decoder generates one token at a time.
//!
//! Keys and values are read once, block by block. A tile of the general kernel has columns for at least sixteen queries; here each query
//! has its own products, one row of features at a time. Blocks that the mask hides are not read, so that the cost depends on the filled
//! part of a cache.
//!
//! A long cache is cut into parts of [`PART`] keys, each a task, so that all threads read it. The results of the parts are combined in the
//! order of the keys, and depend on the number of keys, not on the number of threads. Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding
//! for long-context inference", 2023.

use std::ops::Range;

use super::forward::{State, exponentials, shift};
use super::problem::{Elements, Problem, Rows};
use super::tile::{KEYS, QUERIES, QueryBlock, QueryGroup, RUN, Tile, copy_rows, row_width};
use crate::base::narrow::PANEL;
use crate::base::product::Float;
use crate::kernels::matmul::dots;
use crate::number::{Number, Real};
use crate::simd::multiversion;

/// Most queries of a key head, over all heads that share it, for which this pays.
pub(super) const QUERIES_AT_MOST: usize = 8;

/// Keys of a part, a multiple of a block, so that computing a part costs many times what combining costs.
pub(super) const PART: usize = 8 * KEYS;

/// The number of parts in which the next block is prefetched.
const _: () = assert!(RUN == 4);

/// The workspace of a task.
pub(super) struct Workspace<'a, T> {
    /// The queries times their factor, row by row.
    pub(super) query: &'a mut [T],
    /// The sums of values, row by row.
    pub(super) sums: &'a mut [T],
    pub(super) rows: Rows<'a, T>,
    pub(super) scores: &'a mut [T],
}

/// Computes, for all queries of a group, which are one block, the sums of the values of some keys, and their softmax state.
pub(super) fn attend<D: Float>(
    problem: &Problem,
    group: &QueryGroup,
    block: QueryBlock,
    part: Range<usize>,
    from: &Elements<'_, D>,
    space: &mut Workspace<'_, D::Wide>,
) -> State<D::Wide> {
    let (features, value_features) = (problem.sizes.features, problem.sizes.value_features);
    let starts = &block.rows(&problem.query)[..block.len];
    copy_rows(from.query, starts, problem.query.stride(3), features, problem.query_factor(), space.query);
    space.sums.fill(D::Wide::ZERO);
    let mut state = State::new();
    let visible = block.visible(problem.sizes.keys, problem.causal).min(part.end);
    for first in (part.start..visible).step_by(KEYS) {
        let tile = Tile::new(block, first, problem.sizes.keys, problem.causal);
        if problem.is_fully_masked(&tile, from) {
            continue;
        }
        // The next block is prefetched between the steps of this one, a few rows at a time, so that loads are always in flight.
        let fetch = |i: usize| {
            if first + KEYS < visible {
                problem.prefetch(group, first + KEYS, i, from);
            }
        };
        fetch(0);
        problem.load(group, first..first + tile.keys, from, &mut space.rows);
        fetch(1);
        let size = [tile.keys, block.len, row_width(features)];
        dots(space.rows.key, space.query, size, space.scores, QUERIES);
        fetch(2);
        problem.bias_and_mask(&tile, from, space.scores);
        exponentials(&mut space.scores[..tile.keys * QUERIES], block.columns(), &mut state);
        fetch(3);
        let size = [tile.keys, block.len, row_width(value_features)];
        add_weighted_values(space.rows.value, space.scores, &state.factor[..block.len], size, space.sums);
    }
    state
}

/// The softmax over one part of the keys, or over several: for each query of a group the maximum, the sum of exponentials, and the sums of
/// values.
pub(super) struct PartialSoftmax<'a, T> {
    partials: &'a mut [T],
    queries: usize,
}

impl<'a, T: Real> PartialSoftmax<'a, T> {
    /// The memory of one part, of [`partial_len`] numbers, or of several.
    pub(super) fn new(partials: &'a mut [T], queries: usize) -> PartialSoftmax<'a, T> {
        PartialSoftmax { partials, queries }
    }

    /// Stores the results of a part.
    pub(super) fn store(&mut self, state: &State<T>, sums: &[T]) {
        let [of_maximum, rest] = split(self.partials, self.queries);
        let [of_sum, of_values] = split(rest, self.queries);
        of_maximum.copy_from_slice(&state.maximum[..self.queries]);
        of_sum.copy_from_slice(&state.sum[..self.queries]);
        of_values.copy_from_slice(sums);
    }

    /// Combines the parts. The sums are left in the memory of the first part.
    pub(super) fn combine(self, parts: usize) -> (State<T>, &'a [T]) {
        let (queries, len) = (self.queries, self.partials.len() / parts);
        let width = (len - 2 * queries) / queries.max(1);
        let mut state = State::new();
        for part in self.partials.chunks_exact(len) {
            for (maximum, &of_part) in state.maximum.iter_mut().zip(&part[..queries]) {
                *maximum = if of_part > *maximum { of_part } else { *maximum };
            }
        }
        let (first, others) = self.partials.split_at_mut(len);
        for i in 0..queries {
            let factor = |maximum: T| (maximum - shift(state.maximum[i])).exp();
            let values = 2 * queries + i * width;
            let of_first = factor(first[i]);
            state.sum[i] = first[queries + i] * of_first;
            first[values..][..width].iter_mut().for_each(|sum| *sum = *sum * of_first);
            for part in others.chunks_exact(len) {
                let of_part = factor(part[i]);
                state.sum[i] = part[queries + i].fused(of_part, state.sum[i]);
                for (sum, &value) in first[values..][..width].iter_mut().zip(&part[values..][..width]) {
                    *sum = value.fused(of_part, *sum);
                }
            }
        }
        (state, &first[2 * queries..])
    }
}

/// The first `len` numbers, and the others.
fn split<T>(numbers: &mut [T], len: usize) -> [&mut [T]; 2] {
    numbers.split_at_mut(len).into()
}

/// The number of parts of the keys.
pub(super) fn parts(problem: &Problem) -> usize {
    problem.sizes.keys.div_ceil(PART).max(1)
}

/// Numbers that are stored for a part.
pub(super) fn partial_len(problem: &Problem) -> usize {
    let queries = problem.sizes.queries * problem.sizes.group();
    queries * (2 + row_width(problem.sizes.value_features))
}

/// Numbers in the workspace of [`attend`]: queries, sums, rows of keys and of values, and scores.
pub(super) fn workspace_lens(problem: &Problem) -> [usize; 5] {
    let [features, value_features] = [problem.sizes.features, problem.sizes.value_features].map(row_width);
    let queries = problem.sizes.queries * problem.sizes.group();
    [queries * features, queries * value_features, KEYS * features, KEYS * value_features, KEYS * QUERIES]
}

multiversion! {
    /// Scales the sums of each query by its factor, and adds rows of values times the query's weights.
    fn add_weighted_values<T: Real>(values: &[T], weights: &[T], factors: &[T], size: [usize; 3], sums: &mut [T]) {
        let [count, _, width] = size;
        for (j, &factor) in factors.iter().enumerate() {
            for (k, sums) in sums[j * width..][..width].as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
                let mut own = sums.map(|sum| sum * factor);
                for i in 0..count {
                    let (weight, value) = (weights[i * QUERIES + j], &values[i * width + k * PANEL..][..PANEL]);
                    for (sum, &value) in own.iter_mut().zip(value) {
                        *sum = value.fused(weight, *sum);
                    }
                }
                *sums = own;
            }
        }
    }
}
