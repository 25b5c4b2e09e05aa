//! The cotangents of queries, keys, values and bias.
//!
//! A task has the queries that share a key head. It takes a few blocks of queries at a time, and for them goes through the blocks of keys.
//! It computes the weights again, from the scores and the logsumexp, and then the cotangents of the scores. The cotangents of queries are
//! sums over the blocks of keys and are written at once. Those of keys and values are summed in scratch memory. Where there are few heads,
//! the blocks of queries are split among several tasks, whose sums are added in order.

// Each task writes its own rows.
#![allow(unsafe_code)]

use remat_ir::{DType, DotProductAttentionCotangent};

use super::bias::{self, bias_cotangents};
use super::problem::Problem;
use super::score_cotangents::{AllElements, CotangentOperands, Queries, Workspace};
use super::tile::{KEYS, QUERIES, QueryBlock, QueryGroup, RUN, Tile, row_width, transposed, write_row};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{PANEL, Unit};
use crate::base::product::Float;
use crate::base::scratch;
use crate::interface::{Kernel, Layout, Source, Target};
use crate::number::{Number, Real, with_float};
use crate::threads::Threads;

/// The kernel of the cotangents of an attention, for operands of this dtype with these layouts.
pub(super) fn kernel(
    op: &DotProductAttentionCotangent,
    dtype: DType,
    layouts: &[Layout],
    unit: Option<Unit>,
) -> Box<dyn Kernel> {
    let problem = Problem::new(&op.attention, layouts, unit);
    let parts = parts(&problem);
    let operands = CotangentOperands::new(problem, layouts, op.attention.num_operands(), op.logsumexp);
    let bias = op.attention.operands(layouts).bias.filter(|_| op.cotangents[3]);
    let bias = bias.map(|layout| [0, 1, 2, 3].map(|d| layout.shape[d]));
    Box::new(Backward { dtype, operands, wanted: op.cotangents, bias, parts })
}

/// Fewest tasks, if there are enough queries. Each task has its own sums, so that more tasks take more memory.
const TASKS: usize = 8;

/// How many tasks share the queries of a key head.
fn parts(problem: &Problem) -> usize {
    let sizes = &problem.sizes;
    let heads = (sizes.batch * sizes.key_heads).max(1);
    let runs = QueryGroup::of_key_head(sizes, 0, 0).runs();
    TASKS.div_ceil(heads).min(runs).max(1)
}

struct Backward {
    dtype: DType,
    operands: CotangentOperands,
    /// Which of query, key, value and bias get a cotangent.
    wanted: [bool; 4],
    /// The shape of the bias, if it gets one.
    bias: Option<[usize; 4]>,
    parts: usize,
}

/// The outputs for the wanted cotangents.
struct Outs<'a, D> {
    query: Option<DisjointMut<'a, D>>,
    key: Option<DisjointMut<'a, D>>,
    value: Option<DisjointMut<'a, D>>,
}

impl Kernel for Backward {
    fn scratch(&self, threads: usize) -> usize {
        let pieces = if self.parts == 1 { threads } else { threads.max(self.heads() * self.parts) };
        pieces * self.piece_len() * self.dtype.wide().size()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_float!(self.dtype, D => self.run_as::<D>(ins, outs, scratch::of(scratch), threads));
    }
}

impl Backward {
    /// The number of key heads in the whole batch.
    fn heads(&self) -> usize {
        self.operands.problem.sizes.batch * self.operands.problem.sizes.key_heads
    }

    fn group(&self, head: usize) -> QueryGroup {
        let sizes = &self.operands.problem.sizes;
        QueryGroup::of_key_head(sizes, head / sizes.key_heads, head % sizes.key_heads)
    }

    /// Elements of the sums over the queries: the cotangents of a head's keys, and those of its values.
    fn sums_len(&self) -> [usize; 2] {
        let sizes = &self.operands.problem.sizes;
        // Products write whole panels of keys.
        let keys = sizes.keys.next_multiple_of(PANEL);
        [keys * row_width(sizes.features), keys * row_width(sizes.value_features)]
    }

