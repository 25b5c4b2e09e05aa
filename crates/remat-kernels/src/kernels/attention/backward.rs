//! The cotangents of queries, keys, values and bias.
//!
//! A task has the queries that share a key head. It takes a few blocks of queries at a time, and for them goes through the blocks of keys.
//! It computes the weights again, from the scores and the logsumexp, and then the cotangents of the scores. The cotangents of queries are
//! sums over the blocks of keys and are written at once. Those of keys and values are summed in scratch memory. Where there are few heads,
//! the blocks of queries are split among several tasks, and where they are few too, the keys are. The sums of tasks are added in order.

// Each task writes its own rows.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{DType, DotProductAttentionCotangent};

use super::bias::{self, bias_cotangents};
use super::parts::{Parts, TASKS};
use super::problem::Problem;
use super::score_cotangents::{AllElements, CotangentOperands, Queries, Workspace};
use super::tile::{KEYS, QUERIES, QueryBlock, QueryGroup, RUN, Tile, row_width, transposed, write_row};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::PANEL;
use crate::base::product::Float;
use crate::base::scratch;
use crate::interface::{Kernel, Layout, Source, Target};
use crate::number::{Number, Real, with_float};
use crate::threads::Threads;

/// How many tasks share the queries of a key head. Each has its own sums, so that more tasks take more memory.
fn parts(problem: &Problem) -> usize {
    let runs = QueryGroup::of_key_head(&problem.sizes, 0, 0).runs();
    TASKS.div_ceil(problem.key_heads().max(1)).min(runs).max(1)
}

pub(super) struct Backward {
    dtype: DType,
    operands: CotangentOperands,
    /// Which of query, key, value and bias get a cotangent.
    wanted: [bool; 4],
    /// The shape of the bias, if it gets one.
    bias: Option<[usize; 4]>,
    /// How many tasks share the queries of a key head, and how many share its keys.
    parts: usize,
    key_parts: Parts,
}

/// The outputs for the wanted cotangents.
struct Outs<'a, D: Float> {
    query: Option<DisjointMut<'a, D>>,
    key: Option<DisjointMut<'a, D>>,
    value: Option<DisjointMut<'a, D>>,
    /// Memory for the cotangents of queries from parts of the keys.
    query_sums: DisjointMut<'a, D::Wide>,
}

impl Kernel for Backward {
    fn scratch(&self, threads: usize) -> usize {
        let own = self.query_sums_len() + self.stored_sums_len() + threads * self.piece_len();
        let of_bias = if self.bias.is_some() { bias::piece_len(&self.operands) } else { 0 };
        own.max(threads * of_bias) * self.dtype.wide().size()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_float!(self.dtype, D => self.run_as::<D>(ins, outs, scratch::of(scratch), threads));
    }
}

impl Backward {
    pub(super) fn new(
        op: &DotProductAttentionCotangent,
        dtype: DType,
        layouts: &[Layout],
        problem: Problem,
    ) -> Backward {
        let parts = parts(&problem);
        let tasks = problem.key_heads() * parts;
        let key_parts = Parts::of_tasks(problem.sizes.keys, tasks);
        let operands = CotangentOperands::new(problem, layouts, op.attention.num_operands(), op.logsumexp);
        let bias = op.attention.operands(layouts).bias.filter(|_| op.cotangents[3]);
        let bias = bias.map(|layout| [0, 1, 2, 3].map(|d| layout.shape[d]));
        Backward { dtype, operands, wanted: op.cotangents, bias, parts, key_parts }
    }

    /// The number of tasks that threads share.
    pub(super) fn tasks(&self) -> usize {
        self.operands.problem.key_heads() * self.parts * self.key_parts.count
    }

    /// Elements of a task's sums over the queries: the cotangents of its keys, and those of its values.
    fn sums_len(&self) -> [usize; 2] {
        let sizes = &self.operands.problem.sizes;
        // Products write whole panels of keys.
        let keys = self.key_parts.longest().next_multiple_of(PANEL);
        [keys * row_width(sizes.features), keys * row_width(sizes.value_features)]
    }

    /// Elements of the sums of all tasks, if several share the queries of a key head.
    fn stored_sums_len(&self) -> usize {
        let tasks = if self.parts == 1 { 0 } else { self.tasks() };
        tasks * self.sums_len().iter().sum::<usize>()
    }

