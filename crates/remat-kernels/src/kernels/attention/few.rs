//! Attention of few queries to many keys, as when a decoder generates one token at a time.
//!
//! Keys and values are read once, block by block. A tile of the general kernel has columns for at least sixteen queries; here each query
//! has its own products, one row of features at a time. Blocks that the mask hides are not read, so that the cost depends on the filled
//! part of a cache.
//!
//! A long cache is cut into [parts](super::parts) of about [`PART`] keys, so that all threads read it.

use std::ops::Range;

use super::forward::{State, exponentials};
use super::problem::{Elements, Problem, Rows};
use super::thresholds::FEW_QUERIES;
use super::tile::{KEYS, QUERIES, QueryBlock, QueryGroup, RUN, Tile, copy_rows, row_width};
use crate::base::narrow::PANEL;
use crate::base::product::Float;
use crate::kernels::matmul::dots;
use crate::number::{Number, Real};
use crate::simd::multiversion;

/// Keys of a part: computing it costs many times what combining it with the others costs.
pub(super) const PART: usize = 8 * KEYS;

/// Whether the queries of a key head, over all heads that share it, are few.
pub(super) fn applies(problem: &Problem) -> bool {
    problem.sizes.queries * problem.sizes.group() <= FEW_QUERIES
}

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
