//! The cotangent of the bias: the sums of the cotangents of the scores over the dimensions in which it has size 1.
//!
//! A task has a part of the bias, and goes through all scores to which this part was added. The cotangents of the scores are computed a
//! second time here: learned biases are rare, and this keeps the other cotangents simple.

// Each task writes its own parts.
#![allow(unsafe_code)]

use std::ops::Range;

use super::problem::take;
use super::score_cotangents::{AllElements, CotangentOperands, Workspace};
use super::tile::{KEYS, QUERIES, QueryGroup, Tile};
use crate::base::disjoint::DisjointMut;
use crate::base::product::Float;
use crate::number::Number;
use crate::threads::Threads;

/// Elements of a task's scratch memory.
pub(super) fn piece_len(operands: &CotangentOperands) -> usize {
    operands.workspace_len() + operands.queries_len() + KEYS * QUERIES
}

/// Writes the cotangent of a bias of this shape.
pub(super) fn bias_cotangents<D: Float>(
    operands: &CotangentOperands,
    from: &AllElements<'_, D>,
    shape: [usize; 4],
    out: &mut [D],
    scratch: &mut [D::Wide],
    threads: &Threads,
) {
    let sizes = &operands.problem.sizes;
    let scores = sizes.scores();
    let is_full = [0, 1, 2, 3].map(|d| shape[d] == scores[d]);
    let blocks = [sizes.batch, sizes.heads, sizes.queries.div_ceil(QUERIES), sizes.keys.div_ceil(KEYS)];
    let parts = [0, 1, 2, 3].map(|d| if is_full[d] { blocks[d] } else { 1 });
    let out = DisjointMut::new(out);
    threads.for_each_with_scratch(parts.iter().product(), scratch, |mut task, mut scratch| {
        let mut part = [0; 4];
        for d in (0..4).rev() {
            (part[d], task) = (task % parts[d], task / parts[d]);
        }
        let ranges = [0, 1, 2, 3].map(|d| if is_full[d] { part[d]..part[d] + 1 } else { 0..blocks[d] });
        let mut space = operands.workspace(&mut scratch);
        let sums = take(&mut scratch, KEYS * QUERIES);
        sum_scores(operands, from, ranges, [is_full[3], is_full[2]], &mut space, scratch, sums);

        let [first_query, first_key] = [part[2] * QUERIES, part[3] * KEYS];
        let queries = QUERIES.min(shape[2] - first_query);
        let keys = KEYS.min(shape[3] - first_key);
        for query in 0..queries {
            let row = (part[0] * shape[1] + part[1]) * shape[2] + first_query + query;
            // SAFETY: each part of the bias belongs to one task.
            let row = unsafe { out.slice(row * shape[3] + first_key, keys) };
            for (to, sums) in row.iter_mut().zip(sums.as_chunks::<QUERIES>().0) {
                *to = D::narrow(sums[query]);
            }
        }
    });
}

/// Sums the cotangents of the scores over batch elements, heads, blocks of queries and blocks of keys. The positions in a block of keys,
/// and in a block of queries, are summed or kept apart.
fn sum_scores<D: Float>(
    operands: &CotangentOperands,
    from: &AllElements<'_, D>,
    [batch, heads, queries, keys]: [Range<usize>; 4],
    [keeps_keys, keeps_queries]: [bool; 2],
    space: &mut Workspace<'_, D::Wide>,
    scratch: &mut [D::Wide],
    sums: &mut [D::Wide],
) {
    let problem = &operands.problem;
    sums.fill(D::Wide::ZERO);
    for (batch, head) in batch.flat_map(|batch| heads.clone().map(move |head| (batch, head))) {
        let group = QueryGroup::of_head(&problem.sizes, batch, head);
        for block in queries.clone().map(|i| group.block(i)) {
            let of_block = operands.queries(block, from, space, &mut &mut *scratch);
            for first in keys.clone().map(|i| i * KEYS) {
                let tile = Tile::new(block, first, problem.sizes.keys, problem.causal);
                let keys = first..first + tile.keys;
                problem.load_for_products(&group, keys, &from.own, &mut space.products, &mut space.rows);
                operands.compute(&tile, from, &of_block, space);
                for (key, d_scores) in space.d_scores.as_chunks::<QUERIES>().0.iter().enumerate().take(tile.keys) {
                    let row = if keeps_keys { key * QUERIES } else { 0 };
                    for (query, &d_score) in d_scores.iter().enumerate().take(block.len) {
                        let sum = &mut sums[row + if keeps_queries { query } else { 0 }];
                        *sum = *sum + d_score;
                    }
                }
            }
        }
    }
}