    /// Elements of the cotangents of a block of queries from one part of the keys.
    fn block_len(&self) -> usize {
        let sizes = &self.operands.problem.sizes;
        (sizes.queries * sizes.group()).min(QUERIES) * row_width(sizes.features)
    }

    /// Elements of the cotangents of all queries from all parts of the keys, if there are several.
    fn query_sums_len(&self) -> usize {
        if self.key_parts.count == 1 || !self.wanted[0] {
            return 0;
        }
        let blocks = QueryGroup::of_key_head(&self.operands.problem.sizes, 0, 0).blocks();
        self.operands.problem.key_heads() * blocks * self.key_parts.count * self.block_len()
    }

    /// Elements of a task's workspace.
    fn workspace_len(&self) -> usize {
        self.operands.workspace_len() + RUN * self.operands.queries_len()
    }

    /// Elements of a thread's scratch memory.
    fn piece_len(&self) -> usize {
        let sums = if self.parts == 1 { self.sums_len().iter().sum() } else { 0 };
        self.workspace_len() + sums
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
        let (query_sums, scratch) = scratch.split_at_mut(self.query_sums_len());
        let (stored, scratch) = scratch.split_at_mut(self.stored_sums_len());
        let [query, key, value] = [query, key, value].map(|out| out.map(DisjointMut::new));
        let outs = Outs { query, key, value, query_sums: DisjointMut::new(query_sums) };
        let (heads, parts, key_parts) = (self.operands.problem.key_heads(), self.parts, self.key_parts.count);
        let len = self.sums_len().iter().sum::<usize>();
        let of_tasks = DisjointMut::new(&mut *stored);
        threads.for_each_with_scratch(self.tasks(), scratch, |task, scratch| {
            let (head, part, key_part) = (task / key_parts / parts, task / key_parts % parts, task % key_parts);
            let (scratch, sums) = scratch.split_at_mut(self.workspace_len());
            if parts > 1 {
                // SAFETY: the sums are those of this task.
                let sums = unsafe { of_tasks.slice(task * len, len) };
                return self.task(head, [part, key_part], &from, &outs, scratch, sums);
            }
            self.task(head, [part, key_part], &from, &outs, scratch, &mut sums[..len]);
            self.write_keys(head, self.key_parts.keys(key_part), sums, &outs);
        });
        if parts > 1 {
            let (stored, keys) = (&*stored, self.operands.problem.sizes.keys);
            let blocks = keys.div_ceil(KEYS);
            threads.for_each(heads * blocks, |task| {
                let (head, first) = (task / blocks, task % blocks * KEYS);
                let sums = &stored[(head * parts * key_parts + self.key_parts.of_key(first)) * len..];
                self.write_keys(head, first..keys.min(first + KEYS), sums, &outs);
            });
        }
        if self.query_sums_len() > 0 {
            let blocks = self.operands.problem.group(0).blocks();
            threads.for_each(heads * blocks, |i| {
                self.write_sums_of_queries(&self.operands.problem.group(i / blocks).block(i % blocks), &outs)
            });
        }
    }

    /// Goes through the blocks of queries of a part of a group, and through a part of the keys: writes the cotangents of the queries, and
    /// leaves those of the keys and values in `sums`.
    fn task<D: Float>(
        &self,
        head: usize,
        [part, key_part]: [usize; 2],
        from: &AllElements<'_, D>,
        outs: &Outs<'_, D>,
        mut scratch: &mut [D::Wide],
        sums: &mut [D::Wide],
    ) {
        sums.fill(D::Wide::ZERO);
        let (key_sums, value_sums) = sums.split_at_mut(self.sums_len()[0]);
        let mut space = self.operands.workspace(&mut scratch);
        let group = self.operands.problem.group(head);
        // Assigned one by one, since under a causal mask the later blocks are more work.
        for run in (part..group.runs()).step_by(self.parts) {
            self.run_of_blocks(&group, [run, key_part], from, outs, &mut space, scratch, [key_sums, value_sums]);
        }
    }