    /// Where the sums begin in a task's scratch memory.
    fn sums_start(&self) -> usize {
        self.operands.workspace_len() + RUN * self.operands.queries_len()
    }

    /// Elements of a task's scratch memory.
    fn piece_len(&self) -> usize {
        let own = self.sums_start() + self.sums_len().iter().sum::<usize>();
        if self.bias.is_some() { own.max(bias::piece_len(&self.operands)) } else { own }
    }

    fn run_as<D: Float>(
        &self,
        ins: &[Source<'_>],
        outs: &mut [Target<'_>],
        scratch: &mut [D::Wide],
        threads: &Threads,
    ) {
        let from = self.operands.elements::<D>(ins);
        let mut targets = outs.iter_mut();
        let [query, key, value, bias] =
            self.wanted.map(|wanted| if wanted { targets.next().map(Target::slice_mut::<D>) } else { None });
        if let (Some(out), Some(shape)) = (bias, self.bias) {
            bias_cotangents(&self.operands, &from, shape, out, scratch, threads);
        }
        if query.is_none() && key.is_none() && value.is_none() {
            return;
        }
        let [query, key, value] = [query, key, value].map(|out| out.map(DisjointMut::new));
        let outs = Outs { query, key, value };
        let keys = self.operands.problem.sizes.keys;
        if self.parts == 1 {
            return threads.for_each_with_scratch(self.heads(), scratch, |head, piece| {
                self.task(head, 0, &from, &outs, piece);
                self.write_keys(head, 0, keys, piece, &outs);
            });
        }
        let len = self.piece_len();
        let pieces = &mut scratch[..self.heads() * self.parts * len];
        threads.for_each_chunk(pieces, len, |task, piece| {
            self.task(task / self.parts, task % self.parts, &from, &outs, piece);
        });
        let pieces = &*pieces;
        let blocks = keys.div_ceil(KEYS);
        threads.for_each(self.heads() * blocks, |task| {
            let (head, first) = (task / blocks, task % blocks * KEYS);
            let own = &pieces[head * self.parts * len..][..self.parts * len];
            self.write_keys(head, first, KEYS.min(keys - first), own, &outs);
        });
    }

    /// Goes through the blocks of queries of a part of a group: writes their cotangents, and leaves the sums over them in scratch memory.
    fn task<D: Float>(
        &self,
        head: usize,
        part: usize,
        from: &AllElements<'_, D>,
        outs: &Outs<'_, D>,
        scratch: &mut [D::Wide],
    ) {
        let (mut scratch, sums) = scratch.split_at_mut(self.sums_start());
        let (key_sums, rest) = sums.split_at_mut(self.sums_len()[0]);
        let value_sums = &mut rest[..self.sums_len()[1]];
        key_sums.fill(D::Wide::ZERO);
        value_sums.fill(D::Wide::ZERO);
        let mut space = self.operands.workspace(&mut scratch);
        let group = self.group(head);
        // Assigned one by one, since under a causal mask the later blocks are more work.
        for run in (part..group.runs()).step_by(self.parts) {
            self.run_of_blocks(&group, run, from, outs, &mut space, scratch, [key_sums, value_sums]);
        }
    }

    /// Goes through the keys for a run of blocks of queries.
    fn run_of_blocks<D: Float>(
        &self,
        group: &QueryGroup,
        run: usize,
        from: &AllElements<'_, D>,
        outs: &Outs<'_, D>,
        space: &mut Workspace<'_, D::Wide>,
        mut scratch: &mut [D::Wide],
        [key_sums, value_sums]: [&mut [D::Wide]; 2],
    ) {
        let problem = &self.operands.problem;
        let sizes = &problem.sizes;
        let (width, value_width) = (row_width(sizes.features), row_width(sizes.value_features));
        let mut blocks: [Option<(QueryBlock, Queries<D::Wide>)>; RUN] = [const { None }; RUN];
        for (to, block) in blocks.iter_mut().zip(group.run(run)) {
            *to = Some((block, self.operands.queries(block, from, space, &mut scratch)));
        }
        problem.for_each_block_of_keys(group.run(run), |keys| {
            problem.load_for_products(group, keys.clone(), &from.own, &mut space.products, &mut space.rows);
            for (i, (block, queries)) in blocks.iter_mut().flatten().enumerate() {
                problem.prefetch(group, keys.end, i, &from.own);
                let tile = Tile::new(*block, keys.start, sizes.keys, problem.causal);
                if tile.keys == 0 {
                    continue;
                }
                self.operands.compute(&tile, from, queries, space);
                if outs.query.is_some() {
                    space.products.add_to_queries(&tile, space.rows.key, sizes.features, space.d_scores, queries.sums);
                }
                if outs.key.is_some() {
                    let sums = &mut key_sums[tile.first_key * width..];
                    space.products.add_to_keys(&tile, space.d_scores, queries.query_rows, sizes.features, sums);
                }
                if outs.value.is_some() {
                    let sums = &mut value_sums[tile.first_key * value_width..];
                    space.products.add_to_keys(
                        &tile,
                        space.weights,
                        queries.cotangent_rows,
                        sizes.value_features,
                        sums,
                    );
                }
            }
        });
        if let Some(out) = &outs.query {
            for (block, queries) in blocks.iter().flatten() {
                self.write_queries(block, queries.sums, space.rows.key, out);
            }
        }
    }

    /// Writes the cotangents of a block of queries, which are the columns of `sums` times the scale.
    fn write_queries<D: Float>(
        &self,
        block: &QueryBlock,
        sums: &[D::Wide],
        rows: &mut [D::Wide],
        out: &DisjointMut<'_, D>,
    ) {
        let sizes = &self.operands.problem.sizes;
        let width = row_width(sizes.features);
        transposed(&sums[..sizes.features * QUERIES], QUERIES, block.len, rows, width);
        let scale = D::Wide::from_f64(self.operands.problem.scale);
        for i in 0..block.len {
            let (head, position) = block.query(i);
            let row = (block.group.batch * sizes.queries + position) * sizes.heads + head;
            // SAFETY: each query is in one block, each block in one task, and the row is the query's.
            let row = unsafe { out.slice(row * sizes.features, sizes.features) };
            write_row(&rows[i * width..], scale, row);
        }
    }

    /// Writes the cotangents of some keys and values of a head: the sums over its parts, whose scratch memory is `pieces`.
    fn write_keys<D: Float>(&self, head: usize, first: usize, keys: usize, pieces: &[D::Wide], outs: &Outs<'_, D>) {
        let sizes = &self.operands.problem.sizes;
        let group = self.group(head);
        let key_sums = self.sums_start();
        let value_sums = key_sums + self.sums_len()[0];
        let factor = self.operands.problem.product_factor();
        let cotangents = [
            (&outs.key, key_sums, sizes.features, factor),
            (&outs.value, value_sums, sizes.value_features, D::Wide::ONE),
        ];
        for (out, sums, features, factor) in cotangents {
            let Some(out) = out else { continue };
            for key in first..first + keys {
                let row = (group.batch * sizes.keys + key) * sizes.key_heads + group.key_head;
                // SAFETY: only this call writes these keys of this head.
                let row = unsafe { out.slice(row * features, features) };
                let sums = &pieces[sums + key * row_width(features)..];
                if self.parts == 1 {
                    write_row(sums, factor, row);
                    continue;
                }
                for (i, to) in row.iter_mut().enumerate() {
                    let parts = (1..self.parts).map(|part| sums[part * self.piece_len() + i]);
                    *to = D::narrow(parts.fold(sums[i], |sum, x| sum + x) * factor);
                }
            }
        }
    }
}