    /// Goes through a part of the keys for a run of blocks of queries.
    fn run_of_blocks<D: Float>(
        &self,
        group: &QueryGroup,
        [run, key_part]: [usize; 2],
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
        let part = self.key_parts.keys(key_part);
        problem.for_each_block_of_keys(group.run(run), part.clone(), |keys| {
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
                    let sums = &mut key_sums[(tile.first_key - part.start) * width..];
                    space.products.add_to_keys(&tile, space.d_scores, queries.query_rows, sizes.features, sums);
                }
                if outs.value.is_some() {
                    let sums = &mut value_sums[(tile.first_key - part.start) * value_width..];
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
        for (block, queries) in blocks.iter().flatten().filter(|_| outs.query.is_some()) {
            let columns = &queries.sums[..sizes.features * QUERIES];
            transposed(columns, QUERIES, block.len, space.rows.key, width);
            if self.key_parts.count == 1 {
                self.write_queries(block, space.rows.key, 1, outs);
                continue;
            }
            let len = block.len * width;
            // SAFETY: each part of each block belongs to one task.
            let sums = unsafe { outs.query_sums.slice(self.query_sums_start(block) + key_part * len, len) };
            sums.copy_from_slice(&space.rows.key[..len]);
        }
    }

    /// Where the cotangents of a block of queries from the parts of the keys are stored.
    fn query_sums_start(&self, block: &QueryBlock) -> usize {
        self.operands.problem.block_number(block) * self.key_parts.count * self.block_len()
    }

    /// Writes the cotangents of a block of queries from those of the parts of the keys.
    fn write_sums_of_queries<D: Float>(&self, block: &QueryBlock, outs: &Outs<'_, D>) {
        let (width, parts) = (row_width(self.operands.problem.sizes.features), self.key_parts.count);
        // SAFETY: each block belongs to one task.
        let sums = unsafe { outs.query_sums.slice(self.query_sums_start(block), parts * block.len * width) };
        self.write_queries(block, sums, parts, outs);
    }

    /// Writes the cotangents of a block of queries: the sums over some parts of the keys, each a matrix of rows, times the scale.
    fn write_queries<D: Float>(&self, block: &QueryBlock, sums: &[D::Wide], parts: usize, outs: &Outs<'_, D>) {
        let Some(out) = &outs.query else { return };
        let sizes = &self.operands.problem.sizes;
        let width = row_width(sizes.features);
        let scale = D::Wide::from_f64(self.operands.problem.scale);
        for i in 0..block.len {
            let (head, position) = block.query(i);
            let row = (block.group.batch * sizes.queries + position) * sizes.heads + head;
            // SAFETY: each query is in one block, each block in one task, and the row is the query's.
            let row = unsafe { out.slice(row * sizes.features, sizes.features) };
            write_sums(&sums[i * width..], [parts, block.len * width], scale, row);
        }
    }

    /// Writes the cotangents of some keys and values of a head: the sums over its parts, of which `sums` has the first, of the part of the
    /// keys that has these.
    fn write_keys<D: Float>(&self, head: usize, keys: Range<usize>, sums: &[D::Wide], outs: &Outs<'_, D>) {
        let sizes = &self.operands.problem.sizes;
        let group = self.operands.problem.group(head);
        let factor = self.operands.problem.product_factor();
        let [key_len, value_len] = self.sums_len();
        let parts = [self.parts, self.key_parts.count * (key_len + value_len)];
        let cotangents =
            [(&outs.key, 0, sizes.features, factor), (&outs.value, key_len, sizes.value_features, D::Wide::ONE)];
        for (out, start, features, factor) in cotangents {
            let Some(out) = out else { continue };
            for key in keys.clone() {
                let row = (group.batch * sizes.keys + key) * sizes.key_heads + group.key_head;
                // SAFETY: only this call writes these keys of this head.
                let row = unsafe { out.slice(row * features, features) };
                let key = key - self.key_parts.keys(self.key_parts.of_key(key)).start;
                write_sums(&sums[start + key * row_width(features)..], parts, factor, row);
            }
        }
    }
}

/// Writes the sums of some rows, which are `stride` apart, times a factor.
fn write_sums<D: Float>(sums: &[D::Wide], [parts, stride]: [usize; 2], factor: D::Wide, row: &mut [D]) {
    if parts == 1 {
        return write_row(sums, factor, row);
    }
    for (i, to) in row.iter_mut().enumerate() {
        let parts = (1..parts).map(|part| sums[part * stride + i]);
        *to = D::narrow(parts.fold(sums[i], |sum, x| sum + x) * factor);
    }
}
